"""Actions as the bytes of an apply-actions instruction, in the form in which Open vSwitch gives them back.

Standard OpenFlow 1.5 actions where there are such (output, group, meter, set_field, copy_field, dec_nw_ttl),
Nicira extensions for the rest (resubmit, output to a register, ct, nat).
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from controller.oxm import LEARN_HEADER, WIRE, checked
from pipelines.actions import (
    CONTROLLER_PORT,
    Action,
    CheckPktLarger,
    Controller,
    Ct,
    DecTtl,
    Goto,
    Learn,
    LearnLoad,
    LearnMatch,
    Meter,
    Move,
    Nat,
    Output,
    OutputPart,
    Resubmit,
    SetField,
    ToGroup,
)
from pipelines.fields import Field, Part

APPLY_ACTIONS, GOTO_TABLE = 4, 1
OUTPUT, GROUP, DEC_NW_TTL, SET_FIELD, COPY_FIELD, METER, EXPERIMENTER = 0, 22, 24, 25, 28, 29, 0xFFFF
NICIRA = 0x2320
RESUBMIT_TABLE, OUTPUT_REG, LEARN, CT, NAT, CHECK_PKT_LARGER = 14, 15, 16, 35, 36, 49
LEARN2 = 45
CT_COMMIT, NO_TABLE = 1, 0xFF
NAT_SRC, NAT_DST = 1, 2
SEND_FLOW_REM, DELETE_LEARNED, WRITE_RESULT = 1, 2, 4  # flags of learn
LEARN_NUMBER, LEARN_LOAD, LEARN_BITS = 0x2000, 0x0800, 0x07FF  # a spec's head: number or field, load or match, width
IP4_MIN, IP6_MIN, PORT_MIN, PORT_MAX = 1, 4, 16, 32
SAME_PORT = 0xFFF8  # resubmit with the packet's own input port
WHOLE_PACKET = 0xFFFF

OUTPUT_ACTION = Struct("!HHIH6x")
NUMBER_ACTION = Struct("!HHI")
EMPTY_ACTION = Struct("!HH4x")
COPY_ACTION = Struct("!HHHHH2xII4x")
RESUBMIT_ACTION = Struct("!HHIHHB3x")
OUTPUT_REG_ACTION = Struct("!HHIHHIH6x")
CT_ACTION = Struct("!HHIHHIHB3xH")
CHECK_PKT_LARGER_ACTION = Struct("!HHIHHHI6x")
LEARN_ACTION = Struct("!HHIHHHHQHBx4x")
LEARN_LIMIT = Struct("!IH2x")
LEARN_PLACE = Struct("!IH")  # a field, and the lowest of its bits
NAT_ACTION = Struct("!HHIH2xHH")
INSTRUCTION = Struct("!HH4x")
GOTO_INSTRUCTION = Struct("!HHB3x")
_port = _short = Struct("!H").pack
_word = Struct("!I").pack
_head = Struct("!HHI").pack

_PADDING = tuple(bytes(-size % 8) for size in range(8))
_CACHE_SIZE = 32768
_actions: dict[Action, bytes] = {}
_execs: dict[tuple[SetField | Move, ...], bytes] = {}


def instructions(actions: tuple[Action, ...]) -> bytes:
    """All instructions of a flow; nothing at all when it drops. Raises ValueError, OverflowError, struct.error."""
    goto = b""
    if actions and isinstance(last := actions[-1], Goto):
        goto = GOTO_INSTRUCTION.pack(GOTO_TABLE, 8, last.table)
        actions = actions[:-1]
    if not actions:
        return goto
    body = b"".join([action_bytes(action) for action in actions])
    return INSTRUCTION.pack(APPLY_ACTIONS, 8 + len(body)) + body + goto


def action_bytes(action: Action) -> bytes:
    """One action, padded to a multiple of 8 bytes. Raises ValueError, OverflowError or struct.error."""
    if type(action) is Ct:
        return _ct(action)  # nearly always with an address of its own: not worth keeping
    known = _actions.get(action)
    if known is not None:
        return known
    writer = _WRITERS.get(type(action))
    if writer is None:
        raise ValueError(f"{action} cannot be written here")
    written = writer(action)
    if len(_actions) >= _CACHE_SIZE:
        _actions.clear()
    _actions[action] = written
    return written


def _output(action: Output) -> bytes:
    return OUTPUT_ACTION.pack(OUTPUT, 16, action.port, 0)


def _controller(action: Controller) -> bytes:
    return OUTPUT_ACTION.pack(OUTPUT, 16, CONTROLLER_PORT, action.max_len)


def _output_part(action: OutputPart) -> bytes:
    field, low, bits = place(action.part)
    return OUTPUT_REG_ACTION.pack(
        EXPERIMENTER, 24, NICIRA, OUTPUT_REG, low << 6 | bits - 1, WIRE[field].header, WHOLE_PACKET
    )


def _group(action: ToGroup) -> bytes:
    return NUMBER_ACTION.pack(GROUP, 8, action.group)


def _meter(action: Meter) -> bytes:
    return NUMBER_ACTION.pack(METER, 8, action.meter)


def _dec_ttl(_: DecTtl) -> bytes:
    return EMPTY_ACTION.pack(DEC_NW_TTL, 8)


def _resubmit(action: Resubmit) -> bytes:
    return RESUBMIT_ACTION.pack(EXPERIMENTER, 16, NICIRA, RESUBMIT_TABLE, SAME_PORT, action.table)


def _set_field(action: SetField) -> bytes:
    field, low, bits = place(action.field)
    oxm = WIRE[field]
    value = checked(action.field, action.value) << low
    if bits == field.bits:
        body = value.to_bytes(oxm.size, "big")
        header = oxm.header
    else:
        mask = (1 << bits) - 1 << low
        body = value.to_bytes(oxm.size, "big") + mask.to_bytes(oxm.size, "big")
        header = oxm.masked_header
    size = 8 + len(body)
    return _head(SET_FIELD, size + -size % 8, header) + body + _PADDING[size & 7]


def _move(action: Move) -> bytes:
    source, source_low, bits = place(action.source)
    target, target_low, target_bits = place(action.target)
    if bits != target_bits:
        raise ValueError(f"{action.source.name} has {bits} bits, {action.target.name} {target_bits}")
    return COPY_ACTION.pack(COPY_FIELD, 24, bits, source_low, target_low, WIRE[source].header, WIRE[target].header)


def _check_pkt_larger(action: CheckPktLarger) -> bytes:
    field, low, bits = place(action.target)
    if bits != 1:
        raise ValueError(f"check_pkt_larger sets one bit, {action.target.name} has {bits}")
    return CHECK_PKT_LARGER_ACTION.pack(
        EXPERIMENTER, 24, NICIRA, CHECK_PKT_LARGER, action.length, low, WIRE[field].header
    )


def _ct(action: Ct) -> bytes:
    nat = b"" if action.nat is None else _nat(action.nat)
    exec_ = _execs.get(action.exec)
    if exec_ is None:
        exec_ = b"".join([action_bytes(inner) for inner in action.exec])
        if len(_execs) >= _CACHE_SIZE:
            _execs.clear()
        _execs[action.exec] = exec_
    table = NO_TABLE if action.table is None else action.table
    if table == NO_TABLE and action.table is not None:
        raise ValueError("ct cannot continue in table 255")
    size = 24 + len(nat) + len(exec_)
    flags = CT_COMMIT if action.commit else 0
    return CT_ACTION.pack(EXPERIMENTER, size, NICIRA, CT, flags, 0, action.zone, table, 0) + nat + exec_


def _nat(nat: Nat) -> bytes:
    if nat.side not in _NAT_SIDES or (nat.side == "") != (nat.ip is None):
        raise ValueError(f"nat wants side src or dst with an address, or neither: {nat}")
    present, body = 0, b""
    if nat.ip is not None and nat.ip.value:  # Open vSwitch refuses the zero address on the wire: it stands for no range
        present = IP4_MIN if nat.ip.family == 4 else IP6_MIN
        body = nat.ip.value.to_bytes(4 if nat.ip.family == 4 else 16, "big")
    if nat.port is not None:
        if not present or not 0 < nat.port <= 0xFFFF:
            raise ValueError(f"nat wants a port from 1 to 65535 beside an address: {nat}")
        present |= PORT_MIN
        body += _port(nat.port)
    if nat.last_port is not None:
        if nat.port is None or nat.last_port <= nat.port:
            raise ValueError(f"nat wants a port range that rises: {nat}")
        present |= PORT_MAX
        body += _port(nat.last_port)
    size = 16 + len(body)
    padding = _PADDING[size & 7]
    flags = _NAT_SIDES[nat.side]
    return NAT_ACTION.pack(EXPERIMENTER, size + len(padding), NICIRA, NAT, flags, present) + body + padding


def _learn(action: Learn) -> bytes:
    flags = DELETE_LEARNED if action.delete_learned else 0
    if action.send_flow_rem:
        flags |= SEND_FLOW_REM
    more = b""
    if action.result is not None:
        field, low, bits = place(action.result)
        if bits != 1:
            raise ValueError(f"learn sets one bit, {action.result.name} has {bits}")
        flags |= WRITE_RESULT
        more = LEARN_LIMIT.pack(action.limit, low) + _word(LEARN_HEADER[field])
    elif action.limit:
        more = LEARN_LIMIT.pack(action.limit, 0)
    if action.table == NO_TABLE:
        raise ValueError("learn cannot write into table 255")
    body = more + b"".join(map(_spec, action.specs))
    padding = _PADDING[len(body) & 7]
    size = LEARN_ACTION.size + len(body) + len(padding)
    head = LEARN_ACTION.pack(
        EXPERIMENTER, size, NICIRA, LEARN2 if more else LEARN, action.idle_timeout, action.hard_timeout,
        action.priority, action.cookie, flags, action.table,
    )  # fmt: skip
    return head + body + padding


def _spec(spec: LearnMatch | LearnLoad) -> bytes:
    field, low, bits = place(spec.field)
    kind = LEARN_LOAD if isinstance(spec, LearnLoad) else 0
    target = _learn_place(field, low)
    if isinstance(spec.source, int):
        number = checked(spec.field, spec.source).to_bytes((bits + 15) // 16 * 2, "big")
        return _short(LEARN_NUMBER | kind | bits) + number + target
    source, source_low, source_bits = place(spec.source)
    if source_bits != bits:
        raise ValueError(f"{spec.source.name} has {source_bits} bits, {spec.field.name} {bits}")
    return _short(kind | bits) + _learn_place(source, source_low) + target


def _learn_place(field: Field, low: int) -> bytes:
    if field not in LEARN_HEADER:
        raise ValueError(f"learn does not work on {field.name}")
    return LEARN_PLACE.pack(LEARN_HEADER[field], low)


def place(field: Field | Part) -> tuple[Field, int, int]:
    """The whole field, the lowest bit and the number of bits."""
    if isinstance(field, Part):
        return field.field, field.low, field.bits
    return field, 0, field.bits


_NAT_SIDES = {"": 0, "src": NAT_SRC, "dst": NAT_DST}
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    Output: _output,
    OutputPart: _output_part,
    Controller: _controller,
    SetField: _set_field,
    Move: _move,
    Resubmit: _resubmit,
    ToGroup: _group,
    Meter: _meter,
    DecTtl: _dec_ttl,
    CheckPktLarger: _check_pkt_larger,
    Learn: _learn,
}
