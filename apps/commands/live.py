"""What a running controller is asked: `signalbox status`, `flows`, `diff`, `drops`. Nodes and services: see there."""

from typing import Any

import click

from apps import flow_rows
from apps.commands import output as out
from apps.commands.client import ask, url_option
from pipelines.several import several
from pipelines.tables import BY_ID

LEARNED = {number for table in BY_ID.values() for number in table.learns}  # tables that switches write into


@click.command()
@url_option
@out.output_option
@click.pass_context
def status(context: click.Context, url: str, output: str) -> None:
    """Show whether all is well, and what is not.

    Ends with 0 when the controller and its switches are ready, else with 1. Problems of objects do not change that:
    all other objects are served. `check` ends with 1 for them.
    """
    found = ask(url, "/v1/status")
    problems = ask(url, "/v1/problems")
    switches = ask(url, "/v1/switches")
    if output == "json":
        out.as_json({**found, "problems": problems, "switches": switches})
    else:
        _say_status(found, problems, switches)
    context.exit(0 if found["ready"] else 1)


def _say_status(found: Any, problems: list[Any], switches: list[Any]) -> None:
    source = found["source"]
    counts = ", ".join(f"{count} {kind}" for kind, count in source["objects"].items())
    out.table(
        ("", ""),
        [
            ("ready", "ok" if found["ready"] else "; ".join(found["not_ready"])),
            ("problems", f"{len(problems)}, listed below" if problems else "none"),
            ("source", f"{source['name']}{': ' + source['last_error'] if source['last_error'] else ''}"),
            ("objects", counts or "none"),
            ("switches", _connected(found)),
            ("revision", f"{found['revision']}, {found['units']} units, compiled in {found['compile_seconds']:.3f} s"),
            ("mode", found["mode"]),
            ("traffic", traffic(found["traffic"])),
            ("held", _held(found)),
            ("longest stall", f"{found['longest_stall_seconds'] * 1000:.0f} ms"),
        ],
    )
    click.echo()
    _switches(switches)
    if problems:
        click.echo()
        columns = ("KIND", "OBJECT", "FIELD", "REASON")
        out.table(columns, [(one["kind"], one["object"], one["field"], one["reason"]) for one in problems])


def _connected(found: Any) -> str:
    """How many in which state, and which Nodes are without."""
    states = ", ".join(f"{count} {state}" for state, count in found["switches"].items()) or "none connected"
    named = several(found["nodes_without_switch"])
    return states + (f"; no switch of {named} is connected" if named else "")


def traffic(found: Any) -> str:
    by = f" by {found['tunnel']}" if found["tunnel"] else ""
    return f"{found['mode']}{by}, egress {found['egress']}, MACs from {', '.join(found['mac_sources']) or 'nowhere'}"


def _held(found: Any) -> str:
    objects = found["held_objects"]
    counts = f"{found['held_removals']} flows and groups, {len(objects)} objects"
    if not objects and not found["held_removals"]:
        return counts
    named = f" ({', '.join(objects[:3])}{' …' if len(objects) > 3 else ''})" if objects else ""
    return f"{counts}{named}; `signalbox confirm` lets these removals go"


def _switches(rows: list[Any]) -> None:
    columns = ("SWITCH", "NODE", "STATE", "PEER", "ROLE", "FLOWS", "REVISION", "SENT", "HELD", "REFUSED", "LAST ERROR")
    out.table(
        columns,
        [
            (
                row["dpid"], row["node"] or "-", row["state"], row["peer"], row["role"], row["flows"],
                row["revision"], row["flow_mods_sent"], row["held_removals"], len(row["exceptions"]), row["last_error"],
            )
            for row in rows
        ],
    )  # fmt: skip


@click.command()
@click.option("--node", help="Only what this node's switch carries.")
@click.option("--table", "table_", help="Only this table, by name or number.")
@click.option("--feature", help="Only flows of this feature, as in docs/pipeline.md.")
@click.option("--object", "object_", metavar="TEXT", help="Only flows whose object has this in its name.")
@url_option
@out.output_option
def flows(
    node: str | None, table_: str | None, feature: str | None, object_: str | None, url: str, output: str
) -> None:  # fmt: skip
    """List flows, each with the object that it is there for.

    It is what the controller wants. Flows that a switch learns by itself are on that switch only.
    """
    rows = flow_rows.in_order(ask(url, "/v1/flows", node=node, table=table_, feature=feature))
    learned = sorted({row["table"] for row in rows} & LEARNED)
    if object_ is not None:
        rows = [row for row in rows if object_ in row["object"]]
    if output == "json":
        out.as_json(rows)
        return
    out.table(
        ("TABLE", "OBJECT", "FEATURE", "SCOPE", "FLOW"),
        [(row["table_name"], row["object"], row["feature"], row["scope"], row["flow"]) for row in rows],
    )
    for number in learned:
        seen = f"ovs-ofctl -O OpenFlow15 dump-flows br0 table={number}"
        click.echo(f"{BY_ID[number].name}: flows that a switch learned are not listed; on its node: {seen}", err=True)


@click.command()
@click.option("--node", help="The node whose switch is compared. All connected ones by default.")
@url_option
@out.output_option
@click.pass_context
def diff(context: click.Context, node: str | None, url: str, output: str) -> None:
    """Read switches back and compare them with what they should hold.

    + is missing on the switch, - is too much, ~ differs. Ends with 1 when there is a difference. Writes nothing.
    """
    switches = _switches_of(node, url)
    found = [ask(url, f"/v1/switches/{row['dpid']}/diff") for row in switches]
    if output == "json":
        out.as_json(found)
    else:
        for each in found:
            _say_difference(each)
    context.exit(0 if all(each["equal"] for each in found) else 1)


def _switches_of(node: str | None, url: str) -> list[Any]:
    """Of this node, or all that a Node names."""
    switches = [row for row in ask(url, "/v1/switches") if row["state"] != "UNCLAIMED" and row["node"]]
    if node is not None:
        switches = [row for row in switches if row["node"] == node]
        if not switches:
            ask(url, f"/v1/nodes/{node}")  # says whether there is such a Node
            raise click.ClickException(f"the switch of node {node} is not connected")
    return switches


@click.command()
@click.option("--node", help="The node whose switch is asked. All connected ones by default.")
@url_option
@out.output_option
def drops(node: str | None, url: str, output: str) -> None:
    """Read from switches how many packets each flow has dropped, the most first.

    They count from when the switch got the flow. In table route, priority 510, and table output, priority 200, are
    packets that could not be translated: the connection table was full, or no port was left.
    """
    found = [
        {"node": row["node"], **one}
        for row in _switches_of(node, url)
        for one in ask(url, f"/v1/switches/{row['dpid']}/drops")
    ]
    found.sort(key=lambda row: (row["node"], -row["packets"], row["table"], row["flow"]))
    if output == "json":
        out.as_json(found)
        return
    columns = ("NODE", "PACKETS", "TABLE", "OBJECT", "FEATURE", "FLOW")
    shown = [
        (row["node"], row["packets"], row["table_name"], row["object"] or "-", row["feature"], row["flow"])
        for row in found
    ]
    out.table(columns, shown)


def _say_difference(found: Any) -> None:
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(found["counts"].items()))
    click.echo(f"{found['node']} ({found['dpid']}): {counts or 'no difference'}")
    for line in found["lines"]:
        click.secho(f"  {line}", fg=out.COLOURS.get(line[0]))
    if found["lines_left_out"]:
        click.echo(f"  … and {found['lines_left_out']} more")
