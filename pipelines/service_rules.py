"""What follows from Services, EndpointSlices and ServiceCIDRs: frontends, endpoints, ranges."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
    around,
    edge_of,
    local_choice,
    node_choice,
    service_port_key,
    shares,
    zone_choice,
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
    """The addresses of a service, the endpoints of its ports, and the choices among them by policies and hints.

    A ClusterIP, which the cluster gave out, comes before what a service says of itself, however old. Host traffic is
    tracked with endpoints outside the pod network, which a host may reach as a service and directly.
    """
    claims: list[Claim] = []
    problems: list[Problem] = []
    for family, addresses in _addresses(service, facts.settings()).items():
        own = [at for at in addresses if at.entrance not in OUTER and _may_have(key, at, facts, problems)]
        for port in service.ports:
            if wanted := tuple(_frontends(key, port, family, addresses)):
                claims += _choices(wanted[0].backends, service, port, wanted, facts, problems)
                fronts = wanted if len(own) == len(addresses) else _frontends(key, port, family, own)
                claims += [Claim(Derived.FRONTEND, front.key, front, _rank(key, service, front)) for front in fronts]
    return Outcome(claims, problems)


def _rank(key: str, service: Service, front: Frontend) -> tuple[str, ...]:
    return ("given" if front.entrance is Entrance.CLUSTER_IP else "said", service.created, key)


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
        kept = set(targets)
        ready = [one for one in ready if (one.ip, one.port, port.protocol) in kept]
    backends = ServiceBackends(at, wanted[0].service, port.protocol, targets, wanted, service.affinity)
    yield Claim(Derived.SERVICE_PORT, at, backends)
    used: Iterable[Target] = targets
    local = _by_node(found, port.protocol) if any(front.local for front in wanted) else {}
    hinted = _hinted([(one.for_nodes, one) for one in ready], port.protocol)
    for node in dict.fromkeys((*local, *hinted)):
        chosen = NodeBackends(backends, node, local.get(node, ()), hinted.get(node, ()))
        yield Claim(Derived.NODE_BACKENDS, f"{at} {node}", chosen)
    if local:
        used = dict.fromkeys((*targets, *(target for listed in local.values() for target in listed)))
    zones = _hinted([(one.for_zones, one) for one in ready], port.protocol)
    for zone, near in zones.items():
        yield Claim(Derived.ZONE_BACKENDS, f"{at} {zone}", ZoneBackends(backends, zone, near))
    choices = (
        (at, len(targets)),
        (local_choice(at), _most(local)),
        (node_choice(at), _most(hinted)),
        (zone_choice(at), _most(zones)),
    )
    for owner, most in choices:
        if most or owner == at:
            yield from (Claim(Derived.GROUP_OWNER, one, True) for one in (owner, *shares(owner, most)))
    protocol = port.protocol.value
    nodes = facts.get(Derived.NODES_AMONG_PODS, "") or ()
    for target in used:
        text = str(target.ip)
        key = f"{text} {protocol} {target.port}"  # its `tuple_key`
        yield Claim(Derived.ENDPOINT, key, target)
        outside = facts.pod_cidr(target.ip) is None
        if outside:
            yield Claim(Derived.TRACKED, text, target.ip)
            yield Claim(Derived.ENDPOINT_ADDRESS, text, True)
        if (outside or target.ip in nodes) and facts.get(Derived.NODE_ADDRESS, text) is not None:
            yield Claim(Derived.HOST_ENDPOINT, key, target)


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


def _hinted(ready: Sequence[tuple[tuple[str, ...], Backend]], protocol: Protocol) -> dict[str, tuple[Target, ...]]:
    """By zone or node; hints count only while every ready endpoint has one, as in kube-proxy."""
    if not all(places for places, _ in ready):
        return {}
    found: dict[str, list[Backend]] = {}
    for places, one in ready:
        for place in places:
            found.setdefault(place, []).append(one)
    return {place: _targets(ones, protocol) for place, ones in found.items()}


# --- frontends ----------------------------------------------------------------------------------------------


def external_frontends(key: str, service: Service, facts: Facts) -> Outcome:
    """External addresses of a service, but for the ports at which endpoints of services are: these stay as they are."""
    claims: list[Claim] = []
    problems: list[Problem] = []
    if not service.external_ips and not service.load_balancer_ips:
        return Outcome()
    for family, addresses in _addresses(service, facts.settings()).items():
        own = [at for at in addresses if at.entrance in OUTER and _may_have(key, at, facts, problems)]
        for port in service.ports:
            for front in _frontends(key, port, family, own):
                if whose := _listens_there(front, facts):
                    reason = f"{front.said} is {whose}; ignored here"
                    problems.append(Problem(Kind.SERVICE, key, FIELDS[front.entrance], reason))
                else:
                    claims.append(Claim(Derived.FRONTEND, front.key, front, _rank(key, service, front)))
    return Outcome(claims, problems)


def _listens_there(front: Frontend, facts: Facts) -> str:
    """Who is known to serve clients at an address and port; "" when nobody is."""
    at = str(front.ip)
    controller = facts.get(Kind.CONTROLLER, at)
    if controller is not None and (front.protocol, front.port) == (Protocol.TCP, controller.port):
        return "where switches find this controller"
    if facts.get(Derived.ENDPOINT, front.key) is None:
        return ""
    node = facts.get(Derived.NODE_ADDRESS, at)
    return f"an endpoint on Node {node}" if node else "an endpoint of a service"


OUTER = (Entrance.EXTERNAL_IP, Entrance.LOAD_BALANCER)
FIELDS = {
    Entrance.CLUSTER_IP: "spec.clusterIPs",
    Entrance.EXTERNAL_IP: "spec.externalIPs",
    Entrance.LOAD_BALANCER: "status.loadBalancer.ingress",
}


class _Address(NamedTuple):
    """One that a service is found at, with what holds for it on all ports. `ip` unspecified: those of the nodes."""

    ip: Ip
    entrance: Entrance
    local: bool
    sources: tuple[Cidr, ...]


def _addresses(service: Service, settings: Settings) -> dict[int, list[_Address]]:
    """By family; an address that a service names twice is what it is first."""
    found: dict[int, list[_Address]] = {}
    if settings.services is Served.OFF:
        return found
    local = service.internal_policy is Policy.LOCAL
    for ip in service.cluster_ips:
        found.setdefault(ip.family, []).append(_Address(ip, Entrance.CLUSTER_IP, local, ()))
    if settings.services is Served.ALL:
        local = service.external_policy is Policy.LOCAL
        everywhere = service.source_ranges if settings.source_ranges_everywhere else ()
        if any(port.node_port for port in service.ports):
            for family, listed in found.items():
                listed.append(_Address(Ip(family, 0), Entrance.NODE_PORT, local, _of_family(family, everywhere)))
        seen = {*service.cluster_ips}
        for entrance, ips, sources in (
            (Entrance.LOAD_BALANCER, service.load_balancer_ips, service.source_ranges),
            (Entrance.EXTERNAL_IP, service.external_ips, everywhere),
        ):
            for ip in ips:
                if ip not in seen:
                    seen.add(ip)
                    found.setdefault(ip.family, []).append(
                        _Address(ip, entrance, local, _of_family(ip.family, sources))
                    )
    return found


def _of_family(family: int, ranges: tuple[Cidr, ...]) -> tuple[Cidr, ...]:
    return tuple(cidr for cidr in ranges if cidr.family == family)


def _frontends(key: str, port: ServicePort, family: int, addresses: Iterable[_Address]) -> Iterator[Frontend]:
    at = service_port_key(key, port.name, port.protocol, family)
    for ip, entrance, local, sources in addresses:
        number = port.node_port if entrance is Entrance.NODE_PORT else port.port
        if number:
            yield Frontend(ip, port.protocol, number, key, at, entrance, local, sources)


def _may_have(key: str, at: _Address, facts: Facts, problems: list[Problem]) -> bool:
    """Whether it takes nothing away from others. An external one may be a node's: its host goes on with other ports."""
    outer = at.entrance in OUTER
    if at.entrance is Entrance.NODE_PORT or (outer and facts.get(Derived.NODE_ADDRESS, str(at.ip)) is not None):
        return True
    if whose := stands_for(at.ip, facts) or _of_pods(at.ip, facts) or (_of_all(at.ip, facts) if outer else ""):
        problems.append(Problem(Kind.SERVICE, key, FIELDS[at.entrance], f"{at.ip} is {whose}; ignored here"))
    return not whose


def _of_pods(ip: Ip, facts: Facts) -> str:
    home = facts.pod_cidr(ip)
    return f"in podCIDR {home.cidr} of Node {home.node}" if home else ""


def _of_all(ip: Ip, facts: Facts) -> str:
    """What all nodes need."""
    if facts.get(Kind.CONTROLLER, str(ip)) is not None:
        return "where switches find this controller"
    edges = [name for name in around(ip, facts.all(Derived.SEGMENT)) if edge_of(ip, name)]
    return f"the first or last address of the nodes' subnet {min(edges)}" if edges else ""


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
    """Pods, a node or a router that a range holds: those that yield to it have no podCIDR and no address by now."""
    for home in facts.all(Derived.POD_CIDR).values():
        if home.cidr.overlaps(cidr):
            return f"overlaps podCIDR {home.cidr} of Node {home.node}"
    for address, node in facts.all(Derived.NODE_ADDRESS).items():
        if cidr.__contains__(parse_ip(address)):
            return f"holds {address}, an address of Node {node}"
    for address, node in facts.all(Derived.ROUTER_ADDRESS).items():
        if cidr.__contains__(parse_ip(address)):
            return f"holds {address}, a router of Node {node}"
    return ""


def lone_addresses(key: str, front: Frontend, facts: Facts) -> Outcome:
    """Outside every known range a service's address is a range of its own: tracked, refused where it has no port.

    Not so an address of a node, or of an endpoint, which answers itself on all other ports.
    """
    del key
    if front.entrance is Entrance.NODE_PORT:
        return Outcome()
    if any(cidr.__contains__(front.ip) for cidr in facts.all(Derived.SERVICE_RANGE).values()):
        return Outcome()
    if any(facts.get(kind, str(front.ip)) is not None for kind in (Derived.NODE_ADDRESS, Derived.ENDPOINT_ADDRESS)):
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
