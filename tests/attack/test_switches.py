"""Switches that lie, flood, or are forgotten by the cluster: none of them harms another, or the controller."""

import logging
import struct

import eventlet
import pytest

from apps.ports import local_named
from controller import connection
from controller.complaints import MOST, Complaints
from controller.fake import Fake, FakePort, Fault, Link
from controller.session import Hooks, State
from pipelines.actions import LOCAL_PORT
from pipelines.model import Change, Kind, Port
from tests.controller.world import World, key, member, route, switch, until

pytestmark = pytest.mark.usefixtures("own_time")

FLOW_DESC = 1
OWN = 0x5B << 56


def flow_row(number: int, cookie: int = OWN) -> bytes:
    match = struct.pack("!HHII4x", 1, 12, 0x80000004, number)
    return struct.pack("!HxxBxHHHHHQ", 48, 70, number & 0xFFFF, 0, 0, 0, 0, cookie) + match + struct.pack("!HH4x", 0, 4)


class Liar(Fake):
    """Answers the question for its flows with `parts`, the last of which need not be the last."""

    def __init__(self, dpid: int, parts: list[bytes], more: bool = False) -> None:
        super().__init__(dpid)
        self.arm(self._lie)
        self.parts, self.more = parts, more

    def _lie(self, index: int, message: bytes) -> Fault | None:
        if message[1] != 18 or message[9] != FLOW_DESC:
            return None
        for link in self.links:
            eventlet.spawn_n(self._tell, link, message)
        return Fault.IGNORE

    def _tell(self, link: Link, message: bytes) -> None:
        xid = int.from_bytes(message[4:8], "big")
        while link.open:
            for part in self.parts:
                link.send(19, xid, struct.pack("!HH4x", FLOW_DESC, self.more) + part)
                eventlet.sleep(0)
            if not self.more:
                return


@pytest.mark.parametrize(
    "row",
    [
        struct.pack("!H", 0) + flow_row(1)[2:],  # lengths of nothing, and of more than there is
        struct.pack("!H", 60_000) + flow_row(1)[2:],
        flow_row(1)[:24] + b"\0\7" + flow_row(1)[26:],
        flow_row(1)[:26] + b"\xff\xff" + flow_row(1)[28:],
        flow_row(1)[:-8] + bytes(8),
    ],
    ids=["length 0", "length 60000", "type of match", "length of match", "length of statistics"],
)
def test_read_back_that_cannot_be_read_ends_its_connection_and_says_why(
    row: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world, other, liar = World(), switch(1), Liar(2, [row])
    world.start({key("route", "a"): route("10.10.2.0")}, 1, 2)
    world.connect(other)
    world.plug(liar)
    until(lambda: "an answer that cannot be used" in caplog.text)
    world.gone(liar)
    assert "Traceback" not in caplog.text
    assert world.ready(other)


def test_read_back_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LARGEST_REPLY", 1 << 22)
    part = b"".join(flow_row(number) for number in range(1000))
    world, other, liar = World(), switch(1), Liar(2, [part], more=True)
    world.start({key("route", "a"): route("10.10.2.0")}, 1, 2)
    world.connect(other)
    world.connect(liar, State.READING)
    world.gone(liar)
    world.publish({key("route", "a"): route("10.10.3.0")})
    world.settle(other)


def test_bogus_flows_with_our_mark_are_removed_and_foreign_ones_stay() -> None:
    world, fake = World(), switch()
    world.start({key("route", "a"): route("10.10.2.0")}, 1)
    world.connect(fake)
    flow = next(iter(fake.tables.flows.items()))
    for number, cookie in ((1, OWN | 5 << 49), (2, 0x5A << 56), (3, OWN | 127 << 49 | 0xFFFFFFFF)):
        fake.tables.flows[flow[0]._replace(priority=number)] = flow[1]._replace(cookie=cookie)
    world.unplug(fake)
    world.connect(fake)
    assert sorted(each.priority for each in fake.tables.flows) == [2, 100]


def test_flood_of_errors_is_ten_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    world, fake, other = World(), switch(1), switch(2)
    world.start({key("route", "a"): route("10.10.2.0")}, 1, 2)
    world.connect(fake)
    world.connect(other)
    for number in range(3000):
        fake.links[0].send(1, 0x7FFF0000 + number, struct.pack("!HH", 5, 1) + bytes(8))
    until(lambda: world.row(fake).last_error == "FLOW_MOD_FAILED TABLE_FULL")
    eventlet.sleep(0.1)
    assert caplog.text.count("TABLE_FULL") == MOST
    world.publish({key("route", "a"): route("10.10.3.0")})
    world.settle(fake, other)


def test_what_was_not_logged_is_counted_later(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    complaints = Complaints(most=2, seconds=10, clock=lambda: now)
    log = logging.getLogger("tests.attack")
    for _ in range(5):
        complaints.say(log, "n1", "no")
    now = 10.0
    complaints.say(log, "n1", "no")
    assert [record.getMessage() for record in caplog.records] == [
        "n1: no", "n1: no", "n1: 3 more errors were not logged", "n1: no",
    ]  # fmt: skip


def test_ports_are_told_again_when_their_node_was_deleted_and_made_anew() -> None:
    """Both while the session was waiting for its switch, so that it saw neither."""
    told: list[str] = []
    world, fake = World(hooks=Hooks(observe=lambda node, ports, rows: told.append(node))), switch()
    world.start({key("route", "a"): route("10.10.2.0")}, 1)
    world.connect(fake)
    assert told == ["n1"]
    fake.late = 0.1
    fake.arm({0: Fault.LATE})
    world.publish({key("route", "a"): route("10.10.3.0")})
    eventlet.sleep(0.02)
    world.publish(members={1: None})
    world.switches.forget({"n1"})
    world.publish(members={1: member("n1")})
    until(lambda: told == ["n1", "n1"])
    world.settle(fake)
    assert world.agrees(fake)


@pytest.mark.parametrize("name", ["br0", "a b", "LOCAL", "", "\n", " "])
def test_bridges_own_port_is_local_whatever_it_is_called(name: str) -> None:
    port = Port(LOCAL_PORT, 1)
    assert local_named([Change(Kind.PORT, f"n1 {name}", port)]) == [Change(Kind.PORT, "n1 LOCAL", port)]


def test_no_other_port_is_taken_for_the_bridges_own() -> None:
    """Neither when it comes nor when it goes."""
    assert local_named([Change(Kind.PORT, "n1 LOCAL", Port(7, 1)), Change(Kind.PORT, "n1 LOCAL", None)]) == []


def test_ports_of_any_name_harm_nothing() -> None:
    told: list[dict[str, Port]] = []
    world = World(hooks=Hooks(observe=lambda node, ports, rows: told.append(ports)))
    names = ["eth1", "a b c", "üöä", "line\nfeed", "n1 gw0", "\x1b[31m", ""]
    fake = Fake(1, tuple(FakePort(number, name, number) for number, name in enumerate(names, 1)))
    world.start({}, 1)
    world.connect(fake)
    assert set(told[0]) == set(names)
