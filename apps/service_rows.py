"""What REST and the command answer about services: where clients find each, who may have which endpoint, and why.

Pure functions from facts to plain values, as in `answers`. A frontend is one address, protocol and port of a service;
that of a NodePort has the unspecified address, for all addresses of nodes that serve NodePorts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from apps.answers import UNUSABLE, Pause, Row, by_object, no_pause
from apps.node_rows import settings_of
from pipelines.addresses import Ip
from pipelines.derived import (
    Derived,
    Entrance,
    Frontend,
    NodeBackends,
    ServiceBackends,
    Target,
    ZoneBackends,
    around,
    service_port_key,
)
from pipelines.model import EndpointSlice, Kind, Node, Policy, Problem, Served, Service, ServicePort
from pipelines.several import several
from pipelines.view import Facts

Slices = Mapping[str, Sequence[EndpointSlice]]  # by service

WORST = ("conflict", "not served", "no endpoints")  # states of a frontend; of several the first of these is said
LEFT_ALONE = "left alone"
NOT_ANNOUNCED = "not announced"


Announcement = Callable[[str], tuple[str | None, str]]  # of an address: its node, and how that stands


def nobody(address: str) -> tuple[str | None, str]:
    """Where nothing is announced."""
    del address
    return None, ""


def services(
    facts: Facts, found: Iterable[Problem], pause: Pause = no_pause, announcement: Announcement = nobody
) -> Iterator[Row]:
    """Also those that cannot be used, with their problems only."""
    wrong = by_object(found, Kind.SERVICE)
    known = facts.peek(Kind.SERVICE)
    slices = slices_by_service(facts, pause)
    for key in sorted(known.keys() | wrong.keys()):
        if key in known:
            yield service(key, known[key], facts, wrong.get(key, []), slices.get(key, ()), announcement)
        elif key in wrong:
            row: Row = {"name": key, "state": UNUSABLE, "reason": None, "frontends": [], "endpoints": []}
            yield row | {"problems": wrong[key]}


def slices_by_service(facts: Facts, pause: Pause = no_pause) -> Slices:
    found: dict[str, list[EndpointSlice]] = {}
    for one in list(facts.peek(Kind.ENDPOINT_SLICE).values()):
        found.setdefault(one.service, []).append(one)
        pause()
    return found


def service(
    key: str,
    value: Service,
    facts: Facts,
    wrong: list[Row],
    slices: Sequence[EndpointSlice],
    announcement: Announcement = nobody,
) -> Row:
    """`state` is that of its worst frontend, or LEFT_ALONE. `reason`: why it is left alone, or which frontends have
    that state while others have another. `affinity_seconds` is null without affinity.
    """
    frontends = [
        frontend(key, front, port, backends, facts, wrong) | announced(front, facts, announcement)
        for port, backends in ports_of(key, value, facts)
        for front in backends.frontends
    ]
    states = {front["state"] for front in frontends}
    none = "not served" if settings_of(facts).services is Served.OFF else "no address"
    none = LEFT_ALONE if value.left_alone else none
    return {
        "name": key,
        "state": next((state for state in WORST if state in states), "served") if frontends else none,
        "reason": value.left_alone or _mixed(frontends) or None,
        "internal_policy": value.internal_policy.value,
        "external_policy": value.external_policy.value,
        "affinity_seconds": value.affinity or None,
        "source_ranges": [str(cidr) for cidr in value.source_ranges],
        "health_check_port": value.health_check_port or None,
        "frontends": frontends,
        "endpoints": list(endpoints(key, slices, facts)),
        "problems": wrong,
    }


def _mixed(frontends: Sequence[Row]) -> str:
    states = {front["state"] for front in frontends}
    if len(states) < 2:
        return ""
    worst = next(state for state in WORST if state in states)
    which = [f"{front['entrance']} {front['address']} port {front['port']}/{front['protocol']}" for front in frontends
             if front["state"] == worst]  # fmt: skip
    return f"{worst}: {several(which)}; {len(which)} of {len(frontends)}"


def ports_of(key: str, value: Service, facts: Facts) -> Iterator[tuple[ServicePort, ServiceBackends]]:
    """Each port, once for each family that it has addresses of."""
    known = facts.peek(Derived.SERVICE_PORT)
    for port in value.ports:
        for family in (4, 6):
            backends = known.get(service_port_key(key, port.name, port.protocol, family))
            if backends is not None:
                yield port, backends


def frontend(
    key: str, front: Frontend, port: ServicePort, backends: ServiceBackends, facts: Facts, wrong: list[Row]
) -> Row:
    """`sources`: prefixes of the clients that may use it, empty for all. `endpoints`: what new connections may get,
    none where `served` is false. `node_addresses`: of a NodePort, the prefixes of its addresses, empty for all.
    """
    wanted = settings_of(facts).node_port_addresses if front.entrance is Entrance.NODE_PORT else ()
    on = [str(cidr) for cidr in wanted if cidr.family == front.ip.family]
    holder: Frontend | None = facts.peek(Derived.FRONTEND).get(front.key)
    if holder is None:
        state, reason = "not served", next((row["reason"] for row in wrong if str(front.ip) in row["reason"]), "")
    elif holder.service != key:
        told = (row["reason"] for row in wrong if front.said in row["reason"])
        state, reason = "conflict", next(told, f"it belongs to Service {holder.service}")
    elif wanted and not on:
        state, reason = "not served", f"node_port_addresses has none of IPv{front.ip.family}"
    elif not backends.targets:
        state, reason = "no endpoints", "new connections are refused"
    else:
        state, reason = "served", ""
    used = backends.targets if state == "served" else ()
    return {
        "address": str(front.ip),
        "port": front.port,
        "port_name": port.name,
        "protocol": front.protocol.value,
        "entrance": front.entrance.value,
        "policy": (Policy.LOCAL if front.local else Policy.CLUSTER).value,
        "sources": [str(cidr) for cidr in front.sources],
        "state": state,
        "reason": reason,
        "served": state == "served",
        "holder": holder.service if holder else None,
        "node_addresses": on,
        "group": facts.peek(Derived.GROUP_ID).get(backends.key) if used else None,
        "endpoints": targets(used),
    }


def announced(front: Frontend, facts: Facts, announcement: Announcement) -> Row:
    """Of an address in a subnet of nodes; null for others.

    `announcement`: "probing", "announced", "conflict" (a station of the network has the address), "no node" (its
    policy is Local, and no node has a ready endpoint), or NOT_ANNOUNCED: it is in no pool, so somebody else has to
    answer for it.
    """
    holder: Frontend | None = facts.peek(Derived.FRONTEND).get(front.key)
    if holder != front or front.entrance not in (Entrance.LOAD_BALANCER, Entrance.EXTERNAL_IP):
        return {"announced_by": None, "announcement": None}
    node, state = announcement(str(front.ip))
    if not state and _is_silent(front.ip, facts):
        state = NOT_ANNOUNCED
    return {"announced_by": node, "announcement": state or None}


def _is_silent(ip: Ip, facts: Facts) -> bool:
    """Whether stations of its subnet ask for it by ARP or ND, and no node answers."""
    text = str(ip)
    if text in facts.peek(Derived.ON_LINK) or text in facts.peek(Derived.NODE_ADDRESS):
        return False
    return bool(around(ip, facts.peek(Derived.SEGMENT)))


def targets(found: Iterable[Target]) -> list[Row]:
    return [{"address": str(one.ip), "port": one.port} for one in found]


def endpoints(key: str, slices: Sequence[EndpointSlice], facts: Facts) -> Iterator[Row]:
    """All that its slices list. `used`: new connections may get it; hints are of zones and nodes."""
    known = facts.peek(Derived.SERVICE_PORT)
    for slice_ in sorted(slices, key=lambda one: one.name):
        for port in slice_.ports:
            family = slice_.endpoints[0].ip.family if slice_.endpoints else 4
            backends = known.get(service_port_key(key, port.name, port.protocol, family))
            used = set(backends.targets) if backends else set()
            for one in slice_.endpoints:
                yield {
                    "address": str(one.ip),
                    "port": port.port,
                    "port_name": port.name,
                    "protocol": port.protocol.value,
                    "node": one.node or None,
                    "ready": one.ready,
                    "serving": one.serving,
                    "terminating": one.terminating,
                    "used": (one.ip, port.port, port.protocol) in used,
                    "for_zones": list(one.for_zones),
                    "for_nodes": list(one.for_nodes),
                    "slice": slice_.name,
                }


# --- one service as clients on one node find it ----------------------------------------------------------------------

EVERYBODY = "all clients"
INSIDE, OUTSIDE = "pods and the node's own processes", "clients outside"
# Of the node's own addresses: what its own processes send there its kernel keeps, and other nodes' send it on.
ITSELF, PODS, ELSEWHERE = "the node's own processes", "pods on the node", "clients outside and on other nodes"
ALL_BUT_ITSELF = "all but the node's own processes"
NEVER_HERE = "their packets never reach the switch: the kernel keeps them (not yet: needs the node agent)"


def on_node(key: str, value: Service, node: Node, facts: Facts) -> Iterator[Row]:
    """For each frontend that the service has: which endpoints connections that the node's switch takes may get, and
    why. `choice`: "all", "own" (a Local policy), "node hints", "zone hints", or "none".
    """
    addresses = {at.ip for at in node.addresses}
    for _port, backends in ports_of(key, value, facts):
        for front in backends.frontends:
            holder = facts.peek(Derived.FRONTEND).get(front.key)
            if holder is None or holder.service != key:
                continue
            own = front.entrance is Entrance.NODE_PORT or front.ip in addresses
            for clients, found, choice, reason in _choices(front, backends, node, facts):
                yield _choice(front, _OF_OWN[clients] if own else clients, found, choice, reason)
            if own:
                yield _choice(front, ITSELF, (), "none", NEVER_HERE)


_OF_OWN = {EVERYBODY: ALL_BUT_ITSELF, INSIDE: PODS, OUTSIDE: ELSEWHERE}


def _choice(front: Frontend, clients: str, found: tuple[Target, ...], choice: str, reason: str) -> Row:
    return {
        "address": str(front.ip),
        "port": front.port,
        "protocol": front.protocol.value,
        "entrance": front.entrance.value,
        "clients": clients,
        "choice": choice if found else "none",
        "reason": reason,
        "endpoints": targets(found),
    }


def _choices(
    front: Frontend, backends: ServiceBackends, node: Node, facts: Facts
) -> Iterator[tuple[str, tuple[Target, ...], str, str]]:
    """As `features.services` ranks them."""
    chosen: NodeBackends | None = facts.peek(Derived.NODE_BACKENDS).get(f"{backends.key} {node.name}")
    near: ZoneBackends | None = facts.peek(Derived.ZONE_BACKENDS).get(f"{backends.key} {node.zone}")
    if not backends.targets:
        yield EVERYBODY, (), "none", "no endpoint is ready: refused"
    elif front.local:
        external = front.entrance is not Entrance.CLUSTER_IP
        field = "externalTrafficPolicy" if external else "internalTrafficPolicy"
        own = chosen.local if chosen else ()
        if external:
            yield INSIDE, backends.targets, "all", f"{field} does not bind clients inside the cluster"
        reason = f"{field} is Local" if own else f"{field} is Local, and {node.name} has no endpoint: dropped"
        yield (OUTSIDE if external else EVERYBODY), own, "own", reason
    elif chosen is not None and chosen.hinted:
        yield EVERYBODY, chosen.hinted, "node hints", f"they have a hint for node {node.name}"
    elif near is not None:
        yield EVERYBODY, near.targets, "zone hints", f"they have a hint for zone {node.zone}"
    else:
        yield EVERYBODY, backends.targets, "all", "no policy or hint says otherwise"


# --- health checks of load balancers --------------------------------------------------------------------------------


def health_checks(facts: Facts, pause: Pause = no_pause) -> Iterator[Row]:
    """For each healthCheckNodePort what a load balancer should be told on each node: 200 with a ready endpoint there.

    As kube-proxy counts: addresses of endpoints that are ready, of all ports together; terminating ones do not count.
    `answered`: whether nodes do say so; not yet, it needs something that runs there.
    """
    slices: Slices = {}
    if settings_of(facts).services is Served.ALL:
        slices = slices_by_service(facts, pause)
    for key, value in sorted(facts.peek(Kind.SERVICE).items()) if slices else ():
        if not value.health_check_port or value.external_policy is not Policy.LOCAL:
            continue
        on: dict[str, set[Any]] = {}
        for slice_ in slices.get(key, ()):
            for one in slice_.endpoints:
                if one.ready and one.node and slice_.ports:
                    on.setdefault(one.node, set()).add(one.ip)
        yield {
            "service": key,
            "port": value.health_check_port,
            "answered": False,
            "nodes": [
                {"node": name, "local_endpoints": len(on.get(name, ())), "status": 200 if name in on else 503}
                for name in sorted(facts.peek(Kind.NODE))
            ],
        }
