"""Announcements by fake switches, and who takes over when one of them goes. A second of the clock is 50 ms."""

from collections.abc import Callable, Iterator
from time import monotonic

import eventlet
import pytest

from apps.announcer import Announcer
from apps.metrics import FabricCollector
from apps.presence import Presence
from controller import neighbor_frames
from controller.fleet import Fleet
from controller.readback import FlowRow
from controller.session import Hooks, Session, State
from controller.settings import SwitchSettings
from controller.switches import Switches
from pipelines.addresses import Ip, parse_cidr, parse_ip
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.features import NUMBERS
from pipelines.features.announce import ANSWER, WATCH
from pipelines.model import Change, Kind, Port, port_key
from tests.apps.neighborhood import Switch, announcement
from tests.apps.stub import StubFabric
from tests.controller.world import until
from tests.pipelines import objects

VIP = {4: parse_ip("192.168.77.150"), 6: parse_ip("fd00:77::1:150")}
POOLS = parse_cidr("192.168.77.128/25"), parse_cidr("fd00:77::/64")
STRANGER = 0xEE0000000066
FAST = 20  # seconds of the clock in one


def clock() -> float:
    return monotonic() * FAST


class Segment:
    """n1, n2 and n3 on one link: what the fabric does, without Ryu. `stations`: others, by address."""

    def __init__(self, switches: dict[int, Switch] | None = None) -> None:
        self.compiler, self.fleet = Compiler(), Fleet()
        facts = self.compiler.facts
        self.announcer = Announcer(facts, self.apply, now=clock)
        self.presence = Presence(facts, self.apply, clock)
        hooks = Hooks(
            observe=self.observe,
            ports_changed=lambda node, changes: self.apply(changes),
            packet_in={NUMBERS[WATCH]: self.announcer.heard, NUMBERS[ANSWER]: self.announcer.probed},
            state_changed=self._session_changed,
        )
        self.switches = Switches(self.fleet, SwitchSettings(audit_interval=0), hooks)
        self.stations: dict[Ip, list[int]] = {}
        self.fakes = switches or {number: Switch(number, self.stations) for number in (1, 2, 3)}
        self._changes: list[Change] = []
        self.apply([objects.operator(announce=POOLS), *map(self.node, (1, 2, 3)), self.service(), self.ends()])
        self.compile()
        self.fleet.declare_ready()

    @staticmethod
    def node(number: int) -> Change:
        addresses = f"192.168.77.10{number}/24", f"fd00:77::10{number}/64"
        return objects.node(f"n{number}", (f"10.10.{number}.0/24",), addresses, datapath_id=number)

    @staticmethod
    def service(*ips: Ip) -> Change:
        at = tuple(map(str, ips or VIP.values()))
        cluster_ips = "10.96.0.80", "fd00:96::80"
        return objects.service("web", cluster_ips, ("http", "TCP", 80), load_balancer_ips=objects.ips(*at))

    @staticmethod
    def ends() -> Change:
        return objects.slice_("web-4", "web", ("10.10.1.10",), ("http", "TCP", 8080))

    def end(self) -> None:
        for switch in self.fakes.values():
            switch.fake.unplug()
        until(lambda: not self.switches.sessions())

    def _session_changed(self, session: Session) -> None:
        self.announcer.session_changed(session)
        self.presence.session_changed(session)

    def apply(self, changes: list[Change]) -> None:
        self._changes += changes

    def compile(self) -> None:
        while self._changes:
            changes, self._changes = self._changes, []
            revision = self.compiler.run(changes)
            self.fleet.publish(revision, NUMBERS)
            self.announcer.follow(revision)
            self.presence.follow(revision)
            deleted = {change.key for change in changes if change.kind is Kind.NODE and change.value is None}
            self.presence.forget(deleted)

    def observe(self, node: str, ports: dict[str, Port], rows: list[FlowRow]) -> None:
        changes = [Change(Kind.PORT, port_key(node, name), port) for name, port in ports.items()]
        self.apply([*changes, *self.announcer.recall(node, rows)])
        self.compile()

    def connect(self, *numbers: int) -> None:
        for number in numbers:
            eventlet.spawn_n(self.switches.serve, self.fakes[number].fake.pair(), f"fake-{number}")
        for number in numbers:
            until(lambda at=number: self.state(at) is State.READY)  # type: ignore[misc]

    def state(self, number: int) -> State | None:
        session = self.switches.session(number)
        return session.state if session else None

    def turn(self) -> None:
        self.announcer.advance()
        self.presence.advance()
        self.compile()
        for switch in self.fakes.values():
            switch.answer_in(WATCH)
        eventlet.sleep(0.002)

    def run(self, seconds: float) -> None:
        end = clock() + seconds
        while clock() < end:
            self.turn()

    def wait(self, holds: Callable[[], bool]) -> None:
        def found() -> bool:
            self.turn()
            return holds()

        until(found, 20)

    def by(self, family: int = 4) -> int:
        """Number of the node that announces."""
        node, state = self.announcer.row(str(VIP[family]))
        assert state == "announced"
        return int(str(node)[1:])

    def announced(self, *families: int) -> None:
        self.wait(lambda: all(self.announcer.row(str(VIP[f]))[1] == "announced" for f in families or VIP))

    def frames(self, number: int, family: int = 4) -> list[bytes]:
        """What a switch was told to send about the address, in the order."""
        return [frame for asked, frame in self.fakes[number].asked if asked == VIP[family]]

    def told(self, number: int, family: int = 4) -> int:
        """How often it has announced the address."""
        own = self.fakes[number].mac
        return self.frames(number, family).count(neighbor_frames.announcement(own, VIP[family]))

    def probes(self, number: int, family: int = 4) -> int:
        return self.frames(number, family).count(neighbor_frames.probe(self.fakes[number].mac, VIP[family]))

    def answering(self, family: int = 4) -> set[str]:
        return {key.scope.name for key in self.compiler.units if key.feature == ANSWER and key.key == str(VIP[family])}


def test_who_waits_for_a_switch_does_not_keep_others_waiting(segment: Segment) -> None:
    segment.connect(1)
    segment.apply([Change(Kind.PORT, port_key("n1", "eth1"), None)])
    segment.compile()
    turns = 0

    def counted() -> float:
        nonlocal turns
        turns += 1
        assert turns < 100, "it never rests"
        return clock()

    segment.presence._now = counted
    thread = eventlet.spawn(segment.presence.run)
    eventlet.sleep(0.3)
    thread.kill()
    assert 0 < turns < 10


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment()
    yield made
    made.end()


def test_both_families_are_probed_and_announced_by_who_answers(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    for family in VIP:
        by = segment.by(family)
        segment.wait(lambda by=by, family=family: segment.told(by, family) == 3)  # type: ignore[misc]
        assert segment.probes(by, family) == 3
        assert segment.answering(family) == {f"n{by}"}
        assert all(not segment.frames(other, family) for other in (1, 2, 3) if other != by)


def test_nothing_is_probed_until_every_node_has_told_what_it_answers_for_or_is_known_to_be_away(
    segment: Segment,
) -> None:
    segment.connect(1, 2)
    segment.run(10)
    assert sum(segment.probes(number) for number in (1, 2, 3)) == 0
    segment.run(12)
    assert set(segment.compiler.facts.peek(Kind.DOWN)) == {"n3"}
    segment.announced()
    assert segment.by() in (1, 2)


def test_when_a_switch_is_lost_for_five_seconds_another_takes_over_without_a_probe(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.fakes[by].fake.unplug()
    segment.wait(lambda: segment.state(by) is None)
    segment.run(3)
    assert segment.by() == by
    segment.wait(lambda: segment.by() != by)
    heir = segment.by()
    segment.wait(lambda: segment.told(heir) == 3)
    assert segment.probes(heir) == 0
    assert segment.answering() == {f"n{heir}"}
    before = segment.told(by)
    segment.connect(by)
    segment.wait(lambda: segment.by() == by)
    segment.wait(lambda: segment.told(by) == before + 3)
    assert not segment.compiler.facts.peek(Kind.DOWN)


def test_a_switch_that_comes_back_within_five_seconds_moves_nothing(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.wait(lambda: segment.told(by) == 3)
    segment.fakes[by].fake.unplug()
    segment.wait(lambda: segment.state(by) is None)
    segment.run(2)
    segment.connect(by)
    segment.run(8)
    assert segment.by() == by
    assert segment.told(by) == 3
    assert not segment.compiler.facts.peek(Kind.DOWN)


def test_a_deleted_node_hands_over_at_once(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.apply([Change(Kind.NODE, f"n{by}", None)])
    segment.compile()
    heir = segment.by()
    assert heir != by
    assert segment.answering() == {f"n{heir}"}
    segment.wait(lambda: segment.told(heir) == 3)


def test_a_node_without_its_uplink_is_as_good_as_away(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.apply([Change(Kind.PORT, port_key(f"n{by}", "eth1"), None)])
    segment.wait(lambda: segment.announcer.row(str(VIP[4]))[0] not in (None, f"n{by}"))
    assert set(segment.compiler.facts.peek(Kind.DOWN)) == {f"n{by}"}


@pytest.mark.parametrize("family", [4, 6])
def test_an_address_that_a_station_has_is_a_problem_of_the_service(segment: Segment, family: int) -> None:
    segment.stations[VIP[family]] = [STRANGER]
    segment.connect(1, 2, 3)
    segment.wait(lambda: segment.announcer.row(str(VIP[family])) == (None, "conflict"))
    (problem,) = segment.announcer.problems()
    assert (problem.kind, problem.key) == (Kind.SERVICE, "default/web")
    assert "ee:00:00:00:00:66" in problem.reason
    segment.run(20)
    assert segment.answering(family) == set()
    segment.announced(10 - family)
    segment.stations.clear()
    segment.announced(family)
    assert segment.announcer.problems() == []


def test_metrics_count_addresses_by_state(segment: Segment) -> None:
    segment.stations[VIP[4]] = [STRANGER]
    segment.connect(1, 2, 3)
    segment.announced(6)
    segment.wait(lambda: segment.announcer.row(str(VIP[4]))[1] == "conflict")
    fabric = StubFabric()
    fabric.compiler = segment.compiler
    setattr(fabric, "announcer", segment.announcer)  # noqa: B010  (most tests' stub announces nothing)
    text = FabricCollector(fabric).text().decode()
    assert 'signalbox_announced_addresses{state="announced"} 1.0' in text
    assert 'signalbox_announced_addresses{state="conflict"} 1.0' in text


def test_a_later_claim_is_answered_and_reported_and_changes_nothing(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.wait(lambda: segment.told(by) == 3)
    segment.fakes[by].tell(announcement(VIP[4], STRANGER), WATCH)
    segment.wait(lambda: segment.told(by) == 4)
    assert segment.by() == by
    assert "claims" in segment.announcer.problems()[0].reason


def test_what_a_node_of_ours_says_is_no_claim(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by()
    segment.wait(lambda: segment.told(by) == 3)
    segment.fakes[by].tell(announcement(VIP[4], segment.fakes[by % 3 + 1].mac), WATCH)
    segment.run(2)
    assert segment.told(by) == 3
    assert segment.announcer.problems() == []


def test_a_station_that_would_like_to_have_the_address_is_told_that_it_is_ours(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    by = segment.by(6)
    segment.wait(lambda: segment.told(by, 6) == 3)
    segment.fakes[by].tell(neighbor_frames.probe(STRANGER, VIP[6]), ANSWER)
    segment.wait(lambda: segment.told(by, 6) == 4)


def test_a_new_controller_takes_over_what_switches_answer_for_and_writes_nothing(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    before = {family: segment.by(family) for family in VIP}
    segment.wait(lambda: all(segment.told(by, family) == 3 for family, by in before.items()))
    segment.end()
    written = {number: switch.fake.flow_mods for number, switch in segment.fakes.items()}
    for switch in segment.fakes.values():
        switch.asked.clear()
    second = Segment(segment.fakes)
    second.connect(3, 2, 1)
    second.announced()
    second.run(5)
    assert {family: second.by(family) for family in VIP} == before
    assert {number: switch.fake.flow_mods for number, switch in segment.fakes.items()} == written
    assert all(not second.frames(number, family) for number in (1, 2, 3) for family in VIP)
    second.end()


def test_after_a_restart_who_answered_goes_on_while_the_one_elected_is_still_away(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    first = segment.by()
    segment.fakes[first].fake.unplug()
    segment.wait(lambda: segment.by() != first)
    heir = segment.by()
    segment.end()
    second = Segment(segment.fakes)
    second.connect(*(number for number in (1, 2, 3) if number != first))
    second.announced(4)
    assert second.by() == heir
    written = segment.fakes[heir].fake.flow_mods
    second.run(22)
    assert set(second.compiler.facts.peek(Kind.DOWN)) == {f"n{first}"}
    assert second.by() == heir
    assert segment.fakes[heir].fake.flow_mods == written
    second.end()


def test_a_service_that_goes_takes_its_claim_along(segment: Segment) -> None:
    segment.connect(1, 2, 3)
    segment.announced()
    segment.apply([segment.service(VIP[6])])
    segment.wait(lambda: set(segment.compiler.facts.peek(Kind.CLAIM)) == {str(VIP[6])})
    assert segment.announcer.row(str(VIP[4])) == (None, "")
    before = segment.probes(1) + segment.probes(2) + segment.probes(3)
    segment.apply([segment.service()])
    segment.announced()
    assert segment.probes(1) + segment.probes(2) + segment.probes(3) == before + 3


def test_without_pools_nothing_is_said_about_anybody(segment: Segment) -> None:
    segment.apply([objects.operator()])
    segment.compile()
    segment.connect(1)
    segment.run(25)
    assert not segment.compiler.facts.peek(Kind.DOWN)
    assert not segment.compiler.facts.peek(Derived.ANNOUNCED)
    assert segment.frames(1) == []
