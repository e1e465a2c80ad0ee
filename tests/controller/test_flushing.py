"""Connections that no unit allows any more are flushed, and no others."""

import eventlet
import pytest
from msgspec.structs import replace

from pipelines.actions import Goto
from pipelines.addresses import parse_ip
from pipelines.flow import Flow
from pipelines.unit import Unit
from tests.controller.world import QUICK, World, key, service, switch, until

pytestmark = pytest.mark.usefixtures("own_time")


def test_connections_that_are_no_longer_allowed_are_flushed_repeatedly_and_once_more():
    world, fake = World(), switch()
    web, dns = key("service", "web"), key("service", "dns")
    world.start({web: service(1, (10, 11), flushed=True), dns: service(2, (10,), flushed=True)}, 1)
    world.connect(fake)
    assert fake.flushed == []
    world.publish({web: service(1, (11,), flushed=True)})
    world.settle(fake)
    until(lambda: len(fake.flushed) == 6)
    assert len(set(fake.flushed)) == 1
    body = fake.flushed[0]
    assert parse_ip("10.96.0.1").value.to_bytes(4, "big") in body
    assert parse_ip("10.10.0.10").value.to_bytes(4, "big") in body
    world.publish({dns: None, key("service", "same"): service(2, (10,), flushed=True)})
    world.settle(fake)
    eventlet.sleep(0.1)
    assert len(fake.flushed) == 6, "another unit allows it still"


@pytest.mark.parametrize("between", [(), (10, 11), (10,), (13,)])
@pytest.mark.parametrize("at_first", [(), (12,)])
def test_second_flush_leaves_alone_what_is_allowed_again_by_then(at_first, between):
    """What began anew in that second must not be broken; what was under way to the old endpoints must not stay."""
    world, fake = World(replace(QUICK, flush_again=(1,))), switch()
    web = key("service", "web")
    world.start({web: service(1, (10, 11, *at_first), flushed=True)}, 1)
    world.connect(fake)
    world.publish({web: service(1, at_first, flushed=True) if at_first else None})
    world.settle(fake)
    until(lambda: len(fake.flushed) == (6 if at_first else 3))
    fake.flushed.clear()
    kept = {*at_first, *between}
    world.publish({web: service(1, kept, flushed=True) if kept else None})
    world.settle(fake)
    eventlet.sleep(2)
    if kept:
        named = {n for n in range(9, 14) for body in fake.flushed if parse_ip(f"10.10.0.{n}").value.to_bytes(4) in body}
        assert named == {10, 11} - kept
    else:
        assert len(set(fake.flushed)) == 1
        assert parse_ip("10.96.0.1").value.to_bytes(4) in fake.flushed[0]


def test_what_is_known_by_name_is_flushed_a_third_time():
    world, fake = World(replace(QUICK, flush_again=(0.1, 0.3))), switch()
    web = key("service", "web")
    world.start({web: service(1, (10, 11), flushed=True)}, 1)
    world.connect(fake)
    world.publish({web: service(1, (10,), flushed=True)})
    world.settle(fake)
    until(lambda: len(fake.flushed) == 9)
    eventlet.sleep(0.5)
    assert len(fake.flushed) == 9
    assert len(set(fake.flushed)) == 1


def test_service_that_is_gone_is_flushed_as_a_whole():
    world, fake = World(), switch()
    web = key("service", "web")
    world.start({web: service(1, range(10, 60), flushed=True)}, 1)
    world.connect(fake)
    world.publish({web: None})
    world.settle(fake)
    until(lambda: len(fake.flushed) == 6)
    assert parse_ip("10.96.0.1").value.to_bytes(4, "big") in fake.flushed[0]
    assert parse_ip("10.10.0.10").value.to_bytes(4, "big") not in fake.flushed[0]


def _apart(unit):
    """As the pipelines say it: the frontend, which knows what is allowed, and its group are two units."""
    return {
        key("service", "front"): Unit(unit.flows, (), unit.allowed) if unit else None,
        key("route", "group"): Unit((), unit.groups) if unit and unit.groups else None,
    }


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("left", ["another", "none", "no service"])
def test_b49_what_changed_while_away_is_flushed_by_frontend(left, whole):
    """Also when the last endpoint went (the flow refuses now) and when the service is gone."""
    world, fake = World(), switch()

    def units(unit):
        return {key("service", "web"): unit} if whole else _apart(unit)

    front = service(1, (10, 11), flushed=True)
    refusing = Unit((Flow(41, 200, front.flows[0].match, (Goto(70),)),))
    world.start(units(front) | {key("service", "same"): service(2, (10, 11), flushed=True)}, 1)
    world.connect(fake)
    world.unplug(fake)
    world.publish(units({"another": service(1, (11,), flushed=True), "none": refusing, "no service": None}[left]))
    world.connect(fake)
    until(lambda: len(fake.flushed) == 6)
    assert len(set(fake.flushed)) == 1
    assert parse_ip("10.96.0.1").value.to_bytes(4, "big") in fake.flushed[0]
    assert b"\x10\x0a" not in fake.flushed[0], "no endpoint is named"
    eventlet.sleep(0.1)
    assert len(fake.flushed) == 6


def test_service_whose_removal_is_held_is_not_flushed_until_it_goes():
    world, fake = World(), switch()
    services = {key("service", str(n)): service(n, (10,), flushed=True) for n in range(1, 41)}
    world.start(services, 1)
    world.connect(fake)
    world.unplug(fake)
    world.publish(dict.fromkeys(list(services)[1:]))
    world.connect(fake)
    assert world.row(fake).held_removals == 78
    assert fake.flushed == []
    world.switches.confirm()
    until(lambda: len(fake.flushed) == 39 * 6)
