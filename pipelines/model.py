"""What a cluster is, as far as packets are concerned: frozen values with only the fields that matter.

Sources (`k8s_bridge`) translate Kubernetes JSON into these values item by item. An object that cannot be
used becomes `Invalid`; an object of which only a part cannot be used keeps the rest and lists `problems`.
Every value is keyed by (kind, key) in one flat space, and a change is level-triggered: it says what the
value is now, never what happened to it.
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from pipelines.addresses import Cidr, Interface, Ip, parse_ip


class Kind(StrEnum):
    """The kinds of input. The text is what users see in errors and in the API."""

    NODE = "Node"
    POD = "Pod"
    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    SERVICE_CIDR = "ServiceCIDR"
    SETTINGS = "Settings"  # one value, key ""
    PORT = "Port"  # observation, key "NODE PORTNAME"
    NEIGHBOR = "Neighbor"  # observation, see `neighbor_key`: the MAC that ARP or neighbour discovery found
    EVIDENCE = "Evidence"  # observation, keys of `neighbor_key` and `router_evidence_key`: what read-back showed
    DOWN = "Down"  # observation, key NODE: its switch has been away for long; absence says nothing
    CONTROLLER = "Controller"  # observation, key ADDRESS: where switches have found this controller
    CLAIM = "Claim"  # observation, key ADDRESS: the network beneath was asked, and it is ours to announce


class Protocol(StrEnum):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"

    @property
    def number(self) -> int:
        return _NUMBERS[self]


_NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}


class Problem(Struct, frozen=True, gc=False):
    """Something about one object that a person should mend: `field` in dotted Kubernetes spelling."""

    kind: str
    key: str
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{f'{self.kind} {self.key}'.rstrip()}: {self.field}: {self.reason}"


class Invalid(Struct, frozen=True, gc=False):
    """In place of a value that cannot be used at all."""

    problems: tuple[Problem, ...]


class Node(Struct, frozen=True, gc=False):
    """A node. Key: its name.

    `addresses` from the annotation `signalbox.dev/node-addresses`, else from status (length None).
    `mac`, `datapath_id`, `uplink`, `gateways` and `mtu` (of the uplink, in bytes) from annotations; None or () when
    absent.
    """

    name: str
    uid: str = ""
    created: str = ""  # RFC 3339, as Kubernetes gives it; orders claims, oldest first
    pod_cidrs: tuple[Cidr, ...] = ()
    addresses: tuple[Interface, ...] = ()
    mac: int | None = None
    datapath_id: int | None = None
    uplink: str | None = None
    gateways: tuple[Ip, ...] = ()
    zone: str = ""
    mtu: int | None = None
    problems: tuple[Problem, ...] = ()


class Pod(Struct, frozen=True, gc=False):
    """A pod that may have a port on a bridge. Key: "NAMESPACE/NAME".

    `ips` is empty while the pod has none, when it uses the host's network, and after it has finished.
    """

    namespace: str
    name: str
    uid: str = ""
    created: str = ""
    node: str = ""
    ips: tuple[Ip, ...] = ()
    mtu: int | None = None  # of its interface, by annotation
    problems: tuple[Problem, ...] = ()


class Policy(StrEnum):
    """Which endpoints a connection may get: any of the cluster, or those on the node that it came to."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class ServicePort(Struct, frozen=True, gc=False):
    name: str  # "" when the service has one unnamed port
    protocol: Protocol
    port: int
    node_port: int = 0  # 0: none


class Service(Struct, frozen=True, gc=False):
    """A service. Key: "NAMESPACE/NAME".

    One that is not ours to serve (headless, ExternalName, of another proxy, without ClusterIP yet) has a reason in
    `left_alone` and nothing that flows could follow from: it is there to be asked for.
    """

    namespace: str
    name: str
    uid: str = ""
    created: str = ""
    cluster_ips: tuple[Ip, ...] = ()
    external_ips: tuple[Ip, ...] = ()
    load_balancer_ips: tuple[Ip, ...] = ()  # of its status; those with `ipMode: Proxy` are the load balancer's own
    ports: tuple[ServicePort, ...] = ()
    internal_policy: Policy = Policy.CLUSTER
    external_policy: Policy = Policy.CLUSTER
    affinity: int = 0  # seconds for which a client keeps its endpoint; 0: no affinity
    source_ranges: tuple[Cidr, ...] = ()  # clients that may use its load balancer addresses; (): all
    health_check_port: int = 0  # 0: none
    left_alone: str = ""  # why it is not served; "": it is
    problems: tuple[Problem, ...] = ()


class EndpointPort(Struct, frozen=True, gc=False):
    name: str
    protocol: Protocol
    port: int


class Endpoint(Struct, frozen=True, gc=False):
    """One address of a slice. The three conditions as KEP-1672 reads them (absent ready and serving are true)."""

    ip: Ip
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    node: str = ""
    for_zones: tuple[str, ...] = ()  # hints: the topology zones and nodes whose clients should get it
    for_nodes: tuple[str, ...] = ()


class EndpointSlice(Struct, frozen=True, gc=False):
    """Key: "NAMESPACE/NAME" of the slice; `service` is "NAMESPACE/NAME" of the service it belongs to."""

    namespace: str
    name: str
    service: str
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    problems: tuple[Problem, ...] = ()


class ServiceCidr(Struct, frozen=True, gc=False):
    """Key: the object's name. The ranges that ClusterIPs are taken from."""

    name: str
    created: str = ""
    cidrs: tuple[Cidr, ...] = ()
    problems: tuple[Problem, ...] = ()


class MacSource(StrEnum):
    """Where a peer's MAC may come from, in the order a user lists them."""

    SWITCH = "switch"
    ANNOTATION = "annotation"
    NEIGHBOR = "neighbor"


class TrafficMode(StrEnum):
    """How packets of pods reach other nodes: as they are, by tunnel into other subnets only, or always by tunnel."""

    NO_ENCAP = "noEncap"
    HYBRID = "hybrid"
    ENCAP = "encap"


class Tunnel(StrEnum):
    GENEVE = "geneve"
    VXLAN = "vxlan"

    @property
    def udp_port(self) -> int:
        return {"geneve": 6081, "vxlan": 4789}[self.value]


class EgressMode(StrEnum):
    """How pods reach what is outside the cluster: by gw0 and the host, or straight from the switch."""

    GATEWAY = "gateway"
    DIRECT = "direct"


class ReplyPath(StrEnum):
    """Where a switch keeps the MAC that clients beyond the cluster were last seen at."""

    LEARN = "learn"  # in flows that it learns, one for each client, and beyond their limit as with `label`
    LABEL = "label"  # in the connection, written anew with every packet of the client


class Served(StrEnum):
    """Which services are ours, for clusters that move from another proxy or back."""

    ALL = "all"
    CLUSTER_IP = "cluster-ip"
    OFF = "off"


class Settings(Struct, frozen=True, gc=False):
    """What an operator decided that changes flows, and how far the source of objects can be believed."""

    service_cidrs: tuple[Cidr, ...] = ()  # beside those of ServiceCIDR objects
    mac_sources: tuple[MacSource, ...] = (MacSource.SWITCH, MacSource.ANNOTATION, MacSource.NEIGHBOR)
    ask_routers: bool = True  # by ARP and neighbour discovery for the MACs of next hops
    traffic_mode: TrafficMode = TrafficMode.NO_ENCAP
    tunnel: Tunnel = Tunnel.GENEVE
    egress: EgressMode = EgressMode.GATEWAY
    no_masquerade: tuple[Cidr, ...] = ()  # destinations outside that pods reach with their own address
    snat_ports: tuple[int, int] = (61440, 65535)  # of node addresses, reserved on the host; first and last
    uplink_mtu: int = 1500  # bytes; of nodes whose annotation says nothing
    reply_path: ReplyPath = ReplyPath.LEARN
    reply_idle_timeout: int = 300  # seconds without a reply after which a learned flow goes; 0: never
    reply_hard_timeout: int = 3600  # seconds without a request
    reply_limit: int = 4_000  # learned flows of one family on one switch, 0: any number
    virtual_ip4: Ip = parse_ip("169.254.0.253")
    virtual_ip6: Ip = parse_ip("fd00:5b::fd")
    services: Served = Served.ALL
    node_port_addresses: tuple[Cidr, ...] = ()  # node addresses in these answer to NodePorts; (): all of them
    source_ranges_everywhere: bool = False  # source ranges hold for external IPs and NodePorts too
    announce: tuple[Cidr, ...] = ()  # external addresses of services in these are answered for on their segment
    source_complete: bool = True  # False: objects may be missing that were there before the controller started
    endpoints_per_service_port: int = 10_000


class Port(Struct, frozen=True, gc=False):
    """A port of a node's bridge as the switch describes it. Observation: absence changes nothing elsewhere."""

    number: int
    mac: int


class Neighbor(Struct, frozen=True, gc=False):
    """The MAC that answered for an address. `reachable` False: it has ceased to answer; the MAC stays."""

    mac: int
    reachable: bool = True


class Evidence(Struct, frozen=True, gc=False):
    """A MAC that was in force when the flows were read back. `asked`: the switch watched for answers about it."""

    mac: int
    asked: bool = False


class Down(Struct, frozen=True, gc=False):
    """A node that nothing can be asked of by its switch."""


class Listening(Struct, frozen=True, gc=False):
    """Switches find the controller at this TCP port of an address."""

    port: int


class Claimed(Struct, frozen=True, gc=False):
    """On this segment nobody else has the address. `node`: who answered for it last."""

    node: str
    segment: str


Observation = Port | Neighbor | Evidence | Down | Listening | Claimed
Value = Node | Pod | Service | EndpointSlice | ServiceCidr | Settings | Observation | Invalid


class Change(NamedTuple):
    """(kind, key) is now `value`; None: it is gone."""

    kind: Kind
    key: str
    value: Value | None


def port_key(node: str, port: str) -> str:
    """The key of a PORT observation. Neither part can hold a space."""
    return f"{node} {port}"


def neighbor_key(node: str, next_hop: Ip | None = None) -> str:
    """The key of a NEIGHBOR: a node's uplink as its peers find it, or a next hop as that node finds it."""
    return node if next_hop is None else f"{node} {next_hop}"


def router_evidence_key(node: str, family: int) -> str:
    """The key of an EVIDENCE about the router that a node uses."""
    return f"{node} router {family}"
