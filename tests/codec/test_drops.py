"""Flows that drop, and how many packets they met, as a switch tells in a flow-desc reply."""

import struct
import time
from collections.abc import Iterator

import pytest

from controller import encode, readback
from controller.encode import Xids, encode_unit
from controller.readback import DecodeError
from pipelines import fields as f
from pipelines.tables import CLASSIFY, DESTINATION, goto
from pipelines.unit import FLEET, Unit, UnitKey
from tests.codec.openvswitch import OpenVSwitch, Wire

DURATION, PACKETS, BYTES = 0x80020008, 0x80020808, 0x80020A08
IPV4 = bytes.fromhex("4500002800000000401100000a0000010a000002")
GOTO = struct.pack("!HHB3x", 1, 8, 30)


def statistics(*counts: tuple[int, int]) -> bytes:
    listed = b"".join(struct.pack("!IQ", header, value) for header, value in counts)
    return struct.pack("!HH", 0, 4 + len(listed)) + listed + bytes(-(4 + len(listed)) % 8)


def flow(table: int, priority: int, stats: bytes, instructions: bytes = b"") -> bytes:
    match = struct.pack("!HH4x", 1, 4)
    length = 24 + len(match) + len(stats) + len(instructions)
    return struct.pack("!H2xBxHHHHHQ", length, table, priority, 0, 0, 0, 0, 1) + match + stats + instructions


def reply(*flows: bytes) -> bytes:
    return bytes(16) + b"".join(flows)


def found(*flows: bytes) -> Iterator[tuple[bytes, int]]:
    return readback.dropped(reply(*flows))


def test_only_flows_that_do_nothing_are_counted() -> None:
    stats = statistics((DURATION, 1), (PACKETS, 7), (BYTES, 700))
    data = flow(110, 200, stats), flow(0, 150, stats, GOTO), flow(5, 0, statistics((PACKETS, 0)))
    assert list(found(*data)) == [(b"\x6e\x00\xc8", 7), (b"\x05\x00\x00", 0)]


def test_the_keys_are_those_of_the_flows_that_were_written() -> None:
    data = flow(110, 200, statistics((PACKETS, 1)))
    assert [key for key, _ in found(data)] == [row.key for row in readback.flows(reply(data))]


def test_a_switch_that_counts_nothing_has_dropped_nothing() -> None:
    assert [packets for _, packets in found(flow(110, 200, statistics()), flow(1, 1, statistics((BYTES, 9))))] == [0, 0]


def test_statistics_that_reach_beyond_their_flow_are_refused() -> None:
    broken = bytearray(flow(110, 200, statistics((PACKETS, 7))))
    broken[34:36] = b"\x01\x00"
    with pytest.raises(DecodeError, match="flow statistics of 256 bytes"):
        list(found(bytes(broken)))


@pytest.mark.ovs
def test_a_switch_counts_what_its_flows_drop(switch: OpenVSwitch, wire: Wire) -> None:
    """Real packets by packet-out: of two flows that drop, one is met; one that does something is not listed."""
    flows = CLASSIFY.flow(100, (f.IP4,), goto(DESTINATION)), DESTINATION.flow(200, ()), DESTINATION.flow(100, ())
    unit = encode_unit(UnitKey("sample", FLEET, "x"), 5, Unit(flows), None, Xids())
    assert wire.install(unit) == []
    met = next(key for key in unit.flows if key[:3] == struct.pack("!BH", DESTINATION.id, 200))
    frame = bytes.fromhex("0200000000010200000000020800") + IPV4 + bytes(20)

    def counted() -> dict[bytes, int]:
        parts = wire.parts(encode.flow_desc_request(wire.xid()))
        return {key: packets for part in parts for key, packets in readback.dropped(part)}

    try:
        for _ in range(3):
            switch.ofctl("packet-out", "br0", f"in_port=controller packet={frame.hex()} actions=resubmit(,0)")
        end = time.monotonic() + 20
        while counted()[met] < 3 and time.monotonic() < end:
            time.sleep(0.1)
        assert sorted(counted().values()) == [0, 3]
        assert counted()[met] == 3
    finally:
        assert wire.bundle(map(encode.delete_flow, wire.flows().values())) == []
