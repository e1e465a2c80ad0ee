"""What is said about switches and the whole, without HTTP."""

import pytest

from apps import answers
from controller.session import State
from pipelines.model import Problem
from pipelines.unit import FLEET, UnitKey
from tests.apps.stub import StubFabric, refusing, session_row


def test_a_switch_row_names_units_that_were_refused() -> None:
    (row,) = answers.switches([refusing(1, "n1", UnitKey("services.group", FLEET, "default/web http TCP 4"))])
    assert row["dpid"] == "0000000000000001"
    assert row["exceptions"] == [{"unit": "services.group [fleet] default/web http TCP 4", "error": "BAD_MATCH"}]
    assert row["state"] == "READY"


@pytest.mark.parametrize(("state", "fine"), [(State.READY, True), (State.OBSERVING, True), (State.SYNCING, False)])
def test_readiness_of_switches_counts_those_that_a_node_names(state: State, fine: bool) -> None:
    fabric = StubFabric()
    fabric.connect({1: ("n1", state), 9: ("", State.UNCLAIMED)})
    assert answers.not_ready(fabric, switches_too=False) == []
    assert (answers.not_ready(fabric, switches_too=True) == []) is fine


def test_a_switch_that_has_just_connected_is_not_ready_though_its_node_is_not_known_to_it_yet() -> None:
    fabric = StubFabric()
    fabric.switches.rows = [session_row(1, "", State.CONNECTING, last_error="slow")]
    assert answers.not_ready(fabric, switches_too=True) == ["the switch of n1 is CONNECTING: slow"]


def test_status_counts_what_is_held() -> None:
    fabric = StubFabric()
    fabric.switches.rows = [session_row(1, "n1", State.READY, held_removals=40)]
    found = answers.status(fabric)
    assert found["held_removals"] == 40
    assert found["switches"] == {"READY": 1}
    assert found["source"]["objects"]["Node"] == 3


def test_a_problem_of_object_and_source_is_said_once() -> None:
    problem = Problem("Node", "n1", "x", "y")
    fabric = StubFabric()
    fabric.source.now = type(fabric.source.now)("x", problems=(problem,))
    assert answers.all_problems([problem], fabric.source.status()) == [problem]
