"""Where tunnels end is said by every uplink of a segment: soon after anything has changed, and then every minute."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA
from scapy.layers.l2 import ARP, Ether

from apps.tunnel_ends import AGAIN, AT_ONCE, PAUSES, TunnelEnds
from pipelines.compiler import Compiler
from pipelines.model import Change, Port, TrafficMode
from tests.pipelines import objects

MACS = {f"n{number}": 0xAA0000000000 + number for number in range(1, 100)}


class Uplinks:
    """Every node's switch is there, but for those of `away`; a session is only a name."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.away: set[str] = set()

    def changed(self, name: str) -> tuple[None, Any]:
        return None, SimpleNamespace(node=name)

    def port(self, node: str) -> Port | None:
        return None if node in self.away else Port(1, MACS[node])

    def send(self, node: str, frame: bytes) -> bool:
        self.sent.append((node, frame))
        return True


def node(number: int, subnet: str = "192.168.77", **more: str) -> Change:
    address = f"{subnet}.{100 + number}/24"
    return objects.node(f"n{number}", (f"10.10.{number}.0/24",), (address,), datapath_id=number, **more)


class Cluster:
    def __init__(self, *nodes: Change, mode: TrafficMode = TrafficMode.ENCAP) -> None:
        self.now = 1000.0
        self.compiler, self.uplinks = Compiler(), Uplinks()
        self.ends: Any = TunnelEnds(self.compiler.facts, self.uplinks, now=lambda: self.now)  # type: ignore[arg-type]
        self.change(objects.operator(traffic_mode=mode), *nodes)

    def change(self, *changes: Change) -> None:
        self.ends.follow(self.compiler.run(list(changes)))

    def said(self, seconds: float) -> dict[str, int]:
        """How often each node has said something in so many seconds from now."""
        self.uplinks.sent.clear()
        end = self.now + seconds
        while (pause := self.ends.advance()) is not None and self.now + pause <= end:
            self.now += pause
        self.now = end
        return {name: [who for who, _ in self.uplinks.sent].count(name) for name, _ in self.uplinks.sent}


def frames(cluster: Cluster) -> Iterable[Any]:
    return [Ether(frame) for _, frame in cluster.uplinks.sent]


def test_every_node_says_it_three_times_and_then_every_minute() -> None:
    cluster = Cluster(node(1), node(2))
    assert cluster.said(sum(PAUSES) + 1) == {"n1": 3, "n2": 3}
    assert {(frame.src, frame[ARP].psrc, frame[ARP].pdst, frame[ARP].op) for frame in frames(cluster)} == {
        (f"aa:00:00:00:00:0{number}", *[f"192.168.77.10{number}"] * 2, 2) for number in (1, 2)
    }
    assert all(8 <= count <= 13 for count in cluster.said(10 * AGAIN).values())


def test_an_ipv6_address_is_advertised() -> None:
    cluster = Cluster(objects.node("n1", ("fd00:10:1::/64",), ("fd00:77::101/64",), datapath_id=1))
    assert cluster.said(1) == {"n1": 1}
    (frame,) = frames(cluster)
    assert (frame.src, frame[ICMPv6ND_NA].tgt) == ("aa:00:00:00:00:01", "fd00:77::101")


@pytest.mark.parametrize("mode", [TrafficMode.NO_ENCAP, TrafficMode.HYBRID])
def test_where_tunnels_lead_to_routers_or_nowhere_nothing_is_said_until_the_mode_changes(mode: TrafficMode) -> None:
    cluster = Cluster(node(1), mode=mode)
    cluster.ends.session_changed("n1")
    assert cluster.said(100) == {}
    cluster.change(objects.operator(traffic_mode=TrafficMode.ENCAP))
    assert cluster.said(1) == {"n1": 1}
    cluster.change(objects.operator(traffic_mode=mode))
    assert cluster.said(1000) == {}


def test_a_switch_that_comes_is_told_by_its_segment_and_by_nobody_else() -> None:
    cluster = Cluster(node(1), node(2), node(3, "192.168.88"))
    cluster.said(sum(PAUSES) + 1)
    cluster.ends.session_changed("n2")
    assert cluster.said(1) == {"n1": 1, "n2": 1}


def test_a_node_with_another_mac_says_so_and_one_that_is_gone_says_nothing() -> None:
    cluster = Cluster(node(1), node(2, mac="aa:00:00:00:00:02"))
    cluster.said(sum(PAUSES) + 1)
    cluster.change(node(2, mac="aa:00:00:00:00:22"))
    assert cluster.said(1) == {"n2": 1}
    cluster.change(objects.gone(node(2)))
    assert cluster.said(2 * AGAIN).keys() == {"n1"}


def test_a_switch_that_is_away_is_passed_over() -> None:
    cluster = Cluster(node(1), node(2))
    cluster.uplinks.away = {"n1"}
    assert cluster.said(1) == {"n2": 1}
    cluster.uplinks.away = set()
    assert cluster.said(sum(PAUSES)) == {"n1": 2, "n2": 2}


def test_many_that_come_at_once_do_not_flood_their_segment() -> None:
    cluster = Cluster(*map(node, range(1, 100)))
    for number in range(1, 100):
        cluster.ends.session_changed(f"n{number}")
    assert cluster.said(PAUSES[0] - 0.01) == {}
    assert sum(cluster.said(1).values()) <= 11 * AT_ONCE
    assert set(cluster.said(60).values()) >= {2}
