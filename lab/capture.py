"""Frames as they were on a wire of the lab: tcpdump writes them, scapy reads them."""

import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.netns import LabError


class Capture:
    """A running tcpdump; also a context manager, after which `frames` has what passed meanwhile."""

    def __init__(self, process: "subprocess.Popen[str]", path: Path) -> None:
        self.path = path
        self._process = process
        assert process.stderr is not None
        for line in process.stderr:
            if "listening on" in line:
                return
        raise LabError(f"tcpdump ended with status {process.wait()} before it captured anything")

    def stop(self, linger: float = 0.1) -> None:
        """Ends the capture; what was sent up to now has `linger` seconds to arrive."""
        if self._process.poll() is None:
            time.sleep(linger)
            self._process.terminate()
        self._process.communicate(timeout=10)

    def frames(self) -> list[Any]:
        """The scapy packets captured so far, oldest first."""
        import scapy.layers.all  # noqa: F401 - registers what rdpcap dissects
        from scapy.utils import rdpcap  # late: scapy takes half a second to import

        return list(rdpcap(str(self.path))) if self.path.stat().st_size > 24 else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def tcpdump(interface: str, path: Path, expression: str) -> list[str]:
    """The command; `expression` is a pcap filter, empty for everything. -Z: the state directory is root's."""
    return [
        "tcpdump",
        "-n",
        "-U",
        "--immediate-mode",
        "-Z",
        "root",
        "-s",
        "0",
        "-i",
        interface,
        "-w",
        str(path),
        expression,
    ]
