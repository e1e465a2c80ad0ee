"""A process in network, process and mount namespaces of its own.

The namespaces have no names, and the process is their first: when it ends, in whatever way, the kernel ends all that
it started, daemons included, and nothing is left. When this process ends, that one is killed.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ENCLOSE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")


class EndedBadly(RuntimeError):
    """The process inside had a bad status; it has said why."""


def output(argv: Sequence[str]) -> bytes:
    """What `argv` plus the path of an empty directory printed. Raises EndedBadly; leaves nothing in any case."""
    directory = tempfile.mkdtemp(prefix="signalbox-bench-")
    try:
        # A session of its own: an interrupt on the terminal is this process's to handle.
        with subprocess.Popen([*ENCLOSE, *argv, directory], stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                printed, _ = process.communicate()
            finally:
                process.kill()
        if process.returncode:
            raise EndedBadly(f"{' '.join(argv)}: status {process.returncode}")
        return printed
    finally:
        _remove(Path(directory))


def _remove(directory: Path) -> None:
    """The last processes may still be ending, and write."""
    limit = time.monotonic() + 5
    while directory.exists() and time.monotonic() < limit:
        with suppress(OSError):
            shutil.rmtree(directory)
            return
        time.sleep(0.05)
