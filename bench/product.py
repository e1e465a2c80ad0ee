"""Our side: compiler, fleet and a listener for real switches in this process, joined as `apps.fabric` joins them.

Only the app around them is missing, because importing Ryu patches the whole process and makes the peers' programs
wait for a poll.
"""

import gc
from collections.abc import Callable, Collection, Iterable
from time import monotonic, perf_counter

import eventlet
import msgspec

from controller.connection import Patience
from controller.fleet import Fleet
from controller.hub import Bell, Gate, Slices
from controller.listener import Listener
from controller.readback import FlowRow
from controller.session import Hooks, Session, State
from controller.settings import SwitchSettings
from controller.switches import Switches
from pipelines.actions import LOCAL_PORT
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS
from pipelines.model import Change, Kind, Port, port_key
from pipelines.unit import Revision

STALL_PROBE = 0.01  # seconds, as in apps.fabric
COLD_PATIENCE = 600  # seconds: 10,000 services on a busy machine
NOTICED = 0.5  # seconds in which a connection that has ended is seen to have
# Peers' programs hold this process up for as long as they take; that is no reason to give up a connection.
PATIENCE = Patience(echo_timeout=COLD_PATIENCE)
GC_THRESHOLDS = (50_000, 50, 100)  # likewise


class Timing(msgspec.Struct):
    """When the last compilation began and ended, and when it was published: seconds of `perf_counter`."""

    began: float = 0
    compiled: float = 0
    published: float = 0


class Product:
    """Listens at once. `declare_ready` with the first objects, as after a source's first list."""

    def __init__(self) -> None:
        gc.unfreeze()  # what an earlier one left may go
        gc.collect()
        gc.set_threshold(*GC_THRESHOLDS)
        self.compiler = Compiler()
        self.fleet = Fleet(pause=Slices())
        hooks = Hooks(observe=self._observe, ports_changed=lambda node, changes: self.apply(changes))
        self.switches = Switches(self.fleet, SwitchSettings(audit_interval=0, patience=PATIENCE), hooks)
        self.timing = Timing()
        self.newest: Revision | None = None
        self.stall = 0.0
        self._submitted = self._published = 0
        self._bell, self._gate, self._slices = Bell(), Gate(), Slices()
        self._threads = [eventlet.spawn(self._compile_for_ever), eventlet.spawn(self._watch_stalls)]
        self._listener = Listener(("127.0.0.1", 0), self.switches)
        self._listener.start()

    @property
    def port(self) -> int:
        return self._listener.address[1]

    def close(self) -> None:
        self._listener.close()
        for row in self.switches.sessions():
            session = self.switches.session(row.dpid)
            if session is not None:
                session.connection.close("the bench goes on")
        until(lambda: not self.switches.sessions())
        for thread in self._threads:
            thread.kill()

    def apply(self, changes: Iterable[Change]) -> None:
        self.compiler.submit(changes)
        self._submitted += 1
        self._bell.ring()

    def session(self, dpid: int) -> Session:
        """Of a connected switch. KeyError."""
        session = self.switches.session(dpid)
        if session is None:
            raise KeyError(dpid)
        return session

    def await_connection(self, dpid: int) -> Session:
        until(lambda: self.switches.session(dpid) is not None)
        return self.session(dpid)

    def await_first(self, nap: float = 0) -> None:
        """Until the first objects are compiled and published."""
        until(lambda: self.fleet.ready, COLD_PATIENCE, nap)

    def await_committed(self, dpids: Collection[int], seconds: float = 60, nap: float = 0) -> None:
        """Until all that was applied is compiled, and in these switches."""

        def done() -> bool:
            return self._published == self._submitted and self.fleet.ready and all(map(self._holds_newest, dpids))

        until(done, seconds, nap)

    def recover(self, dpids: Collection[int]) -> None:
        """After a peer's program held this process up: switches that gave up the connection have come back."""
        eventlet.sleep(NOTICED)
        self.await_committed(dpids, COLD_PATIENCE)

    def _holds_newest(self, dpid: int) -> bool:
        session = self.switches.session(dpid)
        return session is not None and session.state is State.READY and session.revision == self.fleet.revision

    # --- as in apps.fabric ----------------------------------------------------------------------------------

    def _observe(self, node: str, ports: dict[str, Port], rows: Iterable[FlowRow]) -> None:
        del rows
        self.apply(Change(Kind.PORT, port_key(node, _name(name, port)), port) for name, port in ports.items())
        mine = self._submitted
        while self._published < mine:
            self._gate.wait()

    def _compile_for_ever(self) -> None:
        while True:
            self._bell.wait()
            taken = self._submitted
            if not self.compiler.idle:
                self.timing.began = perf_counter()
                steps = self.compiler.compile()
                try:
                    while True:
                        next(steps)
                        self._slices()
                except StopIteration as end:
                    revision: Revision = end.value
                self.timing.compiled = perf_counter()
                self.newest = revision
                self.fleet.publish(revision, NUMBERS)
                self.timing.published = perf_counter()
            if not self.fleet.ready:
                self.fleet.declare_ready()
                gc.freeze()
            self._published = taken
            self._gate.notify()

    def _watch_stalls(self) -> None:
        while True:
            due = monotonic() + STALL_PROBE
            eventlet.sleep(STALL_PROBE)
            self.stall = max(self.stall, monotonic() - due)


def _name(name: str, port: Port) -> str:
    return "LOCAL" if port.number == LOCAL_PORT else name


def until(true: Callable[[], object], seconds: float = 60, nap: float = 0) -> None:
    """Lets the others run until it is true. Without `nap` (seconds) it notices at once. TimeoutError."""
    limit = monotonic() + seconds
    while not true():
        if monotonic() > limit:
            raise TimeoutError(f"not within {seconds} s")
        eventlet.sleep(nap)
