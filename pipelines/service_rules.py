"""What follows from Services, EndpointSlices and ServiceCIDRs: frontends, endpoints, ranges."""

from typing import Any

from pipelines.addresses import BITS, Cidr, Ip, parse_cidr, parse_ip
from pipelines.claims import Claim, Outcome
from pipelines.derived import (
    Backend,
    Derived,
    Frontend,
    ServiceBackends,
    Target,
    service_port_key,
    tuple_key,
)
from pipelines.model import (
    Endpoint,
    EndpointSlice,
    Kind,
    Problem,
    Protocol,
    Service,
    ServiceCidr,
    ServicePort,
    Settings,
)
from pipelines.pod_rules import stands_for
from pipelines.view import Facts


def _not_for_services(ip: Ip, facts: Facts) -> str:
    """What a ClusterIP would take away from others; "" when nothing."""
    if whose := stands_for(ip, facts):
        return whose
    home = facts.pod_cidr(ip)
    return f"in podCIDR {home.cidr} of Node {home.node}" if home else ""


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
