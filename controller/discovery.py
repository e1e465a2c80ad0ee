"""Who has which MAC: when to ask, and what to believe. A state machine that neither sends nor reads a clock.

    unknown ── answer ──► known ── time to refresh ──► asked by unicast ── three times nothing ──► asked by broadcast
       │ ask: 1 s, 1 s, then ever slower                  │ answer: known again                        │
       └───────────────────────────────────────────┐      │                                            │ nothing:
                                                   ▼      ▼                                            ▼
    another MAC speaks ── ask all, and the old one ── the old one silent for 150 ms: the new MAC   not reachable;
                                                   └─ the old one answers: it stays, a conflict    the MAC stays

Only an answer to an own question is believed (rule R12): whatever else is heard is a reason to ask. Times are in
seconds of any one clock. Questions share a token bucket; due ones are kept in a heap, so that a call costs what
it does, whatever the number of targets.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from controller.neighbor_frames import Claim
from pipelines.addresses import Ip, mac_text, usable_mac

NEVER = float("-inf")
DOUBTS = 2  # questions to all, when what is heard is not what is known


class Timing(Struct, frozen=True):
    """In seconds. `rate` and `burst`: questions a second, and at once, over all targets."""

    first: float = 0.2  # until a new target is asked: the flows that hear the answer have to be there
    retry: float = 1
    slowest: float = 30
    refresh: float = 30
    patience: float = 2  # in which an answer counts as one
    window: float = 0.15  # in which the old station may object to a new one
    spacing: float = 0.5  # between two questions to one target that others gave rise to
    preference: float = 2  # by which a less preferred next hop is asked later, when none is known
    rate: float = 400
    burst: float = 400
    unicast_tries: int = 3
    remembered: float = 60  # how long a conflict or a refused value is reported after it was last seen


class Target(Struct, frozen=True):
    """An address whose MAC is wanted. `key` says for whom.

    `circle`: who may ask, see `Discovery.join`. `owner`: the node that has the address, which does not ask itself.
    `rank`: 0 for the preferred one of several next hops.
    """

    key: str
    ip: Ip
    circle: str
    owner: str = ""
    rank: int = 0


class Question(NamedTuple):
    """To be asked by a node; of the station `mac` alone, of all when that is None."""

    node: str
    ip: Ip
    mac: int | None


class News(NamedTuple):
    """What is known now. An answer that confirms what was said before is no news."""

    key: str
    mac: int
    reachable: bool


class Step(NamedTuple):
    """What follows from a call."""

    questions: list[Question]
    news: list[News]


class Standing(NamedTuple):
    """What is known of a target. `confirmed`: when its MAC last answered; None: never."""

    ip: Ip
    mac: int | None
    reachable: bool
    confirmed: float | None
    unanswered: int  # questions since
    problems: tuple[str, ...]


class _State:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.mac: int | None = None
        self.reachable = True
        self.confirmed: float | None = None  # when `mac` last answered
        self.unanswered = 0
        self.turn = 0  # by which an asker is chosen
        self.asker = ""
        self.asked = self.called = NEVER  # the last question, and the last one to all
        self.doubts = 0  # questions still to be asked of all and of `mac`, because of what others say
        self.claimed: int | None = None  # by whom, in what gave rise to doubt, and when
        self.provoked = NEVER
        self.rival: int | None = None  # has answered; what becomes of it is decided when the window closes
        self.conflict: tuple[int, float] | None = None  # a MAC, and when it was last heard
        self.refused: tuple[int, str, float] | None = None
        self.entry = 0  # the one in the heap that counts


class Discovery:
    """`jitter`: any source of randomness; tests give one with a seed."""

    def __init__(self, timing: Timing | None = None, jitter: random.Random | None = None) -> None:
        self.timing = timing or Timing()
        self._jitter = jitter or random.Random()
        self._states: dict[str, _State] = {}
        self._by_address: dict[tuple[str, Ip], str] = {}  # circle and address → key
        self._circles: dict[str, list[str]] = {}  # of those who can ask now
        self._joined: dict[str, tuple[str, ...]] = {}
        self._waiting: dict[str, set[str]] = {}  # circle → keys
        self._heap: list[tuple[float, int, str]] = []
        self._entries = 0
        self._windows: deque[tuple[float, str]] = deque()
        self._tokens, self._filled = self.timing.burst, float("-inf")
        self._step = Step([], [])

    # --- what there is to know, and who may ask -------------------------------------------------------------

    def follow(self, key: str, target: Target | None, now: float) -> None:
        """This is wanted now; None: nothing any more. What is known stays when the address has changed."""
        state = self._states.get(key)
        if state is not None:
            if target is not None and _same(state.target, target):
                return
            self._let_go(state.target)
        if target is None:
            self._states.pop(key, None)
            return
        if state is None:
            state = self._states[key] = _State(target)
        else:
            state.target, state.unanswered, state.rival = target, 0, None
        self._by_address[target.circle, target.ip] = key
        self._begin(state, now)

    def _let_go(self, target: Target) -> None:
        if self._by_address.get((target.circle, target.ip)) == target.key:
            del self._by_address[target.circle, target.ip]
        self._waiting.get(target.circle, set()).discard(target.key)

    def forget(self, key: str, now: float) -> None:
        """What is known of a target; it is asked again."""
        state = self._states.get(key)
        if state is not None:
            self.follow(key, None, now)
            self.follow(key, state.target, now)

    def hint(self, key: str, mac: int) -> None:
        """A MAC that was in force before anything was known: it is asked first, and believed when it answers."""
        state = self._states.get(key)
        if state is not None and state.mac is None:
            state.mac = mac

    def join(self, node: str, circles: Iterable[str], now: float) -> None:
        """A node can ask, for the targets of these circles."""
        circles = tuple(circles)
        if self._joined.get(node) == circles:
            return
        self.leave(node)
        self._joined[node] = circles
        for circle in circles:
            self._circles.setdefault(circle, []).append(node)
            for key in sorted(self._waiting.pop(circle, ())):
                self._begin(self._states[key], now)

    def leave(self, node: str) -> None:
        """It cannot ask any more: its targets wait, or are asked by others. What is known stays."""
        for circle in self._joined.pop(node, ()):
            self._circles[circle].remove(node)
            if not self._circles[circle]:
                del self._circles[circle]

    def _begin(self, state: _State, now: float) -> None:
        delay = self.timing.first * self._jitter.uniform(1, 2)
        if state.confirmed is None:
            delay += state.target.rank * self.timing.preference
        self._schedule(state, now + delay)

    # --- time passes ------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float | None:
        """Seconds until `advance` has something to do; None: nothing, until something else happens."""
        times = [self._windows[0][0]] if self._windows else []
        if self._heap:
            self._fill(now)
            times.append(max(self._heap[0][0], now + max(0.0, 1 - self._tokens) / self.timing.rate))
        return max(0.0, min(times) - now) if times else None

    def advance(self, now: float) -> Step:
        """Everything that is due, as far as the rate allows."""
        while self._windows and self._windows[0][0] <= now:
            _, key = self._windows.popleft()
            if key in self._states:
                self._decide(self._states[key], now)
        self._fill(now)
        while self._heap and self._heap[0][0] <= now and self._tokens >= 1:
            _, entry, key = heapq.heappop(self._heap)
            state = self._states.get(key)
            if state is not None and state.entry == entry:
                self._ask(state, now)
        done, self._step = self._step, Step([], [])
        return done

    def _fill(self, now: float) -> None:
        self._tokens = min(self.timing.burst, self._tokens + max(0.0, now - self._filled) * self.timing.rate)
        self._filled = now

    def _schedule(self, state: _State, due: float) -> None:
        self._entries += 1
        state.entry = self._entries
        heapq.heappush(self._heap, (due, state.entry, state.target.key))

    # --- asking -----------------------------------------------------------------------------------------------

    def _ask(self, state: _State, now: float) -> None:
        asker = self._asker(state)
        if asker is None:
            self._waiting.setdefault(state.target.circle, set()).add(state.target.key)
            return
        tries = self.timing.unicast_tries
        if state.mac is not None and state.reachable and state.unanswered > tries:
            state.reachable = False
            if state.confirmed is not None:
                self._say(state)
        doubtful = state.doubts > 0 or state.conflict is not None or state.confirmed is None
        if state.mac is not None and (doubtful or state.unanswered < tries):
            self._put(state, asker, now, state.mac)
        if state.mac is None or doubtful or state.unanswered >= tries:
            self._put(state, asker, now, None)
            state.called = now
        state.unanswered += 1
        state.doubts = max(0, state.doubts - 1)
        self._schedule(state, now + (self.timing.spacing if state.doubts else self._pause(state)))

    def _asker(self, state: _State) -> str | None:
        """Those of a circle take turns."""
        able = self._circles.get(state.target.circle, ())
        for _ in range(min(len(able), 2)):
            state.turn += 1
            found = able[state.turn % len(able)]
            if found != state.target.owner:
                return found
        return None

    def _put(self, state: _State, asker: str, now: float, mac: int | None) -> None:
        self._tokens -= 1
        state.asker, state.asked = asker, now
        self._step.questions.append(Question(asker, state.target.ip, mac))

    def _pause(self, state: _State) -> float:
        """Until the next question, if nobody answers this one."""
        quick = 2 if state.mac is None else self.timing.unicast_tries + 1
        if state.unanswered <= quick:
            return self.timing.retry
        slow = self.timing.retry * 2.0 ** min(16, state.unanswered - quick)
        return min(self.timing.slowest, slow) * self._jitter.uniform(0.8, 1.2)

    def _doubt(self, state: _State, now: float) -> None:
        """Ask all, and the one in force for itself, at once; but not whenever somebody says something."""
        if not state.doubts:
            state.doubts = DOUBTS
            self._schedule(state, max(now, state.called + self.timing.spacing))

    # --- hearing ----------------------------------------------------------------------------------------------

    def heard(self, node: str, own_mac: int, claim: Claim, now: float) -> Step:
        """A node that can ask, and whose uplink has `own_mac`, has heard a claim.

        `claim.answer`: whether it answers a question of this node, going by the addresses it was sent to.
        """
        for circle in self._joined.get(node, ()):
            state = self._states.get(self._by_address.get((circle, claim.ip), ""))
            if state is not None and state.target.owner != node:
                self._hear(state, node, own_mac, claim, now)
        return self.advance(now)

    def _hear(self, state: _State, node: str, own_mac: int, claim: Claim, now: float) -> None:
        if claim.mac == own_mac or not usable_mac(claim.mac):
            whose = f"the MAC of {node} itself" if claim.mac == own_mac else "no station's MAC"
            state.refused = (claim.mac, whose, now)
            return
        answer = claim.answer and node == state.asker and now - state.asked <= self.timing.patience
        if claim.mac == state.mac:
            if answer:
                self._confirm(state, now)
            elif not state.reachable:
                self._doubt(state, now)
        elif not answer:
            if state.mac is not None:
                state.claimed, state.provoked = claim.mac, now
            self._doubt(state, now)
        elif state.mac is None:
            state.mac = claim.mac
            self._confirm(state, now)
        elif state.rival is None:
            self._challenge(state, claim.mac, now)
        else:
            state.rival = claim.mac  # of several that answer the one that does so still, not the first

    def _confirm(self, state: _State, now: float) -> None:
        """The MAC in force has answered."""
        news = state.confirmed is None or not state.reachable
        state.confirmed, state.reachable, state.unanswered, state.doubts = now, True, 0, 0
        if state.claimed is not None:
            state.conflict, state.claimed = (state.claimed, now), None
        elif state.conflict is not None and now - state.conflict[1] > self.timing.remembered:
            state.conflict = None
        if news:
            self._say(state)
        if state.provoked > state.called:
            self._doubt(state, now)  # the answer may have been on its way while another station took over
            return
        self._schedule(state, now + self.timing.refresh * self._jitter.uniform(0.8, 1.2))

    def _challenge(self, state: _State, mac: int, now: float) -> None:
        """Another station has answered: the one in force, which was asked as well, has a moment to answer."""
        state.rival = mac
        if now - state.called > self.timing.window:
            state.doubts = 0
            self._doubt(state, now)
        self._windows.append((now + self.timing.window, state.target.key))

    def _decide(self, state: _State, now: float) -> None:
        rival = state.rival
        if rival is None:
            return
        if state.target.circle in self._circles:
            open_until = state.called + self.timing.window if state.doubts < DOUBTS else now + self.timing.window
            if open_until > now:  # who is in force has not had its time yet, or was not even asked
                self._windows.append((open_until, state.target.key))
                return
        state.rival = state.claimed = None
        if state.confirmed is not None and state.confirmed >= state.called:
            state.conflict = (rival, now)
            return
        state.mac, state.conflict, state.confirmed = rival, None, None
        self._confirm(state, now)

    def _say(self, state: _State) -> None:
        if state.mac is not None:
            self._step.news.append(News(state.target.key, state.mac, state.reachable))

    # --- questions --------------------------------------------------------------------------------------------

    def standing(self, key: str, now: float) -> Standing | None:
        state = self._states.get(key)
        if state is None:
            return None
        known = state.mac if state.confirmed is not None else None
        wrong = tuple(self._problems(state, now))
        return Standing(state.target.ip, known, state.reachable, state.confirmed, state.unanswered, wrong)

    def problems(self, now: float) -> list[tuple[str, str]]:
        """Keys of targets, and what is wrong about their MACs."""
        return [(key, text) for key, state in sorted(self._states.items()) for text in self._problems(state, now)]

    def _problems(self, state: _State, now: float) -> Iterator[str]:
        ip, oldest = state.target.ip, now - self.timing.remembered
        if state.conflict is not None and state.conflict[1] >= oldest and state.mac is not None:
            yield f"{mac_text(state.mac)} and {mac_text(state.conflict[0])} both claim {ip}; the first is used"
        if state.refused is not None and state.refused[2] >= oldest:
            yield f"{ip} is said to be at {mac_text(state.refused[0])}, {state.refused[1]}; not believed"
        if not state.target.owner and state.unanswered > self.timing.unicast_tries + 1:
            yield f"{ip} does not answer"


def _same(one: Target, two: Target) -> bool:
    """All but what counts only at the beginning."""
    return (one.ip, one.circle, one.owner) == (two.ip, two.circle, two.owner)
