"""What a router says that has taken over an address: gratuitous ARP (RFC 5227) and unsolicited NA (RFC 4861)."""

import struct

from pipelines.addresses import Interface, parse_interface, parse_mac

BROADCAST, ALL_NODES_MAC = b"\xff" * 6, bytes.fromhex("333300000001")
ALL_NODES = bytes.fromhex("ff02" + "00" * 13 + "01")
ROUTER_OVERRIDE = 0xA0000000  # not solicited


def announcement(address: str, mac: str) -> bytes:
    """A frame by which the holder of `mac` says to a whole segment that it has `address` (with prefix length)."""
    own = parse_mac(mac).to_bytes(6, "big")
    interface = parse_interface(address)
    return gratuitous_arp(interface, own) if interface.ip.family == 4 else unsolicited_na(interface, own)


def gratuitous_arp(address: Interface, own: bytes) -> bytes:
    """A request for the own address, as VRRP routers send it."""
    ip = address.ip.value.to_bytes(4, "big")
    arp = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, own, ip, bytes(6), ip)
    return BROADCAST + own + b"\x08\x06" + arp


def unsolicited_na(address: Interface, own: bytes) -> bytes:
    ip = address.ip.value.to_bytes(16, "big")
    body = struct.pack("!BBHI16sBB6s", 136, 0, 0, ROUTER_OVERRIDE, ip, 2, 1, own)
    checksum = _checksum(ip + ALL_NODES + struct.pack("!IHBB", len(body), 0, 0, 58) + body)
    header = struct.pack("!IHBB16s16s", 6 << 28, len(body), 58, 255, ip, ALL_NODES)
    return ALL_NODES_MAC + own + b"\x86\xdd" + header + body[:2] + struct.pack("!H", checksum) + body[4:]


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
