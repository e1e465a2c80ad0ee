"""Packet-ins of one switch: a short queue between the receiving thread and the features that answer.

A flood is dropped and counted here; it delays neither the replies this switch owes us nor another switch.
"""

import logging
from collections import deque
from collections.abc import Callable

import eventlet

from controller.hub import Bell, Slices
from controller.readback import PacketIn

LOG = logging.getLogger(__name__)

LENGTH = 256


class PacketIns:
    """Calls `handle` for each, on an own green thread. What it raises is logged, counted and survived."""

    def __init__(self, handle: Callable[[PacketIn], None]) -> None:
        self.dropped = self.failed = 0
        self._handle = handle
        self._queue: deque[PacketIn] = deque()
        self._bell = Bell()
        self._ended = False

    def start(self) -> None:
        eventlet.spawn_n(self._run)

    def end(self) -> None:
        self._ended = True
        self._bell.ring()

    def push(self, packet: PacketIn) -> None:
        """Never waits."""
        if len(self._queue) >= LENGTH:
            self.dropped += 1
            return
        self._queue.append(packet)
        self._bell.ring()

    def _run(self) -> None:
        slices = Slices()
        while not self._ended:
            if not self._queue:
                self._bell.wait()
                continue
            try:
                self._handle(self._queue.popleft())
            except Exception:
                self.failed += 1
                LOG.exception("a packet-in handler failed")
            slices()
