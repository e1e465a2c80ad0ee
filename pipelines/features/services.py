"""Tables service_lb and endpoint_dnat: a service address becomes an endpoint's.

Shared by all switches: the group chooses, the same flow for each endpoint translates, whichever service led
there. What differs between nodes (where the endpoint is, seen from here) is asked in endpoint_place.
"""

import hashlib
from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Controller, Ct, Meter, Nat, SetField, ToGroup, load
from pipelines.addresses import Cidr, Ip
from pipelines.derived import Derived, Frontend, ServiceBackends, Target
from pipelines.feature import Feature, unit
from pipelines.features.conntrack import REMEMBER
from pipelines.flow import Bucket, Flow, Group
from pipelines.ids import REJECT_METER
from pipelines.tables import ENDPOINT_DNAT, ENDPOINT_PLACE, ROUTE, SERVICE_LB, resubmit
from pipelines.unit import EMPTY, ScopeKind, Tuple, Unit
from pipelines.view import FleetView

REJECT_BYTES = 256  # of the refused packet: enough for any header that an ICMP error quotes
REJECT = (Meter(REJECT_METER), Controller(REJECT_BYTES))

# Above this many buckets Open vSwitch's dp_hash falls back to a hash that ignores UDP ports.
DP_HASH_BUCKETS = 256
HASH_FIELDS = (f.IP4_SRC, f.IP4_DST, f.IP6_SRC, f.IP6_DST, f.TCP_SRC, f.TCP_DST, f.UDP_SRC, f.UDP_DST)


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
    """New connections to a service's address and port."""
    number = front.protocol.number
    to = (*f.destination(front.ip), f.IP_PROTO.eq(number))
    backends = view.backends(front.backends)
    targets = backends.targets if backends else ()
    if not targets and not view.settings.source_complete:
        return EMPTY  # its endpoints may be among what is missing: what a switch has of it is held, not refused
    actions = (ToGroup(view.group_id(front.backends)),) if targets else REJECT
    flows = [SERVICE_LB.flow(200, (*to, f.L4_DST[number].eq(front.port)), *actions)]
    allowed = frozenset(Tuple(number, front.ip, front.port, target.ip, target.port) for target in targets)
    return Unit(flows=tuple(flows), allowed=allowed)


def service_group(backends: ServiceBackends, view: FleetView) -> Unit:
    """The choice among a service port's endpoints."""
    if not backends.targets:
        return EMPTY
    hashed = HASH_FIELDS if len(backends.targets) > DP_HASH_BUCKETS else ()
    return Unit(groups=(Group(view.group_id(backends.key), tuple(_buckets(backends.targets)), hashed),))


def _buckets(targets: tuple[Target, ...]) -> Iterator[Bucket]:
    """Bucket ids follow from the endpoint, so that a hash keeps its choice when others come and go."""
    taken: set[int] = set()
    for target in targets:
        number = int.from_bytes(hashlib.blake2b(f"{target.ip} {target.port}".encode(), digest_size=3).digest(), "big")
        while number in taken:
            number = (number + 1) & 0xFFFFFF
        taken.add(number)
        yield SERVICE_LB.bucket(number, *_choose(target), resubmit(ENDPOINT_DNAT))


def _choose(target: Target) -> Iterator[SetField]:
    if target.ip.family == 4:
        yield load(f.ENDPOINT4, target.port << 32 | target.ip.value)
    else:
        yield load(f.ENDPOINT_PORT, target.port)
        yield load(f.ENDPOINT_IP6, target.ip.value)


def endpoint(target: Target, view: FleetView) -> Unit:
    """New connections that were given this endpoint."""
    del view
    number = target.protocol.number
    return unit(
        [
            ENDPOINT_DNAT.flow(
                100,
                (f.ETH[target.ip.family], f.IP_PROTO.eq(number), *_chosen(target.ip, target.port)),
                load(f.SERVICE, 1),
                resubmit(ENDPOINT_PLACE),
                Ct(
                    f.SERVICE_ZONE,
                    ROUTE.id,
                    commit=True,
                    nat=Nat("dst", target.ip, target.port),
                    exec=REMEMBER,
                ),
            )
        ]
    )


def _chosen(ip: Ip, port: int) -> tuple[f.Item, ...]:
    if ip.family == 4:
        return (f.ENDPOINT4.eq(port << 32 | ip.value),)
    return f.ENDPOINT_PORT.eq(port), f.ENDPOINT_IP6.eq(ip.value)


FEATURES = (
    Feature("services.range", 13, ScopeKind.FLEET, Derived.SERVICE_RANGE, service_range),
    Feature("services.lone_address", 29, ScopeKind.FLEET, Derived.LONE_ADDRESS, service_range),
    Feature("services.frontend", 14, ScopeKind.FLEET, Derived.FRONTEND, frontend),
    Feature("services.group", 15, ScopeKind.FLEET, Derived.SERVICE_PORT, service_group),
    Feature("services.endpoint", 16, ScopeKind.FLEET, Derived.ENDPOINT, endpoint),
)

# Features whose flows send refused packets to the controller.
REJECTING = ("services.range", "services.lone_address", "services.frontend")
