"""Packets that somebody answers in another's place: reading what was sent, and building what is said about it.

Nothing here raises, whatever the frame (perhaps cut off, with its full length still in its headers). What must not
be answered is None: later fragments, source routes, whatever was sent to or by more than one station, and anything
that does not parse (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
"""

from struct import Struct
from typing import NamedTuple

ETHERNET = 14
IP4, IP6 = 0x0800, 0x86DD
ICMP, TCP, UDP, ICMP6, SCTP = 1, 6, 17, 58, 132
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, NO_NEXT, DESTINATION = 0, 43, 44, 51, 59, 60
_EXTENSIONS = frozenset((HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION, 135, 139, 140))  # IANA lists them
MOST_EXTENSIONS = 8
HOPS = 64

ABORT, SHUTDOWN_COMPLETE = 6, 14  # SCTP chunks that end an association (RFC 9260)
# Bytes of a packet that an error quotes: RFC 1812 allows 576 in all, RFC 4443 the least IPv6 MTU of 1280.
QUOTE4, QUOTE6 = 576 - 28, 1280 - 48
LEAST4 = 8  # of what follows the IPv4 header; less identifies no connection (RFC 792)

_IP4 = Struct("!BBHHHBBH4s4s")
_IP6 = Struct("!IHBB16s16s")
_HEAD = Struct("!BBHI")


class Sent(NamedTuple):
    """A packet: addresses as bytes, where its upper header begins, where the packet and our copy of it end."""

    frame: bytes
    source: bytes
    destination: bytes
    protocol: int
    upper: int
    end: int
    captured: int


def sent(frame: bytes) -> Sent | None:
    """The packet of a frame, when somebody may be told something about it."""
    if len(frame) < ETHERNET or frame[0] & 1 or frame[6] & 1 or not any(frame[6:12]):
        return None
    kind = frame[12] << 8 | frame[13]
    packet = _sent4(frame) if kind == IP4 else _sent6(frame) if kind == IP6 else None
    return None if packet is None or packet.source == packet.destination else packet


def _sent4(frame: bytes) -> Sent | None:
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
    return Sent(frame, source, destination, protocol, upper, ETHERNET + total, captured)


def _host4(ip: bytes) -> bool:
    """Whether an address can be one host's: not 0/8, 127/8, multicast, reserved or broadcast."""
    return 0 < ip[0] < 224 and ip[0] != 127


def _sent6(frame: bytes) -> Sent | None:
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
    return Sent(frame, source, destination, protocol, upper, ETHERNET + 40 + length, captured)


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


def may_be_told(packet: Sent, icmp_types: dict[int, tuple[int, ...]]) -> bool:
    """Whether an ICMP error may answer: enough of the packet is there, and it ends nothing by itself.

    `icmp_types`: by ICMP or ICMP6, the types about which an error may be sent.
    """
    held = packet.captured - packet.upper
    frame, upper = packet.frame, packet.upper
    if held < LEAST4:
        return False
    if packet.protocol == UDP:
        return frame[upper + 4] > 0 or frame[upper + 5] >= 8  # its own length
    if packet.protocol == SCTP:
        return held > 12 and frame[upper + 12] not in (ABORT, SHUTDOWN_COMPLETE)
    if packet.protocol in (ICMP, ICMP6):
        return frame[upper] in icmp_types[packet.protocol]
    return True


# --- answering ---------------------------------------------------------------------------------------------


def error(packet: Sent, source: bytes, kind: tuple[int, int], value: int = 0) -> bytes:
    """An ICMP error (type and code, and the 32 bits after the checksum), with as much of the packet as is allowed."""
    quote = QUOTE4 if len(source) == 4 else QUOTE6
    quoted = packet.frame[ETHERNET : min(packet.captured, ETHERNET + quote)]
    message = _HEAD.pack(*kind, 0, value) + quoted
    if len(source) == 4:
        return answer(packet, source, ICMP, message, 2, 0)
    return answer(packet, source, ICMP6, message, 2, pseudo(packet, source, ICMP6, len(message)))


def pseudo(packet: Sent, source: bytes, protocol: int, length: int) -> int:
    """What a checksum covers beside an answer: addresses, protocol, length (RFC 9293, RFC 8200)."""
    return int.from_bytes(packet.source) + int.from_bytes(source) + protocol + length


def answer(packet: Sent, source: bytes, protocol: int, message: bytes, at: int, covered: int) -> bytes:
    """The way back, from `source` to who sent the packet; the message's checksum is put in at its byte `at`."""
    padded = message if len(message) % 2 == 0 else message + b"\0"
    message = message[:at] + _checksum(int.from_bytes(padded) + covered) + message[at + 2 :]
    if len(source) == 16:
        head = _IP6.pack(6 << 28, len(message), protocol, HOPS, source, packet.source)
    else:
        fields = 0x45, 0, 20 + len(message), 0, 0x4000, HOPS, protocol
        head = _IP4.pack(*fields, 0, source, packet.source)
        head = head[:10] + header_checksum(head) + head[12:]
    frame = packet.frame
    return frame[6:12] + frame[:6] + frame[12:14] + head + message


def header_checksum(header: bytes | bytearray) -> bytes:
    """Of an IPv4 header, whatever checksum it has now."""
    return _checksum(int.from_bytes(header[:10] + b"\0\0" + header[12:]))


def _checksum(total: int) -> bytes:
    """The Internet checksum (RFC 1071) of 16-bit words that make up `total`, as one number or as several added.

    2**16 is 1 modulo 0xFFFF, so the ones' complement sum of the words is the remainder of the number itself.
    """
    return (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2)
