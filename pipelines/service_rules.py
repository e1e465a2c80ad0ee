"""What follows from Services, EndpointSlices and ServiceCIDRs: frontends, endpoints, ranges."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.addresses import BITS, Cidr, Ip, parse_cidr, parse_ip
from pipelines.claims import Claim, Outcome
from pipelines.derived import (
    Backend,
    Derived,
    Entrance,
    Frontend,
    NodeBackends,
    ServiceBackends,
    Target,
    ZoneBackends,
    hinted_choice,
    local_choice,
    service_port_key,
    shares,
    tuple_key,
)
from pipelines.model import (
    Endpoint,
    EndpointSlice,
    Kind,
    Policy,
    Problem,
    Protocol,
    Served,
    Service,
    ServiceCidr,
    ServicePort,
    Settings,
)
from pipelines.pod_rules import stands_for
from pipelines.view import Facts


def backends(key: str, slice_: EndpointSlice, facts: Facts) -> Outcome:
    del key, facts
    found: dict[str, list[Backend]] = {}
    for port in slice_.ports:
        for endpoint in slice_.endpoints:
            at = service_port_key(slice_.service, port.name, port.protocol, endpoint.ip.family)
            found.setdefault(at, []).append(_backend(endpoint, port.port))
    return Outcome(Claim(Derived.BACKENDS, at, tuple(listed)) for at, listed in found.items())


def _backend(one: Endpoint, port: int) -> Backend:
    terminating = one.serving and one.terminating
    return Backend(one.ip, port, one.ready, terminating, one.node, one.for_zones, one.for_nodes)


# --- service ports ------------------------------------------------------------------------------------------


def services(key: str, service: Service, facts: Facts) -> Outcome:
    """The endpoints of every port and family, and the choices among them that policies and hints ask for.

    Host traffic is tracked with endpoints outside the pod network, which a host may reach as a service and directly.
    """
    claims: list[Claim] = []
    problems: list[Problem] = []
    for port in service.ports if facts.settings().services is not Served.OFF else ():
        for family in (4, 6):
            at = service_port_key(key, port.name, port.protocol, family)
            wanted = tuple(_frontends(key, service, port, family, facts.settings()))
            if wanted:
                claims += _choices(at, service, port, wanted, facts, problems)
    return Outcome(claims, problems)


def _choices(
    at: str, service: Service, port: ServicePort, wanted: tuple[Frontend, ...], facts: Facts, problems: list[Problem]
) -> Iterator[Claim]:
    """Endpoints by KEP-1669: the ready ones; those terminating but still serving only when none is ready."""
    found: tuple[Backend, ...] = facts.get(Derived.BACKENDS, at) or ()
    ready = [one for one in found if one.ready]
    targets = _targets(ready or [one for one in found if one.serving_terminating], port.protocol)
    most = facts.settings().endpoints_per_service_port
    if len(targets) > most:
        count = f"{len(targets)} IPv{targets[0].ip.family} endpoints"
        reason = f"port {port.port}/{port.protocol} has {count}; only the {most} lowest addresses are used"
        problems.append(Problem(Kind.SERVICE, wanted[0].service, "endpoints", reason))
        targets = targets[:most]
    backends = ServiceBackends(at, wanted[0].service, port.protocol, targets, wanted, service.affinity)
    yield Claim(Derived.SERVICE_PORT, at, backends)
    used = set(targets)
    local = _by_node(found, port.protocol) if any(front.local for front in wanted) else {}
    hinted = _hinted(ready, "for_nodes", port.protocol)
    for node in dict.fromkeys((*local, *hinted)):
        chosen = NodeBackends(backends, node, local.get(node, ()), hinted.get(node, ()))
        yield Claim(Derived.NODE_BACKENDS, f"{at} {node}", chosen)
        used.update(chosen.local)
    zones = _hinted(ready, "for_zones", port.protocol)
    for zone, near in zones.items():
        yield Claim(Derived.ZONE_BACKENDS, f"{at} {zone}", ZoneBackends(backends, zone, near))
    choices = ((at, len(targets)), (local_choice(at), _most(local)), (hinted_choice(at), _most(hinted, zones)))
    for owner, most in choices:
        if most or owner == at:
            yield from (Claim(Derived.GROUP_OWNER, one, True) for one in (owner, *shares(owner, most)))
    for target in used:
        yield Claim(Derived.ENDPOINT, tuple_key(target.ip, target.protocol, target.port), target)
        if facts.pod_cidr(target.ip) is None:
            yield Claim(Derived.TRACKED, str(target.ip), target.ip)


def _most(*choices: Mapping[str, tuple[Target, ...]]) -> int:
    return max((len(targets) for choice in choices for targets in choice.values()), default=0)


def _targets(usable: Iterable[Backend], protocol: Protocol) -> tuple[Target, ...]:
    return tuple(sorted({Target(one.ip, one.port, protocol) for one in usable}))


def _by_node(found: Iterable[Backend], protocol: Protocol) -> dict[str, tuple[Target, ...]]:
    """On each node the ready ones; without any those that still serve, whatever other nodes have (KEP-1669)."""
    ready: dict[str, list[Backend]] = {}
    leaving: dict[str, list[Backend]] = {}
    for one in found:
        if one.node and (one.ready or one.serving_terminating):
            (ready if one.ready else leaving).setdefault(one.node, []).append(one)
    return {node: _targets(ones, protocol) for node, ones in {**leaving, **ready}.items()}


def _hinted(ready: Sequence[Backend], hint: str, protocol: Protocol) -> dict[str, tuple[Target, ...]]:
    """By zone or node; hints count only while every ready endpoint has one, as in kube-proxy."""
    hints = [(getattr(one, hint), one) for one in ready]
    if not all(places for places, _ in hints):
        return {}
    found: dict[str, list[Backend]] = {}
    for places, one in hints:
        for place in places:
            found.setdefault(place, []).append(one)
    return {place: _targets(ones, protocol) for place, ones in found.items()}


# --- frontends ----------------------------------------------------------------------------------------------


def frontends(key: str, service: Service, facts: Facts) -> Outcome:
    """The addresses of a service that are its own to have."""
    claims: list[Claim] = []
    problems: list[Problem] = []
    rank = (service.created, key)
    refused: dict[tuple[Ip, Entrance], str] = {}
    for port in service.ports if facts.settings().services is not Served.OFF else ():
        for family in (4, 6):
            for front in _frontends(key, service, port, family, facts.settings()):
                if whose := _not_for(front, facts):
                    refused[front.ip, front.entrance] = whose
                else:
                    claims.append(Claim(Derived.FRONTEND, front.key, front, rank))
    for (ip, entrance), whose in refused.items():
        problems.append(Problem(Kind.SERVICE, key, _FIELDS[entrance], f"{ip} is {whose}; ignored here"))
    return Outcome(claims, problems)


_FIELDS = {
    Entrance.CLUSTER_IP: "spec.clusterIPs",
    Entrance.EXTERNAL_IP: "spec.externalIPs",
    Entrance.LOAD_BALANCER: "status.loadBalancer.ingress",
}


def _frontends(key: str, service: Service, port: ServicePort, family: int, settings: Settings) -> Iterator[Frontend]:
    """What a service says; an address that it names twice is what it is first."""
    at = service_port_key(key, port.name, port.protocol, family)
    internal, external = service.internal_policy is Policy.LOCAL, service.external_policy is Policy.LOCAL
    ranges = tuple(cidr for cidr in service.source_ranges if cidr.family == family)
    everywhere = ranges if settings.source_ranges_everywhere else ()
    kinds: list[tuple[tuple[Ip, ...], Entrance, bool, tuple[Cidr, ...]]] = [
        (service.cluster_ips, Entrance.CLUSTER_IP, internal, ())
    ]
    if settings.services is Served.ALL:
        kinds.append((service.load_balancer_ips, Entrance.LOAD_BALANCER, external, ranges))
        kinds.append((service.external_ips, Entrance.EXTERNAL_IP, external, everywhere))
    seen: set[Ip] = set()
    for ips, entrance, local, sources in kinds:
        for ip in ips:
            if ip.family == family and ip not in seen:
                seen.add(ip)
                yield Frontend(ip, port.protocol, port.port, key, at, entrance, local, sources)
    if port.node_port and settings.services is Served.ALL and any(ip.family == family for ip in service.cluster_ips):
        nowhere = Ip(family, 0)
        yield Frontend(nowhere, port.protocol, port.node_port, key, at, Entrance.NODE_PORT, external, everywhere)


def _not_for(front: Frontend, facts: Facts) -> str:
    """What a frontend would take away from others; "" when nothing.

    A node's address may be an external one, for exactly the port that no endpoint has.
    """
    if front.entrance is Entrance.NODE_PORT:
        return ""
    if front.entrance is not Entrance.CLUSTER_IP and facts.get(Derived.NODE_ADDRESS, str(front.ip)) is not None:
        taken = facts.get(Derived.ENDPOINT, tuple_key(front.ip, front.protocol, front.port))
        return f"with port {front.port} itself an endpoint" if taken else ""
    if whose := stands_for(front.ip, facts):
        return whose
    home = facts.pod_cidr(front.ip)
    return f"in podCIDR {home.cidr} of Node {home.node}" if home else ""


# --- ranges -------------------------------------------------------------------------------------------------


def service_ranges(key: str, value: ServiceCidr | Settings, facts: Facts) -> Outcome:
    """In a range all that is no service is refused: so it must not hold pods or nodes that were there first."""
    if facts.settings().services is Served.OFF:
        return Outcome()
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
    """Outside every known range a service's address is a range of its own: tracked, refused where it has no port.

    Not so a node's own address, which the host answers for on all other ports.
    """
    del key
    if front.entrance is Entrance.NODE_PORT or facts.get(Derived.NODE_ADDRESS, str(front.ip)) is not None:
        return Outcome()
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
