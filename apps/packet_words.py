"""A packet as a person writes it: `tcp,10.10.1.10:40000→10.96.0.80:80`, `icmp,fd00:10:1::10→fd00:10:2::10`."""

from typing import NamedTuple

from pipelines import fields as f
from pipelines.addresses import Ip, parse_ip
from pipelines.fields import Field
from pipelines.interpreter import ICMP_CODE, ICMP_ID, Packet

ARROWS = ("→", "->", ">")
FORM = "PROTOCOL,SOURCE[:PORT]→DESTINATION[:PORT]"
PORTED = {"tcp": f.TCP, "udp": f.UDP, "sctp": f.SCTP}
FIRST_PORT = 40000  # of a client that does not say
SYN, SYN_ACK = 0x02, 0x12


class End(NamedTuple):
    ip: Ip
    port: int | None


def parse(text: str) -> Packet:
    """The first packet of a connection, or an echo request, without Ethernet; raises ValueError that says why."""
    word, comma, ends = text.replace(" ", "").partition(",")
    arrow = next((sign for sign in ARROWS if sign in ends), None)
    if not comma or arrow is None:
        raise ValueError(f"{text!r} is not of the form {FORM}")
    source, destination = map(_end, ends.split(arrow, 1))
    if source.ip.family != destination.ip.family:
        raise ValueError(f"{source.ip} and {destination.ip} are of two families")
    family = source.ip.family
    head = {f.ETH_TYPE: f.ETH[family].value, f.IP_TTL: 64}
    head |= {f.IP_SRC[family]: source.ip.value, f.IP_DST[family]: destination.ip.value}
    return Packet.of(head | _upper(word, family, source, destination), 100)


def _upper(word: str, family: int, source: End, destination: End) -> dict[Field, int]:
    if word in ("icmp", "icmp6", "ping"):
        if source.port is not None or destination.port is not None:
            raise ValueError(f"{word} has no ports")
        kind = {f.ICMP_TYPE: 8, ICMP_CODE: 0} if family == 4 else {f.ICMP6_TYPE: 128}
        return {f.IP_PROTO: f.ICMP if family == 4 else f.ICMP6, ICMP_ID: 1, **kind}
    if word not in PORTED:
        raise ValueError(f"{word!r} is none of {', '.join(PORTED)}, icmp")
    if destination.port is None:
        raise ValueError(f"{word} needs a destination port: {FORM}")
    number = PORTED[word]
    port = FIRST_PORT if source.port is None else source.port
    flags = {f.TCP_FLAGS: SYN} if number == f.TCP else {}
    return {f.IP_PROTO: number, f.L4_SRC[number]: port, f.L4_DST[number]: destination.port, **flags}


def _end(text: str) -> End:
    address, port = text, ""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port number")
    return End(parse_ip(address), int(port) if port else None)


def answer(sent: Packet) -> Packet:
    """What whoever got this packet would answer, without Ethernet. Raises ValueError where nobody would."""
    family, number = sent.family, sent[f.IP_PROTO]
    if not family:
        raise ValueError("it is no IP packet")
    ends = {f.IP_SRC[family]: sent[f.IP_DST[family]], f.IP_DST[family]: sent[f.IP_SRC[family]], f.IP_TTL: 64}
    if number in f.L4_SRC:
        ends |= {f.L4_SRC[number]: sent[f.L4_DST[number]], f.L4_DST[number]: sent[f.L4_SRC[number]]}
        flags = {f.TCP_FLAGS: SYN_ACK} if number == f.TCP else {}
        return sent.having({**ends, **flags})
    return sent.having({**ends, **({f.ICMP_TYPE: 0} if family == 4 else {f.ICMP6_TYPE: 129})})
