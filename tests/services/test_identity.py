"""What the addresses of a service are, while they come, change and go: types, ports, protocols and families."""

from collections.abc import Iterator

import pytest

from lab.traffic import Probe
from tests.ovs.cluster import Cluster
from tests.ovs.world import NODES
from tests.services import asking
from tests.services.asking import (
    ALL,
    AT_N1,
    AT_N2,
    AT_N3,
    BALANCER,
    CLUSTER,
    EXTERNAL,
    OUTER,
    REFUSED,
    by_door,
    gone,
    object_of,
    who,
)
from tests.services.world import Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("b"))


@pytest.fixture(scope="module", autouse=True)
def uplinks(cluster: Cluster) -> Iterator[None]:
    """B22: on nodes that are nobody's way in, no packet to or from a service range is ever seen on the uplink."""
    ranges = "net 10.96.0.0/16 or net fd00:96::/112"
    captures = {name: cluster.lab.capture(name, "eth1", ranges) for name in ("n2", "n5")}
    yield
    for capture in captures.values():
        capture.stop()
    found = {name: [frame.summary() for frame in capture.frames()][:5] for name, capture in captures.items()}
    assert not any(found.values()), found


def test_b15_two_protocols_of_one_port_number_have_endpoints_of_their_own(cluster: Cluster) -> None:
    """One of them goes, and the other does not notice, by ClusterIP and by NodePort."""
    udp = [one for one in CASE._replace(ends=ready("e")).slices() if "-udp-" in one["metadata"]["name"]]
    cluster.put(*CASE.objects(), *udp)
    for client in ("a", "n3", "remote"):
        assert who(cluster, client, CASE, *ALL[:5], protocols=["tcp"]) == {"b"}
        assert who(cluster, client, CASE, *ALL[:5], protocols=["udp"]) == {"e"}
    only_udp = object_of(CASE)
    only_udp["spec"]["ports"] = [port for port in only_udp["spec"]["ports"] if port["protocol"] == "UDP"]
    cluster.put(only_udp)
    for client in ("a", "n3", "remote"):
        assert who(cluster, client, CASE, *ALL[:5], protocols=["tcp"]) == REFUSED
        assert who(cluster, client, CASE, *ALL[:5], protocols=["udp"]) == {"e"}
    gone(cluster, CASE)


def test_b16_a_second_port_goes_and_the_first_one_keeps_all_addresses(cluster: Cluster) -> None:
    second = {"name": "other", "protocol": "TCP", "port": 443, "targetPort": 8080, "nodePort": 30191}
    both = object_of(CASE)
    both["spec"]["ports"].append(second)
    slices = CASE.slices()
    for one in slices:
        if "-tcp-" in one["metadata"]["name"]:
            one["ports"].append({**one["ports"][0], "name": "other"})
    cluster.put(both, *slices)

    def of_second(client: str) -> set[str]:
        found = [
            Probe("tcp", CASE.address(door, family), 30191 if door.node else 443, timeout=4)
            for door in ALL
            for family in (4, 6)
        ]
        return {asking.result(answer) for answer in cluster.lab.probe(client, found)}

    for client in ("a", "outside"):
        assert (who(cluster, client, CASE, *ALL), of_second(client)) == ({"b"}, {"b"})
    cluster.put(object_of(CASE))
    for client in ("a", "outside"):
        assert (who(cluster, client, CASE, *ALL), of_second(client)) == ({"b"}, REFUSED)
    gone(cluster, CASE)
    assert asking.remains(cluster, *(CASE.address(door, family) for door in ALL[:3] for family in (4, 6))) == []
    assert asking.remains(cluster, "30090", "0x758a") == []


def test_b17_a_port_an_address_and_a_node_port_change_and_the_old_ones_are_unused(cluster: Cluster) -> None:
    cluster.put(*CASE.objects())
    before = {node: (len(cluster.flows(node)), len(cluster.groups(node))) for node in NODES}
    assert who(cluster, "a", CASE, *ALL) == {"b"}
    moved = object_of(CASE)
    for port in moved["spec"]["ports"]:
        port["port"] = 8088
    cluster.put(moved)
    assert by_door(cluster, "a", CASE, CLUSTER, BALANCER, AT_N1, AT_N2) == {
        "ClusterIP": REFUSED,
        "LoadBalancer": REFUSED,
        "NodePort of n1": {"b"},
        "NodePort of n2": {"b"},
    }
    new = [Probe("tcp", CASE.address(door, 4), 8088, timeout=4) for door in (CLUSTER, BALANCER, EXTERNAL)]
    assert {asking.result(answer) for answer in cluster.lab.probe("outside", new)} == {"b"}
    other = CASE._replace(number=91)  # other addresses and another NodePort
    cluster.put(object_of(other))
    for client in ("a", "outside", "n3"):
        assert who(cluster, client, other, *ALL[:5]) == {"b"}
        assert who(cluster, client, CASE, AT_N1, AT_N2, CLUSTER) == REFUSED
    assert {node: (len(cluster.flows(node)), len(cluster.groups(node))) for node in NODES} == before
    assert asking.remains(cluster, *(CASE.address(door, family) for door in ALL[:3] for family in (4, 6))) == []
    gone(cluster, other)


def test_b19_of_each_type_exactly_its_own_addresses_answer(cluster: Cluster) -> None:
    def answering(client: str) -> dict[str, set[str]]:
        found = by_door(cluster, client, CASE, CLUSTER, BALANCER, AT_N1, AT_N2, protocols=["tcp"])
        return {door: names & {"b"} for door, names in found.items() if names & {"b"}}

    for type_ in ("LoadBalancer", "NodePort", "ClusterIP", "ExternalName", "ClusterIP"):
        now = object_of(CASE._replace(type=type_))
        del now["spec"]["externalIPs"]
        if type_ == "ExternalName":
            now["spec"] = {"type": type_, "externalName": "example.org"}
        cluster.put(now, *CASE.slices())
        due = {
            "LoadBalancer": ["ClusterIP", "LoadBalancer", "NodePort of n1", "NodePort of n2"],
            "NodePort": ["ClusterIP", "NodePort of n1", "NodePort of n2"],
            "ClusterIP": ["ClusterIP"],
            "ExternalName": [],
        }[type_]
        for client in ("a", "outside"):
            assert answering(client) == {door: {"b"} for door in due}, type_
    gone(cluster, CASE)


def test_b20_an_address_that_the_load_balancer_keeps_is_not_ours(cluster: Cluster) -> None:
    """`ipMode: Proxy` and a hostname: the service works by its other addresses."""
    for ingress in ({"ip": CASE.address(BALANCER, 4), "ipMode": "Proxy"}, {"hostname": "lb.example"}):
        kept = object_of(CASE)
        kept["status"]["loadBalancer"]["ingress"] = [ingress]
        cluster.put(kept, *CASE.slices())
        assert asking.remains(cluster, CASE.address(BALANCER, 4), CASE.address(BALANCER, 6)) == []
        assert who(cluster, "a", CASE, CLUSTER, EXTERNAL, AT_N1, AT_N2) == {"b"}
        gone(cluster, CASE)


def test_b20_a_service_of_another_proxy_has_no_address_here(cluster: Cluster) -> None:
    cluster.put(*CASE.objects())
    assert who(cluster, "outside", CASE, *ALL) == {"b"}
    others = object_of(CASE)
    others["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "another"}
    cluster.put(others)
    assert who(cluster, "outside", CASE, AT_N1, AT_N2) == REFUSED  # by the node's kernel
    assert asking.remains(cluster, *(CASE.address(door, family) for door in ALL[:3] for family in (4, 6))) == []
    cluster.put(object_of(CASE))
    assert who(cluster, "outside", CASE, *ALL) == {"b"}
    gone(cluster, CASE)


def test_b22_other_ports_of_every_address_are_refused_and_pings_die(cluster: Cluster) -> None:
    """Of a node only the NodePort is the service's: its other ports are the host's."""
    cluster.put(*CASE.objects())
    clients = ("a", "n2", "outside", "remote")
    for client in clients:
        unused = [
            Probe(protocol, CASE.address(door, family), 9, timeout=4)
            for protocol in ("tcp", "udp")
            for door in (CLUSTER, BALANCER, EXTERNAL, AT_N1)
            for family in (4, 6)
        ]
        answers = cluster.lab.probe(client, unused)
        assert [answer.error for answer in answers] == ["ECONNREFUSED"] * len(unused), client
        assert who(cluster, client, CASE, AT_N1, protocols=["tcp"]) == {"b"}
    targets = [CASE.address(door, family) for door in (CLUSTER, BALANCER, EXTERNAL) for family in (4, 6)]
    assert cluster.echoes(dict.fromkeys(clients, targets)) == {name: {at: [] for at in targets} for name in clients}
    gone(cluster, CASE)


def test_b24_the_second_family_comes_and_goes_with_all_its_addresses(cluster: Cluster) -> None:
    ends = ready("b", "e", "p")  # p has IPv4 only
    for families in ((4,), (4, 6), (6,), (4, 6)):
        now = CASE._replace(families=families, ends=ends)
        cluster.put(*now.objects())
        for family, names in ((4, {"b", "e", "p"}), (6, {"b", "e"})):
            if family in families:
                assert who(cluster, "outside", now, *ALL, families=[family], times=4) == names
            else:
                assert who(cluster, "outside", now, AT_N1, AT_N2, CLUSTER, families=[family]) == REFUSED
        for node in NODES:
            ids = [line.partition("group_id=")[2].partition(",")[0] for line in cluster.groups(node)]
            assert len(ids) == len(set(ids))
    gone(cluster, CASE)


def test_b27_the_first_endpoint_is_answered_by_without_waiting(cluster: Cluster) -> None:
    """None: refused by every address, whatever the policy. One: works."""
    for local in (False, True):
        now = CASE._replace(external_local=local, ends=())
        cluster.put(*now.objects())
        for client in ("a", "n2", "outside", "remote"):
            assert who(cluster, client, now, CLUSTER, BALANCER, EXTERNAL, AT_N1, AT_N3) == REFUSED, client
        now = now._replace(ends=ready("b"))
        cluster.put(*now.objects())
        assert who(cluster, "outside", now, CLUSTER, BALANCER, EXTERNAL, AT_N1) == {"b"}
        gone(cluster, now)


def test_b28_two_ports_of_one_host_are_two_endpoints(cluster: Cluster) -> None:
    server = cluster.lab.echo("n2", name="second", tcp=[9090])
    now = CASE._replace(ends=ready("n2"))
    second = [one for one in now.slices() if "-tcp-" in one["metadata"]["name"]]
    for one in second:
        one["metadata"]["name"] = one["metadata"]["name"].replace("case-", "case-second-")
        one["ports"][0]["port"] = 9090
    cluster.put(*now.objects(), *second)
    for client in ("a", "n2", "outside"):
        doors = (CLUSTER, BALANCER, AT_N1) if client == "n2" else (CLUSTER, BALANCER, AT_N1, AT_N2)
        found = by_door(cluster, client, now, *doors, times=12, protocols=["tcp"])
        assert found == {str(door): {"n2", "second"} for door in doors}
    cluster.lab.stop(server)
    gone(cluster, now)


def test_b34_services_with_a_shared_endpoint_do_not_need_each_other(cluster: Cluster) -> None:
    """The second one works on when the first is deleted, made again, and moved away."""
    twin = Service("twin", 91, ready("b"))
    cluster.put(*CASE.objects(), *twin.objects())
    kept = [Probe("tcp", CASE.address(door, 4), CASE.port(door, "tcp"), requests=100, pause=0.05) for door in ALL]
    running = cluster.lab.start_probes("outside", kept)
    gone(cluster, twin)
    assert who(cluster, "outside", CASE, *ALL) == {"b"}
    cluster.put(*twin.objects())
    assert who(cluster, "outside", twin, *ALL) == {"b"}
    twin = twin._replace(ends=ready("g"))
    cluster.put(*twin.objects())
    assert (who(cluster, "outside", twin, *OUTER), who(cluster, "outside", CASE, *OUTER)) == ({"g"}, {"b"})
    assert {answer.error for answer in running.answers()} == {""}
    gone(cluster, twin, CASE)
