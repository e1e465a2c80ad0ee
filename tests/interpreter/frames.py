"""Packets as frames and back, with checksums: what a real switch is given, and what it gives."""

from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP, ICMPerror, IPerror, TCPerror, UDPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.packet import Packet as Layer
from scapy.packet import Raw

from pipelines import fields as f
from pipelines.addresses import Ip, mac_text, parse_ip, parse_mac
from pipelines.interpreter import ICMP_CODE, ICMP_ID, Packet

_ICMP6 = {128: ICMPv6EchoRequest, 129: ICMPv6EchoReply}
_ICMP6_ERRORS = {1: ICMPv6DestUnreach, 2: ICMPv6PacketTooBig, 3: ICMPv6TimeExceeded}
_ND = {133: ICMPv6ND_RS, 134: ICMPv6ND_RA, 135: ICMPv6ND_NS, 136: ICMPv6ND_NA}


def frame(packet: Packet) -> bytes:
    """The frame; payload to fill it up to `length`."""
    layer = Ether(src=mac_text(packet[f.ETH_SRC]), dst=mac_text(packet[f.ETH_DST]))
    if tci := packet[f.VLAN_TCI]:
        layer /= Dot1Q(vlan=tci & 0xFFF, prio=tci >> 13, type=packet[f.ETH_TYPE])
    else:
        layer.type = packet[f.ETH_TYPE]
    if packet[f.ETH_TYPE] == 0x0806:
        return bytes(layer / _arp(packet))
    if packet.family:
        layer /= _ip(packet)
    missing = packet.length - len(layer)
    return bytes(layer / Raw(b"x" * missing)) if missing > 0 else bytes(layer)


def _arp(packet: Packet) -> Layer:
    return ARP(
        op=packet[f.ARP_OP],
        hwsrc=mac_text(packet[f.ARP_SHA]),
        hwdst=mac_text(packet[f.ARP_THA]),
        psrc=str(Ip(4, packet[f.ARP_SPA])),
        pdst=str(Ip(4, packet[f.ARP_TPA])),
    )


def _ip(packet: Packet) -> Layer:
    number, hops = packet[f.IP_PROTO], packet[f.IP_TTL]
    if packet.family == 4:
        ends = str(Ip(4, packet[f.IP4_SRC])), str(Ip(4, packet[f.IP4_DST]))
        layer: Layer = IP(src=ends[0], dst=ends[1], proto=number, ttl=hops)
    else:
        ends = str(Ip(6, packet[f.IP6_SRC])), str(Ip(6, packet[f.IP6_DST]))
        layer = IPv6(src=ends[0], dst=ends[1], nh=number, hlim=hops)
    upper = _upper(packet, number)
    return layer if upper is None else layer / upper


def _upper(packet: Packet, number: int) -> Layer | None:
    if number == f.TCP:
        return TCP(
            sport=packet[f.TCP_SRC], dport=packet[f.TCP_DST], flags=packet[f.TCP_FLAGS], seq=1, ack=1, window=65535
        )
    if number == f.UDP:
        return UDP(sport=packet[f.UDP_SRC], dport=packet[f.UDP_DST])
    if number == f.SCTP:
        return SCTP(sport=packet[f.SCTP_SRC], dport=packet[f.SCTP_DST])
    if number == f.ICMP:
        message = ICMP(type=packet[f.ICMP_TYPE], code=packet[ICMP_CODE], id=packet[ICMP_ID])
        return message if packet.carried is None else message / _ip(packet.carried)
    return _icmp6(packet) if number == f.ICMP6 else None


def _icmp6(packet: Packet) -> Layer | None:
    kind = packet[f.ICMP6_TYPE]
    if kind in _ICMP6:
        return _ICMP6[kind](id=packet[ICMP_ID])
    if kind in _ICMP6_ERRORS:
        message = _ICMP6_ERRORS[kind](code=packet[f.ICMP6_CODE])
        return message if packet.carried is None else message / _ip(packet.carried)
    if kind not in _ND:
        return None
    message = _ND[kind]()
    if kind in (135, 136):
        message.tgt = str(Ip(6, packet[f.ND_TARGET]))
    if kind == 136:
        message.R, message.S, message.O = (packet[f.ND_RESERVED] >> at & 1 for at in (31, 30, 29))
    if packet[f.ND_SLL]:
        message /= ICMPv6NDOptSrcLLAddr(lladdr=mac_text(packet[f.ND_SLL]))
    if packet[f.ND_TLL]:
        message /= ICMPv6NDOptDstLLAddr(lladdr=mac_text(packet[f.ND_TLL]))
    return message


# --- and back ----------------------------------------------------------------------------------------------


def packet(data: bytes) -> Packet:
    """The packet that a frame is."""
    layer = Ether(data)
    values: dict[Any, int] = {f.ETH_SRC: parse_mac(layer.src), f.ETH_DST: parse_mac(layer.dst), f.ETH_TYPE: layer.type}
    if Dot1Q in layer:
        tag = layer[Dot1Q]
        values |= {f.VLAN_TCI: 0x1000 | tag.prio << 13 | tag.vlan, f.ETH_TYPE: tag.type}
    if ARP in layer:
        arp = layer[ARP]
        values |= {f.ARP_OP: arp.op, f.ARP_SHA: parse_mac(arp.hwsrc), f.ARP_THA: parse_mac(arp.hwdst)}
        values |= {f.ARP_SPA: parse_ip(arp.psrc).value, f.ARP_TPA: parse_ip(arp.pdst).value}
        return Packet.of(values, len(data))
    for kind in (IP, IPv6):
        if kind in layer:
            found, carried = _network(layer[kind])
            return Packet.of(values | found, len(data), carried=carried)
    return Packet.of(values, len(data))


def _network(layer: Any) -> tuple[dict[Any, int], Packet | None]:
    if layer.version == 4:
        values = {f.IP4_SRC: parse_ip(layer.src).value, f.IP4_DST: parse_ip(layer.dst).value, f.IP_TTL: layer.ttl}
        values[f.IP_PROTO] = layer.proto
    else:
        values = {f.IP6_SRC: parse_ip(layer.src).value, f.IP6_DST: parse_ip(layer.dst).value, f.IP_TTL: layer.hlim}
        values[f.IP_PROTO] = layer.nh
    upper = layer.payload
    match upper:
        case TCP() | TCPerror():
            values |= {f.TCP_SRC: upper.sport, f.TCP_DST: upper.dport, f.TCP_FLAGS: int(upper.flags)}
        case UDP() | UDPerror():
            values |= {f.UDP_SRC: upper.sport, f.UDP_DST: upper.dport}
        case SCTP():
            values |= {f.SCTP_SRC: upper.sport, f.SCTP_DST: upper.dport}
        case ICMP() | ICMPerror():
            values |= {f.ICMP_TYPE: upper.type, ICMP_CODE: upper.code}
            if upper.type in (0, 8):
                values[ICMP_ID] = upper.id
            return values, _quoted(upper.payload)
        case _ if layer.version == 6 and values[f.IP_PROTO] == f.ICMP6:
            return values | _icmp6_values(upper), _quoted(upper.payload)
    return values, None


def _quoted(layer: Any) -> Packet | None:
    if not isinstance(layer, IP | IPv6 | IPerror) or getattr(layer, "version", 0) not in (4, 6):
        return None
    return Packet.of({f.ETH_TYPE: 0x0800 if layer.version == 4 else 0x86DD} | _network(layer)[0])


def _icmp6_values(upper: Any) -> dict[Any, int]:
    values = {f.ICMP6_TYPE: upper.type, f.ICMP6_CODE: upper.code}
    if upper.type in _ICMP6:
        values[ICMP_ID] = upper.id
    if upper.type in (135, 136):
        values[f.ND_TARGET] = parse_ip(upper.tgt).value
    if upper.type == 136:
        values[f.ND_RESERVED] = upper.R << 31 | upper.S << 30 | upper.O << 29
    for option, field in ((ICMPv6NDOptSrcLLAddr, f.ND_SLL), (ICMPv6NDOptDstLLAddr, f.ND_TLL)):
        if option in upper:
            values[field] = parse_mac(upper[option].lladdr)
    return values
