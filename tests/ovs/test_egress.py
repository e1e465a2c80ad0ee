"""Pods reach what is outside the cluster: by gw0 and the host's masquerade, or straight from the switch (item 4).

What each place sees of the others in every state is the table's business (test_table); here are ports, errors,
connections that live through a change, and what must not happen. Tests share one laboratory and go through its
settings in the order in which they stand: what was known of routers once is read back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.traffic import Probe
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, PODS, PORTS, PROTOCOLS, ROUTER_MACS

pytestmark = pytest.mark.ovs

N1, A, REMOTE, Y = NODES["n1"], PODS["a"], OUTSIDE["remote"], OUTSIDE["outside"]
TRANSLATED = range(61440, 65536)
DIRECT = {"egress": "direct", "snat_ports": "61440-65535", "no_masquerade": [], "ask_routers": True}
TO_REMOTE = " or ".join(f"dst host {ip}" for ip in REMOTE.addresses.values())
UNTRANSLATED = "table=110,reg0=0x300/0xf00,ct_state=-snat"  # NODE_ADDRESS was wanted and is not done


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("egress") / "manifests"
    settings = {**DIRECT, "mac_sources": ["annotation"], "ask_routers": False}
    with Cluster(unique("tegress"), directory, settings) as running:
        yield running.ready()


def become(cluster: Cluster, **settings: Any) -> None:
    wanted = {**DIRECT, **settings}
    if {**cluster.product.settings, **wanted} != cluster.product.settings:
        cluster.product.restart(wanted)
        cluster.ready()


def probes(addresses: dict[int, str], source_port: int = 0, requests: int = 2) -> list[Probe]:
    return [
        Probe(protocol, addresses[family], PORTS[protocol].target, requests=requests, tries=3, timeout=5,
              source_port=source_port and source_port + family)
        for protocol in PROTOCOLS
        for family in FAMILIES
    ]  # fmt: skip


def seen(cluster: Cluster, place: str, wishes: list[Probe]) -> list[tuple[str, int]]:
    """As whom the servers saw the client: address and port."""
    answers = cluster.lab.probe(place, wishes)
    assert [answer.error for answer in answers] == [""] * len(wishes), answers
    return [(words[1], int(words[2])) for words in (answer.answers[0].split() for answer in answers)]


@contextmanager
def on_both(cluster: Cluster, expression: str) -> Iterator[tuple[list[Frame], list[Frame]]]:
    """What passes the uplink of n1, and what passes its gw0."""
    with (
        cluster.watched("n1", "eth1", expression) as by_uplink,
        cluster.watched("n1", "gw0", expression) as by_gateway,
    ):
        yield by_uplink, by_gateway


NODE = [N1.addresses[family] for _ in PROTOCOLS for family in FAMILIES]


def test_without_the_routers_mac_the_host_sends_on(cluster: Cluster) -> None:
    with on_both(cluster, TO_REMOTE) as (by_uplink, by_gateway):
        clients = seen(cluster, "a", probes(REMOTE.addresses))
    assert [ip for ip, _ in clients] == NODE
    assert not [port for _, port in clients if port in TRANSLATED]
    assert {frame.source for frame in by_gateway} == set(A.addresses.values())
    assert {frame.source for frame in by_uplink} == set(N1.addresses.values())


def test_straight_from_the_switch_with_the_nodes_address_and_a_reserved_port(cluster: Cluster) -> None:
    become(cluster)
    with on_both(cluster, TO_REMOTE) as (by_uplink, by_gateway):
        clients = seen(cluster, "a", probes(REMOTE.addresses))
    assert [ip for ip, _ in clients] == NODE
    assert not [port for _, port in clients if port not in TRANSLATED]
    assert by_gateway == []
    assert {(frame.src, frame.dst, frame.ttl) for frame in by_uplink} == {(N1.mac, ROUTER_MACS[0], 63)}


def test_one_source_port_of_two_pods_is_never_mixed_up(cluster: Cluster) -> None:
    """Not with each other, and not with the host's own connection from that port."""
    become(cluster)
    wishes = probes(REMOTE.addresses, source_port=40000, requests=10)
    started = {place: cluster.lab.start_probes(place, wishes) for place in ("a", "b", "n1")}
    found = {place: probing.answers() for place, probing in started.items()}
    clients = []
    for place, answers in found.items():
        for wish, answer in zip(wishes, answers, strict=True):
            assert not answer.error, (place, wish, answer)
            assert len(set(answer.answers)) == 1, (place, wish, answer)
            clients.append((wish.protocol, *answer.answers[0].split()[1:]))
    assert len(set(clients)) == len(clients)
    assert {port for _, _, port in clients if int(port) not in TRANSLATED} == {"40004", "40006"}, "the host's own"


def test_what_is_on_the_segment_and_what_has_no_ports_goes_by_the_host(cluster: Cluster) -> None:
    become(cluster)
    with on_both(cluster, " or ".join(f"dst host {ip}" for ip in Y.addresses.values())) as (by_uplink, by_gateway):
        clients = seen(cluster, "a", probes(Y.addresses))
    assert [ip for ip, _ in clients] == NODE
    assert not [port for _, port in clients if port in TRANSLATED]
    assert {frame.source for frame in by_gateway} == set(A.addresses.values())
    assert {frame.dst for frame in by_uplink if frame.kind in PROTOCOLS} == {"ee:00:00:00:00:c8"}
    with on_both(cluster, f"({TO_REMOTE}) and (icmp or icmp6)") as (_, by_gateway):
        assert all(cluster.echoes({"a": list(REMOTE.addresses.values())})["a"].values())
    assert {frame.source for frame in by_gateway} == set(A.addresses.values())


@pytest.mark.parametrize("egress", ["direct", "gateway"])
def test_pods_are_told_what_became_of_their_datagrams(cluster: Cluster, egress: str) -> None:
    """Nobody listens, too many hops, too large, of connections with another source: errors are translated back."""
    become(cluster, egress=egress)
    router = cluster.lab.plan.active
    cluster.lab.run(router, "ip", "link", "set", "far", "mtu", "1400")
    try:
        targets = list(REMOTE.addresses.values())
        wishes = [(ip, 9, 64, 9, 0) for ip in targets] + [(ip, 9, 2, 9, 0) for ip in targets]
        wishes += [(ip, 9, 64, 1420, 0) for ip in targets]
        due = ["ECONNREFUSED"] * 2 + ["EHOSTUNREACH"] * 2 + ["EMSGSIZE"] * 2
        assert list(zip(wishes, cluster.told("a", *wishes), strict=True)) == list(zip(wishes, due, strict=True))
    finally:
        cluster.lab.run(router, "ip", "link", "set", "far", "mtu", "1500")
        cluster.lab.run("a", "sh", "-c", "ip route flush cache; ip -6 route flush cache")


def test_connections_keep_their_way_when_egress_changes(cluster: Cluster) -> None:
    """Both ways, while they run: what began straight stays straight, what began by the host stays there."""
    become(cluster)
    with cluster.streams([("a", "remote")]) as began_straight:
        become(cluster, egress="gateway")
        with cluster.streams([("a", "remote")]) as began_by_host:
            with cluster.watched("n1", "eth1", TO_REMOTE) as before:
                cluster.wait(lambda: True, "nothing")
            become(cluster)
            with on_both(cluster, TO_REMOTE) as (by_uplink, by_gateway):
                clients = seen(cluster, "a", probes(REMOTE.addresses, requests=4))
    assert not began_straight.broken
    assert not began_by_host.broken
    assert not [port for _, port in clients if port not in TRANSLATED], "new ones are straight again"
    for frames in (before, by_uplink):
        ports = {(frame.kind, frame.source, frame.ports[0] in TRANSLATED) for frame in frames if frame.ports != (0, 0)}
        due = {(protocol, ip, straight) for protocol in PROTOCOLS for ip in NODE for straight in (True, False)}
        assert due >= ports >= {one for one in due if one[0] == "udp"}
    assert {frame.source for frame in by_gateway} == set(A.addresses.values())


def test_prefixes_outside_may_see_the_pods_own_address(cluster: Cluster) -> None:
    """`no_masquerade` of IPv4 alone: straight to the router; IPv6 still with the node's address."""
    become(cluster, no_masquerade=["203.0.113.0/24"])
    with on_both(cluster, TO_REMOTE) as (by_uplink, by_gateway):
        clients = seen(cluster, "a", probes(REMOTE.addresses))
    assert [ip for ip, _ in clients] == [A.addresses[4], N1.addresses[6]] * 2
    assert by_gateway == []
    assert {(frame.src, frame.dst, frame.ttl) for frame in by_uplink} == {(N1.mac, ROUTER_MACS[0], 63)}


def test_when_all_ports_are_taken_packets_are_dropped_and_counted(cluster: Cluster) -> None:
    """Never sent with the pod's own address; and a port that is free again is used again."""
    become(cluster, snat_ports="61440-61695")
    dropped = cluster.packets("n1", UNTRANSLATED)
    target = REMOTE.addresses[4], PORTS["udp"].target
    wishes = [Probe("udp", *target, source_port=30000 + number, timeout=1) for number in range(150)]
    with cluster.watched("n1", "eth1", "udp and src net 10.10.0.0/16") as naked:
        answers = [answer for found in cluster.ask_all({"a": wishes, "b": wishes}).values() for answer in found]
    assert naked == []
    clients = [(words[1], int(words[2])) for words in (answer.answers[0].split() for answer in answers if answer.ok)]
    assert len(set(clients)) == len(clients), "two connections to one server share an address and a port"
    assert {ip for ip, _ in clients} == {N1.addresses[4]}
    assert {port for _, port in clients} <= set(range(61440, 61696))
    assert len(clients) > 100, "few were translated at all"
    assert cluster.packets("n1", UNTRANSLATED) >= dropped + 300 - 256
    cluster.lab.flush_conntrack("n1")
    assert seen(cluster, "a", probes(REMOTE.addresses))
