"""What a connection to a service keeps for its life, and what of it may outlive its endpoint."""

import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs
from scapy.layers.inet import TCP

from lab.switch import BRIDGE
from lab.traffic import Answer, Probe
from tests.ovs import world
from tests.ovs.cluster import Cluster, Watched
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, PLACES, PODS, PORTS, VIRTUAL
from tests.services import frames
from tests.services.asking import (
    ALL,
    AT_N1,
    AT_N2,
    BALANCER,
    CLUSTER,
    EXTERNAL,
    REFUSED,
    Running,
    by_door,
    gone,
    object_of,
    probes,
    who,
)
from tests.services.world import Door, Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("b"))
CROWD = Path(__file__).with_name("crowd.py")
TOO_MANY = 50
STRAY = 0x38  # flags of TCP that nothing else here has
SECOND_FLUSH = 1.5  # seconds after a change
DATAGRAMS = (CLUSTER, BALANCER, EXTERNAL, AT_N1, AT_N2)
STREAMS = (
    Probe("udp", "", 0, requests=300, pause=0.05, timeout=0.4, tries=8),
    Probe("tcp", "", 0, requests=300, pause=0.05, timeout=8),
)


def test_b06_a_pod_asks_its_own_nodes_port_and_the_endpoint_gets_a_frame_of_its_own(cluster: Cluster) -> None:
    cluster.put(*CASE.objects())
    with cluster.watched("b", "eth0", "tcp port 8080") as at_endpoint, cluster.watched("a", "eth0") as at_client:
        assert who(cluster, "a", CASE, AT_N1, protocols=["tcp"]) == {"b"}
    came = {(frame.dst, frame.destination, frame.ports[1]) for frame in at_endpoint if frame.flags == frames.SYN}
    assert came == {(frames.mac("b"), PODS["b"].addresses[family], 8080) for family in FAMILIES}
    back = {(frame.source, frame.dst) for frame in at_client if frame.ports[0] == CASE.node_port}
    assert back == {(NODES["n1"].addresses[family], frames.mac("a")) for family in FAMILIES}
    gone(cluster, CASE)


@pytest.mark.parametrize("change", ["endpoint", "addresses"])
@pytest.mark.parametrize("client", ["a", "n2", "outside"])
def test_b49_datagrams_of_one_port_follow_a_change_and_established_tcp_stays(
    cluster: Cluster, client: str, change: str
) -> None:
    """B51: by every address; a plain connection to the same endpoint's port is nobody's to forget.

    TCP by an address that is no service's any more may end: only what is in a service range, or comes from a pod, is
    tracked whatever services there are.
    """
    now = CASE._replace(ends=ready("b", "e"))
    cluster.put(*now.objects())
    doors = [door for door in DATAGRAMS if door.node != client]
    wishes = [
        (door, structs.replace(stream, host=now.address(door, family), port=now.port(door, stream.protocol)))
        for door in doors
        for family in FAMILIES
        for stream in STREAMS
        for _ in range(4)
    ]
    plain = Probe(
        "udp", PODS["e"].addresses[4], 5353, source_port=_own_port(client), requests=300, pause=0.05, timeout=1, tries=8
    )
    running = Running(cluster, client, [*(probe for _, probe in wishes), plain])
    targets = {(probe.host, probe.port) for _, probe in wishes}
    cluster.wait(lambda: len(_begun(cluster, targets)) >= len(wishes), "all streams to begin")
    cluster.wait(lambda: _plain(cluster, client), "the plain one to begin")
    time.sleep(1)
    entry = _plain(cluster, client)
    if change == "endpoint":
        cluster.put(*now._replace(ends=ready("b")).objects())
    else:
        cluster.put(object_of(now._replace(number=91)))
    time.sleep(SECOND_FLUSH)
    assert _plain(cluster, client) == entry
    *answers, of_plain = running.answers()
    assert (of_plain.error, set(of_plain.names)) == ("", {"e"})
    problems = [
        f"{door} {probe.protocol} {probe.host}: {said}"
        for (door, probe), answer in zip(wishes, answers, strict=True)
        if change == "endpoint" or probe.protocol == "udp" or client in PODS or door == CLUSTER
        if (said := _after(change, probe, answer))
    ]
    assert not problems, "\n".join(problems)
    for door in doors:
        began = {answer.names[0] for (at, _), answer in zip(wishes, answers, strict=True) if at == door}
        assert began == {"b", "e"}, door
    gone(cluster, now)


def _after(change: str, probe: Probe, answer: Answer) -> str:
    """What is wrong with a stream that began before a change and ended after it."""
    order = list(dict.fromkeys(answer.names))
    if probe.protocol == "tcp":
        return "" if (len(order), answer.error) == (1, "") else f"tcp broke: {order} {answer.error}"
    if change == "endpoint":
        return "" if order in (["b"], ["e", "b"]) and not answer.error else f"{order} {answer.error}"
    return "" if answer.error else "the old address still answers"


ENTRY = re.compile(r"(tcp|udp),orig=\(src=[^,]+,dst=([^,]+),sport=(\d+),dport=(\d+)\)")


def _begun(cluster: Cluster, targets: set[tuple[str, int]]) -> set[tuple[str, ...]]:
    """Connections to these that switches remember."""
    dumps = "\n".join(cluster.lab.appctl(node, "dpctl/dump-conntrack") for node in ("n1", "n2"))
    return {found.groups() for found in ENTRY.finditer(dumps) if (found[2], int(found[4])) in targets}


def _own_port(client: str) -> int:
    return 39000 + list(PLACES).index(client)


def _plain(cluster: Cluster, client: str) -> list[str]:
    node = PLACES[client].node or "n2"
    dump = cluster.lab.appctl(node, "dpctl/dump-conntrack").splitlines()
    return sorted(
        found[0]
        for line in dump
        if (
            found := re.search(
                rf"udp,orig=\(src=[^,]+,dst={PODS['e'].addresses[4]},sport={_own_port(client)},.*?\)", line
            )
        )
    )


def _answered_from(seen: Watched, address: str) -> bool:
    return sum(frame.source == address for frame in seen.now) > 3


@pytest.fixture(params=[False, True], ids=["strict", "liberal"])
def liberal(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[bool]:
    """Whether the datapath of n1 lets any segment of a connection pass."""
    if request.param:
        cluster.lab.appctl("n1", "dpctl/ct-disable-tcp-seq-chk")
    yield request.param
    cluster.lab.appctl("n1", "dpctl/ct-enable-tcp-seq-chk")


@pytest.mark.parametrize("client", ["a", "outside"])
def test_b52_a_segment_outside_the_window_is_not_delivered_as_the_endpoints_own(
    cluster: Cluster, client: str, liberal: bool
) -> None:
    """It is dropped, or where the datapath is liberal translated like any other."""
    cluster.put(*CASE.objects())
    port = _own_port(client) + 100 * (1 + liberal)
    for family in FAMILIES:
        at = PLACES[client].addresses[family]
        node = NODES["n1"].addresses[family]
        kept = Probe("tcp", node, CASE.node_port, source_port=port, requests=60, pause=0.05, timeout=8)
        stray = [
            frames.packet("b", at, TCP(sport=8080, dport=port, flags="PAU", seq=quarter << 30, ack=1) / b"stray\n")
            for quarter in range(4)
        ]
        with cluster.watched(client, "eth0", f"tcp port {port}") as seen:
            running = cluster.lab.start_probes(client, [kept])
            cluster.wait(partial(_answered_from, seen, node), "the connection to be made")
            cluster.send("b", stray)
            (answer,) = running.answers()
        assert (answer.error, set(answer.names)) == ("", {"b"})
        assert {frame.source for frame in seen} == {at, node}
        assert len([frame for frame in seen if frame.flags == STRAY]) == (len(stray) if liberal else 0)
    gone(cluster, CASE)


def test_b53_a_pod_that_is_its_own_endpoint_is_answered_by_every_address(cluster: Cluster) -> None:
    """As its peer it sees another address than its own, and no link-local one."""
    cluster.put(*CASE.objects())
    for door in ALL:
        answers = cluster.lab.probe("b", probes("b", CASE, door))
        seen = {answer.seen_as or answer.error for answer in answers}
        at = door.node or "n1"
        expected = set(VIRTUAL.values()) if at == "n1" else {world.snat(at, family) for family in FAMILIES}
        assert seen == expected, door
    gone(cluster, CASE)


def test_b55_an_endpoint_on_a_host_or_outside_answers_as_the_service(cluster: Cluster) -> None:
    """Translated twice where needed, in zones of their own: on the client's node, on another, beyond the cluster."""
    for place in ("n1", "n2", "n3", "remote", "outside"):
        now = CASE._replace(ends=ready(place))
        cluster.put(*now.objects())
        for client in ("a", "n2", "remote"):
            doors = [door for door in ALL if door.node != client]
            found = by_door(cluster, client, now, *doors)
            assert found == {str(door): {place} for door in doors}, (client, place)
        gone(cluster, now)


@pytest.mark.parametrize("client", ["a", "n2", "outside", "d"])
def test_one_source_port_to_every_address_of_a_service_is_as_many_connections(cluster: Cluster, client: str) -> None:
    """All to one endpoint, and one to the endpoint itself. None gets another one's answer (decision 8).

    What another node has translated and given no other source looks here like one to the endpoint itself, too.
    """
    cluster.put(*CASE.objects())
    doors = [
        CLUSTER,
        BALANCER,
        EXTERNAL,
        *([] if client == "n2" else [AT_N2]),
        AT_N1,
    ]
    port = 43100 + sum(map(ord, client)) % 500
    for family in FAMILIES:
        for order in (1, -1):
            port += 7
            itself = PODS["b"].addresses[family]
            targets = [(CASE.address(door, family), CASE.port(door, "udp")) for door in doors]
            targets = [*targets, (itself, PORTS["udp"].target)][::order]
            answers = cluster.datagrams(client, targets, port)
            assert sorted((host, int(number)) for host, number, *_ in answers) == sorted(targets)
            assert {name for _, _, name, *_ in answers} == {"b"}
            tcp = [(CASE.address(door, family), CASE.port(door, "tcp")) for door in doors]
            tcp = [*tcp, (itself, PORTS["tcp"].target)][::order]
            wishes = [Probe("tcp", *at, source_port=port, requests=25, pause=0.05, timeout=8) for at in tcp]
            for answer in cluster.in_turn(client, wishes):
                assert (answer.error, set(answer.names)) == ("", {"b"})
    gone(cluster, CASE)


CROSSING: tuple[tuple[str, Door], ...] = (
    ("outside", AT_N1),
    ("outside", AT_N2),
    ("outside", BALANCER),
    ("remote", AT_N2),
    ("a", AT_N1),
    ("a", AT_N2),
    ("n2", AT_N1),
    ("n2", BALANCER),
    ("g", AT_N1),
    ("g", CLUSTER),
)


@pytest.mark.parametrize("server", ["g", "n3", "remote", "b"])
def test_packets_before_the_first_answer_are_translated_alike(cluster: Cluster, server: str) -> None:
    """Rule R3: five datagrams at once are one connection, and so are three SYNs."""
    now = CASE._replace(ends=ready(server))
    cluster.put(*now.objects())
    for family in FAMILIES:
        for client, door in CROSSING:
            if client == server:
                continue
            target = now.address(door, family), now.port(door, "udp")
            answers = cluster.datagrams(client, [target] * 5)
            assert len(answers) >= 4, (client, door)
            assert {(host, int(port)) for host, port, *_ in answers} == {target}
            assert {name for _, _, name, *_ in answers} == {server}
            assert len({(seen, port) for *_, seen, port in answers}) == 1, (client, door, answers)
        port = 47000 + list(PLACES).index(server)  # of its own: TCP is not forgotten with its service
        syn = TCP(sport=port, dport=now.node_port, flags="S", seq=5)
        syns = [frames.packet("outside", now.address(AT_N1, family), syn)] * 3
        where = frames.device(server)
        with (
            frames.unanswered(cluster, server),
            cluster.watched(server, where, "tcp port 8080") as arrived,
        ):
            cluster.send("outside", syns)
            cluster.wait(lambda: len(_syns(arrived.now)) >= 3, "the SYNs to arrive")
        assert len({(frame.source, frame.ports) for frame in _syns(arrived)}) == 1, arrived
    gone(cluster, now)


def _syns(seen: list[Frame]) -> list[Frame]:
    return [frame for frame in seen if frame.kind == "tcp" and frame.flags == frames.SYN and frame.ports[1] == 8080]


def test_what_cannot_be_translated_is_dropped_and_counted(cluster: Cluster) -> None:
    """More clients than source ports: the endpoint never sees one of them with an address that is not its due."""
    now = CASE._replace(ends=ready("remote"))
    first, last = 61440, 61695
    cluster.product.restart({"snat_ports": f"{first}-{last}"})
    try:
        cluster.ready()
        cluster.put(*now.objects())
        before = _dropped(cluster)
        with cluster.watched("remote", "eth0", "ip and udp dst port 5353") as seen:
            words = (now.address(AT_N1, 4), str(now.node_port), str(last - first + 1 + TOO_MANY))
            cluster.lab.run("outside", sys.executable, "-IS", str(CROWD), *words)
            cluster.wait(lambda: _dropped(cluster) >= before + TOO_MANY * 0.9, "what is dropped to be counted")
        assert {frame.source for frame in seen} == {NODES["n1"].addresses[4]}
        ports = {frame.ports[0] for frame in seen}  # a client may be given a port a second time by its kernel
        assert len(ports) > 200
        assert first <= min(ports) <= max(ports) <= last
        gone(cluster, now)
    finally:
        cluster.product.restart({"snat_ports": "61440-65535"})
        cluster.ready()


def _dropped(cluster: Cluster) -> int:
    dump = cluster.lab.ofctl("n1", "dump-flows", BRIDGE, "table=110").splitlines()
    drops = [line for line in dump if "-snat" in line and "actions=drop" in line]
    assert drops
    return sum(int(found) for found in re.findall(r"n_packets=(\d+)", " ".join(drops)))


def test_a_type_that_goes_leaves_no_connection_of_datagrams_by_its_addresses(cluster: Cluster) -> None:
    """B49: the NodePort and the load balancer's address are closed while datagrams come."""
    cluster.put(*CASE.objects())
    wishes = [
        Probe("udp", CASE.address(door, 4), CASE.port(door, "udp"), requests=300, pause=0.05, timeout=0.5, tries=4)
        for door in (AT_N1, AT_N2, BALANCER)
    ]
    running = Running(cluster, "outside", wishes)
    time.sleep(1)
    cluster.put(object_of(CASE._replace(type="ClusterIP")))
    assert all(answer.error and len(answer.names) < 150 for answer in running.answers())
    assert who(cluster, "outside", CASE, AT_N1, AT_N2) == REFUSED
    assert who(cluster, "outside", CASE, CLUSTER, EXTERNAL) == {"b"}
    gone(cluster, CASE)
