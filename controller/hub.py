"""What waits and what yields: the few primitives by which green threads share the hub.

One thread runs everything, so nothing may hold it for longer than a slice (20 ms), and whoever waits is
woken by state, not by messages: a bell that was rung before anyone listened still counts.
"""

from collections import deque
from time import monotonic, perf_counter

import eventlet
from eventlet.event import Event

SLICE = 0.01  # seconds of work between two yields: half of what the hub may be held


class Gate:
    """Wakes all who wait when something may have changed. They look again themselves."""

    def __init__(self) -> None:
        self._waiting: list[Event] = []

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.send(True)

    def wait(self, timeout: float | None = None) -> bool:
        """True when notified, False after `timeout` seconds."""
        if timeout is not None and timeout <= 0:
            return False
        event = Event()
        self._waiting.append(event)
        if event.wait(timeout):
            return True
        if event in self._waiting:
            self._waiting.remove(event)
        return False


class Bell:
    """Level-triggered: rung once or often, heard once. For one listener."""

    def __init__(self) -> None:
        self._rung = False
        self._gate = Gate()

    def ring(self) -> None:
        self._rung = True
        self._gate.notify()

    def wait(self, timeout: float | None = None) -> bool:
        """True when it was rung since the last wait, False after `timeout` seconds."""
        if not self._rung:
            self._gate.wait(timeout)
        rung, self._rung = self._rung, False
        return rung


class Turns:
    """One after the other: of all who rest, each turn of the hub wakes one.

    Fifty switches that are synced at once would otherwise each take a slice in every turn, and keep an echo, a
    packet-in or a request waiting for all fifty.
    """

    def __init__(self) -> None:
        self._resting: deque[Event] = deque()

    def wait(self) -> None:
        event = Event()
        self._resting.append(event)
        if len(self._resting) == 1:
            eventlet.spawn_n(self._wake_in_turn)
        event.wait()

    def _wake_in_turn(self) -> None:
        while self._resting:
            self._resting[0].send(True)
            eventlet.sleep(0)
            self._resting.popleft()


_TURNS = Turns()


class Slices:
    """Call it often in a long piece of work: it lets the others run whenever a slice is over."""

    def __init__(self, seconds: float = SLICE) -> None:
        self._seconds = seconds
        self._began = perf_counter()

    def __call__(self) -> None:
        if perf_counter() - self._began > self._seconds:
            self.rest()

    def rest(self) -> None:
        _TURNS.wait()
        self._began = perf_counter()


class Deadline:
    """A point in time that several waits share. None: never."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds, 0 when it has passed."""
        return None if self._at is None else max(0.0, self._at - monotonic())

    @property
    def passed(self) -> bool:
        return self._at is not None and monotonic() >= self._at
