"""IP addresses, prefixes and MACs as small values.

An address is its family and its integer, because that is what goes into a match; text is made only at the
edges. Parsing is strict: what `ipaddress` refuses is refused here, with the text in the message.
"""

import hashlib
import ipaddress
from functools import lru_cache
from typing import NamedTuple

import netaddr

BITS = {4: 32, 6: 128}


class Ip(NamedTuple):
    """One address: `family` 4 or 6, `value` the unsigned integer in network order."""

    family: int
    value: int

    def __str__(self) -> str:
        return _address_text(self)


class Cidr(NamedTuple):
    """A prefix: `value` has no bit set below `length`."""

    family: int
    value: int
    length: int

    def __str__(self) -> str:
        return _prefix_text(self)

    @property
    def mask(self) -> int:
        return prefix_mask(self.family, self.length)

    def __contains__(self, ip: object) -> bool:
        return isinstance(ip, Ip) and ip.family == self.family and ip.value & self.mask == self.value

    def overlaps(self, other: "Cidr") -> bool:
        if self.family != other.family:
            return False
        mask = prefix_mask(self.family, min(self.length, other.length))
        return self.value & mask == other.value & mask

    def address(self, index: int) -> Ip:
        """The address at `index` in the prefix: 1 is the gateway, 2 is reserved for SNAT."""
        return Ip(self.family, self.value + index)


class Interface(NamedTuple):
    """An address with the prefix of the link it sits on; `length` None when only the address is known."""

    ip: Ip
    length: int | None

    def __str__(self) -> str:
        return str(self.ip) if self.length is None else f"{self.ip}/{self.length}"

    @property
    def subnet(self) -> Cidr | None:
        if self.length is None:
            return None
        return Cidr(self.ip.family, self.ip.value & prefix_mask(self.ip.family, self.length), self.length)


@lru_cache(maxsize=512)
def prefix_mask(family: int, length: int) -> int:
    bits = BITS[family]
    return ((1 << length) - 1) << (bits - length)


@lru_cache(maxsize=65536)
def _address_text(ip: Ip) -> str:
    return str(ipaddress.IPv4Address(ip.value) if ip.family == 4 else ipaddress.IPv6Address(ip.value))


@lru_cache(maxsize=65536)
def _prefix_text(cidr: Cidr) -> str:
    return f"{Ip(cidr.family, cidr.value)}/{cidr.length}"


@lru_cache(maxsize=65536)
def parse_ip(text: str) -> Ip:
    """`10.0.0.1` or `fd00::1`; raises ValueError, also for a zone (`fe80::1%eth0`), which is one host's own word."""
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    parsed = ipaddress.ip_address(text)
    return Ip(parsed.version, int(parsed))


def parse_cidr(text: str) -> Cidr:
    """`10.0.0.0/24`; raises ValueError, also when host bits are set or the length is missing."""
    if "/" not in text:
        raise ValueError(f"{text!r} has no prefix length")
    parsed = ipaddress.ip_network(text)
    return Cidr(parsed.version, int(parsed.network_address), parsed.prefixlen)


def parse_interface(text: str) -> Interface:
    """`10.0.0.1/24`, host bits kept; raises ValueError."""
    if "/" not in text:
        raise ValueError(f"{text!r} has no prefix length")
    parsed = ipaddress.ip_interface(text)
    return Interface(Ip(parsed.version, int(parsed.ip)), parsed.network.prefixlen)


def parse_mac(text: str) -> int:
    """`aa:bb:cc:dd:ee:ff` as an integer; raises ValueError."""
    if text.count(":") != 5:
        raise ValueError(f"{text!r} is not a MAC address of the form aa:bb:cc:dd:ee:ff")
    try:
        return int(netaddr.EUI(text, version=48))
    except (netaddr.AddrFormatError, ValueError) as error:
        raise ValueError(f"{text!r} is not a MAC address of the form aa:bb:cc:dd:ee:ff") from error


def mac_text(mac: int) -> str:
    digits = f"{mac:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def usable_mac(mac: int) -> bool:
    """Whether a station may own this MAC: neither zero nor group-addressed."""
    return mac != 0 and not (mac >> 40) & 1


def pod_mac(ips: tuple[Ip, ...]) -> int:
    """A pod's MAC: 0a:58 and its IPv4 address, else 0a:58 and four bytes of sha256 of its packed IPv6 address."""
    for ip in ips:
        if ip.family == 4:
            return 0x0A58 << 32 | ip.value
    digest = hashlib.sha256(ips[0].value.to_bytes(16, "big")).digest()
    return 0x0A58 << 32 | int.from_bytes(digest[:4], "big")


def pod_port_name(namespace: str, name: str) -> str:
    """The name of a pod's port on the bridge: `sb` and the first 12 hex digits of sha256("NAMESPACE/NAME")."""
    return "sb" + hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:12]


def link_local(mac: int) -> Ip:
    """The IPv6 link-local address that a kernel derives from a MAC (RFC 4291, modified EUI-64)."""
    high, low = mac >> 24, mac & 0xFFFFFF
    return Ip(6, 0xFE80 << 112 | (high ^ 0x020000) << 40 | 0xFFFE << 24 | low)
