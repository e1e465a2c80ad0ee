"""What changed, and which removals are held: the pure part of every source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from k8s_bridge.guard import Guard, Trust
from k8s_bridge.mirror import KEPT, Mirror
from pipelines.model import Change, Invalid, Kind, Node, Pod, Problem, Value

KINDS = (Kind.NODE, Kind.POD)
WRONG = Problem("Node", "n1", "spec", "wrong")


def pods(*numbers, uid=""):
    return {f"default/p{number}": Pod("default", f"p{number}", uid=uid) for number in numbers}


def filled(*numbers, **guard):
    mirror = Mirror(Guard(**guard))
    mirror.replace(Kind.POD, pods(*numbers), now=0.0, origin="one")
    return mirror


def keys(changes):
    return [change.key.removeprefix("default/") for change in changes]


# -- changes


def test_only_differences_come_out():
    mirror = filled(1, 2)
    assert mirror.put(Kind.POD, "default/p1", Pod("default", "p1")) == []
    assert mirror.put(Kind.POD, "default/p9", None) == []
    assert mirror.replace(Kind.POD, pods(1, 2), now=1.0) == []
    other = Pod("default", "p1", uid="b")
    assert mirror.put(Kind.POD, "default/p1", other) == [Change(Kind.POD, "default/p1", other)]


def test_a_recreated_object_is_one_change():
    """B13: delete and add that were squashed show as another uid."""
    mirror = Mirror(Guard())
    mirror.put(Kind.NODE, "n2", Node("n2", uid="a"))
    again = Node("n2", uid="b")
    assert mirror.put(Kind.NODE, "n2", again) == [Change(Kind.NODE, "n2", again)]


def test_problems_follow_their_objects():
    mirror = Mirror(Guard())
    mirror.put(Kind.NODE, "n1", Invalid((WRONG,)))
    assert mirror.problems() == (WRONG,)
    mirror.put(Kind.NODE, "n1", Node("n1", problems=(WRONG, WRONG)))
    assert mirror.problems() == (WRONG, WRONG)
    mirror.put(Kind.NODE, "n1", Node("n1"))
    assert mirror.problems() == ()
    mirror.put(Kind.NODE, "n1", Invalid((WRONG,)))
    mirror.put(Kind.NODE, "n1", None)
    assert mirror.problems() == ()
    assert mirror.counts()["Node"] == 0


def test_an_object_that_cannot_be_used_any_more_keeps_what_it_said_before():
    mirror = Mirror(Guard())
    good = Node("n1", uid="a", uplink="eth0")
    mirror.put(Kind.NODE, "n1", good)
    (change,) = mirror.put(Kind.NODE, "n1", Invalid((WRONG,)))
    told = (WRONG, Problem("Node", "n1", "object", KEPT))
    assert change.value == Node("n1", uid="a", uplink="eth0", problems=told)
    assert mirror.problems() == told
    assert mirror.put(Kind.NODE, "n1", Invalid((WRONG,))) == [], "said again is no change"
    assert mirror.replace(Kind.NODE, {"n1": Invalid((WRONG,))}, now=1.0) == [], "nor is it in a list"
    assert mirror.put(Kind.NODE, "n1", good) == [Change(Kind.NODE, "n1", good)]
    assert mirror.problems() == ()
    mirror.put(Kind.NODE, "n1", Invalid((WRONG,)))
    assert mirror.put(Kind.NODE, "n1", None) == [Change(Kind.NODE, "n1", None)], "a deletion is obeyed"


def test_an_object_that_never_could_be_used_is_told_and_nothing_else():
    mirror = Mirror(Guard())
    other = Problem("Node", "n1", "status", "wrong too")
    mirror.put(Kind.NODE, "n1", Invalid((WRONG,)))
    assert mirror.put(Kind.NODE, "n1", Invalid((other,))) == [Change(Kind.NODE, "n1", Invalid((other,)))]
    assert mirror.problems() == (other,)


def test_another_kind_is_not_touched_by_a_list():
    mirror = filled(1, 2)
    assert keys(mirror.replace(Kind.NODE, {"n1": Node("n1")}, now=1.0)) == ["n1"]
    assert mirror.counts()["Pod"] == 2


EVENTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"), st.none() | st.sampled_from("xyz")), max_size=30
)


def value(kind, key, uid):
    if uid is None:
        return None
    return Node(key, uid=uid) if kind is Kind.NODE else Pod("default", key, uid=uid)


def outcome(events):
    """The state that a sink which only follows the changes ends with; changes must be real ones."""
    mirror = Mirror(Guard())
    sink: dict[tuple[Kind, str], Value | None] = {}
    for kind, key, uid in events:
        for change in mirror.put(kind, key, value(kind, key, uid)):
            assert sink.get((change.kind, change.key)) != change.value
            sink[change.kind, change.key] = change.value
    return {which: value for which, value in sink.items() if value is not None}


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_last_word_about_each_object_counts_in_any_order_repeated_or_squashed(events, random):
    expected = outcome(events)
    last = {(kind, key): (kind, key, uid) for kind, key, uid in events}
    squashed = list(last.values())
    random.shuffle(squashed)
    assert outcome(squashed) == expected
    repeated = [event for event in events for _ in range(random.randint(1, 3))]
    assert outcome(repeated) == expected
    by_object = [event for which in sorted(last) for event in events if event[:2] == which]
    assert outcome(by_object) == expected, "events of different objects may overtake each other"


@given(EVENTS, st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("xyz")))
def test_a_list_that_is_believed_leaves_exactly_what_it_names(events, listed):
    mirror = Mirror(Guard())
    for kind, key, uid in events:
        mirror.put(kind, key, value(kind, key, uid))
    listing = {key: value(Kind.NODE, key, uid) for key, uid in listed.items()}
    before = dict(mirror.counts())
    changes = mirror.replace(Kind.NODE, listing, now=0.0, trust=Trust.FULL)
    assert mirror.counts() == before | {"Node": len(listing)}
    assert mirror.replace(Kind.NODE, listing, now=0.0) == []
    assert len({change.key for change in changes}) == len(changes)


# -- guard


def test_a_list_that_lost_more_than_a_share_adds_but_holds_removals():
    mirror = filled(*range(10))
    changes = mirror.replace(Kind.POD, pods(*range(5), 99), now=10.0, origin="one")
    assert keys(changes) == ["p99"]
    assert mirror.held() == tuple((Kind.POD, f"default/p{number}") for number in range(5, 10))
    assert mirror.counts()["Pod"] == 11


@pytest.mark.parametrize(
    ("total", "lost", "held"), [(10, 3, 0), (10, 4, 4), (20, 6, 0), (20, 7, 7), (3, 3, 0), (4, 4, 4)]
)
def test_what_counts_as_a_mass_removal(total, lost, held):
    mirror = filled(*range(total))
    changes = mirror.replace(Kind.POD, pods(*range(lost, total)), now=1.0, origin="one")
    assert len(mirror.held()) == held
    assert len(changes) == lost - held


def test_when_there_is_nothing_left_at_all_even_few_are_held():
    mirror = filled(1, 2)
    assert mirror.replace(Kind.POD, {}, now=1.0, origin="one", trust=Trust.NONE) == []
    assert len(mirror.held()) == 2


def test_a_second_list_agrees_from_elsewhere_or_later_but_not_at_once():
    for now, origin, agrees in ((1.5, "one", False), (1.5, "two", True), (31.0, "one", True), (30.9, "one", False)):
        mirror = filled(*range(10), second_list_after=30.0)
        mirror.replace(Kind.POD, {}, now=1.0, origin="one")
        assert mirror.recheck_in(Kind.POD, 1.0) == 30.0
        changes = mirror.replace(Kind.POD, {}, now=now, origin=origin)
        assert (len(changes) == 10) == agrees, (now, origin)
        assert bool(mirror.held()) != agrees
        assert (mirror.recheck_in(Kind.POD, now) is None) == agrees


def test_a_second_list_agrees_only_about_what_both_miss():
    mirror = filled(*range(10))
    mirror.replace(Kind.POD, pods(0, 1, 2, 3), now=1.0, origin="one")
    changes = mirror.replace(Kind.POD, pods(4, 5), now=1.5, origin="two")
    assert keys(changes) == ["p6", "p7", "p8", "p9"]
    assert mirror.held() == tuple((Kind.POD, f"default/p{number}") for number in range(4))


def test_objects_that_come_back_are_held_no_longer_and_are_no_change():
    mirror = filled(*range(10))
    mirror.replace(Kind.POD, {}, now=1.0, origin="one")
    assert mirror.replace(Kind.POD, pods(*range(10)), now=2.0, origin="one") == []
    assert mirror.held() == ()
    mirror.replace(Kind.POD, {}, now=40.0, origin="one")
    assert len(mirror.held()) == 10, "the doubt starts anew"


def test_a_watch_is_obeyed_about_what_is_held():
    mirror = filled(*range(10))
    mirror.replace(Kind.POD, {}, now=1.0, origin="one")
    assert mirror.put(Kind.POD, "default/p1", Pod("default", "p1")) == []
    assert keys(mirror.put(Kind.POD, "default/p2", None)) == ["p2"]
    assert len(mirror.held()) == 8
    assert keys(mirror.confirm()) == ["p0", "p3", "p4", "p5", "p6", "p7", "p8", "p9"]
    assert mirror.counts()["Pod"] == 1
    assert mirror.held() == ()
    assert mirror.confirm() == []


class Lists(RuleBasedStateMachine):
    """Lists, events, time and confirmations in any order."""

    def __init__(self):
        super().__init__()
        self.mirror, self.sink, self.now = Mirror(Guard(second_list_after=30.0)), {}, 0.0
        self.last_list = set()

    def follow(self, changes):
        for change in changes:
            assert self.sink.get(change.key) != change.value
            self.sink[change.key] = change.value
        self.sink = {key: value for key, value in self.sink.items() if value is not None}

    @rule(numbers=st.sets(st.integers(0, 11)), origin=st.sampled_from(["one", "two"]), later=st.floats(0, 40))
    def listed(self, numbers, origin, later):
        self.now += later
        before = set(self.sink)
        self.follow(self.mirror.replace(Kind.POD, pods(*numbers), self.now, origin))
        self.last_list = set(pods(*numbers))
        assert set(self.sink) >= self.last_list, "what is listed is there"
        assert set(self.sink) <= before | self.last_list
        assert {key for _, key in self.mirror.held()} == set(self.sink) - self.last_list, "what is not listed is held"

    @rule(number=st.integers(0, 11), there=st.booleans())
    def event(self, number, there):
        ((key, value),) = pods(number).items()
        self.follow(self.mirror.put(Kind.POD, key, value if there else None))
        assert (key in self.sink) == there

    @rule()
    def confirmed(self):
        held = {key for _, key in self.mirror.held()}
        before = set(self.sink)
        self.follow(self.mirror.confirm())
        assert set(self.sink) == before - held

    @rule()
    def twice_the_same(self):
        listing = {key: self.sink[key] for key in self.last_list & set(self.sink)}
        self.follow(self.mirror.replace(Kind.POD, listing, self.now, "one"))
        self.now += 31.0
        self.follow(self.mirror.replace(Kind.POD, listing, self.now, "one"))
        assert self.sink == listing, "a list that stays the same is believed in the end"
        assert self.mirror.held() == ()
        self.last_list = set(listing)

    @invariant()
    def only_what_is_there_is_held(self):
        assert {key for _, key in self.mirror.held()} <= set(self.sink)
        assert self.mirror.counts()["Pod"] == len(self.sink)


TestLists = Lists.TestCase
