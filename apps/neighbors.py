"""Asks the network for MACs that nobody tells: those of next hops, and of peers whose switch and Node say nothing.

    revisions ─ what is watched ─►           ─ questions ─► packet-outs by the uplinks
    sessions ── who can ask ─────► discovery
    packet-ins ─ what is said ───►           ─ news ──────► Kind.NEIGHBOR

What is watched for (the features `neighbors.watch_…` have a unit for it) is what is asked for, so an answer always
finds a flow. Only the master of a switch that is READY asks by it; a peer is asked by the switches of its
segment, in turn.
"""

from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Any

from apps.uplinks import Uplinks
from controller import neighbor_frames
from controller.discovery import Discovery, Question, Step, Target
from controller.hub import Bell
from controller.readback import PacketIn
from controller.session import Session
from pipelines.addresses import Ip, link_local
from pipelines.derived import Derived, NodeNetwork
from pipelines.features.neighbors import WATCH_PEERS, WATCH_ROUTERS
from pipelines.fields import ARP_SPA, ND_TARGET
from pipelines.model import Change, Evidence, Kind, Neighbor, Node, Problem, neighbor_key
from pipelines.unit import EMPTY, Member, Revision, Scope, ScopeKind, Unit, UnitKey
from pipelines.view import Facts


class Neighbors:
    """`apply` hands observations to the compiler. It is the handler of both features' packet-ins itself."""

    def __init__(
        self,
        facts: Facts,
        units: dict[UnitKey, Unit],
        apply: Callable[[list[Change]], None],
        discovery: Discovery | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.asked = self.heard = self.malformed = 0
        self._facts, self._units, self._apply, self._now = facts, units, apply, now
        self._discovery = discovery or Discovery()
        self._uplinks = Uplinks(facts)
        self._told: set[str] = set()  # keys of the observations that were handed on
        self._bell = Bell()

    # --- what there is to know, and who can ask ---------------------------------------------------------------

    def follow(self, revision: Revision) -> None:
        """This was compiled."""
        for change in revision.changes:
            if change.key.feature == WATCH_ROUTERS:
                self._follow_routers(change.key, change.old, change.new)
            elif change.key.feature == WATCH_PEERS:
                self._follow_peer(change.key.key)
        for member in revision.members.values():
            if member is not None and self._uplinks.session(member.node) is not None:
                self._discovery.join(member.node, _circles(member), self._now())
        self._bell.ring()

    def _follow_routers(self, key: UnitKey, old: Unit, new: Unit) -> None:
        """The next hops of one node and family, in the order of preference."""
        node, named = key.scope.name, _watched(new)
        for ip in set(_watched(old)).difference(named):
            self._want(neighbor_key(node, ip), None)
        for rank, ip in enumerate(named):
            at = neighbor_key(node, ip)
            self._want(at, Target(at, ip, node, rank=rank))

    def _follow_peer(self, name: str) -> None:
        """It is asked for the first of its addresses that is watched for."""
        at = neighbor_key(name)
        network: NodeNetwork | None = self._facts.peek(Derived.NODE_NETWORK).get(name)
        for segment in network.segments if network else ():
            unit = self._units.get(UnitKey(WATCH_PEERS, Scope(ScopeKind.SEGMENT, segment), name), EMPTY)
            if ips := _watched(unit):
                self._want(at, Target(at, ips[0], segment, owner=name))
                return
        self._want(at, None)

    def recall(self, evidence: Iterable[Change]) -> None:
        """A switch that was read back shows these MACs (Kind.EVIDENCE): they are asked first."""
        for change in evidence:
            node, _, family = change.key.partition(" router ")
            unit = self._units.get(UnitKey(WATCH_ROUTERS, Scope(ScopeKind.NODE, node), f"{node} {family}"), EMPTY)
            for key in [neighbor_key(node, ip) for ip in _watched(unit)] if family else [change.key]:
                if isinstance(change.value, Evidence):
                    self._discovery.hint(key, change.value.mac)

    def _want(self, key: str, target: Target | None) -> None:
        self._discovery.follow(key, target, self._now())
        if target is None and key in self._told:
            self._told.discard(key)
            self._apply([Change(Kind.NEIGHBOR, key, None)])

    def forget(self, nodes: Collection[str]) -> None:
        """The compiler has forgotten what was observed of these nodes, deleted or made anew: it is found out again."""
        if nodes:
            for key in [key for key in self._told if key.partition(" ")[0] in nodes]:
                self._told.discard(key)
                self._discovery.forget(key, self._now())
            self._bell.ring()

    def session_changed(self, session: Session) -> None:
        """It has entered another state, perhaps as the switch of another node."""
        left, member = self._uplinks.changed(session)
        if left is not None:
            self._discovery.leave(left)
        if member is not None:
            self._discovery.join(member.node, _circles(member), self._now())
        self._bell.ring()

    # --- asking -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """For ever."""
        while True:
            self._take(self._discovery.advance(self._now()))
            self._bell.wait(self._discovery.wait(self._now()))

    def _take(self, step: Step) -> None:
        for question in step.questions:
            self._ask(question)
        if step.news:
            self._told.update(news.key for news in step.news)
            self._apply([Change(Kind.NEIGHBOR, news.key, Neighbor(news.mac, news.reachable)) for news in step.news])

    def _ask(self, question: Question) -> None:
        """By a packet-out; what cannot be sent counts as not answered."""
        uplink, source = self._uplinks.port(question.node), self._source(question.node, question.ip)
        if uplink is None or source is None:
            return
        frame = neighbor_frames.question(source, uplink.mac, question.ip, question.mac)
        self.asked += self._uplinks.send(question.node, frame)

    def _source(self, node: str, asked: Ip) -> Ip | None:
        """The address that a node asks from, which its kernel answers for: in the subnet if it has one there."""
        value: Node | None = self._facts.peek(Kind.NODE).get(node)
        own = [at for at in value.addresses if at.ip.family == asked.family] if value else []
        near = next((at.ip for at in own if at.subnet is not None and at.subnet.__contains__(asked)), None)
        if near is not None or own:
            return near or own[0].ip
        uplink = self._uplinks.port(node)
        return link_local(uplink.mac) if asked.family == 6 and uplink else None

    # --- hearing ----------------------------------------------------------------------------------------------

    def __call__(self, session: Session, packet: PacketIn) -> None:
        """A neighbour said something about an address that is watched for."""
        claim = neighbor_frames.claim(packet.data)
        node = self._uplinks.node(session)
        uplink = self._uplinks.port(node) if node is not None else None
        if claim is None or node is None or uplink is None:
            self.malformed += claim is None
            return
        self.heard += 1
        to_us = claim.to_mac == uplink.mac and claim.to_ip == self._source(node, claim.ip)
        self._take(self._discovery.heard(node, uplink.mac, claim._replace(answer=claim.answer and to_us), self._now()))
        self._bell.ring()

    # --- questions --------------------------------------------------------------------------------------------

    def row(self, key: str) -> dict[str, Any] | None:
        """What is known of a NEIGHBOR's key: None when nobody asks for it.

        `age_seconds`: since it last answered (None: never); `problems`: texts.
        """
        now = self._now()
        found = self._discovery.standing(key, now)
        if found is None:
            return None
        return {
            "address": str(found.ip),
            "mac": found.mac,
            "reachable": found.reachable,
            "age_seconds": None if found.confirmed is None else now - found.confirmed,
            "unanswered": found.unanswered,
            "problems": list(found.problems),
        }

    def problems(self) -> list[Problem]:
        """Conflicts, values that were refused, next hops that do not answer."""
        return [
            Problem(Kind.NODE, node, "next hop" if ip else "uplink MAC", text)
            for key, text in self._discovery.problems(self._now())
            for node, _, ip in (key.partition(" "),)
        ]


def _circles(member: Member) -> tuple[str, ...]:
    """Whose questions a switch may ask: its own node's, and its segments'."""
    return (member.node, *sorted(scope.name for scope in member.scopes if scope.kind is ScopeKind.SEGMENT))


def _watched(unit: Unit) -> list[Ip]:
    """The addresses that a unit's flows watch for, in their order."""
    items = [item for flow in unit.flows for item in flow.match if item.field in (ARP_SPA, ND_TARGET)]
    return [Ip(4 if item.field is ARP_SPA else 6, item.value) for item in items]
