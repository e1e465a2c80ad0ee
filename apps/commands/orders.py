"""What a running controller is told to do: `signalbox confirm`, `claim`, `audit`, `release`."""

from time import monotonic, sleep
from typing import Any

import click

from apps.commands import output as out
from apps.commands.client import ask, url_option

MENDED = {"missing": "put back", "outdated": "brought up to date", "altered": "written again", "too many": "removed"}


@click.command()
@url_option
@out.output_option
def confirm(url: str, output: str) -> None:
    """Let removals go that are held back."""
    released = ask(url, "/v1/confirm", "POST")
    if output == "json":
        out.as_json(released)
        return
    objects = released["released_objects"]
    click.echo(f"released: {released['released_removals']} flows and groups, {len(objects)} objects")
    for name in objects:
        click.echo(f"  {name}")


@click.command()
@url_option
@out.output_option
def claim(url: str, output: str) -> None:
    """Become the master of switches that another controller took.

    A controller that has lost a switch does not fight for it. When the other one is gone, this takes it back.
    """
    claimed = ask(url, "/v1/claim", "POST")
    if output == "json":
        out.as_json(claimed)
        return
    click.echo(f"claimed: {', '.join(claimed['claimed']) or 'nothing; no other controller is master here'}")


@click.command()
@click.option("--node", help="The node whose switch is looked at. All by default.")
@click.option("--wait", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for the outcome.")
@url_option
@out.output_option
@click.pass_context
def audit(context: click.Context, node: str | None, wait: float, url: str, output: str) -> None:
    """Compare switches with what they should hold, now, and mend them.

    `diff` shows the same and mends nothing. Ends with 1 when something differed, or was not looked at.
    """
    before = {row["node"]: row for row in ask(url, "/v1/switches")}
    asked = ask(url, "/v1/audit", "POST", node=node)
    rows = [_outcome(one, before, {}) for one in asked]
    deadline = monotonic() + wait
    while any(row["state"] == "READY" and not row["audited"] for row in rows) and monotonic() < deadline:
        sleep(0.1)
        now = {row["node"]: row for row in ask(url, "/v1/switches")}
        rows = [_outcome(one, before, now) for one in asked]
    if output == "json":
        out.as_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['node']}: {_said(row)}")
        if not rows:
            click.echo("no switch is connected that a Node names")
    context.exit(0 if all(row["audited"] and not row["drift"] for row in rows) else 1)


def _outcome(asked: Any, before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """`drift`: how many differences of each kind were found since."""
    node = asked["node"]
    then, here = before.get(node, {}), now.get(node, {})
    again = here.get("peer") != then.get("peer")  # it has connected anew, and counts from 0
    known: dict[str, int] = {} if again else then.get("drift", {})
    drift = {kind: count - known.get(kind, 0) for kind, count in here.get("drift", {}).items()}
    return {
        "node": node,
        "state": here.get("state", asked["state"]),
        "audited": here.get("audits", 0) > (0 if again else then.get("audits", 0)),
        "drift": {kind: count for kind, count in drift.items() if count > 0},
        "held_removals": here.get("held_removals", 0),
    }


def _said(row: dict[str, Any]) -> str:
    if not row["audited"]:
        return f"not looked at: {row['state']}"
    said = []
    for kind, count in sorted(row["drift"].items()):
        thing, _, how = kind.partition(" ")
        one = f"1 {thing.removesuffix('s')} was" if count == 1 else f"{count} {thing} were"
        said.append(f"{one} {how}, {MENDED.get(how, 'mended')}")
    if row["held_removals"]:
        said.append(f"{row['held_removals']} removals are held back; `signalbox confirm` lets them go")
    return "; ".join(said) or "no difference"


@click.command(short_help="Clear a switch that no Node names any more.")
@click.argument("dpid", metavar="DATAPATH")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@out.output_option
def release(dpid: str, yes: bool, url: str, output: str) -> None:
    """Delete all flows and groups of Signalbox from a switch that no Node names.

    A switch whose Node is gone keeps what it has, so that a slip cuts nobody off; this clears it for good. Flows of
    others stay. It is refused while a Node names the switch.
    """
    path = f"/v1/switches/{dpid}/release"
    if not yes:
        there = ask(url, path)  # says why not, before anybody is asked
        if not there["flows"] and not there["groups"]:
            click.echo(f"switch {there['dpid']} holds nothing of Signalbox's", err=output == "json")
            if output == "json":
                out.as_json(there)
            return
        count = f"{there['flows']} flows and {there['groups']} groups"
        click.confirm(f"Delete {count} from switch {there['dpid']}? What uses them is cut off", abort=True, err=True)
    released = ask(url, path, "POST")
    if output == "json":
        out.as_json(released)
    else:
        click.echo(f"released {released['dpid']}: {released['flows']} flows and {released['groups']} groups deleted")
