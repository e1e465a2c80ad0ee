"""`nat(src=0.0.0.0)`: the same address, and another port when that one is taken."""

import pytest

from controller import encode, readback
from pipelines.actions import Ct, Nat
from pipelines.addresses import parse_ip
from pipelines.fields import IP4
from pipelines.flow import Flow, match


@pytest.mark.parametrize("zero", ["0.0.0.0", "::"])
def test_the_zero_address_is_written_as_no_range_and_read_as_the_zero_address(zero: str) -> None:
    """As ovs-ofctl does: Open vSwitch refuses a zero on the wire (OFPBAC_BAD_ARGUMENT)."""
    flow = Flow(1, 1, match(IP4), (Ct(1, 2, commit=True, nat=Nat("src", parse_ip(zero))),))
    encoded = encode.encode_flow(flow, 0x5B << 56, 1)
    assert encoded.instructions.endswith(bytes.fromhex("ffff 0010 00002320 0024 0000 0001 0000"))
    read = readback.decode_flow(readback.row_of(encoded))
    assert read.actions == (Ct(1, 2, commit=True, nat=Nat("src", parse_ip("0.0.0.0"))),)


def test_the_zero_address_takes_no_port() -> None:
    flow = Flow(1, 1, match(IP4), (Ct(1, 2, commit=True, nat=Nat("src", parse_ip("0.0.0.0"), 80)),))
    with pytest.raises(ValueError, match="beside an address"):
        encode.encode_flow(flow, 0x5B << 56, 1)
