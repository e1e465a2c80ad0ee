"""SCTP, by crafted packets: the kernels here have no such sockets. Open vSwitch sets the ports beside its NAT (B59).

Its userspace datapath knows an association by its addresses alone. So a client that has one with an endpoint gets no
second one with the same endpoint by another address: each way is tried by itself here.
"""

import re

import pytest
from scapy.layers.sctp import SCTP, SCTPChunkInit, SCTPChunkInitAck
from scapy.packet import Packet

from tests.ovs import wire
from tests.ovs.cluster import Cluster
from tests.ovs.objects import Object
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, PLACES
from tests.services import frames
from tests.services.asking import AT_N1, AT_N2, BALANCER, CLUSTER, who
from tests.services.world import Door, Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("b"))
WAYS = (("a", CLUSTER), ("a", AT_N1), ("outside", AT_N1), ("outside", BALANCER), ("outside", AT_N2))
SEVERAL = (("a", CLUSTER), ("outside", AT_N1), ("n2", BALANCER))
PORT, TARGET, NODE_PORT = 36412, 3868, 30190


def objects_of(service: Service) -> list[Object]:
    """With a third port, of SCTP."""
    made = service.objects()
    made[0]["spec"]["ports"].append(
        {"name": "sctp", "protocol": "SCTP", "port": PORT, "targetPort": TARGET, "nodePort": NODE_PORT}
    )
    for one in service.slices():
        if "-tcp-" in one["metadata"]["name"]:
            one["metadata"]["name"] = one["metadata"]["name"].replace("-tcp-", "-sctp-")
            one["ports"] = [{"name": "sctp", "protocol": "SCTP", "port": TARGET}]
            made.append(one)
    return made


def gone(cluster: Cluster) -> None:
    with cluster.taken():
        for path in list(cluster.manifests.directory.glob("*-case*.yaml")):
            path.unlink()


def asked(client: str, door: Door, family: int, source_port: int) -> Packet:
    number = NODE_PORT if door.node else PORT
    init = SCTP(sport=source_port, dport=number) / SCTPChunkInit(init_tag=7)
    return frames.packet(client, CASE.address(door, family), init)


def ports(data: bytes) -> tuple[int, int]:
    """Source and destination, of an IP frame without options or extensions."""
    at = 34 if data[12:14] == b"\x08\x00" else 54
    return int.from_bytes(data[at : at + 2]), int.from_bytes(data[at + 2 : at + 4])


def sctp_at(cluster: Cluster, place: str, send: list[Packet], sender: str) -> list[tuple[Frame, tuple[int, int]]]:
    """The SCTP frames that a place gets while another one sends."""
    capture = cluster.lab.capture(place, frames.device(place), "ip proto 132 or ip6 proto 132")
    try:
        cluster.send(sender, send, frames.device(sender))
        cluster.wait(lambda: len(list(wire.records(capture.path))) >= len(send), f"{send[0].summary()} at {place}")
    finally:
        capture.stop()
    return [(wire.frame(data), ports(data)) for data in wire.records(capture.path)]


@pytest.mark.parametrize("server", ["b", "e", "n2"])
def test_an_association_is_translated_there_and_back(cluster: Cluster, server: str) -> None:
    """Addresses and ports, by every kind of address, for clients inside and outside."""
    cluster.put(*objects_of(CASE._replace(ends=ready(server))))
    port = 40000
    with frames.unanswered(cluster, *{"a", "outside", "n3", server}):
        for client, door in WAYS:
            for family in FAMILIES:
                port += 1
                for node in NODES:
                    cluster.lab.appctl(node, "dpctl/flush-conntrack")
                sent = [asked(client, door, family, port)]
                came = [one for one in sctp_at(cluster, server, sent, client) if one[1][1] == TARGET]
                assert len(came) == 1, (client, door, family)
                frame, (source_port, _) = came[0]
                assert frame.destination == PLACES[server].addresses[family]
                ack = SCTP(sport=TARGET, dport=source_port) / SCTPChunkInitAck(init_tag=9)
                reply = frames.packet(server, frame.source, ack)
                back = [one for one in sctp_at(cluster, client, [reply], server) if one[0].source != frame.source]
                number = NODE_PORT if door.node else PORT
                of_client = PLACES[client].addresses[family]
                assert {(at.source, at.destination, pair) for at, pair in back if at.destination == of_client} == {
                    (CASE.address(door, family), of_client, (number, port))
                }, (client, door, family)
    gone(cluster)


def test_b59_an_endpoint_that_goes_takes_its_associations_entries_with_it(cluster: Cluster) -> None:
    """The client comes again with the same port; what TCP and UDP have is flushed in the same go."""
    cluster.put(*objects_of(CASE._replace(ends=ready("e"))))
    with frames.unanswered(cluster, "b", "e"):
        for client, door in SEVERAL:
            for family in FAMILIES:
                assert sctp_at(cluster, "e", [asked(client, door, family, 40500)], client)
        assert who(cluster, "outside", CASE._replace(ends=ready("e")), AT_N1, protocols=["udp"]) == {"e"}
        assert entries(cluster, "e")
        cluster.put(*objects_of(CASE))
        cluster.wait(lambda: not entries(cluster, "e"), "the entries to be flushed")
        for client, door in SEVERAL:
            for family in FAMILIES:
                came = sctp_at(cluster, "b", [asked(client, door, family, 40500)], client)
                assert {pair[1] for _, pair in came} == {TARGET}, (door, family)
    gone(cluster)


def entries(cluster: Cluster, endpoint: str) -> list[str]:
    """SCTP and UDP connections of n1 and n2 that services have given to a place."""
    at = set(PLACES[endpoint].addresses.values())
    return [
        line
        for node in ("n1", "n2")
        for line in cluster.lab.appctl(node, "dpctl/dump-conntrack").splitlines()
        if line.startswith(("sctp", "udp")) and (found := re.search(r"dst=([^,)]+).*reply=\(src=([^,]+),", line))
        if found[2] in at and found[1] != found[2]
    ]


@pytest.mark.parametrize("door", [CLUSTER, BALANCER, AT_N1])
def test_b27_an_init_without_endpoint_is_refused_by_an_icmp_error(cluster: Cluster, door: Door) -> None:
    cluster.put(*objects_of(CASE._replace(ends=())))
    for client in ("a", "outside"):
        for family in FAMILIES:
            with cluster.watched(client, "eth0", "icmp or icmp6") as seen:
                cluster.send(client, [asked(client, door, family, 40700)])
                cluster.wait(lambda: [one for one in seen.now if one.ports in ((3, 3), (1, 4))], "an error")
            errors = [frame for frame in seen if frame.ports == ((3, 3) if family == 4 else (1, 4))]
            assert {frame.source for frame in errors} == {CASE.address(door, family)}
    gone(cluster)
