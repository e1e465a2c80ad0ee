"""How commands print: aligned tables for people, JSON for programs, colour on terminals only."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

Command = TypeVar("Command", bound=Callable[..., Any])

WIDE = 10_000  # columns when nobody looks: nothing is wrapped or cut

COLOURS = {
    "READY": "green", "served": "green", "ok": "green", "OBSERVING": "cyan", "UNCLAIMED": "yellow",
    "no endpoints": "yellow", "served, not announced": "yellow", "not served": "yellow", "conflict": "red",
    "unusable": "red", "NOT CONNECTED": "red", "SLAVE": "red",
    "+": "green", "-": "red", "~": "yellow",
}  # fmt: skip


def output_option(command: Command) -> Command:
    return click.option(
        "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For whom to print."
    )(command)


def as_json(content: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(content)))


def problems_of(kind: str, rows: Iterable[Any]) -> None:
    """What is wrong with the objects of a list, on stderr."""
    for row in rows:
        for problem in row["problems"]:
            click.echo(f"{kind} {row['name']}: {problem['field']}: {problem['reason']}", err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Nothing but the head when there are no rows. What is wider than the terminal is wrapped by it, and never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*(Text(str(cell), style=COLOURS.get(str(cell), "")) for cell in row))
    wide, terminal = Console(width=WIDE, color_system=None, highlight=False), Console(highlight=False)
    if sys.stdout.isatty() and wide.measure(shown).maximum <= terminal.width:
        terminal.print(shown)
        return
    with wide.capture() as capture:
        wide.print(shown)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
