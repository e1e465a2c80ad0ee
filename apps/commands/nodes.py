"""`signalbox nodes` and `pods`: where everything is, and how packets get there."""

from typing import Any

import click

from apps.commands import output as out
from apps.commands.client import ask, url_option
from apps.commands.live import traffic


@click.command()
@click.argument("name", required=False)
@url_option
@out.output_option
def nodes(name: str | None, url: str, output: str) -> None:
    """List nodes: addresses, MACs, routers, switches.

    With the NAME of one: also by which way it reaches each other node.
    """
    found = ask(url, f"/v1/nodes/{name}" if name else "/v1/nodes")
    if output == "json":
        out.as_json(found)
        return
    rows = [found] if name else found
    columns = ("NODE", "SWITCH", "DATAPATH", "ADDRESSES", "PODCIDRS", "MAC (FROM)", "ROUTERS", "POD MTU", "PODS")
    out.table(
        columns,
        [
            (
                row["name"], row["state"], row.get("datapath_id") or "-", " ".join(row.get("addresses", ())) or "-",
                " ".join(row.get("pod_cidrs", ())) or "-", _mac(row["mac"]),
                ", ".join(_router(one) for one in row["routers"]) or "-", row.get("pod_mtu", "-"), _pods(row),
            )
            for row in rows
        ],
    )  # fmt: skip
    click.echo(f"\ntraffic: {traffic(ask(url, '/v1/status')['traffic'])}")
    if name:
        click.echo()
        _ways(found["ways"])
    out.problems_of("Node", rows)


def _mac(mac: Any) -> str:
    return f"{mac['address']} ({mac['source']}{_ago(mac['age_seconds'])})" if mac else "unknown"


def _router(row: Any) -> str:
    """The one in use is marked when there is a choice to see: by a star."""
    star = "*" if row["used"] else ""
    if row["mac"] is None:
        return f"{row['address']}{star} unknown"
    silent = ", silent" if row["reachable"] is False else ""
    return f"{row['address']}{star} {row['mac']} ({row['source']}{_ago(row['age_seconds'])}{silent})"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f", {seconds:.0f} s ago"


def _pods(row: Any) -> str:
    """How many; and of how many the switch has no port, so that no packet reaches them."""
    without = len(row.get("pods_without_port", ()))
    return f"{row.get('pods', 0)}" + (f" ({without} without port)" if without else "")


def _ways(rows: list[Any]) -> None:
    out.table(
        ("TO NODE", "FAMILY", "WAY", "BY", "REASON"),
        [
            (row["node"], f"IPv{row['family']}", row["way"], _by(row) or "-", row["reason"])
            for row in rows
        ],
    )  # fmt: skip


def _by(row: Any) -> str:
    return " ".join(text for text in (row["address"], row["mac"]) if text)


@click.command()
@click.option("--node", help="Only pods on this node.")
@click.option("--mtu", type=click.Choice(["wrong", "right"]), help="wrong: only pods too large for their node's way.")
@url_option
@out.output_option
def pods(node: str | None, mtu: str | None, url: str, output: str) -> None:
    """List pods: node, addresses, port of the switch, MTU."""
    rows = sorted(ask(url, "/v1/pods", node=node, mtu=mtu), key=lambda row: row["name"])
    if output == "json":
        out.as_json(rows)
        return
    shown = [
        (
            row["name"],
            row["node"] or "-",
            " ".join(row["addresses"]),
            f"{row['port']} ({'missing' if row['port_number'] is None else row['port_number']})",
            f"{row['mtu'] or 'unknown'} (at most {row['mtu_most'] or 'unknown'})",
        )
        for row in rows
    ]
    out.table(("POD", "NODE", "ADDRESSES", "PORT", "MTU"), shown)
    if node is None and mtu is None:
        _say_left_out(ask(url, "/v1/status")["source"]["objects"].get("Pod", 0) - len(rows))
    out.problems_of("Pod", rows)


def _say_left_out(count: int) -> None:
    if count > 0:
        more = "1 more Pod has" if count == 1 else f"{count} more Pods have"
        click.echo(f"{more} no port: on the host network, ended, without an address yet, or unusable", err=True)
