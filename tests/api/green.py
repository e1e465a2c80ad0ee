"""Follows an API server in a process that eventlet patched; run as a program by test_faults."""

import eventlet

eventlet.monkey_patch()

import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2]))

from k8s_bridge.connection import KubernetesSettings  # noqa: E402
from k8s_bridge.kubernetes_api import KubernetesSource  # noqa: E402
from pipelines.model import Change, Kind  # noqa: E402

LONGEST_STALL = 0.5  # seconds


def waited_for_a_processor() -> float:
    """Seconds, in all: what others on this machine took from us is no stall of ours."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


class Counting:
    def __init__(self) -> None:
        self.slices: set[str] = set()
        self.synced_calls = 0

    def apply(self, changes: list[Change]) -> None:
        self.slices |= {change.key for change in changes if change.kind is Kind.ENDPOINT_SLICE and "web-" in change.key}

    def synced(self) -> None:
        self.synced_calls += 1


def main(kubeconfig: str, *servers: str) -> None:
    sink = Counting()
    settings = KubernetesSettings(kubeconfig=kubeconfig, servers=servers, page_size=7, silence_seconds=3.0)
    source = KubernetesSource(settings, sink, eventlet.spawn)
    longest, going = 0.0, True

    def beat() -> None:
        nonlocal longest
        while going:
            before = time.monotonic() - waited_for_a_processor()
            eventlet.sleep(0.001)
            longest = max(longest, time.monotonic() - waited_for_a_processor() - before)

    running, beating = eventlet.spawn(source.run), eventlet.spawn(beat)
    with eventlet.Timeout(60):
        while not sink.synced_calls:
            eventlet.sleep(0.01)
    eventlet.sleep(4)  # a watch ends and begins anew meanwhile
    source.stop()
    with eventlet.Timeout(60):
        running.wait()
    going = False
    beating.wait()
    native = [thread.name for thread in eventlet.patcher.original("threading").enumerate()]
    assert len(native) == 1, native
    assert longest < LONGEST_STALL, f"the hub stalled for {longest:.3f} s"
    assert threading.current_thread() is not None
    print(f"synced once, {len(sink.slices)} slices, stopped; longest stall {longest * 1000:.0f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
