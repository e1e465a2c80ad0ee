"""What was measured: series of values, and comparisons of ours with a peer's of the same run."""

from collections.abc import Callable, Iterable, Iterator
from statistics import median, quantiles

import msgspec
from rich.console import Console
from rich.table import Table


class Series(msgspec.Struct, frozen=True):
    """Values of one thing, in `unit`. Shown as median (min–max) and how many there are."""

    what: str
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        return median(self.values)

    def __str__(self) -> str:
        middle = f"{number(self.median)} {self.unit}".rstrip()
        if len(self.values) == 1:
            return middle
        return f"{middle} ({number(min(self.values))}–{number(max(self.values))}, n={len(self.values)})"


class Comparison(msgspec.Struct, frozen=True):
    """`ours` beside `peer` when there is one."""

    part: str
    ours: Series
    peer: Series | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours.median / self.peer.median if self.peer and self.peer.median else None


class Verdict(msgspec.Struct, frozen=True):
    """An aim or a duty, and whether this run met it. A duty that was not met fails the run."""

    text: str
    met: bool
    duty: bool = False


class Report(msgspec.Struct, frozen=True):
    comparisons: list[Comparison] = []
    verdicts: list[Verdict] = []

    @property
    def failed(self) -> bool:
        return any(verdict.duty and not verdict.met for verdict in self.verdicts)


def joined(reports: Iterable[Report]) -> Report:
    all_of = list(reports)
    return Report([one for r in all_of for one in r.comparisons], [one for r in all_of for one in r.verdicts])


def number(value: float) -> str:
    """Three digits that count: 0.123, 12.3, 1,230."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def alternate(repetitions: int, *measures: Callable[[], None]) -> Iterator[int]:
    """A B A B …: yields the number of each repetition before it begins."""
    for repetition in range(repetitions):
        yield repetition
        for measure in measures:
            measure()


def show(report: Report) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "Signalbox", "", "beside it", "", "ratio"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    part = ""
    for one in report.comparisons:
        head, part = (one.part if one.part != part else ""), one.part
        peer = (one.peer.what, str(one.peer)) if one.peer else ("", "")
        table.add_row(head, one.ours.what, str(one.ours), *peer, "" if one.ratio is None else f"{one.ratio:.2f}")
    console = Console(width=None if Console().is_terminal else 180)
    console.print(table)
    for verdict in report.verdicts:
        console.print(f"{'met    ' if verdict.met else 'NOT MET'}  {verdict.text}", highlight=False)
