"""What Open vSwitch gives back is what we wrote, byte by byte."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import encode, readback
from controller.encode import EncodedUnit, Xids, encode_unit
from controller.oxm import WIRE
from pipelines import fields
from pipelines.flow import Flow, Group, match
from pipelines.text import flow_text, group_text
from pipelines.unit import FLEET, Unit, UnitKey
from tests.codec import samples
from tests.codec.openvswitch import OpenVSwitch, Wire

pytestmark = pytest.mark.ovs
KEY = UnitKey("sample", FLEET, "default/web")


def encoded(flows: list[Flow], groups: list[Group] | None = None) -> tuple[EncodedUnit, dict[bytes, Flow]]:
    """A unit of those flows that have different keys."""
    by_key = {encode.encode_flow(flow, 0, 0).key: flow for flow in flows}
    by_id = {group.id: group for group in groups or ()}
    return encode_unit(KEY, 5, Unit(tuple(by_key.values()), tuple(by_id.values())), None, Xids()), by_key


HEAD = re.compile(r"(?:(cookie|table|idle_timeout|hard_timeout|priority)=(\w+)[,\s]*)?(.*)")
DEFAULTS = {"table": "0", "idle_timeout": "0", "hard_timeout": "0", "priority": "32768"}


def row(line: str) -> tuple[dict[str, str], str]:
    """Head, and conditions with actions, of a line of dump-flows or of ours: they leave out different defaults."""
    head, rest = dict(DEFAULTS), line.strip()
    while (found := HEAD.fullmatch(rest)) and found[1]:
        head[found[1]], rest = found[2], found[3]
    head.pop("cookie", None)
    return head, rest


def assert_comes_back(switch: OpenVSwitch, wire: Wire, flows: list[Flow]) -> None:
    unit, by_key = encoded(flows)
    assert wire.install(unit) == []
    try:
        rows = wire.flows()
        assert rows == {key: readback.row_of(flow) for key, flow in unit.flows.items()}
        for key, found in rows.items():
            assert readback.same_instructions(found, unit.flows[key])
            assert flow_text(readback.decode_flow(found)) == flow_text(by_key[key])
        printed = switch.ofctl("--no-stats", "--no-names", "dump-flows", "br0").splitlines()
        ours = [flow_text(flow) for flow in by_key.values()]
        assert sorted(map(str, map(row, printed))) == sorted(map(str, map(row, ours)))
    finally:
        errors = wire.bundle(map(encode.delete_flow, wire.flows().values()))
    assert errors == []
    assert wire.flows() == {}


@pytest.mark.parametrize("field", fields.FIELDS.values(), ids=repr)
def test_condition_on_every_field_comes_back_as_it_was_written(field, switch, wire):
    heads = [head for head, own in samples.CONTEXTS.values() if field in own]
    if field is fields.IP_PROTO:
        heads = [(fields.IP6,)]
    items = [(*(heads[0] if heads else ()), item) for item in some_conditions(field)]
    assert_comes_back(switch, wire, [Flow(3, 7, match(*each), ()) for each in items])


def some_conditions(field):
    """Smallest and largest values, whole and by bits."""
    if field is fields.VLAN_TCI:
        return [field.masked(*pair) for pair in samples.VLANS]
    if field is fields.IP_FRAG:
        return [field.masked(*pair) for pair in samples.FRAGMENTS]
    if field is fields.CT_STATE:
        return [fields.ct_state(text) for text in samples.STATES]
    ones = (1 << field.bits) - 1
    if field is fields.ETH_TYPE:
        return [field.eq(0x88CC), fields.ARP]
    if field is fields.IP_PROTO:
        return [field.eq(0), field.eq(89)]
    if field is fields.IN_PORT:
        return [field.eq(1), field.eq(0xFFFFFFFE)]
    found = [field.eq(1), field.eq(255 if field is fields.ARP_OP else ones)]
    if WIRE[field].maskable:
        high = ones >> 1 ^ ones
        found += [field.masked(0, 1), field.masked(1, 1), field.masked(high, high), field.masked(ones, ones ^ 2)]
    return found


@settings(max_examples=60)
@given(st.lists(samples.flows(), min_size=1, max_size=25))
def test_flows_of_every_kind_come_back_as_they_were_written(switch, wire, flows):
    assert_comes_back(switch, wire, flows)


@settings(max_examples=40)
@given(st.lists(samples.groups(), min_size=1, max_size=3))
def test_groups_come_back_as_they_were_written(switch, wire, groups):
    unit, _ = encoded([], groups)
    assert wire.install(unit) == []
    rows = wire.groups()
    for group in {group.id: group for group in groups}.values():
        assert rows[group.id].content == unit.groups[group.id].content
        assert group_text(readback.decode_group(group.id, rows[group.id].content)) == group_text(group)
    printed = {line.strip() for line in switch.ofctl("dump-groups", "br0").splitlines()}
    assert {group_text(group) for group in {group.id: group for group in groups}.values()} <= printed
    assert wire.bundle(map(encode.delete_group, unit.groups)) == []
    assert not unit.groups.keys() & wire.groups().keys()


def test_deletion_with_another_cookie_deletes_nothing(switch, wire):
    flow = Flow(3, 7, (), ())
    ours, _ = encoded([flow])
    theirs = encode_unit(UnitKey("sample", FLEET, "default/other"), 5, Unit((flow,)), None, Xids())
    wire.install(ours)
    wire.bundle(map(encode.delete_flow, theirs.flows.values()))
    assert wire.flows().keys() == ours.flows.keys()
    wire.bundle(map(encode.delete_flow, ours.flows.values()))
    assert wire.flows() == {}
