"""The connection table of a switch is full: what is for a service is dropped and counted, never sent as it is."""

import re
from collections.abc import Iterator

import pytest

from lab.traffic import Probe
from tests.ovs.cluster import Cluster, spread
from tests.ovs.world import NODES, PROTOCOLS, SERVICES

pytestmark = pytest.mark.ovs

ONLY_B = SERVICES["only-b"]


@pytest.fixture
def full(cluster: Cluster) -> Iterator[None]:
    """That of n1, with one connection that is there already."""
    most = cluster.lab.appctl("n1", "dpctl/ct-get-maxconns").strip()
    cluster.lab.appctl("n1", "dpctl/flush-conntrack")
    assert spread(cluster.lab.probe("a", [Probe("udp", "10.10.2.10", 5353, timeout=10)])) == {"c"}
    cluster.lab.appctl("n1", "dpctl/ct-set-maxconns", "1")
    yield
    cluster.lab.appctl("n1", "dpctl/ct-set-maxconns", most)
    asked = [Probe(p, ip, 80, timeout=10) for p in PROTOCOLS for ip in ONLY_B.addresses.values()]
    for client in ("a", "n1"):
        assert spread(cluster.lab.probe(client, asked)) == {"b"}, client


def dropped(cluster: Cluster) -> int:
    lines = cluster.lab.ofctl("n1", "dump-flows", "br0", "table=70").splitlines()
    counts = [re.search(r"n_packets=(\d+)", line) for line in lines if "priority=510" in line]
    return sum(int(found[1]) for found in counts if found)


@pytest.mark.parametrize("client", ["a", "n1"])
def test_nothing_leaves_untranslated(cluster: Cluster, full: None, client: str) -> None:
    vips = ONLY_B.addresses.values()
    expression = " or ".join(f"host {ip}" for ip in (*vips, *NODES["n1"].addresses.values()))
    asked = [Probe(p, ip, 80, timeout=1) for p in PROTOCOLS for ip in vips]
    with (
        cluster.watched("b", "eth0", "ip or ip6") as at_pod,
        cluster.watched("n1", "gw0", expression) as at_gateway,
        cluster.watched("n1", "eth1", f"({expression}) and (port 80)") as on_wire,
    ):
        answers = cluster.lab.probe(client, asked)
    assert {answer.error for answer in answers} == {"timeout"}
    assert [frame for frame in (*at_pod, *at_gateway) if frame.destination in vips] == []
    own = NODES["n1"].mac
    assert [frame for frame in on_wire if frame.src == own and frame.destination in vips] == []
    assert dropped(cluster) >= 4
