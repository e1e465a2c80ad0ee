"""What a client is told whose packet no service takes: a TCP reset, or an ICMP error, as from the address it asked.

By tunnel comes what pods ask a node's own ports: the answer is routed, so that the switch finds its other end.

`refusal` turns the refused frame into the answer. It never answers what must not be answered: resets and aborts,
ICMP errors and replies, neighbour discovery, and what `icmp.sent` leaves out (RFC 9293 section 3.5.2). `Refuser`
is the packet-in handler around it.
"""

from struct import Struct
from typing import TYPE_CHECKING

from controller import encode
from controller.connection import ConnectionLost, TimedOut
from controller.icmp import ICMP, ICMP6, TCP, Sent, answer, error, may_be_told, pseudo, sent
from controller.readback import PacketIn
from pipelines.actions import Action, Output, load
from pipelines.fields import ENTERED_BY, Entered
from pipelines.tables import ROUTE, resubmit

if TYPE_CHECKING:
    from controller.session import Session

FIN, SYN, RST, ACK = 1, 2, 4, 16
PORT_UNREACHABLE = {4: (3, 3), 16: (1, 4)}  # by the length of an address
# Questions. Every other ICMP message is an error, an answer, or none of ours.
_ICMP_REQUESTS = {ICMP: (8, 13, 15, 17), ICMP6: (128,)}

_REGISTERS_0_1 = 0x8001, 0  # in the metadata of a packet-in
_BY_TUNNEL: tuple[Action, ...] = (load(ENTERED_BY, Entered.TUNNEL), resubmit(ROUTE))

_TCP = Struct("!HHIIBBHHH")


def refusal(frame: bytes) -> bytes | None:
    """The frame that refuses this one, for the port it came by; None when nothing may be said."""
    packet = sent(frame)
    if packet is None:
        return None
    if packet.protocol == TCP:
        return _reset(packet)
    if not may_be_told(packet, _ICMP_REQUESTS):
        return None
    return error(packet, packet.destination, PORT_UNREACHABLE[len(packet.destination)])


def _reset(packet: Sent) -> bytes | None:
    if packet.captured < packet.upper + _TCP.size:
        return None
    source, destination, seq, ack, offset, flags, *_ = _TCP.unpack_from(packet.frame, packet.upper)
    data = packet.end - packet.upper - (offset >> 4) * 4
    if flags & RST or offset >> 4 < 5 or data < 0:
        return None
    if flags & ACK:
        said = ack, 0, RST
    else:
        length = data + bool(flags & SYN) + bool(flags & FIN)
        said = 0, seq + length & 0xFFFFFFFF, RST | ACK
    segment = _TCP.pack(destination, source, said[0], said[1], 5 << 4, said[2], 0, 0, 0)
    return answer(packet, packet.destination, TCP, segment, 16, pseudo(packet, packet.destination, TCP, len(segment)))


def _way(packet: PacketIn) -> tuple[Action, ...]:
    """Back by the port that it came by; a port of tunnels needs to be told where to."""
    entered = packet.metadata.get(_REGISTERS_0_1, 0) >> (32 + ENTERED_BY.low) & (1 << ENTERED_BY.bits) - 1
    return _BY_TUNNEL if entered == Entered.TUNNEL else (Output(packet.in_port),)


class Refuser:
    """Handles the packet-ins of refused packets. Counts what was answered and what could not be."""

    def __init__(self) -> None:
        self.refused = self.ignored = 0

    def __call__(self, session: "Session", packet: PacketIn) -> None:
        reply = refusal(packet.data)
        if reply is None or not packet.in_port:
            self.ignored += 1
            return
        connection = session.connection
        message = encode.packet_out(connection.next_xid(), reply, _way(packet))
        try:
            connection.send(message)
        except (ConnectionLost, TimedOut):
            self.ignored += 1  # the client asks again
        else:
            self.refused += 1
