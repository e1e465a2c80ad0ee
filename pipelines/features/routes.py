"""Tables route and l2: where a packet goes.

Host packets that no service changed keep the way their kernel chose. Replies follow how their connection
entered (to clients outside: `reply_path`). The rest goes by destination: local pods, this node, peers (straight
through the uplink, by a router, by tunnel, or by gw0 and the host's routing while a peer's MAC is unknown), and to
everywhere else by gw0, or with `egress: direct` by the router.
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import LOCAL_IN_REGISTER, load
from pipelines.addresses import Cidr, Ip, link_local
from pipelines.derived import Derived, LocalPod, NodeNetwork, Router
from pipelines.feature import Feature, unit
from pipelines.features import reply_path
from pipelines.fields import Egress, Entered, Snat, ct_state
from pipelines.flow import Flow
from pipelines.model import EgressMode, Kind, Settings
from pipelines.tables import EGRESS, L2, PORT_CHECK, ROUTE, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView, NodeView, SegmentView, Way

_REPLY = ct_state("+rpl+trk")
HOST = 400  # above this priority routes concern packets of the host


def _leave(priority: int, conditions: tuple[f.Item, ...], egress: Egress) -> Flow:
    return ROUTE.flow(priority, conditions, load(f.EGRESS, egress), goto(EGRESS))


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Packets whose way does not depend on their destination."""
    del settings
    own_address = [_leave(130, (f.ENTERED_BY.eq(Entered.POD), *f.destination(cidr)), Egress.ROUTER)
                   for cidr in view.settings.no_masquerade]  # fmt: skip
    return unit([*_stuck(view), *_host(), *_replies(), *_defaults(), *own_address])


def _stuck(view: FleetView) -> Iterator[Flow]:
    """For a service and not translated, as the connection table is full; for the virtual address, which nobody knew."""
    yield ROUTE.flow(510, (f.SERVICE.eq(1), ct_state("+new-dnat+trk")))
    for family in (4, 6):
        yield ROUTE.flow(500, f.destination(view.virtual_ip(family)))


def _host() -> Iterator[Flow]:
    local = f.ENTERED_BY.eq(Entered.LOCAL)
    yield _leave(410, (local, _REPLY, f.CT_ENTERED_BY.eq(Entered.LOCAL)), Egress.LOCAL)
    yield ROUTE.flow(HOST, (local, f.SERVICE.eq(0)), goto(L2))


def _replies() -> Iterator[Flow]:
    yield _leave(380, (_REPLY, f.CT_ENTERED_BY.eq(Entered.LOCAL)), Egress.LOCAL)
    yield _leave(380, (_REPLY, f.CT_ENTERED_BY.eq(Entered.GATEWAY)), Egress.GATEWAY)


def _defaults() -> Iterator[Flow]:
    yield _leave(100, (f.ENTERED_BY.eq(Entered.POD),), Egress.GATEWAY)
    for entered in (Entered.UPLINK, Entered.TUNNEL, Entered.GATEWAY):  # by a node's port to an endpoint outside
        yield _leave(110, (f.ENTERED_BY.eq(entered), f.SERVICE.eq(1)), Egress.ROUTER)
    yield _leave(115, (f.ENTERED_BY.eq(Entered.POD), f.SNAT_KIND.eq(Snat.NODE_ADDRESS)), Egress.ROUTER)
    yield ROUTE.flow(100, (f.ENTERED_BY.eq(Entered.UPLINK),), goto(L2))
    yield ROUTE.flow(100, (f.ENTERED_BY.eq(Entered.LOCAL),), goto(L2))


def own_destinations(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets for this node itself, for addresses of its podCIDRs that no pod has, and host frames."""
    pod = f.ENTERED_BY.eq(Entered.POD)
    flows = [ROUTE.flow(500, f.destination(cidr.address(2))) for cidr in network.cidrs]
    for at in view.node.addresses:
        flows.append(_leave(260, (pod, *f.destination(at.ip)), Egress.GATEWAY))
        flows.append(_leave(250, f.destination(at.ip), Egress.LOCAL))
    flows += [_leave(260, f.destination(ip), Egress.GATEWAY) for ip in _gateways(network, view)]
    # From a peer by the port that the host would answer by: on gw0 its reverse path filter would drop it.
    for entered in (Entered.UPLINK, Entered.TUNNEL):
        by = f.ENTERED_BY.eq(entered)
        flows += [_leave(270, (by, *f.destination(cidr.address(1))), Egress.LOCAL) for cidr in network.cidrs]
    own_pods = (f.ENTERED_BY.eq(Entered.LOCAL), f.SERVICE.eq(0))
    flows += [ROUTE.flow(HOST + 6, (*own_pods, *f.destination(cidr)), goto(L2)) for cidr in network.cidrs]
    flows += [ROUTE.flow(240, f.destination(cidr)) for cidr in network.cidrs]
    for family in (4, 6):
        router = view.router(family)
        if router is None or router.mac is None:
            flows += _back(f.ETH[family])
    if view.uplink:
        flows.append(_l2(Entered.LOCAL, view.uplink.number))
        flows.append(_l2(Entered.UPLINK, LOCAL_IN_REGISTER))
    return unit(flows)


def _gateways(network: NodeNetwork, view: NodeView) -> Iterator[Ip]:
    for cidr in network.cidrs:
        yield cidr.address(1)
    if view.gateway:
        yield link_local(view.gateway.mac)


def _l2(entered: Entered, port: int) -> Flow:
    return L2.flow(100, (f.ENTERED_BY.eq(entered),), load(f.OUT_PORT, port), goto(PORT_CHECK))


def local_pod(pod: LocalPod, view: NodeView) -> Unit:
    """Packets for a pod of this node; a neighbour's frame that is already addressed to it stays as it is."""
    port = view.port(pod.port)
    if port is None:
        return EMPTY
    flows = []
    for ip in pod.ips:
        to = f.destination(ip)
        switched = (f.ENTERED_BY.eq(Entered.POD), f.ETH_DST.eq(pod.mac), *to)
        flows.append(ROUTE.flow(310, switched, load(f.OUT_PORT, port.number), goto(PORT_CHECK)))
        flows.append(
            ROUTE.flow(
                300,
                to,
                load(f.ETH_DST, pod.mac),
                load(f.OUT_PORT, port.number),
                load(f.EGRESS, Egress.POD),
                goto(EGRESS),
            )
        )
    return unit(flows)


def peer(network: NodeNetwork, view: SegmentView) -> Unit:
    """Packets for another node and its pods."""
    pods = [cidr for cidr in network.cidrs if cidr.family == view.family]
    host = [ip for ip in network.addresses if ip.family == view.family]
    flows = [flow for ip in host for flow in _to_peer(f.destination(ip), network, view)]
    if not view.by_tunnel(network):
        return unit([*(flow for cidr in pods for flow in _to_peer(f.destination(cidr), network, view)), *flows])
    end = network.addresses[0]
    for cidr in pods:
        flows.append(_by_tunnel(200, f.destination(cidr), end))
        # Whatever way the host has for them: no network beneath knows these addresses.
        host_packets = (f.ENTERED_BY.eq(Entered.LOCAL), f.SERVICE.eq(0))
        flows.append(_by_tunnel(HOST + 5, (*host_packets, *f.destination(cidr)), end))
    # Of pods, and of clients of services that got an address of a podCIDR because the MAC to there is not known.
    for sender in (f.ENTERED_BY.eq(Entered.POD), f.SNAT_KIND.eq(Snat.NODE_SNAT)):
        flows += [_by_tunnel(210, (sender, *f.destination(ip)), end) for ip in host]
    return unit(flows)


def _to_peer(to: tuple[f.Item, f.Item], network: NodeNetwork, view: SegmentView) -> Iterator[Flow]:
    way = view.way(network)
    if way is Way.DIRECT and network.mac:
        yield ROUTE.flow(200, to, load(f.ETH_DST, network.mac.mac), load(f.EGRESS, Egress.UPLINK), goto(EGRESS))
        return
    yield _leave(200, to, Egress.ROUTER if way is Way.ROUTER else Egress.GATEWAY)
    if way is Way.GATEWAY:
        yield from _back(*to)
        # Connections of this host to a service that began when the MAC was known, untranslated: from gw0 their host
        # would not take its own address, so they try the router.
        began_straight = (f.ENTERED_BY.eq(Entered.LOCAL), f.SERVICE.eq(1), f.SNAT_KIND.eq(0))
        yield _leave(206, (*began_straight, *to), Egress.ROUTER)


def _back(*to: f.Item) -> Iterator[Flow]:
    """Replies of services that a node's port was asked for, while no MAC is known for them.

    Their source is the node's own address, which its host would not take from gw0: to the MAC that they came from.
    """
    return reply_path.back(204, f.CT_SERVICE.eq(1), *to)


def _by_tunnel(priority: int, conditions: tuple[f.Item, ...], end: Ip) -> Flow:
    outer = load(f.TUNNEL_DST[end.family], end.value)
    return ROUTE.flow(priority, conditions, outer, load(f.EGRESS, Egress.TUNNEL), goto(EGRESS))


def outside(router: Router, view: NodeView) -> Unit:
    """Packets of pods for outside the cluster with `egress: direct`: new connections, and what stays on the segment."""
    family = router.ip.family
    own = [at for at in view.node.addresses if at.ip.family == family]
    if view.settings.egress is not EgressMode.DIRECT or router.mac is None or not own or not view.uplink:
        return EMPTY
    pod = (f.ENTERED_BY.eq(Entered.POD), f.SERVICE.eq(0), f.SNAT_KIND.eq(0))
    links: set[Cidr] = {at.subnet for at in own if at.subnet}
    flows = [_leave(120, (*pod, *f.destination(link)), Egress.GATEWAY) for link in sorted(links)]
    for number in (f.TCP, f.UDP):
        new = (*pod, f.ETH[family], f.IP_PROTO.eq(number), ct_state("+new+trk"))
        way = load(f.SNAT_KIND, Snat.NODE_ADDRESS), load(f.EGRESS, Egress.ROUTER)
        flows.append(ROUTE.flow(110, new, *way, goto(EGRESS)))
    return unit(flows)


PEER_ROUTE = "routes.peer"  # read back as evidence of a peer's MAC

FEATURES = (
    Feature("routes", 21, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),
    Feature("routes.node", 22, ScopeKind.NODE, Derived.NODE_NETWORK, own_destinations),
    Feature("routes.pod", 23, ScopeKind.NODE, Derived.LOCAL_POD, local_pod),
    Feature(PEER_ROUTE, 24, ScopeKind.SEGMENT, Derived.NODE_NETWORK, peer),
    Feature("routes.outside", 35, ScopeKind.NODE, Derived.ROUTER, outside),
)
