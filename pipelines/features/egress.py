"""Table egress: an egress class becomes MACs, a hop less where this switch is the router, and a port."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import LOCAL_IN_REGISTER, Action, CheckPktLarger, Controller, DecTtl, Meter, load
from pipelines.derived import Derived, NodeNetwork, Router
from pipelines.feature import Feature, unit
from pipelines.fields import Egress, Entered, Snat
from pipelines.flow import Flow
from pipelines.ids import TOO_BIG_METER
from pipelines.model import Kind, Port, Settings, TrafficMode
from pipelines.mtu import mtu_of_pods
from pipelines.table import Table
from pipelines.tables import EGRESS, PORT_CHECK, TUNNEL, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView, NodeView

TOO_BIG = "egress.too_big"  # its packet-ins are answered
ROUTER_EGRESS = "egress.router"  # read back as evidence of a router's MAC
TOO_BIG_BYTES = 1280  # of the packet: enough for what an ICMP error quotes
ETHERNET_HEADER = 14

# What the host sends was routed by the host; what it will receive it counts itself.
_ROUTED_HERE = (Entered.POD, Entered.UPLINK, Entered.TUNNEL)


def node_egress(network: NodeNetwork, view: NodeView) -> Unit:
    """Routed packets, by class."""
    del network
    gateway, uplink, local = view.gateway, view.uplink, view.local
    flows: list[Flow] = []  # a port that is missing takes its own classes away, no others; gw0 stands in for the uplink
    if gateway:
        flows += _by(EGRESS, f.EGRESS.eq(Egress.POD), (f.IP4, f.IP6), load(f.ETH_SRC, gateway.mac))
        flows += _plain(Egress.GATEWAY, load(f.ETH_DST, gateway.mac), load(f.OUT_PORT, gateway.number))
    if uplink:
        to = load(f.ETH_SRC, uplink.mac), load(f.OUT_PORT, uplink.number)
        flows += _by(EGRESS, f.EGRESS.eq(Egress.UPLINK), (f.IP4, f.IP6), *to)
    elif gateway:
        flows.append(_by_host((f.EGRESS.eq(Egress.UPLINK),), gateway))
    if local:
        flows += _plain(Egress.LOCAL, load(f.ETH_DST, local.mac), load(f.OUT_PORT, LOCAL_IN_REGISTER))
    return unit(flows)


def to_router(router: Router, view: NodeView) -> Unit:
    """Packets for the next hop; while its MAC is unknown the host sends them on, as it does for itself."""
    family = f.ETH[router.ip.family]
    uplink, gateway = view.uplink, view.gateway
    if router.mac and uplink:
        to = load(f.ETH_SRC, uplink.mac), load(f.ETH_DST, router.mac.mac), load(f.OUT_PORT, uplink.number)
        return unit(_by(EGRESS, f.EGRESS.eq(Egress.ROUTER), (family,), *to))
    return unit(_without_mac(family, uplink, gateway))


def without_router(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets for a next hop that the node does not name."""
    del network
    families = [family for family in (4, 6) if view.router(family) is None]
    return unit(flow for family in families for flow in _without_mac(f.ETH[family], view.uplink, view.gateway))


def _without_mac(family: f.Item, uplink: Port | None, gateway: Port | None) -> Iterator[Flow]:
    """Untranslated packets of the host itself, which it would not take from gw0, go where it has sent them."""
    if gateway:
        yield _by_host((f.EGRESS.eq(Egress.ROUTER), family), gateway)
    if uplink:
        own = (f.EGRESS.eq(Egress.ROUTER), family, f.ENTERED_BY.eq(Entered.LOCAL), f.SNAT_KIND.eq(Snat.NONE))
        yield EGRESS.flow(110, own, load(f.OUT_PORT, uplink.number), goto(PORT_CHECK))


def _by_host(conditions: tuple[f.Item, ...], gateway: Port) -> Flow:
    """Also of another class from here on: it does not leave by the uplink, by which it may have come."""
    to = load(f.ETH_DST, gateway.mac), load(f.OUT_PORT, gateway.number), load(f.EGRESS, Egress.GATEWAY)
    return EGRESS.flow(100, conditions, *to, goto(PORT_CHECK))


def to_tunnel(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets for the tunnel, if they fit in it."""
    settings, gateway, tunnel = view.settings, view.gateway, view.tunnel
    if settings.traffic_mode is TrafficMode.NO_ENCAP or not (gateway and tunnel and network.addresses):
        return EMPTY
    mtu = mtu_of_pods(view.node, network.addresses, settings)
    check = CheckPktLarger(mtu + ETHERNET_HEADER, f.TOO_BIG)
    out = load(f.ETH_SRC, gateway.mac), load(f.ETH_DST, f.TUNNEL_MAC), load(f.OUT_PORT, tunnel.number)
    return unit(
        [
            EGRESS.flow(100, (f.EGRESS.eq(Egress.TUNNEL),), check, goto(TUNNEL)),
            *_by(TUNNEL, f.TOO_BIG.eq(0), (f.IP4, f.IP6), *out),
        ]
    )


def too_big(settings: Settings, view: FleetView) -> Unit:
    """Packets that are too big for the tunnel: their sender is told."""
    del settings, view
    return unit([TUNNEL.flow(200, (f.TOO_BIG.eq(1),), Meter(TOO_BIG_METER), Controller(TOO_BIG_BYTES))])


def _by(table: Table, of: f.Item, families: tuple[f.Item, ...], *actions: Action) -> Iterator[Flow]:
    """A hop less where this switch is the router."""
    for family in families:
        yield table.flow(100, (of, family), *actions, goto(PORT_CHECK))
        for entered in _ROUTED_HERE:
            yield table.flow(110, (of, family, f.ENTERED_BY.eq(entered)), DecTtl(), *actions, goto(PORT_CHECK))


def _plain(egress: Egress, *actions: Action) -> Iterator[Flow]:
    yield EGRESS.flow(100, (f.EGRESS.eq(egress),), *actions, goto(PORT_CHECK))


FEATURES = (
    Feature("egress", 25, ScopeKind.NODE, Derived.NODE_NETWORK, node_egress),
    Feature(ROUTER_EGRESS, 36, ScopeKind.NODE, Derived.ROUTER, to_router),
    Feature("egress.no_router", 37, ScopeKind.NODE, Derived.NODE_NETWORK, without_router),
    Feature("egress.tunnel", 38, ScopeKind.NODE, Derived.NODE_NETWORK, to_tunnel),
    Feature(TOO_BIG, 39, ScopeKind.FLEET, Kind.SETTINGS, too_big),
)
