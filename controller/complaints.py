"""What a switch complains of, for the log: the first few, then how many more.

A switch that goes wrong may send thousands of errors a second. Writing each would fill the disk, and keep
everybody else waiting for it.
"""

import logging
from collections.abc import Callable
from time import monotonic

MOST = 10  # lines in …
SECONDS = 60.0


class Complaints:
    """Of one switch."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._until = 0.0
        self._said = self._left_out = 0

    def say(self, log: logging.Logger, who: str, what: object) -> None:
        now = self._clock()
        if now >= self._until:
            if self._left_out:
                log.warning("%s: %d more errors were not logged", who, self._left_out)
            self._until = now + self._seconds
            self._said = self._left_out = 0
        if self._said < self._most:
            self._said += 1
            log.warning("%s: %s", who, what)
        else:
            self._left_out += 1
