"""Who talks to whom, as connection tracking sees it in a packet, and how a translation is written into one."""

from typing import NamedTuple

from pipelines import fields as f
from pipelines.fields import Field
from pipelines.interpreter.packet import ICMP_ID, Packet, read, written

_FAMILIES = {0x0800: 4, 0x86DD: 6}
_QUERIES = {
    f.ICMP: {8: 0, 0: 8, 13: 14, 14: 13, 15: 16, 16: 15},  # echo, time stamps, information (RFC 792)
    f.ICMP6: {128: 129, 129: 128},  # echo (RFC 4443)
}
_ERRORS = {f.ICMP: (3, 4, 5, 11, 12), f.ICMP6: (1, 2, 3, 4)}
_TYPES = {f.ICMP: f.ICMP_TYPE, f.ICMP6: f.ICMP6_TYPE}
_PORTS: dict[int, tuple[Field, Field]] = {f.TCP: (f.TCP_SRC, f.TCP_DST), f.UDP: (f.UDP_SRC, f.UDP_DST)}


class Ends(NamedTuple):
    """One direction of a connection in one zone. Of echo messages identifier and type stand for the ports."""

    zone: int
    family: int
    protocol: int
    source: int
    destination: int
    source_port: int
    destination_port: int

    def reversed(self) -> "Ends":
        return Ends(
            self.zone, self.family, self.protocol,
            self.destination, self.source, self.destination_port, self.source_port,
        )  # fmt: skip

    @property
    def has_ports(self) -> bool:
        return self.protocol in _PORTS


class Seen(NamedTuple):
    """`related`: it is an error about a packet that went the other way, whose reverse `ends` is."""

    ends: Ends
    related: bool


def seen(bits: int, carried: Packet | None, zone: int) -> Seen | None:
    """None: nothing that can be tracked."""
    family = _FAMILIES.get(read(bits, f.ETH_TYPE))
    if family is None:
        return None
    protocol = read(bits, f.IP_PROTO)
    source, destination = read(bits, f.IP_SRC[family]), read(bits, f.IP_DST[family])
    ports = (0, 0)  # of all other protocols, SCTP among them, the addresses have to do
    if protocol in _PORTS:
        ports = read(bits, _PORTS[protocol][0]), read(bits, _PORTS[protocol][1])
    elif protocol in _TYPES:
        kind = read(bits, _TYPES[protocol])
        if kind in _ERRORS[protocol]:
            quoted = None if carried is None else seen(carried.bits, None, zone)
            return None if quoted is None or quoted.related else Seen(quoted.ends.reversed(), True)
        if kind not in _QUERIES[protocol]:
            return None
        number = read(bits, ICMP_ID) << 8
        ports = number | kind, number | _QUERIES[protocol][kind]
    return Seen(Ends(zone, family, protocol, source, destination, *ports), False)


def with_source(bits: int, ends: Ends) -> int:
    return written(bits, f.IP_SRC[ends.family], ends.source)


def with_destination(bits: int, ends: Ends) -> int:
    return written(bits, f.IP_DST[ends.family], ends.destination)


def with_ports(bits: int, ends: Ends) -> int:
    if not ends.has_ports:
        return bits
    source, destination = _PORTS[ends.protocol]
    return written(written(bits, source, ends.source_port), destination, ends.destination_port)
