"""What a client is told whose packet no service takes: a TCP reset, or an ICMP error, as from the address it asked.

`refusal` turns the refused frame (perhaps cut off, with its full length still in its headers) into the answer.
It never raises and never answers what must not be answered: resets and aborts, ICMP errors and replies,
neighbour discovery, later fragments, whatever was sent to or by more than one station, and anything that does
not parse (RFC 1122 section 3.2.2, RFC 4443 section 2.4, RFC 9293 section 3.5.2). `Refuser` is the packet-in
handler around it.
"""

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from controller import encode
from controller.connection import ConnectionLost, TimedOut
from controller.readback import PacketIn
from pipelines.actions import Output

if TYPE_CHECKING:
    from controller.session import Session

ETHERNET = 14
IP4, IP6 = 0x0800, 0x86DD
ICMP, TCP, UDP, ICMP6, SCTP = 1, 6, 17, 58, 132
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, NO_NEXT, DESTINATION = 0, 43, 44, 51, 59, 60
_EXTENSIONS = frozenset((HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION, 135, 139, 140))  # IANA lists them
MOST_EXTENSIONS = 8
HOPS = 64

FIN, SYN, RST, ACK = 1, 2, 4, 16
ABORT, SHUTDOWN_COMPLETE = 6, 14  # SCTP chunks that end an association (RFC 9260)
# Questions. Every other ICMP message is an error, an answer, or none of ours.
_ICMP_REQUESTS = {ICMP: (8, 13, 15, 17), ICMP6: (128,)}
# Bytes of the refused packet that an error quotes: RFC 1812 allows 576 in all, RFC 4443 the least IPv6 MTU of 1280.
QUOTE4, QUOTE6 = 576 - 28, 1280 - 48
LEAST4 = 8  # of what follows the IPv4 header; less identifies no connection (RFC 792)

_IP4 = Struct("!BBHHHBBH4s4s")
_IP6 = Struct("!IHBB16s16s")
_TCP = Struct("!HHIIBBHHH")
_ICMP_HEAD = Struct("!BBHI")


class _Asked(NamedTuple):
    """The refused packet: addresses as bytes, where its upper header begins, where the packet and our copy end."""

    ethernet: bytes  # the answer's header
    source: bytes
    destination: bytes
    protocol: int
    upper: int
    end: int
    captured: int


def refusal(frame: bytes) -> bytes | None:
    """The frame that refuses this one, for the port it came by; None when nothing may be said."""
    if len(frame) < ETHERNET or frame[0] & 1 or frame[6] & 1 or not any(frame[6:12]):
        return None
    kind = frame[12] << 8 | frame[13]
    asked = _asked4(frame) if kind == IP4 else _asked6(frame) if kind == IP6 else None
    if asked is None or asked.source == asked.destination:
        return None
    if asked.protocol == TCP:
        return _reset(frame, asked)
    return _unreachable(frame, asked) if _may_be_told(frame, asked) else None


# --- reading -----------------------------------------------------------------------------------------------


def _ethernet(frame: bytes) -> bytes:
    return frame[6:12] + frame[:6] + frame[12:14]


def _asked4(frame: bytes) -> _Asked | None:
    if len(frame) < ETHERNET + 20:
        return None
    first, _, total, _, fragment, _, protocol, _, source, destination = _IP4.unpack_from(frame, ETHERNET)
    header = (first & 15) * 4
    upper = ETHERNET + header
    captured = min(len(frame), ETHERNET + total)
    if first >> 4 != 4 or header < 20 or captured < upper or fragment & 0x1FFF:
        return None
    if not (_host4(source) and _host4(destination)):
        return None
    return _Asked(_ethernet(frame), source, destination, protocol, upper, ETHERNET + total, captured)


def _host4(ip: bytes) -> bool:
    """Whether an address can be one host's: not 0/8, 127/8, multicast, reserved or broadcast."""
    return 0 < ip[0] < 224 and ip[0] != 127


def _asked6(frame: bytes) -> _Asked | None:
    if len(frame) < ETHERNET + 40:
        return None
    first, length, protocol, _, source, destination = _IP6.unpack_from(frame, ETHERNET)
    captured = min(len(frame), ETHERNET + 40 + length)
    if first >> 28 != 6 or not (_host6(source) and _host6(destination)):
        return None
    found = _upper6(frame, captured, protocol)
    if found is None:
        return None
    protocol, upper = found
    return _Asked(_ethernet(frame), source, destination, protocol, upper, ETHERNET + 40 + length, captured)


def _host6(ip: bytes) -> bool:
    """Not multicast, not ::, not ::1."""
    return ip[0] != 0xFF and (any(ip[:15]) or ip[15] > 1)


def _upper6(frame: bytes, captured: int, protocol: int) -> tuple[int, int] | None:
    """The upper protocol and where it begins; None for later fragments, source routes and endless headers."""
    at = ETHERNET + 40
    for _ in range(MOST_EXTENSIONS + 1):
        if protocol == FRAGMENT:
            if captured < at + 8 or (frame[at + 2] << 8 | frame[at + 3]) >> 3:
                return None
            protocol, at = frame[at], at + 8
        elif protocol in _EXTENSIONS:
            if captured < at + 8 or (protocol == ROUTING and frame[at + 3]):
                return None  # with segments left the packet is for somebody else
            size = (frame[at + 1] + 2) * 4 if protocol == AUTHENTICATION else (frame[at + 1] + 1) * 8
            protocol, at = frame[at], at + size
        else:
            return (protocol, at) if protocol != NO_NEXT and at <= captured else None
    return None


def _may_be_told(frame: bytes, asked: _Asked) -> bool:
    """Whether an ICMP error may answer: enough of the packet is there, and it asked for something."""
    held = asked.captured - asked.upper
    if held < LEAST4:
        return False
    if asked.protocol == UDP:
        return frame[asked.upper + 4] > 0 or frame[asked.upper + 5] >= 8  # its own length
    if asked.protocol == SCTP:
        return held > 12 and frame[asked.upper + 12] not in (ABORT, SHUTDOWN_COMPLETE)
    if asked.protocol in (ICMP, ICMP6):
        return frame[asked.upper] in _ICMP_REQUESTS[asked.protocol]
    return True


# --- answering ---------------------------------------------------------------------------------------------


def _reset(frame: bytes, asked: _Asked) -> bytes | None:
    if asked.captured < asked.upper + _TCP.size:
        return None
    source, destination, seq, ack, offset, flags, *_ = _TCP.unpack_from(frame, asked.upper)
    data = asked.end - asked.upper - (offset >> 4) * 4
    if flags & RST or offset >> 4 < 5 or data < 0:
        return None
    if flags & ACK:
        said = ack, 0, RST
    else:
        length = data + bool(flags & SYN) + bool(flags & FIN)
        said = 0, seq + length & 0xFFFFFFFF, RST | ACK
    segment = _TCP.pack(destination, source, said[0], said[1], 5 << 4, said[2], 0, 0, 0)
    return _packet(asked, TCP, segment, 16, _pseudo(asked, TCP, len(segment)))


def _unreachable(frame: bytes, asked: _Asked) -> bytes:
    """Port unreachable, with as much of the packet as is here and allowed."""
    if len(asked.source) == 4:
        quoted = frame[ETHERNET : min(asked.captured, ETHERNET + QUOTE4)]
        return _packet(asked, ICMP, _ICMP_HEAD.pack(3, 3, 0, 0) + quoted, 2, 0)
    quoted = frame[ETHERNET : min(asked.captured, ETHERNET + QUOTE6)]
    message = _ICMP_HEAD.pack(1, 4, 0, 0) + quoted
    return _packet(asked, ICMP6, message, 2, _pseudo(asked, ICMP6, len(message)))


def _pseudo(asked: _Asked, protocol: int, length: int) -> int:
    """What a checksum covers beside the message: addresses, protocol, length (RFC 9293, RFC 8200)."""
    return int.from_bytes(asked.source) + int.from_bytes(asked.destination) + protocol + length


def _packet(asked: _Asked, protocol: int, message: bytes, at: int, pseudo: int) -> bytes:
    """The way back: addresses exchanged, the message's checksum put in at byte `at`."""
    padded = message if len(message) % 2 == 0 else message + b"\0"
    message = message[:at] + _checksum(int.from_bytes(padded) + pseudo) + message[at + 2 :]
    if len(asked.source) == 16:
        head = _IP6.pack(6 << 28, len(message), protocol, HOPS, asked.destination, asked.source)
    else:
        fields = 0x45, 0, 20 + len(message), 0, 0x4000, HOPS, protocol
        head = _IP4.pack(*fields, 0, asked.destination, asked.source)
        head = head[:10] + _checksum(int.from_bytes(head)) + head[12:]
    return asked.ethernet + head + message


def _checksum(total: int) -> bytes:
    """The Internet checksum (RFC 1071) of 16-bit words that make up `total`, as one number or as several added.

    2**16 is 1 modulo 0xFFFF, so the ones' complement sum of the words is the remainder of the number itself.
    """
    return (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2)


# --- the handler -------------------------------------------------------------------------------------------


class Refuser:
    """Handles the packet-ins of refused packets. Counts what was answered and what could not be."""

    def __init__(self) -> None:
        self.refused = self.ignored = 0

    def __call__(self, session: "Session", packet: PacketIn) -> None:
        answer = refusal(packet.data)
        if answer is None or not packet.in_port:
            self.ignored += 1
            return
        connection = session.connection
        message = encode.packet_out(connection.next_xid(), answer, (Output(packet.in_port),))
        try:
            connection.send(message)
        except (ConnectionLost, TimedOut):
            self.ignored += 1  # the client asks again
        else:
            self.refused += 1
