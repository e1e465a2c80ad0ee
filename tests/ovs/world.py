"""The cluster of these tests, and who is who in it.

    n1 (a b v4 v6)   n2 (c e)   n4 (p, IPv4 only)   outside (Y)
    └────────────────┴──────────┴───────────────────┤
    n3 (d g) ────────────────────────────────────── router ──── remote (X)
    n5 (h) ─────────────────────────────────────────┘

Every place runs one echo server that answers with the place's name. Every service has TCP and UDP on the same
port number; what stands behind it says its name.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from lab.plan import REMOTE_MAC
from tests.ovs import objects
from tests.ovs.objects import Object, PortOf

SERVICE_RANGES = ("10.96.0.0/16", "fd00:96::/112")
VIRTUAL = {4: "169.254.0.253", 6: "fd00:5b::fd"}
PORTS = {"tcp": PortOf("tcp", 80, 8080), "udp": PortOf("udp", 80, 5353)}
PROTOCOLS: tuple[Literal["tcp"], Literal["udp"]] = ("tcp", "udp")
FAMILIES = (4, 6)
NETS = (77, 88, 99)  # in the addresses of the segments
ROUTER_MACS = tuple(f"fe:00:00:00:{segment:02x}:01" for segment in range(len(NETS)))
OUTSIDE_MAC, FAR_MAC = "ee:00:00:00:00:c8", REMOTE_MAC


class Place(NamedTuple):
    """Something with a network namespace: a node, a pod, or a client outside the cluster.

    `node`: of a pod; `segment`: None for what is behind the router on no node's segment.
    """

    name: str
    kind: str  # "node", "pod" or "outside"
    addresses: dict[int, str]  # by family
    segment: int | None
    node: str = ""
    mac: str = ""


def _node(number: int, segment: int, families: tuple[int, ...] = FAMILIES) -> Place:
    net = NETS[segment]
    all_ = {4: f"192.168.{net}.{100 + number}", 6: f"fd00:{net}::{100 + number}"}
    return Place(
        f"n{number}", "node", {f: all_[f] for f in families}, segment, f"n{number}", f"aa:00:00:00:00:{number:02x}"
    )


def _pod(name: str, host: int, last: int, families: tuple[int, ...] = FAMILIES) -> Place:
    all_ = {4: f"10.10.{host}.{last}", 6: f"fd00:10:{host}::{last}"}
    return Place(name, "pod", {f: all_[f] for f in families}, SEGMENTS[f"n{host}"], f"n{host}")


SEGMENTS = {"n1": 0, "n2": 0, "n3": 1, "n4": 0, "n5": 2}
NODES = {
    place.name: place
    for place in (_node(number, SEGMENTS[f"n{number}"], (4,) if number == 4 else FAMILIES) for number in range(1, 6))
}
PODS = {
    place.name: place
    for place in (
        _pod("a", 1, 10),
        _pod("b", 1, 11),
        _pod("v4", 1, 14, (4,)),
        _pod("v6", 1, 16, (6,)),
        _pod("c", 2, 10),
        _pod("e", 2, 11),
        _pod("d", 3, 10),
        _pod("g", 3, 11),
        _pod("p", 4, 10, (4,)),
        _pod("h", 5, 10),
    )
}
OUTSIDE = {
    "outside": Place("outside", "outside", {4: "192.168.77.200", 6: "fd00:77::200"}, 0),
    "remote": Place("remote", "outside", {4: "203.0.113.9", 6: "fd00:203::9"}, None),
}
PLACES = {**NODES, **PODS, **OUTSIDE}
ENTRIES = {"outside": "n1", "remote": "n3"}  # the node that a client outside may use as next hop of service addresses


def gateway(node: str, family: int) -> str:
    """What gw0 of a node holds: the first address of the podCIDR."""
    return {4: f"10.10.{node[1:]}.1", 6: f"fd00:10:{node[1:]}::1"}[family]


def snat(node: str, family: int) -> str:
    """The second address of the podCIDR, which nobody holds."""
    return {4: f"10.10.{node[1:]}.2", 6: f"fd00:10:{node[1:]}::2"}[family]


def router(segment: int, family: int) -> str:
    return {4: f"192.168.{NETS[segment]}.1", 6: f"fd00:{NETS[segment]}::1"}[family]


class Service(NamedTuple):
    """`endpoints` by protocol: names of places."""

    name: str
    number: int
    endpoints: Mapping[str, tuple[str, ...]]
    families: tuple[int, ...] = FAMILIES
    ready: bool = True

    @property
    def addresses(self) -> dict[int, str]:
        all_ = {4: f"10.96.0.{self.number}", 6: f"fd00:96::{self.number}"}
        return {family: all_[family] for family in self.families}

    def backends(self, protocol: str, family: int) -> tuple[str, ...]:
        """Who may answer."""
        if not self.ready:
            return ()
        return tuple(name for name in self.endpoints.get(protocol, ()) if family in PLACES[name].addresses)

    def objects(self) -> list[Object]:
        found = [objects.service(self.name, list(self.addresses.values()), PORTS.values())]
        for protocol, names in self.endpoints.items():
            ends = {
                name: (PLACES[name].addresses.values(), PLACES[name].node or None)
                for name in names
                if set(PLACES[name].addresses) & set(self.families)
            }
            found += objects.slices(self.name, PORTS[protocol], ends, ready=self.ready)
        return found


def both(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(PROTOCOLS, names)


SERVICES = {
    service.name: service
    for service in (
        Service("every", 10, both("a", "c", "d")),
        Service("only-b", 11, both("b")),
        Service("only-e", 12, both("e")),
        Service("only-g", 13, both("g")),
        Service("only-p", 14, both("p")),
        Service("only-h", 16, both("h")),
        Service("split", 15, {"tcp": ("a",), "udp": ("c",)}),
        Service("hosts", 20, both("n1", "n2", "n3")),
        Service("host-1", 21, both("n1")),
        Service("host-3", 23, both("n3")),
        Service("mixed", 24, both("b", "n2", "remote")),
        Service("near", 30, both("outside")),
        Service("far", 31, both("remote")),
        Service("none", 40, {}),
        Service("unready", 41, both("b", "e"), ready=False),
        Service("single-4", 50, both("a", "v4", "e"), (4,)),
        Service("single-6", 60, both("a", "v6", "e"), (6,)),
    )
}


def node_object(name: str, mac: str | None = "") -> Object:
    """`mac` "": its own; None: no annotation."""
    place, number = NODES[name], int(name[1:])
    lengths = {4: 24, 6: 64}
    return objects.node(
        name,
        number,
        place.mac if mac == "" else mac,
        [f"{address}/{lengths[family]}" for family, address in place.addresses.items()],
        [router(SEGMENTS[name], family) for family in place.addresses],
        [{4: f"10.10.{number}.0/24", 6: f"fd00:10:{number}::/64"}[family] for family in place.addresses],
    )


def pod_object(name: str) -> Object:
    place = PODS[name]
    return objects.pod(name, place.node, place.addresses.values())


def everything() -> list[Object]:
    return [
        *map(node_object, NODES),
        *map(pod_object, PODS),
        objects.service_cidr(list(SERVICE_RANGES)),
        *(one for service in SERVICES.values() for one in service.objects()),
    ]
