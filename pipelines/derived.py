"""Facts that follow from the model, each with a key: what they are called and what they hold.

How they come about is in `rules`. The kinds stand in the order in which rules make them, roughly.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from pipelines.addresses import BITS, Cidr, Interface, Ip, parse_cidr
from pipelines.model import Node, Protocol


class Derived(StrEnum):
    DATAPATH = "datapath"  # datapath id (16 hex digits) → node name
    MEMBER = "member"  # datapath id → Member
    NODE_ADDRESS = "node address"  # address → node name
    ROUTER_ADDRESS = "router address"  # address of a next hop → name of a node that has it
    NODES_AMONG_PODS = "addresses of nodes in podCIDRs"  # "" → tuple of Ip
    POD_CIDR_CLAIM = "podCIDR claim"  # prefix → (node, created)
    POD_CIDR = "podCIDR"  # prefix → PodCidr, none overlapping another
    POD_CIDR_LENGTHS = "podCIDR lengths"  # "" → the (family, length) pairs in use
    SEGMENT = "segment"  # segment name → True while a node is in it
    ZONE = "zone"  # topology zone → True while a node is in it
    UPLINK_MAC = "MAC of an uplink"  # "SEGMENT MAC" → node name
    NODE_NETWORK = "node network"  # node name → NodeNetwork
    ROUTER = "router"  # "NODE FAMILY" → Router
    POD_ADDRESS = "pod address"  # address → pod key
    LOCAL_POD = "pod"  # pod key → LocalPod
    BACKENDS = "backends"  # service port and family → tuple of Backend
    SERVICE_PORT = "service port"  # the same key → ServiceBackends
    ZONE_BACKENDS = "service port in a zone"  # the same key and a zone → ZoneBackends
    NODE_BACKENDS = "service port on a node"  # the same key and a node → NodeBackends
    GROUP_OWNER = "group owner"  # what a group is of → True
    GROUP_ID = "group id"  # the same key → number
    FRONTEND = "service address"  # "ADDRESS PROTOCOL PORT", or "NodePort FAMILY PROTOCOL PORT" → Frontend
    ENDPOINT = "endpoint"  # the same form → Target
    ENDPOINT_ADDRESS = "address of endpoints outside the pod network"  # address → True
    HOST_ENDPOINT = "endpoint on a host"  # the same, for those at a node's address
    SERVICE_RANGE = "service range"  # prefix → Cidr
    LONE_ADDRESS = "service address outside every range"  # address → Cidr of just that
    STATIONS = "nodes that can announce"  # segment → tuple of Station
    ANNOUNCEABLE = "address to announce"  # address → tuple of Opening
    ON_LINK = "address of a segment"  # address to announce → OnLink
    ANNOUNCED = "announced address"  # the same, while there is a node for it → Announced
    TRACKED = "tracked"  # prefix → Cidr or Ip: what host traffic is tracked with


class PodCidr(NamedTuple):
    cidr: Cidr
    node: str


READ_BACK = "read-back"


class PeerMac(NamedTuple):
    mac: int
    source: str  # one of MacSource, or READ_BACK


class Router(Struct, frozen=True, gc=False):
    """The next hop that a node uses for everything that is not on its segment. `mac` None: not known (yet)."""

    node: str
    ip: Ip
    mac: PeerMac | None


class NodeNetwork(Struct, frozen=True, gc=False):
    """A node as its peers see it. `cidrs` and `addresses` are those that it won.

    `asked`: whether its MAC is to be found out by asking, as nothing better tells it.
    """

    name: str
    cidrs: tuple[Cidr, ...]
    addresses: tuple[Ip, ...]
    segments: tuple[str, ...]
    mac: PeerMac | None
    asked: bool = False


class LocalPod(Struct, frozen=True, gc=False):
    key: str
    node: str
    port: str
    mac: int
    ips: tuple[Ip, ...]


class Backend(NamedTuple):
    ip: Ip
    port: int
    ready: bool
    serving_terminating: bool
    node: str = ""
    for_zones: tuple[str, ...] = ()
    for_nodes: tuple[str, ...] = ()


class Target(NamedTuple):
    """An endpoint to translate to."""

    ip: Ip
    port: int
    protocol: Protocol


class Entrance(StrEnum):
    """What kind of address clients use."""

    CLUSTER_IP = "ClusterIP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER = "load balancer"
    NODE_PORT = "NodePort"


class Frontend(Struct, frozen=True, gc=False):
    """Where clients find one port of a service. `ip` is the unspecified address of its family for a NodePort.

    `sources`: the clients that may use it, () for all.
    """

    ip: Ip
    protocol: Protocol
    port: int
    service: str
    backends: str  # key of the SERVICE_PORT
    entrance: Entrance = Entrance.CLUSTER_IP
    local: bool = False  # by its policy only endpoints of the node that a client came to
    sources: tuple[Cidr, ...] = ()

    @property
    def key(self) -> str:
        if self.entrance is Entrance.NODE_PORT:
            return node_port_key(self.ip.family, self.protocol, self.port)
        return tuple_key(self.ip, self.protocol, self.port)

    @property
    def said(self) -> str:
        """For people."""
        if self.entrance is Entrance.NODE_PORT:
            return f"{self.entrance} {self.port}/{self.protocol} of IPv{self.ip.family}"
        return f"{self.entrance} {self.ip} port {self.port}/{self.protocol}"


def node_port_key(family: int, protocol: Protocol, port: int) -> str:
    return f"{Entrance.NODE_PORT} IPv{family} {protocol} {port}"


class ServiceBackends(Struct, frozen=True, gc=False):
    """The endpoints that new connections of one service port and family may get, lowest address first."""

    key: str
    service: str
    protocol: Protocol
    targets: tuple[Target, ...]
    frontends: tuple[Frontend, ...] = ()  # those it wants; who has them says FRONTEND
    affinity: int = 0  # seconds


class ZoneBackends(Struct, frozen=True, gc=False):
    """Those of a service port that clients in one topology zone should get."""

    backends: ServiceBackends
    zone: str
    targets: tuple[Target, ...]


class NodeBackends(Struct, frozen=True, gc=False):
    """Those of a service port that are on one node (for Local policies), and those that its clients should get.

    Either is () when no frontend asks for it.
    """

    backends: ServiceBackends
    node: str
    local: tuple[Target, ...]
    hinted: tuple[Target, ...]


class Station(NamedTuple):
    """A node that has a switch and an uplink. `alive`: nothing is known to the contrary."""

    node: str
    alive: bool


class Opening(NamedTuple):
    """What an external address leads to: one port of a service. `local`: only on nodes with a ready endpoint."""

    service: str
    backends: str  # key of the SERVICE_PORT
    local: bool


class OnLink(NamedTuple):
    ip: Ip
    segment: str


class Announced(NamedTuple):
    """`node` answers for `ip` on `segment`, once it is `claimed`: asked about, and nobody else has it."""

    ip: Ip
    node: str
    segment: str
    claimed: bool


def tuple_key(ip: Ip, protocol: Protocol, port: int) -> str:
    return f"{ip} {protocol} {port}"


def service_port_key(service: str, port_name: str, protocol: Protocol, family: int) -> str:
    return f"{service} {port_name} {protocol} {family}"


def segment_name(family: int, interface: Interface | None) -> str:
    """The subnet of a node's first address of the family; `4:` or `6:` when no prefix is known."""
    subnet = interface.subnet if interface else None
    return str(subnet) if subnet else f"{family}:"


def segments(node: Node) -> tuple[str, ...]:
    """The IPv4 and the IPv6 segment of a node: peers of one segment reach each other without a router."""
    return tuple(
        segment_name(family, next((at for at in node.addresses if at.ip.family == family), None)) for family in (4, 6)
    )


def known_segment(name: str) -> bool:
    """False for the segment of nodes without a known prefix, which joins nobody."""
    return name not in ("4:", "6:")


@lru_cache(maxsize=16384)
def subnet(segment: str) -> Cidr:
    """Of a known segment."""
    return parse_cidr(segment)


def around(ip: Ip, segments: Iterable[str]) -> list[str]:
    """Those in whose subnet an address lies."""
    return [name for name in segments if known_segment(name) and subnet(name).__contains__(ip)]


def edge_of(ip: Ip, segment: str) -> bool:
    """Whether an address of a subnet is the first or last of an IPv4 one, which stand for all of it."""
    link = subnet(segment)
    bits = BITS[4] - link.length
    return ip.family == 4 and bits > 1 and ip.value - link.value in (0, (1 << bits) - 1)


def segment_family(name: str) -> int:
    return int(name[0]) if name in ("4:", "6:") else (6 if ":" in name else 4)


GROUP_SIZE = 900  # endpoints, so that a group of IPv6 endpoints fits in one OpenFlow message


def shares(owner: str, endpoints: int) -> tuple[str, ...]:
    """The owners of the groups that a choice among so many endpoints is divided into; () when one group holds them."""
    return () if endpoints <= GROUP_SIZE else tuple(f"{owner} #{n}" for n in range(-(-endpoints // (GROUP_SIZE // 2))))


def local_choice(service_port: str) -> str:
    """The owner of the group with the endpoints on the switch's own node."""
    return f"{service_port} local"


def zone_choice(service_port: str) -> str:
    """The owner of the group with the endpoints that hints give to the switch's zone."""
    return f"{service_port} zone"


def node_choice(service_port: str) -> str:
    """The same for the switch's own node, which may be in a zone, too."""
    return f"{service_port} node"
