"""What differs between what a switch holds and what it should hold: counted, and told as text.

A sync after a connect trusts cookies: equal cookie, equal flow. An audit also compares the bytes of the
instructions and of the groups, because somebody may have changed a flow and left its cookie.
"""

from collections import Counter
from collections.abc import Callable, Collection

from msgspec import Struct

from controller import readback
from controller.round import Rows, Step
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


def drift(desired: Collection[Step], rows: Rows, pause: Callable[[], None] = lambda: None) -> Drift:
    """`desired`: steps from nothing, one for each unit. Lines begin with + (missing), - (too much) or ~ (other)."""
    counts: Counter[str] = Counter()
    again: set[bytes] = set()
    lines: list[str] = []
    wanted: set[bytes] = set()
    wanted_groups: set[int] = set()

    def note(kind: str, sign: str, text: Callable[[], str]) -> None:
        counts[kind] += 1
        if len(lines) < LINES:
            lines.append(f"{sign} {text()}")

    for step in desired:
        if step.new is None:
            continue
        for key, flow in step.new.flows.items():
            wanted.add(key)
            row = rows.flows.get(key)
            if row is None:
                note("flows missing", "+", lambda flow=flow: _flow(readback.row_of(flow)))
            elif row.cookie != flow.cookie:
                note("flows outdated", "~", lambda flow=flow: _flow(readback.row_of(flow)))
            elif isinstance(row, readback.FlowRow) and not readback.same_instructions(row, flow):
                again.add(key)
                note("flows altered", "~", lambda row=row: _flow(row))
        for number, group in step.new.groups.items():
            wanted_groups.add(number)
            there = rows.groups.get(number)
            if there is None:
                note("groups missing", "+", lambda group=group: _group(group.id, group.content))
            elif there.content != group.content:
                note("groups altered", "~", lambda there=there: _group(there.id, there.content))
        pause()
    for key, row in rows.flows.items():
        if key not in wanted:
            note("flows too many", "-", lambda row=row: _flow(row))
        pause()
    for number, there in rows.groups.items():
        if number not in wanted_groups:
            note("groups too many", "-", lambda there=there: _group(there.id, there.content))
    return Drift(dict(counts), frozenset(again), tuple(lines))


def _flow(row: readback.FlowRow) -> str:
    try:
        return flow_text(readback.decode_flow(row), cookie=row.cookie)
    except readback.DecodeError as error:
        return f"cookie={row.cookie:#x}, table={row.table}, priority={row.priority} (not one of our making: {error})"


def _group(number: int, content: bytes) -> str:
    try:
        return group_text(readback.decode_group(number, content))
    except readback.DecodeError as error:
        return f"group_id={number} (not one of our making: {error})"
