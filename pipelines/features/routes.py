"""Tables route and l2: where a packet goes.

Host packets that no service changed keep the way their kernel chose. Replies follow how their connection
entered. The rest goes by destination: local pods, this node, peers straight through the uplink (or by gw0 and
the host's routing while a peer's MAC is unknown), and by gw0 to everywhere else.
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import LOCAL_IN_REGISTER, load, move
from pipelines.addresses import Cidr, Ip, link_local
from pipelines.derived import Derived, LocalPod, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.fields import Egress, Entered, ct_state
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import CT_COMMIT, EGRESS, L2, ROUTE, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView, NodeView, SegmentView

_REPLY = ct_state("+rpl+trk")


def _leave(priority: int, conditions: tuple[f.Item, ...], egress: Egress) -> Flow:
    return ROUTE.flow(priority, conditions, load(f.EGRESS, egress), goto(EGRESS))


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Packets whose way does not depend on their destination."""
    del settings
    return unit([*_stuck(view), *_host(), *_replies(), *_defaults()])


def _stuck(view: FleetView) -> Iterator[Flow]:
    """Still for the virtual address: no connection knew it."""
    for family in (4, 6):
        yield ROUTE.flow(500, f.destination(view.virtual_ip(family)))


def _host() -> Iterator[Flow]:
    local = f.ENTERED_BY.eq(Entered.LOCAL)
    yield _leave(410, (local, _REPLY, f.CT_ENTERED_BY.eq(Entered.LOCAL)), Egress.LOCAL)
    yield ROUTE.flow(400, (local, f.SERVICE.eq(0)), goto(L2))


def _replies() -> Iterator[Flow]:
    yield _leave(380, (_REPLY, f.CT_ENTERED_BY.eq(Entered.LOCAL)), Egress.LOCAL)
    yield _leave(380, (_REPLY, f.CT_ENTERED_BY.eq(Entered.GATEWAY)), Egress.GATEWAY)
    yield ROUTE.flow(
        150,
        (_REPLY, f.CT_ENTERED_BY.eq(Entered.UPLINK)),
        move(f.CT_CLIENT_MAC, f.ETH_DST),
        load(f.EGRESS, Egress.UPLINK),
        goto(EGRESS),
    )


def _defaults() -> Iterator[Flow]:
    yield _leave(100, (f.ENTERED_BY.eq(Entered.POD),), Egress.GATEWAY)
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
    uplink = f.ENTERED_BY.eq(Entered.UPLINK)
    flows += [_leave(270, (uplink, *f.destination(cidr.address(1))), Egress.LOCAL) for cidr in network.cidrs]
    flows += [ROUTE.flow(240, f.destination(cidr)) for cidr in network.cidrs]
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
    return L2.flow(100, (f.ENTERED_BY.eq(entered),), load(f.OUT_PORT, port), goto(CT_COMMIT))


def local_pod(pod: LocalPod, view: NodeView) -> Unit:
    """Packets for a pod of this node; a neighbour's frame that is already addressed to it stays as it is."""
    port = view.port(pod.port)
    if port is None:
        return EMPTY
    flows = []
    for ip in pod.ips:
        to = f.destination(ip)
        switched = (f.ENTERED_BY.eq(Entered.POD), f.ETH_DST.eq(pod.mac), *to)
        flows.append(ROUTE.flow(310, switched, load(f.OUT_PORT, port.number), goto(CT_COMMIT)))
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
    destinations: list[Ip | Cidr] = [*network.cidrs, *network.addresses]
    mac = network.mac.mac if network.mac and view.neighbours(network) else None
    return unit(_to_peer(f.destination(to), mac) for to in destinations if to.family == view.family)


def _to_peer(to: tuple[f.Item, f.Item], mac: int | None) -> Flow:
    if mac is None:
        return _leave(200, to, Egress.GATEWAY)
    return ROUTE.flow(200, to, load(f.ETH_DST, mac), load(f.EGRESS, Egress.UPLINK), goto(EGRESS))


PEER_ROUTE = "routes.peer"  # read back as evidence of a peer's MAC

FEATURES = (
    Feature("routes", 21, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),
    Feature("routes.node", 22, ScopeKind.NODE, Derived.NODE_NETWORK, own_destinations),
    Feature("routes.pod", 23, ScopeKind.NODE, Derived.LOCAL_POD, local_pod),
    Feature(PEER_ROUTE, 24, ScopeKind.SEGMENT, Derived.NODE_NETWORK, peer),
)
