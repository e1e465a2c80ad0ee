"""What is believed of claims that nobody asked for, late answers and lies: never one against a station that answers."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.link import LIAR, NEW, OLD, OWN, ROUTER, Link, known


def test_who_only_says_so_is_never_believed() -> None:
    link = known()
    link.stations[ROUTER] = []
    for _ in range(2000):
        link.say(ROUTER, LIAR)
        link.run(0.002)
    assert all(mac != LIAR for mac, _ in link.said)


def test_an_answer_to_a_question_that_nobody_asked_is_not_believed() -> None:
    link = known()
    link.stations[ROUTER] = []
    link.run(10)
    link.say(ROUTER, LIAR, answer=True)
    assert link.news == []
    link.run(0.2)
    assert link.news == []


def test_a_liar_is_not_believed_while_the_router_answers() -> None:
    link = known()
    link.stations[ROUTER] = [LIAR, OLD]
    link.say(ROUTER, LIAR)
    link.run(120)
    assert link.news == []
    assert "both claim 192.168.77.1; the first is used" in link.problem()
    link.stations[ROUTER] = [OLD]
    link.run(150)
    assert link.problem() == ""


def test_a_router_that_answers_later_than_the_liar_is_still_in_time() -> None:
    link = known()
    link.stations[ROUTER] = [LIAR]
    link.say(ROUTER, LIAR)
    link.run(0.1)
    link.say(ROUTER, OLD, answer=True)
    link.run(1)
    assert link.news == []


def test_a_router_that_falls_silent_beside_a_conflict_is_followed() -> None:
    link = known()
    link.stations[ROUTER] = [NEW, OLD]
    link.say(ROUTER, NEW)
    link.run(5)
    assert link.news == []
    link.stations[ROUTER] = [NEW]
    link.run(40)
    assert link.said == [(NEW, True)]
    assert link.problem() == ""


LIES = st.tuples(st.floats(0.001, 2), st.sampled_from((LIAR, NEW, OLD, 0, OWN["n1"], 0x01005E000001)), st.booleans())


@settings(max_examples=40)
@given(st.lists(LIES, max_size=30), st.floats(0.001, 0.12), st.integers(0, 1000))
def test_no_claims_whatever_take_an_address_from_a_station_that_answers(
    lies: list[tuple[float, int, bool]], delay: float, seed: int
) -> None:
    link = Link({ROUTER: [OLD]}, seed=seed)
    link.join("n1")
    link.route()
    link.run(1)
    link.delay = delay
    for pause, mac, answer in lies:
        link.say(ROUTER, mac, answer=answer)
        link.run(pause)
    link.run(3)
    assert link.said == [(OLD, True)]


@settings(max_examples=40)
@example([(0.125, 0xEE66, True)], 0)  # an answer of a liar, on its way while the fail-over happens
@given(st.lists(LIES, max_size=10), st.integers(0, 1000))
def test_whatever_was_claimed_before_a_fail_over_is_followed(lies: list[tuple[float, int, bool]], seed: int) -> None:
    link = Link({ROUTER: [OLD]}, seed=seed)
    link.join("n1")
    link.route()
    link.run(1)
    for pause, mac, answer in lies:
        link.say(ROUTER, mac, answer=answer)
        link.run(pause)
    link.stations[ROUTER] = [NEW]
    link.say(ROUTER, NEW)
    link.run(1)
    assert link.said[-1] == (NEW, True)


def test_a_flood_of_claims_makes_few_questions() -> None:
    link = known()
    link.run(10, lambda: link.say(ROUTER, LIAR))
    assert len(link.asked) <= 2 * 10 / 0.5 + 2


def test_values_that_no_station_can_have_are_refused_and_reported() -> None:
    for mac in (0, 0x01005E000001, 0xFFFFFFFFFFFF, OWN["n1"]):
        link = Link({ROUTER: [mac]})
        link.join("n1")
        key = link.route()
        link.run(3)
        assert link.news == []
        assert "not believed" in link.problem(key)
