"""One switch, from its hello to its end: a cursor into the fleet's log, the scopes it carries, its exceptions.

    CONNECTING ─► UNCLAIMED ─► READING ─► SYNCING ─► READY        (OBSERVING instead of the last two,
                      no Node names it     └───────────┴► SLAVE     SLAVE when another controller is master)

One green thread runs all of that in order, so at most one round is in flight and nothing here needs a lock.
What arrives meanwhile (a publication, a lost role, the end of the connection) rings the bell; the thread
looks for itself what has changed. There is no queue of things to send: a switch that was slow for a minute
gets the net of that minute.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from time import monotonic, time

import eventlet
from eventlet.semaphore import Semaphore
from msgspec import Struct

from controller import audit, encode, readback, roles
from controller.complaints import Complaints
from controller.connection import Connection, ConnectionLost, Message, Refused, TimedOut
from controller.fleet import Fleet, Position
from controller.guard import Guard
from controller.hub import Bell, Slices
from controller.packets import PacketIns
from controller.ports import Ports, change
from controller.reading import read
from controller.release import Release
from controller.renewal import Renewals, Rest
from controller.round import Rows, Step
from controller.settings import SwitchSettings
from controller.writer import Writer
from pipelines.ids import split_cookie
from pipelines.model import Change, Port
from pipelines.unit import Scope

LOG = logging.getLogger(__name__)

LONGEST_QUEUE = 1  # seconds that a session waits for others that read back
OBSERVING_PAUSE = 1  # seconds between two readings of a switch that is only looked at


class State(StrEnum):
    CONNECTING = "CONNECTING"
    UNCLAIMED = "UNCLAIMED"  # no Node names this datapath id: not touched
    READING = "READING"
    SYNCING = "SYNCING"
    READY = "READY"
    OBSERVING = "OBSERVING"
    SLAVE = "SLAVE"  # another controller is master: nothing is written
    CLOSED = "CLOSED"


class Hooks(Struct):
    """What the application does with what switches tell.

    `observe(node, ports, rows)`: a switch was read back; returns (green) when all that follows from it was
    compiled and published. `ports_changed(node, changes)` and packet-in handlers (by the cookie's feature
    number) must not wait; neither must `state_changed(session)`, nor `unused(removed)`: whether a flow that the
    switch has learned, and removed because nobody used it, goes on.
    """

    observe: Callable[[str, dict[str, Port], list[readback.FlowRow]], None] = lambda node, ports, rows: None
    ports_changed: Callable[[str, list[Change]], None] = lambda node, changes: None
    packet_in: dict[int, Callable[["Session", readback.PacketIn], None]] = {}
    state_changed: Callable[["Session"], None] = lambda session: None
    unused: Callable[[readback.FlowRemoved], Rest | None] = lambda removed: None


class Resync(Exception):
    """The session has to start again from a read-back; the text says why."""


class Unclaimed(Exception):
    """No Node names this switch any more."""


class Session:
    """`readings` limits how many sessions read back at once."""

    def __init__(
        self,
        connection: Connection,
        fleet: Fleet,
        settings: SwitchSettings | None = None,
        hooks: Hooks | None = None,
        readings: Semaphore | None = None,
    ) -> None:
        self.connection = connection
        self.settings = settings or SwitchSettings()
        self.hooks = hooks or Hooks()
        self.dpid = 0
        self.node = ""
        self.state = State.CONNECTING
        self.since = time()
        self.ports = Ports()
        self.observed = False  # whether the application knows this switch's ports
        self.guard = Guard(self.settings.guard)
        self.writer = Writer(connection, fleet, self.settings)
        self.packets = PacketIns(self._answer)
        self.flows = self.groups = self.revision = self.audits = 0
        self.drift: Counter[str] = Counter()  # by kind, over all audits
        self.difference: tuple[str, ...] = ()  # of the last audit, or what OBSERVING would change
        self.last_error = ""
        self.fleet = fleet
        self.bell = Bell()
        self.release = Release(self.bell.ring)
        self.renewals = Renewals(self.hooks.unused, self.bell.ring)
        self._complaints = Complaints()
        self._readings = readings or Semaphore(self.settings.readings)
        self._cursor = -1
        self.scopes: frozenset[Scope] = frozenset()  # whose units the switch carries
        self.pause = Slices()
        self._next_audit = 0.0
        self._audit_now = self._claim_now = False

    # --- what others may call -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"switch {self.dpid:016x} ({self.node or self.connection.peer})"

    def confirm(self) -> None:
        """Held removals may go."""
        self.guard.confirm()
        self.bell.ring()

    def audit(self) -> None:
        """Look at the switch now."""
        self._audit_now = True
        self.bell.ring()

    def claim(self) -> None:
        """Claim the role of master once more."""
        self._claim_now = True
        self.bell.ring()

    def forget(self) -> None:
        """The application does not know this switch's ports any more."""
        self.observed = False
        self.bell.ring()

    def lose_master(self, why: str) -> None:
        """The switch says that another controller is master."""
        if self.writer.master:
            self.writer.master = False
            self.last_error = why
            self.bell.ring()

    # --- life ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Up to the datapath id and the ports. Raises what the connection raises."""
        self.connection.handler = self._receive
        self.connection.at_end.append(self.bell.ring)
        self.connection.start()
        self.connection.greet()
        request = encode.features_request(self.connection.next_xid())
        self.dpid = readback.features(self.connection.request(request).data)
        parts = self.connection.parts(encode.port_desc_request(self.connection.next_xid()))
        self.ports.listed([row for part in parts for row in readback.ports(part.data)])

    def serve(self) -> None:
        """Returns when the connection has ended."""
        self.fleet.watch(self.bell.ring)
        self.packets.start()
        try:
            while True:
                try:
                    self._await_membership()
                    if self.settings.observes(self.node):
                        self._look_on()
                    else:
                        self._carry()
                except Unclaimed:
                    LOG.warning("%s: no Node names it any more; its flows stay as they are", self.name)
                except Resync as reason:
                    LOG.info("%s: starts again from a read-back: %s", self.name, reason)
                except roles.MasterLost as lost:
                    self._be_slave(str(lost))
        except (ConnectionLost, TimedOut) as end:
            self.connection.close(str(end))
        except (Refused, readback.DecodeError) as error:
            self.connection.close(f"an answer that cannot be used: {error}")
        finally:
            self.fleet.unwatch(self.bell.ring)
            self.packets.end()
            self.writer.master = False
            self.release.refuse("its connection has ended")
            self._enter(State.CLOSED)

    # --- what arrives unasked -----------------------------------------------------------------------------

    def _receive(self, message: Message) -> None:
        """On the receiving thread: takes notice and returns."""
        if message.type == encode.PACKET_IN:
            self.packets.push(readback.packet_in(message.data))
        elif message.type == encode.FLOW_REMOVED and self.writer.master:
            self.renewals.push(readback.flow_removed(message.data))
        elif message.type == encode.PORT_STATUS:
            row, deleted = readback.port_status(message.data)
            news = self.ports.status(row, deleted)
            if news is not None and self.observed:
                self.hooks.ports_changed(self.node, [change(self.node, *news)])
        elif message.type == encode.ROLE_STATUS:
            role = readback.role(message.data)
            if role.is_secondary:
                self.lose_master(f"another controller became master ({role.generation})")
        elif message.type == encode.ERROR:
            error = readback.error(message.data)
            self.last_error = str(error)
            self._complaints.say(LOG, self.name, error)
            if error.is_secondary:
                self.lose_master(str(error))

    def _answer(self, packet: readback.PacketIn) -> None:
        cookie = split_cookie(packet.cookie)
        handler = self.hooks.packet_in.get(cookie.feature) if cookie else None
        if handler is not None and self.writer.master:
            handler(self, packet)

    # --- states -------------------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        if state is not self.state:
            self.state, self.since = state, time()
            LOG.info("%s: %s", self.name, state)
            self.hooks.state_changed(self)

    def _wait(self, seconds: float | None = None) -> None:
        self.bell.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self.connection.ended is not None:
            raise ConnectionLost(self.connection.ended)

    def _await_membership(self) -> None:
        while not (self.fleet.ready and self.dpid in self.fleet.members):
            if self.fleet.ready:
                self._enter(State.UNCLAIMED)
                self.release.carry_out(self.connection, self.pause, self.settings.bundle_timeout)
            self._wait()
        self.release.refuse("a Node names it by now")
        self.node = self.fleet.members[self.dpid].node

    def _member_scopes(self) -> frozenset[Scope]:
        """Of now. Raises when the switch has become nobody's, or another node's."""
        member = self.fleet.members.get(self.dpid)
        if member is None:
            self.observed = False
            raise Unclaimed
        if member.node != self.node:
            self.observed = False
            raise Resync(f"it is now the switch of {member.node}")
        if not self.observed:
            raise Resync("its Node was deleted and is there again")
        return member.scopes

    def _be_slave(self, why: str) -> None:
        self.writer.master = False
        self.renewals.clear()
        self.last_error = why
        self._enter(State.SLAVE)
        LOG.error("%s: another controller is its master, nothing is written to it: %s", self.name, why)
        while not self._claim_now:
            self._wait()
        self._claim_now = False

    # --- READING and SYNCING ------------------------------------------------------------------------------

    def read(self) -> Rows:
        """What the switch holds of ours; anybody may ask."""
        mine = self._readings.acquire(timeout=LONGEST_QUEUE)  # a stuck switch may hold one for long
        try:
            return read(self.connection, self.pause)
        finally:
            if mine:
                self._readings.release()

    def _observe(self) -> Rows:
        self._enter(State.READING)
        rows = self.read()
        self.observed = True
        self.hooks.observe(self.node, dict(self.ports.by_name), list(rows.flows.values()))  # type: ignore[arg-type]
        self._check()
        return rows

    def _carry(self) -> None:
        if not self.writer.master:
            roles.claim_master(self.connection)
            self.writer.master = True
        rows = self._observe()
        self._enter(State.SYNCING)
        self.writer.prepare()
        self.writer.exceptions.clear()
        self.pause.rest()  # many switches may have come to this point at once
        scopes = self._member_scopes()
        position = self.fleet.desired(scopes)
        self._settle(rows, position, scopes, frozenset())
        self._plan_audit()
        self._enter(State.READY)
        while True:
            self._turn()

    def _settle(self, rows: Rows, position: Position, scopes: frozenset[Scope], again: frozenset[bytes]) -> None:
        """From what was read back to what should be there. Too many removals are held."""
        steps = [Step(None, rows, None), *position.steps]
        self.scopes = scopes
        read = len(rows.flows) + len(rows.groups)
        done = self.writer.run(
            steps,
            scopes,
            again,
            lambda removals, lost: self.guard.allows(removals, lost, read, monotonic(), self.fleet.in_sync()),
        )
        self.flows, self.groups = len(rows.flows) + done.growth, len(rows.groups) + done.group_growth
        if self.guard.held:
            LOG.error("%s: %d removals are held until a second look or `confirm`", self.name, self.guard.held)
        self._cursor, self.revision = position.sequence, position.revision

    # --- READY --------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """One round or one audit when there is a reason, else wait for one."""
        self._check()
        scopes = self._member_scopes()
        if not self.writer.master:
            raise roles.MasterLost(self.last_error)
        if self.fleet.sequence != self._cursor or scopes != self.scopes:
            self._round(scopes)
            return
        self.renewals.carry_out(self.writer, self.pause)
        left = self._until_audit()
        if left is not None and left <= 0:
            self._audit()
        else:
            self._wait(left)

    def _round(self, scopes: frozenset[Scope]) -> None:
        position = self.fleet.steps(self._cursor, self.scopes, scopes)
        if position is None:
            raise Resync("too far behind the log")
        self.scopes = scopes
        done = self.writer.run(position.steps, scopes)
        self.flows, self.groups = self.flows + done.growth, self.groups + done.group_growth
        self._cursor, self.revision = position.sequence, position.revision

    def _audit(self) -> None:
        self._audit_now = False
        position, scopes = self.fleet.desired(self.scopes), self.scopes
        rows = self.read()
        rows, position = self.writer.exceptions_aside(rows, position)
        found = audit.drift(position.steps, rows, self.pause)
        self.audits += 1
        self.drift.update(found.counts)
        self.difference = found.lines
        if found:
            LOG.warning("%s: audit found drift: %s\n%s", self.name, found, "\n".join(found.lines))
        if found or self.guard.held:
            self._settle(rows, position, scopes, found.again)
        self._plan_audit()

    def _plan_audit(self) -> None:
        self._next_audit = monotonic() + self.settings.audit_interval * random.uniform(0.9, 1.1)

    def _until_audit(self) -> float | None:
        """Seconds; None when none is planned."""
        if self._audit_now:
            return 0
        due = [self._next_audit] if self.settings.audit_interval else []
        if self.guard.due is not None:
            due.append(self.guard.due)
        return min(due) - monotonic() if due else None

    # --- OBSERVING ----------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        """Writes nothing, not even a role."""
        rows = self._observe()
        self._enter(State.OBSERVING)
        while True:
            scopes = self._member_scopes()
            self.scopes = scopes
            position = self.fleet.desired(scopes)
            self.flows, self.groups = len(rows.flows), len(rows.groups)
            self.difference = audit.drift(position.steps, rows, self.pause).lines
            self._cursor, self.revision = position.sequence, position.revision
            self._plan_audit()
            while self.fleet.sequence == self._cursor and (self._until_audit() or 1) > 0 and not self._audit_now:
                self._wait(self._until_audit())
            self._audit_now = False
            eventlet.sleep(OBSERVING_PAUSE)
            self._check()
            rows = self.read()
