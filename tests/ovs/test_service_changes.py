"""Services and endpoints change while traffic runs."""

import re
import sys
import time
from collections import Counter

import pytest

from lab.traffic import Probe
from tests.ovs import objects, world
from tests.ovs.asking import VIP, gone, names, probes, refused, service
from tests.ovs.cluster import SPARED, Cluster, spread
from tests.ovs.objects import PortOf
from tests.ovs.world import PORTS, PROTOCOLS, SERVICES, both

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]


def test_endpoints_come_and_go_under_traffic(cluster: Cluster) -> None:
    """B69. Also from none to one: the first endpoint works without waiting, the last one that goes means refusal."""

    def all_refused() -> bool:
        return refused(cluster.lab.probe("a", probes(VIP)) + cluster.lab.probe("n1", probes(VIP)))

    with cluster.streams() as streams:
        cluster.put(*service("changing", both()).objects())
        assert all_refused()
        for ends in (("b",), ("b", "e"), ("e", "g"), ("n1", "g"), ("c",)):
            cluster.put(*service("changing", both(*ends)).objects())
            assert names(cluster, "a", VIP) == set(ends)
            assert names(cluster, "n2", VIP) == set(ends)
        cluster.put(*service("changing", both()).objects())
        assert all_refused()
        gone(cluster, "changing")
    for node in world.NODES:
        assert not [flow for flow in cluster.flows(node) if "10.96.0.200" in flow or "fd00:96::200" in flow]
    assert streams.broken == {}


@pytest.mark.parametrize("client", ["a", "n1", "e"])
def test_endpoint_that_goes_loses_its_datagrams_and_keeps_its_tcp(cluster: Cluster, client: str) -> None:
    """B49, B51: UDP from one source port moves at once, its old tracking entry is flushed; TCP ends with its pod."""
    moving = service("moving", both("b", "e"))
    cluster.put(*moving.objects())
    with cluster.streams([(client, moving)] * 6) as streams:
        cluster.put(*service("moving", both("b")).objects())
        time.sleep(1.3)  # longer than until the second flush
    for label, stream in streams.results.items():
        # A datagram that is under way when its entry is flushed has no way back: one for each of two flushes.
        lost = stream.sent - stream.answered
        assert not stream.breaks, (label, stream)
        assert lost <= (0 if "tcp" in label else 2 + SPARED), (label, stream)
        who = [answer.partition(" ")[0] for answer in stream.answers]
        allowed = (["b"], ["e"]) if "tcp" in label else (["b"], ["e", "b"])
        assert who in allowed, (label, stream.answers)
    began = {stream.answers[0].partition(" ")[0] for label, stream in streams.results.items() if "udp" in label}
    assert began == {"b", "e"}, "the streams did not begin at both endpoints"
    gone(cluster, "moving")


def tracked(cluster: Cluster, node: str = "n1") -> Counter[str]:
    """Endpoints of the datagrams to VIP that a node's switch remembers, each with the number of its entries."""
    dump = cluster.lab.appctl(node, "dpctl/dump-conntrack")
    return Counter(
        found[1]
        for line in dump.splitlines()
        if line.startswith("udp") and any(f",dst={address}," in line for address in VIP)
        if (found := re.search(r"reply=\(src=([^,]+),", line))
    )


@pytest.mark.parametrize("left", ["b", "no endpoint", "no service"])
def test_datagrams_follow_a_service_that_changed_without_a_controller(cluster: Cluster, left: str) -> None:
    """B49, B76: nobody remembers what was allowed, the switch's own flows tell which service addresses have changed."""
    moving = service("moving", both("b", "e"))
    cluster.put(*moving.objects())
    of = {name: set(world.PODS[name].addresses.values()) for name in ("b", "e")}
    with cluster.streams([("a", moving)] * 14 + [("a", "every")]) as streams:
        assert tracked(cluster).keys() == of["b"] | of["e"], "the streams did not begin at both endpoints"
        cluster.product.stop()
        if left == "no service":
            for path in cluster.manifests.directory.glob("*-moving*.yaml"):
                path.unlink()
        else:
            cluster.manifests.put(*service("moving", both(*({"b"} & {left}))).objects())
        cluster.product.start()
        cluster.ready()
        kept = of["b"] if left == "b" else set()
        cluster.wait(lambda: tracked(cluster).keys() == kept, "the first flush, or the second, to leave no entry")
        time.sleep(1.3)  # longer than until the second flush
        assert tracked(cluster).keys() == kept
    others = {label: stream for label, stream in streams.results.items() if "every" in label}
    assert all(stream.whole and len(stream.answers) == 1 for stream in others.values()), others
    if left != "no service":
        gone(cluster, "moving")


CROWD = """
import socket, sys, time
held = []
for number in range(int(sys.argv[2])):
    held.append(socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM))
    held[-1].connect((sys.argv[1], 80))
    held[-1].send(b"x\\n")
    time.sleep(0.002 if number % 10 == 9 else 0)
"""


def test_no_entry_of_many_clients_outlives_their_endpoint(cluster: Cluster) -> None:
    """Rule R11: Open vSwitch forgets only a part of many entries that match, so it is asked again."""
    cluster.put(*service("crowded", both("b", "e")).objects())
    for address in VIP:
        words = (sys.executable, "-IS", "-c", CROWD, address, "1000")
        cluster.lab.run("a", "sh", "-c", 'ulimit -n 4096; exec "$@"', "sh", *words)
    before = tracked(cluster)
    assert min(before[address] for name in ("b", "e") for address in world.PODS[name].addresses.values()) > 300, before
    cluster.put(*service("crowded", both("b")).objects())
    kept = {address: before[address] for address in world.PODS["b"].addresses.values()}
    cluster.wait(lambda: tracked(cluster) == kept, "the flushes to leave the entries of b alone")
    gone(cluster, "crowded")
    cluster.wait(lambda: tracked(cluster) == {}, "the flushes to leave nothing")


def test_changed_port_leaves_the_old_one_refused(cluster: Cluster) -> None:
    """B17."""
    cluster.put(*service("ported", both("b")).objects())
    before = {node: (len(cluster.flows(node)), len(cluster.groups(node))) for node in world.NODES}
    assert names(cluster, "c", VIP) == {"b"}
    ports = [PortOf(protocol, 8088, PORTS[protocol].target) for protocol in PROTOCOLS]
    cluster.put(objects.service("ported", list(VIP), ports))
    assert names(cluster, "c", VIP, 8088) == {"b"}
    assert refused(cluster.lab.probe("c", probes(VIP)))
    assert {node: (len(cluster.flows(node)), len(cluster.groups(node))) for node in world.NODES} == before
    gone(cluster, "ported")


def test_services_with_a_shared_endpoint_do_not_need_each_other(cluster: Cluster) -> None:
    """B34: the second one works on when the first is deleted, made again, and moved away."""
    shared = SERVICES["only-e"]
    vips = list(shared.addresses.values())
    cluster.put(*service("twin", both("e")).objects())
    with cluster.streams([("a", "only-e"), ("d", "only-e"), ("n1", "only-e")]) as streams:
        gone(cluster, "twin")
        assert names(cluster, "a", vips) == {"e"}
        cluster.put(*service("twin", both("e")).objects())
        assert names(cluster, "a", VIP) == {"e"}
        cluster.put(*service("twin", both("g")).objects())
        assert (names(cluster, "a", VIP), names(cluster, "a", vips)) == ({"g"}, {"e"})
        gone(cluster, "twin")
    assert streams.broken == {}


def test_one_protocol_of_a_port_goes_and_the_other_stays(cluster: Cluster) -> None:
    """B15."""
    ends = {"tcp": ("a",), "udp": ("c",)}
    cluster.put(*service("dns", ends).objects())
    asked = probes(VIP)
    assert [answer.names for answer in cluster.lab.probe("b", asked)] == [("a",), ("a",), ("c",), ("c",)]
    udp = cluster.lab.start_probes("b", [Probe("udp", address, 80, requests=60, pause=0.03) for address in VIP])
    cluster.put(objects.service("dns", list(VIP), [PORTS["udp"]]))
    answers = cluster.lab.probe("b", asked)
    assert [answer.error for answer in answers] == ["ECONNREFUSED", "ECONNREFUSED", "", ""]
    assert [answer.error for answer in udp.answers()] == ["", ""]
    gone(cluster, "dns")


def test_one_port_of_an_address_goes_and_the_other_stays(cluster: Cluster) -> None:
    """B16: two TCP ports of one ClusterIP; when the service is gone nothing of the address is left."""
    first, second = PORTS["tcp"], PortOf("tcp", 443, 8080)
    named = objects.service("ports", list(VIP), [first, second])
    named["spec"]["ports"][1]["name"] = "other"
    slices = objects.slices("ports", first, {"b": (world.PODS["b"].addresses.values(), "n1")})
    for one in slices:
        one["ports"].append({**one["ports"][0], "name": "other"})
    cluster.put(named, *slices)
    asked = [Probe("tcp", address, port, timeout=3) for address in VIP for port in (80, 443)]
    for client in ("a", "n1", "d"):
        assert spread(cluster.lab.probe(client, asked)) == {"b"}
    running = [Probe("tcp", address, 80, requests=40, pause=0.03) for address in VIP]
    kept = cluster.lab.start_probes("a", running)
    cluster.put(objects.service("ports", list(VIP), [first]))
    for client in ("a", "n1", "d"):
        assert [answer.error for answer in cluster.lab.probe(client, asked)] == ["", "ECONNREFUSED"] * 2
    assert [answer.error for answer in kept.answers()] == ["", ""]
    gone(cluster, "ports")
    for node in world.NODES:
        assert not [flow for flow in cluster.flows(node) if any(f"={address}," in flow for address in VIP)]


def test_second_family_of_a_service_comes_and_goes(cluster: Cluster) -> None:
    """B24: single stack, dual stack, single stack; group ids never collide."""
    four, six = VIP
    for families in ((4,), (4, 6), (4,), (6,), (4, 6)):
        cluster.put(*service("stacked", both("b", "e", "p"), families).objects())
        for family, address in ((4, four), (6, six)):
            answers = cluster.lab.probe("a", probes([address], times=15))
            if family in families:
                assert spread(answers) == ({"b", "e", "p"} if family == 4 else {"b", "e"})
            else:
                assert refused(answers)
        for node in world.NODES:
            ids = [line.partition("group_id=")[2].partition(",")[0] for line in cluster.groups(node)]
            assert len(ids) == len(set(ids))
    gone(cluster, "stacked")


def test_two_ports_of_one_pod_are_two_endpoints(cluster: Cluster) -> None:
    """B28: same address, two target ports."""
    server = cluster.lab.echo("b", name="second", tcp=[9090])
    of = [PORTS["tcp"], PortOf("tcp", 80, 9090)]
    found = objects.service("double", list(VIP), of[:1])
    first, second = (objects.slices("double", port, {"b": (world.PODS["b"].addresses.values(), "n1")}) for port in of)
    for one in second:
        one["metadata"]["name"] += "-second"
    cluster.put(found, *first, *second)
    for address in VIP:
        assert spread(cluster.lab.probe("c", [Probe("tcp", address, 80)] * 15)) == {"b", "second"}
    for one in second:
        cluster.manifests.delete("EndpointSlice", one["metadata"]["name"])
    gone(cluster, "double")
    cluster.lab.stop(server)


def test_readiness_is_read_as_kubernetes_says(cluster: Cluster) -> None:
    """B30, B35: no condition counts as ready; serving while terminating only when none is ready."""
    port = PORTS["tcp"]

    def put(*conditions: tuple[str, dict[str, bool]]) -> None:
        made = objects.slices(
            "conditions", port, {n: (world.PODS[n].addresses.values(), world.PODS[n].node) for n, _ in conditions}
        )
        for one in made:
            for endpoint, (_, condition) in zip(one["endpoints"], conditions, strict=True):
                endpoint["conditions"] = condition
        cluster.put(objects.service("conditions", list(VIP), [port]), *made)

    def who() -> set[str]:
        return spread(cluster.lab.probe("c", [Probe("tcp", address, 80) for address in VIP * 12]))

    unready = {"ready": False, "serving": True, "terminating": False}
    draining = {"ready": False, "serving": True, "terminating": True}
    put(("a", {}), ("b", unready), ("e", {"ready": True, "serving": False}), ("g", draining))
    assert who() == {"a", "e"}
    put(("b", unready), ("g", draining))
    assert who() == {"g"}
    put(("b", unready), ("g", {**draining, "serving": False}))
    assert who() == {"ECONNREFUSED"}
    gone(cluster, "conditions")


def test_objects_that_are_none_of_our_business_change_nothing(cluster: Cluster) -> None:
    """B20: headless, ExternalName, another proxy's; the label comes and goes."""
    before = {node: cluster.flows(node) for node in world.NODES}
    headless = objects.service("headless", ["10.96.0.201"], [PORTS["tcp"]])
    headless["spec"] |= {"clusterIP": "None", "clusterIPs": ["None"]}
    external = objects.service("external", ["10.96.0.202"], [PORTS["tcp"]])
    external["spec"] = {"type": "ExternalName", "externalName": "example.org"}
    slices = objects.slices("headless", PORTS["tcp"], {"b": (world.PODS["b"].addresses.values(), "n1")})
    cluster.manifests.put(headless, external, *slices)
    of_other = service("other", both("b")).objects()
    of_other[0]["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "somebody"}
    cluster.manifests.put(*of_other)
    cluster.put(*service("mark", both("b")).objects()[1:2])  # any change that is seen comes after those
    gone_slices = [one["metadata"]["name"] for one in slices]
    assert {node: cluster.flows(node) for node in world.NODES} == before
    del of_other[0]["metadata"]["labels"]
    cluster.put(of_other[0])
    assert names(cluster, "c", VIP) == {"b"}
    cluster.manifests.delete("EndpointSlice", *gone_slices, "mark-tcp-4")
    cluster.manifests.delete("Service", "headless", "external")
    gone(cluster, "other")
