"""docs/pipeline.md, made from the declarations of tables, fields and features, with the flows of an example.

The same manifests give the same page on every machine; CI compares it with the committed one.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from pathlib import Path

from apps import flow_rows, offline
from apps.answers import Row
from k8s_bridge import manifests
from pipelines import fields
from pipelines.derived import Derived
from pipelines.features import FEATURES
from pipelines.fields import Field, Part
from pipelines.ids import FIRST_GROUP, LAST_GROUP, OWN_MARK
from pipelines.model import Settings
from pipelines.table import Stage, Table
from pipelines.tables import BY_ID, RESERVED, TABLES

HEAD = """\
<!-- Made by `signalbox docs pipeline` (`make docs`); edit pipelines/ instead. -->

# The pipeline, table by table

A packet enters at table 0 and leaves at the last one. Numbers are constant whatever is configured. What each
table may match, set and reach is declared in `pipelines/tables.py`; a flow outside of that cannot be built. The flows
shown are those of node {node} of `examples/{example}`; ports that no switch has told about are made up:

{ports}
"""

VALUES: dict[str, type[IntEnum]] = {
    "ENTERED_BY": fields.Entered,
    "SNAT_KIND": fields.Snat,
    "PLACE": fields.Place,
    "EGRESS": fields.Egress,
}


COLOURS = {
    Stage.VALIDATION: "#fee2e2",
    Stage.NEIGHBORS: "#fef9c3",
    Stage.CONNTRACK: "#e0e7ff",
    Stage.PREROUTING: "#dbeafe",
    Stage.ROUTING: "#dcfce7",
    Stage.POSTROUTING: "#f3e8ff",
    Stage.OUTPUT: "#f1f5f9",
}


def page(example: Path, node: str) -> str:
    """Raises UnknownNode."""
    compiled = offline.compile_node(manifests.read(example).values, Settings(), node)
    found = flow_rows.units(compiled.fleet, compiled.scopes)
    rows = flow_rows.in_order(flow_rows.flow_rows(found))
    groups = sorted(flow_rows.group_rows(found), key=lambda row: row["object"])
    pods = compiled.compiler.facts.peek(Derived.LOCAL_POD).values()
    ports = "\n".join(f"    {line}" for line in offline.describe(compiled.ports, pods))
    head = HEAD.format(node=node, example=example.name, ports=ports)
    return "\n".join([head, *_overview(), *_tables(rows), *_groups(groups), *_fields(), *_features(), *_numbers()])


# --- tables -------------------------------------------------------------------------------------------------------


def _overview() -> Iterator[str]:
    yield from _picture()
    yield "| id | table | stage | when nothing matches |"
    yield "|---|---|---|---|"
    for table in TABLES.values():
        yield f"| {table.id} | [{table.name}](#{table.id}-{table.name}) | {table.stage} | {_miss(table)} |"
    yield ""
    for purpose, numbers in RESERVED.items():
        yield f"Reserved for {purpose}: {_ranges(numbers)}."
    yield ""


def _miss(table: Table) -> str:
    if table.miss is not None:
        return f"on to {BY_ID[table.miss].name}"
    return "back to its caller" if table.id in flow_rows.CALLED else "dropped"


def _picture() -> Iterator[str]:
    """The tables as a graph (Mermaid, which most forges draw): solid arrows go on, dotted ones come back."""
    yield "```mermaid"
    yield "flowchart TD"
    yield from (f'  t{table.id}["{table.id} {table.name}"]:::{table.stage.name}' for table in TABLES.values())
    for table in TABLES.values():
        yield from (f"  t{table.id} --> t{target}" for target in table.goes)
        yield from (f"  t{table.id} -.-> t{target}" for target in table.calls)
        yield from (f"  t{table.id} -. learns .-> t{target}" for target in table.learns)
    yield from (
        f"  classDef {stage.name} fill:{colour},stroke:#475569,color:#0f172a" for stage, colour in COLOURS.items()
    )
    yield "```"
    yield ""


def _ranges(numbers: Iterable[int]) -> str:
    """`50–61, 85–99`."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def _tables(rows: list[Row]) -> Iterator[str]:
    by_table = {number: list(found) for number, found in groupby(rows, key=lambda row: row["table"])}
    for table in TABLES.values():
        yield f"## {table.id} {table.name}"
        yield ""
        yield table.purpose
        yield ""
        yield f"- stage: {table.stage}"
        yield f"- matches: {_names(table.matches)}"
        yield f"- sets: {_names(table.sets)}"
        yield f"- goes to: {_table_names(table.goes)}"
        if table.calls:
            yield f"- calls and comes back: {_table_names(table.calls)}"
        if table.learns:
            yield f"- writes flows into: {_table_names(table.learns)}"
        yield f"- when nothing matches: {_miss(table)}"
        yield ""
        yield from _flows(by_table.get(table.id, []))


def _names(used: Iterable[Field | Part]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(field.name for field in used)) or "nothing"


def _table_names(numbers: Iterable[int]) -> str:
    return ", ".join(BY_ID[number].name for number in sorted(numbers)) or "none"


def _flows(rows: list[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "```"
    for number, row in enumerate(rows, 1):
        yield f"{number:>3}  {row['flow']}"
    yield "```"
    yield ""
    cases: dict[str, list[int]] = {}
    objects: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        cases.setdefault(row["feature"], []).append(number)
        if row["object"]:
            objects.setdefault(row["feature"], []).append(row["object"])
    for feature, numbers in cases.items():
        named = dict.fromkeys(objects.get(feature, ()))
        about = f" ({', '.join(named)})" if named else ""
        yield f"- {_ranges(numbers)}: **{feature}**{about}. {SENTENCES[feature]}"
    yield ""


def _groups(rows: list[Row]) -> Iterator[str]:
    yield "## Groups"
    yield ""
    yield "One for each service port and family; they choose an endpoint. Shared by all switches."
    yield ""
    yield "```"
    for row in rows:
        yield f"# {row['object']}"
        yield row["text"]
    yield "```"
    yield ""


# --- fields, features, numbers --------------------------------------------------------------------------------------


def _fields() -> Iterator[str]:
    yield "## Fields"
    yield ""
    yield "What registers, ct_mark and ct_label hold. Bits of a connection (ct_…) live as long as it does."
    yield ""
    yield "| name | bits | tables |"
    yield "|---|---|---|"
    for part in fields.PARTS:
        last = part.low + part.bits - 1
        bits = f"{part.low}..{last}" if part.bits > 1 else str(part.low)
        live = "all" if (part.first, part.last) == (0, 255) else f"{part.first}–{part.last}"
        yield f"| `{part.name}` | {part.field.name}[{bits}] | {live} |"
    yield ""
    for name, values in VALUES.items():
        yield f"- `{name}`: " + ", ".join(f"{value.value} {value.name}" for value in values)
    yield f"- conntrack zones: {fields.SERVICE_ZONE} SERVICE_ZONE, {fields.SNAT_ZONE} SNAT_ZONE"
    yield ""


def _sentence(docstring: str | None) -> str:
    """Its first paragraph on one line."""
    return " ".join((docstring or "").partition("\n\n")[0].split())


SENTENCES = {feature.name: _sentence(feature.compile.__doc__) for feature in FEATURES}


def _features() -> Iterator[str]:
    yield "## Features"
    yield ""
    yield "Each is a function from one object to flows, compiled once for all switches of its scope."
    yield ""
    yield "| number | feature | for each | scope | flows |"
    yield "|---|---|---|---|---|"
    for feature in FEATURES:
        scope = feature.scope.name.lower()
        yield f"| {feature.number} | {feature.name} | {feature.subject} | {scope} | {SENTENCES[feature.name]} |"
    yield ""


def _numbers() -> Iterator[str]:
    yield "## Cookies and group ids"
    yield ""
    yield f"A cookie is {OWN_MARK:#x} (8 bits), the feature's number (7), whether the flow was learned (1), a hash of"
    yield "the object's key (16) and a digest of the flow's bytes (32). Flows of others are never touched."
    yield f"Group ids are {FIRST_GROUP} to {LAST_GROUP}, derived from the service port's name."
    yield ""
