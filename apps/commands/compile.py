"""`signalbox compile`: the flows and groups of one node, as ovs-ofctl text, with no switch and no controller."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from apps import flow_rows, offline, settings
from apps.answers import Row
from apps.commands import output
from k8s_bridge import manifests
from pipelines.addresses import Ip, mac_text
from pipelines.derived import Derived

Value = TypeVar("Value")


class Parsed(click.ParamType[Value]):
    """What a function reads that raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


PORT = Parsed("port", offline.parse_port)
neighbor_option = click.option(
    "--neighbor",
    "neighbors",
    multiple=True,
    type=Parsed("neighbor", offline.parse_neighbor),
    metavar="ADDRESS=MAC",
    help="The MAC of a router that the Node names, or of another node, as the network would tell it.",
)


@click.command("compile", short_help="Print a node's flows and groups, with no switch.")
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("--node", required=True, metavar="NAME", help="Whose switch.")
@click.option(
    "--port",
    "ports",
    multiple=True,
    type=PORT,
    metavar="NAME=NUMBER[/MAC]",
    help="A port as the switch has it: LOCAL, gw0, tun0, the name of the uplink or of a pod port, or NAMESPACE/NAME.",
)
@neighbor_option
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="Settings that change flows.")
@click.option("--only", type=click.Choice(["flows", "groups"]), help="For `ovs-ofctl add-flows` or `add-groups`.")
@output.output_option
def compile_(
    directory: Path, node: str, ports: tuple[tuple[str, offline.Given], ...], neighbors: tuple[tuple[Ip, int], ...],
    config: str | None, only: str | None, output: str,
) -> None:  # fmt: skip
    """Print the flows and groups that the manifests in DIRECTORY give one node.

    Ports that no switch has told about are made up, always the same ones; the head of the output says how.
    """
    try:
        chosen = settings.load(config, {"source": str(directory)}).fabric_settings()
        reading = manifests.read(directory)
        compiled = offline.compile_node(reading.values, chosen, node, dict(ports), dict(neighbors))
    except (settings.ConfigError, offline.Unknown) as error:
        raise click.ClickException(str(error)) from error
    say_problems(directory, reading, compiled)
    found = flow_rows.units(compiled.fleet, compiled.scopes)
    flows = [] if only == "groups" else flow_rows.in_order(flow_rows.flow_rows(found))
    groups = [] if only == "flows" else sorted(flow_rows.group_rows(found), key=lambda row: row["group"])
    if output == "json":
        _json(node, compiled, flows, groups)
    else:
        click.echo("\n".join([*_head(node, compiled), *_lines(flows, groups)]))


def say_problems(directory: Path, reading: manifests.Reading, compiled: offline.Offline) -> None:
    """How many there are, on stderr: what follows may not be what was meant."""
    problems = {*reading.problems, *compiled.compiler.problems()}
    if problems:
        counted = "1 problem was" if len(problems) == 1 else f"{len(problems)} problems were"
        click.echo(f"{counted} found, `signalbox check {directory}` lists them", err=True)


def _lines(flows: list[Row], groups: list[Row]) -> Iterator[str]:
    for row in groups:
        yield row["text"]
    for row in flows:
        yield flow_rows.with_cookie(row)


def _head(node: str, compiled: offline.Offline) -> Iterator[str]:
    yield f"# What the switch of node {node} should hold (ovs-ofctl -O OpenFlow15)."
    yield "# No switch was asked, so ports are stand-ins (or as given by --port):"
    for line in offline.describe(compiled.ports, compiled.compiler.facts.peek(Derived.LOCAL_POD).values()):
        yield f"#   {line}"
    yield "# MACs: of peers by annotation, of routers by --neighbor; where there is none their traffic goes by gw0."
    for unit, reason in sorted(compiled.fleet.errors.items()):
        yield f"# left out: {unit}: {reason}"


def _json(node: str, compiled: offline.Offline, flows: list[Row], groups: list[Row]) -> None:
    ports = {name: {"number": port.number, "mac": mac_text(port.mac)} for name, port in compiled.ports.items()}
    errors = {str(unit): reason for unit, reason in sorted(compiled.fleet.errors.items())}
    output.as_json({"node": node, "ports": ports, "groups": groups, "flows": flows, "left_out": errors})
