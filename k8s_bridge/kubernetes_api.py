"""Follows a Kubernetes cluster by its API: every kind is listed once and then watched, each in an own green thread.

What can go wrong, and what happens: a watch that ends is taken up where it stopped; one that expired (410) is
listed again; a server that fails, or says nothing, is left for the next one, and when all have been tried, tried
again with growing, jittered pauses. Nothing is ever removed because a server could not be asked, or because an
object cannot be used as it is now (`mirror`). Lists that lost
many objects are doubted by `guard` and asked for again, from another server where there is one.
"""

import random
import threading
import time
from collections.abc import Callable

from k8s_bridge.connection import FAILURES, ApiError, Connection, KubernetesSettings, Response, Servers, connect
from k8s_bridge.guard import Guard
from k8s_bridge.listing import Event, Listing, list_kind, watch_kind
from k8s_bridge.mirror import Mirror
from k8s_bridge.slices import Slices
from k8s_bridge.source import KINDS, LOG, ProblemLog, Sink, SourceStatus, log_difference, log_held
from pipelines.model import Change, Kind, Problem

Spawn = Callable[[Callable[[], None]], object]

FIRST_WAIT = 0.5  # seconds before the second attempt
ABSENT_WAIT = 60.0  # seconds until a kind that the server does not know is asked for again
SHORT_WATCH = 1.0  # seconds: a watch that ended sooner with no word counts as a failure
# Watches in a row without even a bookmark: either nothing happened since the server started, or the resource version
# is one that never comes, because etcd was restored. A list tells; each one that was needless doubles the patience.
SILENT_WATCHES, MOST_SILENT_WATCHES = 10, 160
STOP_SECONDS = 5.0  # for the threads of the kinds to end


class KubernetesSource:
    """A `Source` over the API. `spawn` starts a (green) thread; raises ValueError for unusable settings."""

    def __init__(
        self,
        settings: KubernetesSettings,
        sink: Sink,
        spawn: Spawn,
        *,
        servers: Servers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._spawn = spawn
        self._clock = clock
        self._servers = connect(settings) if servers is None else servers
        self._mirror = Mirror(Guard(second_list_after=settings.second_list_after))
        self._problem_log = ProblemLog()
        self._one_at_a_time = threading.Lock()  # the mirror and the sink, between the kinds
        self._listed: set[Kind] = set()
        self._running = 0
        self._errors: dict[Kind, str] = {}
        self._open: dict[Kind, Response] = {}
        self._heard: float | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        self._running = len(KINDS)
        for kind in KINDS:
            self._spawn(Follower(self, kind, self._settings, self._servers, self._clock).run)
        self._stopping.wait()
        deadline = self._clock() + STOP_SECONDS
        while self._running and self._clock() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        for response in list(self._open.values()):
            _wake(response)

    def confirm(self) -> None:
        with self._one_at_a_time:
            self._deliver(self._mirror.confirm())

    def status(self) -> SourceStatus:
        with self._one_at_a_time:
            addresses = self._servers.addresses()
            errors = [f"{kind.value}: {self._errors[kind]}" for kind in KINDS if kind in self._errors]
            own = tuple(Problem("Source", addresses[0], "connection", error) for error in errors)
            synced = len(self._listed) == len(KINDS)
            return SourceStatus(
                name=f"kubernetes {addresses[0]}",
                synced=synced,
                complete=synced,
                counts=self._mirror.counts(),
                problems=own + self._mirror.problems(),
                held=self._mirror.held(),
                servers=addresses,
                last_error=errors[0] if errors else "",
                last_event_age=None if self._heard is None else self._clock() - self._heard,
            )

    # -- what the followers of the kinds use

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond `stop()`."""
        self._stopping.wait(seconds)

    def opened(self, kind: Kind, response: Response | None) -> None:
        """Remember what is being read, so that `stop()` can end it."""
        if response is None:
            self._open.pop(kind, None)
        else:
            self._open[kind] = response
            if self.stopping:  # it was opened just after `stop()` had looked
                _wake(response)

    def ended(self) -> None:
        with self._one_at_a_time:
            self._running -= 1

    def recheck_in(self, kind: Kind) -> float | None:
        with self._one_at_a_time:
            return self._mirror.recheck_in(kind, self._clock())

    def working(self, kind: Kind) -> None:
        if self._errors.pop(kind, None) is not None:
            LOG.info("%s: followed again from %s", kind.value, self._servers.current.url)

    def failed(self, kind: Kind, error: str) -> None:
        """Said once for the same error, however often it is tried again."""
        if self._errors.get(kind) != error:
            LOG.warning("%s: %s", kind.value, error)
        self._errors[kind] = error

    def heard(self, kind: Kind, event: Event) -> None:
        self._heard = self._clock()
        if event.object is None:
            return
        if not event.object.key:
            log_difference((), event.object.problems)
            return
        with self._one_at_a_time:
            self._deliver(self._mirror.put(kind, event.object.key, event.object.value))

    def listed(self, kind: Kind, listing: Listing, origin: str, slices: Slices) -> None:
        self._heard = self._clock()
        with self._one_at_a_time:
            held = set(self._mirror.held())
            changes = self._mirror.replace(kind, listing.values, self._clock(), origin, pause=slices.pause)
            log_held(set(self._mirror.held()) - held)
            self._deliver(changes, listing.problems)
            if kind not in self._listed:
                self._listed.add(kind)
                if len(self._listed) == len(KINDS):
                    self._sink.synced()

    def _deliver(self, changes: list[Change], problems: tuple[Problem, ...] = ()) -> None:
        self._problem_log.note(changes)
        log_difference((), problems)
        if changes:
            self._sink.apply(changes)


def _wake(response: Response) -> None:
    """Make the thread that reads `response` see its end."""
    try:
        response.shutdown()
    except (OSError, ValueError, RuntimeError):
        LOG.debug("a response had just ended by itself")


class Follower:
    """One kind: list, watch, and what to do when either fails. Lives as long as the source runs."""

    def __init__(
        self,
        source: KubernetesSource,
        kind: Kind,
        settings: KubernetesSettings,
        servers: Servers,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._kind = kind
        self._settings = settings
        self._servers = servers
        self._clock = clock
        self._slices = Slices()
        self._path: str | None = None
        self._version: str | None = None  # None: list first
        self._failures = 0  # in a row, without a watch that worked in between
        self._expired = 0  # likewise: watches that had to begin with a list
        self._silent = 0  # watches in a row that brought nothing
        self._patience = SILENT_WATCHES
        self._asked_elsewhere = False  # about removals that are held

    def run(self) -> None:
        try:
            while not self._source.stopping:
                connection = self._servers.current
                try:
                    self._step(connection)
                except FAILURES as error:
                    self._failed(connection, error)
                except Exception as error:  # noqa: BLE001 - whatever it is, a kind is never left unfollowed
                    LOG.exception("%s: unexpected", self._kind.value)
                    self._version = None
                    self._failed(connection, error)
        finally:
            self._source.ended()

    def _step(self, connection: Connection) -> None:
        if self._version is None:
            self._list(connection)
        elif self._path is None:
            self._source.wait(ABSENT_WAIT)
            self._version = None
        else:
            self._watch(connection, self._path, self._version)

    def _list(self, connection: Connection) -> None:
        settings = self._settings
        listing = list_kind(
            connection, self._kind, settings.page_size, settings.list_seconds, self._slices.pause, self._opened
        )
        self._source.listed(self._kind, listing, connection.url, self._slices)
        self._path, self._version, self._silent = listing.path, listing.resource_version, 0
        self._source.working(self._kind)
        if self._source.recheck_in(self._kind) is None:
            self._asked_elsewhere = False
        elif len(self._servers) > 1 and not self._asked_elsewhere:
            self._asked_elsewhere = True
            self._servers.leave(connection)
            self._version = None

    def _watch(self, connection: Connection, path: str, version: str) -> None:
        silence = self._settings.silence_seconds
        seconds = silence * random.uniform(0.7, 0.8)  # spread over the kinds, and over before it counts as silence
        recheck = self._source.recheck_in(self._kind)
        if recheck is not None:
            if recheck <= 0:
                self._version = None
                return
            seconds = min(seconds, recheck)
        started, words = self._clock(), 0
        events = watch_kind(
            connection,
            self._kind,
            path,
            version,
            max(1, int(seconds)),
            silence,
            self._slices.pause,
            self._watching,
        )
        for event in events:
            self._failures = self._expired = 0
            words += 1
            self._version = event.resource_version or self._version
            self._source.heard(self._kind, event)
        if words:
            self._silent, self._patience = 0, SILENT_WATCHES
        elif self._clock() - started < SHORT_WATCH and not self._source.stopping:
            raise ApiError(0, "the watch ended as soon as it had begun")
        else:
            self._failures = self._expired = 0
            self._silent += 1
            if self._silent >= self._patience:
                self._version, self._patience = None, min(2 * self._patience, MOST_SILENT_WATCHES)

    def _opened(self, response: Response | None) -> None:
        self._source.opened(self._kind, response)

    def _watching(self, response: Response | None) -> None:
        """A watch that was accepted works, as far as anybody can tell; the next word, or a quiet end, proves it."""
        self._opened(response)
        if response is not None:
            self._source.working(self._kind)

    def _failed(self, connection: Connection, error: Exception) -> None:
        if self._source.stopping:
            return
        after = error.retry_after if isinstance(error, ApiError) else 0.0
        if isinstance(error, ApiError) and error.gone:
            LOG.info("%s: %s; listing again", self._kind.value, error)
            self._version = None
            self._expired += 1
            if self._expired == 1:
                return
        self._failures += 1
        if not isinstance(error, ApiError) or error.servers_fault:
            self._servers.leave(connection)
        rounds, rest = divmod(self._failures, len(self._servers))
        if rounds > 1:
            self._version = None  # perhaps it is the watch that no server can serve
        self._source.failed(self._kind, f"{connection.url}: {error}")
        if rest == 0:
            wait = min(self._settings.longest_wait, FIRST_WAIT * 2 ** min(rounds - 1, 10))
            self._source.wait(max(after, wait * random.uniform(0.5, 1.0)))
