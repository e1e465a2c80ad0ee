"""A packet's way through the tables as lines for people: each flow that it met, and what that changed.

classify: priority=150,in_port=10 (→ n1)
    ENTERED_BY: NONE → POD
"""

from collections.abc import Callable, Iterator
from enum import IntEnum

from pipelines import fields as f
from pipelines.actions import LOCAL_PORT, Ct
from pipelines.addresses import Ip, mac_text
from pipelines.fields import PARTS, Field, Part, Show
from pipelines.flow import Flow
from pipelines.interpreter.packet import CT_ZONE, HEADERS, Packet, read
from pipelines.interpreter.switch import Outcome, Step
from pipelines.tables import BY_ID
from pipelines.text import actions_text, match_text

_ENUMS: dict[Part, type[IntEnum]] = {
    f.ENTERED_BY: f.Entered,
    f.CT_ENTERED_BY: f.Entered,
    f.SNAT_KIND: f.Snat,
    f.CT_SNAT_KIND: f.Snat,
    f.PLACE: f.Place,
    f.EGRESS: f.Egress,
}
_IN_PARTS = {part.field for part in PARTS}
_SHOWN: tuple[Field | Part, ...] = (
    *(field for field in HEADERS if field not in _IN_PARTS and field is not CT_ZONE),
    *PARTS,
)


def table_name(number: int) -> str:
    return BY_ID[number].name if number in BY_ID else str(number)


def value_text(field: Field | Part, value: int) -> str:
    if isinstance(field, Part):
        kind = _ENUMS.get(field)
        if kind is not None:
            return kind(value).name if value in kind._value2member_map_ else str(value)
        if field in (f.CLIENT_MAC, f.CT_CLIENT_MAC):
            return mac_text(value)
        if field in (f.ENDPOINT_IP4, f.ENDPOINT_IP6):
            return str(Ip(4 if field is f.ENDPOINT_IP4 else 6, value))
        return str(value)
    match field.show:
        case Show.MAC:
            return mac_text(value)
        case Show.IP4 | Show.IP6:
            return str(Ip(4 if field.show is Show.IP4 else 6, value))
        case Show.PORT:
            return "LOCAL" if value == LOCAL_PORT else str(value)
        case Show.CT_STATE:
            return "".join(f"+{word}" for word, bit in f.CT_STATE_BITS.items() if value & bit) or "none"
        case Show.HEX:
            return f"{value:#x}"
        case _:
            return str(value)


def packet_text(packet: Packet) -> str:
    """Everything that is not zero, as FIELD=VALUE."""
    words = [f"{field.name}={value_text(field, value)}" for field, value in packet.headers]
    if packet.length:
        words.append(f"length={packet.length}")
    if packet.carried is not None:
        words.append(f"with ({packet_text(packet.carried)})")
    return ",".join(words)


def changes(step: Step) -> list[tuple[str, str, str]]:
    """(name, before, after) of what an action changed; registers by the parts that are live in its table."""
    found = []
    for field in _SHOWN:
        if isinstance(field, Part) and not field.first <= step.table <= field.last:
            continue
        before, after = read(step.before, field), read(step.after, field)
        if before != after:
            found.append((field.name, value_text(field, before), value_text(field, after)))
    return found


def flow_words(flow: Flow | None) -> str:
    if flow is None:
        return "no flow, dropped"
    match = match_text(flow.match)
    return f"priority={flow.priority}{',' if match else ''}{match} actions={actions_text(flow.actions)}"


def port_number(port: int) -> str:
    return f"port {value_text(f.IN_PORT, port)}"


def tell(
    outcome: Outcome, why: Callable[[Flow], str] = lambda flow: "", port_name: Callable[[int], str] = port_number
) -> Iterator[str]:
    """The way, line by line, then what came of it. `why`: what a flow is there for, if that is to be told."""
    for step in outcome.trace:
        indent = "    " * step.depth
        if step.action is None:
            reason = "" if step.flow is None else why(step.flow)
            yield f"{indent}{table_name(step.table)}: {flow_words(step.flow)}{reason and f'  # {reason}'}"
            continue
        for name, before, after in changes(step):
            said = f"ct(zone={step.action.zone}): " if isinstance(step.action, Ct) else ""
            yield f"{indent}    {said}{name}: {before} → {after}"
    yield from result(outcome, port_name)


def result(outcome: Outcome, port_name: Callable[[int], str] = port_number) -> Iterator[str]:
    for port, packet in outcome.sent:
        yield f"out by {port_name(port)}: {packet_text(packet)}"
    for message in outcome.to_controller:
        why = "hop limit used up" if message.reason == "ttl" else table_name(message.flow.table)
        yield f"to the controller ({why}): {packet_text(message.packet)}"
    if outcome.held:
        yield "held: a fragment waits for the rest of its datagram"
    elif not outcome.sent and not outcome.to_controller:
        yield "dropped"
