"""What senders of packets too big for a tunnel are told: checked against Scapy."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from apps.tunnel_limit import tunnel_limit
from controller import encode
from controller.readback import PacketIn
from controller.too_big import Limit, TooBig, too_big
from pipelines.actions import Resubmit, load
from pipelines.addresses import parse_ip
from pipelines.fields import ENTERED_BY, Entered
from pipelines.model import TrafficMode, Tunnel
from tests.pipelines import objects

POD, PEER = {4: "10.10.1.10", 6: "fd00:10:1::10"}, {4: "10.10.3.10", 6: "fd00:10:3::10"}
GATEWAY = {4: "10.10.1.1", 6: "fd00:10:1::1"}
both = pytest.mark.parametrize("family", [4, 6])


MASKED_REG0 = (0x8001, 0)
CT_STATE, CT_MARK = (1, 105), (1, 107)
FROM_POD, FROM_UPLINK = {MASKED_REG0: Entered.POD << 32}, {MASKED_REG0: Entered.UPLINK << 32}
BACK = {table: (load(ENTERED_BY, Entered.TUNNEL), Resubmit(table)) for table in (24, 70)}


def packet_in(data: bytes, metadata: dict[tuple[int, int], int] | None = None) -> PacketIn:
    return PacketIn(102, 0, 5, 1, data, FROM_POD if metadata is None else metadata)


def limit(family: int) -> Limit:
    return Limit(parse_ip(GATEWAY[family]), 1450)


def frame(family: int, payload: Packet, **fields: Any) -> bytes:
    ip = (IP if family == 4 else IPv6)(**{"src": POD[family], "dst": PEER[family]} | fields)
    return bytes(Ether(src="0a:58:0a:0a:01:0a", dst="0a:00:00:00:00:01") / ip / payload)


def told(family: int, raw: bytes) -> None:
    """The sender gets exactly what Scapy would have written."""
    ethernet = Ether(src="0a:00:00:00:00:01", dst="0a:58:0a:0a:01:0a")
    if family == 4:
        head = IP(src=GATEWAY[4], dst=POD[4], id=0, flags="DF", ttl=64)
        expected = ethernet / head / ICMP(type=3, code=4, nexthopmtu=1450) / Raw(raw[14 : 14 + 576 - 28])
    else:
        head = IPv6(src=GATEWAY[6], dst=POD[6], hlim=64)
        expected = ethernet / head / ICMPv6PacketTooBig(mtu=1450) / Raw(raw[14 : 14 + 1280 - 48])
    assert too_big(packet_in(raw), limit) == (bytes(expected), BACK[70])


@both
@pytest.mark.parametrize("payload", [UDP(sport=1, dport=2) / Raw(bytes(1472)), TCP(flags="A") / Raw(bytes(1460))])
def test_the_sender_is_told_how_large_packets_may_be(family: int, payload: Packet) -> None:
    told(family, frame(family, payload))


@both
def test_a_packet_that_was_cut_on_its_way_here_is_quoted_as_far_as_it_goes(family: int) -> None:
    raw = frame(family, UDP(sport=1, dport=2) / Raw(bytes(1472)))[:300]
    answer = too_big(packet_in(raw), limit)
    assert answer is not None
    assert answer.frame.endswith(raw[14:])


def test_echoes_are_told_both_ways() -> None:
    told(4, frame(4, ICMP(type=0) / Raw(bytes(1472))))
    told(6, frame(6, ICMPv6EchoReply(data=bytes(1472))))
    told(6, frame(6, ICMPv6EchoRequest(data=bytes(1472))))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        frame(4, ICMP(type=3, code=4) / Raw(bytes(1400))),
        frame(4, ICMP(type=11) / Raw(bytes(1400))),
        frame(6, ICMPv6PacketTooBig(mtu=1280) / Raw(bytes(1400))),
        frame(6, ICMPv6DestUnreach() / Raw(bytes(1400))),
        frame(6, ICMPv6ND_NS()),
        frame(4, UDP() / Raw(bytes(1400)), frag=100),
        frame(6, IPv6ExtHdrFragment(offset=10, nh=17) / Raw(bytes(1400))),
        frame(4, UDP() / Raw(bytes(1400)), dst="224.0.0.1"),
        frame(4, UDP() / Raw(bytes(1400)), src="0.0.0.0"),
        frame(6, UDP() / Raw(bytes(1400)), src="::"),
        frame(6, UDP() / Raw(bytes(1400)), dst="ff02::1"),
    ],
)
def test_nobody_is_told_about_errors_later_fragments_and_what_is_not_one_stations(raw: bytes) -> None:
    assert too_big(packet_in(raw), limit) is None


def test_a_node_without_a_gateway_of_that_family_tells_nobody() -> None:
    assert too_big(packet_in(frame(4, UDP() / Raw(bytes(1472)))), lambda family: None) is None


METADATA = st.dictionaries(
    st.sampled_from([MASKED_REG0, CT_STATE, *((1, number) for number in range(119, 126))]), st.integers(0, 0xFFFF)
)


@given(st.binary(max_size=200), METADATA)
def test_any_bytes_can_be_read(raw: bytes, metadata: dict[tuple[int, int], int]) -> None:
    assert too_big(packet_in(raw, metadata), limit) is None or len(raw) > 34


@given(st.sampled_from((4, 6)), st.integers(0, 100), st.binary(max_size=8), st.integers(0, 200), METADATA)
def test_any_damaged_packet_can_be_read(
    family: int, at: int, damage: bytes, cut: int, metadata: dict[tuple[int, int], int]
) -> None:
    raw = frame(family, UDP() / Raw(bytes(100)))
    too_big(packet_in((raw[:at] + damage + raw[at + len(damage) :])[:cut], metadata), limit)


def number(address: str) -> int:
    return parse_ip(address).value


@both
@pytest.mark.parametrize("payload", [UDP(sport=1, dport=8080), TCP(sport=1, dport=8080, flags="A")])
def test_the_sender_of_a_translated_packet_is_told_about_the_connection_that_it_knows(
    family: int, payload: Packet
) -> None:
    service = {4: "10.96.0.80", 6: "fd00:96::80"}[family]
    first = ((1, 120), (1, 121)) if family == 4 else ((1, 122), (1, 123))
    metadata = FROM_POD | {
        CT_STATE: 0x22, first[0]: number(POD[family]), first[1]: number(service), (1, 124): 4711, (1, 125): 80
    }  # fmt: skip
    answer = too_big(packet_in(frame(family, payload / Raw(bytes(1400))), metadata), limit)
    assert answer is not None
    assert answer.actions == BACK[70]
    kind = IP if family == 4 else IPv6
    quoted = kind(answer.frame[14 + (20 if family == 4 else 40) + 8 :])
    assert (quoted.src, quoted.dst) == (POD[family], service)
    assert struct.unpack("!HH", bytes(quoted.payload)[:4]) == (4711, 80)
    if family == 4:
        right = IP(bytes(quoted)[:20])
        del right.chksum
        assert bytes(right)[:20] == bytes(quoted)[:20]


@pytest.mark.parametrize("metadata", [FROM_UPLINK, FROM_POD | {CT_STATE: 0x2A}, {}])
def test_replies_and_what_clients_outside_sent_is_translated_back_by_the_switch(
    metadata: dict[tuple[int, int], int],
) -> None:
    raw = frame(4, UDP() / Raw(bytes(1472)))
    answer = too_big(packet_in(raw, metadata | {(1, 120): 1, (1, 121): 2}), limit)
    assert answer is not None
    assert answer.actions == BACK[24]
    assert answer.frame.endswith(raw[14 : 14 + 576 - 28])


@both
def test_the_host_is_told_by_the_address_that_it_sent_to(family: int) -> None:
    """Its kernel drops what comes from outside with an address of its own."""
    asked = packet_in(frame(family, UDP() / Raw(bytes(1472))), {MASKED_REG0: Entered.LOCAL << 32})
    answer = too_big(asked, limit)
    assert answer is not None
    assert (IP if family == 4 else IPv6)(answer.frame[14:]).src == PEER[family]
    assert answer.actions == BACK[70]


SERVICE, PLAIN = {CT_MARK: 0x12}, {CT_MARK: 0x02}


@pytest.mark.parametrize(
    ("family", "mark", "table"), [(4, PLAIN, 24), (4, SERVICE, 24), (6, PLAIN, 70), (6, SERVICE, 24)]
)
def test_an_answer_to_a_reply_is_translated_back_where_it_may_have_been_translated(
    family: int, mark: dict[tuple[int, int], int], table: int
) -> None:
    """Open vSwitch damages IPv6 in that: there it is done only where it must be."""
    raw = frame(family, UDP() / Raw(bytes(1472)))
    known = FROM_POD | {CT_STATE: 0x2A, (1, 122): 1, (1, 123): 2} | mark
    answer = too_big(packet_in(raw, known), limit)
    assert answer is not None
    assert answer.actions == BACK[table]
    assert raw[14 : 14 + 500] in answer.frame


def test_the_handler_sends_and_counts() -> None:
    messages: list[bytes] = []
    connection = SimpleNamespace(next_xid=lambda: 7, send=messages.append)
    session: Any = SimpleNamespace(connection=connection, node="n1")
    handler = TooBig(lambda node, family: limit(family))
    asked = packet_in(frame(4, UDP() / Raw(bytes(1472))))
    handler(session, asked)
    answer = too_big(asked, limit)
    assert answer is not None
    assert messages == [encode.packet_out(7, answer.frame, answer.actions)]
    handler(session, packet_in(b"\0"))
    assert (handler.told, handler.ignored) == (1, 1)


def test_the_limit_is_the_mtu_of_the_nodes_pods_and_the_address_its_gateway() -> None:
    settings = objects.operator(traffic_mode=TrafficMode.ENCAP, tunnel=Tunnel.GENEVE)
    node = objects.node("n1", ("10.10.1.0/24",), ("192.168.77.101/24",), mtu=9000)
    facts = objects.compiled(settings, node).facts
    assert tunnel_limit(facts, "n1", 4) == Limit(parse_ip("10.10.1.1"), 8950)
    assert tunnel_limit(facts, "n1", 6) is None
    assert tunnel_limit(facts, "n9", 4) is None
