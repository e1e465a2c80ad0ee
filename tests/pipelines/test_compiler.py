"""How compilation goes on: in slices, revision by revision, and past objects that fail."""

from typing import Any

from pipelines.claims import Rule
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.feature import Feature
from pipelines.features import FEATURES
from pipelines.model import Kind, Pod
from pipelines.rules import RULES
from pipelines.tables import ROUTE
from pipelines.unit import FLEET, ScopeKind, Unit, UnitKey
from tests.pipelines.objects import compiled, gone, node, pod, port, service, slice_, small_cluster


def test_the_first_revision_brings_the_fixed_flows_and_an_unchanged_cluster_brings_none() -> None:
    compiler = Compiler()
    first = compiler.run()
    assert (first.number, len(first.changes)) == (1, len(compiler.units))
    second = compiler.run()
    assert second == (2, (), {})


def test_the_same_objects_again_change_nothing() -> None:
    compiler = compiled(*small_cluster())
    revision = compiler.run(small_cluster())
    assert (revision.changes, revision.members) == ((), {})


def test_an_endpoint_that_comes_changes_one_group_and_what_names_it() -> None:
    backends = ("http", "TCP", 8080), ("dns", "UDP", 5353)
    more = slice_("web-4", "web", ("10.10.1.10", "10.10.2.10", "10.10.3.10"), *backends)
    compiler = compiled(*small_cluster())
    revision = compiler.run([more])
    assert {change.key.scope for change in revision.changes} == {FLEET}
    assert sorted(change.key.feature for change in revision.changes) == [
        *["services.endpoint"] * 2,
        *["services.frontend"] * 2,
        *["services.group"] * 2,
    ]


def test_a_port_that_nobody_asks_about_changes_nothing() -> None:
    compiler = compiled(*small_cluster())
    assert compiler.run([port("n1", "veth7", 50, "aa:00:00:00:00:09")]).changes == ()


def test_a_pods_new_address_changes_units_of_its_node_alone() -> None:
    compiler = compiled(*small_cluster())
    revision = compiler.run([pod("b", "n1", "10.10.1.99", "fd00:10:1::99")])
    assert {change.key.scope.name for change in revision.changes} == {"n1"}
    assert len(revision.changes) == 4


def test_a_peers_mac_changes_its_segment_and_not_the_others() -> None:
    compiler = compiled(*small_cluster())
    revision = compiler.run([port("n2", "eth1", 1, "aa:00:00:00:00:22")])
    segments = {change.key.scope.name for change in revision.changes if change.key.scope.kind is ScopeKind.SEGMENT}
    assert segments == {"192.168.77.0/24", "fd00:77::/64"}


def test_a_service_is_compiled_once_for_all_switches() -> None:
    compiler = compiled(*small_cluster())
    revision = compiler.run([service("new", ["10.96.0.99"], ("", "TCP", 80))])
    assert {change.key.scope for change in revision.changes} == {FLEET}
    assert len(revision.changes) == 1  # its frontend, which refuses: there is no endpoint and so no group


def test_a_new_node_joins_with_its_scopes() -> None:
    compiler = compiled(*small_cluster())
    new = node("n4", ["10.10.4.0/24"], ["192.168.77.104/24"], datapath_id=4)
    member = compiler.run([new]).members[4]
    assert member is not None
    assert member.node == "n4"
    assert {str(scope) for scope in member.scopes} == {"fleet", "node n4", "segment 192.168.77.0/24", "segment 6:"}
    assert compiler.run([gone(new)]).members == {4: None}


def test_a_node_that_moves_to_another_subnet_changes_its_membership() -> None:
    compiler = compiled(*small_cluster())
    moved = node("n2", ["10.10.2.0/24"], ["192.168.99.102/24"], "aa:00:00:00:00:02", datapath_id=2)
    member = compiler.run([moved]).members[2]
    assert member is not None
    assert "192.168.99.0/24" in {scope.name for scope in member.scopes}
    assert "192.168.77.0/24" not in {scope.name for scope in member.scopes}


def test_a_long_compilation_gives_way_many_times() -> None:
    compiler = Compiler()
    compiler.submit(pod(f"pod-{number}", "n1", f"10.10.{number >> 8}.{number & 255}") for number in range(1000))
    assert sum(1 for _ in compiler.compile()) > 1000 // 16


# --- objects that fail -------------------------------------------------------------------------------------


def fragile(pod_value: Pod, view: Any) -> Unit:
    """A feature with a fault: it fails for pods of a node that is called so."""
    del view
    if pod_value.node == "faulty":
        raise KeyError("unexpected")
    return Unit(flows=(ROUTE.flow(1, (), *()),)) if pod_value.node else Unit()


def fragile_compiler() -> Compiler:
    feature = Feature("fragile", 127, ScopeKind.FLEET, Kind.POD, fragile)
    return Compiler(RULES, (*FEATURES, feature))


def fragile_key(name: str) -> UnitKey:
    return UnitKey("fragile", FLEET, f"default/{name}")


def test_an_object_whose_compilation_fails_keeps_its_last_units_and_harms_no_other() -> None:
    compiler = fragile_compiler()
    compiler.run([pod("a", "n1"), pod("b", "n1")])
    revision = compiler.run([pod("a", "faulty"), pod("b", ""), pod("c", "n1")])
    assert {change.key for change in revision.changes} == {fragile_key("b"), fragile_key("c")}
    assert fragile_key("a") in compiler.units
    (problem,) = compiler.problems()
    assert (problem.kind, problem.key) == ("Pod", "default/a")
    assert "fragile: KeyError: 'unexpected'; what was in force before stays" in problem.reason


def test_a_fault_says_whether_what_was_there_before_is_still_in_force() -> None:
    compiler = fragile_compiler()
    compiler.run([pod("a", "n1")])
    compiler.run([pod("a", "faulty"), pod("b", "faulty")])
    kept, nothing = compiler.faults()
    assert (kept.key, kept.kept, kept.whole) == ("default/a", True, False)
    assert (nothing.key, nothing.kept) == ("default/b", False)
    assert "it has no flows, and switches keep those they hold" in nothing.problem.reason
    assert "in fragile\n" in kept.trace
    compiler.run([pod("a", "n1"), gone(pod("b", "faulty"))])
    assert compiler.faults() == []


def test_a_rule_that_fails_is_a_fault_as_well_and_of_the_settings_one_that_concerns_every_switch() -> None:
    def fail(key: str, value: Any, facts: Any) -> Any:
        raise KeyError(key)

    compiler = Compiler((*RULES, Rule("frail", Kind.SETTINGS, fail)))
    compiler.run()
    (fault,) = compiler.faults()
    assert fault.whole
    assert str(fault.problem).startswith("Settings: compile: frail: KeyError: ''; it has no flows")


def test_an_object_that_works_again_is_compiled_and_its_problem_forgotten() -> None:
    compiler = fragile_compiler()
    compiler.run([pod("a", "faulty")])
    assert fragile_key("a") not in compiler.units
    compiler.run([pod("a", "n1")])
    assert fragile_key("a") in compiler.units
    assert compiler.problems() == []


def test_an_object_that_failed_and_is_deleted_leaves_nothing() -> None:
    compiler = fragile_compiler()
    compiler.run([pod("a", "n1")])
    compiler.run([pod("a", "faulty")])
    compiler.run([gone(pod("a", "n1"))])
    assert fragile_key("a") not in compiler.units
    assert compiler.problems() == []


def test_nothing_is_remembered_of_what_is_gone() -> None:
    """Memory follows the cluster: dependencies, claims and results of deleted objects are let go."""
    compiler, empty = compiled(*small_cluster()), compiled()
    compiler.run([gone(change) for change in small_cluster()])
    compiler.run()
    empty.run()
    for name, value in vars(empty).items():
        if isinstance(value, dict):
            assert vars(compiler)[name].keys() == value.keys(), name
    assert all(not compiler.facts.peek(kind) for kind in Derived if kind is not Derived.POD_CIDR_LENGTHS)
