"""What a switch says, as values: the rows that `readback` yields."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

REMOVED_IDLE = 0  # reason of FLOW_REMOVED: nobody used the flow for its time


class DecodeError(ValueError):
    """Bytes that are not what OpenFlow 1.5 says, or (for flows and groups) not what we write."""


class FlowRow(Struct, frozen=True, gc=False):
    """`key`: table, priority and match in normal form, as in EncodedFlow. `match`: conditions without header."""

    key: bytes
    cookie: int
    table: int
    priority: int
    match: bytes
    instructions: bytes
    idle_timeout: int = 0
    hard_timeout: int = 0


class GroupRow(Struct, frozen=True, gc=False):
    """`content` compares with EncodedGroup.content."""

    id: int
    content: bytes


class PortRow(NamedTuple):
    """`config` and `state`: OpenFlow's bits. `up`: neither taken down nor without a link.

    `device`: it is described as a network device, with a medium or a speed, which no tunnel has in Open vSwitch 3.1.
    """

    number: int
    name: str
    mac: int
    config: int
    state: int
    device: bool = False

    @property
    def up(self) -> bool:
        return not (self.config & 1 or self.state & 1)


class RoleRow(NamedTuple):
    """`role` as in OpenFlow: 1 equal, 2 master, 3 slave."""

    role: int
    generation: int

    @property
    def is_master(self) -> bool:
        return self.role == 2

    @property
    def is_secondary(self) -> bool:
        return self.role == 3


class MeterRow(NamedTuple):
    """A meter that drops above `packets` per second."""

    id: int
    packets: int
    burst: int


class PacketIn(NamedTuple):
    """`in_port` 0 when the switch did not say. `data`: the frame, perhaps cut.

    `metadata`: conditions that the frame's registers and connection met, by OXM class and field; those that are
    all zero are left out.
    """

    table: int
    cookie: int
    in_port: int
    reason: int
    data: bytes
    metadata: Mapping[tuple[int, int], int] = MappingProxyType({})


class FlowRemoved(NamedTuple):
    """A flow that asked for it is gone. `key` as in FlowRow, its match as the switch says it; times in seconds."""

    key: bytes
    priority: int
    cookie: int
    reason: int
    idle_timeout: int
    packets: int  # that used it

    @property
    def unused(self) -> bool:
        """For as long as its idle time, until now."""
        return self.reason == REMOVED_IDLE


class BundleReply(NamedTuple):
    """`control`: 1 opened, 3 closed, 5 committed, 7 discarded."""

    id: int
    control: int
