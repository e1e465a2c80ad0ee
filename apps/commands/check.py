"""`signalbox check`: everything that can be said about settings and manifests before anything runs.

Settings by the parser that the controller uses; manifests by the reader and the compiler that it uses, so what
objects say together (one address twice, overlapping podCIDRs, two services with one address) is found as well.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

from apps import offline, settings
from apps.commands import output
from k8s_bridge import manifests
from pipelines.model import Kind, Problem, Settings


class Finding(Struct, frozen=True):
    """`file`: "FILE:LINE" when known."""

    kind: str
    object: str
    field: str
    reason: str
    file: str = ""


class Report(Struct, frozen=True):
    """`objects` by kind; they, `units` and `flows` are 0 when no directory was looked at."""

    ok: bool
    findings: tuple[Finding, ...]
    objects: dict[str, int] = {}
    units: int = 0
    flows: int = 0


@click.command(short_help="Check settings and manifests.")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="A settings file to check.")
@output.output_option
@click.pass_context
def check(context: click.Context, directory: Path | None, config: str | None, output: str) -> None:
    """Check a settings file, and the manifests in DIRECTORY (or of its source). Ends with 1 when anything is wrong."""
    config = config or os.environ.get(settings.VARIABLE) or None
    if directory is None and config is None:
        raise click.UsageError("name a DIRECTORY of manifests, or a settings file with --config")
    report = examine(config, directory)
    _print(report, output)
    context.exit(0 if report.ok else 1)


def examine(config: str | None, directory: Path | None) -> Report:
    findings: list[Finding] = []
    chosen = Settings()
    try:
        read = settings.load(config, {"source": None if directory is None else str(directory)})
        chosen = read.fabric_settings()
        if directory is None:
            findings += _source(read)
            directory = Path(read.source_address.place) if read.source_address.kind == "directory" else None
    except settings.ConfigError as error:
        findings += (Finding("Settings", "", *_split(problem), file=error.origin) for problem in error.problems)
    if directory is None:
        return Report(not findings, tuple(findings))
    return _with_manifests(findings, directory, chosen)


def _source(read: settings.Config) -> Iterator[Finding]:
    where = read.source_address
    if where.kind == "kubeconfig" and not Path(where.place).is_file():
        yield Finding("Settings", "", "source", f"{where.place} is not a file")


def _with_manifests(findings: list[Finding], directory: Path, chosen: Settings) -> Report:
    reading = manifests.read(directory)
    compiled = offline.compile_all(reading.values, chosen)
    problems = {*reading.problems, *compiled.compiler.problems()}
    problems |= {Problem("Unit", str(unit), "encoding", reason) for unit, reason in compiled.fleet.errors.items()}
    for problem in sorted(problems, key=lambda one: (one.kind, one.key, one.field, one.reason)):
        findings.append(_located(problem, reading))
    return Report(
        ok=not findings,
        findings=tuple(findings),
        objects=dict(sorted(Counter(kind.value for kind, _ in reading.values).items())),
        units=len(compiled.compiler.units),
        flows=sum(len(unit.flows) for unit in compiled.compiler.units.values()),
    )


def _located(problem: Problem, reading: manifests.Reading) -> Finding:
    if problem.kind == "File":  # its key is where it is
        return Finding(problem.kind, "", problem.field, problem.reason, problem.key)
    try:
        file = reading.origins.get((Kind(problem.kind), problem.key), "")
    except ValueError:
        file = ""
    return Finding(problem.kind, problem.key, problem.field, problem.reason, file)


def _split(problem: str) -> tuple[str, str]:
    """Key and reason of a problem of the settings."""
    if unknown := re.match(r"unknown key `([^`]+)`", problem):
        return unknown[1], problem
    key, colon, reason = problem.partition(": ")
    return (key, reason) if colon and " " not in key else ("", problem)


def _print(report: Report, wanted: str) -> None:
    if wanted == "json":
        output.as_json(report)
        return
    if report.findings:
        rows = [(one.kind, one.object, one.field, one.reason, one.file) for one in report.findings]
        output.table(("KIND", "OBJECT", "FIELD", "REASON", "FILE"), rows)
        click.echo(f"\n{len(rows)} problem{'s' if len(rows) > 1 else ''}")
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in report.objects.items())
    compiled = f": {counts}; {report.units} units of {report.flows} flows" if report.objects else ""
    click.echo(f"ok{compiled}")
