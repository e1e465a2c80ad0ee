"""A tunnel finds its way though nobody answers for its end: what Open vSwitch asks once may be lost."""

import re

import pytest

from tests.ovs import world
from tests.ovs.cluster import Cluster

pytestmark = pytest.mark.ovs

SETTINGS = {"traffic_mode": "encap", "tunnel": "geneve"}
PAIR = ("n1", "n2")  # on one segment


def known(cluster: Cluster, node: str, address: str) -> list[str]:
    table = cluster.lab.appctl(node, "tnl/neigh/show")
    return re.findall(rf"^{re.escape(address)} +(\S+)", table, re.MULTILINE)


def test_a_tunnel_whose_end_nobody_answers_for_is_used_all_the_same(cluster: Cluster) -> None:
    """Both kernels answer no ARP, and both switches have forgotten; streams go on, so nothing would be asked again."""
    assert world.PODS["a"].node == "n1"
    assert world.PODS["c"].node == "n2"
    with cluster.streams([("a", "c"), ("c", "a")]) as streams:
        cluster.product.stop()
        try:
            for node in PAIR:
                cluster.lab.run(node, "sysctl", "-w", "net.ipv4.conf.all.arp_ignore=8")
            cluster.wait(
                lambda: not any(cached(cluster, node) for node in PAIR), "what was said before to be forgotten"
            )
            for node in PAIR:
                cluster.lab.appctl(node, "tnl/neigh/flush")
            cluster.wait(lambda: silent(cluster), "the tunnel to fail")
            cluster.product.start()
            for node, peer in (PAIR, PAIR[::-1]):
                end, mac = world.NODES[peer].addresses[4], world.NODES[peer].mac
                cluster.wait(lambda: known(cluster, node, end) == [mac], f"{peer} to be known on {node}")  # noqa: B023
            cluster.wait(lambda: not silent(cluster), "the tunnel to work")
        finally:
            for node in PAIR:
                cluster.lab.run(node, "sysctl", "-w", "net.ipv4.conf.all.arp_ignore=0")
    assert not [stream for stream in streams.results.values() if not stream.answered]


def cached(cluster: Cluster, node: str) -> list[str]:
    """Decisions about what peers say of themselves: as long as there is one, Open vSwitch does not listen anew."""
    flows = cluster.lab.appctl(node, "dpctl/dump-flows").splitlines()
    return [line for line in flows if re.search(r"arp\(sip=([^,]+),tip=\1,", line)]


def silent(cluster: Cluster) -> bool:
    target = world.PODS["c"].addresses[4]
    return cluster.lab.run("a", "ping", "-c1", "-W1", target, check=False).returncode != 0
