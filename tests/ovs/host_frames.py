"""Frames that a host and the network before it exchange, and that no switch between them has any say in.

`from_network(mac, ips)` and `from_host(mac, ips)` give name → frame, for the host of a node with this uplink MAC and
these addresses by family. Each frame differs from all others of its direction, so that a copy shows.
"""

from collections.abc import Mapping
from typing import Any

from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dhcp6 import DHCP6_Advertise, DHCP6_Solicit
from scapy.layers.igmp import IGMP
from scapy.layers.inet import ICMP, IP, TCP, UDP, UDPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6MLQuery,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptPrefixInfo,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    RouterAlert,
)
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN

from pipelines.addresses import link_local, parse_mac
from tests.ovs.world import NODES, OUTSIDE, OUTSIDE_MAC

Frames = dict[str, Any]

SERVER_MAC = "ee:00:00:00:00:67"  # of a DHCP server or router of which nothing else is known
MACVLAN, STRANGER = "ee:00:00:00:05:01", "ee:00:00:00:05:02"  # on a VLAN of the host, and who it talks to there
EVERYBODY = "ff:ff:ff:ff:ff:ff"
OFFERED = {4: "192.168.77.150", 6: "fd00:77::150"}  # an address that the host does not have yet
FOREIGN = {4: "172.31.5.1", 6: "fd00:31:5::1"}  # one that the switch knows nothing of
Y = OUTSIDE["outside"].addresses
SERVER_LOCAL = str(link_local(parse_mac(SERVER_MAC)))
FIRST_RESERVED = 61440


def _routed(source: Mapping[int, str], destination: Mapping[int, str]) -> dict[int, Any]:
    return {4: IP(src=source[4], dst=destination[4]), 6: IPv6(src=source[6], dst=destination[6])}


def _both_families(name: str, frame: Any, layers: Mapping[int, Any], inner: Any) -> Frames:
    return {f"{name}, IPv{family}": frame / layer / inner for family, layer in layers.items()}


def _transport(frame: Any, layers: Mapping[int, Any]) -> Frames:
    """What travels between two addresses, whichever they are."""
    inner = {
        "a handshake of which only the answer is seen": TCP(sport=22, dport=40001, flags="SA", seq=7, ack=9),
        "a reset of nothing known": TCP(sport=22, dport=40002, flags="R", seq=7),
        "a segment from nowhere": TCP(sport=22, dport=40003, flags="PA", seq=7, ack=9) / b"data",
        "UDP to the first port reserved for translations": UDP(sport=53, dport=FIRST_RESERVED) / b"answer",
        "UDP to the last one": UDP(sport=53, dport=65535) / b"answer",
        "UDP from there": UDP(sport=62000, dport=123) / b"question",
        "VXLAN of the host's own": UDP(sport=4000, dport=4791) / VXLAN(vni=9) / Ether() / IP() / ICMP(),
        "GRE": GRE() / IP(src="172.31.5.9", dst="172.31.5.8") / ICMP(),
        "UDP without a checksum of sense": UDP(sport=9, dport=9, chksum=0xBEEF) / b"x",
    }
    found: Frames = {}
    for name, content in inner.items():
        found |= _both_families(name, frame, layers, content)
    ip, ip6 = layers[4], layers[6]
    datagram = bytes(UDP(sport=9, dport=9, len=32, chksum=0)) + b"fragmented as it was sent"[:24]
    return {
        **found,
        "ESP": frame / ip.__class__(src=ip.src, dst=ip.dst, proto=50) / (b"\x00\x00\x10\x01" + b"\x5a" * 40),
        "the first fragment": frame / IP(src=ip.src, dst=ip.dst, id=77, flags="MF", proto=17) / datagram[:16],
        "the last fragment": frame / IP(src=ip.src, dst=ip.dst, id=77, frag=2, proto=17) / datagram[16:],
        "the first fragment of IPv6": frame / ip6 / IPv6ExtHdrFragment(m=1, id=77, nh=17) / datagram[:16],
        "the last fragment of IPv6": frame / ip6 / IPv6ExtHdrFragment(offset=2, id=77, nh=17) / datagram[16:],
        "an echo reply that nobody asked for": frame / ip / ICMP(type=0, id=5, seq=6),
        "an echo reply that nobody asked for, IPv6": frame / ip6 / ICMPv6EchoReply(id=5, seq=6),
        "an error about nothing known": frame
        / ip
        / ICMP(type=3, code=3)
        / IP(src=ip.dst, dst=ip.src)
        / UDPerror(sport=5, dport=6),
        "an error about nothing known, IPv6": frame
        / ip6
        / ICMPv6DestUnreach(code=4)
        / IPv6(src=ip6.dst, dst=ip6.src)
        / UDPerror(sport=5, dport=6),
    }


def _tagged(frame: Any, source: str, layers: Mapping[int, Any]) -> Frames:
    return {
        "tagged IPv4": frame / Dot1Q(vlan=5) / layers[4] / UDP(sport=7, dport=7) / b"tagged",
        "tagged IPv6": frame / Dot1Q(vlan=5) / layers[6] / UDP(sport=7, dport=7) / b"tagged",
        "tagged priority": frame / Dot1Q(vlan=0, prio=5) / layers[4] / UDP(sport=7, dport=8) / b"tagged",
        "tagged ARP": Ether(src=source, dst=EVERYBODY) / Dot1Q(vlan=5) / ARP(hwsrc=source, psrc="172.31.5.9"),
        "tagged twice": frame / Dot1AD(vlan=9) / Dot1Q(vlan=5) / layers[4] / UDP(sport=7, dport=9) / b"tagged",
        "tagged, of others": Ether(src=STRANGER if source == OUTSIDE_MAC else MACVLAN,
                                   dst=MACVLAN if source == OUTSIDE_MAC else STRANGER)
        / Dot1Q(vlan=6) / IP(src="172.31.6.1", dst="172.31.6.2") / UDP(sport=7, dport=7) / b"tagged",
    }  # fmt: skip


def _multicast(source: str, layers: Mapping[int, Any], local: str) -> Frames:
    four, six = layers[4].src, layers[6].src
    return {
        "mDNS": Ether(src=source, dst="01:00:5e:00:00:fb")
        / IP(src=four, dst="224.0.0.251", ttl=255)
        / UDP(sport=5353, dport=5353),
        "mDNS, IPv6": Ether(src=source, dst="33:33:00:00:00:fb")
        / IPv6(src=local, dst="ff02::fb", hlim=255)
        / UDP(sport=5353, dport=5353),
        "VRRP": Ether(src=source, dst="01:00:5e:00:00:12")
        / IP(src=four, dst="224.0.0.18", proto=112, ttl=255)
        / (b"\x31\x07\x64\x01" + b"\x00" * 16),
        "routed multicast": Ether(src=source, dst="01:00:5e:01:02:03")
        / IP(src=four, dst="239.1.2.3", ttl=5)
        / UDP(sport=9, dport=9)
        / b"x",
        "routed multicast, IPv6": Ether(src=source, dst="33:33:00:00:12:34")
        / IPv6(src=six, dst="ff05::1234", hlim=5)
        / UDP(sport=9, dport=9),
        "broadcast": Ether(src=source, dst=EVERYBODY)
        / IP(src=four, dst="255.255.255.255")
        / UDP(sport=9, dport=9)
        / b"x",
        "broadcast to the subnet": Ether(src=source, dst=EVERYBODY)
        / IP(src=four, dst="192.168.77.255")
        / UDP(sport=9, dport=9)
        / b"y",
        "neither ARP nor IP": Ether(src=source, dst=EVERYBODY, type=0x88B5) / (b"\x5a" * 46),
    }


def from_network(mac: str, ips: Mapping[int, str]) -> Frames:
    """What comes in by the uplink for the host; `ips` are its addresses."""
    local = str(link_local(parse_mac(mac)))
    to = Ether(src=OUTSIDE_MAC, dst=mac)
    server, everybody = Ether(src=SERVER_MAC, dst=mac), Ether(src=SERVER_MAC, dst=EVERYBODY)
    offer = (
        UDP(sport=67, dport=68)
        / BOOTP(op=2, yiaddr=OFFERED[4], chaddr=bytes.fromhex(mac.replace(":", "")))
        / DHCP(options=[("message-type", "offer"), "end"])
    )
    nodes = NODES["n2"]
    return {
        "DHCP offer to everybody": everybody / IP(src="192.168.77.1", dst="255.255.255.255") / offer,
        "DHCP offer to an address not yet there": server / IP(src="192.168.77.1", dst=OFFERED[4]) / offer,
        "DHCP offer of a node": server / IP(src=nodes.addresses[4], dst=OFFERED[4]) / offer,
        "DHCPv6 advertisement": server
        / IPv6(src=SERVER_LOCAL, dst=local)
        / UDP(sport=547, dport=546)
        / DHCP6_Advertise(trid=7),
        "ARP question": everybody / ARP(op=1, hwsrc=SERVER_MAC, psrc=OFFERED[4], pdst=ips[4]),
        "ARP question to the host alone": server / ARP(op=1, hwsrc=SERVER_MAC, psrc=OFFERED[4], pdst=ips[4]),
        "ARP answer": server / ARP(op=2, hwsrc=SERVER_MAC, psrc=OFFERED[4], hwdst=mac, pdst=ips[4]),
        "gratuitous ARP": everybody / ARP(op=1, hwsrc=SERVER_MAC, psrc=OFFERED[4], pdst=OFFERED[4]),
        "ARP probe": everybody / ARP(op=1, hwsrc=SERVER_MAC, psrc="0.0.0.0", pdst=OFFERED[4]),
        "neighbour solicitation": Ether(src=SERVER_MAC, dst="33:33:ff:00:01:01")
        / IPv6(src=SERVER_LOCAL, dst="ff02::1:ff00:101", hlim=255)
        / ICMPv6ND_NS(tgt=ips[6])
        / ICMPv6NDOptSrcLLAddr(lladdr=SERVER_MAC),
        "detection of a duplicate": Ether(src=SERVER_MAC, dst="33:33:ff:00:01:01")
        / IPv6(src="::", dst="ff02::1:ff00:101", hlim=255)
        / ICMPv6ND_NS(tgt=OFFERED[6]),
        "neighbour advertisement": server
        / IPv6(src=OFFERED[6], dst=ips[6], hlim=255)
        / ICMPv6ND_NA(tgt=OFFERED[6], S=1)
        / ICMPv6NDOptDstLLAddr(lladdr=SERVER_MAC),
        "router advertisement": Ether(src=SERVER_MAC, dst="33:33:00:00:00:01")
        / IPv6(src=SERVER_LOCAL, dst="ff02::1", hlim=255)
        / ICMPv6ND_RA(routerlifetime=0)
        / ICMPv6NDOptPrefixInfo(prefix="fd00:bad::", prefixlen=64, A=0),
        "router advertisement to the host alone": server
        / IPv6(src=SERVER_LOCAL, dst=local, hlim=255)
        / ICMPv6ND_RA(routerlifetime=0),
        "redirect": server
        / IPv6(src=SERVER_LOCAL, dst=ips[6], hlim=255)
        / ICMPv6ND_Redirect(tgt=SERVER_LOCAL, dst="fd00:203::77"),
        "IGMP query": Ether(src=SERVER_MAC, dst="01:00:5e:00:00:01")
        / IP(src="192.168.77.1", dst="224.0.0.1", ttl=1, proto=2)
        / IGMP(type=0x11, gaddr="0.0.0.0"),
        "MLD query": Ether(src=SERVER_MAC, dst="33:33:00:00:00:01")
        / IPv6(src=SERVER_LOCAL, dst="ff02::1", hlim=1)
        / IPv6ExtHdrHopByHop(options=[RouterAlert()])
        / ICMPv6MLQuery(),
        "a type of our own": Ether(src=OUTSIDE_MAC, dst=mac, type=0x88B5) / (b"\x11" * 46),
        "UDP for an address of which the switch does not know": to / IP(src=Y[4], dst=FOREIGN[4]) / UDP() / b"x",
        **_multicast(OUTSIDE_MAC, _routed(Y, ips), str(link_local(parse_mac(OUTSIDE_MAC)))),
        **_tagged(to, OUTSIDE_MAC, _routed(FOREIGN, {4: "172.31.5.2", 6: "fd00:31:5::2"})),
        **_transport(to, _routed(Y, ips)),
    }


def from_host(mac: str, ips: Mapping[int, str]) -> Frames:
    """What the host sends into br0, all of it seen by who is outside on its segment."""
    local = str(link_local(parse_mac(mac)))
    to, everybody = Ether(src=mac, dst=OUTSIDE_MAC), Ether(src=mac, dst=EVERYBODY)
    discover = (
        UDP(sport=68, dport=67)
        / BOOTP(chaddr=bytes.fromhex(mac.replace(":", "")))
        / DHCP(options=[("message-type", "discover"), "end"])
    )
    return {
        "DHCP discovery": everybody / IP(src="0.0.0.0", dst="255.255.255.255") / discover,
        "DHCP renewal": to / IP(src=ips[4], dst=Y[4]) / discover,
        "DHCPv6 solicitation": Ether(src=mac, dst="33:33:00:01:00:02")
        / IPv6(src=local, dst="ff02::1:2")
        / UDP(sport=546, dport=547)
        / DHCP6_Solicit(trid=7),
        "ARP question": everybody / ARP(op=1, hwsrc=mac, psrc=ips[4], pdst=OFFERED[4]),
        "ARP answer": to / ARP(op=2, hwsrc=mac, psrc=ips[4], hwdst=OUTSIDE_MAC, pdst=Y[4]),
        "gratuitous ARP": everybody / ARP(op=1, hwsrc=mac, psrc=ips[4], pdst=ips[4]),
        "ARP probe": everybody / ARP(op=1, hwsrc=mac, psrc="0.0.0.0", pdst=OFFERED[4]),
        "neighbour solicitation": Ether(src=mac, dst="33:33:ff:00:02:00")
        / IPv6(src=ips[6], dst="ff02::1:ff00:200", hlim=255)
        / ICMPv6ND_NS(tgt=Y[6])
        / ICMPv6NDOptSrcLLAddr(lladdr=mac),
        "detection of a duplicate": Ether(src=mac, dst="33:33:ff:00:01:50")
        / IPv6(src="::", dst="ff02::1:ff00:150", hlim=255)
        / ICMPv6ND_NS(tgt=OFFERED[6]),
        "neighbour advertisement": to
        / IPv6(src=ips[6], dst=Y[6], hlim=255)
        / ICMPv6ND_NA(tgt=ips[6], S=1)
        / ICMPv6NDOptDstLLAddr(lladdr=mac),
        "router solicitation": Ether(src=mac, dst="33:33:00:00:00:02")
        / IPv6(src=local, dst="ff02::2", hlim=255)
        / ICMPv6ND_RS()
        / ICMPv6NDOptSrcLLAddr(lladdr=mac),
        "IGMP report": Ether(src=mac, dst="01:00:5e:01:02:03")
        / IP(src=ips[4], dst="239.1.2.3", ttl=1, proto=2)
        / IGMP(type=0x16, gaddr="239.1.2.3"),
        "MLD report": Ether(src=mac, dst="33:33:00:00:00:16")
        / IPv6(src=local, dst="ff02::16", hlim=1)
        / IPv6ExtHdrHopByHop(options=[RouterAlert()])
        / ICMPv6MLReport2(),
        "a type of our own": Ether(src=mac, dst=OUTSIDE_MAC, type=0x88B5) / (b"\x11" * 46),
        "UDP from an address of which the switch does not know": to / IP(src=FOREIGN[4], dst=Y[4]) / UDP() / b"x",
        **_multicast(mac, _routed(ips, Y), local),
        **_tagged(to, mac, _routed(FOREIGN, {4: "172.31.5.2", 6: "fd00:31:5::2"})),
        **_transport(to, _routed(ips, Y)),
    }
