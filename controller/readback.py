"""What switches answer, read by struct: no objects for what nobody asks.

A flow-desc message holds several hundred flows; key, cookie and the raw instructions of each are sliced out, which is
all that a comparison needs. `decode_flow` turns one into a Flow, for evidence and for people. Readers are
generators, so that a caller may let others run between two rows.

Malformed bytes raise DecodeError and nothing else.
"""

import struct
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from controller.decode import decode_flow, decode_group
from controller.encode import EncodedFlow
from controller.errors import SwitchError
from controller.rows import (
    BundleReply,
    DecodeError,
    FlowRemoved,
    FlowRow,
    GroupRow,
    MeterRow,
    PacketIn,
    PortRow,
    RoleRow,
)

__all__ = [
    "BundleReply",
    "DecodeError",
    "FlowRemoved",
    "FlowRow",
    "GroupRow",
    "MeterRow",
    "PacketIn",
    "PortRow",
    "RoleRow",
    "SwitchError",
    "bundle_reply",
    "decode_flow",
    "decode_group",
    "error",
    "features",
    "flow_removed",
    "flows",
    "groups",
    "meters",
    "packet_in",
    "port_status",
    "ports",
    "role",
    "row_of",
    "same_instructions",
    "speaks",
    "version_name",
]

_HEADER = 8
_PARTS = 16  # bytes before the first row of a multipart reply
_FLOW = struct.Struct("!HxxBxHHHHHQHH")
_FLOW_HEAD = 24
_KEY = struct.Struct("!BH")
_LENGTH = struct.Struct("!H")
_STATS = struct.Struct("!HH")
_GROUP = struct.Struct("!HBxIH6x")
_PORT = struct.Struct("!IH2x6s2x16sII")
_ETHERNET = struct.Struct("!HH4xI12xI4x")  # current features and current speed, of eight numbers
_PORT_STATUS = 16
_DELETED = 1
_METER = struct.Struct("!HHI")
_BAND = struct.Struct("!HHII")
_PACKET_IN = struct.Struct("!IHBBQHH")
_FLOW_REMOVED = struct.Struct("!BBHHHQHH")
_PACKET_COUNT = 0x80020808  # of OpenFlow's statistics, each with a header like that of a condition
_ROLE = struct.Struct("!I4xQ")
_BUNDLE = struct.Struct("!IH")
_ERROR = struct.Struct("!HH")
_IN_PORT = (0x8000, 0)
_ALL_VERSIONS = {1: "1.0", 2: "1.1", 3: "1.2", 4: "1.3", 5: "1.4", 6: "1.5"}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _strict(reader: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(reader)
    def read(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return reader(*args, **kwargs)
        except struct.error as problem:
            raise DecodeError(f"a message that ends early ({reader.__name__})") from problem

    return read


def _entries(data: bytes, start: int, smallest: int, at: int = 0) -> Iterator[tuple[int, int]]:
    """Start and end of rows that follow each other, each with its length in 16 bits at offset `at`."""
    position, end = start, len(data)
    if end < start:
        raise DecodeError(f"a reply of {end} bytes")
    while position < end:
        if end - position < smallest:
            raise DecodeError("a row that ends early")
        (length,) = _LENGTH.unpack_from(data, position + at)
        if length < smallest or length > end - position:
            raise DecodeError(f"a row of {length} bytes with {end - position} left")
        yield position, position + length
        position += length


# --- flows and groups --------------------------------------------------------------------------------------


def flows(data: bytes) -> Iterator[FlowRow]:
    """The rows of one flow-desc reply."""
    for start, end in _entries(data, _PARTS, _FLOW.size + 4):
        _, table, priority, idle, hard, _, _, cookie, kind, size = _FLOW.unpack_from(data, start)
        _, instructions = _statistics(data, start, end, kind, size)
        match = data[start + _FLOW_HEAD + 4 : start + _FLOW_HEAD + size]
        key = _KEY.pack(table, priority) + match
        yield FlowRow(key, cookie, table, priority, match, data[instructions:end], idle, hard)


def dropped(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Of one flow-desc reply the keys of flows that do nothing, each with the packets that it has met."""
    for start, end in _entries(data, _PARTS, _FLOW.size + 4):
        _, table, priority, *_, kind, size = _FLOW.unpack_from(data, start)
        stats, instructions = _statistics(data, start, end, kind, size)
        if instructions == end:
            match = data[start + _FLOW_HEAD + 4 : start + _FLOW_HEAD + size]
            yield _KEY.pack(table, priority) + match, _packets(data, stats)


def _statistics(data: bytes, start: int, end: int, kind: int, size: int) -> tuple[int, int]:
    """Where those of a flow begin, and where its instructions do. `kind`, `size`: of its match."""
    stats = start + _FLOW_HEAD + (size + 7 & ~7)
    if kind != 1 or size < 4 or stats + _STATS.size > end:
        raise DecodeError(f"a match of type {kind} and {size} bytes")
    _, stats_size = _STATS.unpack_from(data, stats)
    instructions = stats + (stats_size + 7 & ~7)
    if stats_size < 4 or instructions > end:
        raise DecodeError(f"flow statistics of {stats_size} bytes")
    return stats, instructions


def _packets(data: bytes, stats: int) -> int:
    _, length = _STATS.unpack_from(data, stats)
    position, end = stats + _STATS.size, min(stats + length, len(data))
    while end - position >= 4:
        header = int.from_bytes(data[position : position + 4], "big")
        if header == _PACKET_COUNT:
            return int.from_bytes(data[position + 4 : position + 12], "big")
        position += 4 + (header & 0xFF)
    return 0


def row_of(flow: EncodedFlow) -> FlowRow:
    """As it will be read back."""
    table, priority = _KEY.unpack_from(flow.key)
    idle, hard = flow.timeouts
    match = flow.key[_KEY.size :]
    return FlowRow(flow.key, flow.cookie, table, priority, match, flow.instructions, idle, hard)


def same_instructions(row: FlowRow, flow: EncodedFlow) -> bool:
    """Whether the switch does what the flow says, whatever the cookie."""
    return row.instructions == flow.instructions and (row.idle_timeout, row.hard_timeout) == flow.timeouts


def groups(data: bytes) -> Iterator[GroupRow]:
    """The rows of one group-desc reply. Groups of other types than select are rows too: they are nobody's of ours."""
    for start, end in _entries(data, _PARTS, _GROUP.size):
        _, kind, number, buckets = _GROUP.unpack_from(data, start)
        if _GROUP.size + buckets > end - start:
            raise DecodeError(f"buckets of {buckets} bytes in a group of {end - start}")
        yield GroupRow(number, bytes((kind,)) + data[start + _GROUP.size : end])


# --- ports, meters, roles ----------------------------------------------------------------------------------


def ports(data: bytes) -> Iterator[PortRow]:
    """The rows of one port-desc reply."""
    for start, _ in _entries(data, _PARTS, _PORT.size, at=4):
        yield _port(data, start)


@_strict
def port_status(data: bytes) -> tuple[PortRow, bool]:
    """The port, and whether it is gone."""
    return _port(data, _PORT_STATUS), data[_HEADER] == _DELETED


def _port(data: bytes, start: int) -> PortRow:
    number, length, mac, name, config, state = _PORT.unpack_from(data, start)
    text = name.partition(b"\0")[0].decode("utf-8", "replace")
    device = _has_medium(data[start + _PORT.size : start + length])
    return PortRow(number, text, int.from_bytes(mac, "big"), config, state, device)


def _has_medium(properties: bytes) -> bool:
    """Whether the Ethernet property, the first one that a port of Open vSwitch has, tells a medium or a speed."""
    if len(properties) < _ETHERNET.size:
        return False
    kind, length, medium, speed = _ETHERNET.unpack_from(properties)
    return (kind, length) == (0, 32) and bool(medium or speed)


def meters(data: bytes) -> Iterator[MeterRow]:
    """The rows of one meter-config reply: meters with one band that drops by packets; others as 0, 0."""
    for start, end in _entries(data, _PARTS, _METER.size):
        _, flags, number = _METER.unpack_from(data, start)
        packets = burst = 0
        if end - start >= _METER.size + 16:
            kind, _, rate, size = _BAND.unpack_from(data, start + _METER.size)
            if kind == 1 and flags & 2 and not flags & 1:  # one that drops; packets, not kilobits, a second
                packets, burst = rate, size
        yield MeterRow(number, packets, burst)


@_strict
def role(data: bytes) -> RoleRow:
    """Of a role reply or a role-status message."""
    return RoleRow(*_ROLE.unpack_from(data, _HEADER))


@_strict
def features(data: bytes) -> int:
    """The datapath id."""
    (datapath,) = struct.Struct("!Q").unpack_from(data, _HEADER)
    return int(datapath)


# --- packets, bundles, errors, hello -----------------------------------------------------------------------


@_strict
def packet_in(data: bytes) -> PacketIn:
    _, total, reason, table, cookie, kind, size = _PACKET_IN.unpack_from(data, _HEADER)
    match = _HEADER + _PACKET_IN.size - 4
    frame = match + (size + 7 & ~7) + 2
    if kind != 1 or size < 4 or frame > len(data):
        raise DecodeError(f"a packet-in with a match of type {kind} and {size} bytes")
    found: dict[tuple[int, int], int] = {}
    position, end = match + 4, match + size
    while position < end:
        if end - position < 4:
            raise DecodeError("a packet-in whose match ends early")
        header = int.from_bytes(data[position : position + 4], "big")
        length = header & 0xFF
        if end - position - 4 >= length:
            value = data[position + 4 : position + 4 + (length // 2 if header >> 8 & 1 else length)]
            found[header >> 16, header >> 9 & 0x7F] = int.from_bytes(value, "big")
        position += 4 + length
    return PacketIn(table, cookie, found.get(_IN_PORT, 0) & 0xFFFFFFFF, reason, data[frame : frame + total], found)


@_strict
def flow_removed(data: bytes) -> FlowRemoved:
    table, reason, priority, idle, _, cookie, kind, size = _FLOW_REMOVED.unpack_from(data, _HEADER)
    match = _HEADER + _FLOW_REMOVED.size - 4
    position = match + (size + 7 & ~7)
    if kind != 1 or size < 4 or position > len(data):
        raise DecodeError(f"a removed flow with a match of type {kind} and {size} bytes")
    key = _KEY.pack(table, priority) + data[match + 4 : match + size]
    return FlowRemoved(key, priority, cookie, reason, idle, _packets(data, position))


@_strict
def bundle_reply(data: bytes) -> BundleReply:
    return BundleReply(*_BUNDLE.unpack_from(data, _HEADER))


@_strict
def error(data: bytes) -> SwitchError:
    kind, code = _ERROR.unpack_from(data, _HEADER)
    xid = int.from_bytes(data[4:8], "big")
    if kind != 0xFFFF:
        return SwitchError(xid, kind, code, data[12:])
    (experimenter,) = struct.Struct("!I").unpack_from(data, 12)
    return SwitchError(xid, kind, code, data[16:], experimenter)


def speaks(hello: bytes, version: int) -> bool:
    """Whether the sender of this hello and we, who know only `version`, have that version in common."""
    position = _HEADER
    while len(hello) - position >= 4:
        kind, length = _ERROR.unpack_from(hello, position)
        if length < 4:
            break
        if kind == 1:
            bitmap = int.from_bytes(hello[position + 4 : position + 8], "big")
            return bool(bitmap >> version & 1)
        position += length + 7 & ~7
    return bool(hello) and hello[0] == version


def version_name(version: int) -> str:
    """`OpenFlow 1.3` of the number in a header."""
    return f"OpenFlow {_ALL_VERSIONS[version]}" if version in _ALL_VERSIONS else f"OpenFlow version {version}"
