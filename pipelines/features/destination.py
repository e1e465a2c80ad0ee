"""Tables destination and unsnat: which addresses are this node's own, and which stand for another one."""

from pipelines import fields as f
from pipelines.actions import Ct, Nat, load
from pipelines.derived import Derived, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.model import Kind, Settings
from pipelines.tables import CONNTRACK, DESTINATION, UNSNAT, goto
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView, NodeView

_UNDO = Ct(zone=f.SNAT_ZONE, nat=Nat(), table=CONNTRACK.id)


def own_addresses(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets to this node's own addresses, and to its SNAT addresses."""
    own = [at.ip for at in view.node.addresses] + [cidr.address(1) for cidr in network.cidrs]
    flows = [DESTINATION.flow(100, f.destination(ip), load(f.TO_NODE, 1), goto(UNSNAT)) for ip in own]
    flows += [UNSNAT.flow(100, f.destination(cidr.address(2)), _UNDO) for cidr in network.cidrs]
    return unit(flows)


def virtual_addresses(settings: Settings, view: FleetView) -> Unit:
    """Packets to the virtual address, whose real destination only its connection knows."""
    del settings
    return unit(UNSNAT.flow(100, f.destination(view.virtual_ip(family)), _UNDO) for family in (4, 6))


FEATURES = (
    Feature("destination.node", 8, ScopeKind.NODE, Derived.NODE_NETWORK, own_addresses),
    Feature("destination", 9, ScopeKind.FLEET, Kind.SETTINGS, virtual_addresses),
)
