"""A pod speaks only for itself (B61), its neighbours stay known (B62), and frames for others are left alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dhcp6 import DHCP6_Advertise
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptPrefixInfo,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether

from pipelines.addresses import link_local, parse_mac
from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.world import NODES

pytestmark = pytest.mark.ovs

A_MAC, B_MAC, GATEWAY_MAC = "0a:58:0a:0a:01:0a", "0a:58:0a:0a:01:0b", "0a:58:0a:0a:01:01"
A4, B4, G4 = "10.10.1.10", "10.10.1.11", "10.10.1.1"
A6, B6, G6 = "fd00:10:1::10", "fd00:10:1::11", "fd00:10:1::1"
A_LOCAL, G_LOCAL = str(link_local(parse_mac(A_MAC))), str(link_local(parse_mac(GATEWAY_MAC)))
EVERYBODY, ALL_NODES = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"


def to(mac: str, source: str = A_MAC) -> Any:
    return Ether(src=source, dst=mac)


def na(target: str, mac: str, source: str = A6) -> Any:
    return (
        IPv6(src=source, dst=B6, hlim=255) / ICMPv6ND_NA(tgt=target, R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac)
    )


FORBIDDEN: dict[str, Any] = {
    "ARP reply that claims another pod's address": to(EVERYBODY) / ARP(op=2, hwsrc=A_MAC, psrc=B4, pdst=G4),
    "ARP with another sender MAC": to(EVERYBODY) / ARP(op=1, hwsrc=B_MAC, psrc=A4, pdst=G4),
    "gratuitous ARP for the gateway": to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc=G4, pdst=G4),
    "gratuitous ARP reply for the gateway": to(EVERYBODY) / ARP(op=2, hwsrc=A_MAC, psrc=G4, pdst=G4),
    "ARP probe from another MAC": to(EVERYBODY, B_MAC) / ARP(op=1, hwsrc=B_MAC, psrc=A4, pdst=G4),
    "advertisement of another pod's address": to(B_MAC) / na(G6, A_MAC),
    "advertisement of the gateway's link-local address": to(B_MAC) / na(G_LOCAL, A_MAC, A_LOCAL),
    "advertisement of the own address with another MAC": to(B_MAC) / na(A6, B_MAC),
    "advertisement from another address": to(B_MAC) / na(A6, A_MAC, G6),
    "solicitation from another pod's address": to(GATEWAY_MAC)
    / IPv6(src=B6, dst=G6, hlim=255)
    / ICMPv6ND_NS(tgt=G6)
    / ICMPv6NDOptSrcLLAddr(lladdr=A_MAC),
    "solicitation with another MAC": to(GATEWAY_MAC)
    / IPv6(src=A6, dst=G6, hlim=255)
    / ICMPv6ND_NS(tgt=G6)
    / ICMPv6NDOptSrcLLAddr(lladdr=B_MAC),
    "IPv4 from another pod's address": to(GATEWAY_MAC) / IP(src=B4, dst="10.10.2.10") / UDP(sport=9, dport=5353) / b"x",
    "IPv4 from the node's address": to(GATEWAY_MAC) / IP(src="192.168.77.101", dst=B4) / UDP(sport=9, dport=9) / b"x",
    "IPv4 from the SNAT address": to(GATEWAY_MAC) / IP(src="10.10.1.2", dst=B4) / UDP(sport=9, dport=9) / b"x",
    "IPv4 from the virtual address": to(B_MAC) / IP(src="169.254.0.253", dst=B4) / UDP(sport=9, dport=9) / b"x",
    "IPv6 from another pod's address": to(GATEWAY_MAC) / IPv6(src=B6, dst="fd00:10:2::10") / UDP(sport=9, dport=9),
    "own address, another MAC": to(GATEWAY_MAC, B_MAC) / IP(src=A4, dst=B4) / UDP(sport=9, dport=9) / b"x",
    "router advertisement": to(ALL_NODES)
    / IPv6(src=A_LOCAL, dst="ff02::1", hlim=255)
    / ICMPv6ND_RA()
    / ICMPv6NDOptPrefixInfo(prefix="fd00:bad::", prefixlen=64),
    "router advertisement to one pod": to(B_MAC) / IPv6(src=A_LOCAL, dst=B6, hlim=255) / ICMPv6ND_RA(),
    "redirect": to(B_MAC) / IPv6(src=A_LOCAL, dst=B6, hlim=255) / ICMPv6ND_Redirect(tgt=A_LOCAL, dst="fd00:203::9"),
    "DHCP offer": to(B_MAC)
    / IP(src=A4, dst=B4)
    / UDP(sport=67, dport=68)
    / BOOTP(op=2, yiaddr=B4)
    / DHCP(options=[("message-type", "offer"), "end"]),
    "DHCPv6 advertisement": to(B_MAC) / IPv6(src=A6, dst=B6) / UDP(sport=547, dport=546) / DHCP6_Advertise(),
    "IPv4 with a VLAN tag": to(B_MAC) / Dot1Q(vlan=5) / IP(src=A4, dst=B4) / ICMP(),
    "IPv6 with a VLAN tag": to(GATEWAY_MAC) / Dot1Q(vlan=5) / IPv6(src=A6, dst="fd00:10:2::10") / ICMPv6EchoRequest(),
    "ARP with a VLAN tag": to(EVERYBODY) / Dot1Q(vlan=5) / ARP(hwsrc=A_MAC, psrc=A4, pdst=G4),
    "something that is neither ARP nor IP": to(EVERYBODY) / (b"\x00" * 40),
}


def dropped(cluster: Cluster) -> int:
    """Packets that the guard of n1 has dropped."""
    lines = cluster.lab.ofctl("n1", "dump-flows", "br0", "table=5").splitlines()
    return sum(int(line.partition("n_packets=")[2].partition(",")[0]) for line in lines if "actions=drop" in line)


@pytest.fixture
def hushed(cluster: Cluster) -> Iterator[None]:
    """The kernels of pod a and of its node do not ask each other now and then, so what has its MAC is the test's."""
    known = {
        "a": ("eth0", GATEWAY_MAC, (G4, G6, G_LOCAL)),
        "n1": ("gw0", A_MAC, (A4, A6, A_LOCAL)),
    }

    def each(how: str) -> None:
        for place, (device, mac, addresses) in known.items():
            words = [f"ip neigh replace {at} lladdr {mac} dev {device} nud {how}" for at in addresses]
            cluster.lab.run(place, "sh", "-ec", "\n".join(words))

    each("permanent")
    cluster.switched("n1")
    yield
    each("stale")


@pytest.mark.usefixtures("hushed")
@pytest.mark.parametrize("frame", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_pod_cannot_send(cluster: Cluster, frame: Any) -> None:
    """B61: dropped in the guard's table, where it is counted, and seen nowhere."""
    before = dropped(cluster)
    passed = cluster.packets("n1", "table=10") + cluster.packets("n1", "table=12") + cluster.packets("n1", "table=20")
    mark = f"ether src {frame.src}"
    with (
        cluster.watched("b", "eth0", mark) as at_neighbour,
        cluster.watched("n1", "gw0", mark) as at_gateway,
        cluster.watched("n1", "eth1", "vlan") as on_wire,
    ):
        cluster.send("a", [frame])
        cluster.wait(lambda: dropped(cluster) > before, "the guard to count it")
    assert (at_neighbour, at_gateway, on_wire) == ([], [], [])
    after = cluster.packets("n1", "table=10") + cluster.packets("n1", "table=12") + cluster.packets("n1", "table=20")
    assert after - passed < 5, "others may ask meanwhile, but not that much"


LEGITIMATE: dict[str, tuple[Any, str, Callable[[Any], bool]]] = {
    "gratuitous ARP": (
        to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc=A4, hwdst="00:00:00:00:00:00", pdst=G4),
        GATEWAY_MAC,
        lambda answer: answer.kind == "arp" and answer.source == G4,
    ),
    "ARP probe": (
        to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc="0.0.0.0", pdst=G4),
        GATEWAY_MAC,
        lambda answer: answer.kind == "arp" and answer.source == G4,
    ),
    "ARP probe for another pod's address": (
        to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc="0.0.0.0", pdst=B4),
        B_MAC,
        lambda answer: answer.kind == "arp" and answer.source == B4,
    ),
    "ARP for the SNAT address": (
        to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc=A4, pdst="10.10.1.2"),
        GATEWAY_MAC,
        lambda answer: answer.kind == "arp" and answer.source == "10.10.1.2",
    ),
    "solicitation from the link-local address": (
        to("33:33:ff:00:00:01")
        / IPv6(src=A_LOCAL, dst="ff02::1:ff00:1", hlim=255)
        / ICMPv6ND_NS(tgt=G6)
        / ICMPv6NDOptSrcLLAddr(lladdr=A_MAC),
        GATEWAY_MAC,
        lambda answer: answer.ports[0] == 136 and answer.ttl == 255 and answer.destination == A_LOCAL,
    ),
    "solicitation of the SNAT address": (
        to("33:33:ff:00:00:02")
        / IPv6(src=A6, dst="ff02::1:ff00:2", hlim=255)
        / ICMPv6ND_NS(tgt="fd00:10:1::2")
        / ICMPv6NDOptSrcLLAddr(lladdr=A_MAC),
        GATEWAY_MAC,
        lambda answer: answer.ports[0] == 136 and answer.ttl == 255 and answer.source == "fd00:10:1::2",
    ),
    "unreachability probe, without an option": (
        to(GATEWAY_MAC) / IPv6(src=A6, dst=G6, hlim=255) / ICMPv6ND_NS(tgt=G6),
        GATEWAY_MAC,
        lambda answer: answer.ports[0] == 136 and answer.ttl == 255 and answer.destination == A6,
    ),
}


@pytest.mark.parametrize(("frame", "mac", "is_answer"), LEGITIMATE.values(), ids=LEGITIMATE.keys())
def test_pod_is_answered(cluster: Cluster, frame: Any, mac: str, is_answer: Callable[[Any], bool]) -> None:
    """B61, B62: what a pod's kernel sends passes the guard, and the answer comes with the gateway's MAC."""
    with cluster.watched("a", "eth0", f"ether src {mac}") as seen:
        cluster.send("a", [frame])
        cluster.wait(lambda: any(map(is_answer, seen.now)), "the answer")


@pytest.mark.parametrize(
    "frame",
    [
        to("33:33:ff:00:00:10") / IPv6(src="::", dst="ff02::1:ff00:10", hlim=255) / ICMPv6ND_NS(tgt=A6),
        to("33:33:00:00:00:02") / IPv6(src=A_LOCAL, dst="ff02::2", hlim=255) / ICMPv6ND_RS(),
        to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc="0.0.0.0", pdst=A4),
        to(EVERYBODY) / ARP(op=2, hwsrc=A_MAC, psrc=A4, pdst=A4),
    ],
    ids=["detection of its address", "router solicitation", "ARP probe of its own", "ARP announcement"],
)
def test_pod_may_ask_whether_it_is_alone(cluster: Cluster, frame: Any) -> None:
    """B61: passes the guard; nobody answers a probe for the pod's own address."""
    passed = cluster.packets("n1", "table=10") + cluster.packets("n1", "table=12")
    with cluster.watched("a", "eth0", f"ether dst {A_MAC} and (arp or icmp6)") as seen:
        cluster.send("a", [frame])
        cluster.wait(
            lambda: cluster.packets("n1", "table=10") + cluster.packets("n1", "table=12") > passed, "it to pass"
        )
    assert not [answer for answer in seen if answer.source == A4 or (answer.source == A6 and answer.ports[0] == 136)]


NEIGHBOURS = (
    ("a", "eth0", G6),
    ("a", "eth0", B6),
    ("a", "eth0", G4),
    ("a", "eth0", B4),
    ("n1", "gw0", A6),
    ("n1", "gw0", A4),
    ("n1", "br0", NODES["n2"].addresses[6]),
    ("n1", "br0", NODES["n2"].addresses[4]),
    ("n1", "br0", world.router(0, 6)),
    ("n1", "br0", world.router(0, 4)),
)


@pytest.mark.parametrize(("place", "device", "address"), NEIGHBOURS)
def test_neighbour_is_confirmed_again_and_again(cluster: Cluster, place: str, device: str, address: str) -> None:
    """B62: each time a kernel doubts a neighbour it asks it, and only it, and is answered."""
    cluster.lab.run(place, "ping", "-c1", "-W10", address)

    def state() -> str:
        return cluster.lab.run(place, "ip", "neigh", "show", "to", address, "dev", device).stdout.split()[-1]

    for _ in range(3):
        cluster.lab.run(place, "ip", "neigh", "change", address, "dev", device, "nud", "probe")
        cluster.wait(lambda: state() != "PROBE", f"{address} to answer")
        assert state() == "REACHABLE"


@pytest.mark.usefixtures("hushed")
def test_frames_from_a_port_that_no_pod_owns_are_dropped(cluster: Cluster) -> None:
    """B61: also when they look like a pod's."""
    cluster.lab.run("n1", "ip", "link", "add", "stray", "type", "veth", "peer", "name", "far-end")
    try:
        for device in ("stray", "far-end"):
            cluster.lab.run("n1", "ip", "link", "set", device, "up")
        cluster.lab.vsctl("n1", "add-port", "br0", "stray")
        number = cluster.lab.port_number("n1", "stray")
        frames = [
            to(EVERYBODY) / ARP(op=1, hwsrc=A_MAC, psrc=A4, pdst=G4),
            to(B_MAC) / IP(src=A4, dst=B4) / ICMP(),
            to(GATEWAY_MAC) / IPv6(src=A6, dst=G6) / ICMPv6EchoRequest(),
        ]
        before = cluster.packets("n1", "table=0")
        with (
            cluster.watched("b", "eth0", f"ether src {A_MAC}") as at_pod,
            cluster.watched("n1", "gw0", f"ether src {A_MAC}") as at_gateway,
        ):
            cluster.send("n1", frames, "far-end")
            cluster.wait(lambda: cluster.packets("n1", "table=0") >= before + 3, "table 0 to count them")
        assert (at_pod, at_gateway) == ([], [])
        assert not [flow for flow in cluster.flows("n1") if f"in_port={number}," in flow]
    finally:
        cluster.lab.vsctl("n1", "--if-exists", "del-port", "br0", "stray")
        cluster.lab.run("n1", "ip", "link", "del", "stray")


# --- link layer of the segment -------------------------------------------------------------------------------


@pytest.mark.parametrize("mac", [A_MAC, GATEWAY_MAC, "aa:00:00:00:00:99"], ids=["a pod", "the gateway", "nobody here"])
def test_frames_on_the_uplink_for_another_mac_are_not_delivered(cluster: Cluster, mac: str) -> None:
    """A fabric that floods, or an uplink that hears everything, must not reach pods or the host."""
    frames = [
        Ether(src=world.OUTSIDE_MAC, dst=mac) / layer / UDP(sport=4444, dport=5353) / b"x\n"
        for destination in (A4, NODES["n1"].addresses[4])
        for layer in (IP(src="192.168.77.200", dst=destination),)
    ] + [
        Ether(src=world.OUTSIDE_MAC, dst=mac) / IPv6(src="fd00:77::200", dst=A6) / UDP(sport=4444, dport=5353) / b"x\n"
    ]
    with (
        cluster.watched("a", "eth0", "udp port 4444") as at_pod,
        cluster.watched("n1", "br0", "udp port 4444") as at_host,
        cluster.watched("n1", "gw0", "udp port 4444") as at_gateway,
        cluster.watched("n1", "eth1", "udp port 4444") as on_wire,
    ):
        cluster.send("outside", frames)
        cluster.wait(lambda: len(on_wire.now) >= 3, "them to pass the wire")
        cluster.switched("n1")
    assert len(on_wire) == 3
    assert (at_pod, at_host, at_gateway) == ([], [], [])


def test_tagged_frames_pass_between_host_and_uplink_alone(cluster: Cluster) -> None:
    """VLANs are the host's business: both ways, broadcast too, whatever is inside."""
    tagged = [
        Ether(src=NODES["n1"].mac, dst=mac) / Dot1Q(vlan=5) / inner
        for mac in (NODES["n2"].mac, EVERYBODY)
        for inner in (IP(src="172.31.5.1", dst="172.31.5.2") / UDP(sport=7, dport=7), ARP(psrc="172.31.5.1", pdst=A4))
    ]
    with cluster.watched("n2", "br0", "vlan 5") as at_host, cluster.watched("c", "eth0", "vlan") as at_pod:
        cluster.send("n1", tagged, "br0")
        cluster.wait(lambda: len(at_host.now) >= 4, "them to arrive")
    assert [frame.kind for frame in at_host] == ["vlan"] * 4
    assert at_pod == []


def test_multicast_of_a_pod_stays_with_it(cluster: Cluster) -> None:
    frames = [
        Ether(src=A_MAC, dst="01:00:5e:00:00:fb") / IP(src=A4, dst="224.0.0.251") / UDP(sport=5353, dport=5353),
        Ether(src=A_MAC, dst="33:33:00:00:00:fb") / IPv6(src=A6, dst="ff02::fb") / UDP(sport=5353, dport=5353),
        Ether(src=A_MAC, dst=EVERYBODY) / IP(src=A4, dst="255.255.255.255") / UDP(sport=68, dport=67),
    ]
    with (
        cluster.watched("a", "eth0", f"ether src {A_MAC} and udp") as sent,
        cluster.watched("b", "eth0", "udp") as at_neighbour,
        cluster.watched("n1", "eth1", f"ether src {A_MAC}") as on_wire,
    ):
        cluster.send("a", frames)
        cluster.wait(lambda: len(sent.now) >= 3, "them to be sent")
        cluster.switched("n1")
    assert (at_neighbour, on_wire) == ([], [])


def test_hop_limits_run_out_where_they_should(cluster: Cluster) -> None:
    """B08: with one hop left a pod's packet reaches its node and its neighbours, and no other node."""
    for address, hops, received in (
        (B4, "1", True),
        ("192.168.77.101", "1", True),
        ("192.168.77.102", "1", False),
        ("192.168.77.102", "2", True),
        ("10.10.2.10", "2", False),
        ("10.10.2.10", "3", True),
        (B6, "1", True),
        ("fd00:77::102", "1", False),
        ("fd00:77::102", "2", True),
        ("fd00:10:2::10", "2", False),
        ("fd00:10:2::10", "3", True),
    ):
        wait = "-W10" if received else "-W0.4"
        said = cluster.lab.run("a", "ping", "-c1", wait, "-t", hops, address, check=False).stdout
        assert (" 1 received" in said) is received, (address, hops, said)


def test_what_the_host_has_routed_loses_no_hop_in_its_switch(cluster: Cluster) -> None:
    """B08: packets that the host sends by gw0 to a pod of another node, which is the next router."""
    gateway, hops, port = cluster.lab.node("n1").gateway_mac, 5, 4445
    at_gateway = Ether(src=gateway, dst=gateway)
    datagram = UDP(sport=port, dport=9) / b"x"
    frames = [
        at_gateway / IP(src="10.10.1.1", dst="10.10.2.10", ttl=hops) / datagram,
        at_gateway / IPv6(src="fd00:10:1::1", dst="fd00:10:2::10", hlim=hops) / datagram,
    ]
    with (
        cluster.watched("n1", "eth1", f"udp src port {port}") as on_wire,
        cluster.watched("c", "eth0", f"udp src port {port}") as arrived,
    ):

        def all_there() -> bool:
            cluster.send("n1", frames, "gw0")
            return all(
                {frame.source for frame in seen.now} >= {"10.10.1.1", "fd00:10:1::1"} for seen in (on_wire, arrived)
            )

        cluster.wait(all_there, "both to arrive")
    macs = ("aa:00:00:00:00:01", "aa:00:00:00:00:02")
    assert {(frame.src, frame.dst, frame.ttl) for frame in on_wire} == {(*macs, hops)}
    assert {frame.ttl for frame in arrived} == {hops - 1}
