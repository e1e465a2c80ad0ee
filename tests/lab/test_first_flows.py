"""Switches that never saw a controller: their nodes are on the network, and nobody else is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from lab.cluster import Lab
from tests.lab.waiting import answers, reaches, soon, unique

pytestmark = pytest.mark.ovs

DEMO = Path(__file__).parents[2] / "examples" / "demo"
ROUTER = ("192.168.77.1", "fd00:77::1", "fe80::1%br0")
PEERS = ("192.168.77.102", "fd00:77::102", "192.168.88.103", "fd00:88::103", "203.0.113.9", "fd00:203::9")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(unique("first"), DEMO) as built:
        yield built


def first_flows(lab: Lab, node: str) -> list[str]:
    lines = lab.ofctl(node, "--no-stats", "dump-flows", "br0").splitlines()
    return sorted(line.strip() for line in lines if "actions=" in line)


def test_node_reaches_its_router_other_nodes_and_the_outside(lab: Lab) -> None:
    reaches(lab, "n1", *ROUTER, *PEERS)
    reaches(lab, "remote", "192.168.77.101", "fd00:88::103")
    assert len(first_flows(lab, "n1")) == 2


@pytest.mark.parametrize(
    ("of", "frame"),
    [
        ("tagged", Ether(dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=7) / IP(dst="10.7.0.1") / UDP(dport=7777)),
        ("multicast", Ether(dst="01:00:5e:00:00:12") / IP(dst="224.0.0.18", proto=112) / Raw(b"hello")),
    ],
)
def test_tagged_and_multicast_frames_pass_both_ways(lab: Lab, of: str, frame: Ether) -> None:
    expression = "vlan 7" if of == "tagged" else "ip proto 112"
    for sender, device, receiver, seen_by in (("n1", "br0", "outside", "eth0"), ("outside", "eth0", "n1", "br0")):
        frame.src = "02:00:00:00:00:77"
        with lab.capture(receiver, seen_by, expression) as capture:
            soon(lambda: passed(lab, sender, device, bytes(frame), capture.path), f"{of} frames of {sender}")  # noqa: B023
        assert bytes(capture.frames()[0]).startswith(bytes(frame))


def passed(lab: Lab, place: str, device: str, frame: bytes, path: Path) -> bool:
    lab.send_frames(place, device, [frame] * 3)
    return path.stat().st_size > 24 + 16


def test_pods_reach_nothing(lab: Lab) -> None:
    with lab.capture("n1", "eth1", "ether src 0a:58:0a:0a:01:0a or host 10.10.1.10") as capture:
        for address in ("10.10.1.1", "10.10.1.11", "fd00:10:1::1", "192.168.77.101", "10.10.2.10"):
            assert not answers(lab, "a", address)
        reaches(lab, "n1", "192.168.77.1")  # as ever
    assert capture.frames() == []
    assert lab.port_counters("n1")[lab.pod("b").port].sent == 0


def test_restarted_vswitchd_joins_its_node_again(lab: Lab) -> None:
    before = first_flows(lab, "n2")
    lab.kill_vswitchd("n2")
    assert not answers(lab, "n2", "192.168.77.1")
    lab.start_vswitchd("n2")
    assert first_flows(lab, "n2") == before
    reaches(lab, "n2", "192.168.77.1", "fd00:77::1")


def test_flows_follow_the_number_of_the_uplink(lab: Lab) -> None:
    assert lab.renumber_port("n3", "eth1", 55) == 55
    assert ["in_port=55 " in flow or "output:55" in flow for flow in first_flows(lab, "n3")] == [True, True]
    reaches(lab, "n3", "192.168.88.1", "fd00:88::1")


def test_flushing_leaves_the_first_flows_and_takes_all_others(lab: Lab) -> None:
    before = first_flows(lab, "n1")
    lab.ofctl("n1", "add-flow", "br0", "table=3,actions=drop")
    lab.flush_flows("n1")
    assert first_flows(lab, "n1") == before
