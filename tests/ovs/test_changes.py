"""Cluster objects change while traffic runs: what should not notice does not, what should follow follows."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab.traffic import Answer, Probe
from tests.ovs import objects, world
from tests.ovs.cluster import REVALIDATION, Cluster, spread
from tests.ovs.objects import Object, PortOf
from tests.ovs.world import FAMILIES, PORTS, PROTOCOLS, SERVICES, Service, both

pytestmark = pytest.mark.ovs

SETTINGS = {"mac_sources": ["annotation"]}
VIP = "10.96.0.200", "fd00:96::200"


Held = dict[str, tuple[list[str], list[str]]]


def held(cluster: Cluster) -> Held:
    return {node: (cluster.flows(node), cluster.groups(node)) for node in world.NODES}


@pytest.fixture(scope="module")
def at_first(cluster: Cluster) -> Held:
    return held(cluster)


@pytest.fixture(autouse=True)
def there_and_back(cluster: Cluster, at_first: Held) -> Iterator[None]:
    """When a test has undone its changes, the switches hold what they held at first. If it failed, they are undone."""
    directory = cluster.manifests.directory
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    yield
    now = {path.name: path.read_bytes() for path in directory.iterdir()}
    if now != files:
        for name in now.keys() - files.keys():
            (directory / name).unlink()
        for name, content in files.items():
            if now.get(name) != content:
                (directory / name).write_bytes(content)
        cluster.wait(lambda: held(cluster) == at_first, "the changes of a failed test to be undone")
    assert held(cluster) == at_first


def probes(addresses: tuple[str, ...] | list[str], port: int = 80, times: int = 1, **how: float) -> list[Probe]:
    """TCP and UDP to a port of some addresses."""
    return [
        Probe(protocol, address, port, **{"timeout": 3, **how})  # type: ignore[arg-type]
        for protocol in PROTOCOLS
        for address in addresses
        for _ in range(times)
    ]


def names(
    cluster: Cluster, client: str, addresses: tuple[str, ...] | list[str], port: int = 80, times: int = 12
) -> set[str]:
    return spread(cluster.lab.probe(client, probes(addresses, port, times)))


def refused(answers: list[Answer]) -> bool:
    return {answer.error for answer in answers} == {"ECONNREFUSED"}


def service(name: str, endpoints: Mapping[str, tuple[str, ...]], families: tuple[int, ...] = FAMILIES) -> Service:
    return Service(name, 200, endpoints, families)


def gone(cluster: Cluster, name: str) -> None:
    """Deletes a service and its slices."""
    slices = [f"{name}-{protocol}-{family}" for protocol in PROTOCOLS for family in FAMILIES]
    for one in slices:
        cluster.manifests.path("EndpointSlice", one).unlink(missing_ok=True)
    cluster.delete("Service", name)


# --- nodes -------------------------------------------------------------------------------------------------


def test_mac_that_comes_later_moves_running_streams_to_the_uplink(cluster: Cluster) -> None:
    """B02. Before: by gw0 and the host. After: straight; nothing is lost and no flow of the first form stays."""
    cluster.put(world.node_object("n2", mac=None))
    time.sleep(REVALIDATION)
    pod_traffic = "(net 10.10.1.0/24 and net 10.10.2.0/24) or (net fd00:10:1::/64 and net fd00:10:2::/64)"
    with cluster.streams() as streams:
        with cluster.watched("n1", "gw0", pod_traffic) as by_gateway:
            time.sleep(0.3)
        assert by_gateway
        cluster.put(world.node_object("n2"))
        time.sleep(REVALIDATION)
        with cluster.watched("n1", "gw0", pod_traffic) as after, cluster.watched("n1", "eth1", pod_traffic) as wire:
            time.sleep(0.3)
    assert after == []
    assert {frame.src for frame in wire} == {world.NODES["n1"].mac, world.NODES["n2"].mac}
    assert streams.broken == {}
    for match in ("table=70,ip,nw_dst=10.10.2.0/24", "table=70,ipv6,ipv6_dst=fd00:10:2::/64"):
        routes = cluster.flows("n1", match)
        assert len(routes) == 1, routes
        assert world.NODES["n2"].mac in routes[0]


def test_connection_of_a_host_keeps_its_translation_when_the_mac_comes(cluster: Cluster) -> None:
    """The SNAT kind is decided once: what began by gw0 goes on when the way is straight."""
    cluster.put(world.node_object("n2", mac=None))
    wanted = [
        Probe(p, a, 80, requests=60, pause=0.03) for p in PROTOCOLS for a in SERVICES["only-e"].addresses.values()
    ]
    running = cluster.lab.start_probes("n1", wanted)
    time.sleep(0.5)
    cluster.put(world.node_object("n2"))
    answers = running.answers()
    assert [answer.error for answer in answers] == [""] * 4
    assert [{text.split()[1] for text in answer.answers} for answer in answers] == [
        {world.snat("n1", family)} for _ in PROTOCOLS for family in FAMILIES
    ]


def test_node_without_pod_cidr_gets_its_routes_when_it_has_one(cluster: Cluster) -> None:
    """B11: no crash, no flow for everything; the flows come with the update."""
    for cidrs in ([], [""], ["10.10.2.0/33"]):
        node = world.node_object("n2")
        node["spec"] = {"podCIDRs": cidrs}
        cluster.manifests.put(node)
        cluster.wait(lambda: not cluster.flows("n1", "table=70,ip,nw_dst=10.10.2.0/24"), "the route to go")
        assert not [flow for flow in cluster.flows("n1") if "nw_dst=0.0.0.0/0" in flow]
    cluster.put(world.node_object("n2"))
    cluster.check_paths()


def test_node_made_again_with_another_pod_cidr_leaves_nothing_of_the_old(cluster: Cluster) -> None:
    """B13: one update, another UID, another podCIDR."""
    node = world.node_object("n2")
    node["metadata"]["uid"] = "b2"
    node["spec"] = {"podCIDR": "10.10.9.0/24", "podCIDRs": ["10.10.9.0/24", "fd00:10:9::/64"]}
    pods = [world.pod_object(name) for name in ("c", "e")]
    cluster.manifests.delete("Pod", "c", "e")
    cluster.put(node)
    kept = {"10.10.2.10", "10.10.2.11", "fd00:10:2::10", "fd00:10:2::11"}  # endpoints that the slices still name
    for name in world.NODES:
        flows = cluster.flows(name)
        old = [flow for flow in flows if "10.10.2." in flow or "fd00:10:2:" in flow]
        assert not [flow for flow in old if not any(address in flow for address in kept)], name
        assert any("10.10.9.0/24" in flow for flow in flows), name
        if name != "n4":
            assert any("fd00:10:9::/64" in flow for flow in flows), name
    cluster.manifests.put(*pods)
    cluster.put(world.node_object("n2"))
    cluster.check_paths()


MOVES = (("192.168.77.102", "192.168.77.112", 24), ("fd00:77::102", "fd00:77::112", 64))


def moved(thing: list[Object]) -> list[Object]:
    text = json.dumps(thing)
    for old, new, _ in MOVES:
        text = text.replace(old, new)
    found: list[Object] = json.loads(text)
    return found


def move_host(cluster: Cluster, back: bool = False) -> None:
    """Gives n2's br0 its other addresses, and the routes that go with the old ones away."""
    for first, second, length in MOVES:
        old, new = (second, first) if back else (first, second)
        cluster.lab.run("n2", "ip", "address", "del", f"{old}/{length}", "dev", "br0")
        cluster.lab.run("n2", "ip", "address", "add", f"{new}/{length}", "dev", "br0", *["nodad"] * (":" in new))
    node = cluster.lab.node("n2")
    for gateway in node.gateways:
        cluster.lab.run("n2", "ip", "route", "replace", "default", "via", gateway, "dev", "br0")
    for route in node.routes:
        cluster.lab.run("n2", "ip", "route", "replace", route.destination, "via", route.via)


def test_node_that_changes_its_address_is_followed(cluster: Cluster) -> None:
    """B14: objects first, then the host; and back, the host first. Nothing matches the old address."""
    with_it = [world.node_object("n2"), *(one for name in ("hosts", "mixed") for one in SERVICES[name].objects())]
    cluster.put(*moved(with_it))
    for name in world.NODES:
        assert not [flow for flow in cluster.flows(name) if any(old in flow for old, _, _ in MOVES)], name
    move_host(cluster)
    addresses = [new for _, new, _ in MOVES]
    asked = [Probe(p, ip, PORTS[p].target, timeout=3) for p in PROTOCOLS for ip in addresses]
    for client in ("a", "n1", "d"):
        assert spread(cluster.lab.probe(client, asked)) == {"n2"}
        assert names(cluster, client, list(SERVICES["hosts"].addresses.values()), times=20) == {"n1", "n2", "n3"}
    move_host(cluster, back=True)
    cluster.put(*with_it)
    cluster.check_paths()


# --- ports and pods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", ["pod", "eth1", "gw0"])
def test_port_is_renumbered_under_live_connections(cluster: Cluster, port: str) -> None:
    """Rule R4: no flow, mark or label of a connection holds a port number."""
    name = cluster.lab.pod("a").port if port == "pod" else port
    old = cluster.lab.port_number("n1", name)
    with cluster.streams() as streams:
        assert cluster.lab.renumber_port("n1", name, 300 + old) == 300 + old
        cluster.wait(lambda: not entering(cluster, old), "the flows to follow")
        time.sleep(1)  # for TCP to send again what was lost
    assert {label: result.breaks for label, result in streams.results.items() if result.breaks} == {}
    lost = {label: result.sent - result.answered for label, result in streams.broken.items()}
    assert max(lost.values(), default=0) <= 25, lost  # half a second
    print(f"\n{port}: {sum(lost.values())} datagrams of {len(lost)} streams were lost while it was away")
    cluster.lab.renumber_port("n1", name, old)
    cluster.wait(lambda: entering(cluster, old), "the flows to be back")
    cluster.level()
    cluster.check_paths()


def entering(cluster: Cluster, port: int) -> list[str]:
    """Flows of n1 for what enters by a port."""
    return [flow for flow in cluster.flows("n1") if re.search(rf"in_port={port}\b", flow)]


def test_pod_that_comes_and_goes_is_followed(cluster: Cluster) -> None:
    fresh = objects.pod("fresh", "n1", ["10.10.1.30", "fd00:10:1::30"])
    asked = [Probe("tcp", ip, 8080, timeout=0.5) for ip in ("10.10.1.30", "fd00:10:1::30")]
    with cluster.streams() as streams:
        for _ in range(2):  # the second has the same name and addresses, and another cable
            cluster.manifests.put(fresh)
            cluster.lab.sync(cluster.manifests.directory)
            cluster.serve("fresh")
            cluster.wait(lambda: spread(cluster.lab.probe("c", asked)) == {"fresh"}, "the new pod to answer")
            assert spread(cluster.lab.probe("fresh", probes(list(SERVICES["only-g"].addresses.values())))) == {"g"}
            cluster.delete("Pod", "fresh")
            cluster.lab.sync(cluster.manifests.directory)
            for node in world.NODES:
                assert not [flow for flow in cluster.flows(node) if "10.10.1.30" in flow or "fd00:10:1::30" in flow]
    assert streams.broken == {}


def test_pod_whose_port_comes_before_the_object_is_followed(cluster: Cluster, tmp_path: Path) -> None:
    ahead = objects.Manifests(tmp_path)
    for path in cluster.manifests.directory.glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    early = objects.pod("early", "n2", ["10.10.2.31", "fd00:10:2::31"])
    ahead.put(early)
    cluster.lab.sync(tmp_path)
    cluster.serve("early")
    assert spread(cluster.lab.probe("early", [Probe("tcp", "10.10.2.10", 8080, timeout=0.3)])) == {"timeout"}
    cluster.put(early)
    asked = [Probe("tcp", ip, 8080, timeout=2) for ip in ("10.10.2.31", "fd00:10:2::31")]
    assert spread(cluster.lab.probe("a", asked)) == {"early"}
    cluster.lab.sync(cluster.manifests.directory)  # changes nothing
    cluster.manifests.delete("Pod", "early")
    cluster.lab.sync(cluster.manifests.directory)  # the port goes first, or the object: it must not matter
    cluster.wait(lambda: not [flow for flow in cluster.flows("n2") if "10.10.2.31" in flow], "its flows to go")


# --- services ------------------------------------------------------------------------------------------------


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
        assert lost <= (0 if "tcp" in label else 2), (label, stream)
        who = [answer.partition(" ")[0] for answer in stream.answers]
        allowed = (["b"], ["e"]) if "tcp" in label else (["b"], ["e", "b"])
        assert who in allowed, (label, stream.answers)
    began = {stream.answers[0].partition(" ")[0] for label, stream in streams.results.items() if "udp" in label}
    assert began == {"b", "e"}, "the streams did not begin at both endpoints"
    gone(cluster, "moving")


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
    """B15, B16."""
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
