"""Network namespaces of a lab: their names, running things in them, and ending all that runs in them.

A place is what a person calls a part of the lab (`n1`, `default/a`, `router`); its namespace is
`sb-LAB-…`. A lab's name has no dash, so one lab's prefix is never the beginning of another's.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FIXED_PLACES = ("fabric", "router", "router2", "outside", "remote", "controller")
NETNS = Path("/run/netns")
NAME = re.compile(r"[a-z0-9]{1,20}")
AT_ONCE = 8


class LabError(RuntimeError):
    """What was to be done, and what the tool that did it said."""


def check_name(lab: str) -> str:
    if not NAME.fullmatch(lab):
        raise LabError(f"lab name {lab!r}: only up to 20 lower-case letters and digits")
    return lab


def prefix(lab: str) -> str:
    return f"sb-{lab}-"


def fixed(lab: str, place: str) -> str:
    return prefix(lab) + place


def of_node(lab: str, node: str) -> str:
    return f"{prefix(lab)}node-{node}"


def of_pod(lab: str, namespace: str, name: str) -> str:
    return f"{prefix(lab)}pod-{namespace}.{name}"


def existing(lab: str) -> list[str]:
    """The namespaces of this lab that the machine has, sorted."""
    return sorted(path.name for path in NETNS.glob(prefix(lab) + "*")) if NETNS.is_dir() else []


def command(netns: str, argv: Sequence[str]) -> list[str]:
    """`argv` inside a namespace. Only the network changes: /sys and the mounts stay those of the caller."""
    return ["nsenter", f"--net={NETNS / netns}", "--", *argv]


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    timeout: float = 30,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs to the end, output as text; raises LabError on a bad status (with `check`) and after `timeout` seconds."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(argv)}: not done after {timeout} s") from error
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed") from error
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done


def ip_batch(lines: Iterable[str], *, force: bool = False) -> None:
    """One `ip` process for many commands; with `force` it goes on after errors and keeps them to itself.

    It ends with whoever started it: it runs in no namespace of the lab, where `take_down` would find it.
    """
    text = "".join(f"{line}\n" for line in lines)
    if text:
        words = ["setpriv", "--pdeathsig", "KILL", "ip", *(["-force"] if force else []), "-batch", "-"]
        run(words, stdin=text, timeout=120, check=not force)


def run_scripts(scripts: Iterable[tuple[str, Path]], timeout: float = 60) -> None:
    """Runs shell scripts in their namespaces, some at a time; raises LabError with the first that failed."""
    waiting = list(scripts)[::-1]
    running: list[_Script] = []
    failures: list[str] = []
    limit = time.monotonic() + timeout
    while running or (waiting and not failures):
        while waiting and len(running) < AT_ONCE and not failures:
            running.append(_Script(*waiting.pop()))
        failure = running.pop(0).finish(limit)
        if failure:
            failures.append(failure)
    if failures:
        raise LabError(failures[0])


class _Script:
    """A script on its way. Its output goes to a file beside it, because a daemon that it starts may keep it open."""

    def __init__(self, netns: str, path: Path) -> None:
        self._netns, self._path, self._output = netns, path, path.with_suffix(".log")
        words = command(netns, ["sh", "-eu", str(path)])
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def finish(self, limit: float) -> str:
        """Waits until it has ended, or until the monotonic clock shows `limit`; returns what went wrong, or ""."""
        try:
            status = self._process.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self._path} in {self._netns}: not done in time"
        said = self._output.read_text(errors="replace").strip()
        return f"{self._path} in {self._netns}: status {status}: {said}" if status else ""


def processes(names: Iterable[str]) -> list[int]:
    """Every process whose network namespace is one of these, found in one pass over /proc. Never this process."""
    wanted = set()
    for name in names:
        try:
            status = (NETNS / name).stat()
        except FileNotFoundError:
            continue
        wanted.add((status.st_dev, status.st_ino))
    own = Path("/proc/self/ns/net").stat()
    wanted.discard((own.st_dev, own.st_ino))  # run from inside a lab: do not end the caller
    found = []
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            status = Path(f"/proc/{pid}/ns/net").stat()
        except OSError:
            continue  # gone meanwhile
        if (status.st_dev, status.st_ino) in wanted:
            found.append(pid)
    return found


def command_line(pid: int) -> str:
    """The arguments of a living process, separated by spaces; "" when there is none, or it only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def end(pids: Iterable[int], patience: float = 2) -> None:
    """Ends processes: asked first, killed after `patience` seconds; returns when they are gone."""
    left = {pid: command_line(pid) for pid in pids}
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5)):
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        limit = time.monotonic() + wait
        while left and time.monotonic() < limit:
            left = {pid: line for pid, line in left.items() if line and command_line(pid) == line}
            if left:
                time.sleep(0.01)
    if left:
        raise LabError(f"processes that do not end: {left}")


def delete(names: Iterable[str]) -> None:
    ip_batch((f"netns delete {name}" for name in names), force=True)


def started(pid: int) -> str:
    """When a process began, in ticks since the machine did: with the pid it names one process. "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
