"""Tables service_lb and endpoint_dnat: a service address becomes an endpoint's.

Shared by all switches: the group chooses, the same flow for each endpoint translates, whichever service led
there. What differs between nodes (where the endpoint is, seen from here) is asked in endpoint_place.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pipelines import fields as f
from pipelines.actions import Controller, Ct, Meter, Move, Nat, SetField, ToGroup, given, load, move
from pipelines.addresses import Cidr
from pipelines.derived import (
    Derived,
    Entrance,
    Frontend,
    NodeBackends,
    ServiceBackends,
    Target,
    ZoneBackends,
    local_choice,
    node_choice,
    shares,
    zone_choice,
)
from pipelines.feature import Feature, unit
from pipelines.features import affinity
from pipelines.features.conntrack import REMEMBER
from pipelines.flow import Bucket, Flow, Group
from pipelines.ids import REJECT_METER
from pipelines.table import Table
from pipelines.tables import (
    AFFINITY_LEARN,
    ENDPOINT_DNAT,
    ENDPOINT_PLACE,
    GROUP_SHARE,
    ROUTE,
    SERVICE_LB,
    SERVICE_SOURCE,
    goto,
    resubmit,
)
from pipelines.unit import EMPTY, ScopeKind, Tuple, Unit
from pipelines.view import FleetView, NodeView, ZoneView

REJECT_BYTES = 256  # of the refused packet: enough for any header that an ICMP error quotes
REJECT = (Meter(REJECT_METER), Controller(REJECT_BYTES))

# Above this many buckets Open vSwitch's dp_hash falls back to a hash that ignores UDP ports.
DP_HASH_BUCKETS = 256
HASH_FIELDS = (f.IP4_SRC, f.IP4_DST, f.IP6_SRC, f.IP6_DST, *f.L4_SRC.values(), *f.L4_DST.values())


def _mid_stream(*conditions: f.Item) -> Flow:
    """TCP that is not a new connection's first segment is refused, not given to another endpoint (rule R9)."""
    return SERVICE_LB.flow(250, (f.IP_PROTO.eq(f.TCP), *conditions, f.TCP_FLAGS.masked(0, f.TCP_SYN)), *REJECT)


def service_range(cidr: Cidr, view: FleetView) -> Unit:
    """Packets to a service range that belong to no service: refused; pings and fragments are dropped."""
    del view
    to = f.destination(cidr)
    echo = f.ICMP if cidr.family == 4 else f.ICMP6
    return unit(
        [
            _mid_stream(*to),
            SERVICE_LB.flow(120, (*to, f.IP_PROTO.eq(echo))),
            SERVICE_LB.flow(110, (*to, f.IP_FRAG.masked(1, 1))),
            SERVICE_LB.flow(100, to, *REJECT),
        ]
    )


def frontend(front: Frontend, view: FleetView) -> Unit:
    """New connections to a service, wherever its policies do not say otherwise."""
    backends = view.backends(front.backends)
    if backends is None:
        return EMPTY
    if not backends.targets:
        # Its endpoints may be among what is missing: what a switch has of it is held then, not refused.
        return unit([SERVICE_LB.flow(200, _to(front), *REJECT)]) if view.settings.source_complete else EMPTY
    flows = _shared_local(front, backends, view) if front.local else _choose(200, front, backends, backends.key, view)
    return Unit(tuple(flows), allowed=_allowed(front, backends.targets))


def sources(front: Frontend, view: FleetView) -> Unit:
    """New connections of clients that may, or may not, use a frontend."""
    del view
    if not front.sources:
        return EMPTY
    may = [(*_to(front), f.source(cidr)[1]) for cidr in front.sources]
    flows = [SERVICE_SOURCE.flow(110, conditions, goto(SERVICE_LB)) for conditions in may]
    return unit([*flows, SERVICE_SOURCE.flow(100, _to(front))])


def _to(front: Frontend) -> tuple[f.Item, ...]:
    """Packets for a frontend: to its address, or to any address of the node that has NodePorts."""
    number = front.protocol.number
    port = (f.IP_PROTO.eq(number), f.L4_DST[number].eq(front.port))
    if front.entrance is Entrance.NODE_PORT:
        return f.ETH[front.ip.family], f.NODE_PORT.eq(1), *port
    return *f.destination(front.ip), *port


def _choose(
    priority: int, front: Frontend, backends: ServiceBackends, choice: str, view: FleetView, *client: f.Item
) -> Iterator[Flow]:
    """A choice of a group, or with affinity what the client was given before."""
    conditions = (*_to(front), *client)
    group = ToGroup(view.group_id(choice))
    if not backends.affinity:
        yield SERVICE_LB.flow(priority, conditions, group)
        return
    number = load(f.SERVICE_NUMBER, affinity.number_of(backends, view))
    yield SERVICE_LB.flow(priority, (*conditions, f.CHOSEN.eq(1)), goto(ENDPOINT_DNAT))
    yield SERVICE_LB.flow(priority, (*conditions, f.CHOSEN.eq(0)), number, group)


def _shared_local(front: Frontend, backends: ServiceBackends, view: FleetView) -> Iterator[Flow]:
    """With a Local policy nobody is served but on nodes with an endpoint (rule R7), and inside the cluster.

    An external policy does not bind clients inside, an internal one does.
    """
    yield SERVICE_LB.flow(200, _to(front))
    if front.entrance is not Entrance.CLUSTER_IP:
        on_node = f.ENTERED_BY.masked(f.ON_NODE, f.ON_NODE)
        yield from _choose(212, front, backends, backends.key, view, on_node)


def _allowed(front: Frontend, targets: Iterable[Target]) -> frozenset[Tuple]:
    number = front.protocol.number
    return frozenset(Tuple(number, front.ip, front.port, target.ip, target.port) for target in targets)


def of_zone(near: ZoneBackends, view: ZoneView) -> Unit:
    """New connections of clients in a zone that endpoints are meant for."""
    return _fewer(203, near.backends, near.targets, zone_choice(near.backends.key), view, local=False)


def of_node(chosen: NodeBackends, view: NodeView) -> Unit:
    """New connections on a node that endpoints are meant for, or that has some of its own for a Local policy."""
    backends = chosen.backends
    near = _fewer(206, backends, chosen.hinted, node_choice(backends.key), view, local=False)
    own = _fewer(209, backends, chosen.local, local_choice(backends.key), view, local=True)
    return Unit((*near.flows, *own.flows), (*near.groups, *own.groups), near.allowed | own.allowed)


def _fewer(
    priority: int, backends: ServiceBackends, targets: tuple[Target, ...], choice: str, view: FleetView, *, local: bool
) -> Unit:
    """As for everybody else, with fewer endpoints: for the frontends with a Local policy, or for the others."""
    fronts = [front for front in backends.frontends if front.local is local and view.owns(front)] if targets else []
    if not fronts:
        return EMPTY
    flows = [flow for front in fronts for flow in _choose(priority, front, backends, choice, view)]
    allowed = frozenset(one for front in fronts for one in _allowed(front, targets))
    chosen = _choice(choice, targets, backends, view)
    return Unit((*flows, *chosen.flows), chosen.groups, allowed)


def service_group(backends: ServiceBackends, view: FleetView) -> Unit:
    """The choice among a service port's endpoints."""
    if not backends.targets:
        return EMPTY
    return _choice(backends.key, backends.targets, backends, view)


def _choice(owner: str, targets: tuple[Target, ...], backends: ServiceBackends, view: FleetView) -> Unit:
    """One group, or for endpoints that no message could carry one that chooses among several.

    Which share an endpoint is in follows from itself, so that few move when their number changes.
    """
    number = view.group_id(owner)
    names = shares(owner, len(targets))
    if not names:
        return Unit(groups=(_group(number, targets, backends),))
    parts: list[list[Target]] = [[] for _ in names]
    for target in targets:
        parts[_hash(target, 8) % len(names)].append(target)
    flows, groups, buckets = [], [], []
    for position, (name, part) in enumerate(zip(names, parts, strict=True)):
        share = view.group_id(name)
        of_share = share & (1 << f.SHARE.bits) - 1
        flows.append(GROUP_SHARE.flow(100, (f.SHARE.eq(of_share),), ToGroup(share)))
        groups.append(_group(share, tuple(part), backends, hashed=HASH_FIELDS))
        if part:
            load_share = load(f.SHARE, of_share)
            buckets.append(SERVICE_LB.bucket(position, load_share, resubmit(GROUP_SHARE), weight=len(part)))
    return Unit(tuple(flows), (*groups, Group(number, tuple(buckets))))


@lru_cache(maxsize=1 << 16)
def _hash(target: Target, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{target.ip} {target.port}".encode(), digest_size=size).digest(), "big")


def _group(
    number: int, targets: tuple[Target, ...], backends: ServiceBackends, hashed: tuple[f.Field, ...] = ()
) -> Group:
    """With affinity by a hash over all that tells connections apart: then each of them looks for a former choice."""
    if len(targets) > DP_HASH_BUCKETS or backends.affinity:
        hashed = HASH_FIELDS
    then = AFFINITY_LEARN if backends.affinity else ENDPOINT_DNAT
    return Group(number, tuple(_buckets(targets, then)), hashed)


def _buckets(targets: tuple[Target, ...], then: Table) -> Iterator[Bucket]:
    """Bucket ids follow from the endpoint, so that a hash keeps its choice when others come and go."""
    taken: set[int] = set()
    onwards = resubmit(then)
    for target in targets:
        number = _hash(target, 3)
        while number in taken:
            number = (number + 1) & 0xFFFFFF
        taken.add(number)
        yield SERVICE_LB.bucket(number, *given(target.ip, target.port), onwards)


_BEFORE_DNAT = (load(f.SERVICE, 1), resubmit(ENDPOINT_PLACE))


def endpoint(target: Target, view: FleetView) -> Unit:
    """New connections that were given this endpoint."""
    del view
    number = target.protocol.number
    remembered: tuple[Move | SetField, ...] = REMEMBER
    if number == f.SCTP:
        # The userspace datapath translates no SCTP ports: ct_commit does, with what the connection remembers.
        remembered += (move(f.SCTP_DST, f.CT_SERVICE_PORT), load(f.CT_ENDPOINT_PORT, target.port))
    nat = Nat("dst", target.ip, target.port)
    return Unit(
        (
            ENDPOINT_DNAT.flow(
                100,
                (f.ETH[target.ip.family], f.IP_PROTO.eq(number), *f.chosen(target.ip, target.port)),
                *_BEFORE_DNAT,
                Ct(f.SERVICE_ZONE, ROUTE.id, commit=True, nat=nat, exec=remembered),
            ),
        )
    )


FEATURES = (
    Feature("services.range", 13, ScopeKind.FLEET, Derived.SERVICE_RANGE, service_range),
    Feature("services.lone_address", 29, ScopeKind.FLEET, Derived.LONE_ADDRESS, service_range),
    Feature("services.frontend", 14, ScopeKind.FLEET, Derived.FRONTEND, frontend),
    Feature("services.group", 15, ScopeKind.FLEET, Derived.SERVICE_PORT, service_group),
    Feature("services.endpoint", 16, ScopeKind.FLEET, Derived.ENDPOINT, endpoint),
    Feature("services.source", 52, ScopeKind.FLEET, Derived.FRONTEND, sources),
    Feature("services.zone", 53, ScopeKind.ZONE, Derived.ZONE_BACKENDS, of_zone),
    Feature("services.node", 54, ScopeKind.NODE, Derived.NODE_BACKENDS, of_node),
)

# Features whose flows send refused packets to the controller.
REJECTING = ("services.range", "services.lone_address", "services.frontend")
