"""Time for tests whose switches are in this process: it passes while everybody waits, and hardly else.

The hub looks whether anything can be read or written; when nothing can and no timer is due, its clock is put
to the next timer at once. So what a loaded machine does to a test is nothing, a time limit of a tenth of a second
is exact, and waiting costs no time. Not for sockets over TCP and not for other processes: what those have sent may
still be on its way when nothing can be read.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from eventlet import hubs

TURN = 1e-4  # seconds that a turn of the hub takes, so that threads which never wait do not stop time


@contextmanager
def only_waiting_takes_time() -> Iterator[None]:
    hub, now = hubs.get_hub(), time.monotonic()
    look, wait = hub.do_poll, hub.wait

    def do_poll(seconds: float) -> list[tuple[int, int]]:
        nonlocal now
        found: list[tuple[int, int]] = look(0)
        now += TURN if found else max(TURN, seconds)
        return found

    def wait_or_skip(seconds: float) -> None:
        nonlocal now
        if any(hub.listeners.values()):
            wait(seconds)
        else:
            now += max(TURN, seconds)

    def clock() -> float:
        return now

    with ExitStack() as patches:
        patches.enter_context(mock.patch.multiple(hub, do_poll=do_poll, wait=wait_or_skip, clock=clock))
        for name, module in list(sys.modules.items()):
            if name.startswith("controller.") and getattr(module, "monotonic", None) is time.monotonic:
                patches.enter_context(mock.patch.object(module, "monotonic", clock))
        yield
