"""The net difference between what a switch carries and what it should carry.

Netted by key over all units: a flow that one unit drops and another adds (an address that moved to another
owner) is overwritten and never deleted.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Difference(NamedTuple, Generic[Key, Value]):
    """`add`: to be written, new or over the old; `remove`: to be deleted, as it is now."""

    add: dict[Key, Value]
    remove: dict[Key, Value]


def net(old: Iterable[dict[Key, Value]], new: Iterable[dict[Key, Value]]) -> Difference[Key, Value]:
    """From the old values of some units to their new ones, each a mapping of key to value."""
    before: dict[Key, Value] = {}
    for values in old:
        before.update(values)
    after: dict[Key, Value] = {}
    for values in new:
        after.update(values)
    add = {key: value for key, value in after.items() if before.get(key) != value}
    return Difference(add, {key: value for key, value in before.items() if key not in after})
