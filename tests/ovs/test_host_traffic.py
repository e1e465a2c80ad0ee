"""In bridged mode the host's own traffic passes as if no switch were there (issue 4, item 5).

Before any controller ever came, with the product running in both kinds of mode, and with its flows left alone for so
long that connections and cached decisions are forgotten.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab.netns import LabError
from lab.traffic import Probe
from tests.ovs import host_frames, wire
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, PLACES, PORTS, PROTOCOLS, SERVICES

pytestmark = pytest.mark.ovs

N1, N2 = NODES["n1"], NODES["n2"]
STATES = ("no controller yet", "noEncap", "noEncap, left alone", "encap", "encap, left alone")
# Hosts that talk all the while, also from one state into the next.
HOSTS = (("n1", "n2"), ("n1", "n3"), ("n2", "n1"), ("n3", "n1"), ("n1", "n4"))
Y4, Y6 = OUTSIDE["outside"].addresses.values()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nobody has ever answered these switches."""
    directory = tmp_path_factory.mktemp("hosttraffic") / "manifests"
    cluster = Cluster(unique("thost"), directory, {"mac_sources": ["annotation"]})
    cluster.lab.up()
    try:
        for place in (*NODES, "a", "c", *OUTSIDE):
            cluster.serve(place)
        for number, (place, device) in enumerate(ENDS):
            cluster.lab.run(place, "sh", "-euc", own_devices(device, number + 1))
        # A cable that was just laid carries nothing for a moment.
        cluster.wait(lambda: all(reached_from(cluster, place) for place in (*NODES, *OUTSIDE)), "all to reach all")
        yield cluster
    finally:
        cluster.lab.down()


# A tunnel of the host's own between n1 and who is outside; its port is not that of ours.
ENDS = (("n1", "br0"), ("outside", "eth0"))
VXLAN, VXLAN_PORT = "172.31.7.", 4790


def own_devices(device: str, number: int) -> str:
    peer = [N1.addresses[4], Y4][number % 2]
    own = [Y4, N1.addresses[4]][number % 2]
    return f"""
        ip link add vx0 type vxlan id 7 local {own} remote {peer} dstport {VXLAN_PORT} dev {device}
        ip address add {VXLAN}{number}/24 dev vx0
        ethtool -K vx0 tx off >/dev/null
        ip link set vx0 up
    """


def reached_from(cluster: Cluster, place: str) -> bool:
    targets = [ip for one in (*NODES.values(), *OUTSIDE.values()) for ip in one.addresses.values()]
    pings = " & ".join(f"ping -c1 -W1 {ip} >/dev/null || echo {ip}" for ip in targets)
    own = PLACES[place].addresses
    missed = cluster.lab.run(place, "sh", "-c", f"{pings} & wait").stdout.split()
    return not [ip for ip in missed if (6 if ":" in ip else 4) in own]


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest, bare: Cluster) -> str:
    wanted: str = request.param
    if wanted == STATES[0]:
        return wanted
    with bare.streams(HOSTS) as streams:
        become(bare, wanted)
    assert not streams.broken, f"on the way to {wanted}: {streams.broken}"
    return wanted


def become(bare: Cluster, wanted: str) -> None:
    mode, _, alone = wanted.partition(", ")
    if bare.product.settings.get("traffic_mode") != mode:
        bare.product.restart({"traffic_mode": mode})
        bare.ready()
    if alone:
        bare.product.stop()
        bare.wait(lambda: not any(map(bare.lab.controller_connected, NODES)), "the switches to notice")
    for node in NODES:
        bare.lab.flush_conntrack(node)
        bare.lab.appctl(node, "revalidator/purge")


def exactly(cluster: Cluster, sender: tuple[str, str], receiver: tuple[str, str], frames: host_frames.Frames) -> None:
    """All of these arrive, none twice, and no bit of them is changed. One that a busy machine lost is sent again."""
    name_of = {bytes(frame): name for name, frame in frames.items()}
    assert len(name_of) == len(frames), "two frames are the same"
    capture = cluster.lab.capture(*receiver)
    sent: Counter[str] = Counter()

    def seen() -> Counter[str]:
        return Counter(name_of[data] for data in wire.records(capture.path) if data in name_of)

    for _ in range(3):
        missing = {data: name for data, name in name_of.items() if not seen()[name]}
        sent.update(missing.values())
        cluster.lab.send_frames(*sender, missing)
        with contextlib.suppress(LabError):  # what is missing says more
            cluster.wait(lambda: len(seen()) == len(frames), "all of them", 2)
    capture.stop()
    arrived = seen()
    assert sorted(set(frames) - set(arrived)) == []
    assert {name: count for name, count in arrived.items() if count > sent[name]} == {}


def test_every_frame_of_the_network_for_the_host_reaches_it_once_and_unchanged(bare: Cluster, state: str) -> None:
    """DHCP, ARP, ND, RA, multicast, VLANs, tunnels, fragments, and what conntrack would call invalid."""
    exactly(bare, ("outside", "eth0"), ("n1", "br0"), host_frames.from_network(N1.mac, N1.addresses))


def test_every_frame_of_the_host_reaches_the_network_once_and_unchanged(bare: Cluster, state: str) -> None:
    exactly(bare, ("n1", "br0"), ("outside", "eth0"), host_frames.from_host(N1.mac, N1.addresses))


def probes(targets: list[str], port_of: Mapping[Any, int], source_port: int = 0) -> list[Probe]:
    return [
        Probe(protocol, address, port_of[protocol], requests=3, timeout=5, tries=3,
              source_port=source_port + number if source_port else 0)
        for number, address in enumerate(targets)
        for protocol in PROTOCOLS
    ]  # fmt: skip


DIRECTLY = {protocol: PORTS[protocol].target for protocol in PROTOCOLS}
THROUGH_SERVICES = {protocol: PORTS[protocol].port for protocol in PROTOCOLS}
PARTNERS = ("n2", "n3", "outside", "remote")


@pytest.mark.parametrize("source_port", [0, 61500], ids=["any port", "a port reserved for translations"])
def test_hosts_and_their_network_talk_both_ways(bare: Cluster, state: str, source_port: int) -> None:
    """SSH-like and datagrams, both families, also after neighbours were forgotten, and with their own addresses."""
    for place in ("n1", *PARTNERS):
        bare.lab.run(place, "sh", "-c", "ip neigh flush all; ip -6 neigh flush all")
    wishes = {"n1": [PLACES[name] for name in PARTNERS], **{name: [N1] for name in PARTNERS}}
    answers = bare.ask_all(
        {
            client: probes([ip for one in servers for ip in one.addresses.values()], DIRECTLY, source_port)
            for client, servers in wishes.items()
        }
    )
    for client, servers in wishes.items():
        due = [(server.name, PLACES[client].addresses[family]) for server in servers for family in FAMILIES]
        got = [(answer.error or answer.names[-1], answer.seen_as) for answer in answers[client]]
        assert got == [one for one in due for _ in PROTOCOLS], client


def test_kubelet_reaches_an_api_server_wherever_it_is(bare: Cluster, state: str) -> None:
    """On another node, in another subnet, on the node itself, outside: by the service and at its endpoint."""
    services = {"host-1": "n1", "host-3": "n3", "near": "outside", "far": "remote"}
    for client in ("n1", "n2"):
        wishes = [
            Probe("tcp", at, port, requests=5, timeout=5)
            for name, endpoint in services.items()
            for family in FAMILIES
            for at, port in ((SERVICES[name].addresses[family], 80), (PLACES[endpoint].addresses[family], 8080))
            if state != STATES[0] or port == 8080
        ]
        due = {(at, port): endpoint for name, endpoint in services.items() for family in FAMILIES for at, port in (
            (SERVICES[name].addresses[family], 80), (PLACES[endpoint].addresses[family], 8080))}  # fmt: skip
        got = {
            (wish.host, wish.port): answer.error or answer.names[-1]
            for wish, answer in zip(wishes, bare.lab.probe(client, wishes), strict=True)
        }
        assert got == {at: name for at, name in due.items() if at in got}, client


def test_a_tunnel_of_the_host_carries_its_packets(bare: Cluster, state: str) -> None:
    """Also packets that fill it."""
    words = "ping", "-c3", "-i0.1", "-W3", "-Mdo", "-s1422", f"{VXLAN}2"
    bare.wait(lambda: " 3 received" in bare.lab.run("n1", *words, check=False).stdout, "three answers in a row")


def test_sockets_of_the_host_are_told_what_became_of_their_datagrams(bare: Cluster, state: str) -> None:
    """Nobody listens, too many hops, too large: on the segment, behind the router, of another node; from any port."""
    router = bare.lab.plan.active
    bare.lab.run(router, "ip", "link", "set", "far", "mtu", "1400")
    try:
        unheard = [
            (PLACES[name].addresses[family], 9, 64, 9, local)
            for name in PARTNERS
            for family in FAMILIES
            for local in (0, 62000)
        ]
        far = [PLACES["remote"].addresses[family] for family in FAMILIES]
        wishes = [*unheard, *((ip, 9, 1, 9, 0) for ip in far), *((ip, 9, 64, 1420, 0) for ip in far)]
        due = ["ECONNREFUSED"] * len(unheard) + ["EHOSTUNREACH"] * 2 + ["EMSGSIZE"] * 2
        assert list(zip(wishes, bare.told("n1", *wishes), strict=True)) == list(zip(wishes, due, strict=True))
    finally:
        bare.lab.run(router, "ip", "link", "set", "far", "mtu", "1500")
        bare.lab.run("n1", "sh", "-c", "ip route flush cache; ip -6 route flush cache")


def test_a_host_that_was_asked_by_another_way_answers_by_its_uplink(bare: Cluster, state: str) -> None:
    """A handshake, a refusal and an echo of which the switch sees the second half only."""
    node, management = N2.addresses[4], bare.lab.node("n1").management
    loose = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo {} >$f; done"
    for name in ("n1", "n2"):
        bare.lab.run(name, "sh", "-c", loose.format(0))
    bare.lab.run("n2", "sh", "-c", f"ip route add {N1.addresses[4]} via {management} dev mgmt0 src {node}")
    try:
        good, refused = bare.lab.probe("n2", [Probe("tcp", N1.addresses[4], 8080, requests=3, timeout=6),
                                              Probe("tcp", N1.addresses[4], 9, timeout=6)])  # fmt: skip
        assert (good.error, good.seen_as) == ("", node)
        assert refused.error == "ECONNREFUSED"
        said = bare.lab.run("n2", "ping", "-c3", "-i0.2", "-W3", N1.addresses[4], check=False).stdout
        assert " 0% packet loss" in said or " 2 received" in said, said
    finally:
        bare.lab.run("n2", "ip", "route", "delete", N1.addresses[4])
        for name in ("n1", "n2"):
            bare.lab.run(name, "sh", "-c", loose.format(1))


def test_a_tunnel_of_our_kind_is_the_hosts_where_we_have_none(bare: Cluster, state: str) -> None:
    """Open vSwitch takes the port for itself as long as it has tun0, so that goes first; with `encap` it is ours."""
    ours = state.startswith("encap")
    if not ours:
        bare.lab.vsctl("n1", "del-port", "br0", "tun0")
    server = bare.lab.echo("n1", "geneve", udp=[6081])
    client = bare.lab.echo("outside", "geneve", udp=[6081])
    try:
        for place, target in (("outside", N1.addresses), ("n1", OUTSIDE["outside"].addresses)):
            wishes = [Probe("udp", ip, 6081, tries=3) for ip in target.values()]
            errors = [answer.error for answer in bare.lab.probe(place, wishes)]
            assert errors == (["timeout", "timeout"] if ours and place == "outside" else ["", ""]), place
    finally:
        bare.lab.stop(server)
        bare.lab.stop(client)
        if not ours:
            bare.lab.vsctl("n1", "add-port", "br0", "tun0", "--", "set", "interface", "tun0", "type=geneve",
                           "options:remote_ip=flow", "options:key=flow", "ofport_request=3")  # fmt: skip
