"""Announces external addresses of services: asks first whether they are free, and says whenever another node has them.

    revisions ─ who answers for what ─►            ─ probes, announcements ─► packet-outs by the uplinks
    sessions ── who can send ─────────► claiming
    packet-ins ─ who claims it too ───►            ─ what is free ──────────► Kind.CLAIM

Which node answers is decided by `pipelines.announce_rules`; its flows answer for an address once that is claimed.
After a restart flows that were read back show what was claimed before.
"""

import logging
from collections.abc import Callable, Iterable
from time import monotonic

from apps.uplinks import Uplinks
from controller import neighbor_frames
from controller.claiming import Claiming, Phase, Sending, Step, Timing
from controller.hub import Bell
from controller.readback import DecodeError, FlowRow, PacketIn, decode_flow
from controller.session import Session
from pipelines.actions import SetField
from pipelines.addresses import Ip, parse_ip
from pipelines.derived import Announced, Derived, Opening, Station
from pipelines.features import NUMBERS
from pipelines.features.announce import ANSWER, WATCH
from pipelines.fields import ARP_SHA, ARP_TPA, ND_TARGET, ND_TLL
from pipelines.flow import Flow
from pipelines.ids import split_cookie
from pipelines.model import Change, Claimed, Kind, Problem
from pipelines.unit import Revision
from pipelines.view import Facts

LOG = logging.getLogger("signalbox.announcer")


class Announcer:
    """`apply` hands observations to the compiler."""

    def __init__(
        self,
        facts: Facts,
        apply: Callable[[list[Change]], None],
        timing: Timing | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.probes = self.announcements = self.defended = 0
        self._facts, self._apply, self._now = facts, apply, now
        self._claiming = Claiming(self._able, timing)
        self._uplinks = Uplinks(facts)
        self._gathered: dict[str, bool] = {}  # by segment, for one turn: whether its nodes are all known
        self._watched_since: dict[Ip, int] = {}  # the revision that made who answers for it hear who objects
        self._bell = Bell()

    # --- what there is to announce, and who can ---------------------------------------------------------------

    def follow(self, revision: Revision) -> None:
        """This was compiled."""
        if not self._facts.peek(Kind.SETTINGS)[""].announce:
            return
        touched: dict[str, None] = {}
        for change in revision.changes:
            if change.key.feature in (WATCH, ANSWER):
                touched[change.key.key] = None
                if change.key.feature == WATCH and change.new:
                    self._watched_since[parse_ip(change.key.key)] = revision.number
        for address in touched:
            self._follow(address)
        if touched:
            self._bell.ring()

    def _follow(self, address: str) -> None:
        ip = parse_ip(address)
        announced: Announced | None = self._facts.peek(Derived.ANNOUNCED).get(address)
        claim: Claimed | None = self._facts.peek(Kind.CLAIM).get(address)
        moved = announced is not None and claim is not None and claim.segment != announced.segment
        if (announced is None or moved) and self._claiming.follow(ip, None):
            self._apply([Change(Kind.CLAIM, address, None)])
        if announced is None:
            self._watched_since.pop(ip, None)
            return
        self._claiming.follow(ip, announced.node)
        if not announced.claimed or claim is None:
            return
        if claim.node != announced.node:
            LOG.info("%s: announced by %s now, in place of %s", address, announced.node, claim.node)
            self._apply([Change(Kind.CLAIM, address, Claimed(announced.node, announced.segment))])
        if (uplink := self._uplinks.port(announced.node)) is not None:
            self._claiming.answering(ip, announced.node, uplink.mac, self._now())

    def recall(self, node: str, rows: Iterable[FlowRow]) -> list[Change]:
        """What a node's switch that was read back answers for, where nothing is known yet (Kind.CLAIM)."""
        changes = []
        for row in rows:
            cookie = split_cookie(row.cookie)
            if cookie is None or cookie.feature != NUMBERS[ANSWER]:
                continue
            try:
                found = _answer(decode_flow(row))
            except DecodeError:
                continue  # not as we write it: the audit deals with it
            announced = self._facts.peek(Derived.ANNOUNCED).get(str(found[0])) if found else None
            if found and announced is not None and self._claiming.recall(found[0], node, found[1]):
                changes.append(Change(Kind.CLAIM, str(found[0]), Claimed(node, announced.segment)))
        return changes

    def session_changed(self, session: Session) -> None:
        """It has entered another state, perhaps as the switch of another node."""
        self._uplinks.changed(session)
        self._bell.ring()

    def _able(self, node: str, ip: Ip, probing: bool) -> bool:
        """Before the first probe its switch has to carry the flows that hear objections.

        And all switches of the segment have told what they answer for, or are known to be away: else one of our own
        could object.
        """
        session = self._uplinks.session(node)
        if session is None or not session.writer.master or self._uplinks.port(node) is None:
            return False
        if not probing:
            return True
        announced: Announced | None = self._facts.peek(Derived.ANNOUNCED).get(str(ip))
        if announced is None or session.revision < self._watched_since.get(ip, 0):
            return False
        if announced.segment not in self._gathered:
            stations: tuple[Station, ...] = self._facts.peek(Derived.STATIONS).get(announced.segment, ())
            known = all(not one.alive or self._uplinks.port(one.node) is not None for one in stations)
            self._gathered[announced.segment] = known
        return self._gathered[announced.segment]

    # --- saying -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """For ever."""
        while True:
            self._bell.wait(self.advance())

    def advance(self) -> float | None:
        """Says what is due; returns in how many seconds to look again, None: when something has changed."""
        now = self._now()
        self._gathered.clear()
        self._take(self._claiming.advance(now))
        return self._claiming.wait(now)

    def _take(self, step: Step) -> None:
        for sending in step.frames:
            self._send(sending)
        changes = []
        for ip, node in step.claimed:
            announced: Announced | None = self._facts.peek(Derived.ANNOUNCED).get(str(ip))
            if announced is not None:
                LOG.info("%s: nobody else has it; announced by %s", ip, node)
                changes.append(Change(Kind.CLAIM, str(ip), Claimed(node, announced.segment)))
        if changes:
            self._apply(changes)

    def _send(self, sending: Sending) -> None:
        uplink = self._uplinks.port(sending.node)
        if uplink is None:
            return
        make = neighbor_frames.probe if sending.probe else neighbor_frames.announcement
        self._uplinks.send(sending.node, make(uplink.mac, sending.ip))
        self.probes += sending.probe
        self.announcements += not sending.probe

    # --- hearing ----------------------------------------------------------------------------------------------

    def heard(self, session: Session, packet: PacketIn) -> None:
        """Somebody says something about who has an address that is watched for."""
        claim, node = neighbor_frames.claim(packet.data), self._uplinks.node(session)
        if claim is not None and node is not None and not self._ours(claim.mac):
            self._claiming.heard(node, claim.ip, claim.mac, self._now())
            self._bell.ring()

    def probed(self, session: Session, packet: PacketIn) -> None:
        """A station would like to have an address that is announced: it is told that it cannot."""
        ip, node = neighbor_frames.probed(packet.data), self._uplinks.node(session)
        uplink = self._uplinks.port(node) if node is not None else None
        if ip is not None and node is not None and uplink is not None:
            self._uplinks.send(node, neighbor_frames.announcement(uplink.mac, ip))
            self.defended += 1

    def _ours(self, mac: int) -> bool:
        """Whether it is the uplink of a node: it may have answered a moment ago, as it should then."""
        if any(network.mac and network.mac.mac == mac for network in self._facts.peek(Derived.NODE_NETWORK).values()):
            return True
        nodes = self._facts.peek(Kind.NODE)
        return any((port := self._uplinks.port(name)) is not None and port.mac == mac for name in nodes)

    # --- questions --------------------------------------------------------------------------------------------

    def row(self, address: str) -> tuple[str | None, str]:
        """The node that announces an address, and how that stands; "" when it is not to be announced."""
        announced: Announced | None = self._facts.peek(Derived.ANNOUNCED).get(address)
        if announced is None:
            return None, "no node" if address in self._facts.peek(Derived.ON_LINK) else ""
        phase = self._claiming.phase(announced.ip)
        if phase is Phase.CONFLICT:
            return None, "conflict"
        if phase is Phase.HELD and announced.claimed:
            return announced.node, "announced"
        return None, "probing"

    def problems(self) -> list[Problem]:
        """Of each service that has such an address."""
        found = []
        for ip, reason in self._claiming.problems(self._now()):
            openings: tuple[Opening, ...] = self._facts.peek(Derived.ANNOUNCEABLE).get(str(ip), ())
            for service in sorted({opening.service for opening in openings}):
                found.append(Problem(Kind.SERVICE, service, "announce", reason))
        return found


def _answer(flow: Flow) -> tuple[Ip, int] | None:
    """The address that a flow answers for, and the MAC that it says."""
    mac = next(
        (act.value for act in flow.actions if isinstance(act, SetField) and act.field in (ARP_SHA, ND_TLL)), None
    )
    asked = next((item for item in flow.match if item.field in (ARP_TPA, ND_TARGET)), None)
    if mac is None or asked is None:
        return None
    return Ip(4 if asked.field is ARP_TPA else 6, asked.value), mac
