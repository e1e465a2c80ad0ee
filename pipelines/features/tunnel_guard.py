"""Table tunnel_guard: only nodes of the cluster may send by tunnel, and only IP: neighbours are never there."""

from pipelines import fields as f
from pipelines.derived import Derived, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.features.classify import ND_TYPES
from pipelines.model import Kind, Settings, TrafficMode
from pipelines.tables import DESTINATION, TUNNEL_GUARD, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView


def never_from_tunnels(settings: Settings, view: FleetView) -> Unit:
    """Tagged frames and messages of neighbour discovery."""
    del settings, view
    flows = [TUNNEL_GUARD.flow(200, (f.TAGGED,))]
    for kind in ND_TYPES:
        flows.append(TUNNEL_GUARD.flow(200, (f.IP6, f.IP_PROTO.eq(f.ICMP6), f.ICMP6_TYPE.eq(kind))))
    return unit(flows)


def node_addresses(network: NodeNetwork, view: FleetView) -> Unit:
    """Packets that a node sends by tunnel, from whichever of its addresses."""
    if view.settings.traffic_mode is TrafficMode.NO_ENCAP:
        return EMPTY
    outer = [f.TUNNEL_SRC[ip.family].eq(ip.value) for ip in network.addresses]
    return unit(TUNNEL_GUARD.flow(100, (sender, eth), goto(DESTINATION)) for sender in outer for eth in (f.IP4, f.IP6))


FEATURES = (
    Feature("tunnel_guard", 31, ScopeKind.FLEET, Kind.SETTINGS, never_from_tunnels),
    Feature("tunnel_guard.node", 32, ScopeKind.FLEET, Derived.NODE_NETWORK, node_addresses),
)
