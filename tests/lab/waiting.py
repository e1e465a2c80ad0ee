"""Names, and patience: a busy machine is slow, and may lose a frame."""

import os
import time
from collections.abc import Callable
from functools import partial

from lab.cluster import Lab

PATIENCE = 20.0


def unique(word: str) -> str:
    return f"{word}{os.getpid()}"


def soon(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Until `holds()`, asked again and again."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(0.05)


def answers(lab: Lab, place: str, address: str, timeout: int = 1) -> bool:
    """Whether one ping is answered."""
    return lab.run(place, "ping", "-c1", f"-W{timeout}", address, check=False).returncode == 0


def reaches(lab: Lab, place: str, *addresses: str) -> None:
    for address in addresses:
        soon(partial(answers, lab, place, address), f"an answer of {address} to {place}")
