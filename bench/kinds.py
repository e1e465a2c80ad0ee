"""The kinds of service that the bench's clusters have, and what each is made of here and in OVN."""

from enum import StrEnum

import msgspec


class ServiceKind(StrEnum):
    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    LOCAL = "LoadBalancer, externalTrafficPolicy Local"
    AFFINITY = "ClusterIP with session affinity"

    @property
    def has_node_port(self) -> bool:
        return self in {ServiceKind.NODE_PORT, ServiceKind.LOAD_BALANCER, ServiceKind.LOCAL}

    @property
    def has_load_balancer(self) -> bool:
        return self in {ServiceKind.LOAD_BALANCER, ServiceKind.LOCAL}


class Kinds(StrEnum):
    """What a cluster's services are: all the same, or one of each kind after the other."""

    CLUSTER_IP = "cluster-ip"
    NODE_PORT = "node-port"
    LOAD_BALANCER = "load-balancer"
    LOCAL = "local"
    AFFINITY = "affinity"
    MIXED = "mixed"

    def of(self, service: int) -> ServiceKind:
        return _ONE.get(self) or tuple(ServiceKind)[service % len(ServiceKind)]


_ONE = dict(zip(Kinds, ServiceKind, strict=False))
AFFINITY_SECONDS = 10800


def spec(kind: ServiceKind, cluster_ip: str, port: int, target: int, node_port: int) -> dict[str, object]:
    """The `spec` of a service with one TCP port."""
    ports: dict[str, object] = {"port": port, "targetPort": target, "protocol": "TCP"}
    found: dict[str, object] = {"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ports": [ports]}
    found["type"] = "ClusterIP"
    if kind.has_node_port:
        ports["nodePort"] = node_port
        found["type"] = "LoadBalancer" if kind.has_load_balancer else "NodePort"
    if kind is ServiceKind.LOCAL:
        found["externalTrafficPolicy"] = "Local"
    if kind is ServiceKind.AFFINITY:
        found["sessionAffinity"] = "ClientIP"
        found["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}
    return found


class Vip(msgspec.Struct, frozen=True):
    """An address and port of a load balancer in OVN, and the backends behind it, as text."""

    at: str
    backends: tuple[str, ...]
