"""Traffic in a lab as tests see it: what to ask, and what came back.

`echo` answers in one process per place, `probe` asks in one process per place; these are their values. `frames_out`
sends what no client would.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from lab.netns import LabError

HERE = Path(__file__).parent


class Probe(Struct, frozen=True, omit_defaults=True):
    """One connection (or one socket) and its round trips; see `lab.probe` for the fields."""

    protocol: Literal["tcp", "udp"]
    host: str
    port: int
    source: str = ""
    source_port: int = 0
    requests: int = 1
    pause: float = 0
    timeout: float = 2
    tries: int = 1
    size: int = 1


class Answer(Struct, frozen=True):
    """What came of a probe. `answers` are "NAME ADDRESS PORT": who answered, and as whom it saw the client."""

    answers: tuple[str, ...]
    error: str  # "" when every round trip was answered
    milliseconds: float
    longest: float  # round trip, in milliseconds

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def names(self) -> tuple[str, ...]:
        """Who answered, in order."""
        return tuple(text.split()[0] for text in self.answers)

    @property
    def seen_as(self) -> str:
        """The client's address as the first answering server saw it; "" without an answer."""
        return self.answers[0].split()[1] if self.answers else ""


class Probing:
    """Probes on their way. `answers` waits for all of them."""

    def __init__(self, process: "subprocess.Popen[str]", probes: Iterable[Probe]) -> None:
        self._process = process
        self._input: str | None = msgspec.json.encode(list(probes)).decode()
        if process.stdin is None:
            raise ValueError("the process has no standard input to be told the probes by")
        process.stdin.write(self._input)
        process.stdin.close()
        process.stdin = None  # communicate() must not touch it again

    def answers(self, timeout: float = 60) -> list[Answer]:
        """One answer per probe, in their order; raises LabError when the client broke or is not done in `timeout` s."""
        try:
            output, errors = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.communicate()
            raise LabError(f"probes not done after {timeout} s") from error
        if self._process.returncode != 0:
            raise LabError(f"probe: {errors.strip()}")
        return msgspec.json.decode(output, type=list[Answer])


class FramesOut:
    """`frames_out` in a place, started and ready: what it sends leaves without the time that a start takes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LabError(f"frames: {process.communicate()[1].strip()}")

    def send(self, frames: Iterable[tuple[str, bytes]]) -> None:
        """Sends each by its device, in order, and ends; raises LabError when one was not sent."""
        _, errors = self._process.communicate(
            "".join(f"{device} {frame.hex()}\n" for device, frame in frames), timeout=30
        )
        if self._process.returncode != 0:
            raise LabError(f"frames: {errors.strip()}")


def frames_command() -> list[str]:
    return [sys.executable, "-IS", str(HERE / "frames_out.py")]


def probe_command() -> list[str]:
    return [sys.executable, "-IS", str(HERE / "probe.py")]


def echo_command(name: str, tcp: Sequence[int], udp: Sequence[int]) -> list[str]:
    ports = ["--tcp", *map(str, tcp), "--udp", *map(str, udp)]
    return [sys.executable, "-IS", str(HERE / "echo.py"), name, *ports]
