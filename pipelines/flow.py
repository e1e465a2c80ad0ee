"""Flows and groups: frozen values that never send themselves.

A flow's `key` (table, priority, match) is what OpenFlow means by identity: two flows with one key are one
flow. `str(flow)` is ovs-ofctl's syntax in our one canonical spelling (`text`).
"""

from msgspec import Struct

from pipelines.actions import Action, Resubmit, SetField
from pipelines.fields import FIELDS, Field, Item, Part

FlowKey = tuple[int, int, tuple[Item, ...]]

_ORDER = {field: position for position, field in enumerate(FIELDS.values())}


def match(*items: Item) -> tuple[Item, ...]:
    """Conditions on parts become masked conditions on their registers; order is that of `fields`.

    Raises ValueError when two conditions contradict each other.
    """
    merged: dict[Field, tuple[int, int | None]] = {}
    for item in items:
        if isinstance(item.field, Part):
            part = item.field
            field = part.field
            mask: int | None = ((1 << part.bits) - 1 if item.mask is None else item.mask) << part.low
            value = item.value << part.low
            if mask == field.ones:
                mask = None
        else:
            field, value, mask = item.field, item.value, item.mask
        if field in merged:
            value, mask = _both(field, merged[field], (value, mask))
        merged[field] = value, mask
    return tuple(
        Item(field, value, mask)
        for field, (value, mask) in sorted(merged.items(), key=lambda entry: _ORDER[entry[0]])
        if mask != 0
    )


def _both(field: Field, one: tuple[int, int | None], two: tuple[int, int | None]) -> tuple[int, int | None]:
    one_mask = field.ones if one[1] is None else one[1]
    two_mask = field.ones if two[1] is None else two[1]
    if (one[0] ^ two[0]) & one_mask & two_mask:
        raise ValueError(f"a match on {field.name} contradicts itself")
    mask = one_mask | two_mask
    return one[0] | two[0], None if mask == field.ones else mask


class Flow(Struct, frozen=True, gc=False):
    """One row of a table. `match` is merged and in order (see `match`). Times in seconds, 0 for never."""

    table: int
    priority: int
    match: tuple[Item, ...]
    actions: tuple[Action, ...]
    idle_timeout: int = 0
    hard_timeout: int = 0

    @property
    def key(self) -> FlowKey:
        return self.table, self.priority, self.match

    def __str__(self) -> str:
        from pipelines.text import flow_text

        return flow_text(self)


class Bucket(Struct, frozen=True, gc=False):
    """One choice of a group. `id` is stable for one endpoint, so that a hash keeps its choice."""

    id: int
    actions: tuple[SetField | Resubmit, ...]
    weight: int = 1


class Group(Struct, frozen=True, gc=False):
    """A select group. `hash_fields` empty: by the datapath's hash (dp_hash); else by a hash over these fields."""

    id: int
    buckets: tuple[Bucket, ...]
    hash_fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        from pipelines.text import group_text

        return group_text(self)
