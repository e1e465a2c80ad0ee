"""Writing to one switch: steps become rounds, rounds become bundles, refusals become exceptions.

A unit that the switch refuses is set aside with the value that the switch still holds of it, and the others
go at once without it. It is tried again when it changes, and after a read-back.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import eventlet
from msgspec import Struct

from controller import encode, flush, readback
from controller.bundle import Committed, NotMaster, Rejected, chunks, commit
from controller.connection import Connection, ConnectionLost, Refused, TimedOut
from controller.fleet import Fleet, Position
from controller.guard import Allowed
from controller.hub import Slices
from controller.roles import MasterLost
from controller.round import Installed, Round, Rows, Step, net, owners, pieces
from controller.settings import SwitchSettings
from pipelines.unit import Scope, Tuple, UnitKey

LOG = logging.getLogger(__name__)

PATIENT_TRIES = 4  # refusals of one round, after which its failing flows are searched by halves


class Refusal(Struct, frozen=True):
    """What the switch still holds of a unit that it refused to change, and its error."""

    installed: Installed | None
    error: str


class Writer:
    """One bundle at a time: only the session's own thread calls `run`."""

    def __init__(self, connection: Connection, fleet: Fleet, settings: SwitchSettings) -> None:
        self.exceptions: dict[UnitKey, Refusal] = {}
        self.flow_mods_sent = self.group_mods_sent = self.bundles_committed = 0
        self.master = False
        self._scopes: Collection[Scope] = ()
        self._connection = connection
        self._fleet = fleet
        self._settings = settings
        self._slices = Slices()

    def run(
        self,
        steps: Sequence[Step],
        scopes: Collection[Scope],
        again: Collection[bytes] = (),
        allow: Callable[[int, int], Allowed] | None = None,
    ) -> Round:
        """Until committed; `scopes`: what the switch carries afterwards. Returns the round that was.

        `allow` is asked once which of so many removals may go, so many of which are lost (see `guard`). Raises
        MasterLost, and ConnectionLost after having closed the connection when the outcome is not known.
        """
        if self.exceptions:
            steps = [self._from_what_is_held(step) for step in steps]
        whole = net(steps, self._slices, again)
        allowed = Allowed.ALL
        if allow is not None:
            lost = whole.removals - whole.without_losses(steps).removals
            allowed = allow(whole.removals, lost)
        refused: dict[UnitKey, Refusal] = {}
        tries = 0
        while errors := self._send(done := _part(whole, allowed, steps)):
            tries += 1
            if tries >= PATIENT_TRIES:
                errors |= self._search(whole)
            units = owners(steps, errors)
            if not units:
                raise self._unknown("refused: " + "; ".join(str(error) for error in errors.values()))
            texts = {unit: str(errors[xid]) for xid, unit in units.items()}
            steps, aside = set_aside(steps, texts)
            refused |= aside
            for unit, text in texts.items():
                LOG.error("switch at %s refused %s: %s", self._connection.peer, unit, text)
            whole = net(steps, self._slices, again)
        if self.exceptions:
            tried = {step.unit for step in steps}
            self.exceptions = {unit: refusal for unit, refusal in self.exceptions.items() if unit not in tried}
        self.exceptions |= refused
        self._scopes = scopes
        self._flush(self._not_allowed_any_more(steps, done))
        return done

    def _not_allowed_any_more(self, steps: Sequence[Step], done: Round) -> flush.Flushed:
        gone = flush.gone(steps, self._fleet, self._scopes, self._held(), self._slices)
        read = next((step.old for step in steps if step.unit is None), None)
        if read is None:
            return gone
        served = {one: self._fleet.serves(self._scopes, one) for one in flush.forgotten(read, done)}
        return {**gone, **{one: None if now else () for one, now in served.items()}}

    def _from_what_is_held(self, step: Step) -> Step:
        if step.unit in self.exceptions:
            return Step(step.unit, self.exceptions[step.unit].installed, step.new)
        return step

    def _held(self) -> list[Installed]:
        return [refusal.installed for refusal in self.exceptions.values() if refusal.installed is not None]

    def exceptions_aside(self, rows: Rows, position: Position) -> tuple[Rows, Position]:
        """Both without the units that the switch refused: an audit has nothing to say about them."""
        if not self.exceptions:
            return rows, position
        flows = {key for held in self._held() for key in held.flows}
        groups = {number for held in self._held() for number in held.groups}
        rest = Rows(
            {key: row for key, row in rows.flows.items() if key not in flows},
            {number: row for number, row in rows.groups.items() if number not in groups},
        )
        return rest, position._replace(steps=[step for step in position.steps if step.unit not in self.exceptions])

    # --- sending ------------------------------------------------------------------------------------------

    def _send(self, whole: Round) -> dict[int, readback.SwitchError]:
        """Commits; returns the errors when the switch refused (a piece of) it."""
        if not whole:
            return {}
        for piece in pieces(whole, self._settings.bundle_messages):
            self.flow_mods_sent += len(piece.flows_in) + len(piece.flows_out)
            self.group_mods_sent += len(piece.groups_in) + len(piece.groups_out)
            if errors := self.write(piece.messages()):
                return errors
        return {}

    def write(self, messages: Iterable[bytes]) -> dict[int, readback.SwitchError]:
        """Commits bundle-adds as they are; returns the errors when the switch refused. Raises as `run`."""
        outcome = commit(self._connection, messages, self._settings.bundle_timeout)
        if isinstance(outcome, Rejected):
            return outcome.errors
        if isinstance(outcome, NotMaster):
            self.master = False
            raise MasterLost(str(outcome.error))
        if not isinstance(outcome, Committed):
            raise self._unknown(outcome.reason)
        self.bundles_committed += 1
        return {}

    def _search(self, whole: Round) -> dict[int, readback.SwitchError]:
        """All flows that fail at a commit, which names only the first: by halves, together with all groups."""
        failed: dict[int, readback.SwitchError] = {}
        work = [whole.flows_in]
        while work:
            flows = work.pop()
            errors = self._send(Round(groups_in=whole.groups_in, flows_in=flows))
            failed |= errors
            rest = tuple(flow for flow in flows if flow.xid not in errors)
            if errors and rest:
                if len(rest) == len(flows):
                    break  # it is not about these flows
                work += [half for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]) if half]
        return failed

    def _unknown(self, reason: str) -> ConnectionLost:
        reason = f"the outcome of a bundle is not known: {reason}"
        self._connection.close(reason)
        return ConnectionLost(reason)

    # --- beside the bundles -------------------------------------------------------------------------------

    def prepare(self) -> None:
        """What flows refer to and no bundle may carry: the meters for packet-ins."""
        request = encode.meter_config_request(self._connection.next_xid())
        held = {row.id: row for part in self._connection.parts(request) for row in readback.meters(part.data)}
        wrong = [meter for meter in self._settings.meters if held.get(meter.id) != meter]
        for meter in wrong:
            self._connection.send(encode.meter_mod(self._connection.next_xid(), *meter, modify=meter.id in held))
        if not wrong:
            return
        try:
            self._connection.request(encode.barrier(self._connection.next_xid()))
        except Refused as refused:
            LOG.error("switch at %s: %s", self._connection.peer, refused)

    def _flush(self, connections: flush.Flushed) -> None:
        if connections:
            self._flush_now(connections)
            first, *more = self._settings.flush_again
            eventlet.spawn_after(first, self._flush_later, connections)
            known = {one: which for one, which in connections.items() if which is not None}
            for pause in more if known else ():
                eventlet.spawn_after(pause, self._flush_later, known)

    def _flush_now(self, connections: Collection[Tuple]) -> None:
        for chunk in chunks(flush.messages(self._connection, connections)):
            self._connection.send(chunk)
            self._slices()

    def _flush_later(self, connections: flush.Flushed) -> None:
        if self.master and self._connection.ended is None:
            try:
                self._flush_now(flush.once_more(connections, self._fleet, self._scopes, self._held(), self._slices))
            except (ConnectionLost, TimedOut) as end:
                LOG.info("switch at %s: not flushed once more: %s", self._connection.peer, end)


def _part(whole: Round, allowed: Allowed, steps: Sequence[Step]) -> Round:
    match allowed:
        case Allowed.ALL:
            return whole
        case Allowed.REPLACED:
            return whole.without_losses(steps)
        case Allowed.NONE:
            return whole.without_removals()


def set_aside(steps: Sequence[Step], refused: dict[UnitKey, str]) -> tuple[list[Step], dict[UnitKey, Refusal]]:
    """The steps without the refused units, and what the switch holds of these.

    Where that was read back, a unit's rows are those with one of its keys or its half of the cookie; they are
    taken out of the rows, so that they stay.
    """
    read = next((step.old for step in steps if step.unit is None and step.old is not None), None)
    rest = [step for step in steps if step.unit not in refused and step.unit is not None]
    gone = [step for step in steps if step.unit in refused]
    if read is None:
        return rest, {step.unit: Refusal(step.old, refused[step.unit]) for step in gone if step.unit}
    by_owner = {flow.cookie >> 32: step.unit for step in gone if step.new for flow in step.new.flows.values()}
    by_key = {key: step.unit for step in gone if step.new for key in step.new.flows}
    wanted = {key for step in rest if step.new for key in step.new.flows}
    held: dict[UnitKey, Rows] = {step.unit: Rows({}, {}) for step in gone if step.unit}
    flows, groups = dict(read.flows), dict(read.groups)
    for key, row in read.flows.items():
        unit = by_key.get(key) or by_owner.get(row.cookie >> 32)
        if unit is not None and key not in wanted:
            held[unit].flows[key] = flows.pop(key)  # type: ignore[index]  # made above, as a dict
    for step in gone:
        for number in step.new.groups if step.new and step.unit else ():
            if number in groups:
                held[step.unit].groups[number] = groups.pop(number)  # type: ignore[index]
    steps = [Step(None, Rows(flows, groups), None), *rest]
    return steps, {unit: Refusal(rows, refused[unit]) for unit, rows in held.items()}
