"""Tables affinity and affinity_learn: a client that comes again gets the endpoint that it had.

A service's group lets the switch learn what it chose: a flow in table affinity, which every new connection is
looked up in before the service's own flow decides. The group chooses by a hash over all that tells connections
apart, so each new one is looked up: none can slip through a cached decision. What was learned goes with the
endpoint, with the affinity, and with the policy that it was chosen under.

A longer time than a flow can have is divided: the switch tells that what it learned was not used, and the controller
puts that back for the rest (`rest`), under the same cookie and with a lower priority. So what the client is given
anew in that moment stays as it is, and what was put back is known by its priority when its own time is over.
"""

from typing import NamedTuple

from pipelines import fields as f
from pipelines.actions import Learn, LearnLoad, LearnMatch, SetField, given, load
from pipelines.derived import Derived, ServiceBackends, Target
from pipelines.feature import Feature
from pipelines.flow import Flow
from pipelines.ids import learned_cookie
from pipelines.tables import AFFINITY, AFFINITY_LEARN, ENDPOINT_DNAT, resubmit
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import FleetView

NUMBER = 55
LONGEST = 65_535  # seconds: what OpenFlow can say (less in tests). Every new connection of the client begins it anew
LEARNED_AT, PUT_BACK_AT = 32768, 32767  # priorities
CLIENTS = 10_000  # learned for one endpoint of a service; more are spread as if they were new


def number_of(backends: ServiceBackends, view: FleetView) -> int:
    """By this the learning flows know the service port: the id of its group, which is its own."""
    return view.group_id(backends.key) & (1 << f.SERVICE_NUMBER.bits) - 1


def choices(backends: ServiceBackends, view: FleetView) -> Unit:
    """New connections that a service with affinity has given an endpoint."""
    if not backends.affinity:
        return EMPTY
    return Unit(tuple(_learning(backends, target, view) for target in backends.targets))


def kept(backends: ServiceBackends) -> dict[int, tuple[SetField, ...]]:
    """Where the affinity is longer than a flow can have it: cookies of what is learned, and what that does."""
    if backends.affinity <= LONGEST:
        return {}
    return {_cookie(backends, target): _choice(target) for target in backends.targets}


class Unused(NamedTuple):
    """A learned choice, or one that was put back, which no new connection has used for `idle` seconds."""

    idle: int
    priority: int
    packets: int  # that ever used it


def rest(affinity: int, unused: Unused) -> int:
    """For how many seconds more the choice holds; 0: no more.

    One that was put back and never used has been unused for two times, which are together all that there is.
    """
    if unused.priority == PUT_BACK_AT and not unused.packets:
        return 0
    return min(max(affinity - unused.idle, 0), LONGEST)


def _cookie(backends: ServiceBackends, target: Target) -> int:
    policies = "".join("L" if front.local else "C" for front in backends.frontends)
    return learned_cookie(NUMBER, f"{backends.key} {target.ip} {target.port} {policies}")


def _choice(target: Target) -> tuple[SetField, ...]:
    """What a learned flow does."""
    return load(f.CHOSEN, 1), *given(target.ip, target.port)


def _learning(backends: ServiceBackends, target: Target, view: FleetView) -> Flow:
    family, number = target.ip.family, target.protocol.number
    port = f.L4_DST[number]
    of_service = f.SERVICE_NUMBER.eq(number_of(backends, view))
    specs: list[LearnMatch | LearnLoad] = [
        LearnMatch(f.ETH_TYPE, f.ETH[family].value),
        LearnMatch(f.IP_PROTO, number),
        LearnMatch(f.IP_SRC[family], f.IP_SRC[family]),
        LearnMatch(f.IP_DST[family], f.IP_DST[family]),
        LearnMatch(port, port),
        # The endpoint's as the packet has them: they are what this flow matches.
        LearnLoad(f.CHOSEN, 1),
        *(LearnLoad(one.field, one.field) for one in given(target.ip, target.port)),
    ]
    return AFFINITY_LEARN.flow(
        100,
        (
            f.ETH[family],
            f.IP_PROTO.eq(number),
            of_service,
            *f.chosen(target.ip, target.port),
        ),
        Learn(
            AFFINITY.id,
            _cookie(backends, target),
            tuple(specs),
            LEARNED_AT,
            idle_timeout=min(backends.affinity, LONGEST),
            limit=CLIENTS,
            delete_learned=True,
            send_flow_rem=backends.affinity > LONGEST,
        ),
        resubmit(ENDPOINT_DNAT),
    )


FEATURES = (Feature("affinity", NUMBER, ScopeKind.FLEET, Derived.SERVICE_PORT, choices),)
