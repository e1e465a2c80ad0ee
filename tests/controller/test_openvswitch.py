"""Sessions with a real Open vSwitch (its dummy datapath: no device is needed)."""

import os
from typing import Any

import eventlet
import pytest

from controller.connection import Patience
from controller.listener import Listener
from controller.release import Released
from controller.session import State
from controller.settings import SwitchSettings
from pipelines.actions import Goto, ToGroup
from pipelines.addresses import parse_ip
from pipelines.fields import IP4, IP4_DST
from pipelines.flow import Flow, match
from pipelines.ids import LEARNED, OWN_COOKIE
from pipelines.unit import Unit
from tests.codec.openvswitch import OpenVSwitch, _wait_gone
from tests.controller.conftest import tls_context
from tests.controller.world import World, endpoint, guard_flow, key, member, route, service, until

pytestmark = pytest.mark.ovs

DPID = 0xAA
SETTINGS = SwitchSettings(
    patience=Patience(echo_interval=1, echo_timeout=20), audit_interval=0, flush_again=(0.05,), probe_timeout=1
)
UNITS = {
    key("service", "default/web"): service(1, (10, 11)),
    key("endpoint", "10.10.0.10"): endpoint(10),
    key("endpoint", "10.10.0.11"): endpoint(11),
    key("route", "n2"): route("10.10.2.0"),
    key("route", "g"): guard_flow("10.10.1.1"),
}


class Switch(OpenVSwitch):
    """One that can be restarted and pointed at controllers."""

    dpid = DPID

    def point_at(self, *worlds: "Served", method: str = "tcp") -> None:
        targets = [f"{method}:127.0.0.1:{world.listener.address[1]}" for world in worlds]
        self.vsctl("set-controller", "br0", *targets)
        for record in self.vsctl("--bare", "--columns=_uuid", "list", "controller").split():
            self.vsctl("set", "controller", record, "max_backoff=1000", "connection-mode=out-of-band")

    def restart(self) -> None:
        pid = self._pids.pop()
        os.kill(pid, 9)
        _wait_gone(pid)
        (self.directory / "ovs-vswitchd.pid").unlink()
        self._detach("ovs-vswitchd", f"unix:{self.directory / 'db.sock'}", "--enable-dummy", "--disable-system")

    def table_sizes(self) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for line in self.ofctl("--no-stats", "dump-flows", "br0").splitlines():
            if "actions=" in line:
                table = int(line.partition("table=")[2].partition(",")[0]) if "table=" in line else 0
                sizes[table] = sizes.get(table, 0) + 1
        return sizes


class Served(World):
    """A world that listens."""

    def __init__(self, context=None):
        super().__init__(SETTINGS)
        self.listener = Listener(("127.0.0.1", 0), self.switches, context)
        self.listener.start()

    def begin(self, units, switch, state=State.READY, method="tcp"):
        self.publish(units, {DPID: member("n1")})
        self.fleet.declare_ready()
        switch.point_at(self, method=method)
        self.await_state(switch, state)

    def await_state(self, fake, state=State.READY):
        until(lambda: self.connected(fake) and self.row(fake).state is state, 60)

    def audited(self, switch):
        """The drift that an audit finds now: everything is read back and compared byte by byte."""
        before = self.row(switch).audits, self.row(switch).drift
        self.session(switch).audit()
        until(lambda: self.row(switch).audits > before[0], 60)
        now = self.row(switch).drift
        return {kind: now[kind] - before[1].get(kind, 0) for kind in now if now[kind] != before[1].get(kind, 0)}


@pytest.fixture
def switch(tmp_path):
    ovs = Switch(tmp_path)
    try:
        ovs.start()
        yield ovs
    finally:
        ovs.stop()


@pytest.fixture
def world():
    world = Served()
    yield world
    world.listener.close()
    session = world.switches.session(DPID)
    if session is not None:
        session.connection.close("the test is over")


def test_release_leaves_open_vswitch_with_what_others_wrote(world, switch):
    """Our flows go in all tables, learned ones too, and our groups; a foreign flow and a foreign group stay."""
    world.begin(UNITS, switch)
    learned = f"table=75,cookie={OWN_COOKIE | LEARNED:#x},ip,nw_src=10.0.0.1,actions=goto_table:110"
    switch.ofctl("add-flow", "br0", learned)
    switch.ofctl("add-flow", "br0", "table=3,cookie=0xb007,priority=1,actions=drop")
    switch.ofctl("add-group", "br0", "group_id=5,type=all,bucket=actions=drop")
    world.publish(members={DPID: None})
    world.await_state(switch, State.UNCLAIMED)
    assert sum(switch.table_sizes().values()) == 7
    assert world.switches.release(DPID) == Released(flows=5, groups=1)
    assert switch.table_sizes() == {3: 1}
    groups = [line for line in switch.ofctl("dump-groups", "br0").splitlines() if "group_id=" in line]
    assert len(groups) == 1
    assert "group_id=5," in groups[0]


def test_b65_ten_thousand_flows_cold_then_no_flow_mod_at_a_reconnect_then_all_again_after_a_restart(world, switch):
    units = dict(UNITS)
    units |= {key("service", f"s{n}"): service(n, range(256 * 9, 256 * 9 + 10)) for n in range(2, 1002)}
    units |= {key("endpoint", f"e{n}"): endpoint(256 * 20 + n) for n in range(5000)}
    units |= {key("route", f"r{n}"): route(f"11.{n >> 8}.{n & 255}.0") for n in range(4000)}
    world.begin(units, switch)
    flows = sum(len(unit.flows) for unit in units.values())
    assert flows > 10_000
    assert world.row(switch).flow_mods_sent == flows
    assert sum(switch.table_sizes().values()) == flows
    assert world.audited(switch) == {}
    world.session(switch).connection.close("test")
    world.gone(switch)
    world.await_state(switch)
    assert world.row(switch).flow_mods_sent == world.row(switch).group_mods_sent == 0
    switch.restart()
    world.gone(switch)
    world.await_state(switch)
    assert world.row(switch).flow_mods_sent == flows
    assert sum(switch.table_sizes().values()) == flows
    assert world.audited(switch) == {}


def test_changes_groups_moves_and_removals_arrive_exactly(world, switch):
    world.begin(UNITS, switch)
    world.publish(
        {
            key("service", "default/web"): service(1, (11, 12), flushed=True),
            key("endpoint", "10.10.0.10"): None,
            key("endpoint", "moved"): endpoint(12),
            key("route", "n2"): None,
            key("route", "other"): route("10.10.2.0", 80),
        }
    )
    world.settle(switch)
    assert world.audited(switch) == {}
    world.publish({key("service", "default/web"): None})
    world.settle(switch)
    assert world.audited(switch) == {}
    assert "group_id" not in switch.ofctl("dump-groups", "br0")
    eventlet.sleep(0.2)
    assert world.row(switch).last_error == "", "the conntrack flush was understood"
    assert "rate=" in switch.ofctl("dump-meters", "br0")


def test_refused_flows_are_exceptions_and_the_others_proceed(world, switch):
    world.begin(UNITS, switch)
    where = match(IP4, IP4_DST.eq(parse_ip("10.10.9.9").value))
    world.publish(
        {
            key("route", "backward"): Unit((Flow(70, 90, where, (Goto(5),)),)),  # refused when it is added
            key("route", "no group"): Unit((Flow(70, 91, where, (ToGroup(99),)),)),  # refused at the commit
            key("route", "good"): route("10.10.8.0"),
        }
    )
    world.settle(switch)
    assert [unit.key for unit, _ in world.row(switch).exceptions] == ["backward", "no group"]
    assert switch.table_sizes()[70] == 2
    assert world.audited(switch) == {}
    world.publish({key("route", "backward"): route("10.10.7.0"), key("route", "no group"): None})
    world.settle(switch)
    assert world.row(switch).exceptions == ()
    assert world.audited(switch) == {}


def test_drift_made_by_hand_is_mended_and_foreign_flows_stay(world, switch):
    world.begin(UNITS, switch)
    switch.ofctl("add-flow", "br0", "table=200,priority=7,cookie=0x77,actions=drop")
    switch.ofctl("add-group", "br0", "group_id=5,type=all,bucket=actions=drop")
    learned = "table=75,cookie=0x5b01000000000000/-1"
    switch.ofctl("add-flow", "br0", "table=75,cookie=0x5b01000000000000,actions=drop")
    switch.ofctl("mod-flows", "br0", "table=42,actions=drop")  # keeps the cookies
    switch.ofctl("del-flows", "br0", "table=5")
    switch.ofctl("mod-group", "br0", "group_id=0x5b000001,type=select,bucket=bucket_id:1,actions=resubmit(,42)")
    assert world.audited(switch) == {"flows altered": 2, "flows missing": 1, "groups altered": 1}
    assert world.audited(switch) == {}
    assert switch.table_sizes()[200] == 1
    assert "n_packets" in switch.ofctl("dump-flows", "br0", learned)
    assert "group_id=5," in switch.ofctl("dump-groups", "br0")


def test_b76_second_controller_takes_the_role_and_the_first_stops_writing(world, switch):
    rival = Served()
    world.begin(UNITS, switch)
    rival.publish(UNITS, {DPID: member("n1")})
    rival.fleet.declare_ready()
    switch.point_at(world, rival)
    rival.await_state(switch)
    world.await_state(switch, State.SLAVE)
    world.publish({key("route", "n2"): None})
    eventlet.sleep(0.2)
    assert switch.table_sizes()[70] == 1
    world.session(switch).claim()
    world.await_state(switch)
    rival.await_state(switch, State.SLAVE)
    assert 70 not in switch.table_sizes()
    rival.listener.close()
    rival.session(switch).connection.close("test")


def test_switch_of_another_version_is_told_what_to_set(world, switch, caplog):
    switch.vsctl("set", "bridge", "br0", "protocols=OpenFlow13")
    world.publish(UNITS, {DPID: member("n1")})
    world.fleet.declare_ready()
    switch.point_at(world)
    until(lambda: "protocols=OpenFlow15" in caplog.text)
    assert "speaks OpenFlow 1.3" in caplog.text
    switch.vsctl("set", "bridge", "br0", "protocols=OpenFlow15")
    world.await_state(switch)


def test_open_vswitch_connects_with_tls_again_and_again(switch, pki):
    world = Served(tls_context(pki, "controller", server=True))
    switch.vsctl("set-ssl", str(pki / "switch.key"), str(pki / "switch.pem"), str(pki / "ca.pem"))
    world.begin(UNITS, switch, method="ssl")
    for _ in range(2):
        world.session(switch).connection.close("test")
        world.gone(switch)
        world.await_state(switch)
    assert world.row(switch).flow_mods_sent == 0
    assert world.audited(switch) == {}
    world.listener.close()
    world.session(switch).connection.close("test")


def test_two_open_vswitches_are_served_with_tls_at_once_while_strangers_knock(tmp_path, pki):
    world = Served(tls_context(pki, "controller", server=True))
    others: list[Any] = [Switch(tmp_path / str(number)) for number in (1, 2)]
    try:
        for number, ovs in enumerate(others, 1):
            ovs.directory.mkdir()
            ovs.start()
            ovs.dpid = number
            ovs.vsctl("set", "bridge", "br0", f"other-config:datapath-id={number:016x}")
            ovs.vsctl("set-ssl", str(pki / "switch.key"), str(pki / "switch.pem"), str(pki / "ca.pem"))
        many = {key("route", f"r{n}"): route(f"11.{n >> 8}.{n & 255}.0") for n in range(5000)}
        world.publish(UNITS | many, {number: member(f"n{number}") for number in (1, 2)})
        world.fleet.declare_ready()
        silent = eventlet.connect(world.listener.address)
        for ovs in others:
            ovs.point_at(world, method="ssl")
        for ovs in others:
            world.await_state(ovs)
        world.publish({key("route", "n2"): route("10.10.2.0", 80)})
        world.settle(*others)
        for ovs in others:
            assert world.audited(ovs) == {}
            assert ovs.table_sizes()[70] == 5001
        silent.close()
    finally:
        world.listener.close()
        for ovs in others:
            session = world.switches.session(ovs.dpid)
            if session is not None:
                session.connection.close("the test is over")
            ovs.stop()
