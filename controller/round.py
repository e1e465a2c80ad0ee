"""A round: the netted difference that one transaction brings to one switch.

A round is made of steps, one for each unit, each with what the switch holds of the unit and what it should
hold. All units are netted together by key: an address that moves from one object to another is an add with a
new cookie, never a delete. The same function makes the difference of a read-back, with what was read as one
more step that has no unit.

Order inside a round: groups in, flows in (last tables first), flows out, groups out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from controller import encode
from pipelines.unit import Tuple, UnitKey


class InstalledFlow(Protocol):
    """An EncodedFlow, or a row that was read back."""

    @property
    def key(self) -> bytes: ...
    @property
    def cookie(self) -> int: ...


class InstalledGroup(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def content(self) -> bytes: ...


class Installed(Protocol):
    """What a switch holds of a unit: an EncodedUnit, or `Rows`."""

    @property
    def flows(self) -> Mapping[bytes, InstalledFlow]: ...
    @property
    def groups(self) -> Mapping[int, InstalledGroup]: ...
    @property
    def allowed(self) -> frozenset[Tuple]: ...


class Rows(Struct, frozen=True):
    """Flows and groups that were read back."""

    flows: Mapping[bytes, InstalledFlow] = {}
    groups: Mapping[int, InstalledGroup] = {}
    allowed: frozenset[Tuple] = frozenset()


class Step(NamedTuple):
    """From `old` (what the switch holds) to `new`; None for nothing. `unit` None: rows whose unit is not known."""

    unit: UnitKey | None
    old: Installed | None
    new: encode.EncodedUnit | None


class Round(Struct, frozen=True):
    """What to send. `growth`: how many flows more the switch holds afterwards; `group_growth` likewise."""

    groups_in: tuple[encode.EncodedGroup, ...] = ()
    flows_in: tuple[encode.EncodedFlow, ...] = ()
    flows_out: tuple[InstalledFlow, ...] = ()
    groups_out: tuple[InstalledGroup, ...] = ()
    growth: int = 0
    group_growth: int = 0

    def __bool__(self) -> bool:
        return bool(self.groups_in or self.flows_in or self.flows_out or self.groups_out)

    def __len__(self) -> int:
        return len(self.groups_in) + len(self.flows_in) + len(self.flows_out) + len(self.groups_out)

    @property
    def removals(self) -> int:
        return len(self.flows_out) + len(self.groups_out)

    def without_removals(self) -> "Round":
        return Round(
            self.groups_in,
            self.flows_in,
            growth=self.growth + len(self.flows_out),
            group_growth=self.group_growth + len(self.groups_out),
        )

    def messages(self) -> Iterator[bytes]:
        """Whole bundle-add messages, in order."""
        for group in self.groups_in:
            yield group.message
        for flow in self.flows_in:
            yield flow.message
        for gone in self.flows_out:
            yield encode.delete_flow(gone)
        for gone_group in self.groups_out:
            yield encode.delete_group(gone_group.id)


def net(
    steps: Collection[Step],
    pause: Callable[[], None] = lambda: None,
    again: Collection[bytes] = (),
) -> Round:
    """The round of `steps`. Flows whose key is in `again` are written even when their cookie is there already."""
    held: dict[bytes, InstalledFlow] = {}
    doubtful: set[bytes] = set(again)  # claimed twice with different cookies: which one won is not known
    out: list[InstalledFlow] = []
    held_groups: dict[int, InstalledGroup] = {}
    doubtful_groups: set[int] = set()
    for step in steps:
        if step.old is None:
            continue
        for key, row in step.old.flows.items():
            other = held.setdefault(key, row)
            if other is not row and other.cookie != row.cookie:
                doubtful.add(key)
                out.append(row)
        for number, old_group in step.old.groups.items():
            if held_groups.setdefault(number, old_group).content != old_group.content:
                doubtful_groups.add(number)
        pause()
    wanted: set[bytes] = set()
    flows_in: list[encode.EncodedFlow] = []
    groups_in: dict[int, encode.EncodedGroup] = {}
    wanted_groups: set[int] = set()
    for step in steps:
        if step.new is None:
            continue
        for key, flow in step.new.flows.items():
            wanted.add(key)
            there = held.get(key)
            if there is None or there.cookie != flow.cookie or key in doubtful:
                flows_in.append(flow)
        for number, group in step.new.groups.items():
            wanted_groups.add(number)
            there_group = held_groups.get(number)
            if there_group is None or there_group.content != group.content or number in doubtful_groups:
                groups_in[number] = group
        pause()
    flows_in.sort(key=_last_table_first)
    gone = [row for key, row in held.items() if key not in wanted] + [row for row in out if row.key not in wanted]
    gone.sort(key=lambda row: row.key)
    return Round(
        groups_in=tuple(groups_in.values()),
        flows_in=tuple(flows_in),
        flows_out=tuple(gone),
        groups_out=tuple(group for number, group in held_groups.items() if number not in wanted_groups),
        growth=len(wanted) - len(held),
        group_growth=len(wanted_groups) - len(held_groups),
    )


def pieces(whole: Round, limit: int) -> Iterator[Round]:
    """The round itself, or when it has more than `limit` messages, rounds in the order in which they may go alone."""
    if len(whole) <= limit:
        yield whole
        return
    for start in range(0, len(whole.groups_in), limit):
        yield Round(groups_in=whole.groups_in[start : start + limit])
    for start in range(0, len(whole.flows_in), limit):
        yield Round(flows_in=whole.flows_in[start : start + limit])
    for start in range(0, len(whole.flows_out), limit):
        yield Round(flows_out=whole.flows_out[start : start + limit])
    for start in range(0, len(whole.groups_out), limit):
        yield Round(groups_out=whole.groups_out[start : start + limit])


def owners(steps: Iterable[Step], xids: Collection[int]) -> dict[int, UnitKey]:
    """To which unit of the steps each failed message belongs; xids that belong to none are absent."""
    found: dict[int, UnitKey] = {}
    for step in steps:
        if step.unit is None:
            continue
        for unit in (step.old, step.new):
            if isinstance(unit, encode.EncodedUnit):
                for message in (*unit.flows.values(), *unit.groups.values()):
                    if message.xid in xids:
                        found[message.xid] = step.unit
    return found


def _last_table_first(flow: encode.EncodedFlow) -> int:
    return -flow.key[0]
