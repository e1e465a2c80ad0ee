"""Cookies and group ids: the same for the same cluster, whatever came before."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import ids
from pipelines.ids import FIRST_GROUP, LAST_GROUP, GroupIds, cookie, learned_cookie, owner_hash, split_cookie

OWNERS = [f"default/service-{number} http TCP 4" for number in range(12)]


def assigned(owners: set[str], bits: int) -> dict[str, int]:
    fresh = GroupIds(bits)
    fresh.update(owners)
    return {owner: fresh[owner] for owner in owners}


def held(numbers: GroupIds) -> dict[str, int]:
    return {owner: number for owner in OWNERS if (number := numbers.get(owner)) is not None}


@given(st.integers(1, 127), st.text(max_size=40), st.integers(0, 2**32 - 1))
def test_a_cookie_splits_into_what_it_was_made_of(feature: int, owner: str, digest: int) -> None:
    made = cookie(feature, owner, digest)
    assert made < 1 << 64
    assert split_cookie(made) == (feature, False, owner_hash(owner), digest)


@given(st.integers(1, 127), st.text(max_size=40))
def test_a_learned_flows_cookie_is_known_as_ours_and_as_learned(feature: int, owner: str) -> None:
    made = learned_cookie(feature, owner)
    assert (split_cookie(made) or ())[:3] == (feature, True, owner_hash(owner))
    assert made != learned_cookie(feature, owner + "x")  # flows of one cookie are deleted together
    assert made & ids.OWN_COOKIE_MASK == ids.OWN_COOKIE
    assert made & ids.NOT_LEARNED_MASK != ids.OWN_COOKIE
    assert cookie(feature, owner, 5) & ids.NOT_LEARNED_MASK == ids.OWN_COOKIE


@pytest.mark.parametrize("foreign", [0, 1, 0x5A << 56, 0x5C << 56, 0xFFFFFFFFFFFFFFFF])
def test_a_foreign_cookie_is_not_ours(foreign: int) -> None:
    assert split_cookie(foreign) is None


@hypothesis.settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sets(st.sampled_from(OWNERS)), st.sets(st.sampled_from(OWNERS))), max_size=10),
    st.sampled_from((4, 5, 24)),
)
def test_group_ids_depend_on_the_set_of_owners_alone(steps: list[tuple[set[str], set[str]]], bits: int) -> None:
    numbers, present = GroupIds(bits), set[str]()
    before: dict[str, int] = {}
    for add, remove in steps:
        moved = numbers.update(add, remove)
        present = (present - remove) | add
        now = held(numbers)
        assert now == assigned(present, bits)
        changed = {owner for owner in now.keys() | before.keys() if now.get(owner) != before.get(owner)}
        assert changed <= moved
        before = now


def test_colliding_owners_get_different_ids_in_the_reserved_range() -> None:
    found = assigned(set(OWNERS), bits=4)
    assert len(set(found.values())) == len(OWNERS)
    assert all(FIRST_GROUP <= number < FIRST_GROUP + 16 for number in found.values())
    assert FIRST_GROUP + 15 <= LAST_GROUP


def test_an_id_does_not_depend_on_who_left() -> None:
    """Also where somebody had to give way to one that is gone now."""
    numbers = GroupIds(bits=1)
    for first in OWNERS:
        for second in OWNERS:
            if first != second:
                numbers.update([first, second], held(numbers))
                numbers.update((), [first])
                assert numbers[second] == assigned({second}, bits=1)[second]


def test_more_owners_than_ids_are_refused() -> None:
    numbers = GroupIds(bits=1)
    numbers.update(OWNERS[:2])
    before = held(numbers)
    with pytest.raises(ValueError, match="3 groups do not fit in 2 ids"):
        numbers.update(OWNERS[2:3])
    assert held(numbers) == before


def test_ids_are_the_same_in_every_release() -> None:
    """They are in switches: another hash would rewrite every group at the next start."""
    assert assigned({OWNERS[0]}, 24) == {OWNERS[0]: 0x5B6F28F9}
    assert owner_hash("default/web") == 0x1CBC
