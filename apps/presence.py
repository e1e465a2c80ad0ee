"""Which nodes' switches have been away for so long that others should answer in their place (Kind.DOWN).

A switch that is lost has a moment to come back. One that was never there has longer, because after a start of the
controller all of them have to connect first. A node is there while its switch is READY and has the uplink that
its Node names. Nothing is said while nothing is announced.
"""

from collections.abc import Callable, Collection
from time import monotonic

from apps.uplinks import uplink_port
from controller.hub import Bell
from controller.session import Session, State
from pipelines.derived import Derived
from pipelines.model import Change, Down, Kind
from pipelines.unit import Revision
from pipelines.view import Facts

BACK = 5.0  # seconds in which a switch may come back
FIRST = 20.0  # seconds in which one may come for the first time
UPLINKS = 1.0  # seconds between two looks at whether uplinks are there
_ON_THE_WAY = (State.CONNECTING, State.READING, State.SYNCING)


class Presence:
    """`apply` hands observations to the compiler."""

    def __init__(
        self, facts: Facts, apply: Callable[[list[Change]], None], now: Callable[[], float] = monotonic
    ) -> None:
        self._facts, self._apply, self._now = facts, apply, now
        self._sessions: dict[str, Session] = {}  # by node
        self._nodes: dict[Session, str] = {}
        self._known: set[str] = set()  # nodes with a switch
        self._missing: dict[str, float] = {}  # until when a node may still come
        self._down: set[str] = set()
        self._on = False
        self._bell = Bell()

    def follow(self, revision: Revision) -> None:
        """This was compiled."""
        on = bool(self._facts.peek(Kind.SETTINGS)[""].announce)
        if on != self._on or revision.members:
            self._on = on
            self._take_stock()
            self._bell.ring()

    def _take_stock(self) -> None:
        names = set(self._facts.peek(Derived.DATAPATH).values()) if self._on else set()
        for name in self._known - names:
            self._missing.pop(name, None)
            self._say(name, down=False)
        new, self._known = names - self._known, names
        for name in new:
            self._look_at(name, FIRST)

    def forget(self, nodes: Collection[str]) -> None:
        """The compiler has forgotten what was observed of these nodes, deleted or made anew."""
        for name in nodes:
            self._down.discard(name)
            if self._missing.pop(name, None) is not None or name in self._known:
                self._look_at(name, FIRST)

    def session_changed(self, session: Session) -> None:
        """It has entered another state, perhaps as the switch of another node."""
        before = self._nodes.pop(session, None)
        if before is not None and self._sessions.get(before) is session:
            del self._sessions[before]
        member = session.fleet.members.get(session.dpid)
        if member is not None and session.state is not State.CLOSED:
            self._sessions[member.node], self._nodes[session] = session, member.node
            self._look_at(member.node)
        if before is not None and (member is None or before != member.node or session.state is State.CLOSED):
            self._look_at(before)

    def _look_at(self, name: str, patience: float = BACK) -> None:
        if name not in self._known:
            return
        session = self._sessions.get(name)
        if session is not None and session.state is State.READY and uplink_port(self._facts, name) is not None:
            self._missing.pop(name, None)
            self._say(name, down=False)
        elif name not in self._down and name not in self._missing:
            self._missing[name] = self._now() + patience
            self._bell.ring()

    def run(self) -> None:
        """For ever."""
        while True:
            self._bell.wait(self.advance())

    def advance(self) -> float | None:
        """Says who is down by now; returns in how many seconds to look again, None: when something has changed."""
        if not self._on:
            return None
        for name in list(self._sessions):
            self._look_at(name)
        now = self._now()
        for name in [name for name, until in self._missing.items() if until <= now]:
            session = self._sessions.get(name)
            if session is not None and session.state in _ON_THE_WAY:
                self._missing[name] = now + BACK
                continue
            del self._missing[name]
            self._say(name, down=True)
        return max(0.05, min([UPLINKS, *(until - now for until in self._missing.values())]))

    def _say(self, name: str, *, down: bool) -> None:
        if down == (name in self._down):
            return
        (self._down.add if down else self._down.discard)(name)
        self._apply([Change(Kind.DOWN, name, Down() if down else None)])
