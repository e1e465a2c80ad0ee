"""What a switch tells to have forgotten of a long affinity comes back, or not: a fake switch, the real features."""

import struct

import eventlet
import pytest

from apps.affinity import LongAffinity
from controller import renewal
from controller.fake import FLOW_REMOVED
from controller.fake_tables import FakeFlow, FlowId
from controller.instructions import instructions
from controller.oxm import match_fields
from controller.readback import FlowRemoved, flow_removed
from controller.session import Hooks, State
from pipelines import fields as f
from pipelines.actions import load
from pipelines.addresses import parse_ip
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.features import NUMBERS
from pipelines.features.affinity import LEARNED_AT, PUT_BACK_AT, kept
from pipelines.flow import match
from pipelines.model import Change
from pipelines.tables import AFFINITY
from tests.controller.world import QUICK, World, member, switch, until
from tests.pipelines.objects import gone, service, slice_, small_cluster

pytestmark = pytest.mark.usefixtures("own_time")

PORT, BACK = ("http", "TCP", 80), ("http", "TCP", 8080)
ADDRESS, END, OTHER = parse_ip("10.96.0.77"), parse_ip("10.10.1.10"), parse_ip("10.10.2.10")
DAY, LONGEST = 86_400, 65_535
IDLE, DELETED = 0, 2  # reasons
CHOICE = load(f.CHOSEN, 1), load(f.ENDPOINT4, 8080 << 32 | END.value)
DOES = instructions(CHOICE)


def sticky(seconds: int = DAY) -> Change:
    return service("sticky", [str(ADDRESS)], PORT, affinity=seconds)


def ends(*addresses: object) -> Change:
    return slice_("s-4", "sticky", [str(address) for address in addresses], BACK)


class Kept(World):
    """A switch that carries the flows of a cluster with a service that has affinity."""

    def __init__(self, seconds: int = DAY) -> None:
        self.compiler = Compiler()
        self.affinity = LongAffinity(self.compiler.facts)
        super().__init__(QUICK, Hooks(unused=self.affinity))
        self.fake = switch()
        self.change(*small_cluster(), sticky(seconds), ends(END, OTHER), members=True)
        self.fleet.declare_ready()
        self.connect(self.fake)

    def change(self, *changes: Change, members: bool = False) -> None:
        revision = self.compiler.run(changes)
        revision = revision._replace(members={self.fake.dpid: member("n1")} if members else {})
        self.fleet.publish(revision, NUMBERS)
        self.number = revision.number
        self.affinity.follow(revision)

    @property
    def cookie(self) -> int:
        """Of what is learned for END."""
        known = kept(self.compiler.facts.peek(Derived.SERVICE_PORT)["default/sticky http TCP 4"])
        return next(cookie for cookie, actions in known.items() if actions == CHOICE)


def choice(client: int, priority: int = LEARNED_AT) -> FlowId:
    """What is known of a client."""
    conditions = match(f.IP4, f.IP_PROTO.eq(f.TCP), f.IP4_SRC.eq(client), f.IP4_DST.eq(ADDRESS.value), f.TCP_DST.eq(80))
    encoded = match_fields(conditions)
    return FlowId(AFFINITY.id, priority, struct.pack("!HH", 1, 4 + len(encoded)) + encoded)


def removed(
    cookie: int, client: int, *, reason: int = IDLE, idle: int = LONGEST, priority: int = LEARNED_AT, packets: int = 0
) -> bytes:
    """The body of the message, as Open vSwitch 3.1 was seen to write it."""
    where = choice(client, priority).match
    head = struct.pack("!BBHHHQ", AFFINITY.id, reason, priority, idle, 0, cookie)
    statistics = struct.pack("!HHIIIIQIQ", 0, 40, 0x80020008, 65_535, 0, 0x80020808, packets, 0x80020A08, 60 * packets)
    return head + where + bytes(-len(where) % 8) + statistics


def put_back(world: Kept, client: int) -> FakeFlow | None:
    return world.fake.tables.flows.get(choice(client, PUT_BACK_AT))


def test_a_choice_that_was_forgotten_too_early_comes_back_for_the_rest() -> None:
    world = Kept()
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 1))
    until(lambda: put_back(world, 1))
    assert put_back(world, 1) == FakeFlow(world.cookie, DAY - LONGEST, 0, 1, 0, DOES), "with SEND_FLOW_REM"
    assert world.session(world.fake).renewals.written == 1


def test_one_that_was_put_back_goes_on_only_if_it_was_used() -> None:
    world = Kept()
    late = {"idle": DAY - LONGEST, "priority": PUT_BACK_AT}
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 1, packets=0, **late))
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 2, packets=1, **late))
    until(lambda: put_back(world, 2))
    assert put_back(world, 1) is None
    assert put_back(world, 2) == FakeFlow(world.cookie, LONGEST, 0, 1, 0, DOES)


def choices(world: Kept) -> int:
    """How many have come back."""
    return sum((key.table, key.priority) == (AFFINITY.id, PUT_BACK_AT) for key in world.fake.tables.flows)


def nothing_comes_of(world: Kept, *bodies: bytes) -> None:
    """Nor is the connection lost."""
    sent = world.fake.flow_mods
    for body in bodies:
        world.fake.say(FLOW_REMOVED, body)
    eventlet.sleep(0.5)
    assert world.row(world.fake).state is State.READY
    assert world.fake.flow_mods == sent
    assert not choices(world)
    assert world.session(world.fake).renewals.failed == 0


def test_what_was_deleted_and_what_is_nobodys_does_not_come_back() -> None:
    world = Kept()
    nothing_comes_of(
        world,
        removed(world.cookie, 1, reason=DELETED),
        removed(world.cookie + 1, 1),
        removed(0xB007, 1),
        removed(world.cookie, 1, idle=DAY - LONGEST, priority=PUT_BACK_AT),
    )


@pytest.mark.parametrize(
    "changes",
    [[gone(sticky())], [ends(OTHER)], [sticky(0)], [sticky(3600)], [sticky(LONGEST)]],
    ids=["the service is gone", "its endpoint", "its affinity", "shorter", "as long as a flow may live"],
)
def test_what_has_changed_meanwhile_does_not_come_back(changes: list[Change]) -> None:
    world = Kept()
    cookie = world.cookie
    world.change(*changes)
    world.settle(world.fake)
    nothing_comes_of(world, removed(cookie, 1))


def test_what_changes_in_the_same_moment_takes_along_what_was_put_back() -> None:
    """Whichever comes first: rounds and what is put back are written by one thread."""
    for first in ("change", "removal"):
        world = Kept()
        body = removed(world.cookie, 1)
        if first == "change":
            world.change(ends(OTHER))
        world.fake.say(FLOW_REMOVED, body)
        if first == "removal":
            eventlet.sleep(0)
            world.change(ends(OTHER))
        world.settle(world.fake)
        eventlet.sleep(0.5)
        assert put_back(world, 1) is None, first


def test_the_other_endpoints_choices_stay_when_one_goes() -> None:
    world = Kept()
    cookie = world.cookie
    world.change(ends(END))
    world.settle(world.fake)
    world.fake.say(FLOW_REMOVED, removed(cookie, 1))
    until(lambda: put_back(world, 1))


def test_what_was_learned_anew_meanwhile_is_neither_replaced_nor_shortened() -> None:
    world = Kept()
    anew = FakeFlow(world.cookie, LONGEST, 0, 1, 0, b"")
    world.fake.tables.flows[choice(1)] = anew
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 1))
    until(lambda: put_back(world, 1))
    assert world.fake.tables.flows[choice(1)] == anew
    assert choice(1).priority > choice(1, PUT_BACK_AT).priority


def test_a_longer_time_since_then_counts() -> None:
    world = Kept(70_000)
    cookie = world.cookie
    world.change(sticky(DAY))  # no flow of the switch changes
    world.fake.say(FLOW_REMOVED, removed(cookie, 1))
    until(lambda: put_back(world, 1))
    flow = put_back(world, 1)
    assert flow is not None
    assert flow.idle_timeout == DAY - LONGEST


def test_a_slave_puts_nothing_back_nor_later_as_master_what_it_heard_before() -> None:
    world = Kept()
    cookie = world.cookie
    world.session(world.fake).renewals.push(flow_removed(bytes(8) + removed(cookie, 1)))
    world.session(world.fake).lose_master("another one")
    world.await_state(world.fake, State.SLAVE)
    sent = world.fake.flow_mods
    world.fake.say(FLOW_REMOVED, removed(cookie, 2))
    eventlet.sleep(0.5)
    assert world.fake.flow_mods == sent
    world.session(world.fake).claim()
    world.await_state(world.fake)
    eventlet.sleep(0.5)
    assert choices(world) == 0


def test_ten_thousand_at_once_come_back_in_bundles_and_stay_when_another_endpoint_goes() -> None:
    world = Kept()
    commits, cookie = world.fake.commits, world.cookie
    for client in range(10_000):
        world.fake.say(FLOW_REMOVED, removed(cookie, client))
        if client % 500 == 0:
            eventlet.sleep(0)
    until(lambda: put_back(world, 9_999), 60)
    assert choices(world) == 10_000
    assert world.fake.commits - commits >= 10_000 // renewal.BATCH
    world.change(ends(END))
    world.settle(world.fake)
    assert choices(world) == 10_000


def test_more_than_can_wait_are_counted_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "MOST", 10)
    world = Kept()
    cookie = world.cookie
    for client in range(50):
        world.session(world.fake).renewals.push(flow_removed(bytes(8) + removed(cookie, client)))
    until(lambda: put_back(world, 9))
    renewals = world.session(world.fake).renewals
    assert (renewals.written, renewals.dropped) == (10, 40)


def test_a_switch_that_refuses_them_stays_served() -> None:
    world = Kept()
    world.fake.tables.refuse = lambda message: (5, 1) if message[1] == 14 and message[24] == AFFINITY.id else None
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 1))
    until(lambda: world.session(world.fake).renewals.failed)
    assert world.row(world.fake).state is State.READY
    assert put_back(world, 1) is None


def test_a_choice_that_was_put_back_is_no_drift() -> None:
    world = Kept()
    world.fake.say(FLOW_REMOVED, removed(world.cookie, 1))
    until(lambda: put_back(world, 1))
    world.session(world.fake).audit()
    until(lambda: world.row(world.fake).audits)
    assert world.row(world.fake).drift == {}
    world.unplug(world.fake)
    world.connect(world.fake)
    assert put_back(world, 1) is not None


def test_a_fault_in_the_answer_costs_no_connection() -> None:
    def fault(removed: FlowRemoved) -> None:
        raise KeyError(removed.cookie)

    fake, world = switch(), World(QUICK, Hooks(unused=fault))
    world.start({}, 1)
    world.connect(fake)
    fake.say(FLOW_REMOVED, removed(0x5B6F000000000001, 1))
    until(lambda: world.session(fake).renewals.failed)
    assert world.row(fake).state is State.READY
