"""What runs on a host: a server that says who it is and whom it sees, and clients that ask; pings both ways."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from pipelines import fields as f
from pipelines.addresses import Ip
from pipelines.fields import Field
from pipelines.interpreter import ICMP_CODE, ICMP_ID, Packet
from tests.ovs import world
from tests.ovs.objects import PortOf

PORT_FIELDS: dict[int, tuple[Field, Field]] = {number: (f.L4_SRC[number], f.L4_DST[number]) for number in f.L4_SRC}
PROTOCOLS = {"tcp": f.TCP, "udp": f.UDP, "sctp": f.SCTP}
PORTS = {**world.PORTS, "sctp": PortOf("sctp", 80, 3868)}
QUESTION = "who?"
SYN, RST, PSH, ACK = 2, 4, 8, 16
LENGTH = 100  # bytes of every frame


class Said(NamedTuple):
    """An answer: the server's name, and as whom it saw the client."""

    name: str
    address: str
    port: int


class Question(Struct):
    """`answers` in the order in which they came. `hops`: what was left of the hop limit of each.

    `refused`: by whom, as the client sees it.
    """

    answers: list[Said]
    hops: list[int]
    refused: Ip | None = None


class Sockets:
    """Of one host called `name`. SCTP asks and answers as UDP does, without a handshake."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._serving = {(PROTOCOLS[port.protocol], port.target) for port in PORTS.values()}
        self._asked: dict[tuple[int, ...], Question] = {}  # by (protocol, own address, port, peer's address, port)

    def forget(self) -> None:
        self._asked.clear()

    def ask(self, protocol: str, source: Ip, port: int, to: Ip, to_port: int) -> tuple[Question, Packet]:
        """The first packet, and what will come of it."""
        number = PROTOCOLS[protocol]
        question = self._asked[number, source.value, port, to.value, to_port] = Question([], [])
        return question, _packet(number, source, port, to, to_port, SYN if number == f.TCP else 0, QUESTION)

    def ping(self, source: Ip, to: Ip, number: int) -> tuple[Question, Packet]:
        question = self._asked[_icmp(to.family), source.value, number, to.value, number] = Question([], [])
        ends = {f.IP_SRC[to.family]: source.value, f.IP_DST[to.family]: to.value}
        return question, Packet.of({**_echo(to.family, False, number), **ends}, LENGTH)

    def receive(self, packet: Packet) -> Iterator[Packet]:
        """A packet for this host; what it answers."""
        number, family = packet[f.IP_PROTO], packet.family
        source, to = Ip(family, packet[f.IP_SRC[family]]), Ip(family, packet[f.IP_DST[family]])
        if number in PORT_FIELDS:
            yield from self._ported(packet, number, source, to)
        elif packet.carried is not None:
            self._error(packet.carried, source)
        elif packet[f.ICMP_TYPE] == 8 or packet[f.ICMP6_TYPE] == 128:
            ends = {f.IP_SRC[family]: to.value, f.IP_DST[family]: source.value}
            yield Packet.of({**_echo(family, True, packet[ICMP_ID]), **ends}, LENGTH)
        else:
            question = self._asked.get((number, to.value, packet[ICMP_ID], source.value, packet[ICMP_ID]))
            if question is not None:
                question.hops.append(packet[f.IP_TTL])

    def _ported(self, packet: Packet, number: int, source: Ip, to: Ip) -> Iterator[Packet]:
        peer_port, port = (packet[field] for field in PORT_FIELDS[number])
        flags = packet[f.TCP_FLAGS]
        back = number, to, port, source, peer_port
        question = self._asked.get((number, to.value, port, source.value, peer_port))
        if question is not None:
            if flags & RST:
                question.refused = source
            elif packet.data:
                name, address, seen = packet.data.split()
                question.answers.append(Said(name, address, int(seen)))
                question.hops.append(packet[f.IP_TTL])
            elif flags & SYN:
                yield _packet(*back, ACK | PSH, QUESTION)
        elif (number, port) in self._serving:
            if flags == SYN:
                yield _packet(*back, SYN | ACK)
            elif packet.data == QUESTION:
                flags = ACK | PSH if number == f.TCP else 0
                yield _packet(*back, flags, f"{self._name} {source} {peer_port}")
        elif not flags & RST:
            yield refusal(packet)

    def _error(self, quoted: Packet, source: Ip) -> None:
        number, family = quoted[f.IP_PROTO], quoted.family
        if number in PORT_FIELDS:
            ports = [quoted[field] for field in PORT_FIELDS[number]]
            ends = (quoted[f.IP_SRC[family]], ports[0], quoted[f.IP_DST[family]], ports[1])
            question = self._asked.get((number, *ends))
            if question is not None:
                question.refused = source


def _icmp(family: int) -> int:
    return f.ICMP if family == 4 else f.ICMP6


def _echo(family: int, reply: bool, number: int) -> dict[Field, int]:
    kind = {f.ICMP_TYPE: 0 if reply else 8} if family == 4 else {f.ICMP6_TYPE: 128 + reply}
    return {f.ETH_TYPE: 0x0800 if family == 4 else 0x86DD, f.IP_PROTO: _icmp(family), ICMP_ID: number, **kind}


def _packet(number: int, source: Ip, port: int, to: Ip, to_port: int, flags: int = 0, data: str = "") -> Packet:
    fields = PORT_FIELDS[number]
    values = {f.ETH_TYPE: 0x0800 if to.family == 4 else 0x86DD, f.IP_PROTO: number}
    values |= {f.IP_SRC[to.family]: source.value, f.IP_DST[to.family]: to.value, fields[0]: port, fields[1]: to_port}
    if number == f.TCP:
        values[f.TCP_FLAGS] = flags
        data = data if flags & PSH else ""
    return Packet.of(values, LENGTH, data)


def refusal(packet: Packet) -> Packet:
    """A reset, or port unreachable, as from the address that was asked."""
    family, number = packet.family, packet[f.IP_PROTO]
    source, to = packet[f.IP_SRC[family]], packet[f.IP_DST[family]]
    if number == f.TCP:
        ports = [packet[field] for field in PORT_FIELDS[number]]
        return _packet(number, Ip(family, to), ports[1], Ip(family, source), ports[0], RST | ACK)
    kind = {f.ICMP_TYPE: 3, ICMP_CODE: 3} if family == 4 else {f.ICMP6_TYPE: 1, f.ICMP6_CODE: 4}
    values = {f.ETH_TYPE: packet[f.ETH_TYPE], f.IP_PROTO: _icmp(family), **kind}
    values |= {f.IP_SRC[family]: to, f.IP_DST[family]: source}
    return Packet.of(values, LENGTH, carried=packet)
