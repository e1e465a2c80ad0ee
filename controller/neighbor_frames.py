"""ARP and neighbour discovery as bytes: what we ask and announce, and what a frame says about who has an address.

`claim` reads a frame that may be anything, cut or crafted: what is not exactly a message that a station on the
link may send becomes None (RFC 826, RFC 5227; RFC 4861 sections 7.1.1 and 7.1.2).
"""

from struct import Struct
from typing import NamedTuple

from pipelines.addresses import Ip

BROADCAST = 0xFFFFFFFFFFFF
ETHERNET = 14
ARP_TYPE, IP6_TYPE = 0x0806, 0x86DD
ICMP6, SOLICITATION, ADVERTISEMENT = 58, 135, 136
ON_LINK_HOPS = 255  # a packet that has passed a router has fewer
SOLICITED, OVERRIDE = 1 << 30, 1 << 29
SOURCE_MAC, TARGET_MAC = 1, 2  # options that hold a link-layer address

_ETHERNET = Struct("!6s6sH")
_ARP = Struct("!HHBBH6sI6sI")
_ARP_HEAD = 1, 0x0800, 6, 4  # Ethernet and IPv4, and how long their addresses are
_REQUEST, _REPLY = 1, 2
_IP6 = Struct("!IHBB16s16s")
_ND = Struct("!BBHI16s")
_OPTION = Struct("!BB6s")
_ALL_NODES = 0xFF02 << 112 | 1
_SOLICITED_NODE = 0xFF02 << 112 | 0x1FF << 24  # and the last 24 bits of the address (RFC 4291)


class Claim(NamedTuple):
    """A station says that `ip` is at `mac`. An answer was asked for, and is for `to_ip` at `to_mac` alone."""

    ip: Ip
    mac: int
    answer: bool
    to_ip: Ip
    to_mac: int


# --- asking ------------------------------------------------------------------------------------------------


def question(source: Ip, source_mac: int, asked: Ip, known_mac: int | None = None) -> bytes:
    """The frame that asks who has an address; only the station with `known_mac` where that is given.

    Both addresses are of one family.
    """
    if asked.family == 4:
        return _arp_request(source, source_mac, asked, known_mac)
    return _solicitation(source, source_mac, asked, known_mac)


def probe(source_mac: int, asked: Ip) -> bytes:
    """The same by a station that has no address yet: whoever has this one objects (RFC 5227, RFC 4862)."""
    if asked.family == 4:
        return _arp_request(Ip(4, 0), source_mac, asked, None)
    group = _SOLICITED_NODE | asked.value & 0xFFFFFF
    return _nd(source_mac, 0, group, SOLICITATION, 0, asked)


def announcement(mac: int, ip: Ip) -> bytes:
    """The frame that tells a whole segment that `ip` is at `mac` now."""
    if ip.family == 4:
        return _arp_request(ip, mac, ip, None)
    return _nd(mac, ip.value, _ALL_NODES, ADVERTISEMENT, OVERRIDE, ip, TARGET_MAC)


def unasked_answer(mac: int, ip: Ip) -> bytes:
    """The same as an answer that nobody has asked for: what only listens to answers, as Open vSwitch 3.1, hears it."""
    if ip.family == 6:
        return announcement(mac, ip)
    head = _ETHERNET.pack(_mac(BROADCAST), _mac(mac), ARP_TYPE)
    return head + _ARP.pack(*_ARP_HEAD, _REPLY, _mac(mac), ip.value, _mac(mac), ip.value)


def _arp_request(source: Ip, source_mac: int, asked: Ip, known_mac: int | None) -> bytes:
    head = _ETHERNET.pack(_mac(BROADCAST if known_mac is None else known_mac), _mac(source_mac), ARP_TYPE)
    return head + _ARP.pack(*_ARP_HEAD, _REQUEST, _mac(source_mac), source.value, bytes(6), asked.value)


def _solicitation(source: Ip, source_mac: int, asked: Ip, known_mac: int | None) -> bytes:
    to_ip = asked.value if known_mac is not None else _SOLICITED_NODE | asked.value & 0xFFFFFF
    return _nd(source_mac, source.value, to_ip, SOLICITATION, 0, asked, SOURCE_MAC, known_mac)


def _nd(
    mac: int, source: int, to_ip: int, kind: int, flags: int, target: Ip, option: int = 0, to_mac: int | None = None
) -> bytes:
    """A message by `mac`, which the option (0: none) holds. `to_mac` None: that of the group `to_ip`."""
    if to_mac is None:
        to_mac = 0x3333 << 32 | to_ip & 0xFFFFFFFF
    addresses = _ip(source), _ip(to_ip)
    message = _ND.pack(kind, 0, 0, flags, _ip(target.value)) + (_OPTION.pack(option, 1, _mac(mac)) if option else b"")
    total = _checksum(b"".join((*addresses, len(message).to_bytes(4), ICMP6.to_bytes(4), message)))
    message = message[:2] + total.to_bytes(2) + message[4:]
    head = _ETHERNET.pack(_mac(to_mac), _mac(mac), IP6_TYPE)
    return head + _IP6.pack(6 << 28, len(message), ICMP6, ON_LINK_HOPS, *addresses) + message


# --- reading -----------------------------------------------------------------------------------------------


def claim(frame: bytes) -> Claim | None:
    """What a frame says about its sender, or about the target of an advertisement."""
    if len(frame) < ETHERNET:
        return None
    to_mac, sender, kind = _ETHERNET.unpack_from(frame)
    if kind == ARP_TYPE:
        return _arp_claim(frame, to_mac)
    return _advertised(frame, to_mac, sender) if kind == IP6_TYPE else None


def probed(frame: bytes) -> Ip | None:
    """The address that a station without one asks about by neighbour discovery (RFC 4862 section 5.4.3)."""
    start = ETHERNET + _IP6.size
    if len(frame) < start + _ND.size or frame[12:14] != IP6_TYPE.to_bytes(2):
        return None
    _, length, protocol, hops, source, _ = _IP6.unpack_from(frame, ETHERNET)
    kind, code, _, _, target = _ND.unpack_from(frame, start)
    end = start + length
    if protocol != ICMP6 or hops != ON_LINK_HOPS or any(source) or kind != SOLICITATION or code or end > len(frame):
        return None
    if not _sums_up(frame[ETHERNET + 8 : start], frame[start:end]):
        return None
    return Ip(6, int.from_bytes(target))


def _arp_claim(frame: bytes, to_mac: bytes) -> Claim | None:
    """What the message says counts, not who sent the frame: some clusters of routers answer for a shared MAC."""
    if len(frame) < ETHERNET + _ARP.size:
        return None
    *head, operation, mac, ip, asker_mac, asker = _ARP.unpack_from(frame, ETHERNET)
    if tuple(head) != _ARP_HEAD or operation not in (_REQUEST, _REPLY) or not ip:
        return None
    answer = operation == _REPLY and asker_mac == to_mac and asker != ip
    return Claim(Ip(4, ip), int.from_bytes(mac), answer, Ip(4, asker), int.from_bytes(to_mac))


def _advertised(frame: bytes, to_mac: bytes, sender: bytes) -> Claim | None:
    """Who was asked by unicast may leave the MAC out of the answer: then it is the frame's."""
    start = ETHERNET + _IP6.size
    if len(frame) < start + _ND.size:
        return None
    first, length, protocol, hops, _, destination = _IP6.unpack_from(frame, ETHERNET)
    end = start + length
    if first >> 28 != 6 or protocol != ICMP6 or hops != ON_LINK_HOPS or length < _ND.size or end > len(frame):
        return None
    kind, code, _, flags, target = _ND.unpack_from(frame, start)
    if kind != ADVERTISEMENT or code or target[0] == 0xFF or not any(target):
        return None
    mac = _option(frame[start + _ND.size : end], sender)
    if mac is None or not _sums_up(frame[ETHERNET + 8 : start], frame[start:end]):
        return None
    answer = bool(flags & SOLICITED) and destination[0] != 0xFF
    to_ip = Ip(6, int.from_bytes(destination))
    return Claim(Ip(6, int.from_bytes(target)), int.from_bytes(mac), answer, to_ip, int.from_bytes(to_mac))


def _option(options: bytes, absent: bytes) -> bytes | None:
    """The target's MAC. An option of length 0 makes the whole message void (RFC 4861 section 4.6)."""
    position, found = 0, absent
    while position < len(options):
        if len(options) - position < 8 or not options[position + 1]:
            return None
        size = options[position + 1] * 8
        if options[position] == TARGET_MAC and size == 8:
            found = options[position + 2 : position + 8]
        position += size
    return found if position == len(options) else None


def _sums_up(addresses: bytes, message: bytes) -> bool:
    return _checksum(b"".join((addresses, len(message).to_bytes(4), ICMP6.to_bytes(4), message))) == 0


def _checksum(data: bytes) -> int:
    """RFC 1071 over an even number of bytes: 2**16 is 1 modulo 0xFFFF. 0 for data that holds its own right sum."""
    return 0xFFFF - (int.from_bytes(data) % 0xFFFF or 0xFFFF)


def _mac(value: int) -> bytes:
    return value.to_bytes(6)


def _ip(value: int) -> bytes:
    return value.to_bytes(16)
