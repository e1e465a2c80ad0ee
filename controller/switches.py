"""All switches that are connected: who is who, and what may be asked about them.

A datapath id belongs to one connection at a time. A second one is refused while the first answers an echo
request, and takes its place when it does not; what the older one says or does after that concerns nobody.
"""

import logging
from collections import Counter
from collections.abc import Collection

from eventlet.semaphore import Semaphore
from msgspec import Struct

from controller import encode, readback
from controller.connection import Connection, ConnectionLost, Refused, Stream, TimedOut
from controller.fleet import Fleet
from controller.reading import drops
from controller.release import NotReleased, Released
from controller.round import Rows
from controller.session import Hooks, Session, State
from controller.settings import SwitchSettings
from pipelines.unit import UnitKey

LOG = logging.getLogger(__name__)

REMEMBERED = 1000  # complaints that are not repeated


class SessionRow(Struct, frozen=True):
    """One connected switch. `since`: Unix time of its state; `exceptions`: units that it refused, with the error."""

    dpid: int
    node: str
    state: State
    peer: str
    role: str
    revision: int
    flows: int
    groups: int
    flow_mods_sent: int
    group_mods_sent: int
    bundles_committed: int
    bytes_sent: int
    last_error: str
    exceptions: tuple[tuple[UnitKey, str], ...]
    held_removals: int
    audits: int
    drift: dict[str, int]
    packet_ins_dropped: int
    packet_ins_failed: int
    flows_renewed: int
    flows_not_renewed: int
    since: float


class Switches:
    """Serves connections and keeps the register of datapath ids."""

    def __init__(self, fleet: Fleet, settings: SwitchSettings | None = None, hooks: Hooks | None = None) -> None:
        self.fleet = fleet
        self.settings = settings or SwitchSettings()
        self.hooks = hooks or Hooks()
        self.refused: Counter[str] = Counter()  # connections that were sent away, by reason
        self._by_dpid: dict[int, Session] = {}
        self._readings = Semaphore(self.settings.readings)
        self._said: set[tuple[object, str]] = set()  # what was logged once already

    def serve(self, stream: Stream, peer: str) -> None:
        """One connection from its first byte to its last; returns then."""
        connection = Connection(stream, peer, self.settings.patience)
        session = Session(connection, self.fleet, self.settings, self.hooks, self._readings)
        try:
            session.connect()
        except (ConnectionLost, TimedOut, Refused, readback.DecodeError) as error:
            connection.close(str(error))
            self.refused["handshake"] += 1
            self._once(peer.rpartition(":")[0], f"switch at {peer} was not accepted: {error}", str(error))
            return
        except BaseException:
            connection.close("fault")
            raise
        if not self._admit(session):
            return
        try:
            LOG.info("%s connected from %s", session.name, peer)
            if self.fleet.ready and session.dpid not in self.fleet.members:
                text = f"{session.name}: no Node names this datapath id (annotation signalbox.dev/datapath-id)"
                self._once(session.dpid, text, "unclaimed")
            session.serve()
            LOG.info("%s: connection ended: %s", session.name, connection.ended)
        except Exception as error:
            LOG.exception("%s: connection closed because of a fault here", session.name)
            connection.close(f"fault: {error!r}")
        finally:
            connection.close("session ended")
            if self._by_dpid.get(session.dpid) is session:  # a newer connection may have taken its place
                del self._by_dpid[session.dpid]

    def _admit(self, session: Session) -> bool:
        while (older := self._by_dpid.get(session.dpid)) is not None:
            if older.connection.ended is None and older.connection.probe(self.settings.probe_timeout):
                session.connection.close("its datapath id is taken")
                self.refused["duplicate datapath id"] += 1
                text = f"{session.name}: refused, {older.connection.peer} has the same datapath id and answers"
                self._once(session.dpid, text, f"beside {older.connection.peer}")
                return False
            older.connection.close("replaced by a newer connection")
            if self._by_dpid.get(session.dpid) is older:
                break
        if session.connection.ended is not None:
            return False
        self._by_dpid[session.dpid] = session
        return True

    def _once(self, who: object, text: str, what: str) -> None:
        """A switch that is refused tries again every few seconds, for days perhaps: it is logged once."""
        if (who, what) not in self._said:
            if len(self._said) > REMEMBERED:
                self._said.clear()
            self._said.add((who, what))
            LOG.error("%s", text)

    # --- questions ----------------------------------------------------------------------------------------

    def session(self, dpid: int) -> Session | None:
        return self._by_dpid.get(dpid)

    def sessions(self) -> list[SessionRow]:
        """The connected switches, by datapath id."""
        return [_row(session) for _, session in sorted(self._by_dpid.items())]

    def is_device(self, dpid: int, port: str) -> bool:
        """Whether the switch describes that port as a network device; False also while it is not connected."""
        session = self._by_dpid.get(dpid)
        return session is not None and port in session.ports.devices

    def flows(self, dpid: int) -> Rows:
        """What the switch holds of ours, read now. KeyError when it is not connected."""
        return self._by_dpid[dpid].read()

    def drops(self, dpid: int) -> dict[bytes, int]:
        """Packets that each of our flows there dropped, by key, read now. KeyError when it is not connected."""
        session = self._by_dpid[dpid]
        return drops(session.connection, session.pause)

    def desired(self, dpid: int) -> list[encode.EncodedUnit]:
        """The units that the switch should hold. KeyError when it is not connected."""
        steps = self.fleet.desired(self._by_dpid[dpid].scopes).steps
        return [step.new for step in steps if step.new is not None]

    def forget(self, nodes: Collection[str]) -> None:
        """The application has forgotten the ports of these nodes, deleted or made anew: their switches tell again."""
        for session in self._by_dpid.values():
            if session.node in nodes:
                session.forget()

    def confirm(self, dpid: int | None = None) -> int:
        """Lets held removals go, of one switch or of all; returns how many those are."""
        sessions = [self._by_dpid[dpid]] if dpid is not None else list(self._by_dpid.values())
        held = sum(session.guard.held for session in sessions)
        for session in sessions:
            session.confirm()
        return held

    def claim(self) -> list[str]:
        """Claims the role of master where another controller has it; returns the nodes of these switches."""
        slaves = [session for session in self._by_dpid.values() if session.state is State.SLAVE]
        for session in slaves:
            session.claim()
        return sorted(session.node for session in slaves)

    def audit(self, node: str | None = None) -> dict[str, State]:
        """Compares and mends one node's switch, or all, now, if they are READY; returns the states by node."""
        asked = [one for one in self._by_dpid.values() if one.node and node in (None, one.node)]
        for session in asked:
            if session.state is State.READY:
                session.audit()
        return {session.node: session.state for session in asked}

    def releasable(self, dpid: int) -> Released:
        """What `release` would delete, read now. KeyError and NotReleased as there, and what the connection raises."""
        rows = self._abandoned(dpid).read()
        return Released(len(rows.flows), len(rows.groups))

    def release(self, dpid: int) -> Released:
        """Deletes all that is ours from a switch that no Node names; waits. KeyError when it is not connected.

        Raises NotReleased, when a Node does name it too.
        """
        return self._abandoned(dpid).release.ask(3 * self.settings.bundle_timeout)

    def _abandoned(self, dpid: int) -> Session:
        session = self._by_dpid[dpid]
        member = self.fleet.members.get(dpid)
        if member is not None:
            raise NotReleased(f"Node {member.node} names it; delete the Node or its annotation first")
        if self.settings.observe_all:
            raise NotReleased("mode is observe: nothing is written to any switch")
        if session.state is not State.UNCLAIMED:
            raise NotReleased(f"it is {session.state}: not known yet whether a Node names it")
        return session


def _row(session: Session) -> SessionRow:
    writer = session.writer
    return SessionRow(
        dpid=session.dpid,
        node=session.node,
        state=session.state,
        peer=session.connection.peer,
        role="MASTER" if writer.master else "SLAVE" if session.state is State.SLAVE else "EQUAL",
        revision=session.revision,
        flows=session.flows,
        groups=session.groups,
        flow_mods_sent=writer.flow_mods_sent,
        group_mods_sent=writer.group_mods_sent,
        bundles_committed=writer.bundles_committed,
        bytes_sent=session.connection.bytes_sent,
        last_error=session.last_error,
        exceptions=tuple((unit, refusal.error) for unit, refusal in sorted(writer.exceptions.items())),
        held_removals=session.guard.held,
        audits=session.audits,
        drift=dict(session.drift),
        packet_ins_dropped=session.packets.dropped,
        packet_ins_failed=session.packets.failed,
        flows_renewed=session.renewals.written,
        flows_not_renewed=session.renewals.dropped + session.renewals.failed,
        since=session.since,
    )
