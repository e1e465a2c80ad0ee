"""What differs between what a switch holds and what it should hold: counted, and told as text.

A sync after a connect trusts cookies: equal cookie, equal flow. An audit also compares the bytes of the
instructions and of the groups, because somebody may have changed a flow and left its cookie.
"""

from collections import Counter
from collections.abc import Callable, Collection

from msgspec import Struct

from controller import encode, readback
from controller.round import InstalledFlow, InstalledGroup, Rows, Step
from pipelines.text import flow_text, group_text

LINES = 200  # of text; the counts are always complete


class Drift(Struct, frozen=True):
    """`again`: keys of flows to be written although their cookie is there. Counts by kind, absent when 0."""

    counts: dict[str, int]
    again: frozenset[bytes]
    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items())) or "none"


class _Notes:
    """Counts, and lines as long as there are not too many."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []

    def flow(self, kind: str, sign: str, row: InstalledFlow) -> None:
        self.counts[kind] += 1
        if len(self.lines) < LINES:
            self.lines.append(f"{sign} {_flow(row)}")

    def group(self, kind: str, sign: str, group: InstalledGroup) -> None:
        self.counts[kind] += 1
        if len(self.lines) < LINES:
            self.lines.append(f"{sign} {_group(group)}")


def drift(desired: Collection[Step], rows: Rows, pause: Callable[[], None] = lambda: None) -> Drift:
    """`desired`: steps from nothing, one for each unit. Lines begin with + (missing), - (too much) or ~ (other)."""
    notes = _Notes()
    again: set[bytes] = set()
    for step in desired:
        if step.new is not None:
            again |= _compare(step.new, rows, notes)
        pause()
    wanted = {key for step in desired if step.new for key in step.new.flows}
    wanted_groups = {number for step in desired if step.new for number in step.new.groups}
    for key, row in rows.flows.items():
        if key not in wanted:
            notes.flow("flows too many", "-", row)
        pause()
    for number, group in rows.groups.items():
        if number not in wanted_groups:
            notes.group("groups too many", "-", group)
    return Drift(dict(notes.counts), frozenset(again), tuple(notes.lines))


def _compare(unit: encode.EncodedUnit, rows: Rows, notes: _Notes) -> set[bytes]:
    """Returns the keys of the flows that do something else under the same cookie."""
    altered = set()
    for key, flow in unit.flows.items():
        row = rows.flows.get(key)
        if row is None:
            notes.flow("flows missing", "+", flow)
        elif row.cookie != flow.cookie:
            notes.flow("flows outdated", "~", row)
        elif isinstance(row, readback.FlowRow) and not readback.same_instructions(row, flow):
            altered.add(key)
            notes.flow("flows altered", "~", row)
    for number, group in unit.groups.items():
        there = rows.groups.get(number)
        if there is None:
            notes.group("groups missing", "+", group)
        elif there.content != group.content:
            notes.group("groups altered", "~", there)
    return altered


def _flow(flow: InstalledFlow) -> str:
    row = readback.row_of(flow) if isinstance(flow, encode.EncodedFlow) else flow
    assert isinstance(row, readback.FlowRow)
    try:
        return flow_text(readback.decode_flow(row), cookie=row.cookie)
    except readback.DecodeError as error:
        return f"cookie={row.cookie:#x}, table={row.table}, priority={row.priority} (not one of our making: {error})"


def _group(group: InstalledGroup) -> str:
    try:
        return group_text(readback.decode_group(group.id, group.content))
    except readback.DecodeError as error:
        return f"group_id={group.id} (not one of our making: {error})"
