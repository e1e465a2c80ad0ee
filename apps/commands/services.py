"""`signalbox services`: where clients find services, and which endpoints they may get."""

from collections.abc import Sequence
from typing import Any

import click

from apps.commands import output as out
from apps.commands.client import ask, url_option
from apps.service_rows import NOT_ANNOUNCED
from pipelines.several import several

UNHEARD = (
    "served, but not announced: clients on its subnet, and routers there, find it only if something else answers for "
    "it by ARP or ND; see `announce` (docs/services.md)"
)
SHOWN = 8  # endpoints of one frontend; more are counted


@click.command()
@click.argument("name", required=False, metavar="[NAMESPACE/NAME]")
@click.option("--node", help="Of one service: also what clients on this node may get, and why.")
@url_option
@out.output_option
def services(name: str | None, node: str | None, url: str, output: str) -> None:
    """List services: their addresses, and the endpoints that are used.

    With the NAME of one: also the state of each of its endpoints.
    """
    if node and not name:
        raise click.UsageError("--node needs the NAME of a service")
    key = name if name is None or "/" in name else f"default/{name}"
    found = ask(url, f"/v1/services/{key}" if key else "/v1/services", node=node)
    if output == "json":
        out.as_json(found)
        return
    rows = [found] if key else found
    _frontends(rows)
    if key:
        _details(found)
        click.echo()
        _endpoints(found["endpoints"])
    if node:
        click.echo()
        _on_node(node, found["on_node"])
    out.problems_of("Service", rows)


NO_FRONTEND = {
    "address": "", "protocol": "-", "entrance": "-", "policy": "-", "endpoints": (), "announcement": None,
}  # fmt: skip


def _frontends(rows: list[Any]) -> None:
    """A NodePort is shown at the unspecified address, as a socket would be, or where it is. A service without any
    has a line too.
    """
    shown = [
        (
            row["name"],
            _where(front) if front["address"] else "-",
            front["protocol"],
            front["entrance"],
            front["policy"],
            f"{row['affinity_seconds']} s" if front["address"] and row["affinity_seconds"] else "-",
            f"served, {NOT_ANNOUNCED}"
            if front["announcement"] == NOT_ANNOUNCED and front["state"] == "served"
            else front["state"],
            front["reason"] or _several(front["endpoints"]),
        )
        for row in rows
        for front in row["frontends"] or ({**NO_FRONTEND, "state": row["state"], "reason": row["reason"]},)
    ]
    out.table(("SERVICE", "ADDRESS", "PROTOCOL", "ENTRANCE", "POLICY", "AFFINITY", "STATE", "ENDPOINTS"), shown)


def _state_of(front: Any) -> str:
    silent = front["announcement"] == NOT_ANNOUNCED and front["state"] == "served"
    return f"served, {NOT_ANNOUNCED}" if silent else str(front["state"])


def _details(row: Any) -> None:
    """What holds for all frontends, when it is not what everybody expects."""
    said = []
    if row["affinity_seconds"]:
        said.append(f"a client keeps its endpoint for {row['affinity_seconds']} s after its last connection")
    if row["source_ranges"]:
        said.append(f"only for clients in {', '.join(row['source_ranges'])}")
    if row["health_check_port"]:
        said.append(f"health checks on port {row['health_check_port']}: not answered yet (needs the node agent)")
    announced = {front["address"]: front for front in row["frontends"] if front["announcement"]}
    for address, front in announced.items():
        if front["announcement"] == NOT_ANNOUNCED:
            said.append(f"{address}: {UNHEARD}")
            continue
        by = f" by {front['announced_by']}" if front["announced_by"] else ""
        said.append(f"announcement of {address}: {front['announcement']}{by}")
    for line in said:
        click.echo(line)


def _endpoints(rows: list[Any]) -> None:
    out.table(
        ("ENDPOINT", "PROTOCOL", "NODE", "STATE", "USED", "HINTS", "SLICE"),
        [
            (
                _at(row["address"], row["port"]), row["protocol"], row["node"] or "-", _state(row),
                "yes" if row["used"] else "no", _hints(row), row["slice"],
            )
            for row in rows
        ],
    )  # fmt: skip


def _state(row: Any) -> str:
    if row["terminating"]:
        return "terminating, serving" if row["serving"] else "terminating"
    return "ready" if row["ready"] else "not ready"


def _hints(row: Any) -> str:
    named = [f"zone {zone}" for zone in row["for_zones"]] + [f"node {node}" for node in row["for_nodes"]]
    return ", ".join(named) or "-"


def _on_node(node: str, rows: list[Any]) -> None:
    out.table(
        (f"ON {node}", "PROTOCOL", "ENTRANCE", "CLIENTS", "CHOICE", "REASON", "ENDPOINTS"),
        [
            (
                _at(row["address"], row["port"]), row["protocol"], row["entrance"], row["clients"], row["choice"],
                row["reason"], _several(row["endpoints"]) or "-",
            )
            for row in rows
        ],
    )  # fmt: skip


def _several(endpoints: Sequence[Any]) -> str:
    return several((_at(one["address"], one["port"]) for one in endpoints), SHOWN, between=" ")


def _at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _where(front: Any) -> str:
    if not front["node_addresses"]:
        return _at(front["address"], front["port"])
    return several((_at(prefix, front["port"]) for prefix in front["node_addresses"]), between=" ")
