"""The layout of registers and connection marks, and conditions on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import fields as f
from pipelines.actions import load, move
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.fields import Field, Item, Part, ct_state, overlaps, register_bits
from pipelines.flow import match


def part(name: str, field: Field, low: int, bits: int, first: int = 0, last: int = 255) -> Part:
    return Part(name, field, low, bits, first, last)


def test_the_declared_parts_do_not_overlap() -> None:
    assert overlaps(f.PARTS) == []
    assert len(f.PARTS) > 10


@pytest.mark.parametrize(
    ("one", "two", "found"),
    [
        (part("A", f.REGS[9], 0, 8), part("B", f.REGS[9], 7, 8), True),
        (part("A", f.REGS[9], 0, 8), part("B", f.REGS[9], 8, 8), False),
        (part("A", f.REGS[9], 0, 8), part("B", f.REGS[10], 0, 8), False),
        (part("A", f.REGS[9], 0, 8, last=40), part("B", f.REGS[9], 0, 8, first=41), False),
        (part("A", f.REGS[9], 0, 8, last=41), part("B", f.REGS[9], 0, 8, first=41), True),
        (part("A", f.REGS[2], 0, 1), part("B", f.XREGS[1], 32, 1), True),  # the first register is the high half
        (part("A", f.REGS[2], 0, 1), part("B", f.XREGS[1], 0, 1), False),
        (part("A", f.REGS[3], 0, 1), part("B", f.XREGS[1], 0, 1), True),
        (part("A", f.REGS[4], 31, 1), part("B", f.XXREGS[1], 127, 1), True),
        (part("A", f.REGS[7], 0, 1), part("B", f.XXREGS[1], 0, 1), True),
        (part("A", f.XREGS[3], 63, 1), part("B", f.XXREGS[1], 63, 1), True),
        (part("A", f.XREGS[2], 0, 1), part("B", f.XXREGS[1], 0, 1), False),
        (part("A", f.REGS[0], 0, 4), part("B", f.CT_MARK, 0, 4), False),
        (part("A", f.CT_MARK, 0, 4), part("B", f.CT_MARK, 3, 4), True),
        (part("A", f.CT_LABEL, 0, 48), part("B", f.CT_LABEL, 48, 16), False),
    ],
)
def test_parts_overlap_when_they_share_bits_in_a_table_where_both_live(one: Part, two: Part, found: bool) -> None:
    assert overlaps([one, two]) == (["A and B"] if found else [])
    assert bool(overlaps([two, one])) == found


def test_a_part_that_is_added_over_a_declared_one_is_found() -> None:
    assert overlaps([*f.PARTS, part("MINE", f.REGS[3], 5, 1, 40, 40)]) == ["ENDPOINT_IP4 and MINE"]
    assert overlaps([*f.PARTS, part("MINE", f.REGS[6], 5, 1, 50, 50)]) == ["ENDPOINT_IP6 and MINE"]
    assert overlaps([*f.PARTS, part("MINE", f.REGS[15], 5, 1)]) == []


def test_every_width_of_register_covers_the_same_bits() -> None:
    for wide in range(4):
        whole = register_bits(f.XXREGS[wide], 0, 128)[1]
        halves = [register_bits(f.XREGS[2 * wide + at], 0, 64)[1] for at in range(2)]
        quarters = [register_bits(f.REGS[4 * wide + at], 0, 32)[1] for at in range(4)]
        assert halves[0] | halves[1] == whole == quarters[0] | quarters[1] | quarters[2] | quarters[3]
        assert halves[0] == quarters[0] | quarters[1]
        assert whole.bit_count() == 128


def test_what_a_connection_remembers_has_the_same_layout_in_register_and_mark() -> None:
    pairs = (
        (f.ENTERED_BY, f.CT_ENTERED_BY),
        (f.SERVICE, f.CT_SERVICE),
        (f.LEARNED, f.CT_LEARNED),
        (f.SNAT_KIND, f.CT_SNAT_KIND),
    )
    for register, mark in (*pairs, (f.CONNECTION_FACTS, f.CT_CONNECTION_FACTS)):
        assert (register.low, register.bits) == (mark.low, mark.bits)
    for register, _ in pairs:
        inside = register_bits(register.field, register.low, register.bits)[1]
        assert inside & register_bits(f.CONNECTION_FACTS.field, 0, 12)[1] == inside


def test_every_kind_fits_its_bits() -> None:
    for kinds, held in ((f.Entered, f.ENTERED_BY), (f.Snat, f.SNAT_KIND), (f.Place, f.PLACE), (f.Egress, f.EGRESS)):
        assert max(kinds) < 1 << held.bits


def test_conditions_on_parts_of_one_register_become_one_masked_condition() -> None:
    (item,) = match(f.SNAT_KIND.eq(2), f.ENTERED_BY.eq(3))
    assert item == Item(f.REGS[0], 0x203, 0xF0F)


def test_a_condition_on_all_bits_has_no_mask_and_one_on_none_vanishes() -> None:
    assert match(f.REGS[5].masked(7, 0xFFFFFFFF)) == (Item(f.REGS[5], 7, None),)
    assert match(f.OUT_PORT.eq(7)) == (Item(f.REGS[1], 7, None),)
    assert match(f.IP4, *f.source(parse_cidr("0.0.0.0/0"))) == match(f.IP4)


def test_the_order_in_which_conditions_are_said_does_not_matter() -> None:
    said = [f.IP4, f.IP_PROTO.eq(6), f.TCP_DST.eq(80), f.ENTERED_BY.eq(2), *f.destination(parse_ip("10.0.0.1"))]
    assert match(*said) == match(*reversed(said))


def test_conditions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="nw_proto contradicts"):
        match(f.IP_PROTO.eq(6), f.IP_PROTO.eq(17))
    with pytest.raises(ValueError, match="reg0 contradicts"):
        match(f.ENTERED_BY.eq(1), f.ENTERED_BY.eq(2))


def test_a_value_that_does_not_fit_is_refused() -> None:
    for value in (16, -1):
        with pytest.raises(ValueError, match="ENTERED_BY"):
            f.ENTERED_BY.eq(value)
        with pytest.raises(ValueError, match="ENTERED_BY"):
            load(f.ENTERED_BY, value)


def test_only_parts_of_one_width_are_copied() -> None:
    assert move(f.CLIENT_MAC, f.ETH_DST).target is f.ETH_DST
    with pytest.raises(ValueError, match="48 bits"):
        move(f.CLIENT_MAC, f.OUT_PORT)


@given(st.dictionaries(st.sampled_from(sorted(f.CT_STATE_BITS)), st.booleans(), min_size=1))
def test_a_connection_state_is_read_as_ovs_ofctl_spells_it(flags: dict[str, bool]) -> None:
    item = ct_state("".join(("+" if is_set else "-") + name for name, is_set in flags.items()))
    assert item.mask == sum(f.CT_STATE_BITS[name] for name in flags)
    assert item.value == sum(f.CT_STATE_BITS[name] for name, is_set in flags.items() if is_set)
