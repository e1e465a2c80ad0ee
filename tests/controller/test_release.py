"""A switch that nobody names any more is cleared on order, and only then."""

import eventlet
import pytest

from controller.fake import Fake, Fault
from controller.fake_tables import FakeFlow, FakeGroup, FlowId
from controller.release import NotReleased, Released
from controller.session import State
from pipelines.ids import LEARNED, OWN_COOKIE
from tests.controller.world import QUICK, World, key, member, service, switch, until

UNITS = {key("service", f"default/s{number}"): service(number, (10, 11)) for number in (1, 2)}
BUNDLE, COMMIT = 33, 4

FOREIGN = FlowId(0, 7, b"\0\1\0\4")
FOREIGN_GROUP = 5


def abandoned(world: World) -> Fake:
    """A switch with two services, a learned flow, and a flow and a group of somebody else; its Node is gone."""
    fake = switch()
    world.start(UNITS, 1)
    world.connect(fake)
    some = next(iter(fake.tables.flows.values()))
    fake.tables.flows[FOREIGN] = some._replace(cookie=0xB007, instructions=b"")
    fake.tables.flows[FOREIGN._replace(table=75)] = FakeFlow(OWN_COOKIE | LEARNED, 60, 0, 0, 0, b"")
    fake.tables.groups[FOREIGN_GROUP] = FakeGroup(1, b"", b"")
    world.publish(members={1: None})
    world.await_state(fake, State.UNCLAIMED)
    return fake


def test_release_takes_all_that_is_ours_and_nothing_else():
    world = World()
    fake = abandoned(world)
    assert world.switches.releasable(1) == Released(flows=2, groups=2)
    assert len(fake.tables.flows) == 4
    assert world.switches.release(1) == Released(flows=2, groups=2)
    assert list(fake.tables.flows) == [FOREIGN]
    assert list(fake.tables.groups) == [FOREIGN_GROUP]
    assert world.row(fake).state is State.UNCLAIMED
    assert world.switches.release(1) == Released(flows=0, groups=0), "once more does no harm"


def test_an_unclaimed_switch_keeps_its_flows_until_it_is_released():
    world = World()
    fake = abandoned(world)
    world.publish({key("service", "default/s1"): None})
    eventlet.sleep(0.1)
    assert len(fake.tables.flows) == 4


def test_a_switch_that_a_node_names_is_not_released():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    for ask in (world.switches.releasable, world.switches.release):
        with pytest.raises(NotReleased, match="Node n1 names it"):
            ask(1)
    assert world.agrees(fake)


def test_a_released_switch_is_written_again_when_a_node_names_it():
    world = World()
    fake = abandoned(world)
    world.switches.release(1)
    world.publish(members={1: member("n1")})
    world.await_state(fake)
    assert world.row(fake).flows == 2
    assert len(fake.tables.flows) == 3


def test_nothing_is_released_while_the_controller_only_looks_on():
    world, fake = World(), switch()
    world.start(UNITS)
    world.connect(fake, State.UNCLAIMED)
    world.switches.settings = type(QUICK)(observe_all=True)
    with pytest.raises(NotReleased, match="mode is observe"):
        world.switches.release(1)


def test_an_unknown_switch_cannot_be_released():
    with pytest.raises(KeyError):
        World().switches.release(9)


def test_a_release_that_the_switch_refuses_says_so_and_deletes_nothing():
    world = World()
    fake = abandoned(world)
    fake.tables.refuse = lambda message: (5, 0)
    with pytest.raises(NotReleased, match="refused"):
        world.switches.release(1)
    assert len(fake.tables.flows) == 4


def test_a_release_whose_outcome_is_lost_says_so_and_the_connection_goes():
    world = World()
    fake = abandoned(world)
    fake.arm(lambda _, message: Fault.SILENT if message[1] == BUNDLE and message[13] == COMMIT else None)
    with pytest.raises(NotReleased, match="not known"):
        world.switches.release(1)
    world.gone(fake)


def test_a_release_that_ends_with_the_connection_says_so():
    world = World()
    fake = abandoned(world)
    fake.arm({0: Fault.CLOSE})
    with pytest.raises(NotReleased):
        world.switches.release(1)
    until(lambda: not world.connected(fake))
