"""Changes, faults and lost connections in any order: the end is what is wanted last."""

import eventlet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.fake import Fault
from tests.controller.world import SEGMENT, World, endpoint, key, member, route, service, switch, until

pytestmark = pytest.mark.usefixtures("own_time")

NAMES = st.sampled_from(("a", "b", "c"))


def _unit(feature: str, name: str, choice: int):
    number = "abc".index(name) + 1
    if not choice:
        return None
    if feature == "service":
        return service(number, range(10, 10 + choice), flushed=True)
    if feature == "endpoint":
        return endpoint(number * 10 + choice)
    return route(f"10.10.{number}.0", 70 + choice)


CHANGES = st.dictionaries(
    st.tuples(st.sampled_from(("service", "endpoint", "route")), NAMES), st.integers(0, 3), min_size=1, max_size=4
)
FAULTS = st.tuples(st.sampled_from([fault for fault in Fault if fault is not Fault.REFUSE]), st.integers(0, 12))
STEPS = st.lists(
    st.one_of(
        CHANGES,
        FAULTS,
        st.sampled_from(("wait", "unplug", "join", "leave", "wipe", "audit")),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_any_order_of_changes_and_faults_ends_with_what_is_wanted(steps):
    world, fake = World(log_steps=4), switch()
    fake.late = 0.4
    world.start({key("route", "p", SEGMENT): route("10.20.0.0"), key("service", "a"): service(1, (10,))}, 1)
    running = True

    def keep_connected():
        while running:
            world.switches.serve(fake.pair(), "fake")
            eventlet.sleep(0.005)

    thread = eventlet.spawn(keep_connected)
    for step in steps:
        if isinstance(step, dict):
            world.publish(
                {key(feature, name): _unit(feature, name, choice) for (feature, name), choice in step.items()}
            )
        elif isinstance(step, tuple):
            fake.arm({step[1]: step[0]})
        elif step == "wait":
            eventlet.sleep(0.03)
        elif step == "unplug":
            fake.unplug()
        elif step == "wipe":
            fake.tables.flows, fake.tables.groups = {}, {}
            fake.unplug()
        elif step == "audit":
            if world.connected(fake):
                world.session(fake).audit()
        else:
            world.publish(members={1: member("n1", SEGMENT) if step == "join" else member("n1")})
    until(lambda: world.ready(fake) and world.agrees(fake), 10)
    assert not world.row(fake).exceptions
    running = False
    thread.kill()
    fake.unplug()
