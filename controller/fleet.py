"""The fleet: one snapshot of encoded units and a log of their changes, for all switches.

Every unit is encoded once, whatever the number of switches that carry it. A switch session is a cursor into
the log, the scopes it carries and its exceptions; `steps` nets what lies between the cursor and now. A
session that is further behind than the log reaches reads its switch back and starts from the snapshot.

Memory: the flows, and a bounded log. Nothing here waits or knows a switch; `pause` lets others run.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar

from controller.encode import EncodedUnit, EncodeError, Xids, encode_unit, release_unit
from controller.round import Installed, Step
from pipelines.addresses import Ip
from pipelines.fields import SCTP, UDP
from pipelines.unit import Member, Revision, Scope, Tuple, UnitKey

LOG = logging.getLogger(__name__)

Counted = TypeVar("Counted")
Frontend = tuple[int, Ip, int]  # protocol, address, port

FLUSHED = (UDP, SCTP)  # protocols whose connections outlive the endpoint without noticing


class Entry(NamedTuple):
    """One published revision in the log."""

    sequence: int
    steps: tuple[Step, ...]


class Position(NamedTuple):
    """The steps that lead a session to `sequence`, `revision`."""

    sequence: int
    revision: int
    steps: list[Step]


class Fleet:
    """`log_steps`: how many unit changes the log keeps at least one revision of. One publisher at a time."""

    def __init__(
        self, xids: Xids | None = None, pause: Callable[[], None] = lambda: None, log_steps: int = 20_000
    ) -> None:
        self.units: dict[Scope, dict[UnitKey, EncodedUnit]] = {}
        self.members: dict[int, Member] = {}
        self.errors: dict[UnitKey, str] = {}  # units that could not be encoded: their older value stays
        self.revision = 0  # number of the last revision that was published
        self.sequence = 0  # how often anything was published
        self.ready = False
        self.in_sync: Callable[[], bool] = lambda: self.ready  # whether the source is in sync at the moment
        self.encoded_flows = self.encoded_bytes = 0  # so far; what is shared by switches counts once
        self._xids = xids or Xids()
        self._pause = pause
        self._log: deque[Entry] = deque()
        self._log_steps = log_steps
        self._logged_steps = 0
        self._allowed: dict[Scope, tuple[Counter[Tuple], Counter[Frontend]]] = {}
        self._watchers: set[Callable[[], None]] = set()

    # --- the publisher's side -----------------------------------------------------------------------------

    def declare_ready(self) -> None:
        """The source is in sync and the first compilation was published: from now on switches are written."""
        self.ready = True
        self.wake()

    def publish(self, revision: Revision, feature_numbers: Mapping[str, int]) -> None:
        """Encodes what changed and makes it the newest state at once. Sessions are woken."""
        steps = []
        for change in revision.changes:
            old = self.units.get(change.key.scope, {}).get(change.key)
            new: EncodedUnit | None = None
            try:
                if change.new:
                    number = feature_numbers[change.key.feature]
                    new = encode_unit(change.key, number, change.new, old, self._xids)
                elif old is not None:
                    release_unit(old, self._xids)
                self.errors.pop(change.key, None)
            except EncodeError as error:
                self.errors[change.key] = error.reason
                LOG.error("%s; its older flows stay", error)
                new = old
            if new is not None and new is not old:
                before = old.flows if old is not None else {}
                fresh = [flow for key, flow in new.flows.items() if before.get(key) is not flow]
                self.encoded_flows += len(fresh)
                self.encoded_bytes += sum(len(flow.message) for flow in fresh)
            if new is not old:
                self._count(change.key.scope, old, new)
                steps.append(Step(change.key, old, new))
            self._pause()
        self._apply(revision, steps)
        self.wake()

    def _apply(self, revision: Revision, steps: list[Step]) -> None:
        """All at once: nobody may see half a revision."""
        for step in steps:
            assert step.unit is not None
            scope = step.unit.scope
            units = self.units.setdefault(scope, {})
            if step.new is None:
                del units[step.unit]
            else:
                units[step.unit] = step.new
            if not units:
                del self.units[scope]
        for dpid, member in revision.members.items():
            if member is None:
                self.members.pop(dpid, None)
            else:
                self.members[dpid] = member
        self.revision = revision.number
        self.sequence += 1
        self._log.append(Entry(self.sequence, tuple(steps)))
        self._logged_steps += len(steps)
        while len(self._log) > 1 and self._logged_steps > self._log_steps:
            self._logged_steps -= len(self._log.popleft().steps)

    # --- the sessions' side -------------------------------------------------------------------------------

    def watch(self, wake: Callable[[], None]) -> None:
        self._watchers.add(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.discard(wake)

    def wake(self) -> None:
        for wake in list(self._watchers):
            wake()

    def desired(self, scopes: Collection[Scope]) -> Position:
        """Everything a switch of these scopes should hold, as steps from nothing."""
        steps = [Step(key, None, unit) for scope in scopes for key, unit in self.units.get(scope, {}).items()]
        return Position(self.sequence, self.revision, steps)

    def steps(self, cursor: int, before: frozenset[Scope], after: frozenset[Scope]) -> Position | None:
        """From sequence `cursor` with scopes `before` to now with `after`. None: the log does not reach back."""
        if cursor != self.sequence and (not self._log or self._log[0].sequence > cursor + 1):
            return None
        changed: dict[UnitKey, Step] = {}
        for entry in self._since(cursor):
            for step in entry.steps:
                assert step.unit is not None
                first = changed.get(step.unit, step)
                changed[step.unit] = Step(step.unit, first.old, step.new)
        steps = [
            step
            for unit, step in changed.items()
            if unit.scope in before and unit.scope in after and step.old is not step.new
        ]
        for scope in before - after:
            then: dict[UnitKey, Installed | None] = dict(self.units.get(scope, {}))
            then |= {unit: step.old for unit, step in changed.items() if unit.scope == scope}
            steps += [Step(unit, old, None) for unit, old in then.items() if old is not None]
        for scope in after - before:
            steps += [Step(unit, None, new) for unit, new in self.units.get(scope, {}).items()]
        return Position(self.sequence, self.revision, steps)

    def _since(self, cursor: int) -> Iterator[Entry]:
        behind = self.sequence - cursor
        for index in range(len(self._log) - behind, len(self._log)):
            yield self._log[index]

    # --- connections that conntrack may hold --------------------------------------------------------------

    def _count(self, scope: Scope, old: EncodedUnit | None, new: EncodedUnit | None) -> None:
        """Ahead of the snapshot, a unit at a time: a flush too early is repeated when the revision is committed."""
        connections, frontends = self._allowed.setdefault(scope, (Counter(), Counter()))
        for unit, by in ((new, 1), (old, -1)):
            for connection in unit.allowed if unit else ():
                if connection.protocol in FLUSHED:
                    _add(connections, connection, by)
                    _add(frontends, connection[:3], by)

    def allows(self, scopes: Collection[Scope], connection: Tuple) -> bool:
        """Whether any unit of these scopes allows conntrack to hold this connection."""
        return any(connection in self._allowed[scope][0] for scope in scopes if scope in self._allowed)

    def serves(self, scopes: Collection[Scope], connection: Tuple) -> bool:
        """Whether any unit of these scopes allows any connection of this one's frontend."""
        return any(connection[:3] in self._allowed[scope][1] for scope in scopes if scope in self._allowed)


def _add(counter: Counter[Counted], key: Counted, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
