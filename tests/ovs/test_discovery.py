"""MACs by asking alone, on real switches: peers, next hops, fail-overs, liars, crafted frames and floods."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, ICMPv6Unknown, IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from lab.switch import BRIDGE
from pipelines.ids import NEIGHBOR_METER
from tests.ovs.cluster import Cluster
from tests.ovs.world import FAMILIES, NODES, OUTSIDE_MAC, SEGMENTS, router

pytestmark = pytest.mark.ovs

SETTINGS = {"mac_sources": ["neighbor"]}
ASKED = tuple(name for name in NODES if sum(SEGMENTS[other] == SEGMENTS[name] for other in NODES) > 1)
THROUGH_ROUTER = (("a", "g"), ("d", "c"))
AGED = 60  # seconds in which a next hop that says nothing is found not to answer, and another one to do


def nodes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in cluster.product.get("/v1/nodes")}


def router_macs(cluster: Cluster, segment: int = 0) -> set[str | None]:
    """Those in use on a segment, of all its nodes and both families."""
    return {
        row["mac"]
        for name, node in nodes(cluster).items()
        if SEGMENTS[name] == segment
        for row in node["routers"]
        if row["used"]
    }


def follow(cluster: Cluster, seconds: float = 20) -> None:
    """Waits until every node uses the router that is active now."""
    right = {segment: {cluster.lab.router_macs(segment)[0]} for segment in set(SEGMENTS.values())}
    cluster.wait(
        lambda: all(router_macs(cluster, segment) == macs for segment, macs in right.items()),
        "the active router to be used",
        seconds,
    )


def problems(cluster: Cluster, word: str) -> list[str]:
    return [row["reason"] for row in cluster.product.get("/v1/problems") if word in row["reason"]]


@pytest.fixture(autouse=True)
def known(cluster: Cluster) -> None:
    cluster.wait(lambda: all(nodes(cluster)[name]["mac"] for name in ASKED), "the peers to answer")
    cluster.ready()


@pytest.fixture
def liar(cluster: Cluster) -> Iterator[None]:
    """A host outside that holds the router's addresses beside its own, and answers for them."""
    own = [f"{router(0, 4)}/24", f"{router(0, 6)}/64"]
    for address in own:
        cluster.lab.run("outside", "ip", "address", "add", address, "dev", "eth0", *["nodad"] * (":" in address))
    yield
    for address in own:
        cluster.lab.run("outside", "ip", "address", "delete", address, "dev", "eth0")


def announcements(mac: str = OUTSIDE_MAC, segment: int = 0) -> list[Packet]:
    """What a station says that has (or wants) the router's addresses."""
    ip4, ip6 = router(segment, 4), router(segment, 6)
    everybody = Ether(src=mac, dst="ff:ff:ff:ff:ff:ff")
    advertisement = ICMPv6ND_NA(tgt=ip6, R=1, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac)
    return [
        everybody / ARP(op=1, hwsrc=mac, psrc=ip4, pdst=ip4),
        everybody / ARP(op=2, hwsrc=mac, psrc=ip4, hwdst="ff:ff:ff:ff:ff:ff", pdst=ip4),
        Ether(src=mac, dst="33:33:00:00:00:01") / IPv6(src=ip6, dst="ff02::1", hlim=255) / advertisement,
    ]


def test_peers_of_a_segment_are_found_by_asking_and_reached_straight(cluster: Cluster) -> None:
    for name, node in nodes(cluster).items():
        if name in ASKED:
            assert (node["mac"]["address"], node["mac"]["source"]) == (NODES[name].mac, "neighbor")
            assert node["mac"]["age_seconds"] < 60
        else:
            assert node["mac"] is None, "nobody is there who could ask"
    pairs = [("a", "c"), ("c", "a"), ("a", "p")]
    with cluster.watched("n1", "eth1", "ip and net 10.10.0.0/16") as frames, cluster.streams(pairs) as streams:
        pass
    assert streams.broken == {}
    out = {frame.dst for frame in frames if frame.src == NODES["n1"].mac}
    assert out == {NODES["n2"].mac, NODES["n4"].mac}


def test_next_hops_of_every_segment_are_found(cluster: Cluster) -> None:
    for segment in set(SEGMENTS.values()):
        assert router_macs(cluster, segment) == {cluster.lab.router_macs(segment)[0]}
    for node in nodes(cluster).values():
        assert {row["family"] for row in node["routers"] if row["source"] == "neighbor"} == set(
            NODES[node["name"]].addresses
        )


def test_a_restart_of_the_controller_writes_nothing_and_asks_again(cluster: Cluster) -> None:
    before = cluster.held()
    cluster.product.restart()
    cluster.ready()
    cluster.wait(lambda: all(nodes(cluster)[name]["mac"]["source"] == "neighbor" for name in ASKED), "answers")
    assert cluster.sent() == 0
    assert cluster.held() == before


def test_a_fail_over_that_is_announced_is_followed_in_a_moment(cluster: Cluster) -> None:
    with cluster.streams(THROUGH_ROUTER) as streams:
        time.sleep(0.5)
        began = time.monotonic()
        cluster.lab.fail_over()
        moved = time.monotonic()
        follow(cluster)
        seen = time.monotonic()
        time.sleep(0.5)
    print(
        f"\nmoved in {moved - began:.2f} s, seen {seen - moved:.2f} s later; longest silence {streams.longest:.0f} ms"
    )
    assert seen - moved < 3, "asked at once, not when the old MAC had aged"
    assert not any(stream.breaks for stream in streams.results.values())
    assert problems(cluster, "claim") == []


def test_a_fail_over_that_nobody_announces_is_found_by_asking(cluster: Cluster) -> None:
    began = time.monotonic()
    cluster.lab.fail_over(announce=False)
    follow(cluster, AGED)
    print(f"\nfound after {time.monotonic() - began:.1f} s")


def test_a_liar_who_only_says_so_is_not_believed(cluster: Cluster) -> None:
    right = cluster.lab.router_macs(0)[0]
    with cluster.streams(THROUGH_ROUTER) as streams:
        for _ in range(20):
            cluster.send("outside", announcements())
            assert router_macs(cluster) == {right}
        cluster.wait(lambda: len(problems(cluster, OUTSIDE_MAC)) >= len(FAMILIES), "the conflict to be reported")
    assert streams.broken == {}
    assert all("the first is used" in text for text in problems(cluster, OUTSIDE_MAC))


def test_a_liar_who_also_answers_is_not_believed_while_the_router_does(cluster: Cluster, liar: None) -> None:
    right = cluster.lab.router_macs(0)[0]
    end = time.monotonic() + 3
    while time.monotonic() < end:
        cluster.send("outside", announcements())
        assert router_macs(cluster) == {right}
    assert problems(cluster, f"{right} and {OUTSIDE_MAC} both claim")
    assert problems(cluster, f"{OUTSIDE_MAC} and {right} both claim") == []


def test_crafted_frames_break_nothing_and_what_follows_is_heard(cluster: Cluster) -> None:
    """B64: truncated, with options of length 0, of unknown type, with headers without end, empty, tagged."""
    ip4, ip6 = router(0, 4), router(0, 6)
    to_all, group = Ether(src=OUTSIDE_MAC, dst="ff:ff:ff:ff:ff:ff"), Ether(src=OUTSIDE_MAC, dst="33:33:00:00:00:01")
    straight = Ether(src=OUTSIDE_MAC, dst=NODES["n1"].mac)
    own = NODES["n1"].addresses[6]
    arp = bytes(to_all / ARP(op=2, psrc=ip4, hwsrc="01:00:5e:00:00:01"))
    header = IPv6(src=ip6, dst="ff02::1", hlim=255)
    crafted = [
        arp[:30],
        arp[:41],
        arp,
        bytes(to_all / ARP(op=2, psrc=ip4, hwsrc="00:00:00:00:00:00")),
        bytes(to_all / ARP(op=2, psrc=ip4, hwsrc=NODES["n1"].mac)),
        bytes(to_all / ARP(op=2, hwlen=8, psrc=ip4)),
        bytes(to_all / Dot1Q(vlan=5) / ARP(op=2, psrc=ip4)),
        bytes(to_all / Raw(b"")),
        bytes(group / header / ICMPv6ND_NA(tgt=ip6) / Raw(b"\2\0" + bytes(6))),
        bytes(group / header / ICMPv6ND_NA(tgt=ip6) / Raw(b"\2\7" + bytes(6))),
        bytes(group / header / ICMPv6ND_NA(tgt=ip6, cksum=1)),
        bytes(group / IPv6(src=ip6, dst="ff02::1", hlim=64) / ICMPv6ND_NA(tgt=ip6)),
        bytes(group / header / ICMPv6Unknown(type=200) / Raw(bytes(24))),
        bytes(straight / IPv6(src=ip6, dst=own) / IPv6ExtHdrDestOpt(nh=60) / Raw(bytes([60, 0, *bytes(6)]) * 20)),
        bytes(straight / IP(src=ip4, dst=NODES["n1"].addresses[4]) / UDP() / Raw(b"x")),
    ]
    before = router_macs(cluster)
    for _ in range(3):
        cluster.send("outside", [Raw(frame) for frame in crafted])
    refused = ("no station's MAC; not believed", "the MAC of n1 itself; not believed")
    cluster.wait(lambda: all(problems(cluster, word) for word in refused), "values that nobody can have to be reported")
    assert [row["packet_ins_failed"] for row in cluster.product.get("/v1/switches")] == [0] * len(NODES)
    assert router_macs(cluster) == before
    cluster.lab.fail_over()
    follow(cluster, 10)  # far sooner than anybody is asked again by the clock


def test_a_flood_of_claims_is_held_back_by_the_meter_and_the_old_mac_stays(cluster: Cluster) -> None:
    right = cluster.lab.router_macs(0)[0]
    began = time.monotonic()
    for _ in range(5):
        cluster.send("outside", announcements() * 700)
    elapsed = time.monotonic() - began
    stats = cluster.lab.ofctl("n1", "meter-stats", BRIDGE, f"meter={NEIGHBOR_METER}")
    came, dropped = (int(count) for count in re.findall(r"packet_?(?:in_)?count:(\d+)", stats)[:2])
    print(f"\n{came} packets in {elapsed:.1f} s, {dropped} dropped")
    assert dropped > came / 2
    assert router_macs(cluster) <= {right}
    assert [row["packet_ins_failed"] for row in cluster.product.get("/v1/switches")] == [0] * len(NODES)
    cluster.check_paths()
