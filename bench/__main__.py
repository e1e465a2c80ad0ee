"""`python -m bench [PART …]`: runs the parts one after the other and prints what they measured."""

import os
import signal
import sys
from time import monotonic
from types import FrameType

import click
import msgspec
from rich.console import Console

from bench import enclosure, ovn
from bench.figures import Report, joined, show
from bench.kinds import Kinds
from bench.options import Options

PARTS = ("sync", "change", "reconnect", "fakes", "encode", "paths", "services")


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--services", default=1000, show_default=True)
@click.option("--endpoints", default=10, show_default=True, help="of each service")
@click.option("--kinds", type=click.Choice(list(map(str, Kinds))), default="cluster-ip", show_default=True)
@click.option("--switches", default=50, show_default=True, help="fake ones, and nodes in the cluster")
@click.option("--changes", default=200, show_default=True, help="of one endpoint each")
@click.option("--repetitions", default=5, show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="of each stream of packets")
@click.option("--ovn/--no-ovn", default=True, help="measure OVN as well (Debian: ovn-central ovn-host)")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(parts: tuple[str, ...], output: str, **sizes: object) -> None:
    """Measure Signalbox beside its peers. Needs root, and Open vSwitch as programs."""
    options = msgspec.convert(sizes, Options)
    if os.geteuid() != 0:
        raise click.ClickException("needs root: it makes namespaces and bridges")
    if options.ovn and not ovn.installed():
        raise click.ClickException("OVN is not installed: scripts/packages ovn-central ovn-host, or --no-ovn")
    signal.signal(signal.SIGTERM, _end)
    report = joined(_run(part, options) for part in parts or PARTS)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        show(report)
    sys.exit(1 if report.failed else 0)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


def _run(part: str, options: Options) -> Report:
    began = monotonic()
    progress = Console(stderr=True)
    progress.print(f"{part} …", end=" ")
    command = [sys.executable, "-W", "ignore", "-m", "bench.inside", part, msgspec.json.encode(options).decode()]
    try:
        report = msgspec.json.decode(enclosure.output(command), type=Report)
    except enclosure.EndedBadly as error:
        raise click.ClickException(f"{part} failed: {error}") from error
    progress.print(f"{monotonic() - began:.0f} s")
    return report


if __name__ == "__main__":
    main()
