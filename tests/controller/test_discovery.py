"""When is asked and what follows, with a link that is made up and a clock that is a number."""

from time import perf_counter

from controller.discovery import Question, Target, Timing
from pipelines.addresses import parse_ip
from tests.controller.link import LIAR, NEW, OLD, OTHER, OWN, PEER, ROUTER, SEGMENT, Link, intervals, known


def test_who_is_asked_and_answers_is_known_within_half_a_second() -> None:
    link = Link({ROUTER: [OLD]})
    link.join("n1")
    link.route()
    link.run(0.5)
    assert link.said == [(OLD, True)]
    assert [question for _, question in link.asked] == [Question("n1", ROUTER, None)]


def test_nobody_is_asked_by_a_node_that_cannot_ask_and_all_as_soon_as_it_can() -> None:
    link = Link({ROUTER: [OLD]})
    link.route()
    link.run(5)
    assert link.asked == []
    link.join("n1")
    link.run(0.5)
    assert link.said == [(OLD, True)]


def test_who_does_not_answer_is_asked_ever_less_and_never_forgotten() -> None:
    link = Link()
    link.join("n1")
    link.route()
    link.run(200)
    gaps = intervals(link)
    assert gaps[:2] == [1, 1]
    assert max(gaps) <= 36
    assert min(gaps[6:]) >= 24
    assert "does not answer" in link.problem()
    link.stations[ROUTER] = [OLD]
    link.run(40)
    assert link.said == [(OLD, True)]
    assert link.problem() == ""


def test_what_is_known_is_asked_again_by_unicast_before_it_ages() -> None:
    link = known()
    link.run(200)
    assert {question.mac for _, question in link.asked} == {OLD}
    assert all(24 <= gap <= 36.1 for gap in intervals(link))
    assert link.news == [], "what is confirmed is no news"


def test_refreshes_of_many_targets_do_not_come_together() -> None:
    link = Link({parse_ip(f"10.0.0.{n}"): [n] for n in range(1, 200)})
    link.join("n1")
    for n in range(1, 200):
        link.route(parse_ip(f"10.0.0.{n}"))
    link.run(20)
    link.asked.clear()
    link.run(20)
    times = sorted(at for at, _ in link.asked)
    assert max(sum(at <= other < at + 0.1 for other in times) for at in times) < 20


def test_who_ceases_to_answer_keeps_its_mac_and_is_said_not_to_be_reachable() -> None:
    link = known()
    link.stations.clear()
    link.run(45)
    assert link.said == [(OLD, False)]
    unicast = [question.mac for _, question in link.asked].count(OLD)
    assert unicast == 3
    link.stations[ROUTER] = [OLD]
    link.run(40)
    assert link.said == [(OLD, False), (OLD, True)]


def test_one_lost_question_is_no_news() -> None:
    link = known()
    link.stations.clear()
    link.run(37, lambda: link.stations.update({ROUTER: [OLD]}) if link.asked else None)
    assert len(link.asked) >= 2
    assert link.news == []


def test_a_fail_over_that_is_announced_is_followed_in_well_under_a_second() -> None:
    link = known()
    link.stations[ROUTER] = [NEW]
    began = link.now
    link.say(ROUTER, NEW)
    link.run(1)
    assert link.said == [(NEW, True)]
    assert link.news[0][0] - began < 0.3
    assert link.problem() == ""


def test_a_fail_over_whose_new_station_answers_late_is_followed_within_a_second() -> None:
    link = known()
    link.stations[ROUTER] = []
    began = link.now
    link.say(ROUTER, NEW)
    link.run(0.2)
    link.stations[ROUTER] = [NEW]
    link.run(1)
    assert link.said == [(NEW, True)]
    assert link.news[0][0] - began < 1


def test_a_fail_over_that_nobody_announces_is_found_when_the_old_station_is_silent() -> None:
    link = known()
    link.stations[ROUTER] = [NEW]
    link.run(45)
    assert link.said == [(NEW, True)]


def test_the_mac_that_was_in_force_before_a_restart_is_kept_when_it_answers() -> None:
    link = Link({ROUTER: [LIAR, OLD]})
    link.join("n1")
    link.route(hint=OLD)
    link.run(2)
    assert link.said == [(OLD, True)]


def test_the_mac_that_was_in_force_before_a_restart_is_left_when_another_answers() -> None:
    link = Link({ROUTER: [NEW]})
    link.join("n1")
    link.route(hint=OLD)
    link.run(0.7)
    assert link.said == [(NEW, True)]


def test_a_less_preferred_next_hop_is_asked_only_when_the_first_had_its_time() -> None:
    link = Link({ROUTER: [OLD], OTHER: [NEW]})
    link.join("n1")
    link.route(OTHER, rank=1)
    link.route(ROUTER)
    link.run(5)
    assert link.said == [(OLD, True), (NEW, True)]
    assert link.news[1][0] - link.news[0][0] > 1


def test_a_peer_is_asked_by_the_nodes_of_its_segment_in_turn_and_not_by_itself() -> None:
    link = Link()
    link.join("n1", "n2", "n3")
    link.discovery.follow("n2", Target("n2", PEER, SEGMENT, owner="n2"), link.now)
    link.run(60)
    assert {question.node for _, question in link.asked} == {"n1", "n3"}


def test_a_peer_is_asked_by_others_when_one_cannot_any_more() -> None:
    link = Link({PEER: [0xAA02]})
    link.join("n1", "n3")
    link.discovery.follow("n2", Target("n2", PEER, SEGMENT, owner="n2"), link.now)
    link.discovery.leave("n3")
    link.run(120)
    assert {question.node for _, question in link.asked} == {"n1"}
    link.discovery.leave("n1")
    link.asked.clear()
    link.run(120)
    assert link.asked == []
    assert link.said == [(0xAA02, True)], "absence changes nothing"


def test_what_is_not_wanted_any_more_is_not_asked_and_not_heard() -> None:
    link = known()
    link.discovery.follow(f"n1 {ROUTER}", None, link.now)
    link.say(ROUTER, NEW)
    link.run(100)
    assert (link.asked, link.news) == ([], [])
    assert link.discovery.standing(f"n1 {ROUTER}", link.now) is None


def test_another_address_of_the_same_peer_is_asked_at_once_and_keeps_the_mac_meanwhile() -> None:
    moved = parse_ip("192.168.77.112")
    link = Link({PEER: [0xAA02], moved: [0xAA02]})
    link.join("n1")
    link.discovery.follow("n2", Target("n2", PEER, SEGMENT, owner="n2"), link.now)
    link.run(1)
    link.discovery.follow("n2", Target("n2", moved, SEGMENT, owner="n2"), link.now)
    standing = link.discovery.standing("n2", link.now)
    assert standing is not None
    assert standing.mac == 0xAA02
    link.run(1)
    assert link.asked[-1][1].ip == moved
    assert link.said == [(0xAA02, True)]


def test_all_questions_together_keep_to_the_rate() -> None:
    link = Link(timing=Timing(rate=50, burst=20))
    link.join("n1")
    for number in range(500):
        link.route(parse_ip(f"10.0.{number >> 8}.{number & 255}"))
    link.run(2)
    assert 100 <= len(link.asked) <= 2 * 50 + 20 + 2


def test_a_station_that_speaks_again_is_asked_at_once() -> None:
    link = known()
    link.stations.clear()
    link.run(150)
    assert link.said == [(OLD, False)]
    link.stations[ROUTER] = [OLD]
    link.say(ROUTER, OLD)
    link.run(0.3)
    assert link.said == [(OLD, False), (OLD, True)]


def test_a_thousand_targets_cost_nothing_while_none_is_due() -> None:
    link = Link({ROUTER: [OLD]})
    for number in range(1000):
        node = f"m{number}"
        OWN[node] = 0xBB0000 + number
        link.discovery.join(node, (node,), link.now)
        link.route(node=node)
    link.run(5)
    assert len(link.news) == 1000
    began = perf_counter()
    for _ in range(20_000):
        assert link.discovery.advance(link.now) == ([], [])
    assert perf_counter() - began < 2, "looking at each would take ten times that"
