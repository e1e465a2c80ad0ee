"""Netting and the log, without any switch: properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.encode import Xids, delete_flow, delete_group, encode_unit
from controller.fleet import Fleet
from controller.round import Round, Step, net, pieces
from pipelines.unit import EMPTY, FLEET, Revision, UnitChange
from tests.controller.world import NUMBERS, SEGMENT, key, node, route, service

NAMES = st.sampled_from("abcd")
VALUES = st.none() | st.tuples(st.integers(1, 4), st.sampled_from((80, 100)))
SCOPES = (FLEET, SEGMENT, node("n1"))


def _unit(value):
    return route(f"10.10.{value[0]}.0", value[1]) if value else None


def _apply(rows: dict[bytes, int], change: Round) -> dict[bytes, int]:
    """As a switch does: adds overwrite, deletes are strict and name the cookie."""
    rows = dict(rows)
    for flow in change.flows_in:
        rows[flow.key] = flow.cookie
    for gone in change.flows_out:
        if rows.get(gone.key) == gone.cookie:
            del rows[gone.key]
    return rows


def _owned_once(state: dict[str, tuple[int, int] | None]) -> bool:
    addresses = [value[0] for value in state.values() if value]
    return len(addresses) == len(set(addresses))


@given(st.dictionaries(NAMES, VALUES).filter(_owned_once), st.dictionaries(NAMES, VALUES).filter(_owned_once))
def test_net_leads_from_any_state_to_any_other_and_deletes_nothing_that_is_wanted(old, new):
    xids = Xids()

    def encoded(name, value):
        return encode_unit(key("route", name), 5, _unit(value), None, xids) if value else None

    before = {name: encoded(name, value) for name, value in old.items()}
    after = {name: encoded(name, value) for name, value in new.items()}
    steps = [Step(key("route", name), before.get(name), after.get(name)) for name in {**before, **after}]
    rows = {k: flow.cookie for unit in before.values() if unit for k, flow in unit.flows.items()}
    wanted = {k: flow.cookie for unit in after.values() if unit for k, flow in unit.flows.items()}
    change = net(steps)
    assert _apply(rows, change) == wanted
    assert not {flow.key for flow in change.flows_out} & set(wanted)
    assert change.growth == len(wanted) - len(rows)
    assert all(rows.get(flow.key) != flow.cookie for flow in change.flows_in), "what is there is not sent"


@settings(max_examples=200)
@given(st.data())
def test_cursor_anywhere_in_the_log_with_any_change_of_scopes_leads_to_the_snapshot(data):
    fleet = Fleet(log_steps=data.draw(st.sampled_from((1, 4, 100))))
    history = []
    for number in range(1, data.draw(st.integers(2, 6))):
        scopes = frozenset(data.draw(st.sets(st.sampled_from(SCOPES))))
        history.append((fleet.sequence, scopes, _rows(fleet, scopes)))
        changes = data.draw(st.dictionaries(st.tuples(NAMES, st.sampled_from(SCOPES)), VALUES))
        fleet.publish(
            Revision(
                number,
                tuple(
                    # an own address for each name and scope, so that no key is claimed twice
                    UnitChange(
                        key("route", name, scope),
                        EMPTY,
                        route(f"10.{ord(name)}.{SCOPES.index(scope)}.{value[0]}", value[1]) if value else EMPTY,
                    )
                    for (name, scope), value in changes.items()
                ),
                {},
            ),
            NUMBERS,
        )
    after = frozenset(data.draw(st.sets(st.sampled_from(SCOPES))))
    for cursor, before, rows in history:
        position = fleet.steps(cursor, before, after)
        if position is None:
            continue
        assert position.sequence == fleet.sequence
        assert _apply(rows, net(position.steps)) == _rows(fleet, after)
    current = fleet.steps(fleet.sequence, after, after)
    assert current is not None
    assert not net(current.steps)


def _rows(fleet, scopes):
    steps = fleet.desired(scopes).steps
    return {k: flow.cookie for step in steps for k, flow in step.new.flows.items()}


def test_log_that_does_not_reach_back_says_so():
    fleet = Fleet(log_steps=2)
    for number in range(1, 6):
        fleet.publish(
            Revision(number, (UnitChange(key("route", str(number)), EMPTY, route(f"10.1.{number}.0")),), {}), NUMBERS
        )
    assert fleet.steps(0, frozenset(), frozenset({FLEET})) is None
    assert fleet.steps(3, frozenset({FLEET}), frozenset({FLEET})) is not None


@given(st.integers(1, 7))
def test_pieces_hold_everything_in_order(limit):
    xids = Xids()
    units = [encode_unit(key("route", str(n)), 5, route(f"10.1.{n}.0"), None, xids) for n in range(9)]
    whole = net([Step(unit.key, None, unit) for unit in units[:5]] + [Step(unit.key, unit, None) for unit in units[5:]])
    cut = list(pieces(whole, limit))
    assert [m for piece in cut for m in piece.messages()] == list(whole.messages())
    assert all(len(piece) <= limit for piece in cut)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_b69_groups_go_in_before_the_flows_that_use_them_and_out_after_them(limit):
    """Also when it is cut: Open vSwitch refuses a flow whose group is not there, and deletes one whose group goes."""
    xids = Xids()
    old, new = (
        encode_unit(key("service", n), 3, service(i, (10, 11)), None, xids) for n, i in (("old", 1), ("new", 2))
    )
    whole = net([Step(old.key, old, None), Step(new.key, None, new)])
    (went_in,), (goes,) = new.flows.values(), old.flows.values()
    (group_in,), (group_out,) = new.groups.values(), old.groups
    assert [message for piece in pieces(whole, limit) for message in piece.messages()] == [
        group_in.message,
        went_in.message,
        delete_flow(goes),
        delete_group(group_out),
    ]


def test_unit_is_encoded_once_and_what_did_not_change_is_used_again():
    fleet = Fleet()
    both = route("10.1.1.0").flows + route("10.1.2.0").flows
    from pipelines.unit import Unit

    fleet.publish(Revision(1, (UnitChange(key("route", "a"), EMPTY, Unit(both)),), {}), NUMBERS)
    first = fleet.units[FLEET][key("route", "a")]
    fleet.publish(
        Revision(2, (UnitChange(key("route", "a"), EMPTY, Unit(both[:1] + route("10.1.2.0", 80).flows)),), {}), NUMBERS
    )
    second = fleet.units[FLEET][key("route", "a")]
    assert sum(flow is first.flows.get(k) for k, flow in second.flows.items()) == 1
    assert fleet.encoded_flows == 3
