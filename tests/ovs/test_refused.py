"""What belongs to no service is refused at once and never leaves the node; and who comes twice is one connection."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from lab.traffic import Probe
from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, PODS, PROTOCOLS, SERVICES

pytestmark = pytest.mark.ovs

# What is behind a router goes by the host, where a host's connections are translated.
SETTINGS = {"ask_routers": False}

UNUSED = {4: ("10.96.200.200", "10.96.0.10"), 6: ("fd00:96::ffff", "fd00:96::10")}
CLIENTS = ("a", "v4", "v6", "d", "p", "n1", "n3", "n4")
AT_ONCE_MS = 900.0  # well before TCP would send its first segment again
TRIES = 4
SYN, RST = 0x02, 0x04


@pytest.fixture(scope="module", autouse=True)
def uplinks(cluster: Cluster) -> Iterator[None]:
    """B22: nothing to or from a service range is ever seen on an uplink."""
    ranges = " or ".join(f"net {cidr}" for cidr in world.SERVICE_RANGES)
    captures = {name: cluster.lab.capture(name, "eth1", ranges) for name in NODES}
    yield
    for capture in captures.values():
        capture.stop()
    found = {name: [frame.summary() for frame in capture.frames()][:5] for name, capture in captures.items()}
    assert not any(found.values()), found


def addresses(client: str, family: int) -> tuple[str, ...]:
    return UNUSED[family] if family in world.PLACES[client].addresses else ()


def assert_refused_at_once(cluster: Cluster, wishes: dict[str, list[Probe]]) -> None:
    """Each and always. Who was late may try again: a switch that waits for a processor is late, but not every time."""
    for left in reversed(range(TRIES)):
        late: dict[str, list[Probe]] = {}
        for client, answers in cluster.ask_all(wishes).items():
            for probe, answer in zip(wishes[client], answers, strict=True):
                said = f"{client} → {probe.host} {probe.protocol}: {answer.error or answer.answers}"
                assert answer.error == "ECONNREFUSED", said
                if answer.milliseconds > AT_ONCE_MS:
                    assert left, f"{said} in {answer.milliseconds} ms, again and again"
                    late.setdefault(client, []).append(probe)
        wishes = late


def test_unused_addresses_and_ports_are_refused_at_once(cluster: Cluster) -> None:
    """B22, rule R9: TCP by a reset, UDP by an ICMP error, for pods and for the node's own processes."""
    wishes = {
        client: [
            Probe(protocol, address, 9999, timeout=10)
            for family in FAMILIES
            for address in addresses(client, family)
            for protocol in PROTOCOLS
        ]
        for client in CLIENTS
    }
    assert_refused_at_once(cluster, wishes)


def test_unready_and_missing_endpoints_are_refused_at_once(cluster: Cluster) -> None:
    """B27."""
    wishes = {
        client: [
            Probe(protocol, SERVICES[name].addresses[family], 80, timeout=10)
            for name in ("none", "unready")
            for family in FAMILIES
            if family in world.PLACES[client].addresses
            for protocol in PROTOCOLS
        ]
        for client in CLIENTS
    }
    assert_refused_at_once(cluster, wishes)


@pytest.mark.parametrize("client", ["a", "n1"])
def test_ping_to_a_service_address_dies_and_does_not_loop(cluster: Cluster, client: str) -> None:
    """B22: no answer, and no packet more than was sent passes gw0 and the host."""
    device = "eth0" if client == "a" else "br0"
    for address in (*UNUSED[4], *UNUSED[6]):
        with (
            cluster.watched("n1", "gw0", f"host {address}") as by_gateway,
            cluster.watched(client, device, f"host {address}") as sent,
        ):
            said = cluster.lab.run(client, "ping", "-c2", "-i0.05", "-W0.3", address, check=False).stdout
        assert " 0 received" in said
        assert len(sent) == 2
        assert by_gateway == []


def of_pod(source: str, family: int, destination: str, **fields: object) -> Packet:
    """A TCP segment as the pod would send it."""
    layer = IP if family == 4 else IPv6
    at = world.PLACES[source].addresses[family]
    return _from(source) / layer(src=at, dst=destination) / TCP(**fields)


def _from(source: str) -> Packet:
    if source in PODS:
        number = int(PODS[source].node[1:])
        mac = "0a:58:" + ":".join(f"{int(part):02x}" for part in PODS[source].addresses[4].split("."))
        return Ether(src=mac, dst=f"0a:58:0a:0a:{number:02x}:01")
    return Ether(src=NODES[source].mac, dst=world.ROUTER_MACS[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", ["a", "n1"])
def test_tcp_in_mid_stream_is_reset_and_reaches_no_endpoint(cluster: Cluster, client: str, family: int) -> None:
    """Rule R9: a connection that nobody remembers is not given to a new endpoint."""
    vip = SERVICES["only-b"].addresses[family]
    device = "eth0" if client == "a" else "br0"
    segment = of_pod(client, family, vip, sport=45678, dport=80, flags="PA", seq=77, ack=99) / b"x\n"
    with (
        cluster.watched("b", "eth0", "tcp port 45678") as at_endpoint,
        cluster.watched(client, device, f"tcp and host {vip}") as seen,
    ):
        cluster.send(client, [segment], device)
        cluster.wait(lambda: [frame for frame in seen.now if frame.flags & RST], "the reset")
    resets = [frame for frame in seen if frame.source == vip and frame.flags & RST]
    assert [(frame.destination, frame.ports) for frame in resets] == [
        (world.PLACES[client].addresses[family], (80, 45678))
    ]
    assert at_endpoint == []


@pytest.mark.parametrize("family", FAMILIES)
def test_packets_before_the_first_answer_are_translated_alike(cluster: Cluster, family: int) -> None:
    """Rule R3: five datagrams, and three SYNs, at once: the second is still "new" and must take the same source."""
    vip = SERVICES["only-g"].addresses[family]  # behind the router: by the host, with the SNAT address
    for client, source in (("n1", world.snat("n1", family)), ("a", PODS["a"].addresses[family])):
        answers = cluster.datagrams(client, [(vip, 80)] * 5)
        assert len(answers) == 5
        assert {(host, port) for host, port, *_ in answers} == {(vip, "80")}
        assert {(name, seen) for _, _, name, seen, _ in answers} == {("g", source)}
        assert len({port for *_, port in answers}) == 1, answers
        syns = [of_pod(client, family, vip, sport=47000, dport=80, flags="S", seq=5)] * 3
        with unanswered(cluster, "g"), cluster.watched("g", "eth0", "tcp port 8080") as arrived:
            cluster.send(client, syns, "br0" if client == "n1" else "eth0")
            cluster.wait(lambda: len(arrived.now) >= 3, "the SYNs to arrive")
        assert [frame.flags for frame in arrived] == [SYN] * 3
        assert len({(frame.source, frame.ports) for frame in arrived}) == 1, arrived
        assert arrived[0].source == source


@contextmanager
def unanswered(cluster: Cluster, place: str) -> Iterator[None]:
    """Its kernel does not answer TCP: else the client's, which knows nothing of the connection, would end it."""
    chain = "chain in {\ntype filter hook input priority 0;\nmeta l4proto tcp drop;\n}"
    cluster.lab.run(place, "nft", f"table inet hush {{\n{chain}\n}}")
    yield
    cluster.lab.run(place, "nft", "delete table inet hush")


@pytest.mark.parametrize("client", ["b", "n1"])
def test_hairpin_before_the_first_answer_is_translated_alike(cluster: Cluster, client: str) -> None:
    service = SERVICES["only-b"] if client == "b" else SERVICES["host-1"]
    for family in FAMILIES:
        answers = cluster.datagrams(client, [(service.addresses[family], 80)] * 5)
        assert {(name, seen) for _, _, name, seen, _ in answers} == {(client, world.VIRTUAL[family])}
        assert len(answers) == 5
        assert len({port for *_, port in answers}) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", ["a", "n1", "d", "e"])
@pytest.mark.parametrize("service_first", [True, False])
def test_one_source_port_to_a_service_and_to_its_endpoint_is_two_connections(
    cluster: Cluster, client: str, family: int, service_first: bool
) -> None:
    """Both work, in either order: a plain connection and a translated one never share a reply."""
    vip, endpoint = SERVICES["only-e"].addresses[family], PODS["e"].addresses[family]
    if client == "e":
        vip, endpoint = SERVICES["only-b"].addresses[family], PODS["b"].addresses[family]
    server = "b" if client == "e" else "e"
    port = 50000 + family * 100 + hash((client, service_first)) % 97
    both = [(vip, 80), (endpoint, world.PORTS["udp"].target)]
    both = both if service_first else both[::-1]
    answers = cluster.datagrams(client, both, port)
    assert {(host, int(number)) for host, number, *_ in answers} == set(both)
    assert {name for _, _, name, *_ in answers} == {server}
    given = {int(seen) for *_, seen in answers} | {port}
    for other in given:  # a port that one of them was given is not another's
        found = cluster.datagrams(client, [(endpoint, world.PORTS["udp"].target)], other)
        assert [name for _, _, name, *_ in found] == [server]
    assert len(cluster.datagrams(client, both, port)) == len(both)
    both = [(vip, 80), (endpoint, world.PORTS["tcp"].target)][:: 1 if service_first else -1]
    wishes = [Probe("tcp", *at, source_port=port, requests=12, pause=0.05) for at in both]
    for answer in cluster.in_turn(client, wishes):
        assert (answer.error, set(answer.names)) == ("", {server})


@pytest.mark.parametrize(("family", "kind"), [(4, "icmp"), (6, "icmp6")])
def test_udp_refusals_have_the_right_sender(cluster: Cluster, family: int, kind: str) -> None:
    """The ICMP error comes from the service address and quotes the datagram; the node's kernel is not asked."""
    address = UNUSED[family][0]
    with cluster.watched("a", "eth0", f"{kind} and host {address}") as seen:
        cluster.lab.probe("a", [Probe("udp", address, 7)])
        cluster.wait(lambda: [frame for frame in seen.now if frame.source == address], "the error")
    errors: list[Frame] = [frame for frame in seen if frame.source == address]
    assert [frame.ports for frame in errors] == [(3, 3) if family == 4 else (1, 4)]
    assert errors[0].src == "0a:58:0a:0a:01:01"


def test_datagrams_in_fragments_arrive_or_are_dropped_and_never_go_astray(cluster: Cluster) -> None:
    """Plain ones arrive. Open vSwitch sees no ports in a service's: their connection cannot be begun by one."""
    with cluster.watched("n1", "eth1", "net 10.96.0.0/16 or net fd00:96::/112") as on_wire:
        for client in ("a", "n1", "d"):
            plain = [Probe("udp", address, 5353, size=4000, timeout=10) for address in PODS["c"].addresses.values()]
            to_service = [
                Probe("udp", address, 80, size=4000, timeout=0.5) for address in SERVICES["only-e"].addresses.values()
            ]
            errors = [answer.error for answer in cluster.lab.probe(client, plain + to_service)]
            assert errors == ["", "", "timeout", "timeout"]
    assert on_wire == []
