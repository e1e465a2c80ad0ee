"""Bytes that are not OpenFlow raise DecodeError and nothing else."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import readback
from controller.encode import Xids, encode_flow, encode_group, encode_unit
from controller.fake_tables import FakeFlow, FakeGroup, FlowId, flow_desc, group_desc
from controller.readback import DecodeError, FlowRow
from pipelines.unit import FLEET, Unit, UnitKey
from tests.codec import samples

LISTS = (readback.flows, readback.groups, readback.ports, readback.meters)
SINGLES = (
    readback.port_status,
    readback.role,
    readback.features,
    readback.packet_in,
    readback.flow_removed,
    readback.bundle_reply,
    readback.error,
)
HEADER = bytes((6, 19)) + bytes(14)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for read_list in LISTS:
        for message in (data, HEADER + data):
            with suppress(DecodeError):
                list(read_list(message))
    for read in SINGLES:
        for message in (data, HEADER[:8] + data):
            with suppress(DecodeError):
                read(message)
    readback.speaks(data, 6)


def flow_reply(sample) -> bytes:
    """As the fake switch would answer, which was written without this codec."""
    flow = encode_flow(sample, 0, 1)
    length = 4 + len(flow.key) - 3
    match = b"\0\1" + length.to_bytes(2, "big") + flow.key[3:]
    key = FlowId(sample.table, sample.priority, match)
    there = FakeFlow(flow.cookie, sample.idle_timeout, sample.hard_timeout, 0, 0, flow.instructions)
    return HEADER + flow_desc(key, there)


@given(samples.flows())
def test_flow_that_a_fake_answers_is_the_one_that_was_encoded(sample):
    unit = encode_unit(UnitKey("x", FLEET, ""), 0, Unit((sample,)), None, Xids())
    encoded = next(iter(unit.flows.values()))
    (row,) = readback.flows(flow_reply(sample))
    assert row.key == encoded.key
    assert readback.same_instructions(row, encoded)


@given(samples.flows(), st.integers(0, 400), st.integers(0, 255))
def test_flow_with_one_wrong_byte_is_read_or_refused(sample, position, byte):
    reply = bytearray(flow_reply(sample))
    reply[position % len(reply)] = byte
    with suppress(DecodeError):
        for row in readback.flows(bytes(reply)):
            readback.decode_flow(row)


@given(samples.flows(), st.integers(1, 100))
def test_flow_that_ends_early_is_refused(sample, missing):
    reply = flow_reply(sample)
    with pytest.raises(DecodeError):
        list(readback.flows(reply[: max(17, len(reply) - missing)]))


@given(st.binary(max_size=120), st.binary(max_size=120))
def test_any_bytes_as_match_and_instructions_are_decoded_or_refused(match, instructions):
    with suppress(DecodeError):
        readback.decode_flow(FlowRow(bytes(3) + match, 0, 0, 0, match, instructions))


@given(samples.groups(), st.integers(0, 200), st.integers(0, 255))
def test_group_with_one_wrong_byte_is_read_or_refused(group, position, byte):
    content = bytearray(encode_group(group, 1).content)
    content[position % len(content)] = byte
    with suppress(DecodeError):
        readback.decode_group(group.id, bytes(content))


@given(st.binary(max_size=120))
def test_any_bytes_as_a_group_are_decoded_or_refused(content):
    with suppress(DecodeError):
        readback.decode_group(7, content)


@given(samples.groups())
def test_group_that_a_fake_answers_is_the_one_that_was_encoded(group):
    encoded = encode_group(group, 1)
    buckets = int.from_bytes(encoded.message[32:34], "big")
    there = FakeGroup(1, encoded.content[1 : 1 + buckets], encoded.content[1 + buckets :])
    (row,) = readback.groups(HEADER + group_desc(group.id, there))
    assert (row.id, row.content) == (group.id, encoded.content)


def test_own_flow_in_other_bytes_is_drift():
    """A condition on one 32-bit register is right OpenFlow, and not how we or a switch would write it."""
    match = bytes.fromhex("00010004") + bytes(4)
    with pytest.raises(DecodeError, match="other bytes"):
        readback.decode_flow(FlowRow(bytes(3) + match, 0, 0, 0, match, b""))
