"""Tables arp, nd and nd_reply: who answers whom.

Messages are switched by the address they ask for: a pod's to the pod, the gateway's and the node's own to gw0,
where the host's kernel answers (and asks, with whichever of its addresses it likes); those of host and uplink
stay between the two. Only the SNAT address, which no kernel holds, is answered by flows.
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import IN_PORT_ACTION, LOCAL_PORT, Action, Controller, Meter, Output, Resubmit, load, move
from pipelines.addresses import Ip, link_local
from pipelines.derived import Derived, LocalPod, NodeNetwork, Router
from pipelines.feature import Feature, unit
from pipelines.features.classify import ND_TYPES
from pipelines.features.spoof_guard import ADVERTISEMENT, ROUTER_SOLICITATION, SOLICITATION, UNSPECIFIED
from pipelines.fields import Entered
from pipelines.flow import Flow
from pipelines.ids import NEIGHBOR_METER
from pipelines.tables import ARP, ND, ND_REPLY, NEIGHBOR_WATCH, goto, resubmit
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import NodeView, SegmentView

_INSIDE = (Entered.POD, Entered.GATEWAY)
_ND = (f.IP6, f.IP_PROTO.eq(f.ICMP6))
WATCH_ROUTERS, WATCH_PEERS = "neighbors.watch_routers", "neighbors.watch_peers"  # who is asked follows from them
WATCHED_BYTES = 128  # an ARP message has 42, an advertisement with its option 86
NA_FLAGS = 0x60000000  # solicited, override (RFC 4861); a node's SNAT address is no router


def pod_neighbors(pod: LocalPod, view: NodeView) -> Unit:
    """Messages for a pod, from other pods of its node and from the host."""
    port = view.port(pod.port)
    if port is None:
        return EMPTY
    ips = [*pod.ips, link_local(pod.mac)] if any(ip.family == 6 for ip in pod.ips) else pod.ips
    flows = [flow for ip in ips for flow in _switched(ip, _INSIDE, port.number)]
    if any(ip.family == 4 for ip in pod.ips):
        flows += _probe_answers(pod.mac, port.number)
    return unit(flows)


def _probe_answers(mac: int, port: int) -> Iterator[Flow]:
    """Who has no address yet and asks whether one is free is answered by MAC alone (RFC 5227)."""
    for by in _INSIDE:
        yield ARP.flow(100, (f.ENTERED_BY.eq(by), f.ARP, f.ARP_TPA.eq(0), f.ARP_THA.eq(mac)), Output(port))


def _switched(ip: Ip, entered: tuple[Entered, ...], port: int) -> Iterator[Flow]:
    for by in entered:
        if ip.family == 4:
            yield ARP.flow(100, (f.ENTERED_BY.eq(by), f.ARP, f.ARP_TPA.eq(ip.value)), Output(port))
            continue
        for kind, asked in ((SOLICITATION, f.ND_TARGET), (ADVERTISEMENT, f.IP6_DST)):
            conditions = (f.ENTERED_BY.eq(by), *_ND, f.ICMP6_TYPE.eq(kind), asked.eq(ip.value))
            yield ND.flow(100, conditions, Output(port))


def node_neighbors(network: NodeNetwork, view: NodeView) -> Unit:
    """Messages between host and uplink, messages for the gateway, and questions for the SNAT address."""
    flows: list[Flow] = []
    uplink, gateway = view.uplink, view.gateway
    if uplink:
        flows += _between(Entered.UPLINK, LOCAL_PORT, resubmit(NEIGHBOR_WATCH))
        flows += _between(Entered.LOCAL, uplink.number)
    if gateway:
        for cidr in network.cidrs:
            flows += _switched(cidr.address(1), (Entered.POD,), gateway.number)
            flows += _answered(cidr.address(2), gateway.mac)
        for ip in (link_local(gateway.mac), *(at.ip for at in view.node.addresses)):
            flows += _switched(ip, (Entered.POD,), gateway.number)
        solicit = (f.ENTERED_BY.eq(Entered.POD), *_ND, f.ICMP6_TYPE.eq(ROUTER_SOLICITATION))
        flows.append(ND.flow(100, solicit, Output(gateway.number)))
    return unit(flows)


def _between(entered: Entered, port: int, *then: Resubmit) -> Iterator[Flow]:
    yield ARP.flow(100, (f.ENTERED_BY.eq(entered), f.ARP), Output(port), *then)
    for kind in ND_TYPES:
        yield ND.flow(100, (f.ENTERED_BY.eq(entered), *_ND, f.ICMP6_TYPE.eq(kind)), Output(port), *then)


def _answered(ip: Ip, mac: int) -> Iterator[Flow]:
    for by in _INSIDE:
        yield from arp_answer(by, ip, mac) if ip.family == 4 else nd_answer(by, ip, mac)


def arp_answer(entered: Entered, ip: Ip, mac: int | None) -> Iterator[Flow]:
    """Requests for `ip` are answered with `mac`; None: with that of whoever asks."""
    yield ARP.flow(
        110,
        (f.ENTERED_BY.eq(entered), f.ARP, f.ARP_OP.eq(1), f.ARP_TPA.eq(ip.value)),
        move(f.ETH_SRC, f.ETH_DST),
        *(() if mac is None else (load(f.ETH_SRC, mac),)),
        load(f.ARP_OP, 2),
        move(f.ARP_SHA, f.ARP_THA),
        *(() if mac is None else (load(f.ARP_SHA, mac),)),
        move(f.ARP_SPA, f.ARP_TPA),
        load(f.ARP_SPA, ip.value),
        Output(IN_PORT_ACTION),
    )


def nd_answer(entered: Entered, ip: Ip, mac: int | None, *when_probed: Action) -> Iterator[Flow]:
    """In two steps: what an advertisement holds may be set only once the message is one.

    `when_probed`: what becomes of the question of a station that has no address yet.
    """
    asked = (f.ENTERED_BY.eq(entered), *_ND, f.ND_TARGET.eq(ip.value))
    probe = (*asked, f.ICMP6_TYPE.eq(SOLICITATION), f.IP6_SRC.eq(UNSPECIFIED.value))
    yield ND.flow(120, probe, *when_probed)  # an answer would need an option, which flows cannot add
    yield ND.flow(110, (*asked, f.ICMP6_TYPE.eq(SOLICITATION)), load(f.ICMP6_TYPE, ADVERTISEMENT), goto(ND_REPLY))
    yield ND_REPLY.flow(
        100,
        (*asked, f.ICMP6_TYPE.eq(ADVERTISEMENT)),
        load(f.ND_OPTIONS_TYPE, 2),
        load(f.ND_RESERVED, NA_FLAGS),
        move(f.ETH_SRC, f.ND_TLL) if mac is None else load(f.ND_TLL, mac),
        move(f.ETH_SRC, f.ETH_DST),
        *(() if mac is None else (load(f.ETH_SRC, mac),)),
        move(f.IP6_SRC, f.IP6_DST),
        load(f.IP6_SRC, ip.value),
        load(f.IP_TTL, 255),
        Output(IN_PORT_ACTION),
    )


def watched_routers(router: Router, view: NodeView) -> Unit:
    """What the next hops that a node names say about themselves; the controller has asked, or wants to know."""
    named = [ip for ip in view.node.gateways if ip.family == router.ip.family]
    # A next hop may be a node of the segment, too: what it says is heard once.
    return unit(flow for ip in named for flow in watched(ip, 120)) if view.settings.ask_routers else EMPTY


def watched_peers(network: NodeNetwork, view: SegmentView) -> Unit:
    """What a neighbour says about its addresses, while nothing better than asking tells its MAC."""
    if not network.asked or not view.neighbours(network):
        return EMPTY
    return unit(flow for ip in network.addresses if ip.family == view.family for flow in watched(ip, 110))


def watched(ip: Ip, priority: int = 100) -> Iterator[Flow]:
    """Whatever is said on the uplink about who has `ip`, for the controller."""
    advertised = (*_ND, f.ICMP6_TYPE.eq(ADVERTISEMENT), f.ND_TARGET.eq(ip.value))
    said = (f.ARP, f.ARP_SPA.eq(ip.value)) if ip.family == 4 else advertised
    yield NEIGHBOR_WATCH.flow(priority, said, Meter(NEIGHBOR_METER), Controller(WATCHED_BYTES))


FEATURES = (
    Feature("neighbors.node", 6, ScopeKind.NODE, Derived.NODE_NETWORK, node_neighbors),
    Feature("neighbors.pod", 7, ScopeKind.NODE, Derived.LOCAL_POD, pod_neighbors),
    Feature(WATCH_ROUTERS, 33, ScopeKind.NODE, Derived.ROUTER, watched_routers),
    Feature(WATCH_PEERS, 34, ScopeKind.SEGMENT, Derived.NODE_NETWORK, watched_peers),
)
