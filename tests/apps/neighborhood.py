"""Fake switches on a segment whose stations answer, and what the fabric does with them, without Ryu."""

import random
import struct
from time import monotonic
from typing import Any

import eventlet

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
from pipelines.model import Change, Kind, Neighbor, Port, Settings, port_key
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
        self.answer_in(WATCH_ROUTERS)

    def answer_in(self, feature: str) -> None:
        """The same; the answers are found by this feature's flows."""
        outs, self.fake.packet_outs[:] = list(self.fake.packet_outs), []
        for out in outs:
            frame = out[24 + struct.unpack_from("!H", out, 12)[0] + 16 - 8 :]
            frame = frame[frame.index(self.mac.to_bytes(6)) - 6 :]
            self.asked.append((asked := _asked(frame), frame))
            for mac in self.stations.get(asked, ()):
                if frame[0] & 1 or frame[:6] == mac.to_bytes(6):
                    self.tell(answer(asked, mac, frame), feature)

    def tell(self, frame: bytes, feature: str = WATCH_ROUTERS) -> None:
        head = struct.pack("!IHBBQHH", 0xFFFFFFFF, len(frame), 1, 14, cookie(NUMBERS[feature], "n1 4", 5), 1, 12)
        self.fake.say(PACKET_IN, head + struct.pack("!II4x2x", 0x80000004, 1) + frame)


def _asked(frame: bytes) -> Ip:
    if int.from_bytes(frame[12:14]) == ARP_TYPE:
        return Ip(4, int.from_bytes(frame[38:42]))
    return Ip(6, int.from_bytes(frame[62:78]))


def answer(asked: Ip, mac: int, question: bytes) -> bytes:
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
