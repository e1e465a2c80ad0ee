"""Datagrams in fragments, to services and back (B57).

Where a connection is known its fragments are put together by Open vSwitch's connection tracking. A connection that
begins with a fragment has no ports yet for a service to be found by: that datagram is lost, and never goes astray.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import UDP, fragment
from scapy.packet import Packet, Raw

from lab.traffic import Probe
from tests.ovs.cluster import Cluster
from tests.ovs.world import FAMILIES, NODES, PLACES
from tests.services import frames
from tests.services.asking import AT_N1, AT_N2, BALANCER, CLUSTER, gone
from tests.services.world import Door, Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("e"))
TARGET = 7070
SCRIPT = str(Path(__file__).with_name("sizes.py"))


@pytest.fixture
def mirrored(cluster: Cluster) -> Iterator[Cluster]:
    """What is behind the service answers with as many bytes as it was asked with."""
    process = cluster.lab.popen("e", sys.executable, "-IS", SCRIPT, "serve", str(TARGET))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    made = CASE.objects()
    for one in made:
        if one["kind"] == "EndpointSlice" and "-udp-" in one["metadata"]["name"]:
            one["ports"][0]["port"] = TARGET
    cluster.put(*made)
    yield cluster
    gone(cluster, CASE)
    cluster.lab.stop(process)


def sizes(cluster: Cluster, client: str, door: Door, family: int, *asked: int) -> list[int]:
    target = CASE.address(door, family), str(CASE.port(door, "udp"))
    words = (sys.executable, "-IS", SCRIPT, "ask", *target, *map(str, asked))
    return [int(line) for line in cluster.lab.run(client, *words, timeout=60).stdout.split()]


@pytest.mark.parametrize("client", ["a", "n2", "outside", "remote"])
def test_b57_large_datagrams_of_a_known_connection_pass_both_ways(mirrored: Cluster, client: str) -> None:
    for door in (CLUSTER, BALANCER, AT_N1, AT_N2):
        if door.node == client:
            continue
        for family in FAMILIES:
            asked = (10, 3000, 4200, 20)
            assert tuple(sizes(mirrored, client, door, family, *asked)) == asked, (door, family)


def pieces(client: str, door: Door, source_port: int) -> list[Packet]:
    whole = frames.packet(
        client, CASE.address(door, 4), UDP(sport=source_port, dport=CASE.port(door, "udp")) / Raw(b"y" * 3000), id=77
    )
    return list(fragment(whole, 1400))


@pytest.mark.parametrize("door", [CLUSTER, AT_N1])
def test_b57_fragments_that_come_in_reverse_are_translated_like_the_first(mirrored: Cluster, door: Door) -> None:
    for client, port in (("a", 46001), ("outside", 46002)):
        first = frames.packet(
            client, CASE.address(door, 4), UDP(sport=port, dport=CASE.port(door, "udp")) / Raw(b"first")
        )
        with mirrored.watched("e", "eth0", "ip proto 17 and dst host 10.10.2.11") as seen:
            mirrored.send(client, [first], frames.device(client))
            mirrored.wait(lambda: len(seen.now) >= 1, "the first datagram")
            for order in (1, -1):
                mirrored.send(client, pieces(client, door, port)[::order], frames.device(client))
            mirrored.wait(lambda: len(seen.now) >= 7, "the fragments")
        assert len({frame.source for frame in seen}) == 1
        assert len(seen) == 7


@pytest.mark.parametrize("door", [CLUSTER, BALANCER, AT_N1])
def test_b57_a_connection_that_begins_with_a_fragment_goes_nowhere_else(mirrored: Cluster, door: Door) -> None:
    """It is lost: neither the endpoint nor another node gets a packet that is not translated."""
    for client in ("a", "outside"):
        with (
            mirrored.watched("n2", "eth1", f"host {CASE.address(door, 4)}") as on_wire,
            mirrored.watched("e", "eth0", "ip and not tcp") as at_endpoint,
        ):
            assert sizes(mirrored, client, door, 4, 3000) in ([0], [3000])
        assert [frame for frame in on_wire if frame.kind != "icmp"] == []
        assert {frame.destination for frame in at_endpoint} <= {*PLACES["e"].addresses.values()} | {
            frame.destination for frame in at_endpoint if frame.source == PLACES["e"].addresses[4]
        }


def test_b57_fragments_for_the_node_itself_reach_its_host(mirrored: Cluster) -> None:
    for client in ("a", "c", "n2", "outside", "remote"):
        wishes = [Probe("udp", at, 5353, size=4000, timeout=2, tries=4) for at in NODES["n1"].addresses.values()]
        assert [answer.names for answer in mirrored.lab.probe(client, wishes)] == [("n1",), ("n1",)], client
