"""The commands of the lab: `up`, `list`, `status`, `exec`, `sync`, `down`."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from lab import netns
from lab.cluster import STATE, Lab, labs, take_down
from lab.manifests import ManifestError
from lab.netns import LabError
from lab.plan import CONTROLLER, STANDARD_MTU
from lab.status import Status, status

named = click.option("--name", default="lab", show_default=True, help="Which lab, where there are several.")
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def says_why(command: Callable[..., None]) -> Callable[..., None]:
    """Errors of the lab are the user's to read, not to debug."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (LabError, ManifestError) as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@click.group()
def lab() -> None:
    """A cluster on this machine, for trying things out.

    A network namespace and an Open vSwitch of its own for every node. Needs root.
    """


@lab.command()
@click.argument("directory", type=DIRECTORY)
@named
@click.option("--controller", default="", help=f"Where the bridges find their controller; by default {CONTROLLER}.")
@click.option("--tunnel", type=click.Choice(["geneve", "vxlan", "none"]), default="geneve", show_default=True)
@click.option("--in-band", is_flag=True, help="The controller is on the first segment, reached through the uplinks.")
@click.option("--pod-mtu", type=click.IntRange(1280, 65000), default=STANDARD_MTU, show_default=True)
@click.option("--replace", is_flag=True, help="Take down a lab of this name first.")
@says_why
def up(directory: Path, name: str, controller: str, tunnel: str, in_band: bool, pod_mtu: int, replace: bool) -> None:
    """Build the Nodes and Pods of the manifests in DIRECTORY."""
    kind: Literal["geneve", "vxlan"] | None = "geneve" if tunnel == "geneve" else "vxlan" if tunnel == "vxlan" else None
    built = Lab(name, directory, controller, tunnel=kind, in_band=in_band, pod_mtu=pod_mtu).up(replace)
    for problem in built.plan.problems:
        click.echo(f"left out: {problem}", err=True)
    click.echo(
        f"lab {name}: {len(built.plan.nodes)} nodes, {len(built.plan.pods)} pods; controller at {built.plan.controller}"
    )


@lab.command("status")
@named
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@says_why
def show(name: str, output: str) -> None:
    """Show nodes, their switches, and pods."""
    now = status(Lab.attach(name))
    click.echo(msgspec.json.format(msgspec.json.encode(now)).decode() if output == "json" else text(now))


@lab.command("list")
def names() -> None:
    """List the labs that are up."""
    for name in labs():
        click.echo(name)


@lab.command(
    "exec",
    short_help="Run a program on a node, in a pod, or elsewhere.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@named
@click.argument("place")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@says_why
def execute(name: str, place: str, argv: tuple[str, ...]) -> None:
    """Run a program in PLACE: a node, a pod (NAMESPACE/NAME or NAME), router, router2, outside, remote or controller.

    On a node, ovs-vsctl, ovs-ofctl and ovs-appctl talk to that node's Open vSwitch. In the place `controller`,
    `signalbox run` is where the switches look for it, and where `signalbox status` and the like find it.
    """
    attached = Lab.attach(name)
    if argv[0] == "--":
        argv = argv[1:]
    if not argv:
        raise click.UsageError("nothing to run")
    words = netns.command(attached.namespace(place), argv)
    # `signalbox` is found beside the Python that runs this, whether or not its environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.execvpe(words[0], words, {**os.environ, "PATH": path, **attached.environment(place)})


@lab.command()
@click.argument("directory", type=DIRECTORY)
@named
@says_why
def sync(directory: Path, name: str) -> None:
    """Make and remove pods so that they are those of DIRECTORY now."""
    done = Lab.attach(name).sync(directory)
    for problem in done.problems:
        click.echo(f"left out: {problem}", err=True)
    if not (done.removed or done.added):
        click.echo("the pods are those of it already")
    for word, keys in (("removed", done.removed), ("added", done.added)):
        for key in keys:
            click.echo(f"{word} {key}")


@lab.command()
@named
@says_why
def down(name: str) -> None:
    """Remove a lab and all that runs in it, or what is left of it."""
    netns.check_name(name)
    if not (STATE / name).exists() and not netns.existing(name):
        click.echo(f"there is nothing of a lab {name}; up are: {', '.join(labs()) or 'none'}", err=True)
    take_down(name, STATE / name)


def text(now: Status) -> str:
    nodes = [("NODE", "DATAPATH", "UPLINK MAC", "VSWITCHD", "CONTROLLER", "FLOWS", "ADDRESSES")]
    nodes += [
        (node.name, node.datapath_id, node.mac, str(node.vswitchd or "down"), "connected" if node.connected else "-",
         str(node.flows), " ".join(node.addresses))
        for node in now.nodes
    ]  # fmt: skip
    pods = [("POD", "NODE", "PORT", "ADDRESSES")]
    pods += [(pod.key, pod.node, pod.port, " ".join(pod.addresses) if pod.present else "(gone)") for pod in now.pods]
    problems = "".join(f"\nleft out: {problem}" for problem in now.problems)
    title = f"lab {now.name}, controller {now.controller}, active router {now.router}"
    return f"{title}\n\n{_columns(nodes)}\n\n{_columns(pods)}{problems}"


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
