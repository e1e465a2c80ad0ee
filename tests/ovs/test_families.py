"""Each family has a way of its own: tunnels over IPv6, and neighbours in one family that are far in the other.

The nodes of this laboratory name their IPv6 address first, so their tunnels are IPv6's.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from pipelines import fields as f
from pipelines.addresses import mac_text
from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.objects import Object
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, OUTSIDE_MAC, PODS, ROUTER_MACS

pytestmark = pytest.mark.ovs

N1, N2, N3, A, C, D = NODES["n1"], NODES["n2"], NODES["n3"], PODS["a"], PODS["c"], PODS["d"]
LEFT_OUT = ("n4", "p", "only-p")  # of IPv4 alone: tunnels over IPv6 do not reach it
MTU = 1430  # of pods, in a tunnel over IPv6
HEADERS = {4: 28, 6: 48}  # of an echo request
STRAY = 4444  # a port that nobody uses


def node(name: str, length: int = 24) -> Object:
    """`length`: of the prefix of its IPv4 address."""
    found, own = world.node_object(name), NODES[name].addresses
    found["metadata"]["annotations"]["signalbox.dev/node-addresses"] = f"{own[6]}/64,{own[4]}/{length}"
    found["status"]["addresses"].reverse()
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    objects = [
        node(one["metadata"]["name"]) if one["kind"] == "Node" else one
        for one in world.everything()
        if not one["metadata"]["name"].startswith(LEFT_OUT)
    ]
    settings = {"traffic_mode": "encap", "mac_sources": ["annotation"]}
    directory = tmp_path_factory.mktemp("families") / "manifests"
    with Cluster(unique("tfamilies"), directory, settings, objects) as running:
        yield running


@pytest.fixture
def encap(cluster: Cluster) -> Cluster:
    return warm(cluster, "encap")


def warm(cluster: Cluster, mode: str) -> Cluster:
    """The product in a mode, and every next hop of a tunnel found."""
    if cluster.product.settings["traffic_mode"] != mode:
        cluster.product.restart({"traffic_mode": mode})
    cluster.ready()
    targets = [pod.addresses[family] for pod in (C, D) for family in FAMILIES]

    def answered() -> bool:
        return all(all(found.values()) for found in cluster.echoes({"a": targets, "e": targets[2:]}).values())

    cluster.wait(answered, "pings along every way")
    return cluster


def of_pods(frames: list[Frame], pair: tuple[str, str]) -> list[Frame]:
    """What went between two addresses, by tunnel or not."""
    ends = {pair, pair[::-1]}
    return [one for one in frames if ((one.inner or one).source, (one.inner or one).destination) in ends]


PAIRS = (("a", "c"), ("c", "a"), ("a", "d"), ("d", "c"), ("n1", "c"), ("a", "n2"), ("n1", "only-e"), ("a", "only-g"))


def test_a_tunnel_over_ipv6_carries_both_families(encap: Cluster) -> None:
    with encap.watched("n1", "eth1") as frames, encap.streams(PAIRS) as streams:
        pass
    assert streams.broken == {}
    for there, peer in ((C, N2), (D, N3)):
        for family in FAMILIES:
            found = of_pods(frames, (A.addresses[family], there.addresses[family]))
            assert {(one.source, one.destination) for one in found} == {
                (N1.addresses[6], peer.addresses[6]),
                (peer.addresses[6], N1.addresses[6]),
            }
            assert {one.inner.ttl for one in found if one.inner} == {63}
    tracked = encap.lab.appctl("n1", "dpctl/dump-conntrack").splitlines()
    assert tracked
    assert not [line for line in tracked if re.search(r"dport=6081\b", line)], (
        "a tunnel's own packets are nobody's connection"
    )
    for family in FAMILIES:  # of the host, too, though its routing table says otherwise
        found = of_pods(frames, (N1.addresses[family], C.addresses[family]))
        assert found
        assert all(one.inner for one in found)


def test_pods_are_told_how_large_packets_in_a_tunnel_over_ipv6_may_be(encap: Cluster) -> None:
    assert {row["pod_mtu"] for row in encap.product.get("/v1/nodes")} == {MTU}
    for family in FAMILIES:
        for address in (C.addresses[family], D.addresses[family]):
            fits, told = (
                encap.lab.run("a", "ping", "-c3", "-i0.2", "-W2", "-Mdo", f"-s{size}", address, check=False).stdout
                for size in (MTU - HEADERS[family], MTU + 1 - HEADERS[family])
            )
            assert re.search(r" [23] received", fits), fits
            assert re.search(rf"mtu ?= ?{MTU}\b", told), told
    encap.lab.run("a", "sh", "-c", "ip route flush cache; ip -6 route flush cache")


def test_a_tunnel_over_ipv6_carries_only_packets_of_nodes(encap: Cluster) -> None:
    def by_tunnel(source: str) -> Any:
        outer = Ether(src=OUTSIDE_MAC, dst=N1.mac) / IPv6(src=source, dst=N1.addresses[6])
        inner = Ether(src=encap.lab.node("n2").gateway_mac, dst=mac_text(f.TUNNEL_MAC))
        packet = IP(src=C.addresses[4], dst=A.addresses[4]) / UDP(sport=STRAY, dport=5353) / b"x"
        return outer / UDP(sport=50000, dport=6081) / GENEVE(vni=0, proto=0x6558) / inner / packet

    def sent_by(source: str, expected: int) -> None:
        with encap.watched("a", "eth0", f"udp src port {STRAY}") as arrived:
            before = encap.packets("n1", "table=6")
            encap.send("outside", [by_tunnel(source)])
            encap.wait(lambda: encap.packets("n1", "table=6") > before, "it to come out of the tunnel")
        assert len(arrived) == expected, source

    sent_by(N2.addresses[6], 1)
    sent_by(OUTSIDE["outside"].addresses[6], 0)


def macs(frames: list[Frame]) -> set[tuple[str, str]]:
    return {(one.src, one.dst) for one in frames if one.src == N1.mac}


@pytest.mark.parametrize("mode", ["hybrid", "noEncap"])
def test_a_neighbour_in_one_family_alone_is_reached_straight_in_that_one(cluster: Cluster, mode: str) -> None:
    """n2's IPv4 prefix is another one than n1's, its IPv6 prefix is the same."""
    cluster.manifests.put(node("n2", 25))
    cluster.settle()
    warm(cluster, mode)
    ways = {row["family"]: row["way"] for row in cluster.product.get("/v1/nodes/n1")["ways"] if row["node"] == "n2"}
    assert ways == {4: "tunnel" if mode == "hybrid" else "router", 6: "direct"}
    with cluster.watched("n1", "eth1") as frames, cluster.streams(PAIRS) as streams:
        pass
    assert streams.broken == {}
    four, six = (of_pods(frames, (A.addresses[family], C.addresses[family])) for family in FAMILIES)
    assert macs(six) == {(N1.mac, N2.mac)}
    assert not [one for one in six if one.inner]
    if mode == "hybrid":
        assert all(one.inner for one in four)
    else:
        assert macs(four) == {(N1.mac, ROUTER_MACS[0])}
    assert four
