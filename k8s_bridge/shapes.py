"""Raw shapes: the few fields of Kubernetes JSON that matter, decoded without looking at the rest.

Only types are checked here, and null is what Kubernetes takes it for: absent. What the values mean is decided in
`translate`, what becomes of those that have another type in `wrong_types`. Fields that a person writes by hand as
annotations or labels are `object`: they are read as text by those who know which matter.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Raw, Struct, field

ANNOTATION_DATAPATH_ID = "signalbox.dev/datapath-id"
ANNOTATION_UPLINK = "signalbox.dev/uplink"
ANNOTATION_ADDRESSES = "signalbox.dev/node-addresses"
ANNOTATION_GATEWAYS = "signalbox.dev/gateways"
ANNOTATION_UPLINK_MTU = "signalbox.dev/uplink-mtu"
ANNOTATION_MTU = "signalbox.dev/mtu"  # of a pod's interface
ANNOTATION_MAC = "signalbox.dev/mac-address"
ANNOTATION_ANTREA_MAC = "node.antrea.io/mac-address"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_SERVICE = "kubernetes.io/service-name"
LABEL_PROXY = "service.kubernetes.io/service-proxy-name"

Number = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]  # int32, as all that are read here


class Shape(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Field names are camelCase on the wire; exceptions are spelled out. They hold no cycles to collect."""


class Annotations(Shape, frozen=True):
    """Those that are read, out of the many that an object has (`notes`)."""

    datapath_id: Any = field(name=ANNOTATION_DATAPATH_ID, default=None)
    uplink: Any = field(name=ANNOTATION_UPLINK, default=None)
    addresses: Any = field(name=ANNOTATION_ADDRESSES, default=None)
    gateways: Any = field(name=ANNOTATION_GATEWAYS, default=None)
    uplink_mtu: Any = field(name=ANNOTATION_UPLINK_MTU, default=None)
    mtu: Any = field(name=ANNOTATION_MTU, default=None)
    mac: Any = field(name=ANNOTATION_MAC, default=None)
    antrea_mac: Any = field(name=ANNOTATION_ANTREA_MAC, default=None)


class Labels(Shape, frozen=True):
    zone: Any = field(name=LABEL_ZONE, default=None)
    service: Any = field(name=LABEL_SERVICE, default=None)
    proxy: Any = field(name=LABEL_PROXY, default=None)


class Meta(Shape, frozen=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    creation_timestamp: str | None = None
    resource_version: str | None = None
    annotations: dict[str, Any] | None = None
    labels: Labels | None = None


def notes(meta: Meta) -> Annotations:
    return msgspec.convert(meta.annotations or {}, Annotations)


class IdentityMeta(Shape, frozen=True):
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None


class Identity(Shape, frozen=True):
    """Enough to name an object whose other fields do not decode, or do not matter any more."""

    metadata: IdentityMeta


# -- Node


class NodeSpec(Shape, frozen=True):
    pod_cidrs: list[str] | None = field(name="podCIDRs", default=None)
    pod_cidr: str | None = field(name="podCIDR", default=None)


class NodeAddress(Shape, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Shape, frozen=True):
    addresses: list[NodeAddress] | None = None


class Node(Shape, frozen=True):
    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


# -- Pod


class PodSpec(Shape, frozen=True):
    node_name: str | None = None
    host_network: bool | None = None


class PodIp(Shape, frozen=True):
    ip: str | None = None


class PodStatus(Shape, frozen=True):
    phase: str | None = None
    pod_ip: str | None = field(name="podIP", default=None)
    pod_ips: list[PodIp] | None = field(name="podIPs", default=None)


class Pod(Shape, frozen=True):
    metadata: Meta
    spec: PodSpec | None = None
    status: PodStatus | None = None


# -- Service


class ServicePort(Shape, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: Number | None = None
    node_port: Number | None = None


class ClientIpAffinity(Shape, frozen=True):
    timeout_seconds: Number | None = None


class AffinityConfig(Shape, frozen=True):
    client_ip: ClientIpAffinity | None = field(name="clientIP", default=None)


class ServiceSpec(Shape, frozen=True):
    type: str | None = None
    external_ips: list[str] | None = field(name="externalIPs", default=None)
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    session_affinity: str | None = None
    session_affinity_config: AffinityConfig | None = None
    load_balancer_source_ranges: list[str] | None = None
    health_check_node_port: Number | None = None
    cluster_ip: str | None = field(name="clusterIP", default=None)
    cluster_ips: list[str] | None = field(name="clusterIPs", default=None)
    ports: list[ServicePort] | None = None


class Ingress(Shape, frozen=True):
    ip: str | None = None
    ip_mode: str | None = None


class LoadBalancer(Shape, frozen=True):
    ingress: list[Ingress] | None = None


class ServiceStatus(Shape, frozen=True):
    load_balancer: LoadBalancer | None = None


class Service(Shape, frozen=True):
    metadata: Meta
    spec: ServiceSpec | None = None
    status: ServiceStatus | None = None


# -- EndpointSlice


class EndpointPort(Shape, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: Number | None = None


class Conditions(Shape, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Hint(Shape, frozen=True):
    name: str | None = None


class Hints(Shape, frozen=True):
    for_zones: list[Hint] | None = None
    for_nodes: list[Hint] | None = None


class Endpoint(Shape, frozen=True):
    addresses: list[str] | None = None
    conditions: Conditions | None = None
    node_name: str | None = None
    hints: Hints | None = None


class EndpointSlice(Shape, frozen=True):
    metadata: Meta
    address_type: str | None = None
    ports: list[EndpointPort] | None = None
    endpoints: list[Endpoint] | None = None


# -- ServiceCIDR


class ServiceCidrSpec(Shape, frozen=True):
    cidrs: list[str] | None = None


class ServiceCidr(Shape, frozen=True):
    metadata: Meta
    spec: ServiceCidrSpec | None = None


# -- lists, watch events and errors of the API


class ListMeta(Shape, frozen=True):
    resource_version: str | None = None
    continue_: str | None = field(name="continue", default=None)


class ObjectList(Shape, frozen=True):
    """One page. Items stay undecoded, so that one bad item cannot spoil the page."""

    metadata: ListMeta = ListMeta()
    items: list[Raw] | None = None


class WatchEvent(Shape, frozen=True):
    type: str
    object: Raw


class Status(Shape, frozen=True):
    """What the API server says when it refuses something."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
