"""What every cluster source is: something that runs, hands changes to a sink, and can tell how it is doing.

A source is level-triggered: a `Change` says what an object is now. Whoever receives the changes may squash
them by (kind, key). Nothing may be written to a switch before `Sink.synced()`.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from msgspec import Struct

from pipelines.model import Change, Invalid, Kind, Problem, Value

KINDS = (Kind.NODE, Kind.SERVICE_CIDR, Kind.SERVICE, Kind.ENDPOINT_SLICE, Kind.POD)
"""What a source delivers, in the order in which a first sync hands it over."""

LOG = logging.getLogger("signalbox.source")


class Sink(Protocol):
    """Where changes go. Both calls are made from the source's own (green) threads, never two at a time."""

    def apply(self, changes: list[Change]) -> None:
        """These objects are now as said. Values may be `Invalid`; None means gone."""

    def synced(self) -> None:
        """Every kind has been listed once. Called once, after the changes of those lists were applied."""


class SourceStatus(Struct, frozen=True):
    """How a source is doing, for `/v1`, `/readyz` and the log.

    `complete` is False while objects may be missing that were there before this process started (a manifest
    that is broken, a directory that is empty): removals from switches have to be held then.
    """

    name: str  # "directory PATH" or "kubernetes URL": what is being followed right now
    synced: bool = False
    complete: bool = False
    counts: dict[str, int] = {}  # objects per kind, Invalid ones included
    problems: tuple[Problem, ...] = ()  # of the objects and of the source itself
    held: tuple[tuple[Kind, str], ...] = ()  # objects that the last list did not name, but that are kept for now
    servers: tuple[str, ...] = ()  # addresses, the one in use first; () for a directory
    last_error: str = ""  # "" once things work again
    last_event_age: float | None = None  # seconds since the source last heard anything; None: never
    current_age: float | None = None  # what was there so many seconds ago was all handed over; None: nobody can say


class Source(Protocol):
    def run(self) -> None:
        """Follow the cluster until `stop()`. Blocks (green)."""

    def stop(self) -> None:
        """Make `run` return soon. May be called from any (green) thread, and twice."""

    def confirm(self) -> None:
        """An operator says that what is held back was meant: release the held removals."""

    def status(self) -> SourceStatus: ...


def value_problems(value: Value | None) -> tuple[Problem, ...]:
    if isinstance(value, Invalid):
        return value.problems
    return getattr(value, "problems", ())


def log_held(held: Collection[tuple[Kind, str]]) -> None:
    """One warning for all of them: there may be thousands."""
    if held:
        some = ", ".join(f"{kind.value} {key}" for kind, key in sorted(held)[:3])
        LOG.warning("%d removals are held until a second list agrees or `signalbox confirm`: %s …", len(held), some)


MOST_LINES = 50  # about problems, at once: a slip in one place may be the problem of thousands


def log_difference(before: Collection[Problem], now: Collection[Problem], log: logging.Logger = LOG) -> None:
    """One warning for each new problem, and one line for each that is no more."""
    new, gone = set(now).difference(before), set(before).difference(now)
    for words, level, found in (("", logging.WARNING, new), ("mended: ", logging.INFO, gone)):
        for problem in sorted(found, key=str)[:MOST_LINES]:
            log.log(level, "%s%s", words, problem)
        if len(found) > MOST_LINES:
            log.log(level, "%s%d problems more, see /v1/problems", words, len(found) - MOST_LINES)


class ProblemLog:
    """What was said about objects, so that nothing is said twice, and it is said when a problem is no more."""

    def __init__(self) -> None:
        self._said: dict[tuple[Kind, str], tuple[Problem, ...]] = {}

    def note(self, changes: Iterable[Change]) -> None:
        before: list[Problem] = []
        now: list[Problem] = []
        for kind, key, value in changes:
            before += self._said.pop((kind, key), ())
            if problems := value_problems(value):
                self._said[kind, key] = problems
                now += problems
        if before or now:
            log_difference(before, now)
