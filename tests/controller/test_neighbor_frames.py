"""Frames of ARP and neighbour discovery, checked against Scapy; and frames that nobody should send."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import (
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6Unknown,
    IPv6,
    IPv6ExtHdrDestOpt,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from controller.neighbor_frames import Claim, announcement, claim, probe, probed, question
from pipelines.addresses import parse_ip, parse_mac

OUR_MAC, ROUTER_MAC = "aa:00:00:00:00:01", "fe:00:00:00:00:01"
OURS, ROUTER = {4: "192.168.77.101", 6: "fd00:77::101"}, {4: "192.168.77.1", 6: "fe80::1"}


def asked(family: int, known: str | None = None) -> Packet:
    known_mac = parse_mac(known) if known else None
    raw = question(parse_ip(OURS[family]), parse_mac(OUR_MAC), parse_ip(ROUTER[family]), known_mac)
    packet = Ether(raw)
    if family == 6:
        del packet[ICMPv6ND_NS].cksum
        assert bytes(packet) == raw, "its checksum is what Scapy computes"
    return packet


def arp(**fields: Any) -> bytes:
    told: dict[str, Any] = {"op": 2, "hwsrc": ROUTER_MAC, "psrc": ROUTER[4], "hwdst": OUR_MAC, "pdst": OURS[4]} | fields
    return bytes(Ether(src=ROUTER_MAC, dst=OUR_MAC) / ARP(**told))


def advertised(*extra: Packet, ip: dict[str, Any] | None = None, **fields: Any) -> bytes:
    told: dict[str, Any] = {"tgt": ROUTER[6], "R": 1, "S": 1, "O": 1} | fields
    packet = Ether(src=ROUTER_MAC, dst=OUR_MAC) / IPv6(**{"src": ROUTER[6], "dst": OURS[6], "hlim": 255} | (ip or {}))
    packet /= ICMPv6ND_NA(**told)
    for each in extra:
        packet /= each
    return bytes(packet)


def at_router(family: int, answer: bool = True) -> Claim:
    return Claim(parse_ip(ROUTER[family]), parse_mac(ROUTER_MAC), answer, parse_ip(OURS[family]), parse_mac(OUR_MAC))


def test_everybody_is_asked_by_broadcast_in_ipv4() -> None:
    packet = asked(4)
    assert (packet.src, packet.dst) == (OUR_MAC, "ff:ff:ff:ff:ff:ff")
    arp = packet[ARP]
    assert (arp.op, arp.hwsrc, arp.psrc, arp.hwdst, arp.pdst) == (1, OUR_MAC, OURS[4], "00:00:00:00:00:00", ROUTER[4])


def test_a_solicitation_goes_to_the_group_of_the_address_and_says_who_asks() -> None:
    packet = asked(6)
    assert (packet.src, packet.dst) == (OUR_MAC, "33:33:ff:00:00:01")
    assert (packet[IPv6].src, packet[IPv6].dst, packet[IPv6].hlim) == (OURS[6], "ff02::1:ff00:1", 255)
    assert packet[ICMPv6ND_NS].tgt == ROUTER[6]
    assert packet[ICMPv6NDOptSrcLLAddr].lladdr == OUR_MAC


@pytest.mark.parametrize("family", [4, 6])
def test_one_station_is_asked_by_its_mac_alone(family: int) -> None:
    packet = asked(family, ROUTER_MAC)
    assert packet.dst == ROUTER_MAC
    assert family == 4 or packet[IPv6].dst == ROUTER[6]


def test_an_arp_reply_is_an_answer_and_padding_is_not_part_of_it() -> None:
    assert claim(arp() + bytes(18)) == at_router(4)


def test_a_request_tells_its_senders_mac_but_answers_nothing() -> None:
    assert claim(arp(op=1)) == at_router(4, answer=False)


def test_a_gratuitous_reply_is_no_answer() -> None:
    found = claim(arp(pdst=ROUTER[4]))
    assert found is not None
    assert not found.answer


def test_a_reply_in_a_frame_for_others_is_no_answer() -> None:
    raw = arp()
    found = claim(b"\xff" * 6 + raw[6:])
    assert found is not None
    assert not found.answer


def test_an_advertisement_is_an_answer_with_the_mac_of_its_option() -> None:
    assert claim(advertised(ICMPv6NDOptDstLLAddr(lladdr=ROUTER_MAC))) == at_router(6)
    other = claim(advertised(ICMPv6NDOptDstLLAddr(lladdr="fe:00:00:00:00:02")))
    assert other is not None
    assert other.mac == 0xFE0000000002


def test_an_advertisement_to_one_who_asked_by_unicast_may_leave_the_mac_to_the_frame() -> None:
    assert claim(advertised()) == at_router(6)


def test_an_unsolicited_advertisement_is_no_answer() -> None:
    to_all = {"dst": "ff02::1"}
    for raw in (advertised(S=0), advertised(ip=to_all)):
        found = claim(raw)
        assert found is not None
        assert not found.answer


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        arp()[:41],
        arp()[:14],
        arp(hwtype=6),
        arp(ptype=0x86DD),
        arp(op=3),
        arp(psrc="0.0.0.0"),
        bytes(Ether(src=ROUTER_MAC, dst=OUR_MAC) / Dot1Q(vlan=5) / ARP(op=2, psrc=ROUTER[4])),
        advertised()[:70],
        advertised(ip={"hlim": 254}),
        advertised(ip={"plen": 8}),
        advertised(ip={"plen": 2000}),
        advertised(code=1),
        advertised(cksum=0x1234),
        advertised(tgt="ff02::1"),
        advertised(tgt="::"),
        advertised(Raw(b"\2\0" + bytes(6))),
        advertised(Raw(b"\2\2" + bytes(6))),
        advertised(Raw(b"\2\1\0")),
        bytes(Ether() / IPv6(src=ROUTER[6], dst=OURS[6], hlim=255) / ICMPv6Unknown(type=200) / Raw(bytes(20))),
        bytes(Ether() / IPv6(src=ROUTER[6], dst=OURS[6], hlim=255) / ICMPv6ND_NS(tgt=ROUTER[6])),
        bytes(Ether() / IPv6(hlim=255) / IPv6ExtHdrDestOpt(nh=60) / Raw(bytes([60, 0, *range(6)] * 20))),
    ],
)
def test_what_is_not_exactly_a_message_says_nothing(raw: bytes) -> None:
    assert claim(raw) is None


WHOLE = (arp(), advertised(ICMPv6NDOptDstLLAddr(lladdr=ROUTER_MAC)), advertised())


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(raw: bytes) -> None:
    found = claim(raw)
    assert found is None or found.ip.family in (4, 6)


@given(st.sampled_from(WHOLE), st.integers(0, 120), st.integers(0, 119), st.binary(max_size=4))
def test_any_cut_or_damaged_message_can_be_read(raw: bytes, cut: int, at: int, damage: bytes) -> None:
    changed = (raw[:at] + damage + raw[at + len(damage) :])[:cut]
    found = claim(changed)
    assert found is None or 0 <= found.mac < 1 << 48


@given(st.integers(14, 77), st.integers(1, 255))
def test_a_damaged_advertisement_is_not_believed(at: int, change: int) -> None:
    raw = bytearray(WHOLE[1])
    raw[at] ^= change
    found = claim(bytes(raw))
    about_whom = range(22, 86)  # addresses and message are under the checksum
    assert found is None or at not in about_whom


VIP = {4: "192.168.77.150", 6: "fd00:77::150"}


def test_a_probe_names_no_own_address() -> None:
    """RFC 5227 section 2.1.1, RFC 4862 section 5.4.2."""
    arp = Ether(probe(parse_mac(OUR_MAC), parse_ip(VIP[4])))
    assert (arp.src, arp.dst) == (OUR_MAC, "ff:ff:ff:ff:ff:ff")
    assert (arp[ARP].op, arp[ARP].hwsrc, arp[ARP].psrc, arp[ARP].pdst) == (1, OUR_MAC, "0.0.0.0", VIP[4])
    raw = probe(parse_mac(OUR_MAC), parse_ip(VIP[6]))
    nd = Ether(raw)
    assert (nd.src, nd.dst) == (OUR_MAC, "33:33:ff:00:01:50")
    assert (nd[IPv6].src, nd[IPv6].dst, nd[IPv6].hlim) == ("::", "ff02::1:ff00:150", 255)
    assert nd[ICMPv6ND_NS].tgt == VIP[6]
    assert ICMPv6NDOptSrcLLAddr not in nd
    del nd[ICMPv6ND_NS].cksum
    assert bytes(nd) == raw
    assert probed(raw) == parse_ip(VIP[6])


def test_an_announcement_is_for_everybody_and_replaces_what_was_known() -> None:
    """RFC 5227 section 2.3, RFC 4861 section 7.2.6."""
    raw = announcement(parse_mac(OUR_MAC), parse_ip(VIP[4]))
    arp = Ether(raw)
    assert (arp.src, arp.dst) == (OUR_MAC, "ff:ff:ff:ff:ff:ff")
    assert (arp[ARP].op, arp[ARP].hwsrc, arp[ARP].psrc, arp[ARP].pdst) == (1, OUR_MAC, VIP[4], VIP[4])
    assert claim(raw) is not None
    raw = announcement(parse_mac(OUR_MAC), parse_ip(VIP[6]))
    nd = Ether(raw)
    assert (nd.dst, nd[IPv6].src, nd[IPv6].dst) == ("33:33:00:00:00:01", VIP[6], "ff02::1")
    told = nd[ICMPv6ND_NA]
    assert (told.tgt, told.R, told.S, told.O) == (VIP[6], 0, 0, 1)
    assert nd[ICMPv6NDOptDstLLAddr].lladdr == OUR_MAC
    found = claim(raw)
    assert found is not None
    assert (found.ip, found.mac, found.answer) == (parse_ip(VIP[6]), parse_mac(OUR_MAC), False)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda packet: packet[IPv6].setfieldval("src", "fe80::1"),
        lambda packet: packet[IPv6].setfieldval("hlim", 64),
        lambda packet: packet[ICMPv6ND_NS].setfieldval("code", 1),
        lambda packet: packet[ICMPv6ND_NS].setfieldval("cksum", 1),
        lambda packet: packet[IPv6].setfieldval("plen", 99),
    ],
)
def test_only_a_station_without_an_address_probes(spoil: Callable[[Packet], None]) -> None:
    packet = Ether(probe(parse_mac(OUR_MAC), parse_ip(VIP[6])))
    if ICMPv6ND_NS in packet:
        del packet[ICMPv6ND_NS].cksum
    spoil(packet)
    assert probed(bytes(packet)) is None
    assert all(probed(bytes(packet)[:length]) is None for length in range(len(bytes(packet))))
