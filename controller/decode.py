"""From the wire back to a Flow or a Group, for what we write ourselves.

Used for evidence, audit and people, never to decide what to send. Registers come back one by one (reg2, reg3),
parts as those that are declared for the same bits. Whatever we would not write in exactly these bytes raises
DecodeError: an own flow that does not decode is drift.
"""

import struct
from collections.abc import Callable, Iterator

from controller import encode, oxm
from controller import instructions as wire
from controller.rows import DecodeError, FlowRow
from pipelines import fields
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
from pipelines.addresses import Ip
from pipelines.fields import Field, Item, Part
from pipelines.flow import Bucket, Flow, Group, match

_VLAN_VID, _VLAN_PCP = 0x8000 << 7 | 6, 0x8000 << 7 | 7  # class and number
_LONG = (1 << 64) - 1


def decode_flow(row: FlowRow) -> Flow:
    """Raises DecodeError."""
    try:
        flow = Flow(
            row.table,
            row.priority,
            match(*_conditions(row.match)),
            tuple(_instructions(row.instructions)),
            row.idle_timeout,
            row.hard_timeout,
        )
        if oxm.match_fields(flow.match) != row.match or wire.instructions(flow.actions) != row.instructions:
            raise DecodeError("a flow that we would write in other bytes")
    except DecodeError:
        raise
    except (struct.error, ValueError, OverflowError) as problem:
        raise DecodeError(f"a flow that cannot be read: {problem}") from problem
    return flow


def decode_group(number: int, content: bytes) -> Group:
    """`content` as in EncodedGroup and GroupRow. Raises DecodeError."""
    try:
        group = _group(number, content)
        if encode.encode_group(group, 0).content != content:
            raise DecodeError("a group that we would write in other bytes")
    except DecodeError:
        raise
    except (struct.error, ValueError, OverflowError) as problem:
        raise DecodeError(f"a group that cannot be read: {problem}") from problem
    return group


# --- conditions --------------------------------------------------------------------------------------------


def _conditions(data: bytes) -> Iterator[Item]:
    for header, body in _fields(data):
        size = len(body) // 2 if header & 0x100 else len(body)
        value = int.from_bytes(body[:size], "big")
        mask = int.from_bytes(body[size:], "big") if header & 0x100 else None
        if header >> 9 in (_VLAN_VID, _VLAN_PCP):
            yield _vlan(header, value, mask)
            continue
        field = oxm.BY_HEADER.get(header & ~0x1FF | size)
        if field is None:
            raise DecodeError(f"an unknown field {header:#010x}")
        if field in fields.XREGS:
            yield from _registers(fields.XREGS.index(field), value, _LONG if mask is None else mask)
        else:
            yield Item(field, value, mask)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Header and body of each OXM field."""
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + 4], "big")
        end = position + 4 + (header & 0xFF)
        if position + 4 > len(data) or end > len(data):
            raise DecodeError("a match that ends early")
        yield header, data[position + 4 : end]
        position = end


def _vlan(header: int, value: int, mask: int | None) -> Item:
    if header >> 9 == _VLAN_PCP:
        return Item(fields.VLAN_TCI, value << 13, 0xE000)
    return Item(fields.VLAN_TCI, value, 0x1FFF if mask is None else mask)


def _registers(number: int, value: int, mask: int) -> Iterator[Item]:
    for register, shift in ((fields.REGS[number * 2], 32), (fields.REGS[number * 2 + 1], 0)):
        half = mask >> shift & register.ones
        if half:
            yield Item(register, value >> shift & register.ones, None if half == register.ones else half)


# --- actions -----------------------------------------------------------------------------------------------


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and all bytes of instructions or actions that follow each other."""
    position = 0
    while position < len(data):
        kind, size = int.from_bytes(data[position : position + 2]), int.from_bytes(data[position + 2 : position + 4])
        if size < 8 or size > len(data) - position:
            raise DecodeError(f"an instruction or action of {size} bytes")
        yield kind, data[position : position + size]
        position += size


def _instructions(data: bytes) -> Iterator[Action]:
    for kind, body in _elements(data):
        if kind == wire.APPLY_ACTIONS:
            for action_kind, action in _elements(body[8:]):
                yield _action(action_kind, action)
        elif kind == wire.GOTO_TABLE:
            yield Goto(body[4])
        else:
            raise DecodeError(f"an instruction of type {kind}")


def _action(kind: int, data: bytes) -> Action:
    if kind == wire.EXPERIMENTER:
        if len(data) < 16:
            raise DecodeError(f"an experimenter action of {len(data)} bytes")
        reader = _NICIRA.get(int.from_bytes(data[8:10]))
    else:
        reader = _STANDARD.get(kind)
    if reader is None:
        raise DecodeError(f"an action of type {kind}")
    return reader(data)


def _output(data: bytes) -> Action:
    _, _, port, longest = wire.OUTPUT_ACTION.unpack(data)
    return Controller(longest) if port == CONTROLLER_PORT else Output(port)


def _group_action(data: bytes) -> Action:
    return ToGroup(wire.NUMBER_ACTION.unpack(data)[2])


def _meter(data: bytes) -> Action:
    return Meter(wire.NUMBER_ACTION.unpack(data)[2])


def _set_field(data: bytes) -> Action:
    header = int.from_bytes(data[4:8])
    masked = bool(header & 0x100)
    size = (header & 0xFF) // 2 if masked else header & 0xFF
    field = _field(header & ~0x1FF | size)
    value, mask = int.from_bytes(data[8 : 8 + size]), field.ones
    if masked:
        mask = int.from_bytes(data[8 + size : 8 + 2 * size])
    if not mask:
        raise DecodeError("a set_field of no bits")
    low = (mask & -mask).bit_length() - 1
    if mask + (1 << low) & mask:
        raise DecodeError(f"a set_field of scattered bits {mask:#x}")
    return SetField(fields.bits_of(field, low, mask.bit_count()), value >> low)


def _move(data: bytes) -> Action:
    _, _, bits, source_low, target_low, source, target = wire.COPY_ACTION.unpack(data)
    return Move(_bits(source, source_low, bits), _bits(target, target_low, bits))


def _output_part(data: bytes) -> Action:
    _, _, _, _, place, header, _ = wire.OUTPUT_REG_ACTION.unpack(data)
    return OutputPart(fields.part_of(_field(header), place >> 6, (place & 63) + 1))


def _resubmit(data: bytes) -> Action:
    return Resubmit(wire.RESUBMIT_ACTION.unpack(data)[5])


def _check_pkt_larger(data: bytes) -> Action:
    _, _, _, _, length, low, header = wire.CHECK_PKT_LARGER_ACTION.unpack(data)
    return CheckPktLarger(length, fields.part_of(_field(header), low, 1))


def _learn(data: bytes) -> Action:
    _, _, _, subtype, idle, hard, priority, cookie, flags, table = wire.LEARN_ACTION.unpack_from(data)
    position = wire.LEARN_ACTION.size
    limit, result = 0, None
    if subtype == wire.LEARN2:
        limit, low = wire.LEARN_LIMIT.unpack_from(data, position)
        position += wire.LEARN_LIMIT.size
        if flags & wire.WRITE_RESULT:
            result = fields.part_of(_learn_field(int.from_bytes(data[position : position + 4])), low, 1)
            position += 4
    return Learn(
        table,
        cookie,
        tuple(_specs(data, position)),
        priority,
        idle,
        hard,
        limit,
        result,
        delete_learned=bool(flags & wire.DELETE_LEARNED),
        send_flow_rem=bool(flags & wire.SEND_FLOW_REM),
    )


def _specs(data: bytes, position: int) -> Iterator[LearnMatch | LearnLoad]:
    while head := int.from_bytes(data[position : position + 2]):  # padding is zero
        position += 2
        bits = head & wire.LEARN_BITS
        source: Field | Part | int
        if head & wire.LEARN_NUMBER:
            size = (bits + 15) // 16 * 2
            source = int.from_bytes(data[position : position + size])
            position += size
        else:
            source = _learn_bits(data, position, bits)
            position += wire.LEARN_PLACE.size
        kind = LearnLoad if head & wire.LEARN_LOAD else LearnMatch
        yield kind(_learn_bits(data, position, bits), source)
        position += wire.LEARN_PLACE.size


def _learn_bits(data: bytes, position: int, bits: int) -> Field | Part:
    header, low = wire.LEARN_PLACE.unpack_from(data, position)
    return fields.bits_of(_learn_field(header), low, bits)


def _learn_field(header: int) -> Field:
    field = oxm.BY_LEARN_HEADER.get(header)
    if field is None:
        raise DecodeError(f"an unknown field {header:#010x} in learn")
    return field


def _ct(data: bytes) -> Action:
    _, _, _, _, flags, _, zone, table, _ = wire.CT_ACTION.unpack_from(data)
    nat: Nat | None = None
    inner: list[SetField | Move] = []
    for kind, body in _elements(data[wire.CT_ACTION.size :]):
        if kind == wire.EXPERIMENTER and body[8:10] == wire.NAT.to_bytes(2) and nat is None:
            nat = _nat(body)
            continue
        action = _action(kind, body)
        if not isinstance(action, SetField | Move):
            raise DecodeError("an action that ct cannot hold")
        inner.append(action)
    return Ct(zone, None if table == wire.NO_TABLE else table, bool(flags & wire.CT_COMMIT), nat, tuple(inner))


def _nat(data: bytes) -> Nat:
    _, _, _, _, flags, present = wire.NAT_ACTION.unpack_from(data)
    side = {0: "", wire.NAT_SRC: "src", wire.NAT_DST: "dst"}.get(flags)
    if side is None:
        raise DecodeError(f"nat with flags {flags:#x}")
    position = wire.NAT_ACTION.size
    ip: Ip | None = None
    numbers: list[int] = []
    for bit, family, size in ((wire.IP4_MIN, 4, 4), (wire.IP6_MIN, 6, 16)):
        if present & bit:
            ip = Ip(family, int.from_bytes(data[position : position + size]))
            position += size
    for bit in (wire.PORT_MIN, wire.PORT_MAX):
        if present & bit:
            numbers.append(int.from_bytes(data[position : position + 2]))
            position += 2
    if side and not present:
        ip = Ip(4, 0)  # or IPv6: the zero address is written as no range (`instructions`)
    return Nat(side, ip, *numbers)


def _field(header: int) -> Field:
    field = oxm.BY_HEADER.get(header)
    if field is None:
        raise DecodeError(f"an unknown field {header:#010x}")
    return field


def _bits(header: int, low: int, bits: int) -> Field | Part:
    return fields.bits_of(_field(header), low, bits)


_STANDARD: dict[int, Callable[[bytes], Action]] = {
    wire.OUTPUT: _output,
    wire.GROUP: _group_action,
    wire.METER: _meter,
    wire.SET_FIELD: _set_field,
    wire.COPY_FIELD: _move,
    wire.DEC_NW_TTL: lambda _: DecTtl(),
}
_NICIRA: dict[int, Callable[[bytes], Action]] = {
    wire.OUTPUT_REG: _output_part,
    wire.RESUBMIT_TABLE: _resubmit,
    wire.CT: _ct,
    wire.LEARN: _learn,
    wire.LEARN2: _learn,
    wire.CHECK_PKT_LARGER: _check_pkt_larger,
}


# --- groups ------------------------------------------------------------------------------------------------


def _group(number: int, content: bytes) -> Group:
    buckets: list[Bucket] = []
    hash_fields: list[Field] = []
    position = 1
    while position < len(content):
        kind = int.from_bytes(content[position : position + 2])
        if kind == 0xFFFF:  # a property: buckets are shorter than that
            break
        end = position + kind
        if kind < 8 or end > len(content):
            raise DecodeError(f"a bucket of {kind} bytes")
        buckets.append(_bucket(content[position:end]))
        position = end
    if position < len(content):
        _, size, _, _, _, _ = encode.SELECTION.unpack_from(content, position)
        chosen = content[position + encode.SELECTION.size : position + size]
        hash_fields = [_field(header) for header, _ in _fields(chosen)]
    return Group(number, tuple(buckets), tuple(hash_fields))


def _bucket(data: bytes) -> Bucket:
    _, size, number = encode.BUCKET.unpack_from(data)
    actions: list[SetField | Resubmit] = []
    for kind, body in _elements(data[encode.BUCKET.size : encode.BUCKET.size + size]):
        action = _action(kind, body)
        if not isinstance(action, SetField | Resubmit):
            raise DecodeError("an action that our buckets do not have")
        actions.append(action)
    _, _, weight = encode.WEIGHT.unpack_from(data, encode.BUCKET.size + size)
    return Bucket(number, tuple(actions), weight)
