"""Replies to clients outside follow the MAC that the client's packets came from last, in the middle of connections."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import unpack_from
from typing import Any

import pytest

from lab.switch import BRIDGE
from lab.traffic import Probe
from pipelines.ids import LEARNED, NOT_LEARNED_MASK, OWN_COOKIE
from tests.ovs import cluster as clusters
from tests.ovs import wire
from tests.ovs.cluster import REVALIDATION, Cluster, Streams
from tests.ovs.test_drift import diff
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, OUTSIDE_MAC, PODS, PORTS, PROTOCOLS, SERVICE_RANGES, SERVICES

pytestmark = pytest.mark.ovs

SETTINGS: dict[str, Any] = {"ask_routers": False}
MODES: dict[str, dict[str, Any]] = {
    "learn": {"reply_path": "learn", "reply_limit": 4000},
    "learn, full": {"reply_path": "learn", "reply_limit": 1},
    "label": {"reply_path": "label"},
}
WISHES = [
    Probe(protocol, address, PORTS[protocol].port, timeout=5, tries=3)
    for protocol in PROTOCOLS
    for service in ("only-b", "only-e")
    for address in SERVICES[service].addresses.values()
] + [Probe("tcp", address, PORTS["tcp"].target) for address in PODS["a"].addresses.values()]
AT_ONCE = 0.1  # seconds
TARGETS = ("a", "only-b", "only-e")  # a pod, a service with its endpoint on the node, and one with it on another
OTHER_MAC = "ee:00:00:00:01:c8"
IP = {4: "ip", 6: "ipv6"}


@pytest.fixture(scope="module")
def n1(cluster: Cluster) -> Cluster:
    """n1 is the way into the cluster: by their own MAC for clients on the segment, by a router's for remote ones."""
    for family, services in zip(FAMILIES, SERVICE_RANGES, strict=True):
        via = ("via", NODES["n1"].addresses[family])
        pods = {4: "10.10.1.0/24", 6: "fd00:10:1::/64"}[family]
        for prefix in (pods, services):
            cluster.lab.run("outside", "ip", "route", "replace", prefix, *via)
    route_services(cluster, cluster.lab.plan.active)
    return cluster


def route_services(cluster: Cluster, router: str) -> None:
    """Also on the one that stands by and has no address there."""
    for family, services in zip(FAMILIES, SERVICE_RANGES, strict=True):
        via = ("via", NODES["n1"].addresses[family], "dev", "seg0", "onlink")
        cluster.lab.run(router, "ip", "route", "replace", services, *via)


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest, n1: Cluster) -> str:
    n1.product.restart(MODES[request.param])
    n1.ready()
    name: str = request.param
    return name


def learned(cluster: Cluster, match: str = "") -> list[str]:
    """What n1 has learned, without cookies and time-outs."""
    lines = cluster.lab.ofctl("n1", "--no-stats", "dump-flows", BRIDGE, f"table=75{match and ','}{match}").splitlines()
    return sorted(line.partition("priority=100,")[2] for line in lines if clusters.LEARNED.search(line))


def forget(cluster: Cluster) -> None:
    cluster.lab.ofctl("n1", "del-flows", BRIDGE, f"cookie={OWN_COOKIE | LEARNED:#x}/{NOT_LEARNED_MASK:#x}")


def way_back(client: str, family: int, mac: str) -> str:
    """The class of the way and the MAC; no port's number (rule R4)."""
    address = OUTSIDE[client].addresses[family]
    to = f"ip,nw_dst={address}" if family == 4 else f"ipv6,ipv6_dst={address}"
    return f"{to} actions=set_field:{mac}->eth_dst,set_field:0x300000/0xf00000->reg0"


def set_mac(cluster: Cluster, mac: str) -> None:
    cluster.lab.run("outside", "ip", "link", "set", "eth0", "address", mac)


def unharmed(streams: Streams, most: float = 1000) -> None:
    """What was on its way to the old MAC may be lost; no connection is, and none waits for long (milliseconds)."""
    assert {name: stream for name, stream in streams.broken.items() if stream.breaks} == {}
    assert streams.longest < most


def timed(path: Path) -> Iterator[tuple[float, Frame]]:
    """Seconds and frames of a capture."""
    data, at = path.read_bytes(), 24
    while at + 16 <= len(data):
        seconds, micros, length = unpack_from("=III", data, at)
        yield seconds + micros / 1e6, wire.frame(data[at + 16 : at + 16 + length])
        at += 16 + length


@contextmanager
def turned_at_once(cluster: Cluster, mode: str, at: tuple[str, str], client: str, old: str, new: str) -> Iterator[None]:
    """In the block the client's packets begin to come from `new`; soon afterwards no reply goes to `old`.

    At a place and device. What is learned holds for all connections of an address, a label for its own.
    """
    addresses = set(OUTSIDE[client].addresses.values())
    requests: dict[tuple[object, ...], float] = {}  # the first from the new MAC
    replies: dict[tuple[object, ...], float] = {}  # the last to the old MAC
    turned: dict[tuple[object, ...], float] = {}  # the first to the new MAC
    capture = cluster.lab.capture(*at, "tcp or udp")
    try:
        yield
        time.sleep(REVALIDATION)
    finally:
        capture.stop()
    for when, frame in timed(capture.path):
        if frame.src == new and frame.source in addresses:
            which = (frame.source, *(() if mode == "learn" else (frame.kind, frame.ports[0])))
            requests.setdefault(which, when)
        elif frame.destination in addresses:
            which = (frame.destination, *(() if mode == "learn" else (frame.kind, frame.ports[1])))
            if frame.dst == old:
                replies[which] = when
            elif frame.dst == new:
                turned.setdefault(which, when)
    assert len(requests) >= len(addresses), "not all have sent from the new MAC"
    assert turned.keys() == requests.keys()
    late = {which: replies[which] - when for which, when in requests.items() if replies.get(which, 0) > when + AT_ONCE}
    assert late == {}
    assert min(turned[which] - when for which, when in requests.items()) < AT_ONCE


def test_client_that_gets_another_mac_is_answered_there_at_once(n1: Cluster, mode: str) -> None:
    """A11 with MACs: connections to a pod and through services, TCP and UDP, in both families."""
    with n1.streams([("outside", target) for target in TARGETS]) as streams:
        with turned_at_once(n1, mode, ("outside", "eth0"), "outside", OUTSIDE_MAC, OTHER_MAC):
            set_mac(n1, OTHER_MAC)
        known = {family: learned(n1, IP[family]) for family in FAMILIES}
        with turned_at_once(n1, mode, ("outside", "eth0"), "outside", OTHER_MAC, OUTSIDE_MAC):
            set_mac(n1, OUTSIDE_MAC)
    unharmed(streams)
    for family, flows in known.items():
        if mode != "learn, full":  # what is there beyond the limit may be old: nobody looks there
            assert flows == ([way_back("outside", family, OTHER_MAC)] if mode == "learn" else [])


def test_router_that_fails_over_is_followed_at_once_in_connections_from_afar(n1: Cluster, mode: str) -> None:
    """What the controller believes of the router is another matter (rule R12)."""
    with n1.streams([("remote", target) for target in TARGETS]) as streams:
        for _ in range(2):  # there and back
            old, new = n1.lab.router_macs()
            route_services(n1, n1.lab.plan.standby)
            with turned_at_once(n1, mode, ("n1", "eth1"), "remote", old, new):
                n1.lab.fail_over()
    unharmed(streams)


def test_every_client_is_answered_whatever_is_learned(n1: Cluster, mode: str) -> None:
    """Beyond the limit nothing is learned, and between nodes and pods nothing is learned at all."""
    forget(n1)
    n1.check_paths()
    assert learned(n1) == []
    answers = n1.ask_all(dict.fromkeys(OUTSIDE, WISHES))
    assert [answer.error for client in OUTSIDE for answer in answers[client]] == [""] * len(WISHES) * 2
    clients = {"learn": 2, "learn, full": 1, "label": 0}[mode]
    assert [len(learned(n1, IP[family])) for family in FAMILIES] == [clients] * 2


# --- learned flows belong to the switch (rule R10) ------------------------------------------------------------

learning = pytest.mark.parametrize("mode", ["learn"], indirect=True, scope="module")


@learning
def test_what_was_learned_is_no_drift_and_outlives_the_controller(n1: Cluster, mode: str) -> None:
    n1.ask_all(dict.fromkeys(OUTSIDE, WISHES))
    before = learned(n1)
    assert len(before) == 2 * len(OUTSIDE)
    said = diff(n1)
    assert (said.returncode, said.stdout.count(": no difference\n")) == (0, len(NODES)), said.stdout + said.stderr
    n1.product.restart({"audit_interval": 0.5})
    n1.ready()
    n1.wait(lambda: audited(n1), "an audit")
    assert n1.sent() == 0
    assert learned(n1) == before
    n1.product.restart(
        {"reply_idle_timeout": 200}
    )  # other learning flows, with the cookies that they always learn with
    n1.ready()
    assert n1.sent() == 2 * len(NODES)
    assert learned(n1) == before


def audited(cluster: Cluster) -> bool:
    return all(row["audits"] for row in cluster.product.get("/v1/switches"))


@learning
def test_learned_flow_that_is_deleted_costs_nothing_and_comes_back(n1: Cluster, mode: str) -> None:
    with n1.streams([(client, target) for client in OUTSIDE for target in TARGETS]) as streams:
        for _ in range(3):
            n1.wait(lambda: len(learned(n1)) == 2 * len(OUTSIDE), "all clients to be learned")
            forget(n1)
    assert streams.broken == {}


@learning
def test_connections_go_on_when_the_other_way_of_remembering_is_chosen(n1: Cluster, mode: str) -> None:
    """There and back under streams of a client whose MAC changes each time."""
    with n1.streams([("outside", target) for target in TARGETS]) as streams:
        for other, old, new in (("label", OUTSIDE_MAC, OTHER_MAC), (mode, OTHER_MAC, OUTSIDE_MAC)):
            n1.product.restart(MODES[other])
            n1.ready()
            with turned_at_once(n1, other, ("outside", "eth0"), "outside", old, new):
                set_mac(n1, new)
    unharmed(streams)
