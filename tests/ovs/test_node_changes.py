"""Nodes, ports and pods change while traffic runs: what should not notice does not, what should follow follows."""

import json
import re
import time
from pathlib import Path

import pytest

from lab.traffic import Probe
from tests.ovs import objects, world
from tests.ovs.asking import names, probes
from tests.ovs.cluster import Cluster, spread
from tests.ovs.objects import Object
from tests.ovs.world import FAMILIES, PORTS, PROTOCOLS, SERVICES

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

SETTINGS = {"mac_sources": ["annotation"]}


def test_mac_that_comes_later_moves_running_streams_to_the_uplink(cluster: Cluster) -> None:
    """B02. Before: by gw0 and the host. After: straight; nothing is lost and no flow of the first form stays."""
    cluster.put(world.node_object("n2", mac=None))
    cluster.revalidated()
    pod_traffic = "(net 10.10.1.0/24 and net 10.10.2.0/24) or (net fd00:10:1::/64 and net fd00:10:2::/64)"
    with cluster.streams() as streams:
        with cluster.watched("n1", "gw0", pod_traffic) as by_gateway:
            cluster.wait(lambda: by_gateway.now, "them to go by the gateway")
        cluster.put(world.node_object("n2"))
        cluster.revalidated()
        with cluster.watched("n1", "gw0", pod_traffic) as after, cluster.watched("n1", "eth1", pod_traffic) as wire:
            macs = {world.NODES["n1"].mac, world.NODES["n2"].mac}
            cluster.wait(lambda: {frame.src for frame in wire.now} >= macs, "them to go straight")
    assert after == []
    assert {frame.src for frame in wire} == macs
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


def test_what_the_host_forwards_for_a_pod_is_not_tracked_a_second_time(cluster: Cluster) -> None:
    """Rule R8. By gw0 a translated packet passes the switch twice: as one connection, to the service address."""
    cluster.put(world.node_object("n2", mac=None))
    cluster.revalidated()
    vips, ends = SERVICES["only-e"].addresses, world.PODS["e"].addresses
    targets = [(protocol, family) for protocol in PROTOCOLS for family in FAMILIES]
    wanted = [Probe(p, vips[family], 80, source_port=43210 + n) for n, (p, family) in enumerate(targets)]
    with cluster.watched("n1", "gw0", "portrange 43210-43213") as by_gateway:
        assert [answer.error for answer in cluster.lab.probe("a", wanted)] == [""] * 4
    assert by_gateway, "it does not go by the host"
    dump = cluster.lab.appctl("n1", "dpctl/dump-conntrack").splitlines()
    found = [line for line in dump if re.search(r"orig=.*sport=4321[0-3],.*zone=1\b", line)]
    assert sorted(re.findall(r"orig=\(src=[^,]+,dst=([^,]+),", "\n".join(found))) == sorted([*vips.values()] * 2)
    assert not [line for line in found if any(f",dst={end}," in line.partition("reply=")[0] for end in ends.values())]


def test_replies_of_a_nodes_port_go_back_by_the_uplink_while_no_mac_is_known(cluster: Cluster) -> None:
    """Their source is the node's own address, which its host takes from gw0 only if it is told to."""
    service, (one, two) = SERVICES["only-b"], (world.NODES["n1"], world.NODES["n2"])
    objects_of = service.objects()
    spec = objects_of[0]["spec"]
    spec["type"] = "NodePort"
    for port in spec["ports"]:
        port["nodePort"] = 30080
    cluster.put(world.node_object("n2", mac=None), *objects_of)
    cluster.revalidated()
    asked = [Probe(p, ip, 30080, tries=3, timeout=5) for p in PROTOCOLS for ip in one.addresses.values()]
    with (
        cluster.watched("n1", "gw0", "src port 30080") as by_gateway,
        cluster.watched("n1", "eth1", "src port 30080") as by_uplink,
    ):
        assert spread(cluster.lab.probe("c", asked)) == {"b"}
    assert by_gateway == []
    assert {(frame.src, frame.dst) for frame in by_uplink} == {(one.mac, two.mac)}
    assert {frame.source for frame in by_uplink} == set(one.addresses.values())
    cluster.put(world.node_object("n2"), *service.objects())


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


@pytest.mark.parametrize("name", ["eth9", None])
def test_node_whose_uplink_is_misspelt_reaches_others_by_its_host(cluster: Cluster, name: str | None) -> None:
    """It is not ready and says why; its pods lose nobody, whatever way their packets would have taken."""
    node = world.node_object("n1")
    del node["metadata"]["annotations"]["signalbox.dev/uplink"]
    if name:
        node["metadata"]["annotations"]["signalbox.dev/uplink"] = name
    cluster.put(node)
    why = {"eth9": ["Node n1: port eth9: its switch has no port of this name"], None: []}[name]
    assert cluster.product.get("/v1/status")["not_ready"] == why
    places = {peer: world.PLACES[peer].addresses.values() for peer in ("a", "c", "d", "g", "n2", "n3", "remote")}
    for client, peers in (("a", places), ("c", ("a",)), ("d", ("a",)), ("n2", ("a",)), ("n1", ("c", "d", "n2"))):
        for peer in peers:
            if peer != client:
                asked = [Probe(p, ip, PORTS[p].target, timeout=10) for p in PROTOCOLS for ip in places[peer]]
                assert spread(cluster.lab.probe(client, asked)) == {peer}, (client, peer)
    for service in ("only-b", "only-e", "only-g", "host-3"):
        (answering,) = SERVICES[service].endpoints["tcp"]
        assert names(cluster, "a", list(SERVICES[service].addresses.values()), times=2) == {answering}
    cluster.put(world.node_object("n1"))
    assert cluster.product.get("/v1/status")["ready"]


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
    asked = [Probe(p, ip, PORTS[p].target, timeout=10) for p in PROTOCOLS for ip in addresses]
    for client in ("a", "n1", "d"):
        assert spread(cluster.lab.probe(client, asked)) == {"n2"}
        assert names(cluster, client, list(SERVICES["hosts"].addresses.values()), times=20) == {"n1", "n2", "n3"}
    move_host(cluster, back=True)
    cluster.put(*with_it)
    cluster.check_paths()


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
