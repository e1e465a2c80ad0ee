"""Flows and groups as people and programs read them: text, cookie, and the object that they are there for.

The rows are made from what the fleet has encoded, which is what switches get. Shared by REST, by
`signalbox compile` and by docs/pipeline.md.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from apps.answers import Pause, Row, no_pause
from controller import audit, readback
from controller.encode import EncodedUnit
from controller.fleet import Fleet
from controller.round import Rows
from pipelines.tables import BY_ID, TABLES
from pipelines.text import flow_text, group_text
from pipelines.unit import Scope, UnitKey

CALLED = {number for table in TABLES.values() for number in table.calls}  # by other tables, and left to go on there


def units(fleet: Fleet, scopes: Collection[Scope] | None) -> list[tuple[UnitKey, EncodedUnit]]:
    """Those of some scopes, or of all. A copy: it may be gone through while others run."""
    wanted = fleet.units if scopes is None else scopes
    return [pair for scope in sorted(wanted) for pair in fleet.units.get(scope, {}).items()]


def flow_rows(
    found: Iterable[tuple[UnitKey, EncodedUnit]],
    table: int | None = None,
    feature: str | None = None,
    pause: Pause = no_pause,
) -> Iterator[Row]:
    for key, unit in found:
        if feature is not None and key.feature != feature:
            continue
        for encoded in unit.flows.values():
            row = readback.row_of(encoded)
            if table is None or row.table == table:
                yield _flow_row(key, row)
            pause()


def _flow_row(key: UnitKey, row: readback.FlowRow) -> Row:
    return {
        "table": row.table,
        "table_name": BY_ID[row.table].name,
        "priority": row.priority,
        "cookie": f"{row.cookie:#x}",
        "flow": _text(row),
        "feature": key.feature,
        "scope": str(key.scope),
        "object": key.key,
    }


def _text(row: readback.FlowRow) -> str:
    try:
        return flow_text(readback.decode_flow(row))
    except readback.DecodeError as error:  # a fault of ours, which must not hide the other flows
        return f"table={row.table},priority={row.priority} (cannot be shown: {error})"


def group_rows(
    found: Iterable[tuple[UnitKey, EncodedUnit]], feature: str | None = None, pause: Pause = no_pause
) -> Iterator[Row]:
    for key, unit in found:
        for group in unit.groups.values() if feature in (None, key.feature) else ():
            yield {
                "group": group.id,
                "text": group_text(readback.decode_group(group.id, group.content)),
                "feature": key.feature,
                "scope": str(key.scope),
                "object": key.key,
            }
            pause()


def in_order(rows: Iterable[Row]) -> list[Row]:
    """As a packet meets them: by table, the highest priority first."""
    return sorted(rows, key=lambda row: (row["table"], -row["priority"], row["flow"]))


def difference(fleet: Fleet, scopes: Collection[Scope], there: Rows, pause: Pause = no_pause) -> Row:
    """What a switch holds against what it should. `lines` begin with + (missing), - (too much), ~ (other)."""
    found = audit.drift(fleet.desired(scopes).steps, there, pause)
    return {
        "equal": not found,
        "revision": fleet.revision,
        "counts": found.counts,
        "lines": list(found.lines),
        "lines_left_out": sum(found.counts.values()) - len(found.lines),
    }


def drops(
    fleet: Fleet, scopes: Collection[Scope], counts: Mapping[bytes, int], pause: Pause = no_pause
) -> Iterator[Row]:
    """The flows that have dropped packets, with `packets`. `counts`: by key, of flows that do nothing.

    In a table that others call that is no drop: the packet goes on with its caller.
    """
    for key, unit in units(fleet, scopes):
        for encoded in unit.flows.values():
            packets = counts.get(encoded.key)
            if packets and (row := _flow_row(key, readback.row_of(encoded)))["table"] not in CALLED:
                yield {**row, "packets": packets}
            pause()


def with_cookie(row: Row) -> str:
    """The flow's line for ovs-ofctl, cookie included."""
    return f"cookie={row['cookie']}, {row['flow']}"
