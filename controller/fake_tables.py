"""The tables of a fake switch: what it does with flow, group and meter mods, and what it refuses.

Written from the OpenFlow 1.5.1 specification and from what Open vSwitch 3.1 was seen to do, and on purpose
without this package's own codec, so that each can be tested against the other.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

FLOW_MOD, GROUP_MOD = 14, 15
BAD_ACTION, GROUP_MOD_FAILED = 2, 6
BAD_OUT_GROUP, UNKNOWN_GROUP, GROUP_EXISTS = 9, 8, 0
ANY = 0xFFFFFFFF


class Failure(Exception):
    """An OpenFlow error: type and code."""

    def __init__(self, kind: int, code: int) -> None:
        super().__init__(f"error type {kind} code {code}")
        self.kind, self.code = kind, code


class FlowId(NamedTuple):
    table: int
    priority: int
    match: bytes  # without padding


class FakeFlow(NamedTuple):
    cookie: int
    idle_timeout: int
    hard_timeout: int
    flags: int
    importance: int
    instructions: bytes

    def groups(self) -> Iterator[int]:
        """Ids of the groups that the flow's actions name."""
        for action, argument in self._actions():
            if action == 22:
                yield int.from_bytes(argument[:4], "big")

    def learns(self) -> Iterator[tuple[int, int]]:
        """Table and cookie of what the flow learns and would take along when it goes (delete_learned)."""
        for action, argument in self._actions():
            if action == 0xFFFF and argument[:6] in (b"\0\0\x23\x20\0\x10", b"\0\0\x23\x20\0\x2d"):
                cookie, flags, table = struct.unpack_from("!QHB", argument, 12)
                if flags & 2:
                    yield table, cookie

    def _actions(self) -> Iterator[tuple[int, bytes]]:
        for kind, body in _elements(self.instructions):
            if kind in (3, 4):  # write-actions, apply-actions
                yield from _elements(body[4:])


class FakeGroup(NamedTuple):
    kind: int
    buckets: bytes
    properties: bytes


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        kind, length = struct.unpack_from("!HH", data, position)
        if length < 4:
            raise Failure(BAD_ACTION, 1)
        yield kind, data[position + 4 : position + length]
        position += length


class Tables:
    """Flows and groups. `refuse(message)` may name an error (type, code) for a flow or group mod at its arrival."""

    def __init__(self) -> None:
        self.flows: dict[FlowId, FakeFlow] = {}
        self.groups: dict[int, FakeGroup] = {}
        self.refuse: Callable[[bytes], tuple[int, int] | None] = lambda message: None
        self.refuse_at_commit: Callable[[bytes], tuple[int, int] | None] = lambda message: None

    def check(self, message: bytes) -> None:
        """What Open vSwitch finds when a message arrives. Raises Failure."""
        if message[1] not in (FLOW_MOD, GROUP_MOD):
            raise Failure(17, 10)  # unsupported in a bundle
        if refusal := self.refuse(message):
            raise Failure(*refusal)

    def apply(self, messages: list[bytes]) -> tuple[int, Failure] | None:
        """All or nothing; the index of the message that failed."""
        flows, groups = dict(self.flows), dict(self.groups)
        learning = self._learning()
        for index, message in enumerate(messages):
            try:
                if refusal := self.refuse_at_commit(message):
                    raise Failure(*refusal)
                if message[1] == FLOW_MOD:
                    self._flow_mod(message)
                else:
                    self._group_mod(message)
            except Failure as failure:
                self.flows, self.groups = flows, groups
                return index, failure
        if gone := learning - self._learning():
            self.flows = {key: flow for key, flow in self.flows.items() if (key.table, flow.cookie) not in gone}
        return None

    def _learning(self) -> set[tuple[int, int]]:
        return {learned for flow in self.flows.values() for learned in flow.learns()}

    def _flow_mod(self, message: bytes) -> None:
        (cookie, mask, table, command, idle, hard, priority, _buffer, _port, _group, flags, importance) = (
            struct.unpack_from("!QQBBHHHIIIHH", message, 8)
        )
        length = int.from_bytes(message[50:52], "big")
        match = message[48 : 48 + length]
        instructions = message[48 + (length + 7) // 8 * 8 :]
        key = FlowId(table, priority, match)
        if command == 0:
            flow = FakeFlow(cookie, idle, hard, flags, importance, instructions)
            if any(group not in self.groups for group in flow.groups()):
                raise Failure(BAD_ACTION, BAD_OUT_GROUP)
            self.flows[key] = flow
        elif command == 4:
            there = self.flows.get(key)
            if there is not None and (there.cookie ^ cookie) & mask == 0:
                del self.flows[key]
        elif command == 3 and length == 4:
            self.flows = {
                k: flow
                for k, flow in self.flows.items()
                if (flow.cookie ^ cookie) & mask or table not in (255, k.table)
            }
        else:
            raise Failure(5, 6)  # bad command: this fake knows ADD, DELETE without a match, and DELETE_STRICT

    def _group_mod(self, message: bytes) -> None:
        command, kind, number, array = struct.unpack_from("!HBxIH", message, 8)
        body = message[24:]
        group = FakeGroup(kind, body[:array], body[array:])
        if command == 0x8000 or (command == 0 and number not in self.groups):
            self.groups[number] = group
        elif command == 0:
            raise Failure(GROUP_MOD_FAILED, GROUP_EXISTS)
        elif command == 1:
            if number not in self.groups:
                raise Failure(GROUP_MOD_FAILED, UNKNOWN_GROUP)
            self.groups[number] = group
        elif command == 2:
            self.groups.pop(number, None)
            self.flows = {key: flow for key, flow in self.flows.items() if number not in flow.groups()}
        else:
            raise Failure(GROUP_MOD_FAILED, 5)  # bad command


def flow_desc(key: FlowId, flow: FakeFlow) -> bytes:
    """One entry of a flow-desc reply."""
    match = key.match + bytes(-len(key.match) % 8)
    stats = struct.pack("!HH4x", 0, 4)
    length = 24 + len(match) + len(stats) + len(flow.instructions)
    head = struct.pack(
        "!H2xBxHHHHHQ",
        length,
        key.table,
        key.priority,
        flow.idle_timeout,
        flow.hard_timeout,
        flow.flags,
        flow.importance,
        flow.cookie,
    )
    return head + match + stats + flow.instructions


def group_desc(number: int, group: FakeGroup) -> bytes:
    """One entry of a group-desc reply."""
    length = 16 + len(group.buckets) + len(group.properties)
    head = struct.pack("!HBxIH6x", length, group.kind, number, len(group.buckets))
    return head + group.buckets + group.properties
