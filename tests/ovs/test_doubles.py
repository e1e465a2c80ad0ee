"""Two of a kind: a MAC that two nodes are said to have, and two next hops of which one is there."""

from typing import Any

import pytest
from scapy.layers.l2 import ARP, Ether

from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.test_discovery import nodes
from tests.ovs.world import NODES, OUTSIDE_MAC, PODS, SEGMENTS

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

SETTINGS = {"mac_sources": ["annotation"]}
A, P = PODS["a"], PODS["p"]
PATIENCE = 60  # seconds in which a next hop that says nothing is found not to answer


@pytest.mark.parametrize("whose", ["n1", "n2"])
def test_a_node_that_is_said_to_have_anothers_mac_is_reached_by_the_host_and_harms_nobody(
    cluster: Cluster, whose: str
) -> None:
    """n4 is: first that of the node that asks, then that of a third one."""
    pairs = [("a", "p"), ("c", "p"), ("p", "a"), ("a", "c"), ("n1", "p"), ("a", "n4")]
    to_n4 = f"ip and dst host {P.addresses[4]}"
    with cluster.streams(pairs) as streams:
        cluster.put(world.node_object("n4", mac=NODES[whose].mac))
        cluster.revalidated()
        with (
            cluster.watched("n1", "gw0", f"{to_n4} and src host {A.addresses[4]}") as by_gateway,
            cluster.watched("n1", "eth1", to_n4) as wire,
        ):
            cluster.wait(lambda: by_gateway.now and wire.now, "it to go by the host")
        said = [row for row in cluster.product.get("/v1/problems") if row["object"] == "n4"]
        assert [row["reason"] for row in said if NODES[whose].mac in row["reason"] and whose in row["reason"]]
        assert nodes(cluster)["n4"]["mac"] is None
        cluster.put(world.node_object("n4"))
        cluster.revalidated()
        with cluster.watched("n1", "gw0", to_n4) as after:
            cluster.check_paths()
    assert streams.broken == {}
    assert {frame.dst for frame in wire if frame.src == NODES["n1"].mac} == {NODES["n4"].mac}
    assert after == []


def hops(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    """The IPv4 next hops of a node by their address."""
    return {row["address"]: row for row in nodes(cluster)[name]["routers"] if row["family"] == 4}


def used(cluster: Cluster, name: str) -> list[str]:
    return [address for address, row in hops(cluster, name).items() if row["used"]]


def test_of_two_next_hops_the_first_that_answers_is_used(cluster: Cluster) -> None:
    """The preferred one is not there at first, comes, and goes: nobody who is on the way notices."""
    first, second = "192.168.77.9", world.router(0, 4)
    node = world.node_object("n1")
    node["metadata"]["annotations"]["signalbox.dev/gateways"] = f"{first},{second},{world.router(0, 6)}"
    own = (f"{first}/24", "dev", f"seg{SEGMENTS['n1']}")
    active = cluster.lab.plan.active
    claim = Ether(src=OUTSIDE_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=OUTSIDE_MAC, psrc=first, pdst=first)
    with cluster.streams([("a", "g"), ("a", "remote"), ("remote", "a")]) as streams:
        cluster.put(node)
        cluster.wait(lambda: hops(cluster, "n1")[first]["problems"], "the first to be found missing", PATIENCE)
        assert used(cluster, "n1") == [second]
        cluster.lab.run(active, "ip", "address", "add", *own)
        try:
            cluster.wait(lambda: used(cluster, "n1") == [first], "the first to be used", PATIENCE)
            assert hops(cluster, "n1")[first]["mac"] == cluster.lab.router_macs(0)[0]
        finally:
            cluster.lab.run(active, "ip", "address", "delete", *own)
        cluster.send("outside", [claim])  # a reason to ask again at once, and nothing more
        cluster.wait(lambda: used(cluster, "n1") == [second], "the second to be used again", PATIENCE)
        cluster.put(world.node_object("n1"))
        cluster.ready()
    assert streams.broken == {}
