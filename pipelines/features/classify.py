"""Table classify: by which port a packet entered, and what may enter by it at all."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import LOCAL_PORT, Output, SetField, load, move
from pipelines.addresses import Ip
from pipelines.derived import Derived, LocalPod, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.fields import Entered
from pipelines.flow import Flow
from pipelines.model import Port, TrafficMode
from pipelines.tables import ARP, CLASSIFY, DESTINATION, ND, SPOOF_GUARD, TUNNEL_GUARD, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import NodeView

ND_TYPES = range(133, 138)  # router and neighbour solicitation and advertisement, redirect (RFC 4861)
_MULTICAST = f.ETH_DST.masked(f.MULTICAST, f.MULTICAST)


def node_ports(network: NodeNetwork, view: NodeView) -> Unit:
    """Packets that enter by the uplink, by the host's own port or by gw0."""
    del network
    own = view.own_ips
    flows: list[Flow] = []
    if view.uplink and view.local:
        flows += _uplink(view.uplink)
        flows += _local(view.uplink, own)
        if view.settings.traffic_mode is not TrafficMode.NO_ENCAP:
            flows += _outer(view.uplink, view.settings.tunnel.udp_port, [at.ip for at in view.node.addresses])
    if view.gateway:
        flows += _gateway(view.gateway, own)
    if view.tunnel:
        entered = load(f.ENTERED_BY, Entered.TUNNEL)
        flows.append(CLASSIFY.flow(150, (f.IN_PORT.eq(view.tunnel.number),), entered, goto(TUNNEL_GUARD)))
    return unit(flows)


def _outer(uplink: Port, udp_port: int, own: list[Ip]) -> Iterator[Flow]:
    """Outer packets of our tunnels: Open vSwitch itself ends and begins them at the host's port."""
    udp = (f.IP_PROTO.eq(f.UDP), f.UDP_DST.eq(udp_port))
    for ip in own:
        for_me = (f.IN_PORT.eq(uplink.number), f.ETH_DST.eq(uplink.mac), *f.destination(ip), *udp)
        yield CLASSIFY.flow(250, for_me, Output(LOCAL_PORT))
        yield CLASSIFY.flow(250, (f.IN_PORT.eq(LOCAL_PORT), *f.source(ip), *udp), Output(uplink.number))


def _enter(priority: int, conditions: tuple[f.Item, ...], entered: Entered, *facts: SetField) -> Flow:
    return CLASSIFY.flow(
        priority,
        conditions,
        load(f.ENTERED_BY, entered),
        *facts,
        move(f.ETH_SRC, f.CLIENT_MAC),
        goto(DESTINATION),
    )


def _uplink(uplink: Port) -> Iterator[Flow]:
    at = f.IN_PORT.eq(uplink.number)
    yield CLASSIFY.flow(300, (at, f.TAGGED), Output(LOCAL_PORT))
    yield from _neighbor_messages(uplink.number, Entered.UPLINK)
    yield _enter(150, (at, f.ETH_DST.eq(uplink.mac)), Entered.UPLINK)
    yield CLASSIFY.flow(150, (at, _MULTICAST), Output(LOCAL_PORT))
    yield CLASSIFY.flow(100, (at,))  # frames for somebody else: the fabric floods, or the uplink is promiscuous


def _local(uplink: Port, own: list[Ip]) -> Iterator[Flow]:
    at = f.IN_PORT.eq(LOCAL_PORT)
    yield CLASSIFY.flow(300, (at, f.TAGGED), Output(uplink.number))
    yield from _neighbor_messages(LOCAL_PORT, Entered.LOCAL)
    yield CLASSIFY.flow(160, (at, _MULTICAST), Output(uplink.number))
    yield from _own_sources(at, Entered.LOCAL, own)
    yield _enter(140, (at,), Entered.LOCAL)


def _gateway(gateway: Port, own: list[Ip]) -> Iterator[Flow]:
    at = f.IN_PORT.eq(gateway.number)
    yield CLASSIFY.flow(300, (at, f.TAGGED))
    yield from _neighbor_messages(gateway.number, Entered.GATEWAY)
    yield CLASSIFY.flow(160, (at, _MULTICAST))
    yield from _own_sources(at, Entered.GATEWAY, own)
    yield _enter(140, (at,), Entered.GATEWAY)


def _own_sources(at: f.Item, entered: Entered, own: list[Ip]) -> Iterator[Flow]:
    """Host packets with an address of the node as source: the host's own, not forwarded ones."""
    for ip in own:
        yield _enter(150, (at, *f.source(ip)), entered, load(f.OWN_SOURCE, 1))


def _neighbor_messages(port: int, entered: Entered) -> Iterator[Flow]:
    at = f.IN_PORT.eq(port)
    yield CLASSIFY.flow(200, (at, f.ARP), load(f.ENTERED_BY, entered), goto(ARP))
    for kind in ND_TYPES:
        yield CLASSIFY.flow(
            200,
            (at, f.IP6, f.IP_PROTO.eq(f.ICMP6), f.ICMP6_TYPE.eq(kind)),
            load(f.ENTERED_BY, entered),
            goto(ND),
        )


def pod_port(pod: LocalPod, view: NodeView) -> Unit:
    """Packets that enter by a pod's port."""
    port = view.port(pod.port)
    if port is None:
        return EMPTY
    return unit(
        [
            CLASSIFY.flow(
                150,
                (f.IN_PORT.eq(port.number),),
                load(f.ENTERED_BY, Entered.POD),
                move(f.ETH_SRC, f.CLIENT_MAC),
                goto(SPOOF_GUARD),
            )
        ]
    )


FEATURES = (
    Feature("classify.node", 2, ScopeKind.NODE, Derived.NODE_NETWORK, node_ports),
    Feature("classify.pod", 3, ScopeKind.NODE, Derived.LOCAL_POD, pod_port),
)
