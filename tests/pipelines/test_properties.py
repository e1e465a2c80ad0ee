"""What holds for every cluster and every history: full compilation is the definition, the rest must agree."""

from collections.abc import Iterable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.actions import Ct, Resubmit, ToGroup
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.flow import Flow
from pipelines.ids import GroupIds
from pipelines.model import Change, Kind
from pipelines.tables import BY_ID, ENDPOINT_DNAT
from pipelines.unit import EMPTY, Member, Revision, Unit, UnitKey
from tests.pipelines import clusters
from tests.pipelines.objects import carried, compiled, gone, ips, node, pod, port, small_cluster

World = dict[tuple[Kind, str], Any]

HISTORIES = st.one_of(
    clusters.batches(),
    clusters.batches().map(lambda more: [small_cluster(), *more]),
)


# Histories that once showed a fault, tried first.
N1 = node("n1", ["10.10.1.0/24"], datapath_id=1)
FORGOTTEN = [[N1, port("n1", "gw0", 2, "0a:00:00:00:00:01"), gone(N1)], [N1]]
GATEWAY_TAKEN = [small_cluster(), [pod("b", "n1", "10.10.1.1")]]
ONE_MAC_TWICE = [small_cluster(), [pod("b", "n1", "10.10.1.10", "fd00:10:1::11")]]
PEER_AS_NEXT_HOP = [
    [
        node("n1", (), ["192.168.77.101/24"], datapath_id=1, gateways=ips("192.168.77.102")),
        node("n2", (), ["192.168.77.102/24"], datapath_id=2),
    ]
]
NO_SETTINGS = [[Change(Kind.SETTINGS, "", None)]]


def apply(world: World, changes: Iterable[Change]) -> None:
    """What the changes say, read one by one; a deleted Node takes what was observed of it along."""
    for change in changes:
        key = change.kind, change.key
        if change.value is None:
            world.pop(key, None)
        else:
            world[key] = change.value
        if change.kind is Kind.NODE and change.value is None:
            observed = (Kind.PORT, Kind.NEIGHBOR, Kind.EVIDENCE)
            for kind, name in [at for at in world if at[0] in observed and at[1].split()[0] == change.key]:
                del world[kind, name]


def said(world: World) -> list[Change]:
    return [Change(kind, key, world[kind, key]) for kind, key in sorted(world)]


def full(world: World, bits: int = 24) -> Compiler:
    """Everything at once, in an order that has nothing to do with history."""
    compiler = Compiler(group_ids=GroupIds(bits))
    compiler.run(said(world))
    return compiler


def begun(bits: int = 24) -> Compiler:
    """After the first compilation, of an empty cluster."""
    return full({}, bits)


def outcome(compiler: Compiler) -> tuple[Any, ...]:
    """All that anybody outside can see."""
    facts = {kind: dict(compiler.facts.peek(kind)) for kind in Derived}
    return compiler.units, facts, compiler.problems()


class Follower:
    """A switch's side: knows only revisions, and checks that each says what was there before."""

    def __init__(self) -> None:
        self.units: dict[UnitKey, Unit] = {}
        self.members: dict[int, Member] = {}
        self.number = 0

    def take(self, revision: Revision) -> None:
        assert revision.number == self.number + 1
        self.number = revision.number
        for change in revision.changes:
            assert change.old != change.new
            assert self.units.get(change.key, EMPTY) == change.old
            if change.new:
                self.units[change.key] = change.new
            else:
                del self.units[change.key]
        assert len({change.key for change in revision.changes}) == len(revision.changes)
        for datapath, member in revision.members.items():
            if member is None:
                self.members.pop(datapath, None)
            else:
                self.members[datapath] = member


@settings(max_examples=60)
@example(FORGOTTEN)
@example(NO_SETTINGS)
@given(HISTORIES)
def test_incremental_compilation_equals_full_compilation_after_every_step(history: list[list[Change]]) -> None:
    compiler = begun()
    world: World = {}
    for batch in history:
        compiler.run(batch)
        apply(world, batch)
        assert outcome(compiler) == outcome(full(world))


@settings(max_examples=40)
@given(HISTORIES)
def test_incremental_equals_full_also_when_group_ids_collide(history: list[list[Change]]) -> None:
    compiler = begun(bits=5)
    world: World = {}
    for batch in history:
        compiler.run(batch)
        apply(world, batch)
    assert outcome(compiler) == outcome(full(world, bits=5))


@settings(max_examples=60)
@given(HISTORIES, st.data())
def test_squashed_split_or_repeated_changes_give_the_same(history: list[list[Change]], data: st.DataObject) -> None:
    flat = [change for batch in history for change in batch]
    squashed, split = compiled(*flat), begun()
    while flat:
        count = data.draw(st.integers(1, max(1, len(flat))))
        split.run(flat[:count])
        split.run(flat[:count][-1:])  # said twice
        flat = flat[count:]
    assert outcome(squashed) == outcome(split)


@settings(max_examples=60)
@given(HISTORIES, st.data())
def test_objects_may_come_in_any_order(history: list[list[Change]], data: st.DataObject) -> None:
    world: World = {}
    for batch in history:
        apply(world, batch)
    one_by_one = begun()
    for change in data.draw(st.permutations(said(world))):
        one_by_one.run([change])
    assert outcome(one_by_one) == outcome(full(world))


@settings(max_examples=40)
@given(HISTORIES, st.lists(clusters.changes(), max_size=8))
def test_there_and_back_leaves_the_same_tables(history: list[list[Change]], detour: list[Change]) -> None:
    compiler = begun()
    world: World = {}
    for batch in history:
        compiler.run(batch)
        apply(world, batch)
    before = outcome(full(world))
    compiler.run(detour)
    touched: World = dict(world)
    apply(touched, detour)
    compiler.run(Change(kind, key, None) for kind, key in sorted(touched.keys() - world.keys()))
    compiler.run(said(world))
    assert outcome(compiler) == before


@settings(max_examples=40)
@given(HISTORIES, st.booleans())
def test_deleting_everything_leaves_what_an_empty_cluster_has(history: list[list[Change]], at_once: bool) -> None:
    compiler, follower = Compiler(), Follower()
    follower.take(compiler.run())
    keys = set()
    for batch in history:
        follower.take(compiler.run(batch))
        keys |= {(change.kind, change.key) for change in batch}
    gone_now = [Change(kind, key, None) for kind, key in sorted(keys)]
    for batch in [gone_now] if at_once else [[change] for change in gone_now]:
        follower.take(compiler.run(batch))
    assert outcome(compiler) == outcome(compiled())
    assert follower.units == compiled().units
    assert follower.members == {}


@settings(max_examples=40)
@given(HISTORIES)
def test_revisions_lead_from_the_old_units_and_members_to_the_new_ones(history: list[list[Change]]) -> None:
    compiler, follower = Compiler(), Follower()
    for batch in history:
        follower.take(compiler.run(batch))
        assert follower.units == compiler.units
        assert {f"{key:016x}": member for key, member in follower.members.items()} == compiler.facts.peek(
            Derived.MEMBER
        )


@settings(max_examples=60)
@example(GATEWAY_TAKEN)
@example(ONE_MAC_TWICE)
@example(PEER_AS_NEXT_HOP)
@given(HISTORIES)
def test_no_flow_key_or_group_id_is_claimed_by_two_units_of_one_switch(history: list[list[Change]]) -> None:
    compiler = Compiler()
    for batch in history:
        compiler.run(batch)
        for member in compiler.facts.peek(Derived.MEMBER).values():
            check_one_owner(compiler, member)


def check_one_owner(compiler: Compiler, member: Member) -> None:
    owners: dict[Any, UnitKey] = {}
    for key, unit in compiler.units.items():
        if key.scope not in member.scopes:
            continue
        said: dict[Any, Flow] = {}
        for flow in unit.flows:
            assert said.setdefault(flow.key, flow) == flow, f"{key} contradicts itself about {flow.key}"
            assert owners.setdefault(flow.key, key) == key, f"{key} and {owners[flow.key]} both say {flow.key}"
        for group in unit.groups:
            assert owners.setdefault(group.id, key) == key, f"{key} and {owners[group.id]} share group {group.id:#x}"


@settings(max_examples=40)
@given(HISTORIES)
def test_nothing_refers_to_what_the_switch_does_not_carry(history: list[list[Change]]) -> None:
    """Groups that flows name exist; an endpoint that a bucket chooses is one that endpoint_dnat knows."""
    compiler = Compiler()
    for batch in history:
        compiler.run(batch)
    for member in compiler.facts.peek(Derived.MEMBER).values():
        units = carried(compiler, member)
        groups = {group.id: group for unit in units for group in unit.groups}
        flows = [flow for unit in units for flow in unit.flows]
        named = {action.group for flow in flows for action in flow.actions if isinstance(action, ToGroup)}
        assert named <= groups.keys()
        known = {
            (action.nat.ip, action.nat.port)
            for flow in flows
            if flow.table == ENDPOINT_DNAT.id
            for action in flow.actions
            if isinstance(action, Ct) and action.nat
        }
        chosen = {(at.endpoint, at.endpoint_port) for unit in units for at in unit.allowed}
        assert chosen <= known
        for group in groups.values():
            assert group.buckets
            assert len({bucket.id for bucket in group.buckets}) == len(group.buckets)
            assert all(bucket.actions[-1] == Resubmit(ENDPOINT_DNAT.id) for bucket in group.buckets)
        for flow in flows:
            assert flow.table in BY_ID


@settings(max_examples=40)
@given(HISTORIES, clusters.batches(), st.integers(1, 40))
def test_changes_submitted_in_the_middle_of_a_compilation_land_in_the_next(
    history: list[list[Change]], late: list[list[Change]], after: int
) -> None:
    early = [change for batch in history for change in batch]
    later = [change for batch in late for change in batch]
    compiler, untouched = Compiler(), Compiler()
    world: World = {}
    apply(world, early)
    compiler.submit(early)
    steps = compiler.compile()
    try:
        for _ in range(after):
            next(steps)
    except StopIteration as end:
        first = end.value
        compiler.submit(later)
    else:
        compiler.submit(later)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                first = end.value
                break
    assert first == untouched.run(early)
    assert compiler.units == untouched.units
    assert compiler.idle == (not later)
    second = compiler.run()
    apply(world, later)
    assert second.number == first.number + 1
    assert outcome(compiler) == outcome(full(world))
