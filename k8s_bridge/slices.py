"""Long work in short slices, so that one source never holds the hub.

Decoding and comparing are pure CPU work; called now and then from inside such a loop, `pause` lets the other
green threads run once a slice has lasted long enough. Unpatched, it is a harmless `time.sleep(0)`.
"""

import time
from collections.abc import Callable

SLICE_SECONDS = 0.005  # a quarter of what the hub allows, since single items take time too

Pause = Callable[[], None]


def no_pause() -> None:
    """For work that is short, or that nobody waits for."""


class Slices:
    """`pause()` is cheap: it reads the clock, and sleeps for zero seconds when the slice is over."""

    def __init__(
        self,
        seconds: float = SLICE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._started = clock()

    def pause(self) -> None:
        if self._clock() - self._started >= self._seconds:
            self._sleep(0)
            self._started = self._clock()
