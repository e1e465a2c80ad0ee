"""Flows and groups: frozen values that never send themselves.

A flow's `key` (table, priority, match) is what OpenFlow means by identity: two flows with one key are one
flow. `str(flow)` is ovs-ofctl's syntax in our one canonical spelling (`text`).
"""

from msgspec import Struct

from pipelines.actions import Action, Resubmit, SetField
from pipelines.fields import FIELDS, Field, Item, Part

FlowKey = tuple[int, int, tuple[Item, ...]]

_ORDER: dict[Field | Part, int] = {field: position for position, field in enumerate(FIELDS.values())}
_position = _ORDER.__getitem__


def match(*items: Item) -> tuple[Item, ...]:
    """Conditions on parts become masked conditions on their registers; order is that of `fields`.

    Raises ValueError when two conditions contradict each other.
    """
    merged: dict[Field | Part, Item] = {}  # by field; parts have become their fields
    for said in items:
        if said.mask == 0:
            continue
        field = said.field
        item = said
        if isinstance(field, Part):
            item, field = _whole(said, field), field.field
        known = merged.get(field)
        merged[field] = item if known is None else _both(known, item)
    return tuple([merged[field] for field in sorted(merged, key=_position)])


def _whole(item: Item, part: Part) -> Item:
    """A condition on a part as one on its register."""
    mask = ((1 << part.bits) - 1 if item.mask is None else item.mask) << part.low
    return Item(part.field, item.value << part.low, None if mask == part.field.ones else mask)


def _both(one: Item, two: Item) -> Item:
    field = one.field
    one_mask = (1 << field.bits) - 1 if one.mask is None else one.mask
    two_mask = (1 << field.bits) - 1 if two.mask is None else two.mask
    if (one.value ^ two.value) & one_mask & two_mask:
        raise ValueError(f"a match on {field.name} contradicts itself")
    mask = one_mask | two_mask
    return Item(field, one.value | two.value, None if mask == (1 << field.bits) - 1 else mask)


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
