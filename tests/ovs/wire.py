"""Frames as they were captured, read without scapy: thousands of them in a moment."""

import json
import struct
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
GENEVE, VXLAN = 6081, 4789


class Frame(NamedTuple):
    """What tests look at. `kind`: "icmp", "tcp", "udp", "icmp6", "arp", "vlan" or a number as text.

    `ports`: of TCP and UDP; type and code of ICMP. `flags`: of TCP, else 0. `inner`: what a tunnel carries.
    """

    src: str
    dst: str
    kind: str
    source: str = ""
    destination: str = ""
    ttl: int = 0
    ports: tuple[int, int] = (0, 0)
    flags: int = 0
    inner: "Frame | None" = None


def _mac(data: bytes) -> str:
    return data.hex(":")


def frame(data: bytes) -> Frame:
    dst, src, kind = _mac(data[:6]), _mac(data[6:12]), struct.unpack("!H", data[12:14])[0]
    body = data[14:]
    if kind == 0x0806:
        return Frame(src, dst, "arp", _ip(body[14:18]), _ip(body[24:28]))
    if kind == 0x0800:
        protocol, ttl, rest = body[9], body[8], body[(body[0] & 15) * 4 :]
        pair = body[12:16], body[16:20]
    elif kind == 0x86DD:
        protocol, ttl, rest = body[6], body[7], body[40:]
        pair = body[8:24], body[24:40]
    else:
        return Frame(src, dst, "vlan" if kind == 0x8100 else f"{kind:#06x}")
    name = _NAMES.get(protocol, str(protocol))
    ports, flags = (0, 0), 0
    if name in ("tcp", "udp") and len(rest) >= 4:
        ports = struct.unpack("!HH", rest[:4])
    elif name in ("icmp", "icmp6") and len(rest) >= 2:
        ports = rest[0], rest[1]
    if name == "tcp" and len(rest) >= 14:
        flags = rest[13]
    inner = _inner(ports[1], rest[8:]) if name == "udp" else None
    return Frame(src, dst, name, _ip(pair[0]), _ip(pair[1]), ttl, ports, flags, inner)


def _inner(port: int, data: bytes) -> Frame | None:
    if port not in (GENEVE, VXLAN):
        return None
    options = (data[0] & 0x3F) * 4 if port == GENEVE else 0
    return frame(data[8 + options :])


@cache
def _ip(data: bytes) -> str:
    return str(ip_address(data))


def read(path: Path) -> list[Frame]:
    """The frames of a pcap file as this machine's tcpdump writes it."""
    return [frame(data) for data in records(path) if len(data) >= 14]


def records(path: Path) -> Iterator[bytes]:
    """The same as bytes."""
    data = path.read_bytes()
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack("=I", data[at + 8 : at + 12])[0]
        if at + 16 + length > len(data):
            return  # it is just being written
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def decode_json(text: str) -> Any:
    return json.loads(text)
