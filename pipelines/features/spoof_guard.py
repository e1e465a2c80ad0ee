"""Table spoof_guard: a pod speaks only for itself, at every layer."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.addresses import Ip, link_local
from pipelines.derived import Derived, LocalPod
from pipelines.feature import Feature, unit
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import ARP, DESTINATION, ND, SPOOF_GUARD, goto
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView, NodeView

ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, SOLICITATION, ADVERTISEMENT, REDIRECT = range(133, 138)
UNSPECIFIED = Ip(6, 0)


def _icmp6(kind: int) -> tuple[f.Item, ...]:
    return f.IP6, f.IP_PROTO.eq(f.ICMP6), f.ICMP6_TYPE.eq(kind)


def never_from_pods(settings: Settings, view: FleetView) -> Unit:
    """Tagged frames, router advertisements, redirects, DHCP server replies, multicast, others' neighbour discovery."""
    del settings, view
    dhcp = [(f.IP4, f.IP_PROTO.eq(f.UDP), f.UDP_SRC.eq(67)), (f.IP6, f.IP_PROTO.eq(f.UDP), f.UDP_SRC.eq(547))]
    forbidden = [_icmp6(ROUTER_ADVERTISEMENT), _icmp6(REDIRECT), *dhcp]
    flows = [SPOOF_GUARD.flow(220, conditions) for conditions in forbidden]
    flows.append(SPOOF_GUARD.flow(230, (f.TAGGED,)))  # a tag would leave by the uplink as it is: into another VLAN
    # What is not exactly a pod's own is none of its other IPv6 packets, which conntrack would have to drop.
    flows += [SPOOF_GUARD.flow(180, _icmp6(kind)) for kind in (ROUTER_SOLICITATION, SOLICITATION, ADVERTISEMENT)]
    flows.append(SPOOF_GUARD.flow(160, (f.ETH_DST.masked(f.MULTICAST, f.MULTICAST),)))
    return unit(flows)


def pod_addresses(pod: LocalPod, view: NodeView) -> Unit:
    """Packets that a pod sends with its own addresses."""
    port = view.port(pod.port)
    if port is None:
        return EMPTY
    frame = (f.IN_PORT.eq(port.number), f.ETH_SRC.eq(pod.mac))
    flows: list[Flow] = []
    for ip in pod.ips:
        flows += _arp(frame, pod.mac, ip) if ip.family == 4 else _nd(frame, pod.mac, ip)
        flows.append(SPOOF_GUARD.flow(150, (*frame, *f.source(ip)), goto(DESTINATION)))
    if any(ip.family == 6 for ip in pod.ips):
        flows += _link_local(frame, pod.mac)
    return unit(flows)


def _arp(frame: tuple[f.Item, ...], mac: int, ip: Ip) -> Iterator[Flow]:
    """Its own address, or none yet (a probe, RFC 5227)."""
    for sender in (ip.value, 0):
        yield SPOOF_GUARD.flow(200, (*frame, f.ARP, f.ARP_SHA.eq(mac), f.ARP_SPA.eq(sender)), goto(ARP))


def _nd(frame: tuple[f.Item, ...], mac: int, ip: Ip) -> Iterator[Flow]:
    """Solicitations from its address, probes for it, advertisements of it; options name its MAC or are absent."""
    for option in (mac, 0):
        solicit = (*frame, *_icmp6(SOLICITATION), f.ND_SLL.eq(option))
        yield SPOOF_GUARD.flow(200, (*solicit, f.IP6_SRC.eq(ip.value)), goto(ND))
        advertise = (*frame, *_icmp6(ADVERTISEMENT), f.ND_TLL.eq(option), f.ND_TARGET.eq(ip.value))
        for sender in dict.fromkeys((ip, link_local(mac))):
            yield SPOOF_GUARD.flow(200, (*advertise, f.IP6_SRC.eq(sender.value)), goto(ND))
    probe = (*frame, *_icmp6(SOLICITATION), f.IP6_SRC.eq(UNSPECIFIED.value), f.ND_TARGET.eq(ip.value))
    yield SPOOF_GUARD.flow(200, probe, goto(ND))


def _link_local(frame: tuple[f.Item, ...], mac: int) -> Iterator[Flow]:
    own = link_local(mac)
    yield from _nd(frame, mac, own)
    for sender in (own, UNSPECIFIED):
        yield SPOOF_GUARD.flow(200, (*frame, *_icmp6(ROUTER_SOLICITATION), f.IP6_SRC.eq(sender.value)), goto(ND))
    yield SPOOF_GUARD.flow(150, (*frame, f.IP6, f.IP6_SRC.eq(own.value)), goto(DESTINATION))


FEATURES = (
    Feature("spoof_guard", 4, ScopeKind.FLEET, Kind.SETTINGS, never_from_pods),
    Feature("spoof_guard.pod", 5, ScopeKind.NODE, Derived.LOCAL_POD, pod_addresses),
)
