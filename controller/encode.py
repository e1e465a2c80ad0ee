"""Flows, groups and units as OpenFlow 1.5 bytes, made once for all switches.

A flow becomes a complete bundle-add message that every switch gets unchanged: the bundle's id is a constant, the xid
is fixed here and leads from an error back to the unit. What is written is what Open vSwitch reads back
(`oxm`, `quirks`), so the digest in the cookie is the digest of what the switch holds.

Encoded conditions, actions and whole lists of `exec` are kept by value: most flows are made of a few hundred
different pieces. The smaller messages are in `messages`; both are used as `encode.…`.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Protocol

import msgspec

from controller.instructions import action_bytes, instructions
from controller.messages import *  # noqa: F403  (one name, `encode`, for all that is written)
from controller.messages import BUNDLE_ADD, BUNDLE_FLAGS, BUNDLE_ID, FLOW_MOD, GROUP_MOD, LAST_CONNECTION_XID, VERSION
from controller.oxm import WIRE, match_fields
from pipelines import ids
from pipelines.actions import Action
from pipelines.flow import Bucket, Flow, Group
from pipelines.unit import Tuple, Unit, UnitKey

LONGEST = 0xFFFF  # bytes of one OpenFlow message
DELETE_XID = LAST_CONNECTION_XID + 1  # of deletions whose unit is not known
PROLONG_XID = LAST_CONNECTION_XID + 2  # of flows that were learned
FIRST_XID, LAST_XID = LAST_CONNECTION_XID + 3, 0xFFFFFFFF
REMEMBERED = 65536  # xids that still lead to their unit after it was replaced: their error may be on its way

ADD, DELETE, DELETE_STRICT = 0, 3, 4
EVERY_TABLE = 255
ADD_OR_MODIFY, DELETE_GROUP = 0x8000, 2
ANY = 0xFFFFFFFF
EXACTLY = 0xFFFFFFFFFFFFFFFF
EVERY_BUCKET = 0xFFFFFFFF
SELECT = 1

# bundle-add: header, bundle and flags; flow mod: header; cookie, mask, table, command, idle, hard, priority;
# buffer, out port, out group (any), flags, importance (none), match type (1); match length
_FLOW = Struct("!BBHI8sBBHIQQBBHHH18sH")
_FLOW_CONSTANTS = b"\xff" * 12 + bytes(4) + b"\0\1"
_TELL_REMOVAL = b"\xff" * 12 + b"\0\1\0\0" + b"\0\1"
_BUNDLE_CONSTANTS = BUNDLE_ID.to_bytes(4, "big") + bytes(2) + BUNDLE_FLAGS.to_bytes(2, "big")
_KEY = Struct("!BH")
_DIGEST = Struct("!HHH")
_TIMEOUTS = Struct("!HH")
_GROUP = Struct("!BBHIIxxHBBHIHBxIHxxI")
BUCKET = Struct("!HHI")
WEIGHT = Struct("!HHHxx")
SELECTION = Struct("!HHIIxxxx16sQ")
_PADDING = tuple(bytes(-size % 8) for size in range(8))
_OUTER, _BARE_FLOW, _BARE_GROUP = 16, 48, 24  # bytes: of the bundle's head, of messages without their lists


class EncodeError(ValueError):
    """A unit that cannot be written, and why."""

    def __init__(self, unit: UnitKey, reason: str) -> None:
        super().__init__(f"{unit}: {reason}")
        self.unit = unit
        self.reason = reason


class EncodedFlow(msgspec.Struct, frozen=True, gc=False):
    """`key`: table, priority and match in normal form. `message`: a whole bundle-add of an ADD."""

    key: bytes
    cookie: int
    xid: int
    message: bytes

    @property
    def timeouts(self) -> tuple[int, int]:
        """Idle and hard, in seconds."""
        idle, hard = _TIMEOUTS.unpack_from(self.message, _OUTER + 26)
        return idle, hard

    @property
    def instructions(self) -> bytes:
        return self.message[_FLOW.size + (len(self.key) + 1 + 7) // 8 * 8 - 4 :]


class EncodedGroup(msgspec.Struct, frozen=True, gc=False):
    """`content`: type, buckets and properties as a switch reads them back. `message`: a whole bundle-add."""

    id: int
    xid: int
    message: bytes
    content: bytes


class EncodedUnit(msgspec.Struct, frozen=True):
    key: UnitKey
    flows: dict[bytes, EncodedFlow]
    groups: dict[int, EncodedGroup]
    allowed: frozenset[Tuple]


class Xids:
    """Gives transaction ids to units, and leads back from them. Ids up to LAST_CONNECTION_XID belong to connections."""

    def __init__(self, first: int = FIRST_XID, last: int = LAST_XID) -> None:
        self._first, self._last = first, last
        self._next = first
        self._owners: dict[int, UnitKey] = {}
        self._released: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._owners) - len(self._released)

    def take(self, owner: UnitKey) -> int:
        """A free id. Raises OverflowError when all are taken."""
        for _ in range(len(self._owners) + 1):
            xid = self._next
            self._next = xid + 1 if xid < self._last else self._first
            if xid not in self._owners:
                break
        else:
            if not self._released:
                raise OverflowError("no transaction id is free")
            xid = self._released.popleft()
        self._owners[xid] = owner
        return xid

    def owner(self, xid: int) -> UnitKey | None:
        return self._owners.get(xid)

    def release(self, xids: Iterable[int]) -> None:
        """They are given to others later; for a while they still lead to their unit."""
        for xid in xids:
            self._released.append(xid)
        while len(self._released) > REMEMBERED:
            del self._owners[self._released.popleft()]


class _Keyed(Protocol):
    @property
    def key(self) -> bytes: ...
    @property
    def cookie(self) -> int: ...


def delete_flow(flow: _Keyed) -> bytes:
    """A bundle-add of the strict deletion of this flow with this cookie (an EncodedFlow or a row read back)."""
    return _flow_mod(getattr(flow, "xid", DELETE_XID), DELETE_STRICT, flow.cookie, flow.key, 0, 0, b"")


def delete_own_flows() -> bytes:
    """A bundle-add of the deletion of every flow with our mark, in all tables, those that the switch learned too."""
    key = _KEY.pack(EVERY_TABLE, 0) + match_fields(())
    return _flow_mod(DELETE_XID, DELETE, ids.OWN_COOKIE, key, 0, 0, b"", ids.OWN_COOKIE_MASK)


def delete_group(number: int) -> bytes:
    """A bundle-add. Open vSwitch deletes the flows that use the group as well."""
    return _group_mod(DELETE_XID, DELETE_GROUP, 0, number, b"", b"")


def encode_flow(flow: Flow, owner_cookie: int, xid: int) -> EncodedFlow:
    """`owner_cookie`: the cookie all but its digest. Raises ValueError, OverflowError or struct.error."""
    key = _KEY.pack(flow.table, flow.priority) + match_fields(flow.match)
    actions = instructions(flow.actions)
    idle, hard = flow.idle_timeout, flow.hard_timeout
    digest = blake2b(b"".join((_DIGEST.pack(len(key), idle, hard), key, actions)), digest_size=4).digest()
    cookie = owner_cookie | int.from_bytes(digest, "big")
    return EncodedFlow(key, cookie, xid, _flow_mod(xid, ADD, cookie, key, idle, hard, actions))


def prolonged(key: bytes, priority: int, cookie: int, idle: int, actions: tuple[Action, ...]) -> bytes:
    """A bundle-add of a flow that was learned, with another priority; its end will be told. Raises as `encode_flow`."""
    key = _KEY.pack(key[0], priority) + key[_KEY.size :]
    return _flow_mod(PROLONG_XID, ADD, cookie, key, idle, 0, instructions(actions), constants=_TELL_REMOVAL)


def _flow_mod(
    xid: int,
    command: int,
    cookie: int,
    key: bytes,
    idle: int,
    hard: int,
    actions: bytes,
    bits: int = EXACTLY,
    constants: bytes = _FLOW_CONSTANTS,
) -> bytes:
    """`bits`: those of the cookie that a deletion compares."""
    size = 1 + len(key)  # the match with its header of 4 bytes, without table and priority
    padding = _PADDING[size & 7]
    length = _BARE_FLOW + size + len(padding) + len(actions)
    if length + _OUTER > LONGEST:
        raise ValueError(f"a flow of {length} bytes does not fit in an OpenFlow message")
    mask = 0 if command == ADD else bits
    table, priority = _KEY.unpack_from(key)
    head = _FLOW.pack(
        VERSION, BUNDLE_ADD, length + _OUTER, xid, _BUNDLE_CONSTANTS,
        VERSION, FLOW_MOD, length, xid,
        cookie, mask, table, command, idle, hard, priority, constants, size,
    )  # fmt: skip
    return b"".join((head, key[_KEY.size :], padding, actions))


def encode_group(group: Group, xid: int) -> EncodedGroup:
    """Raises ValueError, OverflowError or struct.error."""
    buckets = b"".join([_bucket(bucket) for bucket in group.buckets])
    properties = _selection(group)
    message = _group_mod(xid, ADD_OR_MODIFY, SELECT, group.id, buckets, properties)
    return EncodedGroup(group.id, xid, message, bytes((SELECT,)) + buckets + properties)


def _group_mod(xid: int, command: int, kind: int, number: int, buckets: bytes, properties: bytes) -> bytes:
    length = _BARE_GROUP + len(buckets) + len(properties)
    if length + _OUTER > LONGEST:
        raise ValueError(f"a group of {length} bytes does not fit in an OpenFlow message")
    return (
        _GROUP.pack(
            VERSION, BUNDLE_ADD, length + _OUTER, xid, BUNDLE_ID, BUNDLE_FLAGS,
            VERSION, GROUP_MOD, length, xid, command, kind, number, len(buckets), EVERY_BUCKET,
        )
        + buckets
        + properties
    )  # fmt: skip


def _bucket(bucket: Bucket) -> bytes:
    actions = b"".join([action_bytes(action) for action in bucket.actions])
    weight = WEIGHT.pack(0, WEIGHT.size, bucket.weight)
    return BUCKET.pack(BUCKET.size + len(actions) + len(weight), len(actions), bucket.id) + actions + weight


def _selection(group: Group) -> bytes:
    """The selection method as Open vSwitch's own group property; hash fields are whole fields."""
    fields = b"".join(
        [
            oxm.header.to_bytes(4, "big") + b"\xff" * oxm.size
            for oxm in sorted((WIRE[field] for field in group.hash_fields), key=lambda oxm: oxm.order)
        ]
    )
    method = b"hash" if group.hash_fields else b"dp_hash"
    size = SELECTION.size + len(fields)
    return SELECTION.pack(0xFFFF, size, 0x154D, 1, method, 0) + fields + _PADDING[size & 7]


def encode_unit(key: UnitKey, feature: int, unit: Unit, previous: EncodedUnit | None, xids: Xids) -> EncodedUnit:
    """The unit's bytes; flows and groups that did not change are those of `previous`, the others' xids are released.

    Raises EncodeError and nothing else; then `previous` stays in force and no xid is kept.
    """
    before: dict[bytes, EncodedFlow] = previous.flows if previous else {}
    before_groups: dict[int, EncodedGroup] = previous.groups if previous else {}
    flows: dict[bytes, EncodedFlow] = {}
    groups: dict[int, EncodedGroup] = {}
    taken: list[int] = []
    spare = 0  # an xid that was taken and not used yet
    thing: Flow | Group | None = None
    try:
        owner_cookie = ids.cookie(feature, key.key, 0)
        for thing in unit.flows:
            if not spare:
                spare = xids.take(key)
                taken.append(spare)
            flow = encode_flow(thing, owner_cookie, spare)
            if flow.key in flows:
                raise ValueError("another flow of the unit has the same table, priority and match")
            old = before.get(flow.key) if before else None
            if old is not None and _same(old, flow):
                flows[flow.key] = old
            else:
                flows[flow.key] = flow
                spare = 0
        for thing in unit.groups:
            if thing.id in groups:
                raise ValueError("another group of the unit has the same id")
            if not spare:
                spare = xids.take(key)
                taken.append(spare)
            group = encode_group(thing, spare)
            old_group = before_groups.get(thing.id)
            if old_group is not None and old_group.content == group.content:
                groups[thing.id] = old_group
            else:
                groups[thing.id] = group
                spare = 0
    except Exception as error:
        xids.release(taken)
        raise EncodeError(key, _reason(error, thing)) from error
    if spare:
        xids.release((spare,))
    if before or before_groups:
        xids.release([old.xid for number, old in before.items() if flows.get(number) is not old])
        xids.release([old.xid for number, old in before_groups.items() if groups.get(number) is not old])
    return EncodedUnit(key, flows, groups, unit.allowed)


def _same(one: EncodedFlow, two: EncodedFlow) -> bool:
    """All but their xids, which are the second words of both headers."""
    return one.cookie == two.cookie and one.message[24:] == two.message[24:]


def release_unit(unit: EncodedUnit, xids: Xids) -> None:
    """The unit is gone: its transaction ids may be given to others later."""
    xids.release(flow.xid for flow in unit.flows.values())
    xids.release(group.xid for group in unit.groups.values())


def _reason(error: Exception, thing: Flow | Group | None) -> str:
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    if isinstance(thing, Flow):
        return f"{text} (in a flow of table {thing.table}, priority {thing.priority})"
    return text if thing is None else f"{text} (in group {thing.id})"
