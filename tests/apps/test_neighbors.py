"""Questions by the uplinks of fake switches, answers as packet-ins, and what becomes of them in flows."""

import random
import struct
from collections.abc import Iterator
from time import monotonic
from typing import Any

import eventlet
import pytest

from apps import evidence
from apps.neighbors import Neighbors
from controller.discovery import Discovery, Timing
from controller.fake import PACKET_IN, Fake, FakePort
from controller.fleet import Fleet
from controller.neighbor_frames import ADVERTISEMENT, ARP_TYPE, IP6_TYPE
from controller.readback import FlowRow
from controller.session import Hooks, State
from controller.settings import SwitchSettings
from controller.switches import Switches
from pipelines.addresses import Ip, parse_ip, parse_mac
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.features import NUMBERS
from pipelines.features.neighbors import WATCH_PEERS, WATCH_ROUTERS
from pipelines.ids import cookie
from pipelines.model import Change, EgressMode, Kind, MacSource, Neighbor, Node, Port, Settings, neighbor_key, port_key
from tests.controller.world import until
from tests.pipelines import objects

QUICK = Timing(first=0.02, retry=0.1, refresh=0.4, slowest=0.5, window=0.05, spacing=0.1, preference=0.1, remembered=2)
GATEWAY = {4: parse_ip("192.168.77.1"), 6: parse_ip("fe80::1")}
ROUTER_MAC, OTHER_MAC = 0xFE0000000001, 0xFE0000000002


class Switch:
    """A fake switch on a segment where `stations` answer (address → MACs)."""

    def __init__(self, number: int, stations: dict[Ip, list[int]]) -> None:
        self.node, self.mac = f"n{number}", parse_mac(f"aa:00:00:00:00:0{number}")
        self.fake = Fake(number, (FakePort(1, "eth1", self.mac), FakePort(2, "gw0", 0x0A0000000000 + number)))
        self.stations = stations
        self.asked: list[tuple[Ip, bytes]] = []

    def answer(self) -> None:
        """Questions that have come since."""
        outs, self.fake.packet_outs[:] = list(self.fake.packet_outs), []
        for out in outs:
            frame = out[24 + struct.unpack_from("!H", out, 12)[0] + 16 - 8 :]
            frame = frame[frame.index(self.mac.to_bytes(6)) - 6 :]
            self.asked.append((asked := _asked(frame), frame))
            for mac in self.stations.get(asked, ()):
                if frame[0] & 1 or frame[:6] == mac.to_bytes(6):
                    self.tell(_answer(asked, mac, frame))

    def tell(self, frame: bytes, feature: str = WATCH_ROUTERS) -> None:
        head = struct.pack("!IHBBQHH", 0xFFFFFFFF, len(frame), 1, 14, cookie(NUMBERS[feature], "n1 4", 5), 1, 12)
        self.fake.say(PACKET_IN, head + struct.pack("!II4x2x", 0x80000004, 1) + frame)


def _asked(frame: bytes) -> Ip:
    if int.from_bytes(frame[12:14]) == ARP_TYPE:
        return Ip(4, int.from_bytes(frame[38:42]))
    return Ip(6, int.from_bytes(frame[62:78]))


def _answer(asked: Ip, mac: int, question: bytes) -> bytes:
    own, asker = mac.to_bytes(6), question[6:12]
    if asked.family == 4:
        body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + own + question[38:42] + asker + question[28:32]
        return asker + own + ARP_TYPE.to_bytes(2) + body
    message = struct.pack("!BBHI", ADVERTISEMENT, 0, 0, 0xE0000000) + asked.value.to_bytes(16) + b"\2\1" + own
    addresses = asked.value.to_bytes(16) + question[22:38]
    total = int.from_bytes(addresses + len(message).to_bytes(4) + (58).to_bytes(4) + message) % 0xFFFF
    message = message[:2] + (0xFFFF - total).to_bytes(2) + message[4:]
    return (
        asker + own + IP6_TYPE.to_bytes(2) + struct.pack("!IHBB", 6 << 28, len(message), 58, 255) + addresses + message
    )


def announcement(ip: Ip, mac: int) -> bytes:
    """A gratuitous ARP."""
    own, address = mac.to_bytes(6), ip.value.to_bytes(4)
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + own + address + bytes(6) + address
    return b"\xff" * 6 + own + ARP_TYPE.to_bytes(2) + body


class Cluster:
    """n1, n2 on one segment: what the fabric does, without Ryu."""

    def __init__(self, **settings: Any) -> None:
        self.compiler, self.fleet = Compiler(), Fleet()
        discovery = Discovery(QUICK, random.Random(3))
        self.neighbors = Neighbors(self.compiler.facts, self.compiler.units, self.apply, discovery)
        hooks = Hooks(
            observe=self.observe,
            ports_changed=lambda node, changes: self.apply(changes),
            packet_in=dict.fromkeys((NUMBERS[WATCH_ROUTERS], NUMBERS[WATCH_PEERS]), self.neighbors),
            state_changed=self.neighbors.session_changed,
        )
        self.switches = Switches(self.fleet, SwitchSettings(audit_interval=0), hooks)
        self.stations: dict[Ip, list[int]] = {ip: [ROUTER_MAC] for ip in GATEWAY.values()}
        self.fakes = {number: Switch(number, self.stations) for number in (1, 2)}
        self.apply([Change(Kind.SETTINGS, "", Settings(**settings)), self.node(1), self.node(2)])
        self.fleet.declare_ready()
        self._thread = eventlet.spawn(self.neighbors.run)

    def end(self) -> None:
        self._thread.kill()
        for switch in self.fakes.values():
            switch.fake.unplug()
        until(lambda: not self.switches.sessions())

    def node(self, number: int, **more: Any) -> Change:
        addresses = f"192.168.77.10{number}/24", f"fd00:77::10{number}/64"
        cidrs = f"10.10.{number}.0/24", f"fd00:10:{number}::/64"
        gateways = tuple(GATEWAY.values())
        return objects.node(f"n{number}", cidrs, addresses, datapath_id=number, **({"gateways": gateways} | more))

    def apply(self, changes: list[Change]) -> None:
        deleted = {change.key for change in changes if change.kind is Kind.NODE and change.value is None}
        revision = self.compiler.run(changes)
        self.fleet.publish(revision, NUMBERS)
        self.neighbors.follow(revision)
        if outdated := evidence.outdated(self.compiler.facts):
            self.apply(outdated)
        self.neighbors.forget(deleted)

    def observe(self, node: str, ports: dict[str, Port], rows: list[FlowRow]) -> None:
        changes = [Change(Kind.PORT, port_key(node, name), port) for name, port in ports.items()]
        shown = evidence.macs(node, rows, self.compiler.facts)
        self.neighbors.recall(shown)
        self.apply([*changes, *shown])

    def connect(self, *numbers: int) -> None:
        for number in numbers:
            fake = self.fakes[number].fake
            eventlet.spawn_n(self.switches.serve, fake.pair(), f"fake-{number}")
            self.await_state(number, State.READY)

    def await_state(self, number: int, state: State | None) -> None:
        until(lambda: self.state(number) is state)

    def state(self, number: int) -> State | None:
        session = self.switches.session(number)
        return session.state if session else None

    def run(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            for switch in self.fakes.values():
                switch.answer()
            eventlet.sleep(0.002)

    def wait(self, key: str, mac: int | None, reachable: bool = True) -> None:
        """Until that is known."""

        def found() -> bool:
            self.run(0.005)
            neighbor: Neighbor | None = self.compiler.facts.peek(Kind.NEIGHBOR).get(key)
            return neighbor == (None if mac is None else Neighbor(mac, reachable))

        until(found, 20)

    def router(self, number: int, family: int) -> int | None:
        found = self.compiler.facts.peek(Derived.ROUTER)[f"n{number} {family}"]
        return found.mac.mac if found.mac else None


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(**getattr(request, "param", {}))
    yield made
    made.end()


def key(number: int, family: int = 4) -> str:
    return neighbor_key(f"n{number}", GATEWAY[family])


by_asking = pytest.mark.parametrize("cluster", [{"mac_sources": (MacSource.NEIGHBOR,)}], indirect=True)


def test_next_hops_of_both_families_are_asked_by_the_nodes_own_switch(cluster: Cluster) -> None:
    cluster.connect(1)
    for family in (4, 6):
        cluster.wait(key(1, family), ROUTER_MAC)
        assert cluster.router(1, family) == ROUTER_MAC
    assert cluster.router(2, 4) is None
    assert {asked for asked, _ in cluster.fakes[1].asked} >= set(GATEWAY.values())
    row = cluster.neighbors.row(key(1))
    assert row is not None
    assert row["age_seconds"] < 20
    assert row["problems"] == []


def test_a_question_comes_from_the_nodes_mac_and_its_address_in_the_subnet(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    frame = next(frame for asked, frame in cluster.fakes[1].asked if asked.family == 4)
    assert frame[6:12] == frame[22:28] == cluster.fakes[1].mac.to_bytes(6)
    assert frame[28:32] == parse_ip("192.168.77.101").value.to_bytes(4)


def test_nothing_is_asked_by_a_switch_that_another_controller_has(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    session = cluster.switches.session(1)
    assert session is not None
    session.lose_master("another one has it")
    cluster.await_state(1, State.SLAVE)
    cluster.run(0.1)
    cluster.fakes[1].asked.clear()
    cluster.run(1)
    assert cluster.fakes[1].asked == []
    session.claim()
    cluster.await_state(1, State.READY)
    cluster.run(1)
    assert cluster.fakes[1].asked


def test_a_switch_that_goes_takes_no_mac_with_it_and_is_asked_when_it_is_back(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.fakes[1].fake.unplug()
    cluster.await_state(1, None)
    cluster.run(0.8)
    assert cluster.router(1, 4) == ROUTER_MAC
    cluster.stations[GATEWAY[4]][:] = [OTHER_MAC]
    cluster.connect(1)
    cluster.wait(key(1), OTHER_MAC)


def test_a_fail_over_reaches_the_flows_and_nothing_else_is_written(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.wait(key(1, 6), ROUTER_MAC)
    cluster.run(0.1)
    written = cluster.fakes[1].fake.flow_mods
    cluster.stations[GATEWAY[4]][:] = [OTHER_MAC]
    cluster.fakes[1].tell(announcement(GATEWAY[4], OTHER_MAC))
    cluster.wait(key(1), OTHER_MAC)
    until(lambda: cluster.fakes[1].fake.flow_mods > written)
    cluster.run(0.1)
    assert cluster.fakes[1].fake.flow_mods - written <= 4


def test_an_announcement_alone_is_not_believed(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    for _ in range(20):
        cluster.fakes[1].tell(announcement(GATEWAY[4], OTHER_MAC))
        cluster.run(0.02)
    cluster.run(0.3)
    assert cluster.router(1, 4) == ROUTER_MAC
    found = cluster.neighbors.problems()
    assert [(problem.key, problem.field) for problem in found] == [("n1", "next hop")]
    assert "claim" in found[0].reason


def test_what_another_node_was_answered_is_no_answer_to_this_one(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    _, question = cluster.fakes[1].asked[0]
    stranger = question[:28] + parse_ip("192.168.77.102").value.to_bytes(4) + question[32:]
    cluster.stations[GATEWAY[4]].clear()
    for _ in range(30):
        cluster.fakes[1].tell(_answer(GATEWAY[4], OTHER_MAC, stranger))
        cluster.run(0.02)
    assert cluster.router(1, 4) == ROUTER_MAC


def test_a_next_hop_that_the_node_does_not_name_any_more_is_forgotten(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.apply([cluster.node(1, gateways=(GATEWAY[6],))])
    cluster.wait(key(1), None)
    assert cluster.neighbors.row(key(1)) is None
    cluster.run(0.1)
    cluster.fakes[1].asked.clear()
    cluster.run(0.8)
    asked = {asked for asked, _ in cluster.fakes[1].asked}
    assert GATEWAY[6] in asked
    assert GATEWAY[4] not in asked


def test_a_node_that_goes_and_comes_again_at_once_is_found_out_again(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    fresh = cluster.node(1)
    assert isinstance(fresh.value, Node)
    cluster.compiler.submit([Change(Kind.NODE, "n1", None)])
    cluster.apply([fresh])
    cluster.neighbors.forget({"n1"})
    cluster.switches.forget({"n1"})
    cluster.wait(key(1), ROUTER_MAC)


def test_a_deleted_node_takes_what_it_found_with_it(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.apply([Change(Kind.NODE, "n1", None)])
    cluster.run(0.5)
    assert cluster.compiler.facts.peek(Kind.NEIGHBOR) == {}
    assert cluster.neighbors.row(key(1)) is None


@pytest.mark.parametrize("cluster", [{"ask_routers": False}], indirect=True)
def test_no_next_hop_is_asked_where_that_is_switched_off(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.run(0.6)
    assert {asked for asked, _ in cluster.fakes[1].asked} & set(GATEWAY.values()) == set()


@by_asking
def test_a_peer_without_a_switch_is_asked_by_its_neighbour(cluster: Cluster) -> None:
    peer = parse_ip("192.168.77.102")
    cluster.stations[peer] = [cluster.fakes[2].mac]
    cluster.connect(1)
    cluster.wait("n2", cluster.fakes[2].mac)
    assert cluster.compiler.facts.peek(Derived.NODE_NETWORK)["n2"].mac == (cluster.fakes[2].mac, "neighbor")
    cluster.run(0.2)
    assert "n1" not in cluster.compiler.facts.peek(Kind.NEIGHBOR), "nobody is there to ask for n1"


def test_a_peer_whose_switch_tells_its_mac_is_asked_no_more(cluster: Cluster) -> None:
    cluster.stations[parse_ip("192.168.77.102")] = [OTHER_MAC]
    cluster.connect(1)
    cluster.wait("n2", OTHER_MAC)
    cluster.connect(2)
    cluster.wait("n2", None)
    assert cluster.compiler.facts.peek(Derived.NODE_NETWORK)["n2"].mac == (cluster.fakes[2].mac, "switch")
    assert cluster.neighbors.row("n2") is None


@by_asking
def test_the_mac_of_the_asking_node_is_refused_and_reported(cluster: Cluster) -> None:
    cluster.stations[parse_ip("192.168.77.102")] = [cluster.fakes[1].mac]
    cluster.connect(1)

    def reported() -> bool:
        cluster.run(0.01)
        return any(problem.key == "n2" and "not believed" in problem.reason for problem in cluster.neighbors.problems())

    until(reported)
    assert "n2" not in cluster.compiler.facts.peek(Kind.NEIGHBOR)


@pytest.mark.parametrize("cluster", [{"egress": EgressMode.DIRECT}], indirect=True)
def test_a_controller_that_starts_again_writes_nothing(cluster: Cluster) -> None:
    cluster.connect(1, 2)
    for number in (1, 2):
        for family in (4, 6):
            cluster.wait(key(number, family), ROUTER_MAC)
    cluster.run(0.3)
    held = {number: dict(switch.fake.tables.flows) for number, switch in cluster.fakes.items()}
    written = {number: switch.fake.flow_mods for number, switch in cluster.fakes.items()}
    for switch in cluster.fakes.values():
        switch.fake.unplug()
    again = Cluster(egress=EgressMode.DIRECT)
    for number, switch in again.fakes.items():
        switch.fake = cluster.fakes[number].fake
    again.connect(1, 2)
    for number in (1, 2):
        for family in (4, 6):
            again.wait(key(number, family), ROUTER_MAC)
    again.run(0.2)
    assert {number: switch.fake.flow_mods for number, switch in again.fakes.items()} == written
    assert {number: dict(switch.fake.tables.flows) for number, switch in again.fakes.items()} == held
    assert again.compiler.facts.peek(Kind.EVIDENCE) == {}
    again.end()
