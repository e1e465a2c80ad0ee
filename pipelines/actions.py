"""What a flow does to a packet: frozen values, one class for each kind of action.

They know neither their text (`text`) nor their bytes (`controller.encode`); both ways are tested against
Open vSwitch's own. `goto` ends a list and becomes an instruction.
"""

from msgspec import Struct

from pipelines import fields
from pipelines.addresses import Ip
from pipelines.fields import Field, Part

LOCAL_PORT = 0xFFFFFFFE
LOCAL_IN_REGISTER = 0xFFFE  # Open vSwitch refuses the 32-bit number when it outputs to a register
IN_PORT_ACTION = 0xFFFFFFF8
CONTROLLER_PORT = 0xFFFFFFFD


class Output(Struct, frozen=True, gc=False):
    """To a port number, LOCAL_PORT or IN_PORT_ACTION."""

    port: int


class OutputPart(Struct, frozen=True, gc=False):
    """To the port whose number a part holds (32 bits)."""

    part: Part


class Controller(Struct, frozen=True, gc=False):
    """To the controller as a packet-in with at most `max_len` bytes."""

    max_len: int


class SetField(Struct, frozen=True, gc=False):
    """Write `value` into a field, or into a part of one."""

    field: Field | Part
    value: int


class Move(Struct, frozen=True, gc=False):
    """Copy one part or field into another of the same width."""

    source: Field | Part
    target: Field | Part


class Resubmit(Struct, frozen=True, gc=False):
    """Look the packet up in another table and come back."""

    table: int


class ToGroup(Struct, frozen=True, gc=False):
    group: int


class Meter(Struct, frozen=True, gc=False):
    meter: int


class DecTtl(Struct, frozen=True, gc=False):
    pass


class Nat(Struct, frozen=True, gc=False):
    """`side` "src" or "dst" with a new address; side "" undoes or repeats what the connection has."""

    side: str = ""
    ip: Ip | None = None
    port: int | None = None
    last_port: int | None = None


class CheckPktLarger(Struct, frozen=True, gc=False):
    """Sets a part of one bit when the frame, Ethernet header included, is longer than `length` bytes."""

    length: int
    target: Part


class Ct(Struct, frozen=True, gc=False):
    """Send through connection tracking, then (when `table` is given) on to that table."""

    zone: int
    table: int | None = None
    commit: bool = False
    nat: Nat | None = None
    exec: tuple["SetField | Move", ...] = ()


class LearnMatch(Struct, frozen=True, gc=False):
    """The learned flow matches `field`: by what the packet has in `source`, or by a number."""

    field: Field | Part
    source: Field | Part | int


class LearnLoad(Struct, frozen=True, gc=False):
    """The learned flow writes into `field` what the packet has in `source`, or a number."""

    field: Field | Part
    source: Field | Part | int


class Learn(Struct, frozen=True, gc=False):
    """Write a flow into `table` that is made of this packet, or renew it. Times in seconds, 0 for never.

    `limit`: no new one while the table has so many with `cookie` (0: no limit). `result`: a part of one bit, which
    becomes 1 when it was written or renewed, else 0. `delete_learned`: what was learned goes with the last flow
    that learns with this cookie into this table. Make `cookie` with `ids.learned_cookie`, one for each learning flow.
    `send_flow_rem`: the switch tells its master when a flow that was learned is removed.
    """

    table: int
    cookie: int
    specs: tuple[LearnMatch | LearnLoad, ...]
    priority: int = 32768
    idle_timeout: int = 0
    hard_timeout: int = 0
    limit: int = 0
    result: Part | None = None
    delete_learned: bool = False
    send_flow_rem: bool = False


class Goto(Struct, frozen=True, gc=False):
    table: int


Action = (
    Output
    | OutputPart
    | Controller
    | SetField
    | Move
    | Resubmit
    | ToGroup
    | Meter
    | DecTtl
    | CheckPktLarger
    | Ct
    | Learn
    | Goto
)


def load(field: Field | Part, value: int) -> SetField:
    """`load(ENTERED_BY, Entered.POD)`; refuses a value that does not fit."""
    if value < 0 or value >> field.bits:
        raise ValueError(f"{value:#x} does not fit in {field.name} ({field.bits} bits)")
    return SetField(field, int(value))


def given(ip: Ip, port: int) -> tuple[SetField, ...]:
    """Loads that choose an endpoint, which `fields.chosen` then matches."""
    if ip.family == 4:
        return (load(fields.ENDPOINT4, port << 32 | ip.value),)
    return load(fields.ENDPOINT_PORT, port), load(fields.ENDPOINT_IP6, ip.value)


def move(source: Field | Part, target: Field | Part) -> Move:
    if source.bits != target.bits:
        raise ValueError(f"{source.name} has {source.bits} bits, {target.name} {target.bits}")
    return Move(source, target)
