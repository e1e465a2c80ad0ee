"""Tables conntrack, conntrack_state and ct_commit: what is tracked, and what a connection's state means.

Rule R1: a pair of addresses is tracked in both directions or in none. Host traffic is tracked with whatever
may be an endpoint, a pod or a service; all other host traffic passes untouched, whatever address of the host it
is for.
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Ct, Move, Nat, load, move
from pipelines.addresses import Cidr, Ip
from pipelines.derived import Derived, Entrance, Frontend, NodeNetwork, PodCidr, Target
from pipelines.feature import Feature, unit
from pipelines.fields import Entered, ct_state
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import (
    AFFINITY,
    CONNTRACK,
    CONNTRACK_STATE,
    CT_COMMIT,
    L2,
    LABEL_REPLY,
    LEARN_REPLY,
    PORT_CHECK,
    ROUTE,
    SERVICE_SOURCE,
    SNAT,
    goto,
    resubmit,
)
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView, NodeView

_FROM_OUTSIDE = load(f.OUTSIDE, 1)
_TRACK = Ct(zone=f.SERVICE_ZONE, nat=Nat(), table=CONNTRACK_STATE.id)
_SEEN = resubmit(LEARN_REPLY), goto(LABEL_REPLY)  # `reply_path`: the newest MAC of a client outside
REMEMBER = (move(f.CONNECTION_FACTS, f.CT_CONNECTION_FACTS), move(f.CLIENT_MAC, f.CT_CLIENT_MAC))


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Packets by their connection's state."""
    del settings, view
    return unit([*_tracking(), *_states(), *_commit(), *_sctp_ports()])


def _tracking() -> Iterator[Flow]:
    yield CONNTRACK.flow(50, (f.ENTERED_BY.eq(Entered.UPLINK),), goto(L2))
    yield CONNTRACK.flow(50, (f.ENTERED_BY.eq(Entered.LOCAL),), goto(L2))
    yield CONNTRACK.flow(10, (f.IP4,), _TRACK)
    yield CONNTRACK.flow(10, (f.IP6,), _TRACK)


def _states() -> Iterator[Flow]:
    invalid = ct_state("+inv+trk")
    yield CONNTRACK_STATE.flow(200, (invalid, f.ENTERED_BY.eq(Entered.UPLINK), f.TO_NODE.eq(1)), goto(L2))
    yield from _own_invalid(invalid)
    yield CONNTRACK_STATE.flow(190, (invalid,))
    yield CONNTRACK_STATE.flow(180, (ct_state("-rpl+trk"), f.CT_SERVICE.eq(1)), load(f.SERVICE, 1), *_SEEN)
    for kind in f.Snat:
        if kind:
            yield CONNTRACK_STATE.flow(
                185,
                (ct_state("-rpl+trk"), f.CT_SERVICE.eq(1), f.CT_SNAT_KIND.eq(kind)),
                load(f.SERVICE, 1),
                load(f.SNAT_KIND, kind),
                *_SEEN,
            )
    # A plain connection that left with the node's address; a second packet before the first reply is still new.
    left = (ct_state("-rpl+trk"), f.CT_SERVICE.eq(0), f.CT_SNAT_KIND.eq(f.Snat.NODE_ADDRESS))
    yield CONNTRACK_STATE.flow(175, left, load(f.SNAT_KIND, f.Snat.NODE_ADDRESS), goto(ROUTE))
    yield CONNTRACK_STATE.flow(172, (ct_state("-rpl+trk"), f.CT_ENTERED_BY.eq(Entered.UPLINK), f.OUTSIDE.eq(1)), *_SEEN)
    yield CONNTRACK_STATE.flow(
        171, (ct_state("+new+trk"), f.OUTSIDE.eq(1)), resubmit(LEARN_REPLY), resubmit(AFFINITY), goto(SERVICE_SOURCE)
    )
    yield CONNTRACK_STATE.flow(170, (ct_state("+new+trk"),), resubmit(AFFINITY), goto(SERVICE_SOURCE))
    yield CONNTRACK_STATE.flow(100, (ct_state("+trk"),), goto(ROUTE))


def _own_invalid(invalid: f.Item) -> Iterator[Flow]:
    """The host's own: its half of a conversation whose other half came by another way is its business too.

    But not segments in the middle of a connection. It may be one to a service, and the client would answer what it
    gets from the endpoint's own address with a reset; a SYN or a RST does no such harm.
    """
    own = (invalid, f.ENTERED_BY.eq(Entered.LOCAL), f.OWN_SOURCE.eq(1))
    middle = f.TCP_FLAGS.masked(0, f.TCP_SYN | f.TCP_RST)
    for family in (f.IP4, f.IP6):
        yield CONNTRACK_STATE.flow(195, (*own, family, f.IP_PROTO.eq(f.TCP), middle))
    yield CONNTRACK_STATE.flow(192, own, goto(ROUTE))


def _commit() -> Iterator[Flow]:
    """Two connections with one reply tuple cannot be told apart: the plain one, if it is the second, moves.

    One that was translated is found only by its replies, so a new plain connection is looked up the other way round.
    Of TCP only by its first segment: any other one would upset the state of the connection that it finds, which with
    a second packet before the first is remembered is its own.
    """
    new = (ct_state("+new+trk"), f.CT_CONNECTION_FACTS.eq(0))
    # Nothing is found, or what translates nothing. One that has just expired is told as invalid, and still in the way.
    alone = (ct_state("-inv+trk"), f.CT_SERVICE.eq(0), f.CT_MOVED.eq(0))
    whole = f.IP_FRAG.eq(0)  # a fragment has no ports to exchange
    look = load(f.TURNED, 1), Ct(f.SERVICE_ZONE, CT_COMMIT.id)
    commit = Ct(f.SERVICE_ZONE, SNAT.id, commit=True, exec=REMEMBER)
    for family in (4, 6):
        move_away = Nat("src", Ip(family, 0))
        moving = Ct(f.SERVICE_ZONE, SNAT.id, commit=True, nat=move_away, exec=(*REMEMBER, load(f.CT_MOVED, 1)))
        yield CT_COMMIT.flow(100, (f.ETH[family], *new), commit)
        for protocol, first in ((f.TCP, (f.TCP_FLAGS.masked(f.TCP_SYN, f.TCP_SYN),)), (f.UDP, ())):
            of, turn = (f.ETH[family], f.IP_PROTO.eq(protocol)), _turn(family, protocol)
            yield PORT_CHECK.flow(100, (*of, *first, whole, *new), *turn, *look)
            yield CT_COMMIT.flow(120, (*of, f.TURNED.eq(1), *alone), *turn, commit)
            yield CT_COMMIT.flow(110, (*of, f.TURNED.eq(1)), *turn, moving)


def _turn(family: int, protocol: int) -> tuple[Move, ...]:
    """Exchange source and destination."""
    kept = f.KEPT_IP[family]
    return (
        move(f.IP_SRC[family], kept),
        move(f.IP_DST[family], f.IP_SRC[family]),
        move(kept, f.IP_DST[family]),
        move(f.L4_SRC[protocol], f.KEPT_PORT),
        move(f.L4_DST[protocol], f.L4_SRC[protocol]),
        move(f.KEPT_PORT, f.L4_DST[protocol]),
    )


def _sctp_ports() -> Iterator[Flow]:
    """SCTP of services, both ways. A datapath whose NAT has set the port already is told the same again."""
    for ip in (f.IP4, f.IP6):
        sctp = (ip, f.IP_PROTO.eq(f.SCTP))
        yield CT_COMMIT.flow(120, (*sctp, f.SERVICE.eq(1)), move(f.CT_ENDPOINT_PORT, f.SCTP_DST), goto(SNAT))
        reply = (*sctp, ct_state("+rpl+trk"), f.CT_SERVICE.eq(1))
        yield CT_COMMIT.flow(120, reply, move(f.CT_SERVICE_PORT, f.SCTP_SRC), goto(SNAT))


def tracked_with(prefix: Cidr | Ip, view: FleetView) -> Unit:
    """Packets between a host and what may be an endpoint."""
    outside = () if view.in_cluster(prefix) else (_FROM_OUTSIDE,)
    return unit(
        [
            CONNTRACK.flow(100, (f.ENTERED_BY.eq(Entered.UPLINK), *f.source(prefix)), *outside, _TRACK),
            CONNTRACK.flow(100, (f.ENTERED_BY.eq(Entered.LOCAL), *f.destination(prefix)), _TRACK),
        ]
    )


def to_pods(pods: PodCidr, view: FleetView) -> Unit:
    """Packets from the uplink, from anywhere, for pods."""
    del view
    return unit([_from_uplink(90, pods.cidr)])


def to_services(cidr: Cidr, view: FleetView) -> Unit:
    """Packets from the uplink, from anywhere, for services."""
    del view
    return unit([_from_uplink(91, cidr)])


def _from_uplink(priority: int, cidr: Cidr) -> Flow:
    return CONNTRACK.flow(priority, (f.ENTERED_BY.eq(Entered.UPLINK), *f.destination(cidr)), _FROM_OUTSIDE, _TRACK)


def forwarded_by_host(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets of this node's pods that the host sends on: tracked when the pod sent them, not a second time."""
    del view
    return unit(
        CONNTRACK.flow(120, (f.ENTERED_BY.eq(Entered.LOCAL), f.OWN_SOURCE.eq(0), *f.source(cidr)), goto(L2))
        for cidr in network.cidrs
    )


def node_port(front: Frontend, view: FleetView) -> Unit:
    """Packets from the uplink for a NodePort, or for a service's port of an address that is also a node's."""
    del view
    if front.entrance is Entrance.CLUSTER_IP:
        return EMPTY
    number = front.protocol.number
    port = (f.IP_PROTO.eq(number), f.L4_DST[number].eq(front.port))
    at = (f.ETH[front.ip.family], f.NODE_PORT.eq(1)) if front.ip.value == 0 else f.destination(front.ip)
    return unit([CONNTRACK.flow(95, (f.ENTERED_BY.eq(Entered.UPLINK), *at, *port), _FROM_OUTSIDE, _TRACK)])


def host_endpoint(target: Target, view: FleetView) -> Unit:
    """Packets between anybody and an endpoint that is a port of a node: its clients may have come by a service."""
    del view
    number = target.protocol.number
    to = (*f.destination(target.ip), f.IP_PROTO.eq(number), f.L4_DST[number].eq(target.port))
    back = (*f.source(target.ip), f.IP_PROTO.eq(number), f.L4_SRC[number].eq(target.port))
    return unit(
        [
            CONNTRACK.flow(96, (f.ENTERED_BY.eq(Entered.UPLINK), *to), _FROM_OUTSIDE, _TRACK),
            CONNTRACK.flow(96, (f.ENTERED_BY.eq(Entered.LOCAL), *back), _TRACK),
        ]
    )


FEATURES = (
    Feature("conntrack", 10, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),
    Feature("conntrack.tracked", 11, ScopeKind.FLEET, Derived.TRACKED, tracked_with),
    Feature("conntrack.pods", 27, ScopeKind.FLEET, Derived.POD_CIDR, to_pods),
    Feature("conntrack.services", 28, ScopeKind.FLEET, Derived.SERVICE_RANGE, to_services),
    Feature("conntrack.lone_address", 30, ScopeKind.FLEET, Derived.LONE_ADDRESS, to_services),
    Feature("conntrack.external", 50, ScopeKind.FLEET, Derived.FRONTEND, node_port),
    Feature("conntrack.host_endpoint", 51, ScopeKind.FLEET, Derived.HOST_ENDPOINT, host_endpoint),
    Feature("conntrack.node", 12, ScopeKind.NODE, Derived.NODE_NETWORK, forwarded_by_host),
)
