"""When an address may be announced, and when it is said. A state machine that neither sends nor reads a clock.

    waiting ── the node can ask ──► probing ── three times nobody ──► held ── somebody claims it too ──► defended,
                                       │                               ▲                                 reported
                                       └── somebody has it ──► conflict ┘ probed again after 30 s

An address that is held stays so while the node changes: its successor says so at once, without asking. Times are
in seconds of any one clock.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from pipelines.addresses import Ip, mac_text

NEVER = float("-inf")


class Timing(Struct, frozen=True):
    """In seconds; `probes` and `announcements` are numbers of messages."""

    probes: int = 3
    spacing: float = 0.2  # between two probes, and after the last one
    announcements: int = 3
    pause: float = 1  # between two announcements (RFC 4861, RFC 5227)
    retry: float = 30  # after a conflict
    defence: float = 10  # between two objections to somebody's claim (RFC 5227)
    remembered: float = 60  # how long such a claim is reported after it was last heard
    look: float = 0.1  # between two looks at whether a node can ask by now
    most: int = 100  # messages at once; the rest has to wait for the next look


class Phase(StrEnum):
    WAITING = "waiting"
    PROBING = "probing"
    CONFLICT = "conflict"
    HELD = "held"


class Sending(NamedTuple):
    """A probe, or an announcement, to be sent by a node."""

    node: str
    ip: Ip
    probe: bool


class Step(NamedTuple):
    """What follows: frames, and the addresses that turned out to be free, each with the node that asked."""

    frames: list[Sending]
    claimed: list[tuple[Ip, str]]


class _State:
    def __init__(self, node: str) -> None:
        self.node = node
        self.phase = Phase.WAITING
        self.sent = 0  # probes of this round
        self.due = NEVER  # when to go on
        self.rival: int | None = None  # who claims it too, and when that was last heard
        self.heard = NEVER
        self.answering: tuple[str, int] | None = None  # the node and MAC that was announced last
        self.left = 0  # announcements
        self.defended = NEVER


class Claiming:
    """`able(node, ip, probing)`: whether the node can send now, and if it probes would hear who objects."""

    def __init__(self, able: Callable[[str, Ip, bool], bool], timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self._able = able
        self._states: dict[Ip, _State] = {}
        self._active: dict[Ip, None] = {}  # those with something to do

    # --- what there is to announce ----------------------------------------------------------------------------

    def follow(self, ip: Ip, node: str | None) -> bool:
        """This node is to answer now; None: none. Returns whether an address was held that no node answers for."""
        state = self._states.get(ip)
        if node is None:
            self._active.pop(ip, None)
            gone = self._states.pop(ip, None)
            return gone is not None and gone.phase is Phase.HELD
        if state is None:
            self._states[ip] = _State(node)
            self._active[ip] = None
        elif state.node != node:
            state.node = node
            if state.phase is Phase.PROBING:
                state.phase = Phase.WAITING
        return False

    def answering(self, ip: Ip, node: str, mac: int, now: float) -> None:
        """The node's switch answers for it, with this MAC."""
        state = self._states.get(ip)
        if state is not None and state.answering != (node, mac):
            state.answering, state.left, state.due = (node, mac), self.timing.announcements, now
            self._active[ip] = None

    def recall(self, ip: Ip, node: str, mac: int) -> bool:
        """A switch that was read back answers for it; returns whether that is believed: nothing else is known yet."""
        state = self._states.get(ip)
        if state is None or state.phase is not Phase.WAITING or state.rival is not None:
            return False
        state.phase, state.answering = Phase.HELD, (node, mac)
        self._active.pop(ip, None)
        return True

    # --- time passes ------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float | None:
        """Seconds until `advance` may have something to do; None: nothing, until something else happens."""
        if not self._active:
            return None
        soonest = min(self._states[ip].due for ip in self._active)
        return max(self.timing.look, soonest - now)

    def advance(self, now: float) -> Step:
        """Everything that is due and that nodes are able to do."""
        step = Step([], [])
        for ip in list(self._active):
            state = self._states[ip]
            if len(step.frames) >= self.timing.most:
                break
            if state.due > now:
                continue
            if state.phase is Phase.HELD:
                self._announce(ip, state, now, step)
            else:
                self._probe(ip, state, now, step)
        return step

    def _probe(self, ip: Ip, state: _State, now: float, step: Step) -> None:
        if not self._able(state.node, ip, True):
            state.phase = Phase.WAITING
            return
        if state.phase is not Phase.PROBING:
            state.phase, state.sent = Phase.PROBING, 0
        if state.sent < self.timing.probes:
            step.frames.append(Sending(state.node, ip, True))
            state.sent += 1
            state.due = now + self.timing.spacing
            return
        state.phase, state.rival = Phase.HELD, None
        del self._active[ip]
        step.claimed.append((ip, state.node))

    def _announce(self, ip: Ip, state: _State, now: float, step: Step) -> None:
        if not self._able(state.node, ip, False):
            return
        if state.left:
            step.frames.append(Sending(state.node, ip, False))
            state.left -= 1
            state.due = now + self.timing.pause
        if not state.left:
            del self._active[ip]

    # --- hearing ----------------------------------------------------------------------------------------------

    def heard(self, node: str, ip: Ip, mac: int, now: float) -> None:
        """A station that is no node of ours says that it has the address; `node` has heard it."""
        state = self._states.get(ip)
        if state is None or state.node != node or state.phase is Phase.WAITING:
            return
        state.rival, state.heard = mac, now
        if state.phase is Phase.PROBING:
            state.phase, state.due = Phase.CONFLICT, now + self.timing.retry
        elif state.phase is Phase.HELD and now - state.defended >= self.timing.defence:
            state.defended, state.due = now, now
            state.left = max(state.left, 1)
            self._active[ip] = None

    # --- questions --------------------------------------------------------------------------------------------

    def phase(self, ip: Ip) -> Phase | None:
        """None: it is not to be announced, or by nobody. A conflict lasts until it is known to have ended."""
        state = self._states.get(ip)
        if state is None:
            return None
        return Phase.CONFLICT if state.rival is not None and state.phase is not Phase.HELD else state.phase

    def problems(self, now: float) -> list[tuple[Ip, str]]:
        found = []
        for ip, state in sorted(self._states.items()):
            if state.rival is None:
                continue
            if state.phase is not Phase.HELD:
                found.append((ip, f"{ip} is not announced: {mac_text(state.rival)} answers for it already"))
            elif now - state.heard <= self.timing.remembered:
                found.append((ip, f"{mac_text(state.rival)} claims {ip} too, which {state.node} announces"))
        return found
