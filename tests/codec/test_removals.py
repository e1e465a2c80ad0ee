"""Flows that were not used: what a real Open vSwitch tells of them, and how they come back."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from controller import encode, readback
from controller.encode import prolonged
from controller.oxm import match_fields
from controller.readback import FlowRemoved
from pipelines import fields
from pipelines.actions import load
from pipelines.addresses import parse_ip
from pipelines.flow import match
from pipelines.ids import learned_cookie
from tests.codec.openvswitch import OpenVSwitch, Wire
from tests.codec.test_learning import until

pytestmark = pytest.mark.ovs

COOKIE = learned_cookie(55, "default/web")
CHOICE = (load(fields.CHOSEN, 1), load(fields.ENDPOINT_PORT, 8080))
WHERE = {
    4: "tcp,nw_src=10.10.0.9,nw_dst=10.96.0.77,tp_dst=80",
    6: "udp6,ipv6_src=fd00::9,ipv6_dst=fd00:96::77,tp_dst=80",
}
MATCHES = {
    4: match(
        fields.IP4,
        fields.IP_PROTO.eq(fields.TCP),
        fields.IP4_SRC.eq(parse_ip("10.10.0.9").value),
        fields.IP4_DST.eq(parse_ip("10.96.0.77").value),
        fields.TCP_DST.eq(80),
    ),
    6: match(
        fields.IP6,
        fields.IP_PROTO.eq(fields.UDP),
        fields.IP6_SRC.eq(parse_ip("fd00::9").value),
        fields.IP6_DST.eq(parse_ip("fd00:96::77").value),
        fields.UDP_DST.eq(80),
    ),
}


@contextmanager
def master(switch: OpenVSwitch) -> Iterator[Wire]:
    with closing(switch.connect()) as wire:
        _claim(wire)
        yield wire


def _claim(wire: Wire) -> None:
    generation = readback.role(wire.ask(encode.role_query(wire.xid()))).generation + 1
    wire.ask(encode.role_master(wire.xid(), generation % (1 << 64)))
    wire.send(encode.set_async(wire.xid()))
    wire.ask(encode.barrier(wire.xid()))


def add(switch: OpenVSwitch, family: int, idle: int, words: str = "send_flow_rem") -> None:
    flow = f"table=40,cookie={COOKIE:#x},idle_timeout={idle},{words},{WHERE[family]},actions=drop"
    switch.ofctl("add-flow", "br0", flow)


def told(wire: Wire) -> FlowRemoved:
    while (message := wire.receive())[1] != encode.FLOW_REMOVED:
        assert message[1] != encode.ERROR, readback.error(message)
    return readback.flow_removed(message)


@pytest.mark.parametrize("family", [4, 6])
def test_a_flow_that_was_not_used_is_told_with_all_that_it_takes_to_put_it_back(
    switch: OpenVSwitch, family: int
) -> None:
    with master(switch) as wire:
        add(switch, family, 1, "send_flow_rem,priority=32768")
        removed = told(wire)
        assert removed == FlowRemoved(removed.key, 32768, COOKIE, 0, 1, 0)
        assert removed.unused
        assert removed.key[:3] == bytes((40, 0x80, 0))
        assert {*fields_in(removed.key[3:])} == {*fields_in(match_fields(MATCHES[family]))}
        assert wire.bundle([prolonged(removed.key, 32767, COOKIE, 77, CHOICE)]) == []
        [line] = [line for line in switch.ofctl("dump-flows", "br0", "table=40").splitlines() if "table=40" in line]
        assert "idle_timeout=77, " in line
        assert "send_flow_rem " in line
        assert f"cookie={COOKIE:#x}," in line
        assert f"priority=32767,{WHERE[family]} actions=set_field:0x1000000/0x1000000->reg10" in line
        switch.ofctl("del-flows", "br0", "table=40")


def fields_in(data: bytes) -> list[bytes]:
    """Each condition with its header, in whichever order."""
    found, position = [], 0
    while position < len(data):
        end = position + 4 + data[position + 3]
        found.append(data[position:end])
        position = end
    return found


def test_packets_that_used_a_flow_are_counted(switch: OpenVSwitch) -> None:
    with master(switch) as wire:
        switch.vsctl("--may-exist", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy")
        switch.ofctl("add-flow", "br0", f"table=0,cookie={COOKIE:#x},idle_timeout=2,send_flow_rem,actions=drop")
        for _ in range(3):
            switch.run("ovs-appctl", "netdev-dummy/receive", "p1", "00" * 60)
        assert told(wire).packets == 3


def test_of_flows_that_are_deleted_or_never_asked_nothing_is_told_nor_is_a_slave_told_anything(
    switch: OpenVSwitch,
) -> None:
    with master(switch) as slave, master(switch) as wire:
        add(switch, 4, 60)
        switch.ofctl("del-flows", "br0", "table=40")
        add(switch, 6, 1, "priority=7")
        assert until(lambda: "priority=7" not in switch.ofctl("dump-flows", "br0", "table=40"))
        add(switch, 4, 1, "send_flow_rem,priority=9")
        assert told(wire).priority == 9
        kinds = []
        slave.send(request := encode.barrier(slave.xid()))
        while (message := slave.receive())[4:8] != request[4:8]:
            kinds.append(message[1])
        assert encode.ROLE_STATUS in kinds, "it has lost its role"
        assert encode.FLOW_REMOVED not in kinds


def test_what_is_put_back_goes_with_the_last_flow_that_learns_it(switch: OpenVSwitch) -> None:
    """Cookie and table are all that Open vSwitch asks for."""
    learn = f"learn(table=40,cookie={COOKIE:#x},idle_timeout=60,send_flow_rem,delete_learned,eth_type=0x800)"
    switch.ofctl("add-flow", "br0", f"table=45,actions={learn}")
    with master(switch) as wire:
        key = bytes((40, 0x80, 0)) + match_fields(MATCHES[4])
        assert wire.bundle([prolonged(key, 32767, COOKIE, 60, CHOICE)]) == []
        assert "priority=32767" in switch.ofctl("dump-flows", "br0", "table=40")
        switch.ofctl("del-flows", "br0", "table=45")
        assert "priority=32767" not in switch.ofctl("dump-flows", "br0", "table=40")
