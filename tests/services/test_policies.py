"""Which endpoints a client may get: traffic policies, hints, source ranges, and what becomes of those that leave."""

from typing import Any

import pytest

from lab.traffic import Probe
from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.objects import Object
from tests.ovs.world import NODES, OUTSIDE, PODS
from tests.services import asking
from tests.services.asking import (
    ALL,
    AT_N1,
    AT_N2,
    AT_N3,
    BALANCER,
    CLUSTER,
    DROPPED,
    EXTERNAL,
    OUTER,
    REFUSED,
    by_door,
    gone,
    object_of,
    probes,
    who,
)
from tests.services.hints import hinted, zoned
from tests.services.world import End, Service, leaving, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("b", "e"))
LOCAL = CASE._replace(external_local=True)


def seen_as(cluster: Cluster, client: str, service: Service, *doors: Any) -> set[str]:
    wishes = [probe for door in doors for probe in probes(client, service, door)]
    return {answer.seen_as or answer.error for answer in cluster.lab.probe(client, wishes)}


def test_b38_the_external_policy_is_turned_to_and_fro(cluster: Cluster) -> None:
    """Each time the right endpoints and the right sources; the groups of before are gone again."""
    own, of_n2 = set(OUTSIDE["outside"].addresses.values()), {world.snat("n2", 4), world.snat("n2", 6)}
    now = CASE._replace(ends=ready("b"))
    cluster.put(*now.objects())
    before = {node: cluster.groups(node) for node in NODES}
    for _ in range(2):
        assert who(cluster, "outside", now, *ALL) == {"b"}
        assert seen_as(cluster, "outside", now, AT_N2) == of_n2
        assert seen_as(cluster, "outside", now, AT_N1) == own
        cluster.put(object_of(now._replace(external_local=True)))
        assert who(cluster, "outside", now, AT_N1, BALANCER, EXTERNAL, CLUSTER) == {"b"}
        assert seen_as(cluster, "outside", now, AT_N1, BALANCER) == own
        assert who(cluster, "outside", now, AT_N2, AT_N3, dropped=True) == DROPPED
        assert who(cluster, "a", now, AT_N1, BALANCER, EXTERNAL) == {"b"}
        cluster.put(object_of(now))
    assert {node: cluster.groups(node) for node in NODES} == before
    gone(cluster, now)


def test_b39_without_an_endpoint_of_its_own_a_node_says_nothing(cluster: Cluster) -> None:
    """Not a reset, no other node's endpoint, nothing translated; where there is one it sees the client itself."""
    now = LOCAL._replace(ends=ready("e"))
    cluster.put(*now.objects())
    with cluster.watched("n1", "eth1", f"port 8080 or (tcp src port {now.node_port}) or icmp or icmp6") as passed:
        assert who(cluster, "outside", now, AT_N1, BALANCER, EXTERNAL, dropped=True) == DROPPED
    assert [frame for frame in passed if frame.kind == "tcp" or frame.ports[0] in (1, 3)] == []
    assert who(cluster, "remote", now, AT_N1, BALANCER, EXTERNAL, dropped=True) == DROPPED
    for client in ("outside", "remote"):
        assert seen_as(cluster, client, now, AT_N2) == set(OUTSIDE[client].addresses.values())
    cluster.put(*now._replace(ends=()).objects())  # without any endpoint it is refused: B27
    assert who(cluster, "outside", now, AT_N1, BALANCER, EXTERNAL, AT_N2) == REFUSED
    gone(cluster, now)


@pytest.mark.parametrize("local", [False, True])
def test_b41_a_pod_asks_another_nodes_port(cluster: Cluster, local: bool) -> None:
    """What answers is the address that was asked, whatever the policy: else the connection would not come about."""
    now = CASE._replace(ends=ready("c", "d"), external_local=local)
    cluster.put(*now.objects())
    for _ in range(2):
        assert who(cluster, "a", now, AT_N2, times=6) == ({"c"} if local else {"c", "d"})
    of_pod = set(PODS["a"].addresses.values())
    assert seen_as(cluster, "a", now, AT_N2) <= of_pod | {world.snat("n2", 4), world.snat("n2", 6)}
    if local:
        assert seen_as(cluster, "a", now, AT_N2) == of_pod
    gone(cluster, now)


def test_b42_the_internal_policy_is_turned_to_and_fro_and_the_service_goes_while_it_holds(cluster: Cluster) -> None:
    now = CASE._replace(ends=ready("e"))
    inner = now._replace(internal_local=True)
    cluster.put(*inner.objects())
    before = cluster.groups("n2")
    for _ in range(2):
        for client in ("a", "n1", "d", "outside"):
            assert who(cluster, client, inner, CLUSTER, dropped=True) == DROPPED, client
            assert who(cluster, client, inner, BALANCER, AT_N2) == {"e"}, client
        for client in ("c", "n2"):
            assert who(cluster, client, inner, CLUSTER) == {"e"}, client
        cluster.put(object_of(now))
        assert who(cluster, "a", now, CLUSTER) == {"e"}
        cluster.put(object_of(inner))
    assert cluster.groups("n2") == before
    gone(cluster, inner)
    assert asking.remains(cluster, *(inner.address(door, family) for door in ALL[:3] for family in (4, 6))) == []


def test_b35_an_endpoint_that_leaves_serves_where_no_ready_one_does(cluster: Cluster) -> None:
    """KEP-1669. With Local on its own node as long as that has no ready one; else only when none is ready anywhere."""
    now = LOCAL._replace(ends=(*leaving("b"), *ready("e")))
    cluster.put(*now.objects())
    assert by_door(cluster, "outside", now, AT_N1, AT_N2, BALANCER, times=4) == {
        "NodePort of n1": {"b"},
        "NodePort of n2": {"e"},
        "LoadBalancer": {"b"},
    }
    assert who(cluster, "a", now, *ALL[:4], times=4) == {"e"}
    now = now._replace(ends=(*leaving("b"), *ready("a", "e")))
    cluster.put(*now.objects())
    assert who(cluster, "outside", now, AT_N1, times=6) == {"a"}
    now = CASE._replace(ends=leaving("b", "e"))
    cluster.put(*now.objects())
    assert who(cluster, "a", now, *OUTER, times=6) == {"b", "e"}
    now = now._replace(ends=(*leaving("b"), End("e", ready=False, terminating=True, serving=False)))
    cluster.put(*now.objects())
    assert who(cluster, "a", now, *OUTER, times=3) == {"b"}
    gone(cluster, now)


def _node(name: str, zone: str) -> Object:
    made = world.node_object(name)
    if zone:
        made["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone}
    return made


def test_b37_hints_choose_by_zone_and_by_node_while_every_endpoint_has_one(cluster: Cluster) -> None:
    now = CASE._replace(ends=ready("b", "e", "g"))
    cluster.put(object_of(now), _node("n1", "z1"), _node("n2", "z2"), _node("n3", "z3"))

    def from_a() -> set[str]:
        return who(cluster, "a", now, CLUSTER, BALANCER, AT_N1, times=6)

    every = {"b", "e", "g"}
    cluster.put(*hinted(now, b=zoned("z2"), e=zoned("z1"), g=zoned("z3")))
    assert from_a() == {"e"}
    assert who(cluster, "c", now, CLUSTER, times=4) == {"b"}
    assert who(cluster, "h", now, CLUSTER, times=10) == every  # its node is in no zone
    assert who(cluster, "outside", now, AT_N1, times=6) == {"e"}
    unready = now._replace(ends=(*ready("b", "g"), End("e", ready=False)))
    cluster.put(*hinted(unready, b=zoned("z2"), e=zoned("z1"), g=zoned("z3")))
    assert from_a() == {"b", "g"}  # for z1 there is only one that is not ready
    cluster.put(*hinted(now, b=zoned("z2"), e=zoned("z1")))
    assert from_a() == every  # one endpoint lacks a hint
    cluster.put(*hinted(now, b=zoned("z2"), e=zoned("z1"), g=zoned("z3")))
    cluster.put(_node("n1", "z3"))
    assert from_a() == {"g"}  # the node has moved
    cluster.put(_node("n1", ""))
    assert from_a() == every
    cluster.put(_node("n1", "z1"))
    by_node = [
        {"forZones": [{"name": zone}], "forNodes": [{"name": node}]} for zone, node in (("z1", "n2"), ("z1", "n1"))
    ]
    cluster.put(*hinted(now, b=by_node[0], e=by_node[1], g={**zoned("z3"), "forNodes": [{"name": "n3"}]}))
    assert from_a() == {"e"}  # of its node, before those of its zone
    local = now._replace(external_local=True)
    cluster.put(object_of(local))
    assert who(cluster, "outside", local, AT_N1, times=4) == {"b"}  # a Local policy overrides all hints
    assert who(cluster, "a", local, CLUSTER, times=6) == {"e"}
    assert who(cluster, "a", local, BALANCER, AT_N1, times=10) == every  # inside, a Local address means any
    cluster.put(*map(world.node_object, ("n1", "n2", "n3")))
    gone(cluster, local)


def test_source_ranges_let_only_their_clients_use_the_load_balancer(cluster: Cluster) -> None:
    """Of the families that they name, for its own addresses alone; everything else of the service stays open."""
    now = CASE._replace(ends=ready("b"))
    only = object_of(now)
    only["spec"]["loadBalancerSourceRanges"] = ["192.168.77.200/32", "fd00:77::200/128", "10.10.1.10/32"]
    cluster.put(only, *now.slices())
    assert who(cluster, "outside", now, *ALL) == {"b"}
    assert who(cluster, "remote", now, BALANCER, dropped=True) == DROPPED
    assert who(cluster, "remote", now, CLUSTER, EXTERNAL, AT_N1) == {"b"}
    assert who(cluster, "a", now, BALANCER, families=[4]) == {"b"}
    assert who(cluster, "a", now, BALANCER, families=[6], dropped=True) == DROPPED
    assert who(cluster, "c", now, BALANCER, dropped=True) == DROPPED
    only["spec"]["loadBalancerSourceRanges"] = ["203.0.113.0/24", "fd00:203::/64"]
    cluster.put(only)
    assert who(cluster, "remote", now, BALANCER) == {"b"}
    assert who(cluster, "outside", now, BALANCER, dropped=True) == DROPPED
    gone(cluster, now)


def test_several_services_share_an_address_and_one_that_comes_later_takes_no_port_of_it(cluster: Cluster) -> None:
    older, other = CASE._replace(ends=ready("b")), Service("later", 91, ready("e"))
    cluster.put(*older.objects())
    shared = object_of(other)
    shared["metadata"]["creationTimestamp"] = "2030-01-01T00:00:00Z"
    shared["status"]["loadBalancer"]["ingress"] = object_of(older)["status"]["loadBalancer"]["ingress"]
    cluster.put(shared, *other.slices())
    assert who(cluster, "outside", older, BALANCER, times=4) == {"b"}
    for port in shared["spec"]["ports"]:
        port["port"] = 81
    cluster.put(shared)
    assert who(cluster, "outside", older, BALANCER, times=4) == {"b"}
    second = [Probe("tcp", older.address(BALANCER, family), 81, timeout=8) for family in (4, 6)]
    assert {asking.result(answer) for answer in cluster.lab.probe("outside", second)} == {"e"}
    gone(cluster, older)
    assert {asking.result(answer) for answer in cluster.lab.probe("outside", second)} == {"e"}
    assert who(cluster, "outside", older, BALANCER) == REFUSED
    gone(cluster, other)
