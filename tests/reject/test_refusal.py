"""What clients of nothing are told: checked against Scapy, which reads and sums headers by itself."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    ICMPv6TimeExceeded,
    ICMPv6Unknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkAbort, SCTPChunkInit
from scapy.packet import Packet, Raw

from controller import encode
from controller.connection import ConnectionLost, TimedOut
from controller.readback import PacketIn
from controller.reject import Refuser, refusal
from pipelines.actions import Output, load
from pipelines.fields import ENTERED_BY, Entered
from pipelines.tables import ROUTE, resubmit

CLIENT_MAC, ASKED_MAC = "0a:58:0a:0a:01:0a", "0a:00:00:00:00:01"
CLIENT = {4: "10.10.1.10", 6: "fd00:10:1::10"}
ASKED = {4: "10.96.0.10", 6: "fd00:96::10"}


def ip(family: int, **fields: Any) -> Packet:
    kind = IP if family == 4 else IPv6
    return kind(**{"src": CLIENT[family], "dst": ASKED[family]} | fields)


def frame(packet: Packet, **fields: Any) -> bytes:
    return bytes(Ether(**{"src": CLIENT_MAC, "dst": ASKED_MAC} | fields) / packet)


def answered(asked: bytes) -> Packet:
    """The answer, read by Scapy; its checksums, lengths and addresses are what Scapy would have written."""
    raw = refusal(asked)
    assert raw is not None
    answer = Ether(raw)
    assert (answer.src, answer.dst) == (ASKED_MAC, CLIENT_MAC)
    family = 4 if IP in answer else 6
    assert (answer[1].src, answer[1].dst) == (ASKED[family], CLIENT[family])
    outer, inner = answer[1].copy(), Ether(raw)[1].payload
    inner.payload = Raw(bytes(inner.payload))  # quoted packets stay as they are, also cut or wrong ones
    for layer, fields in ((outer, ("chksum", "len", "plen")), (inner, ("chksum", "cksum"))):
        for field in fields:
            if field in layer.fields:
                delattr(layer, field)
    outer.remove_payload()
    assert bytes(outer / inner) == raw[14:]
    return answer


both = pytest.mark.parametrize("family", [4, 6])


@both
def test_a_connection_request_is_reset_and_its_sequence_number_acknowledged(family: int) -> None:
    reset = answered(frame(ip(family) / TCP(sport=1234, dport=80, seq=1000, flags="S")))[TCP]
    assert (reset.sport, reset.dport, reset.flags) == (80, 1234, "RA")
    assert (reset.seq, reset.ack, reset.window, reset.dataofs) == (0, 1001, 0, 5)


@both
def test_a_reset_acknowledges_data_and_fin_as_well_modulo_2_to_the_32(family: int) -> None:
    options = [("MSS", 1460), ("NOP", None)]
    tcp = TCP(sport=1234, dport=80, seq=0xFFFFFFFF, flags="SF", options=options)
    assert answered(frame(ip(family) / tcp / Raw(b"abc")))[TCP].ack == 4


@both
def test_a_segment_of_an_unknown_connection_is_reset_with_the_number_it_expects(family: int) -> None:
    tcp = TCP(sport=1234, dport=80, seq=5, ack=77, flags="PA")
    reset = answered(frame(ip(family) / tcp / Raw(b"data")))[TCP]
    assert (reset.flags, reset.seq, reset.ack) == ("R", 77, 0)


@both
def test_the_length_of_a_cut_segment_is_taken_from_its_headers(family: int) -> None:
    whole = frame(ip(family) / TCP(sport=1234, dport=80, seq=0, flags="S") / Raw(bytes(1000)))
    assert answered(whole[:256])[TCP].ack == 1001


def test_padding_of_a_short_frame_is_not_data() -> None:
    short = frame(ip(4) / TCP(sport=1234, dport=80, seq=10, flags="S")) + bytes(6)
    assert answered(short)[TCP].ack == 11


@both
@pytest.mark.parametrize("flags", ["R", "RA", "RS"])
def test_a_reset_is_never_answered(family: int, flags: str) -> None:
    assert refusal(frame(ip(family) / TCP(sport=1234, dport=80, flags=flags))) is None


@both
@pytest.mark.parametrize("size", [0, 1, 20, 101])
def test_a_datagram_gets_port_unreachable_that_quotes_it_whole(family: int, size: int) -> None:
    asked = frame(ip(family) / UDP(sport=1234, dport=53) / Raw(bytes(range(size))))
    answer = answered(asked)
    if family == 4:
        assert (answer[ICMP].type, answer[ICMP].code) == (3, 3)
        assert bytes(answer[ICMP])[8:] == asked[14:]
    else:
        assert (answer[ICMPv6DestUnreach].type, answer[ICMPv6DestUnreach].code) == (1, 4)
        assert bytes(answer[ICMPv6DestUnreach])[8:] == asked[14:]


@both
def test_of_a_cut_datagram_what_is_there_is_quoted(family: int) -> None:
    asked = frame(ip(family) / UDP(sport=1234, dport=53) / Raw(bytes(1000)))[:256]
    assert bytes(answered(asked)[1].payload)[8:] == asked[14:]


@both
def test_an_error_is_no_longer_than_the_standards_allow(family: int) -> None:
    answer = answered(frame(ip(family) / UDP(sport=1234, dport=53) / Raw(bytes(1300))))
    assert len(bytes(answer[1])) == (576 if family == 4 else 1280)


@both
def test_sctp_and_unknown_protocols_get_port_unreachable_too(family: int) -> None:
    init = SCTP(sport=1234, dport=36412) / SCTPChunkInit()
    assert answered(frame(ip(family) / init))[1].payload.type == (3 if family == 4 else 1)
    unknown = frame(ip(family, **{"proto" if family == 4 else "nh": 253}) / Raw(b"12345678"))
    assert answered(unknown)[1].payload.type == (3 if family == 4 else 1)


@both
def test_an_sctp_abort_is_never_answered(family: int) -> None:
    assert refusal(frame(ip(family) / SCTP(sport=1, dport=2) / SCTPChunkAbort())) is None


def test_options_of_the_ipv4_header_are_skipped_and_quoted() -> None:
    asked = frame(IP(src=CLIENT[4], dst=ASKED[4], options=b"\x01\x01\x01\x00") / UDP(dport=53) / Raw(b"x"))
    assert bytes(answered(asked)[ICMP])[8:] == asked[14:]


EXTENSIONS = {
    "hop by hop": IPv6ExtHdrHopByHop(),
    "destination": IPv6ExtHdrDestOpt(),
    "first fragment": IPv6ExtHdrFragment(offset=0, m=1, id=7),
    "route without a hop left": IPv6ExtHdrRouting(addresses=["fd00::9"], segleft=0),
    "authentication": AH(nh=6, payloadlen=4, spi=1, seq=1, icv=b"123456789012"),
    "several": IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment(offset=0, m=1, id=7),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_headers_are_walked_to_the_port(name: str) -> None:
    syn = TCP(sport=1234, dport=80, seq=1000, flags="S")
    reset = answered(frame(ip(6) / EXTENSIONS[name] / syn))
    assert (reset[IPv6].nh, reset[TCP].dport, reset[TCP].ack) == (6, 1234, 1001)


def test_endless_extension_headers_are_not_walked() -> None:
    packet = ip(6)
    for _ in range(20):
        packet /= IPv6ExtHdrDestOpt()
    assert refusal(frame(packet / TCP(flags="S"))) is None


ERRORS_AND_ANSWERS = {
    "unreachable": IP(src=CLIENT[4], dst=ASKED[4]) / ICMP(type=3, code=3) / ip(4) / UDP(),
    "time exceeded": IP(src=CLIENT[4], dst=ASKED[4]) / ICMP(type=11) / ip(4) / UDP(),
    "redirect": IP(src=CLIENT[4], dst=ASKED[4]) / ICMP(type=5) / ip(4) / UDP(),
    "echo reply": IP(src=CLIENT[4], dst=ASKED[4]) / ICMP(type=0),
    "unreachable6": ip(6) / ICMPv6DestUnreach(code=4) / ip(6) / UDP(),
    "time exceeded6": ip(6) / ICMPv6TimeExceeded() / ip(6) / UDP(),
    "solicitation": ip(6) / ICMPv6ND_NS(tgt=ASKED[6]),
    "unknown6": ip(6) / ICMPv6Unknown(type=200, msgbody=b"12345678"),
    "unknown error6": ip(6) / ICMPv6Unknown(type=100, msgbody=b"12345678"),
}


@pytest.mark.parametrize("name", ERRORS_AND_ANSWERS)
def test_icmp_errors_and_answers_are_never_answered(name: str) -> None:
    assert refusal(frame(ERRORS_AND_ANSWERS[name])) is None


def test_a_ping_may_be_refused() -> None:
    assert answered(frame(ip(4) / ICMP(type=8)))[ICMP].code == 3
    assert answered(frame(ip(6) / ICMPv6EchoRequest()))[ICMPv6DestUnreach].code == 4


SYN = TCP(sport=1234, dport=80, flags="S")
NEVER = {
    "from the broadcast address": frame(ip(4, src="255.255.255.255") / SYN),
    "from a multicast address": frame(ip(4, src="224.0.0.1") / SYN),
    "from no address": frame(ip(4, src="0.0.0.0") / SYN),
    "from a loopback address": frame(ip(4, src="127.0.0.1") / SYN),
    "from a reserved address": frame(ip(4, src="240.0.0.1") / SYN),
    "to a multicast address": frame(ip(4, dst="239.1.1.1") / UDP() / Raw(b"x")),
    "to the broadcast address": frame(ip(4, dst="255.255.255.255") / UDP() / Raw(b"x")),
    "from itself": frame(ip(4, src=ASKED[4]) / SYN),
    "from a multicast address of IPv6": frame(ip(6, src="ff02::1") / SYN),
    "from the unspecified address": frame(ip(6, src="::") / SYN),
    "from the loopback address of IPv6": frame(ip(6, src="::1") / SYN),
    "to a multicast address of IPv6": frame(ip(6, dst="ff02::1") / UDP() / Raw(b"x")),
    "to every station": frame(ip(4) / SYN, dst="ff:ff:ff:ff:ff:ff"),
    "to a group of stations": frame(ip(6) / SYN, dst="33:33:00:00:00:01"),
    "from a group of stations": frame(ip(4) / SYN, src="01:00:5e:00:00:01"),
    "from no station": frame(ip(4) / SYN, src="00:00:00:00:00:00"),
    "later fragment": frame(ip(4, frag=1, proto=6) / Raw(bytes(SYN))),
    "later fragment of IPv6": frame(ip(6) / IPv6ExtHdrFragment(offset=1, nh=6) / Raw(bytes(SYN))),
    "source route": frame(ip(6) / IPv6ExtHdrRouting(addresses=["fd00::9"], segleft=1) / SYN),
    "no next header": frame(ip(6, nh=59) / Raw(bytes(SYN))),
    "wrong version": frame(IP(src=CLIENT[4], dst=ASKED[4], version=5) / SYN),
    "wrong version of IPv6": frame(IPv6(src=CLIENT[6], dst=ASKED[6], version=4) / SYN),
    "header shorter than a header": frame(IP(src=CLIENT[4], dst=ASKED[4], ihl=4) / SYN),
    "packet shorter than its header": frame(IP(src=CLIENT[4], dst=ASKED[4], len=19) / SYN),
    "TCP header shorter than a header": frame(ip(4) / TCP(flags="S", dataofs=4)),
    "TCP header longer than the packet": frame(ip(4) / TCP(flags="S", dataofs=15)),
    "TCP header that the packet does not hold": frame(IP(src=CLIENT[4], dst=ASKED[4], len=30) / SYN),
    "datagram shorter than its header": frame(ip(4) / UDP(len=7) / Raw(b"x")),
    "four bytes of a datagram": frame(ip(4, proto=17) / Raw(b"1234")),
    "tagged": frame(Dot1Q(vlan=7) / ip(4) / SYN),
    "ARP": frame(ARP(psrc=CLIENT[4], pdst=ASKED[4])),
    "empty": b"",
}


@pytest.mark.parametrize("name", NEVER)
def test_what_must_not_be_answered_is_not(name: str) -> None:
    assert refusal(NEVER[name]) is None


@both
def test_a_frame_cut_within_its_headers_is_not_answered(family: int) -> None:
    asked = frame(ip(family) / TCP(flags="S"))
    assert refusal(asked) is not None
    assert [size for size in range(len(asked)) if refusal(asked[:size]) is not None] == []


# --- any bytes ---------------------------------------------------------------------------------------------


HEADS = [NEVER["later fragment"], frame(ip(6) / EXTENSIONS["several"] / SYN), frame(ip(6) / UDP()), frame(ip(4) / SYN)]


def spoiled(head: bytes) -> st.SearchStrategy[bytes]:
    """A good frame with some bytes changed, its end cut off, and others appended."""
    changed = st.lists(st.tuples(st.integers(0, len(head) - 1), st.integers(0, 255)), max_size=6)

    def build(changes: list[tuple[int, int]], size: int, tail: bytes) -> bytes:
        found = bytearray(head)
        for at, value in changes:
            found[at] = value
        return bytes(found[:size]) + tail

    return st.builds(build, changed, st.integers(0, len(head)), st.binary(max_size=40))


@settings(max_examples=400)
@given(st.one_of(st.binary(max_size=120), st.sampled_from(HEADS).flatmap(spoiled)))
def test_any_bytes_are_answered_or_not_but_never_an_error(raw: bytes) -> None:
    answer = refusal(raw)
    if answer is not None:
        assert answer[:12] == raw[6:12] + raw[:6]
        assert refusal(answer) is None, "an answer is answered: two controllers would never stop"


@settings(max_examples=200)
@given(st.binary(min_size=0, max_size=300), st.sampled_from([4, 6]), st.integers(0, 65535))
def test_checksums_are_right_whatever_is_quoted(payload: bytes, family: int, sport: int) -> None:
    answered(frame(ip(family) / UDP(sport=sport, dport=53) / Raw(payload)))
    seq = int.from_bytes(payload[:4])
    answered(frame(ip(family) / TCP(sport=sport, dport=80, seq=seq, flags="S")))


@both
def test_a_checksum_that_comes_to_nothing_is_written_as_zero(family: int) -> None:
    """Zero has two forms in ones' complement; RFC 1071's sum of something is never the other one."""
    asked = frame(ip(family) / TCP(sport=1234, dport=80, seq=0, flags="S"))
    sequence = asked.index(bytes(Ether(asked)[TCP])) + 4
    for seq in range(0x10000):
        answer = refusal(asked[:sequence] + struct.pack("!I", seq) + asked[sequence + 4 :])
        assert answer is not None
        assert answer[-4:-2] != b"\xff\xff"
        if answer[-4:-2] == b"\0\0":
            answered(asked[:sequence] + struct.pack("!I", seq) + asked[sequence + 4 :])
            return
    raise AssertionError("no sequence number leads to zero")


# --- the handler -------------------------------------------------------------------------------------------


class Sent(SimpleNamespace):
    """A connection that keeps what is sent, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(messages=[], failure=failure)

    def next_xid(self) -> int:
        return 77

    def send(self, message: bytes) -> None:
        if self.failure:
            raise self.failure
        self.messages.append(message)


def session(connection: Sent) -> Any:
    return SimpleNamespace(connection=connection)


def packet_in(data: bytes, in_port: int = 5) -> PacketIn:
    return PacketIn(table=41, cookie=0, in_port=in_port, reason=1, data=data)


@pytest.mark.parametrize("in_port", [5, 0xFFFFFFFE])
def test_the_answer_leaves_by_the_port_that_the_question_came_by(in_port: int) -> None:
    """With the controller as its own port: out by a packet's in_port a switch sends nothing."""
    sent, refuser, asked = Sent(), Refuser(), frame(ip(4) / SYN)
    refuser(session(sent), packet_in(asked, in_port))
    (message,) = sent.messages
    assert (message[1], int.from_bytes(message[2:4]), message[4:8]) == (13, len(message), struct.pack("!I", 77))
    answer = refusal(asked)
    assert answer is not None
    assert message.endswith(answer)
    assert struct.pack("!HHII", 1, 12, 0x80000004, 0xFFFFFFFD) in message  # matched port: CONTROLLER
    assert struct.pack("!HHI", 0, 16, in_port) in message  # action: output
    assert message == encode.packet_out(77, answer, (Output(in_port),))
    assert (refuser.refused, refuser.ignored) == (1, 0)


def test_what_came_by_tunnel_is_answered_by_the_way_that_leads_to_its_pod() -> None:
    """A port of tunnels by itself leads nowhere."""
    sent, refuser, asked = Sent(), Refuser(), frame(ip(4) / SYN)
    refuser(session(sent), packet_in(asked)._replace(metadata={(0x8001, 0): Entered.TUNNEL << 32}))
    answer = refusal(asked)
    assert answer is not None
    routed = encode.packet_out(77, answer, (load(ENTERED_BY, Entered.TUNNEL), resubmit(ROUTE)))
    assert sent.messages == [routed]


@pytest.mark.parametrize("packet", [packet_in(b""), packet_in(NEVER["from itself"]), packet_in(frame(ip(4) / SYN), 0)])
def test_what_is_not_answered_is_counted_and_nothing_is_sent(packet: PacketIn) -> None:
    sent, refuser = Sent(), Refuser()
    refuser(session(sent), packet)
    assert sent.messages == []
    assert (refuser.refused, refuser.ignored) == (0, 1)


@pytest.mark.parametrize("failure", [ConnectionLost("gone"), TimedOut("does not read")])
def test_a_switch_that_has_gone_or_does_not_read_is_survived(failure: Exception) -> None:
    refuser = Refuser()
    refuser(session(Sent(failure)), packet_in(frame(ip(4) / SYN)))
    assert (refuser.refused, refuser.ignored) == (0, 1)
