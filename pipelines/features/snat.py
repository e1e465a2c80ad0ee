"""Tables endpoint_place, snat_need, snat and hairpin: when replies would not find back by themselves.

Decided once, for a connection's first packet: where the chosen endpoint is (endpoint_place) and how the
client entered give the SNAT kind (snat_need), and the connection remembers it. SNAT is the default and its
exceptions are listed (rule R5).
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Ct, Nat, load
from pipelines.derived import Derived, LocalPod, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.fields import Entered, Place, Snat
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import ENDPOINT_PLACE, HAIRPIN, OUTPUT, SNAT, SNAT_NEED, goto, resubmit
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView, NodeView, SegmentView, Way

_S, _V, _N, _NONE = Snat.NODE_SNAT, Snat.VIRTUAL, Snat.NODE_ADDRESS, Snat.NONE

# Rule R5. Rows: how the client entered, and for host packets whether the source is the node's own.
_PLACES = (
    Place.LOCAL_POD,
    Place.OWN_HOST,
    Place.PEER_POD,
    Place.PEER_POD_BY_GATEWAY,
    Place.PEER_POD_BY_ROUTER,
    Place.PEER_POD_BY_TUNNEL,
    Place.PEER_HOST,
    Place.PEER_HOST_BY_GATEWAY,
    Place.PEER_HOST_BY_ROUTER,
    Place.PEER_HOST_BY_TUNNEL,
    Place.PEER_HOST_BY_TUNNEL_OR_ROUTER,
    Place.OUTSIDE,
)
_NEED: dict[tuple[Entered, int | None], tuple[Snat, ...]] = {
    (Entered.POD, None): (_NONE,) * len(_PLACES),
    (Entered.LOCAL, 1): (_NONE, _V, _NONE, _S, _NONE, _S, _NONE, _S, _NONE, _NONE, _NONE, _NONE),
    (Entered.LOCAL, 0): (_NONE, _V, _S, _S, _S, _S, _S, _S, _S, _N, _N, _N),
    (Entered.UPLINK, None): (_NONE, _NONE, _S, _S, _S, _S, _S, _S, _S, _N, _N, _N),
    (Entered.TUNNEL, None): (_NONE, _NONE, _S, _S, _S, _S, _S, _S, _S, _N, _N, _N),
    (Entered.GATEWAY, 1): (_S, _V, _S, _S, _S, _S, _S, _S, _S, _N, _N, _N),
    (Entered.GATEWAY, 0): (_NONE, _V, _S, _S, _S, _S, _S, _S, _S, _N, _N, _N),
}


_BY_WAY = {
    Way.DIRECT: (Place.PEER_POD, Place.PEER_HOST),
    Way.GATEWAY: (Place.PEER_POD_BY_GATEWAY, Place.PEER_HOST_BY_GATEWAY),
    Way.ROUTER: (Place.PEER_POD_BY_ROUTER, Place.PEER_HOST_BY_ROUTER),
}
_BY_TUNNEL = {
    Way.DIRECT: (Place.PEER_POD_BY_TUNNEL, Place.PEER_HOST_BY_TUNNEL),
    Way.GATEWAY: (Place.PEER_POD_BY_TUNNEL, Place.PEER_HOST_BY_GATEWAY),
    Way.ROUTER: (Place.PEER_POD_BY_TUNNEL, Place.PEER_HOST_BY_TUNNEL_OR_ROUTER),
}
# What a router should forward, for clients whose packets the host would not take or not bring back.
_BY_ROUTER = {
    Entered.LOCAL: (Place.PEER_POD_BY_ROUTER, Place.PEER_HOST_BY_ROUTER, Place.PEER_HOST_BY_TUNNEL_OR_ROUTER),
    Entered.UPLINK: (Place.PEER_HOST_BY_TUNNEL_OR_ROUTER, Place.OUTSIDE),
    Entered.TUNNEL: (Place.PEER_HOST_BY_TUNNEL_OR_ROUTER, Place.OUTSIDE),
    Entered.GATEWAY: (Place.PEER_HOST_BY_TUNNEL_OR_ROUTER, Place.OUTSIDE),
}


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Service connections by how they entered and where they go; the virtual address."""
    del settings
    return unit([*_needs(), *_virtual(view)])


def _needs() -> Iterator[Flow]:
    yield SNAT_NEED.flow(200, (f.PLACE.eq(Place.CLIENT_ITSELF),), load(f.SNAT_KIND, _V))
    for (entered, own), kinds in _NEED.items():
        client = (f.ENTERED_BY.eq(entered), *(() if own is None else (f.OWN_SOURCE.eq(own),)))
        for place, kind in zip(_PLACES, kinds, strict=True):
            if kind:
                yield SNAT_NEED.flow(100, (*client, f.PLACE.eq(place)), load(f.SNAT_KIND, kind))


def _virtual(view: FleetView) -> Iterator[Flow]:
    yield SNAT.flow(100, (f.SNAT_KIND.eq(_V),), goto(HAIRPIN))
    yield ENDPOINT_PLACE.flow(10, (), load(f.PLACE, Place.OUTSIDE), resubmit(SNAT_NEED))
    for family in (4, 6):
        yield HAIRPIN.flow(100, (f.ETH[family], f.SNAT_KIND.eq(_V)), _translate(Nat("src", view.virtual_ip(family))))


def _translate(nat: Nat) -> Ct:
    return Ct(f.SNAT_ZONE, OUTPUT.id, commit=True, nat=nat)


def own_places(network: NodeNetwork, view: NodeView) -> Unit:
    """Endpoints on this node, and this node's SNAT addresses."""
    flows = [_place(200, f.endpoint(at.ip), Place.OWN_HOST) for at in view.node.addresses]
    flows += [_place(200, f.endpoint(cidr.address(1)), Place.OWN_HOST) for cidr in network.cidrs]
    flows += [_place(150, f.endpoint(cidr), Place.LOCAL_POD) for cidr in network.cidrs]
    for cidr in network.cidrs[::-1]:  # the first podCIDR of a family wins
        translate = _translate(Nat("src", cidr.address(2)))
        flows.append(SNAT.flow(100, (f.ETH[cidr.family], f.SNAT_KIND.eq(_S)), translate))
    for at in view.node.addresses[::-1]:
        translate = _translate(Nat("src", at.ip, *view.settings.snat_ports))
        flows.append(SNAT.flow(100, (f.ETH[at.ip.family], f.SNAT_KIND.eq(_N)), translate))
    for family in (4, 6):
        router = view.router(family)
        if router is None or router.mac is None:
            flows += _by_host_instead(family)
    return unit({flow.key: flow for flow in flows}.values())


def _by_host_instead(family: int) -> Iterator[Flow]:
    """Without a router's MAC what a router should forward goes by the host, as to a peer whose MAC is not known.

    From gw0 the host takes no packet that has its own address as source. What leaves the cluster it masquerades.
    """
    for entered, places in _BY_ROUTER.items():
        for place in places:
            client = (f.ETH[family], f.ENTERED_BY.eq(entered), f.PLACE.eq(place))
            yield SNAT_NEED.flow(110, client, load(f.SNAT_KIND, _S))


def _place(priority: int, conditions: tuple[f.Item, ...], place: Place) -> Flow:
    return ENDPOINT_PLACE.flow(priority, conditions, load(f.PLACE, place), resubmit(SNAT_NEED))


def client_itself(pod: LocalPod, view: NodeView) -> Unit:
    """A pod that was given itself as endpoint."""
    del view
    return unit(
        _place(250, (f.ENTERED_BY.eq(Entered.POD), *f.source(ip), *f.endpoint(ip)), Place.CLIENT_ITSELF)
        for ip in pod.ips
    )


def peer_places(network: NodeNetwork, view: SegmentView) -> Unit:
    """Endpoints on other nodes, by the way that leads there."""
    pod, host = (_BY_TUNNEL if view.by_tunnel(network) else _BY_WAY)[view.way(network)]
    flows = [_place(100, f.endpoint(cidr), pod) for cidr in network.cidrs if cidr.family == view.family]
    flows += [_place(100, f.endpoint(ip), host) for ip in network.addresses if ip.family == view.family]
    return unit(flows)


FEATURES = (
    Feature("snat", 17, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),
    Feature("snat.node", 18, ScopeKind.NODE, Derived.NODE_NETWORK, own_places),
    Feature("snat.pod", 19, ScopeKind.NODE, Derived.LOCAL_POD, client_itself),
    Feature("snat.peer", 20, ScopeKind.SEGMENT, Derived.NODE_NETWORK, peer_places),
)
