"""Follows a directory of manifests: the same objects, problems and guard as from an API server.

The directory is looked at every `poll_seconds`. A file that is new, changed or gone counts once a second look,
shortly after, sees it the same: so a file that is being written, or replaced by unlink and create, is not
taken for its final state. Only changed files are parsed. What can go wrong, and what happens:

- a file that does not parse keeps its last good objects and is reported with its line;
- an object that cannot be used keeps what it was when it could (`mirror`);
- one that never parsed since the start makes the source incomplete (`SourceStatus.complete`), since objects
  may be missing that were there before: removals from switches have to be held;
- a directory that is missing or cannot be read keeps everything, as a list that failed does;
- an emptied one is not believed (`guard`), and neither is what is missing while it fills again;
- single files and objects that are removed are obeyed at once.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from k8s_bridge.guard import SECOND_LIST_AFTER, Guard, Trust
from k8s_bridge.manifests import FileReading, Reading, file_problem, found_files, merge, parse_file
from k8s_bridge.mirror import Mirror
from k8s_bridge.slices import Slices
from k8s_bridge.source import KINDS, Sink, SourceStatus, log_difference, log_held
from pipelines.model import Change, Kind, Problem, Value

POLL_SECONDS = 0.2
SETTLE_SECONDS = 0.05  # longer than the granularity of a file system's time stamps


class Stamp(NamedTuple):
    """Equal for two looks at a file only when it was not written in between; None there: no such file."""

    inode: int
    size: int
    modified: int
    changed: int


class DirectorySource:
    """A `Source` that reads `path`, a directory (or a single file)."""

    def __init__(
        self,
        path: Path | str,
        sink: Sink,
        *,
        poll_seconds: float = POLL_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        second_list_after: float = SECOND_LIST_AFTER,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = Path(path)
        self._sink = sink
        self._poll_seconds = poll_seconds
        self._settle_seconds = min(settle_seconds, poll_seconds)
        self._clock = clock
        self._sleep = sleep
        self._pause = Slices(clock=clock, sleep=sleep).pause
        self._mirror = Mirror(Guard(second_list_after=second_list_after))
        self._seen: dict[str, Stamp] = {}  # at the last look
        self._parsed: dict[str, Stamp] = {}  # what the readings were made of
        self._readings: dict[str, FileReading] = {}  # last good objects, newest problems
        self._never_good: set[str] = set()
        self._merged = Reading({}, (), {})
        self._trouble: Problem | None = None  # with the directory as such
        self._synced = False
        self._ever_filled = False
        self._accepted = False  # an operator confirmed what there is
        self._last_change: float | None = None
        self._current: float | None = None  # when the last look began that left nothing to be read
        self._stopping = False
        self._one_at_a_time = threading.Lock()  # confirm() comes from another (green) thread

    def run(self) -> None:
        while not self._stopping:
            settled = self.look()
            self._sleep(self._poll_seconds if settled else self._settle_seconds)

    def stop(self) -> None:
        self._stopping = True

    def confirm(self) -> None:
        """Remove what is held; with the directory missing that is everything."""
        with self._one_at_a_time:
            self._accepted = True
            if self._synced and self._trouble is not None:
                self._parsed, self._readings, self._never_good = {}, {}, set()
                self._publish(Trust.FULL)
            self._deliver(self._mirror.confirm())

    def status(self) -> SourceStatus:
        own = () if self._trouble is None else (self._trouble,)
        return SourceStatus(
            name=f"directory {self._root}",
            synced=self._synced,
            complete=self._synced and (self._accepted or (self._ever_filled and not self._never_good)),
            counts=self._mirror.counts(),
            problems=own + self._problems(),
            held=self._mirror.held(),
            last_error=str(self._trouble) if self._trouble is not None else "",
            last_event_age=None if self._last_change is None else self._clock() - self._last_change,
            current_age=None if self._current is None else self._clock() - self._current,
        )

    def look(self) -> bool:
        """Look once and deliver what changed. False when something is still being written: look again soon."""
        with self._one_at_a_time:
            began = self._clock()
            try:
                files = found_files(self._root)
            except OSError as error:
                then = "so everything is kept" if self._synced else "and nothing is known yet"
                self._note(file_problem(str(self._root), 0, f"cannot be read, {then}: {error.strerror}"))
                return True
            stamps = {name: stamp for name, path in files.items() if (stamp := _stamp(path)) is not None}
            before, self._seen = self._seen, stamps
            different = [n for n in stamps.keys() | self._parsed.keys() if stamps.get(n) != self._parsed.get(n)]
            settled = [name for name in different if stamps.get(name) == before.get(name)]
            for name in sorted(settled):
                self._take(name, files.get(name), stamps.get(name))
            at_rest = len(settled) == len(different)
            if self._synced or at_rest:  # the first sync is of a directory that keeps still
                self._note(None if stamps else file_problem(str(self._root), 0, "holds no manifest"))
                if settled or self._second_list_due() or not self._synced:
                    self._publish(Trust.FULL if self._parsed and not self._mirror.held() else Trust.NONE)
                if self._parsed == stamps:
                    self._current = began
            return at_rest

    def _take(self, name: str, path: Path | None, stamp: Stamp | None) -> None:
        """Make the reading of one file follow what is on disk."""
        if path is None or stamp is None:
            self._parsed.pop(name, None)
            self._readings.pop(name, None)
            self._never_good.discard(name)
            return
        reading = parse_file(name, path, self._pause)
        if _stamp(path) != stamp:
            return  # written meanwhile: the next look sees another stamp
        self._parsed[name] = stamp
        self._ever_filled = True
        if reading.broken:
            known = self._readings.get(name)
            if known is None or name in self._never_good:
                self._never_good.add(name)
            if known is not None and known.found:
                reading = reading._replace(found=known.found)
        else:
            self._never_good.discard(name)
        self._readings[name] = reading

    def _publish(self, trust: Trust) -> None:
        known = self._problems()
        self._merged = merge(self._readings, self._pause)
        listings: dict[Kind, dict[str, Value]] = {kind: {} for kind in KINDS}
        for (kind, key), value in self._merged.values.items():
            listings[kind][key] = value
        held = set(self._mirror.held())
        changes: list[Change] = []
        for kind, listing in listings.items():
            changes += self._mirror.replace(kind, listing, self._clock(), trust=trust, pause=self._pause)
        log_difference(known, self._problems())
        log_held(set(self._mirror.held()) - held)
        self._deliver(changes)
        if not self._synced:
            self._synced = True
            self._sink.synced()

    def _problems(self) -> tuple[Problem, ...]:
        """Of files, and of objects; the mirror knows which of them were kept."""
        return tuple(dict.fromkeys((*self._merged.problems, *self._mirror.problems())))

    def _second_list_due(self) -> bool:
        return any(self._mirror.recheck_in(kind, self._clock()) == 0 for kind in KINDS)

    def _deliver(self, changes: list[Change]) -> None:
        if changes:
            self._last_change = self._clock()
            self._sink.apply(changes)

    def _note(self, problem: Problem | None) -> None:
        """Remember the directory's own state; a new trouble is logged once, and when it is over."""
        log_difference(_listed(self._trouble), _listed(problem))
        self._trouble = problem


def _listed(problem: Problem | None) -> tuple[Problem, ...]:
    return () if problem is None else (problem,)


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
