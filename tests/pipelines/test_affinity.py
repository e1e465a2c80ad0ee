"""Session affinity of any length: what is learned, and how a choice goes on that a flow cannot keep long enough."""

import pytest

from pipelines import fields as f
from pipelines.actions import Learn, LearnLoad, SetField
from pipelines.derived import Derived, ServiceBackends
from pipelines.features import affinity
from pipelines.features.affinity import LEARNED_AT, LONGEST, PUT_BACK_AT, Unused, kept, rest
from pipelines.flow import Flow
from pipelines.model import Change
from pipelines.tables import AFFINITY_LEARN
from tests.pipelines.objects import compiled, flows_of, in_table, service, slice_, small_cluster

STICKY, DAY = "default/sticky http TCP 4", 86_400
PORT, BACK = ("http", "TCP", 80), ("http", "TCP", 8080)


def sticky(seconds: int) -> list[Change]:
    """A service of both families with two endpoints."""
    ends = slice_("s-4", "sticky", ("10.10.1.10", "10.10.2.10"), BACK)
    ends_6 = slice_("s-6", "sticky", ("fd00:10:1::10", "fd00:10:2::10"), BACK)
    return [*small_cluster(), service("sticky", ["10.96.0.77", "fd00:96::77"], PORT, affinity=seconds), ends, ends_6]


def learning(seconds: int) -> list[tuple[Flow, Learn]]:
    """On a switch."""
    found = in_table(flows_of(compiled(*sticky(seconds)), "n1"), AFFINITY_LEARN)
    return [(flow, action) for flow in found for action in flow.actions if isinstance(action, Learn)]


def backends(seconds: int, family: int = 4) -> ServiceBackends:
    found: ServiceBackends = compiled(*sticky(seconds)).facts.peek(Derived.SERVICE_PORT)[f"{STICKY[:-1]}{family}"]
    return found


@pytest.mark.parametrize(
    ("seconds", "idle", "told"),
    [(1, 1, False), (3600, 3600, False), (65_535, 65_535, False), (65_536, 65_535, True), (DAY, 65_535, True)],
)
def test_b44_a_flow_is_learned_for_as_long_as_it_can_be_and_the_switch_tells_when_that_is_too_short(
    seconds: int, idle: int, told: bool
) -> None:
    """65536 does not become 0, which is never, nor 86400 20864."""
    found = learning(seconds)
    assert len(found) == 4
    assert {(learn.idle_timeout, learn.hard_timeout, learn.send_flow_rem) for _, learn in found} == {(idle, 0, told)}
    assert {learn.delete_learned for _, learn in found} == {True}


def test_b44_without_affinity_nothing_is_learned() -> None:
    assert learning(0) == []


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("seconds", [0, 1, LONGEST, LONGEST + 1, DAY])
def test_what_is_put_back_has_the_cookie_of_what_is_learned_and_does_the_same(seconds: int, family: int) -> None:
    known = kept(backends(seconds, family))
    if seconds <= LONGEST:
        assert known == {}
        return
    ours = [(flow, learn) for flow, learn in learning(seconds) if f.ETH[family] in flow.match]
    assert known.keys() == {learn.cookie for _, learn in ours}
    for flow, learn in ours:
        assert known[learn.cookie] == tuple(_loaded(flow, load) for load in learn.specs if isinstance(load, LearnLoad))


def _loaded(flow: Flow, load: LearnLoad) -> SetField:
    """What the switch writes there for a packet that has met the flow."""
    if isinstance(load.source, int):
        return SetField(load.field, load.source)
    part = load.source
    assert isinstance(part, f.Part)
    space, bits = f.register_bits(part.field, part.low, part.bits)
    value = 0
    for item in flow.match:
        if isinstance(item.field, f.Field) and item.field.name.lstrip("x").startswith("reg"):
            held, mask = f.register_bits(item.field, 0, item.field.bits)
            shift = (mask & -mask).bit_length() - 1
            value |= (item.value << shift) & bits if held == space else 0
    return SetField(load.field, value >> (bits & -bits).bit_length() - 1)


def ends_after(whole: int, uses: list[int]) -> int:
    """Seconds after its last use that a choice is gone. `uses`: when, in seconds after it was learned."""
    now, used, idle, priority, packets = 0, 0, min(whole, LONGEST), LEARNED_AT, 0
    left = list(uses)
    for _ in range(10):
        while left and left[0] < used + idle:
            used = left.pop(0)
            packets += 1
        now = used + idle
        seconds = rest(whole, Unused(idle, priority, packets))
        if not seconds:
            assert not left, "it was gone before it was used"
            return now - max([0, *uses])
        idle, priority, packets, used = seconds, PUT_BACK_AT, 0, now
    raise AssertionError("it is never gone")


@pytest.mark.parametrize("whole", [65_536, 70_000, DAY, 2 * LONGEST - 1, 2 * LONGEST])
@pytest.mark.parametrize("gaps", [[], [10], [65_535 - 1], [65_535 + 20], [65_536, 65_536, 65_536], [1, 65_530, 65_536]])
def test_a_choice_holds_for_its_whole_time_after_its_last_use_whichever_flow_was_used(
    whole: int, gaps: list[int]
) -> None:
    when, uses = 0, []
    for gap in gaps:
        if gap >= whole:
            continue
        when += gap
        uses.append(when)
    assert ends_after(whole, uses) == whole


def test_a_choice_that_was_put_back_and_used_is_told_apart_from_one_that_was_not() -> None:
    assert rest(DAY, Unused(LONGEST, LEARNED_AT, 0)) == DAY - LONGEST
    assert rest(DAY, Unused(LONGEST, LEARNED_AT, 9)) == DAY - LONGEST
    assert rest(DAY, Unused(DAY - LONGEST, PUT_BACK_AT, 0)) == 0
    assert rest(DAY, Unused(DAY - LONGEST, PUT_BACK_AT, 1)) == LONGEST
    assert rest(DAY, Unused(LONGEST, PUT_BACK_AT, 0)) == 0


def test_a_time_that_has_become_shorter_is_over() -> None:
    assert rest(3600, Unused(LONGEST, LEARNED_AT, 5)) == 0
    assert rest(LONGEST, Unused(LONGEST, LEARNED_AT, 5)) == 0


def test_the_longest_time_of_a_flow_is_what_openflow_can_say() -> None:
    assert affinity.LONGEST == 0xFFFF
