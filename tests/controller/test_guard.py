"""Removals that look like an accident are held back, until they are sure to be meant."""

import eventlet
import pytest

from tests.controller.world import NUMBERS, Units, World, endpoint, key, route, service, switch, until

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


def routes(net: int, numbers: range) -> Units:
    return {key("route", str(number)): route(f"10.{net}.{number}.0") for number in numbers}


def test_what_a_new_version_says_otherwise_takes_the_place_of_the_old_at_once():
    """All flows differ, no object is gone: old ones beside new ones would send packets wrong ways."""
    world, fake = World(), switch()
    world.start(routes(14, range(100)), 1)
    world.connect(fake)
    world.unplug(fake)
    world.publish(routes(15, range(100)))
    world.connect(fake)
    assert world.agrees(fake)
    assert world.row(fake).held_removals == 0


def test_beside_what_is_replaced_what_is_lost_is_held():
    world, fake = World(), switch()
    world.start(routes(14, range(100)), 1)
    world.connect(fake)
    world.unplug(fake)
    world.publish({**routes(15, range(40)), **dict.fromkeys(routes(14, range(40, 100)))})
    world.connect(fake)
    assert world.row(fake).held_removals == 60
    assert len(fake.tables.flows) == 100
    until(lambda: world.row(fake).held_removals == 0 and world.agrees(fake))
    assert len(fake.tables.flows) == 40


def test_flows_of_a_feature_that_there_is_no_more_are_not_held():
    world, fake = World(), switch()
    world.start({**routes(14, range(100)), **UNITS}, 1)
    world.connect(fake)
    world.unplug(fake)
    route_of = NUMBERS["route"] << 49
    for at, flow in list(fake.tables.flows.items()):
        if flow.cookie & 0x7F << 49 == route_of:
            fake.tables.flows[at] = flow._replace(cookie=flow.cookie | 0x7F << 49)
    world.publish(dict.fromkeys(routes(14, range(100))))
    world.connect(fake)
    assert world.agrees(fake)
    assert world.row(fake).held_removals == 0
