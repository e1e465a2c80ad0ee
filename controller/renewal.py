"""Learned flows that should stay unused for longer than OpenFlow can say: they come back for the rest.

A switch tells that it has removed one because nobody used it. The application says for how long it goes on, and the
session's own thread writes it, between two rounds: whatever takes away what was learned comes after. What was learned
anew in the meantime is another flow, with a higher priority, and neither replaced nor shortened.

Thousands may be removed at once. They wait here, and go in bundles of a thousand.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from controller import encode
from controller.rows import FlowRemoved
from pipelines.actions import Action

if TYPE_CHECKING:
    from controller.writer import Writer

LOG = logging.getLogger(__name__)

BATCH = 1000
MOST = 100_000  # that wait; for what is more it is over


class Rest(NamedTuple):
    """The flow goes on for so many seconds without use, with this priority, and does that."""

    seconds: int
    priority: int
    actions: tuple[Action, ...]


class Renewals:
    """Of one switch. `rest` says how a flow goes on, None when it does not; `ring` wakes the session."""

    def __init__(self, rest: Callable[[FlowRemoved], Rest | None], ring: Callable[[], None]) -> None:
        self.written = self.dropped = self.failed = 0
        self._rest, self._ring = rest, ring
        self._removed: deque[FlowRemoved] = deque()

    def push(self, removed: FlowRemoved) -> None:
        """Never waits."""
        if not removed.unused:
            return
        if len(self._removed) >= MOST:
            self.dropped += 1
            return
        self._removed.append(removed)
        self._ring()

    def clear(self) -> None:
        """Somebody else looks after the switch."""
        self._removed.clear()

    def carry_out(self, writer: "Writer", pause: Callable[[], None]) -> None:
        """A bundle of them, when there are any. Raises what writing raises."""
        messages: list[bytes] = []
        while self._removed and len(messages) < BATCH:
            removed = self._removed.popleft()
            try:
                rest = self._rest(removed)
                if rest is not None:
                    messages.append(
                        encode.prolonged(removed.key, rest.priority, removed.cookie, rest.seconds, rest.actions)
                    )
            except Exception:
                self.failed += 1
                LOG.exception("a learned flow that was removed cannot go on")
            pause()
        if self._removed:
            self._ring()
        if not messages:
            return
        if errors := writer.write(messages):
            self.failed += len(messages)
            LOG.error("%d learned flows do not go on: %s", len(messages), next(iter(errors.values())))
        else:
            self.written += len(messages)
