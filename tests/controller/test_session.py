"""A session with a fake switch, in fair weather."""

import eventlet
import pytest
from msgspec.structs import replace

from controller.fake import FakePort
from controller.session import Hooks, State
from pipelines.model import Change, Kind, Port
from pipelines.unit import FLEET
from tests.controller.world import (
    QUICK,
    SEGMENT,
    World,
    endpoint,
    guard_flow,
    key,
    member,
    node,
    route,
    service,
    switch,
    until,
)

pytestmark = pytest.mark.usefixtures("own_time")

UNITS = {
    key("service", "default/web"): service(1, (10, 11)),
    key("endpoint", "10.10.0.10"): endpoint(10),
    key("endpoint", "10.10.0.11"): endpoint(11),
    key("route", "n2"): route("10.10.2.0"),
}


def test_cold_sync_brings_exactly_what_is_wanted():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    assert world.agrees(fake)
    assert world.row(fake).flows == 4
    assert world.row(fake).groups == 1
    assert fake.commits == 1
    assert world.row(fake).role == "MASTER"


def test_b65_reconnect_of_an_unchanged_switch_sends_no_flow_mod():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    arrived = fake.flow_mods
    world.unplug(fake)
    world.connect(fake)
    assert fake.flow_mods == arrived
    assert world.row(fake).flow_mods_sent == 0
    assert world.row(fake).group_mods_sent == 0
    assert world.agrees(fake)


def test_b65_switch_that_returns_empty_gets_groups_before_the_flows_that_use_them():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    fake.tables.flows, fake.tables.groups = {}, {}
    world.unplug(fake)
    world.connect(fake)  # the fake refuses a flow with an unknown group
    assert world.agrees(fake)


def test_b65_switch_that_lost_some_tables_gets_only_those():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    fake.tables.flows = {k: flow for k, flow in fake.tables.flows.items() if k.table != 42}
    world.unplug(fake)
    world.connect(fake)
    assert world.row(fake).flow_mods_sent == 2
    assert world.agrees(fake)


def test_change_of_one_unit_is_one_small_bundle():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    before = world.row(fake)
    world.publish({key("route", "n2"): route("10.10.2.0", table=80)})
    world.settle(fake)
    assert world.agrees(fake)
    assert world.row(fake).flow_mods_sent == before.flow_mods_sent + 1
    assert world.row(fake).bundles_committed == before.bundles_committed + 1


def test_address_that_moves_to_another_object_is_never_deleted():
    world, fake = World(), switch()
    world.start({key("route", "old"): route("10.10.2.10"), key("route", "other"): route("10.10.2.11")}, 1)
    world.connect(fake)
    fake.tables.refuse = lambda message: (5, 0) if message[1] == 14 and message[25] == 4 else None  # no deletes
    world.publish({key("route", "old"): None, key("route", "new"): route("10.10.2.10", table=80)})
    world.settle(fake)
    assert world.agrees(fake)
    assert world.row(fake).exceptions == ()


def test_slow_publications_are_netted_into_one_round():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    for table in (80, 100, 80, 110):
        world.publish({key("route", "n2"): route("10.10.2.0", table)})
    world.settle(fake)
    assert world.row(fake).bundles_committed == 1, "there and back again is nothing"
    assert world.agrees(fake)


def test_b71_group_that_changes_its_owner_has_the_new_buckets():
    world, fake = World(), switch()
    world.start({key("service", "a"): service(7, (10,))}, 1)
    world.connect(fake)
    world.publish({key("service", "a"): None, key("service", "b"): service(7, (11, 12))})
    world.settle(fake)
    assert world.agrees(fake)
    assert len(fake.tables.groups) == 1


def test_b69_removed_service_leaves_nothing_and_takes_no_other_flow_along():
    world, fake = World(), switch()
    world.start({**UNITS, key("service", "b"): service(2, (10,))}, 1)
    world.connect(fake)
    world.publish({key("service", "default/web"): None})
    world.settle(fake)
    assert world.agrees(fake)
    assert len(fake.tables.groups) == 1


def test_foreign_and_learned_flows_are_not_touched_and_learned_ones_not_asked_for():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    some, flow = next(iter(fake.tables.flows.items()))
    fake.tables.flows[some._replace(table=75)] = flow._replace(cookie=flow.cookie & ~0xFFFFFFFF | 1 << 48)
    fake.tables.flows[some._replace(table=76)] = flow._replace(cookie=0x1234)
    world.unplug(fake)
    world.connect(fake)
    assert world.row(fake).flow_mods_sent == 0
    assert {k.table for k in fake.tables.flows} >= {75, 76}
    assert len(world.switches.flows(1).flows) == 4


def test_b72_flows_of_an_older_version_are_replaced():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    some, flow = next(iter(fake.tables.flows.items()))
    fake.tables.flows[some._replace(table=99)] = flow._replace(cookie=flow.cookie ^ 0xFFFF)
    fake.tables.flows[some] = flow._replace(cookie=flow.cookie ^ 0xFFFF)
    world.unplug(fake)
    world.connect(fake)
    assert world.agrees(fake)


def test_unknown_datapath_id_is_listed_and_not_touched_until_a_node_names_it(caplog):
    world, fake = World(), switch()
    world.start(UNITS)
    world.connect(fake, State.UNCLAIMED)
    eventlet.sleep(0.05)
    assert fake.flow_mods == 0
    assert fake.generation == 0
    assert sum("no Node names this datapath id" in record.message for record in caplog.records) == 1
    world.publish(members={1: member("n1")})
    world.await_state(fake)
    assert world.agrees(fake)


def test_node_that_is_gone_leaves_its_switch_as_it_is():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    world.publish({key("route", "n2"): None}, {1: None})
    world.await_state(fake, State.UNCLAIMED)
    assert len(fake.tables.flows) == 4
    world.publish(members={1: member("n1")})
    world.await_state(fake)
    assert world.agrees(fake)
    assert len(fake.tables.flows) == 3


def test_change_of_membership_is_a_difference_of_unit_sets():
    world, fake = World(), switch()
    world.start(
        {**UNITS, key("route", "p", SEGMENT): route("10.10.3.0"), key("route", "x", node("n1")): route("1.1.1.1")}, 1
    )
    world.connect(fake)
    sent = world.row(fake).flow_mods_sent
    world.publish({key("route", "p", SEGMENT): route("10.10.3.0", 80)}, {1: member("n1", SEGMENT)})
    world.settle(fake)
    assert world.agrees(fake)
    assert world.row(fake).flow_mods_sent == sent + 1
    world.publish({key("route", "p", SEGMENT): route("10.10.3.0", 100)}, {1: member("n1")})
    world.settle(fake)
    assert world.agrees(fake)
    assert world.row(fake).flow_mods_sent == sent + 2
    world.publish(members={1: member("n9", SEGMENT)})
    until(lambda: world.row(fake).node == "n9" and world.row(fake).state is State.READY)
    assert world.agrees(fake)


def test_b76_nothing_is_written_before_the_source_is_in_sync():
    world, fake = World(), switch()
    world.plug(fake)
    world.publish({key("route", "n2"): route("10.10.2.0")}, {1: member("n1")})
    eventlet.sleep(0.05)
    assert fake.flow_mods == 0
    assert fake.generation == 0
    assert world.row(fake).state is State.CONNECTING
    world.fleet.declare_ready()
    world.await_state(fake)
    assert world.agrees(fake)


def test_what_was_observed_is_published_before_the_first_write():
    seen = []

    def observe(name, ports, rows):
        seen.append((name, ports, len(rows)))
        eventlet.sleep(0.05)
        world.publish({key("route", "n2"): route("10.10.2.0")})

    world, fake = World(hooks=Hooks(observe=observe)), switch()
    world.start({}, 1)
    world.connect(fake)
    ports = {"eth1": Port(1, 0xAA0000000001), "gw0": Port(2, 0x0A0000000001)}
    assert seen == [("n1", ports, 0)]
    assert fake.commits == 1
    assert len(fake.tables.flows) == 1


def test_ports_are_followed_by_name():
    changes: list[Change] = []
    world, fake = World(hooks=Hooks(ports_changed=lambda name, news: changes.extend(news))), switch()
    world.start({}, 1)
    world.connect(fake)
    fake.set_port(FakePort(3, "sb0123456789ab", 5))
    fake.set_port(FakePort(3, "sb0123456789ab", 5))  # nothing new
    fake.set_port(FakePort(7, "sb0123456789ab", 5))  # renumbered
    fake.say(12, b"\x01" + bytes(7) + _desc(FakePort(3, "sb0123456789ab", 5)))  # the old number goes afterwards
    fake.remove_port("eth1")
    until(lambda: len(changes) == 3)
    assert changes == [
        Change(Kind.PORT, "n1 sb0123456789ab", Port(3, 5)),
        Change(Kind.PORT, "n1 sb0123456789ab", Port(7, 5)),
        Change(Kind.PORT, "n1 eth1", None),
    ]


def _desc(port):
    from controller.fake import _port

    return _port(port)


def test_observed_switch_is_read_and_not_written():
    world, fake = World(replace(QUICK, observe_nodes=frozenset({"n1"}))), switch()
    world.start(UNITS, 1)
    world.connect(fake, State.OBSERVING)
    until(lambda: len(world.session(fake).difference) == 5)
    assert fake.flow_mods == 0
    assert fake.generation == 0
    assert world.row(fake).role == "EQUAL"
    world.publish({key("route", "n2"): None})
    until(lambda: len(world.session(fake).difference) == 4)
    assert all(line.startswith("+ ") for line in world.session(fake).difference)


@pytest.mark.parametrize("feature", [3, 4])
def test_packet_in_reaches_the_feature_of_its_cookie_and_a_failing_handler_harms_nothing(feature):
    from pipelines.ids import cookie

    got = []

    def handle(session, packet):
        got.append((session.dpid, packet.cookie))
        raise ValueError("broken")

    world, fake = World(hooks=Hooks(packet_in={3: handle})), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    number = cookie(feature, "default/web", 1)
    fake.say(10, _packet_in(number))
    if feature == 3:
        until(lambda: got)
        assert got == [(1, number)]
        assert world.row(fake).packet_ins_failed == 1
    else:
        eventlet.sleep(0.05)
        assert got == []
    world.publish({key("route", "n3"): route("10.10.3.0")})
    world.settle(fake)


def _packet_in(cookie):
    import struct

    match = struct.pack("!HHHBBI", 1, 12, 0x8000, 0, 4, 1) + bytes(4)
    return struct.pack("!IHBBQ", 0xFFFFFFFF, 4, 1, 41, cookie) + match + bytes(2) + b"data"


def test_unit_that_cannot_be_encoded_harms_only_itself():
    world, fake = World(), switch()
    big = service(3, range(2, 2000))  # more than fits in one message
    world.start({**UNITS, key("service", "big"): big}, 1)
    world.connect(fake)
    assert world.agrees(fake)
    assert len(fake.tables.flows) == 4
    assert list(world.fleet.errors) == [key("service", "big")]
    world.publish({key("service", "big"): service(3, (10,))})
    world.settle(fake)
    assert world.fleet.errors == {}
    world.publish({key("service", "big"): big})
    world.settle(fake)
    assert len(fake.tables.flows) == 5, "its last good value stays"
    assert list(world.fleet.errors) == [key("service", "big")]


def test_audit_finds_and_mends_what_was_changed_by_hand(caplog):
    world, fake = World(), switch()
    world.start({**UNITS, key("route", "g"): guard_flow("10.10.1.1")}, 1)
    world.connect(fake)
    flows = fake.tables.flows
    first, second, third = list(flows)[:3]
    flows[first] = flows[first]._replace(instructions=flows[second].instructions)  # the cookie says nothing of it
    del flows[second]
    flows[third._replace(priority=7)] = flows[third]
    number, group = next(iter(fake.tables.groups.items()))
    fake.tables.groups[number] = group._replace(buckets=group.buckets[: len(group.buckets) // 2])
    world.session(fake).audit()
    until(lambda: world.row(fake).audits == 1 and world.agrees(fake))
    assert world.row(fake).drift == {
        "flows altered": 1,
        "flows missing": 1,
        "flows too many": 1,
        "groups altered": 1,
    }
    assert "priority=7" in caplog.text
    world.session(fake).audit()
    until(lambda: world.row(fake).audits == 2)
    assert sum(world.row(fake).drift.values()) == 4
    assert FLEET in world.session(fake).scopes


def test_an_audit_on_demand_mends_what_is_ready_and_names_the_rest():
    world, fake, other = World(), switch(), switch(2)
    world.start(UNITS, 1, 2)
    world.connect(fake)
    world.connect(other)
    world.session(other).lose_master("somebody else")
    world.await_state(other, State.SLAVE)
    fake.tables.flows.popitem()
    assert world.switches.audit() == {"n1": State.READY, "n2": State.SLAVE}
    until(lambda: world.row(fake).audits == 1)
    until(lambda: world.agrees(fake))
    assert world.row(fake).drift == {"flows missing": 1}
    assert world.row(other).audits == 0
    assert world.switches.audit("n9") == {}
