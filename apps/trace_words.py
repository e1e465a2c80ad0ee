"""What `signalbox trace` says at the end: refused and how, or dropped and why, in the words of whoever asks."""

from collections.abc import Callable
from typing import NamedTuple

from pipelines import fields as f
from pipelines.derived import Derived, Entrance, Frontend
from pipelines.features.services import REJECTING
from pipelines.flow import Flow
from pipelines.interpreter import Outcome, Packet
from pipelines.interpreter.story import table_name
from pipelines.tables import CLASSIFY, ROUTE, SERVICE_SOURCE, SPOOF_GUARD, TUNNEL_GUARD
from pipelines.unit import UnitKey
from pipelines.view import Facts

MISSES = "misses"
NOTHING_FOR_IT = {  # by the table that has no flow for it
    CLASSIFY.name: "by this port nothing like it is taken",
    SPOOF_GUARD.name: "its source is none of the addresses of who sends it",
    TUNNEL_GUARD.name: "the tunnel's other end is none of the nodes that may send it",
    ROUTE.name: "no way leads to its destination",
}


class Verdict(NamedTuple):
    """`result`: "sent", "to controller", "refused", "held" or "dropped". `reason` is "" where there is none to tell."""

    result: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.result}: {self.reason}" if self.reason else self.result


def verdict(outcome: Outcome, owner: Callable[[Flow], UnitKey | None], facts: Facts) -> Verdict:
    """`owner`: the unit that a flow is of."""
    for message in outcome.to_controller:
        unit = owner(message.flow)
        if message.reason == "action" and unit is not None and unit.feature in REJECTING:
            return Verdict("refused", f"{_answer(message.packet)}, because {_refused(unit, facts)}")
    if outcome.sent:
        return Verdict("sent")
    if outcome.to_controller:
        return Verdict("to controller")
    if outcome.held:
        return Verdict("held", "a fragment waits for the rest of its datagram")
    table, flow = outcome.path[-1]
    return Verdict("dropped", _dropped(table, flow, None if flow is None else owner(flow), facts))


def _answer(packet: Packet) -> str:
    return "TCP reset" if packet[f.IP_PROTO] == f.TCP else "ICMP port unreachable"


def _refused(unit: UnitKey, facts: Facts) -> str:
    front = _frontend(unit, facts)
    if front is None:
        return f"no Service in {unit.key} has this address, port and protocol"
    return f"no endpoint of Service {front.service} is ready"


def _dropped(table: int, flow: Flow | None, unit: UnitKey | None, facts: Facts) -> str:
    front = None if unit is None else _frontend(unit, facts)
    if front is not None and table == SERVICE_SOURCE.id:
        return f"loadBalancerSourceRanges of Service {front.service} leave this client out"
    if front is not None and front.local:
        field = "internalTrafficPolicy" if front.entrance is Entrance.CLUSTER_IP else "externalTrafficPolicy"
        return f"{field} of Service {front.service} is Local, and no endpoint on this node is ready"
    if unit is not None and unit.feature in REJECTING:
        return "no service answers pings, nor fragments that no connection is known for"
    if flow is None or unit is None or unit.feature == MISSES:
        name = table_name(table)
        return NOTHING_FOR_IT.get(name, f"table {name} has nothing for it")
    if flow.actions:
        return f"table {table_name(table)} sends it to no port that is there and that it did not come by"
    return f"by table {table_name(table)} ({unit.feature} {unit.key}".rstrip() + ")"


def _frontend(unit: UnitKey, facts: Facts) -> Frontend | None:
    found: Frontend | None = facts.peek(Derived.FRONTEND).get(unit.key)
    return found if unit.feature in ("services.frontend", "services.source") else None
