"""Planned changes and fail-overs under running traffic: what each costs, and every frame on the wires meanwhile.

The rows that are printed (`-s`) are the figures; the bounds hold on a machine that has little time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from lab import script
from lab.announcements import announcement
from lab.plan import ROUTERS, Pod, Station, router_mac
from lab.traffic import Probe
from pipelines.addresses import mac_text, parse_ip, pod_mac, pod_port_name
from tests.ovs import objects, world
from tests.ovs.cluster import Cluster, spread
from tests.ovs.crossing import ROUTED, STRAIGHT, VIRTUAL_MAC, crossing
from tests.ovs.objects import Object
from tests.ovs.test_discovery import ASKED, follow, nodes
from tests.ovs.test_node_changes import MOVES, move_host, moved
from tests.ovs.world import FAMILIES, NODES, SEGMENTS

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("as_it_was")]

SETTINGS: dict[str, Any] = {"mac_sources": ["annotation"], "traffic_mode": "noEncap", "egress": "gateway"}
FROM_AFAR = ("remote", "a")
OTHER_MAC = "aa:00:00:00:01:02"  # of n2, with another card


@pytest.fixture
def as_it_was(cluster: Cluster, there_and_back: None) -> Iterator[None]:
    """Whatever a test that failed has left behind is put right, for those after it."""
    yield
    if not SETTINGS.items() <= cluster.product.settings.items():
        restart(cluster, **SETTINGS)
    while cluster.lab.plan.active != ROUTERS[0] or VIRTUAL_MAC in cluster.lab.router_macs():
        cluster.lab.fail_over()
        follow(cluster)
    if cluster.lab.node("n2").mac != NODES["n2"].mac:
        cluster.lab.set_uplink_mac("n2", NODES["n2"].mac)
        announce(cluster, NODES["n2"].mac)


@contextmanager
def configured(cluster: Cluster, **settings: Any) -> Iterator[None]:
    """The controller with other settings, and after the block with those of this module."""
    restart(cluster, **settings)
    yield
    restart(cluster, **{key: SETTINGS[key] for key in settings})


def restart(cluster: Cluster, **settings: Any) -> None:
    cluster.product.restart(settings)
    cluster.product.wait_ready(120)  # a starved machine starts and reads five switches late
    cluster.ready()
    cluster.revalidated()


def noted(name: str, **notes: str) -> Object:
    """A Node with other annotations (their keys without the prefix, and with _ for -)."""
    node = world.node_object(name)
    node["metadata"]["annotations"] |= {f"signalbox.dev/{key.replace('_', '-')}": text for key, text in notes.items()}
    return node


# --- the MAC of a peer ------------------------------------------------------------------------------------------------


def test_mac_of_a_peer_that_becomes_unknown_and_known_costs_nothing(cluster: Cluster) -> None:
    for name, mac in (("annotation disappears", None), ("annotation appears", "")):
        with crossing(cluster, name, STRAIGHT) as crossed:
            cluster.put(world.node_object("n2", mac=mac))
            cluster.revalidated()
        crossed.nothing_lost()


def test_mac_that_comes_from_another_source_costs_nothing_and_writes_nothing_to_routes(cluster: Cluster) -> None:
    for sources in (["switch"], ["neighbor", "annotation"], ["annotation"]):
        with crossing(cluster, f"MACs from {sources[0]}", STRAIGHT) as crossed:
            before = {name: cluster.flows(name, "table=70") for name in NODES}
            restart(cluster, mac_sources=sources)
            cluster.wait(partial(knows_from, cluster, sources[0]), "all to know it from there")
            assert {name: cluster.flows(name, "table=70") for name in NODES} == before
        crossed.nothing_lost()


@pytest.mark.parametrize("source", ["switch", "annotation", "neighbor"])
def test_node_that_gets_another_uplink_mac_is_followed(cluster: Cluster, source: str) -> None:
    """The node announces it, as hosts do. What was on its way to the old MAC is lost."""
    with configured(cluster, mac_sources=[source]):
        for mac in (OTHER_MAC, NODES["n2"].mac):
            with crossing(cluster, f"uplink MAC, from {source}", [*STRAIGHT, ("d", "c")], macs=[OTHER_MAC]) as crossed:
                began = time.monotonic()
                cluster.lab.set_uplink_mac("n2", mac)
                announce(cluster, mac)
                if source == "annotation":
                    cluster.put(world.node_object("n2", mac=mac))
                cluster.wait(partial(knows, cluster, "n1", mac), "the other nodes to know")
                announce(cluster, mac)
                print(f"\nknown after {time.monotonic() - began:.2f} s")
            crossed.silent_at_most(2)


def knows_from(cluster: Cluster, source: str) -> bool:
    """A node that is alone on its segment is nobody's to ask for."""
    return all(
        node["mac"] and node["mac"]["source"] == source for name, node in nodes(cluster).items() if name in ASKED
    )


def announce(cluster: Cluster, mac: str) -> None:
    """What n2 says of its addresses, more than once, as hosts do (RFC 4861, RFC 5227)."""
    frames = [announcement(address, mac) for address in cluster.lab.node("n2").addresses]
    cluster.lab.send_frames("n2", "br0", frames * 2)


def knows(cluster: Cluster, name: str, mac: str) -> bool:
    routes = cluster.flows(name, "table=70,ip,nw_dst=10.10.2.0/24")
    return any(mac in route for route in routes)


# --- podCIDRs, addresses, subnets ------------------------------------------------------------------------------------

SECOND = {4: "10.10.12", 6: "fd00:10:12:"}
SECOND_CIDRS = ["10.10.12.0/24", "fd00:10:12::/64"]


def with_second(name: str, yes: bool) -> Object:
    node = world.node_object(name)
    node["spec"]["podCIDRs"] += SECOND_CIDRS if yes else []
    return node


@contextmanager
def pod_of_second(cluster: Cluster, node: str) -> Iterator[list[Probe]]:
    """A pod m in the second podCIDRs; what to ask to hear from it."""
    ips = ("10.10.12.10", "fd00:10:12::10")
    gateways = ("10.10.12.1", "fd00:10:12::1")
    lengths = (24, 64)
    for ip, length in zip(gateways, lengths, strict=True):
        cluster.lab.run(node, "ip", "address", "add", f"{ip}/{length}", "dev", "gw0", *["nodad"] * (":" in ip))
        at = NODES[node].addresses[objects.family(ip)]
        via = ("via", at, "dev", f"seg{SEGMENTS[node]}")
        prefix = SECOND_CIDRS[objects.family(ip) == 6]
        cluster.lab.run(cluster.lab.plan.active, "ip", "route", "replace", prefix, *via)
    mac = mac_text(pod_mac(tuple(map(parse_ip, ips))))
    addresses = tuple(f"{ip}/{length}" for ip, length in zip(ips, lengths, strict=True))
    cluster.lab.add_pods([Pod("default", "m", node, pod_port_name("default", "m"), Station(mac, addresses, gateways))])
    cluster.serve("m")
    cluster.put(objects.pod("m", node, ips))
    yield [Probe("tcp", ip, 8080, timeout=2, tries=3) for ip in ips]
    cluster.delete("Pod", "m")
    cluster.lab.remove_pods(["default/m"])
    for ip, length in zip(gateways, lengths, strict=True):
        cluster.lab.run(node, "ip", "address", "delete", f"{ip}/{length}", "dev", "gw0")


def test_second_pod_cidr_that_comes_moves_and_goes_costs_the_others_nothing(cluster: Cluster) -> None:
    with crossing(cluster, "second podCIDR comes, moves, goes", [*STRAIGHT, *ROUTED]) as crossed:
        cluster.put(with_second("n2", True))
        with pod_of_second(cluster, "n2") as asked:
            for client in ("a", "c", "d", "n1"):
                assert spread(cluster.lab.probe(client, asked)) == {"m"}, client
        cluster.put(with_second("n2", False), with_second("n1", True))
        with pod_of_second(cluster, "n1") as asked:
            for client in ("a", "c", "d", "n1"):
                assert spread(cluster.lab.probe(client, asked)) == {"m"}, client
        cluster.put(with_second("n1", False))
    crossed.nothing_lost()


def test_address_of_a_node_that_changes_costs_its_pods_nothing(cluster: Cluster) -> None:
    """B14 under traffic, in either order: pods are reached by MAC, and the router is told by whoever moves a host."""
    pairs = [("a", "c"), ("c", "a"), ("a", "only-e"), ("n1", "only-e"), ("e", "h")]
    with_it = [world.node_object("n2"), *(one for name in ("hosts", "mixed") for one in world.SERVICES[name].objects())]
    with crossing(cluster, "address of a node, object first", pairs) as crossed:
        cluster.put(*moved(with_it))
        move_host(cluster)
        route_by(cluster, [new for _, new, _ in MOVES])
    crossed.nothing_lost()
    with crossing(cluster, "address of a node, host first", pairs) as crossed:
        move_host(cluster, back=True)
        route_by(cluster, [old for old, _, _ in MOVES])
        cluster.put(*with_it)
    crossed.nothing_lost()


def route_by(cluster: Cluster, addresses: list[str]) -> None:
    for at in addresses:
        prefix = {4: "10.10.2.0/24", 6: "fd00:10:2::/64"}[objects.family(at)]
        cluster.lab.run(cluster.lab.plan.active, "ip", "route", "replace", prefix, "via", at, "dev", "seg0")


def test_node_whose_subnet_changes_is_reached_by_the_router_and_straight_again(cluster: Cluster) -> None:
    addresses = f"192.168.77.102/25,{NODES['n2'].addresses[6]}/64"
    for name, node in (("24 → 25", noted("n2", node_addresses=addresses)), ("25 → 24", world.node_object("n2"))):
        with crossing(cluster, f"subnet of a node {name}", STRAIGHT) as crossed:
            cluster.put(node)
            cluster.revalidated()
            routes = cluster.flows("n1", "table=70,ip,nw_dst=10.10.2.0/24")
            assert any(NODES["n2"].mac in route for route in routes) is (name == "25 → 24"), routes
        crossed.nothing_lost()


# --- modes -----------------------------------------------------------------------------------------------------------


def test_change_of_mode_costs_less_than_a_second(cluster: Cluster) -> None:
    """Two ends of a tunnel do not change at the same moment, and its next hop has to be found first."""
    before = SETTINGS["traffic_mode"]
    for mode in ("hybrid", "encap", "noEncap"):
        with crossing(cluster, f"{before} → {mode}", [*STRAIGHT, *ROUTED]) as crossed:
            restart(cluster, traffic_mode=mode)
        crossed.silent_at_most(2)
        before = mode


def test_way_out_that_changes_costs_running_connections_nothing(cluster: Cluster) -> None:
    """What began with the host's translation goes on with it, and what began with the switch's too."""
    pairs = [("a", "remote"), ("a", "outside"), ("c", "remote"), ("g", "remote")]
    for egress in ("direct", "gateway"):
        with crossing(cluster, f"egress {egress}", pairs, pings=[("a", "remote"), ("g", "outside")]) as crossed:
            restart(cluster, egress=egress)
        crossed.nothing_lost()


@pytest.mark.parametrize("port", ["tun0", "gw0", "eth1"])
def test_port_is_renumbered_under_tunnels(cluster: Cluster, port: str) -> None:
    """Rule R4: what is lost is lost while the port is away."""
    with configured(cluster, traffic_mode="encap"):
        old = cluster.lab.port_number("n1", port)
        for number in (300 + old, old):
            with crossing(cluster, f"{port} renumbered", [*STRAIGHT, *ROUTED]) as crossed:
                cluster.lab.renumber_port("n1", port, number)
                cluster.wait(partial(entering, cluster, number), "the flows to follow")
                cluster.level()
            crossed.silent_at_most(2)


def entering(cluster: Cluster, number: int) -> list[str]:
    """Flows of n1 for what enters by a port."""
    return cluster.flows("n1", f"table=0,in_port={number}")


# --- routers ---------------------------------------------------------------------------------------------------------


def test_router_that_fails_over_and_says_so_costs_less_than_a_second(cluster: Cluster) -> None:
    for name in ("fail-over, announced", "and back"):
        with crossing(cluster, name, [*ROUTED, FROM_AFAR]) as crossed:
            cluster.lab.fail_over()
            follow(cluster)
        crossed.silent_at_most(1)


def test_router_that_fails_over_and_is_only_asked_is_followed_by_its_answer(cluster: Cluster) -> None:
    """Hosts find their next hop anew; the answer that they get differs from what is known."""
    for name in ("fail-over, answered", "and back"):
        with crossing(cluster, name, [*ROUTED, FROM_AFAR]) as crossed:
            cluster.lab.fail_over(announce=False)
            for node in NODES:
                cluster.lab.run(node, "ip", "neigh", "flush", "dev", "br0")
                for family in FAMILIES if node != "n4" else (4,):
                    hop = world.router(SEGMENTS[node], family)
                    cluster.lab.run(node, "ping", "-c1", "-W1", hop, check=False)
            follow(cluster)
        crossed.silent_at_most(8)  # all hosts have to ask first, one after the other


def hand_over(cluster: Cluster) -> None:
    """With the MAC. Who stands by must not have it any more: a word of his, and everybody would send to him."""
    old, new = cluster.lab.plan.active, cluster.lab.plan.standby
    devices = [f"seg{segment.index}" for segment in cluster.lab.plan.segments]
    for device in devices:
        cluster.lab.run(new, "ip", "link", "set", device, "address", VIRTUAL_MAC)
    cluster.lab.fail_over(mac=VIRTUAL_MAC)
    for index, device in enumerate(devices):
        own = router_mac(index, ROUTERS.index(old))
        cluster.lab.run(old, "ip", "link", "set", device, "address", own)
    cluster.lab.start_frames(new).send(script.announcements(cluster.lab.plan))


def test_address_that_moves_with_its_mac_is_no_news(cluster: Cluster) -> None:
    """VRRP with a virtual MAC: switches of the network learn where it is, flows say the same."""
    hand_over(cluster)
    follow(cluster)
    for name in ("fail-over with the MAC", "and back"):
        with crossing(cluster, name, [*ROUTED, FROM_AFAR]) as crossed:
            sent = cluster.sent()
            hand_over(cluster)
            time.sleep(1)  # for questions that it might give rise to
            assert cluster.sent() == sent
        crossed.silent_at_most(1)
    cluster.lab.fail_over()
    follow(cluster)


def test_fail_over_without_a_controller_is_followed_by_replies_at_once_and_by_the_rest_later(
    cluster: Cluster,
) -> None:
    for name in ("fail-over, nobody there", "and back"):
        with crossing(cluster, name, [*ROUTED, FROM_AFAR]) as crossed:
            cluster.product.stop()
            began = time.monotonic()
            cluster.lab.fail_over()
            time.sleep(1.5)
            cluster.product.start()
            cluster.ready()
            follow(cluster)
            away = time.monotonic() - began
            time.sleep(1)  # for connections that were given up to be made again
        print(f"replies waited {crossed.longest('remote →'):.2f} s, others {crossed.longest():.2f} s of {away:.2f} s")
        crossed.silent_at_most(1, "remote →")
        assert crossed.longest() < away + 3


def test_router_by_its_link_local_address_is_followed(cluster: Cluster) -> None:
    changed = [noted(name, gateways=f"{world.router(SEGMENTS[name], 4)},fe80::1") for name in ("n1", "n3")]
    with crossing(cluster, "next hop link-local", [*ROUTED, FROM_AFAR]) as crossed:
        cluster.put(*changed)
        cluster.ready()
    crossed.nothing_lost()
    for name in ("fail-over of a link-local next hop", "and back"):
        with crossing(cluster, name, [*ROUTED, FROM_AFAR]) as crossed:
            cluster.lab.fail_over()
            follow(cluster)
        crossed.silent_at_most(1)
    cluster.put(*(world.node_object(name) for name in ("n1", "n3")))
    cluster.ready()
