"""Scopes: a unit of a zone or a segment exists once for each of them, and a switch carries those of its node."""

from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.feature import Feature, unit
from pipelines.model import Change, Kind, Node
from pipelines.tables import ENDPOINT_PLACE
from pipelines.unit import ScopeKind, Unit, UnitKey
from pipelines.view import ZoneView


def _node(name: str, zone: str, dpid: int) -> Change:
    return Change(Kind.NODE, name, Node(name, zone=zone, datapath_id=dpid))


def _by_zone(node: str, view: ZoneView) -> Unit:
    del node
    return unit([ENDPOINT_PLACE.flow(len(view.zone), ())])


ZONED = Feature("zoned", 1, ScopeKind.ZONE, Derived.DATAPATH, _by_zone)


def test_a_zone_feature_makes_one_unit_for_each_zone_and_fact() -> None:
    compiler = Compiler(features=(ZONED,))
    revision = compiler.run([_node("n1", "east", 1), _node("n2", "east", 2), _node("n3", "northwest", 3)])
    assert {(key.scope.name, key.key) for key in compiler.units} == {
        (zone, f"{dpid:016x}") for zone in ("east", "northwest") for dpid in (1, 2, 3)
    }
    zones = {
        dpid: {scope.name for scope in member.scopes if scope.kind is ScopeKind.ZONE}
        for dpid, member in revision.members.items()
        if member
    }
    assert zones == {1: {"east"}, 2: {"east"}, 3: {"northwest"}}


def test_a_node_that_changes_its_zone_leaves_nothing_of_the_old_one() -> None:
    compiler = Compiler(features=(ZONED,))
    compiler.run([_node("n1", "east", 1)])
    revision = compiler.run([_node("n1", "west", 1)])
    assert {key.scope.name for key in compiler.units} == {"west"}
    assert {change.key.scope.name: bool(change.new) for change in revision.changes} == {"east": False, "west": True}


def test_a_unit_key_says_where_and_about_what() -> None:
    compiler = Compiler(features=(ZONED,))
    compiler.run([_node("n1", "east", 1)])
    (key,) = compiler.units
    assert isinstance(key, UnitKey)
    assert str(key) == "zoned [zone east] 0000000000000001"
