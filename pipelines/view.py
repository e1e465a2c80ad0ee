"""What a rule or a feature may see while it runs, with every read recorded.

`Facts` holds all values, model and derived, by (kind, key). Reads made during the run of one task are
remembered as its dependencies: a change of one of them runs the task again. The typed views are what
features see; a FleetView simply has no node queries, so a fleet-wide unit cannot depend on a node.
"""

from enum import Enum
from typing import Any

from pipelines.addresses import Cidr, Ip
from pipelines.derived import (
    Derived,
    Frontend,
    NodeNetwork,
    PodCidr,
    Router,
    ServiceBackends,
    known_segment,
    segment_family,
)
from pipelines.model import Kind, Node, Port, Settings, TrafficMode, port_key
from pipelines.unit import Scope

FactKind = Kind | Derived
ALL = "\0all"  # stands for every key of a kind; no real key holds a NUL


FactId = tuple[FactKind, str]  # kind and key


class Facts:
    """All values. `reads` collects the ids that the running task has read."""

    def __init__(self) -> None:
        self._values: dict[FactKind, dict[str, Any]] = {kind: {} for kind in (*Kind, *Derived)}
        self.reads: set[FactId] = set()

    def get(self, kind: FactKind, key: str) -> Any:
        """The value, None when there is none."""
        self.reads.add((kind, key))
        return self._values[kind].get(key)

    def all(self, kind: FactKind) -> dict[str, Any]:
        """Every value of a kind; do not change it."""
        self.reads.add((kind, ALL))
        return self._values[kind]

    def peek(self, kind: FactKind) -> dict[str, Any]:
        """Every value of a kind without recording a read, for the compiler and for inspection."""
        return self._values[kind]

    def aside(self) -> "Facts":
        """The same values for whoever asks beside the compiler: what it reads is nobody's dependency."""
        other = Facts()
        other._values = self._values
        return other

    def settings(self) -> Settings:
        return self.get(Kind.SETTINGS, "") or Settings()

    def port(self, node: str, name: str) -> Port | None:
        found: Port | None = self.get(Kind.PORT, port_key(node, name))
        return found

    def pod_cidr(self, ip: Ip) -> PodCidr | None:
        """The podCIDR that an address lies in, and the node that has it."""
        for family, length in self.get(Derived.POD_CIDR_LENGTHS, "") or ():
            if family == ip.family:
                shift = (32 if family == 4 else 128) - length
                prefix = str(Cidr(family, ip.value >> shift << shift, length))
                found: PodCidr | None = self.get(Derived.POD_CIDR, prefix)
                if found is not None:
                    return found
        return None


class Way(Enum):
    DIRECT = "direct"  # on the same segment, by its MAC
    GATEWAY = "gateway"  # on the same segment, its MAC not known (yet): by gw0 and the host
    ROUTER = "router"  # on another segment


class FleetView:
    """Questions whose answers are the same for every switch."""

    def __init__(self, facts: Facts, scope: Scope) -> None:
        self._facts = facts
        self.scope = scope

    @property
    def settings(self) -> Settings:
        return self._facts.settings()

    def virtual_ip(self, family: int) -> Ip:
        return self.settings.virtual_ip4 if family == 4 else self.settings.virtual_ip6

    def in_cluster(self, prefix: Cidr | Ip) -> bool:
        """Whether it is a node's address or a podCIDR (or an address in one)."""
        if isinstance(prefix, Cidr):
            return self._facts.get(Derived.POD_CIDR, str(prefix)) is not None
        if self._facts.get(Derived.NODE_ADDRESS, str(prefix)) is not None:
            return True
        return self._facts.pod_cidr(prefix) is not None

    def backends(self, service_port: str) -> ServiceBackends | None:
        found: ServiceBackends | None = self._facts.get(Derived.SERVICE_PORT, service_port)
        return found

    def group_id(self, owner: str) -> int:
        number: int = self._facts.get(Derived.GROUP_ID, owner)
        return number

    def owns(self, front: Frontend) -> bool:
        """Whether a service has the address that it wants."""
        return bool(self._facts.get(Derived.FRONTEND, front.key) == front)

    def is_node(self, ip: Ip) -> bool:
        return self._facts.get(Derived.NODE_ADDRESS, str(ip)) is not None


class ZoneView(FleetView):
    """The view from any node of one topology zone: `zone` is its name."""

    @property
    def zone(self) -> str:
        return self.scope.name


class SegmentView(FleetView):
    """The view from any node of one subnet."""

    @property
    def family(self) -> int:
        return segment_family(self.scope.name)

    def neighbours(self, network: NodeNetwork) -> bool:
        """Whether that node is on this segment; the segment of nodes without a known prefix joins nobody."""
        return self.scope.name in network.segments and known_segment(self.scope.name)

    def by_tunnel(self, network: NodeNetwork) -> bool:
        """Whether packets of that node's pods go by tunnel; never to a node without an address."""
        mode = self.settings.traffic_mode
        if mode is TrafficMode.NO_ENCAP or not network.addresses:
            return False
        return mode is TrafficMode.ENCAP or not self.neighbours(network)

    def way(self, network: NodeNetwork) -> Way:
        """How the underlying network reaches that node."""
        if not self.neighbours(network):
            return Way.ROUTER
        return Way.DIRECT if network.mac else Way.GATEWAY


class NodeView(FleetView):
    """The view from one node."""

    @property
    def node(self) -> Node:
        node: Node = self._facts.get(Kind.NODE, self.scope.name)
        return node

    @property
    def own_ips(self) -> list[Ip]:
        """The addresses that the host holds: the node's, and the gateway's of each podCIDR."""
        return [at.ip for at in self.node.addresses] + [cidr.address(1) for cidr in self.network.cidrs]

    @property
    def network(self) -> NodeNetwork:
        network: NodeNetwork = self._facts.get(Derived.NODE_NETWORK, self.scope.name)
        return network

    def port(self, name: str) -> Port | None:
        return self._facts.port(self.scope.name, name)

    def router(self, family: int) -> Router | None:
        found: Router | None = self._facts.get(Derived.ROUTER, f"{self.scope.name} {family}")
        return found

    @property
    def tunnel(self) -> Port | None:
        return self.port("tun0")

    @property
    def gateway(self) -> Port | None:
        return self.port("gw0")

    @property
    def local(self) -> Port | None:
        """The bridge's own port, which holds the host's addresses."""
        return self.port("LOCAL")

    @property
    def uplink(self) -> Port | None:
        return self.port(self.node.uplink) if self.node.uplink else None
