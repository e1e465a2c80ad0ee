"""Many switches, and loud ones, on one hub."""

from collections import deque
from time import process_time

import eventlet
import pytest

from tests.controller.test_session import _packet_in
from tests.controller.world import World, key, route, switch

pytestmark = pytest.mark.usefixtures("own_time")


def test_flood_of_packet_ins_of_one_switch_holds_neither_the_hub_nor_another():
    world, loud, quiet = World(), switch(1), switch(2)
    world.start({key("route", "n2"): route("10.10.2.0")}, 1, 2)
    world.connect(loud)
    world.connect(quiet)
    stop = False
    gaps: deque[float] = deque()

    def flood():
        burst = b"".join(b"\x06\x0a" + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body for _ in range(200))
        while not stop:
            loud.links[0]._stream.sendall(burst)
            eventlet.sleep(0)

    def watch():
        while not stop:
            began = process_time()
            eventlet.sleep(0)
            gaps.append(process_time() - began)

    body = _packet_in(0x5B06000000000000)
    threads = eventlet.spawn(flood), eventlet.spawn(watch)
    for number in range(5):
        world.publish({key("route", "n2"): route(f"10.10.{number}.0")})
        with eventlet.Timeout(1):
            world.settle(quiet)
    with eventlet.Timeout(1):
        world.settle(loud)
    stop = True
    for thread in threads:
        thread.wait()
    assert world.agrees(quiet)
    assert world.agrees(loud)
    assert max(gaps) < 0.1


def test_fifty_switches_are_fed_from_units_encoded_once():
    world = World()
    fakes = [switch(dpid) for dpid in range(1, 51)]
    world.start({key("route", str(n)): route(f"10.9.{n}.0") for n in range(200)}, *range(1, 51))
    for fake in fakes:
        world.plug(fake)
    for fake in fakes:
        world.await_state(fake)
    assert all(world.agrees(fake) for fake in fakes)
    assert world.fleet.encoded_flows == 200
    assert sum(row.flow_mods_sent for row in world.switches.sessions()) == 50 * 200
