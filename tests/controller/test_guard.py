"""Removals that look like an accident are held back, until they are sure to be meant."""

import eventlet
import pytest

from tests.controller.world import World, endpoint, key, route, service, switch, until

pytestmark = pytest.mark.usefixtures("own_time")

UNITS = {
    key("service", "a"): service(1, (10, 11)),
    key("endpoint", "10"): endpoint(10),
    key("endpoint", "11"): endpoint(11),
    key("route", "n2"): route("10.10.2.0"),
}


@pytest.mark.parametrize("agree", ["second look", "confirm"])
def test_b76_first_sync_that_would_remove_much_adds_and_holds(agree):
    world, fake = World(), switch()
    many = {key("route", str(number)): route(f"10.14.{number}.0") for number in range(100)}
    world.start(many, 1)
    world.connect(fake)
    world.unplug(fake)
    in_sync = False
    world.fleet.in_sync = lambda: in_sync
    world.publish({**dict.fromkeys(many), key("route", "n2"): route("10.10.2.0")})
    world.connect(fake)
    assert len(fake.tables.flows) == 101
    assert world.row(fake).held_removals == 100
    eventlet.sleep(0.5)
    assert len(fake.tables.flows) == 101, "a source that is not in sync proves nothing"
    if agree == "confirm":
        assert world.switches.confirm(1) == 100
    else:
        in_sync = True
    until(lambda: world.row(fake).held_removals == 0 and world.agrees(fake))
    assert len(fake.tables.flows) == 1


def test_b76_source_that_misses_objects_removes_not_even_a_single_flow():
    world, fake = World(), switch()
    world.start(UNITS, 1)
    world.connect(fake)
    before = dict(fake.tables.flows)
    world.unplug(fake)
    in_sync = False
    world.fleet.in_sync = lambda: in_sync
    world.publish({next(iter(UNITS)): None})
    world.connect(fake)
    eventlet.sleep(0.5)
    assert fake.tables.flows.keys() == before.keys()
    assert world.row(fake).held_removals > 0
    in_sync = True
    until(lambda: world.row(fake).held_removals == 0 and world.agrees(fake))


def test_guard_lets_go_when_the_removals_are_wanted_again():
    world, fake = World(), switch()
    many = {key("route", str(number)): route(f"10.14.{number}.0") for number in range(100)}
    world.start(many, 1)
    world.connect(fake)
    world.unplug(fake)
    world.fleet.in_sync = lambda: False
    world.publish(dict.fromkeys(many))
    world.connect(fake)
    assert world.row(fake).held_removals == 100
    world.publish(many)
    until(lambda: world.row(fake).held_removals == 0)
    assert world.agrees(fake)
