"""Tables destination and unsnat: which addresses are this node's own, and which stand for another one.

Before that, what the uplink cannot bring is dropped, by its source: addresses that are no station's, and those of this
node's host (RFC 1812 section 5.3.7). Its answer would go wherever the frame came from. A pod of the node may come by
the uplink: a load balancer outside that leaves its clients' addresses alone sends it back here.
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Ct, Nat, load
from pipelines.addresses import Cidr, Ip, parse_cidr
from pipelines.derived import Derived, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.fields import Entered
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
# "This network", loopback, multicast and what is reserved; unspecified and loopback, IPv4 in IPv6, multicast.
_NO_STATIONS = tuple(
    map(parse_cidr, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "::ffff:0:0/96", "ff00::/8"))
)
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
    flows += [_never_from_uplink(ip) for ip in (*own, *(cidr.address(2) for cidr in network.cidrs))]
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


def _never_from_uplink(source: Cidr | Ip) -> Flow:
    return DESTINATION.flow(200, (f.ENTERED_BY.eq(Entered.UPLINK), *f.source(source)))


def virtual_addresses(settings: Settings, view: FleetView) -> Unit:
    """Packets to the virtual address, whose real destination only its connection knows; what nobody can have sent."""
    del settings
    virtual = [view.virtual_ip(family) for family in (4, 6)]
    nobody: list[Cidr | Ip] = [*_NO_STATIONS, *virtual]
    undone = [UNSNAT.flow(100, f.destination(ip), _UNDO) for ip in virtual]
    return unit([*undone, *map(_never_from_uplink, nobody)])


FEATURES = (
    Feature("destination.node", 8, ScopeKind.NODE, Derived.NODE_NETWORK, own_addresses),
    Feature("destination", 9, ScopeKind.FLEET, Kind.SETTINGS, virtual_addresses),
)
