"""Tables destination and unsnat: which addresses are this node's own, and which stand for another one."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Ct, Nat, load
from pipelines.addresses import Ip
from pipelines.derived import Derived, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import CONNTRACK, DESTINATION, UNSNAT, goto
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView, NodeView

# Unreachable, too big, time exceeded, parameter problem (RFC 792, RFC 4443).
_ERRORS = {
    4: [(f.ICMP_TYPE, kind) for kind in (3, 11, 12)],
    6: [(f.ICMP6_TYPE, kind) for kind in (1, 2, 3, 4)],
}
_UNDO = Ct(zone=f.SNAT_ZONE, nat=Nat(), table=CONNTRACK.id)


def own_addresses(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets to this node's own addresses, and to its SNAT addresses."""
    own = view.own_ips
    asked = view.settings.node_port_addresses
    flows = [DESTINATION.flow(100, f.destination(ip), load(f.TO_NODE, 1), goto(UNSNAT)) for ip in own]
    for at in view.node.addresses:
        if not asked or any(cidr.__contains__(at.ip) for cidr in asked):
            serves = load(f.TO_NODE, 1), load(f.NODE_PORT, 1)
            flows.append(DESTINATION.flow(110, f.destination(at.ip), *serves, goto(UNSNAT)))
    flows += [UNSNAT.flow(100, f.destination(cidr.address(2)), _UNDO) for cidr in network.cidrs]
    for at in view.node.addresses:
        flows += _reserved_ports(at.ip, view.settings)
    return unit(flows)


def _reserved_ports(ip: Ip, settings: Settings) -> Iterator[Flow]:
    """For ports that only translated connections have, and errors about those. The host's own find no translation.

    SCTP has them only where the datapath translates its ports, so all of it is looked up.
    """
    to = f.destination(ip)
    yield UNSNAT.flow(90, (*to, f.IP_PROTO.eq(f.SCTP)), _UNDO)
    for number in (f.TCP, f.UDP):
        for ports in f.ranges(f.L4_DST[number], *settings.snat_ports):
            yield UNSNAT.flow(90, (*to, f.IP_PROTO.eq(number), ports), _UNDO)
    for field, kind in _ERRORS[ip.family]:
        yield UNSNAT.flow(90, (*to, f.IP_PROTO.eq(f.ICMP if ip.family == 4 else f.ICMP6), field.eq(kind)), _UNDO)


def virtual_addresses(settings: Settings, view: FleetView) -> Unit:
    """Packets to the virtual address, whose real destination only its connection knows."""
    del settings
    return unit(UNSNAT.flow(100, f.destination(view.virtual_ip(family)), _UNDO) for family in (4, 6))


FEATURES = (
    Feature("destination.node", 8, ScopeKind.NODE, Derived.NODE_NETWORK, own_addresses),
    Feature("destination", 9, ScopeKind.FLEET, Kind.SETTINGS, virtual_addresses),
)
