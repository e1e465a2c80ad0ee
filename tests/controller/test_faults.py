"""Whatever fails at whatever message, the switch ends with exactly what is wanted, or says what is in the way."""

import itertools
from collections.abc import Callable

import eventlet
import pytest
from msgspec.structs import replace

from controller.connection import Patience
from controller.fake import Fake, Fault
from controller.session import State
from tests.controller.world import (
    QUICK,
    World,
    endpoint,
    key,
    member,
    node,
    route,
    service,
    switch,
    until,
)

pytestmark = pytest.mark.usefixtures("own_time")

BEFORE = {
    key("service", "a"): service(1, (10, 11)),
    key("service", "b"): service(2, (11,)),
    key("endpoint", "10"): endpoint(10),
    key("endpoint", "11"): endpoint(11),
    key("route", "n2"): route("10.10.2.0"),
    key("route", "n3"): route("10.10.3.0"),
}
AFTER = {
    key("service", "a"): service(1, (11, 12)),
    key("service", "b"): None,
    key("service", "c"): service(3, (12,)),
    key("endpoint", "10"): None,
    key("endpoint", "12"): endpoint(12),
    key("route", "n2"): None,
    key("route", "other"): route("10.10.2.0", 80),  # the address moves
}
LAST = 40  # no scenario has more messages
ATONCE = 20


def _keep_connected(world: World, fake: Fake) -> None:
    while world.number < 100:
        world.switches.serve(fake.pair(), "fake")
        eventlet.sleep(0.005)


def _cold(fault: Fault, index: int) -> int:
    """The fault meets message `index` of a first connection. Returns how many messages there were."""
    world, fake = World(), switch()
    fake.late = 0.5  # later than the bundle's time-out
    world.start(BEFORE, 1)
    fake.arm({index: fault})
    return _end(world, fake, fault, eventlet.spawn(_keep_connected, world, fake))


def _warm(fault: Fault, index: int) -> int:
    """The fault meets message `index` of a change of everything."""
    world, fake = World(), switch()
    fake.late = 0.5
    world.start(BEFORE, 1)
    thread = eventlet.spawn(_keep_connected, world, fake)  # a busy machine may cost a switch its first connection
    world.settle(fake)
    fake.arm({index: fault})
    world.publish(AFTER)
    return _end(world, fake, fault, thread)


def _end(world: World, fake: Fake, fault: Fault, thread: eventlet.greenthread.GreenThread) -> int:
    until(lambda: world.ready(fake))
    seen = len(fake.received)
    eventlet.sleep(0.3)  # what comes late must not undo it
    until(lambda: world.ready(fake))
    if world.row(fake).exceptions:
        assert fault is Fault.REFUSE
        fake.links[0].close()  # the next read-back tries them again
        until(lambda: world.connected(fake) and not world.row(fake).exceptions and world.agrees(fake))
    assert world.agrees(fake)
    world.number = 100
    thread.kill()
    fake.unplug()
    return seen


def _refuse_table(table: int) -> Callable[[bytes], tuple[int, int] | None]:
    return lambda message: (2, 0) if message[1] == 14 and message[24] == table and message[25] == 0 else None


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("scenario", [_cold, _warm])
def test_b67_any_failure_at_any_message_ends_with_what_is_wanted(scenario, fault):
    pool = eventlet.GreenPool(ATONCE)
    counts = list(pool.imap(scenario, itertools.repeat(fault, LAST), range(LAST)))
    assert min(counts) > 5
    assert counts[-1] < LAST, "the last run met its fault, so there are more messages to try"


def test_b67_bundle_applied_after_our_timeout_is_found_by_reading_back():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.late = 0.4
    fake.arm(lambda index, message: Fault.LATE if message[1] == 33 and message[13] == 4 else None)
    world.publish(AFTER)
    world.gone(fake)  # its outcome is unknown: the connection goes
    until(lambda: world.agrees(fake))
    fake.arm({})
    world.connect(fake)
    assert world.row(fake).flow_mods_sent == 0
    assert world.agrees(fake)


def test_refused_unit_is_an_exception_and_the_others_proceed_at_once():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.tables.refuse = _refuse_table(42)
    world.publish(AFTER)
    world.settle(fake)
    row = world.row(fake)
    assert [unit for unit, _ in row.exceptions] == [key("endpoint", "12")]
    assert {flow.table for flow in fake.tables.flows} == {41, 42, 70}
    assert len(fake.tables.groups) == 2
    fake.tables.refuse = lambda message: None
    world.publish({key("route", "n9"): route("10.10.9.0")})
    world.settle(fake)
    assert len(world.row(fake).exceptions) == 1, "it did not change, so it is not tried"
    world.publish({key("endpoint", "12"): endpoint(13)})
    world.settle(fake)
    assert world.row(fake).exceptions == ()
    assert world.agrees(fake)


def test_refused_change_keeps_the_value_that_is_installed_through_audits_and_reconnects():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    before = dict(fake.tables.flows)
    fake.tables.refuse = _refuse_table(70)
    world.publish({key("route", "n2"): route("10.10.2.0", 80), key("route", "n3"): route("10.10.4.0")})
    world.settle(fake)
    assert len(world.row(fake).exceptions) == 2
    assert fake.tables.flows == before
    world.session(fake).audit()
    until(lambda: world.row(fake).audits == 1)
    assert fake.tables.flows == before
    assert world.row(fake).drift == {}
    world.unplug(fake)
    world.connect(fake)
    assert len(world.row(fake).exceptions) == 2
    assert fake.tables.flows == before
    fake.tables.refuse = lambda message: None
    world.unplug(fake)
    world.connect(fake)
    assert world.row(fake).exceptions == ()
    assert world.agrees(fake)


def test_errors_found_at_the_commit_are_pinned_to_their_units():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    bad = {key("endpoint", str(number)): endpoint(number) for number in range(100, 140, 4)}
    good = {key("route", str(number)): route(f"10.11.{number}.0") for number in range(60)}
    fake.tables.refuse_at_commit = _refuse_table(42)
    world.publish({**good, **bad})
    world.settle(fake)
    assert {unit for unit, _ in world.row(fake).exceptions} == set(bad)
    assert len(fake.tables.flows) == 6 + 60
    assert fake.commits < 60


def test_unit_whose_deletion_is_refused_is_an_exception():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.tables.refuse = lambda message: (5, 0) if message[1] == 14 and message[25] == 4 else None
    world.publish({key("route", "n2"): None, key("route", "n8"): route("10.10.8.0")})
    world.settle(fake)
    assert [unit for unit, _ in world.row(fake).exceptions] == [key("route", "n2")]
    assert len(fake.tables.flows) == 7


def test_switch_that_does_not_read_delays_no_other():
    world = World()
    slow, quick = switch(1), switch(2)
    world.start(BEFORE, 1, 2)
    world.connect(slow)
    world.connect(quick)
    slow.arm({0: Fault.STALL})
    for number in range(10):
        world.publish({key("route", "n2"): route(f"10.12.{number}.0")})
        with eventlet.Timeout(0.1):
            world.settle(quick)
    world.gone(slow)  # given up after the bundle's time-out
    assert world.agrees(quick)


def test_switches_that_stop_while_they_are_read_back_delay_no_other():
    world = World(replace(QUICK, patience=Patience(reply_timeout=60), readings=2))
    stuck = [switch(dpid) for dpid in (1, 2, 3)]
    world.start(BEFORE, 1, 2, 3, 4)
    for fake in stuck:
        fake.arm(lambda index, message: Fault.STALL if message[1] == 18 and message[9] == 1 else None)
        world.plug(fake)
        world.await_state(fake, State.READING)
    world.connect(switch(4))
    assert [row.state for row in world.switches.sessions()] == [State.READING] * 3 + [State.READY]


def test_session_that_is_too_far_behind_starts_again_from_a_read_back():
    world, fake = World(log_steps=3), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.late = 0.1
    fake.arm(lambda index, message: Fault.LATE if index < 9 and message[1] == 33 and message[13] == 4 else None)
    world.publish({key("route", "n2"): route("10.10.2.0", 80)})
    eventlet.sleep(0.02)  # busy with one round …
    for number in range(8):  # … while more happens than the log holds
        world.publish({key("route", str(number)): route(f"10.13.{number}.0")})
    world.settle(fake)
    assert 18 in fake.received
    assert world.agrees(fake)


def test_large_first_sync_is_cut_with_classify_last():
    world, fake = World(replace(QUICK, bundle_messages=4)), switch()
    world.start(BEFORE, 1)
    order = []
    fake.arm(lambda index, message: order.append(message[40]) if message[1:2] == b"\x22" else None)
    world.connect(fake)
    assert world.agrees(fake)
    assert fake.commits > 1
    flows = order[2:]  # behind two groups
    assert flows == sorted(flows, reverse=True)


def test_switch_of_another_version_is_refused_with_what_to_do(caplog):
    world, fake = World(), Fake(1, version=4)
    world.start(BEFORE, 1)
    world.plug(fake)
    until(lambda: world.switches.refused["handshake"] == 1)
    assert "speaks OpenFlow 1.3" in caplog.text
    assert "protocols=OpenFlow15" in caplog.text


def test_bytes_that_are_no_openflow_close_only_their_connection():
    from eventlet.green import socket

    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    for noise in (
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x06\x00\x00\x00" * 9,
        bytes(64),
        b"\x06\x00\x00\x10\x00\x00\x00\x01" + b"\xff" * 8,
    ):
        ours, theirs = socket.socketpair()
        from controller.connection import PlainStream

        eventlet.spawn_n(world.switches.serve, PlainStream(ours), "noise")
        theirs.sendall(noise)
    until(lambda: world.switches.refused["handshake"] == 4)
    world.publish(AFTER)
    world.settle(fake)
    assert world.agrees(fake)


def test_silent_switch_is_closed_after_unanswered_echo_requests():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    eventlet.sleep(0.6)
    assert world.connected(fake), "an idle one that answers stays"
    fake.links[0].deaf = True
    world.gone(fake)


def test_b75_second_connection_is_refused_while_the_first_answers():
    world, first, second = World(), switch(1), switch(1)
    world.start(BEFORE, 1)
    world.connect(first)
    world.plug(second)
    until(lambda: world.switches.refused["duplicate datapath id"] == 1)
    assert second.flow_mods == 0
    world.publish(AFTER)
    world.settle(first)
    assert world.agrees(first)


def test_b75_dead_connection_is_replaced_and_its_late_end_removes_nothing():
    world, fake = World(), switch(1)
    world.start(BEFORE, 1)
    world.connect(fake)
    old = world.session(fake)
    fake.links[0].deaf = True  # cut off, and nobody has noticed
    world.plug(fake)
    until(lambda: world.ready(fake) and world.session(fake) is not old)
    assert old.state is State.CLOSED
    assert old.connection.ended == "replaced by a newer connection"
    eventlet.sleep(0.05)
    world.publish(AFTER)
    world.settle(fake)
    assert world.agrees(fake)


def test_b75_pending_round_fails_at_once_when_its_connection_ends():
    world, fake = World(replace(QUICK, bundle_timeout=60)), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.arm(lambda index, message: Fault.IGNORE)
    world.publish(AFTER)
    eventlet.sleep(0.02)
    fake.links[0].close()
    with eventlet.Timeout(0.2):
        world.gone(fake)
    fake.arm({})
    world.connect(fake)
    assert world.agrees(fake)


def test_b76_lost_master_stops_writing_and_does_not_fight():
    world, rival, fake = World(), World(), switch()
    for each in (world, rival):
        each.start(BEFORE, 1)
    world.connect(fake)
    rival.connect(fake)
    world.await_state(fake, State.SLAVE)
    generation, arrived = fake.generation, fake.flow_mods
    world.publish(AFTER)
    eventlet.sleep(0.1)
    assert (fake.generation, fake.flow_mods) == (generation, arrived)
    assert world.row(fake).role == "SLAVE"
    assert rival.agrees(fake)
    world.session(fake).claim()
    world.await_state(fake)
    rival.await_state(fake, State.SLAVE)
    assert world.agrees(fake)


def test_b76_refusal_for_a_slave_is_taken_for_a_lost_role():
    world, fake = World(), switch()
    world.start(BEFORE, 1)
    world.connect(fake)
    fake.links[0].role = 3  # the status message was lost
    world.publish(AFTER)
    world.await_state(fake, State.SLAVE)


def test_membership_that_changes_back_and_forth_converges():
    world, fake = World(), switch()
    world.start({**BEFORE, key("route", "own", node("n2")): route("10.10.7.0")}, 1)
    world.connect(fake)
    for name in ("n2", "n1", "n2"):
        world.publish(members={1: member(name)})
    until(lambda: world.row(fake).node == "n2" and world.row(fake).revision == world.number)
    world.settle(fake)
    assert world.agrees(fake)
