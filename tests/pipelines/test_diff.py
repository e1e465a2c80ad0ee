"""The net of many units: nothing that is still wanted is ever deleted."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.diff import net

VALUES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3))


def test_a_key_that_moves_to_another_owner_is_overwritten_and_not_deleted() -> None:
    difference = net([{"a": 1}, {}], [{}, {"a": 2}])
    assert (difference.add, difference.remove) == ({"a": 2}, {})


def test_a_key_that_moves_unchanged_is_not_touched() -> None:
    assert net([{"a": 1}, {}], [{}, {"a": 1}]) == ({}, {})


def test_what_is_gone_is_removed_as_it_was() -> None:
    assert net([{"a": 1, "b": 2}], [{"b": 2}]) == ({}, {"a": 1})


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_applying_the_net_leads_from_old_to_new(old: list[dict[str, int]], new: list[dict[str, int]]) -> None:
    table = {key: value for values in old for key, value in values.items()}
    wanted = {key: value for values in new for key, value in values.items()}
    difference = net(old, new)
    assert difference.add.keys().isdisjoint(difference.remove)
    for key, value in difference.remove.items():
        assert table.pop(key) == value
    assert all(table.get(key) != value for key, value in difference.add.items())
    table.update(difference.add)
    assert table == wanted
