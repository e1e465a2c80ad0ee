"""Rules: how facts follow from the model and from one another.

A rule is a pure function of one fact (a model value or another derived fact) and what it reads besides; it
returns claims. Where several objects claim one key (two pods one address, two services one ClusterIP, two
nodes one podCIDR) the oldest wins, always the same one whatever the order of events, and the losers are told.
Rules run in the order of RULES; a rule reads only what earlier rules made.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pipelines import advice
from pipelines.addresses import BITS, Cidr, Ip, mac_text, parse_cidr, parse_ip, pod_mac, pod_port_name, usable_mac
from pipelines.derived import (
    Backend,
    Derived,
    Frontend,
    LocalPod,
    NodeNetwork,
    PeerMac,
    PodCidr,
    Router,
    ServiceBackends,
    Target,
    known_segment,
    segments,
    service_port_key,
    tuple_key,
)
from pipelines.model import (
    Endpoint,
    EndpointSlice,
    Kind,
    MacSource,
    Node,
    Pod,
    Problem,
    Protocol,
    Service,
    ServiceCidr,
    ServicePort,
    Settings,
    neighbor_key,
    router_evidence_key,
)
from pipelines.unit import FLEET, Member, Scope, ScopeKind
from pipelines.view import Facts


class Claim(NamedTuple):
    """`rank` orders claims of one key: the smallest wins."""

    kind: Derived
    key: str
    value: Any
    rank: tuple[str, ...] = ()


class Outcome(NamedTuple):
    claims: Iterable[Claim] = ()
    problems: Iterable[Problem] = ()


class Rule(NamedTuple):
    """`subject`: the kind of fact it runs for, once for each key."""

    name: str
    subject: Kind | Derived
    derive: Callable[[str, Any, Facts], Outcome]


def pod_cidr_claims(key: str, node: Node, facts: Facts) -> Outcome:
    del facts
    rank = (node.created, key)
    return Outcome(Claim(Derived.POD_CIDR_CLAIM, str(cidr), (cidr, *rank), rank) for cidr in node.pod_cidrs)


def node_claims(key: str, node: Node, facts: Facts) -> Outcome:
    rank = (node.created, key)
    claims, problems = [], []
    for at in node.addresses:
        if whose := _older_prefix(key, node, at.ip, facts):
            reason = f"{at.ip} lies in {whose}; ignored here"
            problems.append(Problem(Kind.NODE, key, "metadata.annotations[signalbox.dev/node-addresses]", reason))
        else:
            claims.append(Claim(Derived.NODE_ADDRESS, str(at.ip), key, rank))
    claims += [Claim(Derived.SEGMENT, name, True) for name in segments(node)]
    if node.zone:
        claims.append(Claim(Derived.ZONE, node.zone, True))
    if node.datapath_id is not None:
        claims.append(Claim(Derived.DATAPATH, f"{node.datapath_id:016x}", key, rank))
    return Outcome(claims, problems)


def _older_prefix(key: str, node: Node, ip: Ip, facts: Facts) -> str:
    """What takes an address that a node says is its own: a service range, or the podCIDR of a node before it."""
    found = next((cidr for cidr in _ranges_before(node.created, facts) if cidr.__contains__(ip)), None)
    if found is not None:
        return f"the older service range {found}"
    home = facts.pod_cidr(ip)
    if home is None or home.node == key:
        return ""
    owner = facts.get(Kind.NODE, home.node)
    older = owner is not None and (owner.created, home.node) < (node.created, key)
    return f"podCIDR {home.cidr} of the older Node {home.node}" if older else ""


def _ranges_before(created: str, facts: Facts) -> list[Cidr]:
    """Service ranges that were there before a node: those of the configuration always, others by age."""
    ranges = list(facts.settings().service_cidrs)
    for value in facts.all(Kind.SERVICE_CIDR).values():
        if value.created < created:
            ranges += value.cidrs
    return ranges


def pod_cidrs(key: str, settings: Settings, facts: Facts) -> Outcome:
    """Of podCIDRs that overlap without being equal the oldest node's is kept; older service ranges are left alone."""
    del key, settings
    kept: list[Cidr] = []
    claims, problems = [], []
    owners: dict[Cidr, str] = {}
    claimed = facts.all(Derived.POD_CIDR_CLAIM).values()
    shortest = {4: 32, 6: 128}
    by_prefix: dict[Cidr, list[Cidr]] = {}
    for cidr, _created, _name in claimed:
        shortest[cidr.family] = min(shortest[cidr.family], cidr.length)
    for cidr, created, name in sorted(claimed, key=lambda claim: (claim[1], claim[2], claim[0])):
        taken = next((other for other in _ranges_before(created, facts) if other.overlaps(cidr)), None)
        if taken is not None:
            reason = f"{cidr} overlaps the older service range {taken}; it is not routed"
            problems.append(Problem(Kind.NODE, name, "spec.podCIDRs", reason))
            continue
        coarse = Cidr(cidr.family, cidr.value >> (_bits(cidr) - shortest[cidr.family]), shortest[cidr.family])
        clash = next((other for other in by_prefix.get(coarse, ()) if other.overlaps(cidr)), None)
        if clash is not None:
            reason = f"{cidr} overlaps {clash} of the older Node {owners[clash]}; it is not routed"
            problems.append(Problem(Kind.NODE, name, "spec.podCIDRs", reason))
            continue
        by_prefix.setdefault(coarse, []).append(cidr)
        owners[cidr] = name
        kept.append(cidr)
        claims.append(Claim(Derived.POD_CIDR, str(cidr), PodCidr(cidr, name)))
    lengths = tuple(sorted({(cidr.family, cidr.length) for cidr in kept}))
    claims.append(Claim(Derived.POD_CIDR_LENGTHS, "", lengths))
    return Outcome(claims, problems)


def _bits(cidr: Cidr) -> int:
    return 32 if cidr.family == 4 else 128


def uplink_macs(key: str, node: Node, facts: Facts) -> Outcome:
    """On one link a MAC is one station's: of two nodes that seem to have it, the older one keeps it."""
    mac, problems = _peer_mac(key, node, facts)
    if mac is None:
        return Outcome((), problems)
    rank = (node.created, key)
    links = [name for name in segments(node) if known_segment(name)]
    return Outcome([Claim(Derived.UPLINK_MAC, f"{link} {mac_text(mac.mac)}", key, rank) for link in links], problems)


def node_network(key: str, node: Node, facts: Facts) -> Outcome:
    mac, _ = _peer_mac(key, node, facts)
    links = [name for name in segments(node) if known_segment(name)] if mac else []
    if mac and any(facts.get(Derived.UPLINK_MAC, f"{link} {mac_text(mac.mac)}") != key for link in links):
        mac = None
    network = NodeNetwork(
        key,
        tuple(cidr for cidr in node.pod_cidrs if facts.get(Derived.POD_CIDR, str(cidr)) == PodCidr(cidr, key)),
        tuple(at.ip for at in node.addresses if facts.get(Derived.NODE_ADDRESS, str(at.ip)) == key),
        segments(node),
        mac,
    )
    return Outcome([Claim(Derived.NODE_NETWORK, key, network)])


def _peer_mac(key: str, node: Node, facts: Facts) -> tuple[PeerMac | None, list[Problem]]:
    """By the configured order; what read-back showed ranks just above not knowing."""
    problems: list[Problem] = []
    for source in facts.settings().mac_sources:
        found = None
        if source is MacSource.ANNOTATION:
            found = node.mac
        elif source is MacSource.SWITCH and node.uplink is not None:
            port = facts.port(key, node.uplink)
            found = port.mac if port else None
        elif source is MacSource.NEIGHBOR:
            neighbor = facts.get(Kind.NEIGHBOR, neighbor_key(key))
            found = neighbor.mac if neighbor else None
        if found is None:
            continue
        if usable_mac(found):
            return PeerMac(found, source.value), problems
        reason = f"{mac_text(found)} from {source.value} is no station's MAC; not used"
        problems.append(Problem(Kind.NODE, key, "uplink MAC", reason))
    evidence = facts.get(Kind.EVIDENCE, key)
    return (PeerMac(evidence.mac, "read-back") if evidence else None), problems


def routers(key: str, node: Node, facts: Facts) -> Outcome:
    """Of the next hops that a node names, in their order: the first that answers, else the first that ever did."""
    claims = []
    for family in (4, 6):
        named = [ip for ip in node.gateways if ip.family == family]
        if named:
            claims.append(Claim(Derived.ROUTER, f"{key} {family}", _router(key, node, named, facts)))
    return Outcome(claims)


def _router(key: str, node: Node, named: list[Ip], facts: Facts) -> Router:
    known: list[Router] = []
    if facts.settings().ask_routers:
        own = facts.port(key, node.uplink) if node.uplink else None
        for ip in named:
            found = facts.get(Kind.NEIGHBOR, neighbor_key(key, ip))
            if found is None or not usable_mac(found.mac) or (own and own.mac == found.mac):
                continue
            router = Router(key, ip, PeerMac(found.mac, MacSource.NEIGHBOR.value))
            if found.reachable:
                return router
            known.append(router)
    if known:
        return known[0]
    evidence = facts.get(Kind.EVIDENCE, router_evidence_key(key, named[0].family))
    return Router(key, named[0], PeerMac(evidence.mac, "read-back") if evidence else None)


def members(key: str, node_name: str, facts: Facts) -> Outcome:
    node = facts.get(Kind.NODE, node_name)
    scopes = {FLEET, Scope(ScopeKind.NODE, node_name)}
    scopes |= {Scope(ScopeKind.SEGMENT, name) for name in segments(node)}
    if node.zone:
        scopes.add(Scope(ScopeKind.ZONE, node.zone))
    return Outcome([Claim(Derived.MEMBER, key, Member(node_name, frozenset(scopes)))])


def pod_addresses(key: str, pod: Pod, facts: Facts) -> Outcome:
    if not pod.node:
        return Outcome()
    claims, problems = [], []
    for ip in pod.ips:
        if whose := _stands_for(ip, facts):
            problems.append(Problem(Kind.POD, key, "status.podIPs", f"{ip} is {whose}; ignored here"))
        else:
            claims.append(Claim(Derived.POD_ADDRESS, str(ip), key, (pod.created, key)))
    return Outcome(claims, problems)


def _stands_for(ip: Ip, facts: Facts) -> str:
    """What an address stands for that therefore cannot be a pod's; "" when it is free."""
    settings = facts.settings()
    if ip in (settings.virtual_ip4, settings.virtual_ip6):
        return "the virtual address"
    node = facts.get(Derived.NODE_ADDRESS, str(ip))
    if node is not None:
        return f"an address of Node {node}"
    home = facts.pod_cidr(ip)
    if home is not None and ip in (home[0].address(1), home[0].address(2)):
        return f"the {'gateway' if ip == home[0].address(1) else 'SNAT address'} of podCIDR {home[0]}"
    return ""


def _not_for_services(ip: Ip, facts: Facts) -> str:
    """What a ClusterIP would take away from others; "" when nothing."""
    if whose := _stands_for(ip, facts):
        return whose
    home = facts.pod_cidr(ip)
    return f"in podCIDR {home.cidr} of Node {home.node}" if home else ""


def local_pods(key: str, pod: Pod, facts: Facts) -> Outcome:
    """A pod that did not get the address its MAC follows from would share the MAC with the one that did."""
    ips = tuple(ip for ip in pod.ips if facts.get(Derived.POD_ADDRESS, str(ip)) == key)
    if not ips or pod_mac(ips) != pod_mac(pod.ips):
        return Outcome()
    local = LocalPod(key, pod.node, pod_port_name(pod.namespace, pod.name), pod_mac(ips), ips)
    return Outcome([Claim(Derived.LOCAL_POD, key, local)])


def backends(key: str, slice_: EndpointSlice, facts: Facts) -> Outcome:
    del key, facts
    found: dict[str, list[Backend]] = {}
    for port in slice_.ports:
        for endpoint in slice_.endpoints:
            at = service_port_key(slice_.service, port.name, port.protocol, endpoint.ip.family)
            found.setdefault(at, []).append(_backend(endpoint, port.port))
    return Outcome(Claim(Derived.BACKENDS, at, tuple(listed)) for at, listed in found.items())


def _backend(endpoint: Endpoint, port: int) -> Backend:
    return Backend(endpoint.ip, port, endpoint.ready, endpoint.serving and endpoint.terminating)


def services(key: str, service: Service, facts: Facts) -> Outcome:
    """Endpoints by KEP-1669: the ready ones; those terminating but still serving only when none is ready.

    Host traffic is tracked with endpoints outside the pod network, which a host may reach as a service and directly.
    """
    claims: list[Claim] = []
    problems: list[Problem] = []
    rank = (service.created, key)
    for ip in service.cluster_ips:
        if whose := _not_for_services(ip, facts):
            problems.append(Problem(Kind.SERVICE, key, "spec.clusterIPs", f"{ip} is {whose}; ignored here"))
            continue
        for port in service.ports:
            if port.protocol is Protocol.SCTP:
                continue
            at = service_port_key(key, port.name, port.protocol, ip.family)
            targets, problem = _targets(key, port, facts.get(Derived.BACKENDS, at) or (), facts)
            problems += problem
            frontend = Frontend(ip, port.protocol, port.port, key, at)
            claims.append(Claim(Derived.SERVICE_PORT, at, ServiceBackends(at, key, port.protocol, targets)))
            claims.append(Claim(Derived.FRONTEND, tuple_key(ip, port.protocol, port.port), frontend, rank))
            claims += [Claim(Derived.ENDPOINT, tuple_key(t.ip, t.protocol, t.port), t) for t in targets]
            claims += [Claim(Derived.TRACKED, str(t.ip), t.ip) for t in targets if facts.pod_cidr(t.ip) is None]
    return Outcome(claims, problems)


def _targets(
    service: str, port: ServicePort, found: tuple[Backend, ...], facts: Facts
) -> tuple[tuple[Target, ...], list[Problem]]:
    usable = [one for one in found if one.ready] or [one for one in found if one.serving_terminating]
    chosen = sorted({Target(one.ip, one.port, port.protocol) for one in usable})
    most = facts.settings().endpoints_per_service_port
    if len(chosen) <= most:
        return tuple(chosen), []
    count = f"{len(chosen)} IPv{chosen[0].ip.family} endpoints"
    reason = f"port {port.port}/{port.protocol} has {count}; only the {most} lowest addresses are used"
    return tuple(chosen[:most]), [Problem(Kind.SERVICE, service, "endpoints", reason)]


def service_ranges(key: str, value: ServiceCidr | Settings, facts: Facts) -> Outcome:
    """In a range all that is no service is refused: so it must not hold pods or nodes that were there first."""
    if isinstance(value, Settings):
        return Outcome(Claim(Derived.SERVICE_RANGE, str(cidr), cidr) for cidr in value.service_cidrs)
    claims, problems = [], []
    for cidr in value.cidrs:
        if whose := _held_in(cidr, facts):
            reason = f"{cidr} {whose}; it is not used as a service range"
            problems.append(Problem(Kind.SERVICE_CIDR, key, "spec.cidrs", reason))
        else:
            claims.append(Claim(Derived.SERVICE_RANGE, str(cidr), cidr))
    return Outcome(claims, problems)


def _held_in(cidr: Cidr, facts: Facts) -> str:
    """Pods or a node that a range holds: those that yield to the range have no podCIDR and no address by now."""
    for home in facts.all(Derived.POD_CIDR).values():
        if home.cidr.overlaps(cidr):
            return f"overlaps podCIDR {home.cidr} of Node {home.node}"
    for address, node in facts.all(Derived.NODE_ADDRESS).items():
        if cidr.__contains__(parse_ip(address)):
            return f"holds {address}, an address of Node {node}"
    return ""


def lone_addresses(key: str, front: Frontend, facts: Facts) -> Outcome:
    """Outside every known range a service's address is a range of its own: tracked, refused where it has no port."""
    del key
    if any(cidr.__contains__(front.ip) for cidr in facts.all(Derived.SERVICE_RANGE).values()):
        return Outcome()
    family, value = front.ip
    return Outcome([Claim(Derived.LONE_ADDRESS, str(front.ip), Cidr(family, value, BITS[family]))])


def tracked_range(key: str, value: Any, facts: Facts) -> Outcome:
    """Host traffic is tracked with podCIDRs, service ranges and node addresses, both ways (rule R1)."""
    del facts, value
    prefix = parse_cidr(key) if "/" in key else parse_ip(key)
    if isinstance(prefix, Cidr) and prefix.length == BITS[prefix.family]:
        prefix = prefix.address(0)  # one address, however it is written, is tracked once
    return Outcome([Claim(Derived.TRACKED, str(prefix), prefix)])


def node_advice(key: str, node: Node, facts: Facts) -> Outcome:
    return Outcome((), tuple(advice.about_node(key, node, facts)))


def pod_advice(key: str, pod: Pod, facts: Facts) -> Outcome:
    return Outcome((), tuple(advice.about_pod(key, pod, facts)))


RULES = (
    Rule("podCIDR claims", Kind.NODE, pod_cidr_claims),
    Rule("pod CIDRs", Kind.SETTINGS, pod_cidrs),
    Rule("node claims", Kind.NODE, node_claims),
    Rule("uplink MACs", Kind.NODE, uplink_macs),
    Rule("node network", Kind.NODE, node_network),
    Rule("routers", Kind.NODE, routers),
    Rule("node advice", Kind.NODE, node_advice),
    Rule("members", Derived.DATAPATH, members),
    Rule("pod addresses", Kind.POD, pod_addresses),
    Rule("pods", Kind.POD, local_pods),
    Rule("pod advice", Kind.POD, pod_advice),
    Rule("backends", Kind.ENDPOINT_SLICE, backends),
    Rule("services", Kind.SERVICE, services),
    Rule("service ranges", Kind.SERVICE_CIDR, service_ranges),
    Rule("configured ranges", Kind.SETTINGS, service_ranges),
    Rule("lone addresses", Derived.FRONTEND, lone_addresses),
    Rule("tracked ranges", Derived.SERVICE_RANGE, tracked_range),
    Rule("tracked lone addresses", Derived.LONE_ADDRESS, tracked_range),
    Rule("tracked podCIDRs", Derived.POD_CIDR, tracked_range),
    Rule("tracked nodes", Derived.NODE_ADDRESS, tracked_range),
)

# Kinds of which every claim counts: the value is all of them together, in a fixed order.
UNITED = frozenset({Derived.BACKENDS})

# What a user calls the thing that two objects may both want, and the field in which they say so.
CONTESTED: dict[Derived, tuple[Kind, str]] = {
    Derived.DATAPATH: (Kind.NODE, "metadata.annotations[signalbox.dev/datapath-id]"),
    Derived.NODE_ADDRESS: (Kind.NODE, "metadata.annotations[signalbox.dev/node-addresses]"),
    Derived.UPLINK_MAC: (Kind.NODE, "uplink MAC"),
    Derived.POD_CIDR_CLAIM: (Kind.NODE, "spec.podCIDRs"),
    Derived.POD_ADDRESS: (Kind.POD, "status.podIPs"),
    Derived.FRONTEND: (Kind.SERVICE, "spec.ports"),
}
