"""Connection tracking and NAT as the userspace datapath of Open vSwitch 3.1 does them.

What is not followed: TCP sequence numbers (every segment is in its window), time-outs (who wants a connection
forgotten says `forget`), and where in a range the search for a free port begins, which is another hash there.
Fragments are for the switch: Open vSwitch tracks a datagram when all of it is there.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from pipelines import fields as f
from pipelines.actions import Ct, Move, Nat
from pipelines.interpreter.ends import Ends, Seen, seen, with_destination, with_ports, with_source
from pipelines.interpreter.packet import CT_ZONE, Packet, place, read, written

NEW, EST, REL, RPL, INV, TRK, SNAT, DNAT = (f.CT_STATE_BITS[word] for word in f.CT_STATE_BITS)
FIN, SYN, RST, PSH, ACK, URG = (1 << bit for bit in range(6))
LEAST_FREE_PORT, LAST_PORT = 1024, 65535

# States of one end of a TCP connection, in their order; of everything else: nothing but whether it was heard.
CLOSED, SYN_SENT, ESTABLISHED, CLOSING, FIN_WAIT_2, TIME_WAIT = range(6)


class Connection(Struct, frozen=True, gc=False):
    """`nat`: which side of requests is translated, "src", "dst" or "". `states`: of the client's and server's end."""

    original: Ends
    reply: Ends
    nat: str
    states: tuple[int, int]
    mark: int = 0
    label: int = 0


class Update(Enum):
    VALID = "valid"
    VALID_NEW = "still new"
    INVALID = "invalid"
    RENEWED = "another connection of the same ends"


class Tracked(NamedTuple):
    """A packet after a ct action. `original`: of its connection, None when it has none."""

    bits: int
    carried: Packet | None
    original: Ends | None


def first_try(original: Ends, first: int, last: int) -> int:
    return first + hash(original) % (last - first + 1)


class Connections:
    """What a switch remembers. A copy is an own memory that begins with the same connections."""

    def __init__(self) -> None:
        self.first_try = first_try  # where the search for a free port of a range begins
        self._known: dict[Ends, tuple[Ends, bool]] = {}  # both directions: (original, whether it is the reply)
        self._connections: dict[Ends, Connection] = {}  # by their original direction

    def copy(self) -> "Connections":
        other = Connections()
        other.first_try = self.first_try
        other._known, other._connections = dict(self._known), dict(self._connections)
        return other

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections.values())

    def __len__(self) -> int:
        return len(self._connections)

    def forget(self, connection: Connection) -> None:
        del self._connections[connection.original]
        for ends in (connection.original, connection.reply):
            self._known.pop(ends, None)

    def track(self, bits: int, carried: Packet | None, ct: Ct, before: Ends | None = None) -> Tracked:
        """The packet after a ct action. `before`: what it was found to be by the last one."""
        found = seen(bits, carried, ct.zone)
        if found is None:
            return self._told(bits, carried, INV, ct.zone, None)
        state = read(bits, f.CT_STATE) & (SNAT | DNAT)  # nothing else is left from another zone
        original, reply = self._known.get(found.ends, (None, False))
        if original is None and ct.nat is None and state & (SNAT | DNAT):
            original = before if before in self._connections else None  # it looks otherwise since it was translated
        connection = None if original is None else self._connections[original]
        if connection is not None:
            state, connection = self._next(state, connection, bits, found, reply)
        elif found.related:
            return self._told(bits, carried, INV, ct.zone, None)
        else:
            state = NEW if _may_begin(bits, found.ends) else INV
        if connection is not None:
            if ct.nat is not None and connection.nat and (not state & (SNAT | DNAT) or read(bits, CT_ZONE) != ct.zone):
                state &= ~(SNAT | DNAT)
                bits, carried = _translated(bits, carried, connection, reply, found.related)
                state |= _turned(connection.nat, reply)
        elif state == NEW and ct.commit:
            connection = self._begin(found.ends, ct.nat)
            if connection is not None and connection.nat:
                bits, carried = _translated(bits, carried, connection, False, False)
                state |= _turned(connection.nat, False)
        if connection is not None and ct.exec:
            connection = _remembering(connection, bits, ct)
            self._connections[connection.original] = connection
        return self._told(bits, carried, state, ct.zone, connection)

    def _told(self, bits: int, carried: Packet | None, state: int, zone: int, connection: Connection | None) -> Tracked:
        bits = written(written(bits, f.CT_STATE, state | TRK), CT_ZONE, zone)
        mark, label = (connection.mark, connection.label) if connection else (0, 0)
        bits = written(written(bits, f.CT_MARK, mark), f.CT_LABEL, label)
        return Tracked(bits, carried, connection.original if connection else None)

    def _next(
        self, state: int, connection: Connection, bits: int, found: Seen, reply: bool
    ) -> tuple[int, Connection | None]:
        if found.related:
            return state | REL | (RPL if reply else 0), connection
        update, states = _updated(connection, bits, reply)
        if update is Update.RENEWED:
            self.forget(connection)
            return NEW, None
        connection = msgspec.structs.replace(connection, states=states)
        self._connections[connection.original] = connection
        if update is Update.INVALID:
            return INV, connection
        if update is Update.VALID_NEW:
            return state | NEW, connection
        return (state | EST | (RPL if reply else 0)) & ~NEW, connection

    def _begin(self, original: Ends, nat: Nat | None) -> Connection | None:
        """None: no free port was found, and the packet goes on as it is."""
        side = "" if nat is None else nat.side
        reply: Ends | None = original.reversed()
        if nat is not None and side:
            reply = self._free(original, nat)
        if reply is None:
            return None
        connection = Connection(original, reply, side, (SYN_SENT, CLOSED))
        self._connections[original] = connection
        self._known[original] = original, False
        self._known.setdefault(reply, (original, True))
        return connection

    def _free(self, original: Ends, nat: Nat) -> Ends | None:
        """The reply direction of a new translated connection, such that no other one has it."""
        assert nat.ip is not None
        address = nat.ip.value
        wanted = original.reversed()
        if nat.side == "src":
            wanted = wanted._replace(destination=address or original.source)
        else:
            wanted = wanted._replace(source=address or original.destination)
        if not original.has_ports:
            return None if wanted in self._known else wanted
        if nat.side == "dst" and nat.port is not None:
            wanted = wanted._replace(source_port=nat.port)
        first, last, begin = LEAST_FREE_PORT, LAST_PORT, original.source_port
        if nat.side == "src" and nat.port is not None:
            first, last = nat.port, nat.last_port or nat.port
            begin = self.first_try(original, first, last)
        elif begin < first:
            first, last = (1, 511) if begin < 512 else (600, 1023)
        for step in range(last - first + 1):
            wanted = wanted._replace(destination_port=first + (begin - first + step) % (last - first + 1))
            if wanted not in self._known:
                return wanted
        return None


def _turned(nat: str, reply: bool) -> int:
    return SNAT if (nat == "src") is not reply else DNAT


def _translated(
    bits: int, carried: Packet | None, connection: Connection, reply: bool, related: bool
) -> tuple[int, Packet | None]:
    """An error is translated with what it quotes, which went the other way."""
    ends = connection.original.reversed() if reply else connection.reply.reversed()
    source = (connection.nat == "src") is not reply
    bits = with_source(bits, ends) if source else with_destination(bits, ends)
    if not related:
        return with_ports(bits, ends), carried
    if carried is not None:
        inner = (
            with_destination(carried.bits, ends.reversed()) if source else with_source(carried.bits, ends.reversed())
        )
        carried = msgspec.structs.replace(carried, bits=with_ports(inner, ends.reversed()))
    return bits, carried


def _remembering(connection: Connection, bits: int, ct: Ct) -> Connection:
    """With ct_mark and ct_label as the action's inner list writes them."""
    kept = written(written(bits, f.CT_MARK, connection.mark), f.CT_LABEL, connection.label)
    for action in ct.exec:
        if isinstance(action, Move):
            kept = written(kept, action.target, read(bits, action.source))
        else:
            kept = written(kept, action.field, action.value)
    assert (kept ^ bits) & ~(place(f.CT_MARK).mask | place(f.CT_LABEL).mask) == 0
    return msgspec.structs.replace(connection, mark=read(kept, f.CT_MARK), label=read(kept, f.CT_LABEL))


# --- protocols ---------------------------------------------------------------------------------------------


def _may_begin(bits: int, ends: Ends) -> bool:
    if ends.protocol == f.TCP:
        flags = read(bits, f.TCP_FLAGS)
        return not _impossible(flags) and flags & (SYN | ACK) != SYN | ACK
    if ends.protocol in (f.ICMP, f.ICMP6):
        return ends.source_port & 0xFF in (8, 13, 15, 128)
    return True


def _impossible(flags: int) -> bool:
    if flags & SYN and flags & (RST | FIN):
        return True
    return not flags & (SYN | ACK | RST) or (not flags & ACK and bool(flags & (FIN | PSH | URG)))


def _updated(connection: Connection, bits: int, reply: bool) -> tuple[Update, tuple[int, int]]:
    if connection.original.protocol == f.TCP:
        return _tcp_updated(connection.states, read(bits, f.TCP_FLAGS), reply)
    if connection.original.protocol in (f.ICMP, f.ICMP6):
        states = (ESTABLISHED, ESTABLISHED) if reply else connection.states
        return (Update.VALID if states[1] else Update.VALID_NEW), states
    mine, other = connection.states
    if reply and not other:
        return Update.VALID, (ESTABLISHED, ESTABLISHED)
    if mine == SYN_SENT:  # a second packet; the third one counts as established, answered or not
        return Update.VALID_NEW, (ESTABLISHED, other)
    return Update.VALID, connection.states


def _tcp_updated(states: tuple[int, int], flags: int, reply: bool) -> tuple[Update, tuple[int, int]]:
    source, other = states[::-1] if reply else states
    if _impossible(flags):
        return Update.INVALID, states
    if flags & (SYN | ACK) == SYN:
        if source >= FIN_WAIT_2 and other >= FIN_WAIT_2:
            return Update.RENEWED, states
        if source <= SYN_SENT:
            source = SYN_SENT
            return Update.VALID_NEW, (other, source) if reply else (source, other)
    source = max(source, SYN_SENT)
    if flags & FIN:
        source = max(source, CLOSING)
    if flags & ACK and other == SYN_SENT:
        other = ESTABLISHED
    elif flags & ACK and other == CLOSING:
        other = FIN_WAIT_2
    if flags & RST:
        source = other = TIME_WAIT
    return Update.VALID, (other, source) if reply else (source, other)
