"""Traffic between two places of a lab, and what it took: rates, round trips, the switches' processor time."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lab import switch
from lab.cluster import Lab
from lab.netns import LabError

HERE = Path(__file__).parent
IPERF, ECHO = 5201, 7007  # ports of the servers
SMALL = 64  # bytes of a small datagram's payload
SHORT = "200K"  # bytes, for those who ask for less than iperf3's least time
PATIENCE = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


class Rate(Struct, frozen=True):
    """`amount`: megabits or datagrams that arrived; `processor`: seconds that all ovs-vswitchd ran meanwhile."""

    amount: float
    seconds: float
    processor: float

    @property
    def by_second(self) -> float:
        return self.amount / self.seconds


def serve(lab: Lab, place: str) -> None:
    """Starts the servers of a place; they end with the lab."""
    lab.popen(place, "iperf3", "--server", "--port", str(IPERF))
    lab.echo(place, tcp=(ECHO,))


def await_way(lab: Lab, client: str, address: str) -> None:
    """Until the server can be reached: hosts may have to find their neighbours first."""
    limit = time.monotonic() + PATIENCE
    while not _ask(lab, client, address, check=False):
        if time.monotonic() > limit:
            raise LabError(f"{client} does not reach {address}")


def tcp(lab: Lab, client: str, address: str, seconds: float) -> Rate:
    """One connection that sends as much as it can. Megabits of payload."""
    found, spent = _iperf(lab, client, address, seconds)
    whole = found["end"]["sum_received"]
    return Rate(whole["bytes"] * 8 / 1e6, whole["seconds"], spent)


def udp(lab: Lab, client: str, address: str, seconds: float) -> Rate:
    """Small datagrams, as many as the client can send; those that arrive count."""
    found, spent = _iperf(lab, client, address, seconds, "--udp", "--bitrate", "0", "--length", str(SMALL))
    whole = found["end"]["sum"]
    return Rate(whole["packets"] - whole["lost_packets"], whole["seconds"], spent)


def round_trips(lab: Lab, client: str, address: str, seconds: float) -> list[float]:
    """Of single lines on one TCP connection, one after the other; µs."""
    words = [sys.executable, "-IS", str(HERE / "round_trips.py"), address, str(ECHO), str(seconds)]
    return msgspec.json.decode(lab.run(client, *words, timeout=seconds + PATIENCE).stdout, type=list[float])


def _ask(lab: Lab, client: str, address: str, check: bool = True) -> bool:
    words = [sys.executable, "-IS", str(HERE / "round_trips.py"), address, str(ECHO), "0"]
    return lab.run(client, *words, timeout=PATIENCE, check=check).returncode == 0


def _iperf(lab: Lab, client: str, address: str, seconds: float, *more: str) -> tuple[dict[str, Any], float]:
    length = ("--time", f"{seconds:.0f}") if seconds >= 1 else ("--bytes", SHORT)
    words = ["iperf3", "--json", "--client", address, "--port", str(IPERF), *length, *more]
    return _timed(lab, lambda: _once(lab, client, words, seconds))


def _once(lab: Lab, client: str, words: list[str], seconds: float) -> dict[str, Any]:
    """The server takes one client at a time, and may not yet have noticed that the last one has gone."""
    limit = time.monotonic() + PATIENCE
    while True:
        done = lab.run(client, *words, timeout=seconds + PATIENCE, check=False)
        found: dict[str, Any] = msgspec.json.decode(done.stdout) if done.stdout else {"error": done.stderr}
        if "error" not in found:
            return found
        if time.monotonic() > limit:
            raise LabError(f"iperf3 in {client}: {found['error']}")


def _timed(lab: Lab, work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
    before = processor(lab)
    done = work()
    return done, processor(lab) - before


def processor(lab: Lab, nodes: Iterable[str] | None = None) -> float:
    """Seconds that ovs-vswitchd of these nodes (None: of all) have run so far."""
    total = 0
    for name in nodes or [node.name for node in lab.plan.nodes]:
        number = switch.pid(lab.switch_directory(name), "ovs-vswitchd")
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def cached(lab: Lab, node: str) -> int:
    """How many decisions the datapath of a node has cached (its megaflows)."""
    return len([line for line in lab.appctl(node, "dpctl/dump-flows").splitlines() if "actions:" in line])
