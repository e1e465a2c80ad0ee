"""A sink that remembers, and waiting for what it should see."""

import threading
import time
from collections.abc import Callable

from pipelines.model import Change, Kind, Value


class Recording:
    """What a source said, as the current state and as the list of batches."""

    def __init__(self) -> None:
        self.values: dict[tuple[Kind, str], Value] = {}
        self.batches: list[list[Change]] = []
        self.synced_calls = 0
        self.synced_event = threading.Event()

    def apply(self, changes: list[Change]) -> None:
        self.batches.append(changes)
        for kind, key, value in changes:
            if value is None:
                del self.values[kind, key]  # a removal of what is not there is a fault
            else:
                assert self.values.get((kind, key)) != value, f"{kind} {key}: no difference"
                self.values[kind, key] = value

    def synced(self) -> None:
        self.synced_calls += 1
        self.synced_event.set()

    def keys(self, kind: Kind) -> set[str]:
        return {key for of, key in self.values if of is kind}


def until(holds: Callable[[], object], seconds: float = 60.0, what: str = "what was awaited") -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)
