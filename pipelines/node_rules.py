"""What follows from Nodes: podCIDRs, addresses, links, MACs, next hops, membership."""

from pipelines.addresses import Cidr, Ip, mac_text, usable_mac
from pipelines.claims import Claim, Outcome
from pipelines.derived import (
    READ_BACK,
    Derived,
    NodeNetwork,
    PeerMac,
    PodCidr,
    Router,
    known_segment,
    segments,
)
from pipelines.model import (
    Kind,
    MacSource,
    Node,
    Problem,
    Settings,
    neighbor_key,
    router_evidence_key,
)
from pipelines.unit import FLEET, Member, Scope, ScopeKind
from pipelines.view import Facts


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
    among_pods = tuple(at.ip for at in node.addresses if facts.pod_cidr(at.ip) is not None)
    if among_pods:
        claims.append(Claim(Derived.NODES_AMONG_PODS, "", among_pods))
    claims += [Claim(Derived.ROUTER_ADDRESS, str(ip), key, rank) for ip in node.gateways]
    claims += [Claim(Derived.SEGMENT, name, True) for name in segments(node)]
    if node.zone:
        claims.append(Claim(Derived.ZONE, node.zone, True))
    if node.datapath_id is not None:
        claims.append(Claim(Derived.DATAPATH, f"{node.datapath_id:016x}", key, rank))
    return Outcome(claims, problems)


def _older_prefix(key: str, node: Node, ip: Ip, facts: Facts) -> str:
    """What takes an address that a node says is its own: a service range, or the podCIDR of a node before it."""
    found = next((cidr for cidr in service_ranges(facts, node.created) if cidr.__contains__(ip)), None)
    if found is not None:
        return f"the older service range {found}"
    home = facts.pod_cidr(ip)
    if home is None or home.node == key:
        return ""
    owner = facts.get(Kind.NODE, home.node)
    older = owner is not None and (owner.created, home.node) < (node.created, key)
    return f"podCIDR {home.cidr} of the older Node {home.node}" if older else ""


def service_ranges(facts: Facts, before: str | None = None) -> list[Cidr]:
    """All, or those that were there before a time of creation: of the configuration always, others by age."""
    ranges = list(facts.settings().service_cidrs)
    for _, value in sorted(facts.all(Kind.SERVICE_CIDR).items()):
        if before is None or value.created < before:
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
        taken = next((other for other in service_ranges(facts, created) if other.overlaps(cidr)), None)
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
    """On one link a MAC is one station's: of nodes that seem to have it, the one whose switch says so; else the oldest.

    A Node that is left over from before its machine was set up anew is older, and has but an annotation.
    """
    mac, problems = _peer_mac(key, node, facts)
    if mac is None:
        return Outcome((), problems)
    rank = ("live" if mac.source == MacSource.SWITCH else "said", node.created, key)
    links = [name for name in segments(node) if known_segment(name)]
    return Outcome([Claim(Derived.UPLINK_MAC, f"{link} {mac_text(mac.mac)}", key, rank) for link in links], problems)


def node_network(key: str, node: Node, facts: Facts) -> Outcome:
    mac, _ = _peer_mac(key, node, facts)
    asked = _asked(key, mac, facts)
    links = [name for name in segments(node) if known_segment(name)] if mac else []
    if mac and any(facts.get(Derived.UPLINK_MAC, f"{link} {mac_text(mac.mac)}") != key for link in links):
        mac = None
    network = NodeNetwork(
        key,
        tuple(cidr for cidr in node.pod_cidrs if facts.get(Derived.POD_CIDR, str(cidr)) == PodCidr(cidr, key)),
        tuple(at.ip for at in node.addresses if facts.get(Derived.NODE_ADDRESS, str(at.ip)) == key),
        segments(node),
        mac,
        asked,
    )
    return Outcome([Claim(Derived.NODE_NETWORK, key, network)])


def _asked(key: str, mac: PeerMac | None, facts: Facts) -> bool:
    """Not while something better tells; nor while a switch is about to, which has told before a restart."""
    sources = facts.settings().mac_sources
    if MacSource.NEIGHBOR not in sources:
        return False
    if mac is None or mac.source == MacSource.NEIGHBOR.value:
        return True
    if mac.source != READ_BACK:  # known from elsewhere: better only if it comes before asking in the list
        return sources.index(MacSource.NEIGHBOR) < sources.index(MacSource(mac.source))
    evidence = facts.get(Kind.EVIDENCE, key)
    return MacSource.SWITCH not in sources or (evidence is not None and evidence.asked)


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
    return (PeerMac(evidence.mac, READ_BACK) if evidence else None), problems


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
    return Router(key, named[0], PeerMac(evidence.mac, READ_BACK) if evidence else None)


def members(key: str, node_name: str, facts: Facts) -> Outcome:
    node = facts.get(Kind.NODE, node_name)
    scopes = {FLEET, Scope(ScopeKind.NODE, node_name)}
    scopes |= {Scope(ScopeKind.SEGMENT, name) for name in segments(node)}
    if node.zone:
        scopes.add(Scope(ScopeKind.ZONE, node.zone))
    return Outcome([Claim(Derived.MEMBER, key, Member(node_name, frozenset(scopes)))])
