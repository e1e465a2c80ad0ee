"""Tells a segment at which MACs its tunnels end (`traffic_mode: encap`).

Open vSwitch's userspace datapath asks once for the MAC that a tunnel leads to, and drops what it would have sent. If
the question or its answer is lost, that decision stays cached while packets keep coming, and nothing is asked again.
So every node's uplink says its address to all, as a host does when it comes up: when a switch has become READY on the
segment, when a node's address or MAC has changed, and every minute. In other modes tunnels lead to routers, whose
answers to the questions of `apps.neighbors` Open vSwitch hears as well.
"""

import random
from collections.abc import Callable, Iterable
from time import monotonic

from apps.uplinks import Uplinks
from controller import neighbor_frames
from controller.hub import Bell
from controller.session import Session
from pipelines.derived import Derived, NodeNetwork, known_segment
from pipelines.features.routes import PEER_ROUTE
from pipelines.model import Kind, TrafficMode
from pipelines.unit import Revision
from pipelines.view import Facts

PAUSES = 0.5, 1.5, 6.0  # seconds before the first times
AGAIN = 60.0  # seconds, about; Open vSwitch forgets after 900
AT_ONCE, TURN = 10, 0.1  # so many nodes, then a pause of seconds: each frame reaches everybody on its segment


class TunnelEnds:
    def __init__(
        self,
        facts: Facts,
        uplinks: Uplinks | None = None,
        now: Callable[[], float] = monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self.announced = 0
        self._facts, self._now, self._chance = facts, now, chance or random.Random()
        self._uplinks = uplinks or Uplinks(facts)
        self._due: dict[
            str, tuple[float, int]
        ] = {}  # node → when, and how often it has said it since something changed
        self._on = False
        self._bell = Bell()

    def follow(self, revision: Revision) -> None:
        """This was compiled."""
        on = self._facts.peek(Kind.SETTINGS)[""].traffic_mode is TrafficMode.ENCAP
        if on != self._on:
            self._on = on
            self._due.clear()
            self._begin(self._facts.peek(Derived.NODE_NETWORK))
        else:
            self._begin(
                dict.fromkeys(change.key.key for change in revision.changes if change.key.feature == PEER_ROUTE)
            )

    def session_changed(self, session: Session) -> None:
        """It has entered another state: one that has just come knows nobody, and nobody knows it."""
        _, member = self._uplinks.changed(session)
        network = self._network(member.node) if member is not None else None
        if network is not None:
            here = set(filter(known_segment, network.segments))
            everybody: dict[str, NodeNetwork] = self._facts.peek(Derived.NODE_NETWORK)
            self._begin([name for name, other in everybody.items() if not here.isdisjoint(other.segments)])

    def _begin(self, nodes: Iterable[str]) -> None:
        if not self._on:
            return
        for node in nodes:
            due, _ = self._due.get(node, (float("inf"), 0))
            self._due[node] = min(due, self._now() + PAUSES[0]), 0
        self._bell.ring()

    def run(self) -> None:
        """For ever."""
        while True:
            self._bell.wait(self.advance())

    def advance(self) -> float | None:
        """Says what is due; returns in how many seconds to look again, None: when something has changed."""
        now = self._now()
        due = sorted((when, node) for node, (when, _) in self._due.items() if when <= now)
        for _, node in due[:AT_ONCE]:
            self._say(node)
        if len(due) > AT_ONCE:
            return TURN
        return max(TURN, min(when for when, _ in self._due.values()) - now) if self._due else None

    def _say(self, node: str) -> None:
        network, uplink, times = self._network(node), self._uplinks.port(node), self._due[node][1] + 1
        if network is None or not network.addresses:
            del self._due[node]
            return
        if uplink is not None:  # a node whose switch is away is passed over this time
            frame = neighbor_frames.unasked_answer(uplink.mac, network.addresses[0])
            self.announced += self._uplinks.send(node, frame)
        pause = PAUSES[times] if times < len(PAUSES) else AGAIN * self._chance.uniform(0.8, 1.2)
        self._due[node] = self._now() + pause, times

    def _network(self, node: str) -> NodeNetwork | None:
        found: NodeNetwork | None = self._facts.peek(Derived.NODE_NETWORK).get(node)
        return found
