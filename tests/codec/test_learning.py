"""What flows learn on a real Open vSwitch, and what becomes of it; the fake forgets in the same way."""

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from controller import encode
from controller.encode import EncodedUnit, Xids, encode_unit
from controller.fake_tables import FakeFlow, FlowId, Tables
from pipelines import fields
from pipelines.actions import Learn, LearnLoad, LearnMatch, Resubmit
from pipelines.addresses import parse_ip, parse_mac
from pipelines.flow import Flow, match
from pipelines.ids import learned_cookie
from pipelines.unit import FLEET, Unit, UnitKey
from tests.codec.openvswitch import OpenVSwitch, Wire

KEY = UnitKey("sample", FLEET, "")
LEARNED = learned_cookie(5, "")
PORT = 1


def learning(idle: int = 60, limit: int = 2, *, cookie: int = LEARNED, delete_learned: bool = True) -> EncodedUnit:
    """Table 7: the way back to the source address is learned into table 9; table 8 counts by the result."""
    specs = (
        LearnMatch(fields.ETH_TYPE, 0x0800),
        LearnMatch(fields.IP4_DST, fields.IP4_SRC),
        LearnLoad(fields.ETH_DST, fields.ETH_SRC),
        LearnLoad(fields.EGRESS, 3),
    )
    learn = Learn(9, cookie, specs, 100, idle, 600, limit, fields.LEARNED, delete_learned=delete_learned)
    flows = [Flow(8, 100, match(fields.LEARNED.eq(value)), ()) for value in (0, 1)]
    flows.append(Flow(0, 100, match(fields.IN_PORT.eq(PORT)), (Resubmit(7),)))
    return encode_unit(KEY, 5, Unit((Flow(7, 1, match(fields.IP4), (learn, Resubmit(8))), *flows)), None, Xids())


@pytest.fixture
def clean(switch: OpenVSwitch) -> Iterator[None]:
    port = ["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy", f"ofport_request={PORT}"]
    switch.vsctl("--may-exist", *port)
    yield
    for table in (0, 7, 8, 9):
        switch.ofctl("del-flows", "br0", f"table={table}")


def send(switch: OpenVSwitch, client: str, mac: int) -> None:
    """A packet of the client by port p1. (In a packet-out of its own, 3.1 learns without regard to the limit.)"""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20, 1, 0, 64, 253, 0) + parse_ip(client).value.to_bytes(4) + bytes(4)
    head = head[:10] + struct.pack("!H", ~(sum(struct.unpack("!10H", head)) % 0xFFFF) & 0xFFFF) + head[12:]
    frame = bytes(6) + mac.to_bytes(6) + b"\x08\0" + head
    switch.run("ovs-appctl", "netdev-dummy/receive", "p1", frame.hex())


def known(switch: OpenVSwitch) -> dict[str, int]:
    """What table 9 has learned: MAC by address. Every learned flow is as it was told."""
    lines = [
        line for line in switch.ofctl("--no-stats", "dump-flows", "br0", "table=9").splitlines() if "nw_dst" in line
    ]
    found = {}
    for line in lines:
        head, _, rest = line.strip().partition(",ip,nw_dst=")
        assert head == f"cookie={LEARNED:#x}, table=9, idle_timeout=60, hard_timeout=600, priority=100"
        address, _, actions = rest.partition(" actions=set_field:")
        mac, _, others = actions.partition("->")
        assert others == "eth_dst,set_field:0x300000/0xf00000->reg0"
        found[address] = parse_mac(mac)
    return found


def counts(switch: OpenVSwitch) -> tuple[int, int]:
    """Packets that were not learned, and that were."""
    dump = switch.ofctl("dump-flows", "br0", "table=8").splitlines()
    by = {
        ("reg0=0x20/0x20" in line): int(line.partition("n_packets=")[2].partition(",")[0])
        for line in dump
        if "reg0" in line
    }
    return by[False], by[True]


def counted(switch: OpenVSwitch, wanted: tuple[int, int]) -> bool:
    return counts(switch) == wanted


def until(holds: Callable[[], bool]) -> bool:
    """A switch takes what has arrived when it comes to it."""
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


@pytest.mark.ovs
@pytest.mark.usefixtures("clean")
def test_newest_mac_of_each_client_is_learned_up_to_the_limit(switch: OpenVSwitch, wire: Wire) -> None:
    """At the limit not even a flow that is there changes: the result says so."""
    unit = learning()
    assert wire.install(unit) == []
    for client, mac, learned, result in (
        ("10.0.0.1", 1, {"10.0.0.1": 1}, (0, 1)),
        ("10.0.0.1", 2, {"10.0.0.1": 2}, (0, 2)),
        ("10.0.0.2", 3, {"10.0.0.1": 2, "10.0.0.2": 3}, (0, 3)),
        ("10.0.0.3", 4, {"10.0.0.1": 2, "10.0.0.2": 3}, (1, 3)),
        ("10.0.0.1", 5, {"10.0.0.1": 2, "10.0.0.2": 3}, (2, 3)),
        ("10.0.0.2", 3, {"10.0.0.1": 2, "10.0.0.2": 3}, (2, 4)),  # what is known already is learned again
    ):
        send(switch, client, mac)
        assert until(partial(counted, switch, result)), counts(switch)
        assert known(switch) == learned
    assert wire.flows().keys() == unit.flows.keys(), "learned flows are not read"


@pytest.mark.ovs
@pytest.mark.usefixtures("clean")
def test_what_was_learned_stays_with_its_cookie_and_goes_with_the_last_that_learns(
    switch: OpenVSwitch, wire: Wire
) -> None:
    wire.install(learning())
    send(switch, "10.0.0.1", 1)
    assert until(lambda: known(switch) == {"10.0.0.1": 1})
    wire.install(learning(idle=30, limit=5))
    assert known(switch) == {"10.0.0.1": 1}
    wire.install(learning(cookie=LEARNED + 1))
    assert known(switch) == {}
    unit = learning()
    wire.install(unit)
    send(switch, "10.0.0.1", 1)
    assert until(lambda: known(switch) == {"10.0.0.1": 1})
    assert wire.bundle(map(encode.delete_flow, unit.flows.values())) == []
    assert known(switch) == {}


def test_fake_forgets_what_was_learned_as_open_vswitch_does() -> None:
    tables = Tables()

    def install(unit: EncodedUnit) -> None:
        assert tables.apply([flow.message[16:] for flow in unit.flows.values()]) is None

    def there() -> bool:
        return learned in tables.flows

    learned = FlowId(9, 100, b"\0\1\0\4")
    install(learning())
    tables.flows[learned] = FakeFlow(LEARNED, 60, 600, 0, 0, b"")
    install(learning(idle=30, limit=0))
    assert there()
    install(learning(cookie=LEARNED + 1))
    assert not there()
    install(learning(delete_learned=False))
    tables.flows[learned] = FakeFlow(LEARNED, 60, 600, 0, 0, b"")
    last = learning(cookie=LEARNED)
    install(last)
    assert tables.apply([encode.delete_flow(flow)[16:] for flow in last.flows.values()]) is None
    assert not there()
