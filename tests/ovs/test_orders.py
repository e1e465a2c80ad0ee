"""Nodes, their annotations, podCIDRs, pods and switches come in every order, with the controller ending in between.

What is there in the end is the same, and a restart in the middle rewrites nothing.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lab.switch import BRIDGE
from lab.traffic import Probe
from tests.ovs import world
from tests.ovs.cluster import Cluster, spread
from tests.ovs.objects import MAC_ANNOTATION, Object
from tests.ovs.test_transitions import OTHER_MAC, announce
from tests.ovs.world import FAMILIES, NODES, PODS

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("n2_as_it_was")]

SETTINGS: dict[str, Any] = {"mac_sources": ["annotation"]}
ON_N2 = ("c", "e")


@pytest.fixture
def n2_as_it_was(cluster: Cluster, there_and_back: None) -> Iterator[None]:
    """There and back, also for the machine."""
    yield
    if cluster.lab.node("n2").mac != NODES["n2"].mac:
        cluster.lab.set_uplink_mac("n2", NODES["n2"].mac)
        announce(cluster, NODES["n2"].mac)


def restart_writes_nothing(cluster: Cluster) -> None:
    before = cluster.held()
    cluster.product.restart()
    cluster.wait(lambda: cluster.product.status("/readyz") == 200, "the controller")
    cluster.wait(lambda: all(row["state"] in ("READY", "UNCLAIMED") for row in rows(cluster)), "the switches")
    cluster.settle()
    assert cluster.sent() == 0
    assert cluster.held() == before


def rows(cluster: Cluster) -> list[dict[str, Any]]:
    """All switches; none of them is away."""
    found: list[dict[str, Any]] = cluster.product.get("/v1/switches")
    return found if len(found) == len(NODES) else [{"state": "absent"}]


def c_answers(cluster: Cluster) -> None:
    asked = [Probe("tcp", ip, 8080, timeout=2, tries=3) for ip in PODS["c"].addresses.values()]
    for client in ("a", "d", "n1"):
        assert spread(cluster.lab.probe(client, asked)) == {"c"}, client


def without(*notes: str, cidrs: bool = True) -> Object:
    """n2 with some of its annotations missing, or without podCIDRs."""
    node = world.node_object("n2")
    for key in notes:
        del node["metadata"]["annotations"][key]
    if not cidrs:
        node["spec"] = {}
    return node


BARE = without("signalbox.dev/datapath-id", MAC_ANNOTATION, "signalbox.dev/uplink", cidrs=False)
WITH_SWITCH = without(MAC_ANNOTATION, cidrs=False)
WITH_MAC = without("signalbox.dev/datapath-id", cidrs=False)
WITH_CIDRS = without("signalbox.dev/datapath-id", MAC_ANNOTATION)
NODE = world.node_object("n2")
THE_PODS = tuple(map(world.pod_object, ON_N2))

ORDERS: dict[str, tuple[tuple[Object, ...], ...]] = {
    "pods, node": (THE_PODS, (NODE,)),
    "node, pods": ((NODE,), THE_PODS),
    "switch, MAC and podCIDRs, pods": ((BARE,), (WITH_SWITCH,), (NODE,), THE_PODS),
    "podCIDRs, pods, switch and MAC": ((BARE,), (WITH_CIDRS,), THE_PODS, (NODE,)),
    "pods, MAC, podCIDRs and switch": (THE_PODS, (WITH_MAC,), (NODE,)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_node_comes_in_any_order_and_a_restart_after_each_step_writes_nothing(cluster: Cluster, order: str) -> None:
    with cluster.streams([("a", "b"), ("a", "g")]) as streams:
        cluster.manifests.delete("Pod", *ON_N2)
        cluster.manifests.delete("Node", "n2")
        cluster.settle()
        for step in ORDERS[order]:
            restart_writes_nothing(cluster)
            cluster.manifests.put(*step)
            cluster.settle()
    assert streams.broken == {}
    cluster.ready()
    c_answers(cluster)


@pytest.mark.parametrize("first", ["switch", "node"])
def test_switch_connects_before_or_after_its_node_comes(cluster: Cluster, first: str) -> None:
    target = cluster.lab.plan.controller
    nobody = target.rpartition(":")[0] + ":9"
    cluster.lab.vsctl("n2", "set", "controller", BRIDGE, f'target="{nobody}"')
    cluster.manifests.delete("Node", "n2")
    cluster.settle()

    def connect() -> None:
        cluster.lab.vsctl("n2", "set", "controller", BRIDGE, f'target="{target}"')
        cluster.wait(lambda: len(cluster.product.get("/v1/switches")) == len(NODES), "the switch")

    for step in (connect, lambda: cluster.put(NODE)) if first == "switch" else (lambda: cluster.put(NODE), connect):
        step()
    cluster.ready()
    restart_writes_nothing(cluster)
    c_answers(cluster)


def test_node_made_again_with_other_values_while_the_controller_is_away(cluster: Cluster) -> None:
    """B13 with everything at once: another UID, podCIDR, and MAC; the old is gone, and all of it comes back."""
    again = world.node_object("n2", mac=OTHER_MAC)
    again["metadata"]["uid"] = "again"
    again["spec"] = {"podCIDR": "10.10.9.0/24", "podCIDRs": ["10.10.9.0/24", "fd00:10:9::/64"]}
    cluster.product.stop()
    cluster.manifests.delete("Pod", *ON_N2)
    cluster.manifests.put(again)
    cluster.product.start()
    cluster.ready()
    for name in ("n1", "n3"):
        routes = cluster.flows(name, "table=70")
        assert not [flow for flow in routes if "10.10.2.0/24" in flow or "fd00:10:2::/64" in flow], name
        assert any("10.10.9.0/24" in flow for flow in routes), name
    assert any(OTHER_MAC in flow for flow in cluster.flows("n1", "table=70,ip,nw_dst=10.10.9.0/24"))
    restart_writes_nothing(cluster)
    cluster.put(NODE, *THE_PODS)
    c_answers(cluster)


def test_mac_that_two_nodes_claim_is_the_older_ones_and_the_other_is_reached_all_the_same(cluster: Cluster) -> None:
    mac = NODES["n2"].mac
    cluster.put(world.node_object("n4", mac=mac))
    assert any(mac in flow for flow in cluster.flows("n1", "table=70,ip,nw_dst=10.10.2.0/24"))
    assert not [flow for flow in cluster.flows("n1", "table=70,ip,nw_dst=10.10.4.0/24") if mac in flow]
    assert [row for row in cluster.product.get("/v1/problems") if row["object"] == "n4" and mac in str(row)]
    asked = [Probe("tcp", PODS["p"].addresses[4], 8080, timeout=2, tries=3)]
    for client in ("a", "c", "d"):
        assert spread(cluster.lab.probe(client, asked)) == {"p"}, client
    restart_writes_nothing(cluster)
    cluster.put(world.node_object("n4"))


def test_peer_that_is_installed_anew_with_another_mac_and_switch_is_followed(cluster: Cluster) -> None:
    """Datapath id and MAC are new, addresses and podCIDRs as before; the object is late."""

    def install(number: int, mac: str) -> None:
        cluster.lab.vsctl("n2", "set", "bridge", BRIDGE, f"other-config:datapath-id={number:016x}")
        cluster.lab.set_uplink_mac("n2", mac)
        cluster.lab.flush_flows("n2")
        announce(cluster, mac)

    for number, mac in ((0x22, OTHER_MAC), (2, NODES["n2"].mac)):
        install(number, mac)
        node = world.node_object("n2", mac=mac)
        node["metadata"]["annotations"]["signalbox.dev/datapath-id"] = f"{number:016x}"
        cluster.put(node)
        cluster.ready()
        announce(cluster, mac)
        restart_writes_nothing(cluster)
        c_answers(cluster)
        assert spread(
            cluster.lab.probe(
                "c", [Probe("tcp", PODS["a"].addresses[family], 8080, timeout=2, tries=3) for family in FAMILIES]
            )
        ) == {"a"}


def test_several_pod_cidrs_of_a_node_come_in_any_order(cluster: Cluster) -> None:
    """What is routed does not depend on their order, and the first of each family gives the SNAT address."""
    more = ["10.10.12.0/24", "fd00:10:12::/64"]
    own = NODE["spec"]["podCIDRs"]
    found = []
    for cidrs in ([*own, *more], [more[1], *own, more[0]]):
        node = world.node_object("n2")
        node["spec"]["podCIDRs"] = cidrs
        cluster.put(node)
        restart_writes_nothing(cluster)
        found.append(cluster.flows("n1", "table=70"))
        assert sum(any(prefix in flow for flow in found[-1]) for prefix in cidrs) == len(cidrs)
        c_answers(cluster)
    assert found[0] == found[1]
    cluster.put(NODE)
