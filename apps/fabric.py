"""The product: one RyuApp that joins a cluster source, the compiler and the switches.

    source ─ changes ─► compiler ─ revisions ─► fleet ─► sessions
                           ▲                                │
                           └───────── observations ◄────────┘

Everything here runs on Ryu's hub. The compiler's thread is the only one that compiles and publishes; it works
in slices of 10 ms, so a large change never keeps a switch, a packet-in or a REST request waiting.
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic, perf_counter

from ryu.base import app_manager
from ryu.lib import hub

from apps import answers, assembly, evidence, node_rows, settings
from apps.affinity import LongAffinity
from apps.announcer import Announcer
from apps.neighbors import Neighbors
from apps.ports import local_named
from apps.presence import Presence
from apps.tunnel_ends import TunnelEnds
from apps.tunnel_limit import tunnel_limit
from controller.fleet import Fleet
from controller.hub import Bell, Gate, Slices
from controller.listener import Listener
from controller.readback import FlowRow, PacketIn
from controller.reject import Refuser
from controller.session import Hooks, Session
from controller.switches import Switches
from controller.too_big import TooBig
from k8s_bridge.source import log_difference
from pipelines.addresses import parse_ip
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS
from pipelines.features.announce import ANSWER, WATCH
from pipelines.features.egress import TOO_BIG
from pipelines.features.neighbors import WATCH_PEERS, WATCH_ROUTERS
from pipelines.features.services import REJECTING
from pipelines.model import Change, Kind, Listening, Port, Problem, port_key

LOG = logging.getLogger("signalbox.fabric")

STALL_PROBE = 0.01  # seconds between two looks at how late the hub is
LOOK_FOR_PROBLEMS = 1  # seconds
MOST_TRACES = 100  # of different faults, in the log

# Nearly everything here lives long and has no cycles. With Python's own thresholds the collector walks all of it
# again and again, and holds the hub for longer than anything else does.
GC_THRESHOLDS = (50_000, 50, 100)


class Fabric(app_manager.RyuApp):
    """`ryu-manager apps.fabric`. Other apps find it as the service brick "fabric"."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.name = "fabric"
        try:
            self.config = settings.current()
            logging.getLogger().setLevel(self.config.log_level.upper())
            self.source = assembly.source(self.config, self, hub.spawn)
            tls = assembly.tls_context(self.config)
        except (settings.ConfigError, ValueError, OSError) as error:
            sys.exit(f"signalbox: {error}")
        self.compiler = Compiler()
        self.fleet = Fleet(pause=Slices())
        self.fleet.in_sync = lambda: self.source.status().complete and not self._left_out()
        self.refuser = Refuser()
        self.neighbors = Neighbors(self.compiler.facts, self.compiler.units, self.apply)
        self.announcer = Announcer(self.compiler.facts, self.apply)
        self.presence = Presence(self.compiler.facts, self.apply)
        self.tunnel_ends = TunnelEnds(self.compiler.facts)
        self.affinity = LongAffinity(self.compiler.facts)
        self.too_big = TooBig(partial(tunnel_limit, self.compiler.facts))
        answering: dict[str, Callable[[Session, PacketIn], None]] = {
            **dict.fromkeys(REJECTING, self.refuser),
            **dict.fromkeys((WATCH_ROUTERS, WATCH_PEERS), self._heard),
            TOO_BIG: self.too_big,
            WATCH: self.announcer.heard,
            ANSWER: self.announcer.probed,
        }
        hooks = Hooks(
            observe=self.observe,
            ports_changed=lambda node, changes: self.apply(local_named(changes)),
            packet_in={NUMBERS[name]: handler for name, handler in answering.items()},
            state_changed=self._session_changed,
            unused=self.affinity,
        )
        self.switches = Switches(self.fleet, self.config.switch_settings(), hooks)
        try:
            self.listener = Listener(self.config.ofp_address, self.switches, tls, self._found_at)
        except OSError as error:
            sys.exit(f"signalbox: ofp_listen: cannot listen on {self.config.ofp_address}: {error.strerror}")
        self.compile_seconds = self.stall = 0.0
        self.compilations = 0
        self._synced = self._complete = False
        self._failure = ""  # why compiling as a whole has failed; it is not known any more what it left out
        self._traced: set[tuple[str, str]] = set()  # faults whose traces are in the log
        self._submitted = self._published = 0
        self._deleted: set[str] = set()  # nodes, since the last compilation
        self._bell, self._gate, self._slices = Bell(), Gate(), Slices()

    def start(self) -> object:
        gc.set_threshold(*GC_THRESHOLDS)
        self._settle_settings()
        hub.spawn(self._compile_for_ever)
        hub.spawn(self._watch_stalls)
        hub.spawn(self._follow_for_ever)
        hub.spawn(self.neighbors.run)
        hub.spawn(self.announcer.run)
        hub.spawn(self.presence.run)
        hub.spawn(self.tunnel_ends.run)
        hub.spawn(self._tell_problems)
        self.listener.start()
        LOG.info("switches may connect to %s:%d; cluster from %s", *self.listener.address, self.config.source)
        return super().start()

    # --- what the source and the sessions call ------------------------------------------------------------

    def apply(self, changes: Iterable[Change]) -> None:
        """These objects are now as said."""
        changes = list(changes)
        self.compiler.submit(changes)
        self._deleted |= {change.key for change in changes if change.kind is Kind.NODE and change.value is None}
        self._submitted += 1
        self._bell.ring()

    def synced(self) -> None:
        """The source has listed everything once."""
        self._synced = True
        self._bell.ring()

    def observe(self, node: str, ports: dict[str, Port], rows: Iterable[FlowRow]) -> None:
        """A switch was read back; returns when all that follows from it is published."""
        changes = local_named(Change(Kind.PORT, port_key(node, name), port) for name, port in ports.items())
        known = {change.key for change in changes}
        gone = [key for key in self.compiler.facts.peek(Kind.PORT) if key.startswith(f"{node} ") and key not in known]
        changes += [Change(Kind.PORT, key, None) for key in gone]
        rows = list(rows)
        shown = evidence.macs(node, rows, self.compiler.facts)
        self.neighbors.recall(shown)
        self.apply([*changes, *shown, *self.announcer.recall(node, rows)])
        mine = self._submitted
        while self._published < mine:
            self._gate.wait()

    def _heard(self, session: Session, packet: PacketIn) -> None:
        """Of a next hop or a peer; a service may want the same address."""
        self.neighbors(session, packet)
        self.announcer.heard(session, packet)

    def _found_at(self, address: str, port: int) -> None:
        """Switches find the controller there: no service may take that from them."""
        ip = parse_ip(address.removeprefix("::ffff:").partition("%")[0])
        if str(ip) not in self.compiler.facts.peek(Kind.CONTROLLER):
            self.apply([Change(Kind.CONTROLLER, str(ip), Listening(port))])

    def _session_changed(self, session: Session) -> None:
        for follower in (self.neighbors, self.announcer, self.presence, self.tunnel_ends):
            follower.session_changed(session)

    # --- what inspection asks ------------------------------------------------------------------------------

    @property
    def changes_pending(self) -> int:
        """How often something was handed over that no revision has considered yet."""
        return self._submitted - self._published

    def not_ready(self) -> list[str]:
        """Why no switch is written to, or not all that it should hold; empty otherwise."""
        if self._failure:
            return [self._failure]
        if self.fleet.ready:
            return []
        if not self._synced:
            return ["the cluster source is not in sync yet"]
        return ["no switch is written to" if self.compilations else "the first compilation is not done"]

    def wrong_ports(self) -> list[Problem]:
        """What connected switches lack, or have another instead."""
        return [*node_rows.wrong_ports(self.compiler.facts, self.switches.sessions(), self.switches.is_device)]

    def _left_out(self) -> bool:
        """Whether flows may be missing only because of a fault here: then no switch loses what it is found to hold."""
        return bool(self._failure or self.compiler.faults() or self.fleet.errors)

    def problems(self) -> list[Problem]:
        """What a person should mend: in objects, in what could not be encoded, in what switches lack or refused."""
        found = self.compiler.problems() + self._observed_problems()
        found += answers.switch_problems(self.switches.sessions())
        found += [
            Problem(unit.feature, unit.key, "flows", reason) for unit, reason in sorted(self.fleet.errors.items())
        ]
        for row in self.switches.sessions():
            found += [
                Problem(unit.feature, unit.key, f"on the switch of {row.node}", f"refused: {error}")
                for unit, error in row.exceptions
            ]
        return found

    def confirm(self) -> None:
        """An operator says that held removals are meant."""
        self.source.confirm()
        self.switches.confirm()

    # --- compiling -------------------------------------------------------------------------------------------

    def _compile_for_ever(self) -> None:
        while True:
            self._bell.wait()
            deleted, self._deleted = self._deleted, set()
            try:
                self._compile()
            except Exception:
                LOG.exception("compiling failed; the last revision stays in force")
                self._failure = "compiling failed (the log says why): what changed since may be missing until a restart"
                hub.sleep(1)
                self._bell.ring()
            self.switches.forget(deleted)
            self.neighbors.forget(deleted)
            self.presence.forget(deleted)

    def _settle_settings(self) -> None:
        self.compiler.submit([Change(Kind.SETTINGS, "", self.config.fabric_settings(self._complete))])

    def _compile(self) -> None:
        taken = self._submitted
        if self._synced and not self._complete and self.source.status().complete:
            self._complete = True
            self._settle_settings()
        if not self.compiler.idle:
            began = perf_counter()
            steps = self.compiler.compile()
            try:
                while True:
                    next(steps)
                    self._slices()
            except StopIteration as end:
                revision = end.value
            self.fleet.publish(revision, NUMBERS)
            for follower in (self.neighbors, self.announcer, self.presence, self.tunnel_ends, self.affinity):
                follower.follow(revision)
            self.compile_seconds = perf_counter() - began
            self.compilations += 1
            self._trace_faults()
            if outdated := evidence.outdated(self.compiler.facts):
                self.apply(outdated)
        if self._synced and not self.fleet.ready and not self._failure and not self._everywhere():
            self.fleet.declare_ready()
            gc.freeze()
            LOG.info("first revision compiled: %d units", len(self.compiler.units))
        self._published = taken
        self._gate.notify()

    def _everywhere(self) -> bool:
        """Whether a fault concerns every switch: then none is begun with, and each keeps what it holds as a whole."""
        return any(fault.whole for fault in self.compiler.faults()) or any(not unit.key for unit in self.fleet.errors)

    def _trace_faults(self) -> None:
        for fault in self.compiler.faults():
            if (fault.step, fault.error) not in self._traced and len(self._traced) < MOST_TRACES:
                self._traced.add((fault.step, fault.error))
                LOG.error("%s failed for %s %s:\n%s", fault.step, fault.kind, fault.key or "(all)", fault.trace)

    def _follow_for_ever(self) -> None:
        while True:
            try:
                self.source.run()
                return
            except Exception:
                LOG.exception("the cluster source failed; the last state stays, it is started again")
                hub.sleep(1)

    def _observed_problems(self) -> list[Problem]:
        """What is wrong with objects, though they do not say so themselves."""
        return [*self.neighbors.problems(), *self.announcer.problems(), *self.wrong_ports()]

    def _tell_problems(self) -> None:
        """In the log, as the source does for what single objects say; what is there at the start as well."""
        said: set[Problem] = set()
        while True:
            hub.sleep(LOOK_FOR_PROBLEMS)
            if self.fleet.ready:
                now = {*self.compiler.findings(), *self._observed_problems()}
                log_difference(said, now, LOG)
                said = now

    def _watch_stalls(self) -> None:
        while True:
            due = monotonic() + STALL_PROBE
            hub.sleep(STALL_PROBE)
            self.stall = max(self.stall, monotonic() - due)
