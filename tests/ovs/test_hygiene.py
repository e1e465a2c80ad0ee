"""What the link layer may see (item 6): nobody's MAC but a node's, nothing twice, no answers for others, no strangers.

B01, B61. The table (test_table) holds every frame of its runs against the same rules on uplinks; here are also the
frames that pods and hosts get, questions that nobody should answer, and frames that no honest station sends.
"""

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.utils6 import in6_getnsma, in6_getnsmac

from lab.capture import Capture
from lab.netns import LabError
from pipelines import fields as f
from pipelines.addresses import link_local, mac_text, parse_mac
from tests.ovs import wire, world
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, OUTSIDE_MAC, PODS, ROUTER_MACS, SERVICES, VIRTUAL

pytestmark = pytest.mark.ovs

EVERYBODY = "ff:ff:ff:ff:ff:ff"
N1, N2, A, B, C = NODES["n1"], NODES["n2"], PODS["a"], PODS["b"], PODS["c"]
MODES = ("noEncap", "encap")
ECHOES, ECHO = ("icmp", "icmp6"), ((8, 0), (0, 0), (128, 0), (129, 0))
STRAYS = 4444  # a port that nobody uses


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("hygiene") / "manifests"
    with Cluster(unique("thygiene"), directory, {"traffic_mode": MODES[0]}) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=MODES, autouse=True)
def cluster(request: pytest.FixtureRequest, running: Cluster) -> Cluster:
    if running.product.settings["traffic_mode"] != request.param:
        running.product.restart({"traffic_mode": request.param})
    return running.ready()


def mac(cluster: Cluster, place: str) -> str:
    """Of a pod, or of gw0 of a node."""
    if place in NODES:
        return cluster.lab.node(place).gateway_mac
    return cluster.lab.pod(place).station.mac


MIXED = [("a", "c"), ("a", "d"), ("a", "only-e"), ("n1", "c"), ("n1", "only-g"), ("d", "a"), ("c", "every"),
         ("a", "remote"), ("b", "outside"), ("a", "n2"), ("a", "host-3"), ("b", "only-b")]  # fmt: skip
PINGED = ["b", "c", "d", "n1", "n2", "n3", "outside", "remote"]


def test_nobody_sees_a_strange_mac_or_a_frame_twice(cluster: Cluster) -> None:
    """On every uplink, pod and gw0 while everything talks to everything."""
    uplinks = [(node, "eth1") for node in NODES]
    insides = [(pod, "eth0") for pod in ("a", "b", "c", "d")] + [("n1", "gw0"), ("n3", "gw0")]
    captures = {at: cluster.lab.capture(*at) for at in (*uplinks, *insides)}
    with cluster.streams(MIXED):
        places = {**PODS, **NODES, **OUTSIDE}
        targets = [ip for name in PINGED for ip in places[name].addresses.values()]
        cluster.echoes({"a": targets, "n2": [ip for ip in targets if ip not in N2.addresses.values()]})
    for capture in captures.values():
        capture.stop()
    frames = {at: wire.read(capture.path) for at, capture in captures.items()}
    problems = [f"{place}: {problem}" for (place, _), capture in captures.items() for problem in doubled(capture)]
    for node, device in uplinks:
        problems += strangers(node, frames[node, device])
    for place, device in insides:
        home = place if place in NODES else PODS[place].node
        inside = {mac(cluster, home), *(mac(cluster, pod.name) for pod in PODS.values() if pod.node == home)}
        problems += [f"{place}: {frame}" for frame in frames[place, device] if frame.src not in inside]
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:20])
    proof = [("n1", "eth1"), ("n2", "eth1"), ("n3", "eth1"), ("a", "eth0"), ("c", "eth0"), ("d", "eth0")]
    assert all(len(frames[at]) > 10 for at in proof), "too little passed to prove anything"


def strangers(node: str, frames: list[Frame]) -> list[str]:
    """Frames on an uplink from a MAC that no station has, and neighbour messages about what is no station's."""
    segment = NODES[node].segment
    known = {other.mac for other in NODES.values() if other.segment == segment} | set(ROUTER_MACS)
    known |= {OUTSIDE_MAC} if segment == 0 else set()
    inner = ("10.10.", "fd00:10:")
    return [
        f"{node}: {frame}"
        for frame in frames
        if frame.src not in known
        or (frame.kind == "arp" and (frame.source.startswith(inner) or frame.destination.startswith(inner)))
        or (frame.kind == "icmp6" and frame.ports[0] in (135, 136) and frame.source.startswith(inner))
    ]


def doubled(capture: Capture) -> list[str]:
    """Each echo request and reply differs from all others, by its number if not by its identifier."""
    echoes = Counter(
        data
        for data in wire.records(capture.path)
        if wire.frame(data).kind in ECHOES and wire.frame(data).ports in ECHO
    )
    return [f"{count} times: {wire.frame(data)}" for data, count in echoes.items() if count > 1]


# --- questions ----------------------------------------------------------------------------------------------


def question(asked: str, own: str, sender: dict[int, str]) -> Any:
    if ":" not in asked:
        return Ether(src=own, dst=EVERYBODY) / ARP(op=1, hwsrc=own, psrc=sender[4], pdst=asked)
    group = in6_getnsma(socket.inet_pton(socket.AF_INET6, asked))
    return (
        Ether(src=own, dst=in6_getnsmac(group))
        / IPv6(src=sender[6], dst=socket.inet_ntop(socket.AF_INET6, group), hlim=255)
        / ICMPv6ND_NS(tgt=asked)
        / ICMPv6NDOptSrcLLAddr(lladdr=own)
    )


def answered(
    cluster: Cluster, place: str, device: str, own: str, sender: dict[int, str], due: dict[str, str]
) -> dict[str, str]:
    """Who says to have an address, to somebody with this MAC and these addresses; "" when nobody does."""
    frames = [bytes(question(asked, own, sender)) for asked in due]
    capture = cluster.lab.capture(place, device, f"ether dst {own} and (arp or icmp6)")

    def heard() -> dict[str, str]:
        macs: dict[str, set[str]] = {asked: set() for asked in due}
        for frame in wire.read(capture.path):
            if frame.source in macs and (frame.kind == "arp" or frame.ports[0] == 136):
                macs[frame.source].add(frame.src)
        return {asked: " ".join(sorted(found)) for asked, found in macs.items()}

    def asked_again() -> bool:
        cluster.lab.send_frames(place, device, frames)
        time.sleep(0.2)  # also for answers that nobody should give
        found = heard()
        return all(found[asked] for asked, one in due.items() if one)

    with contextlib.suppress(LabError):  # what is missing says more
        cluster.wait(asked_again, "answers", 5)
    capture.stop()
    return heard()


def every_address() -> list[str]:
    """One of each kind, in both families."""
    found: list[str] = []
    for family in FAMILIES:
        found += [place.addresses[family] for place in (A, B, C, PODS["d"], N1, N2, NODES["n3"])]
        found += [OUTSIDE["outside"].addresses[family], OUTSIDE["remote"].addresses[family], world.router(0, family)]
        found += [of(node, family) for of in (world.gateway, world.snat) for node in ("n1", "n2")]
        found += [SERVICES["only-b"].addresses[family], SERVICES["none"].addresses[family], VIRTUAL[family]]
        found.append({4: "10.10.1.99", 6: "fd00:10:1::99"}[family])
    return found


def test_pods_are_answered_for_their_own_node_alone(cluster: Cluster) -> None:
    """By who has the address; and for the SNAT address, which nobody has, with gw0's MAC."""
    gateway = mac(cluster, "n1")
    due = dict.fromkeys(every_address(), "")
    for family in FAMILIES:
        due[B.addresses[family]] = mac(cluster, "b")
        due |= dict.fromkeys((world.gateway("n1", family), world.snat("n1", family)), gateway)
        del due[A.addresses[family]]
    due[N1.addresses[4]] = gateway  # Linux answers on every link for all IPv4 addresses that it has
    assert answered(cluster, "a", "eth0", mac(cluster, "a"), A.addresses, due) == due


def test_the_host_is_answered_on_gw0_for_its_pods_alone(cluster: Cluster) -> None:
    own = mac(cluster, "n1")
    due = dict.fromkeys(every_address(), "")
    for family in FAMILIES:
        due |= {A.addresses[family]: mac(cluster, "a"), B.addresses[family]: mac(cluster, "b"),
                world.snat("n1", family): own}  # fmt: skip
    sender = {family: world.gateway("n1", family) for family in FAMILIES}
    assert answered(cluster, "n1", "gw0", own, sender, due) == due


def test_nobody_on_the_segment_is_answered_for_what_is_behind_a_node(cluster: Cluster) -> None:
    """No proxy: neither for pods nor for SNAT, virtual and service addresses.

    For the gateway's IPv4 address the host's own kernel answers, as it does on every link.
    """
    due = dict.fromkeys(every_address(), "")
    for family in FAMILIES:
        due |= {N1.addresses[family]: N1.mac, N2.addresses[family]: N2.mac, world.router(0, family): ROUTER_MACS[0]}
        del due[OUTSIDE["outside"].addresses[family]]
    due |= {world.gateway("n1", 4): N1.mac, world.gateway("n2", 4): N2.mac, "203.0.113.9": ""}
    sender = OUTSIDE["outside"].addresses
    assert answered(cluster, "outside", "eth0", OUTSIDE_MAC, sender, due) == due


# --- frames that no honest station sends ---------------------------------------------------------------------


def nothing_comes_of(cluster: Cluster, frames: list[Any], expression: str) -> None:
    """Sent by somebody on the segment: seen on the uplink of n1 as often as they were sent, and nowhere else."""
    with (
        cluster.watched("a", "eth0", expression) as at_pod,
        cluster.watched("b", "eth0", expression) as at_neighbour,
        cluster.watched("n1", "gw0", expression) as at_gateway,
        cluster.watched("n1", "br0", expression) as at_host,
        cluster.watched("n1", "eth1", f"({expression}) and ether src {N1.mac}") as re_emitted,
    ):
        before = cluster.packets("n1", "table=0")
        cluster.send("outside", frames)
        cluster.wait(lambda: cluster.packets("n1", "table=0") >= before + len(frames), "them to arrive")
    assert (at_pod, at_neighbour, at_gateway, at_host, re_emitted) == ([], [], [], [], [])


def test_flooded_frames_for_others_are_left_alone(cluster: Cluster) -> None:
    """Unknown unicast of the fabric, for whatever address the node could route or translate."""
    addresses = [*A.addresses.values(), *C.addresses.values(), *SERVICES["only-b"].addresses.values(),
                 *N1.addresses.values(), world.snat("n1", 4), world.gateway("n1", 4), VIRTUAL[4]]  # fmt: skip
    packets = [IPv6(src="fd00:77::200", dst=ip) if ":" in ip else IP(src="192.168.77.200", dst=ip) for ip in addresses]
    macs = (mac(cluster, "a"), mac(cluster, "n1"), "aa:00:00:00:00:99")
    udp = UDP(sport=STRAYS, dport=5353) / b"x"
    frames = [Ether(src=OUTSIDE_MAC, dst=to) / packet / udp for to in macs for packet in packets]
    nothing_comes_of(cluster, frames, f"udp src port {STRAYS}")


def by_tunnel(source: str, inner: Any) -> Any:
    """Geneve to n1, as if a node with this address had sent it."""
    outer = Ether(src=OUTSIDE_MAC, dst=N1.mac) / IP(src=source, dst=N1.addresses[4])
    return outer / UDP(sport=50000, dport=6081, chksum=0) / GENEVE(vni=0, proto=0x6558) / inner


def inside(source: str = C.addresses[4], destination: str = A.addresses[4]) -> Any:
    return IP(src=source, dst=destination) / UDP(sport=STRAYS, dport=5353) / b"x"


def test_a_tunnel_carries_only_packets_of_nodes(cluster: Cluster) -> None:
    """Not from a stranger; and from a node's address neither tags nor neighbour discovery; nor anything at all
    where no tunnels are used. What a node would send arrives."""
    ether = Ether(src=mac(cluster, "n2"), dst=mac_text(f.TUNNEL_MAC))
    own = link_local(parse_mac(mac(cluster, "n2")))
    advertised = IPv6(src=str(own), dst=A.addresses[6], hlim=255) / ICMPv6ND_NA(tgt=world.gateway("n1", 6))
    refused = [
        by_tunnel("192.168.77.200", ether / inside()),
        by_tunnel("203.0.113.9", ether / inside()),
        by_tunnel(N2.addresses[4], ether / Dot1Q(vlan=5) / inside()),
        by_tunnel(N2.addresses[4], ether / ARP(op=2, psrc=world.gateway("n1", 4), pdst=A.addresses[4])),
        by_tunnel(N2.addresses[4], ether / advertised / ICMPv6NDOptDstLLAddr(lladdr=mac(cluster, "n2"))),
        by_tunnel(N2.addresses[4], Ether(src=mac(cluster, "n2"), dst=EVERYBODY) / (b"\0" * 46)),
    ]
    good = by_tunnel(N2.addresses[4], ether / inside())
    used = cluster.product.settings["traffic_mode"] != "noEncap"
    expression = f"udp src port {STRAYS} or arp src host {world.gateway('n1', 4)} or vlan or (icmp6 and src host {own})"
    with cluster.watched("a", "eth0", f"({expression}) and not ether src {mac(cluster, 'n1')}") as strange:
        nothing_comes_of(cluster, refused, expression)
    assert strange == []
    with cluster.watched("a", "eth0", f"udp src port {STRAYS}") as arrived:
        cluster.send("outside", [good])
        time.sleep(0.3)
    assert len(arrived) == used
