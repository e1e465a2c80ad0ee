"""What is said about nodes, services and switches, without HTTP."""

import pytest

from apps import answers
from controller.session import State
from pipelines.addresses import parse_ip
from pipelines.model import Change, Kind, Problem, Protocol, Service, ServicePort
from pipelines.unit import FLEET, UnitKey
from tests.apps.stub import StubFabric, refusing, session_row


def services(fabric: StubFabric) -> dict[str, answers.Row]:
    return {row["name"]: row for row in answers.services(fabric.compiler.facts, fabric.problems())}


def other_service(name: str, port: int = 80, protocol: Protocol = Protocol.TCP, ip: str = "10.96.0.80") -> Change:
    ports = (ServicePort("http", protocol, port),)
    value = Service("default", name, created="2999-01-01T00:00:00Z", cluster_ips=(parse_ip(ip),), ports=ports)
    return Change(Kind.SERVICE, f"default/{name}", value)


def test_a_service_lists_its_endpoints_in_both_families() -> None:
    found = services(StubFabric())["default/web"]
    assert found["state"] == "served"
    fronts = {(front["address"], front["protocol"]): front for front in found["frontends"]}
    assert {one["address"] for one in fronts["10.96.0.80", "TCP"]["endpoints"]} == {
        "10.10.1.20",
        "10.10.2.20",
        "10.10.3.20",
    }
    assert all(":" in one["address"] for one in fronts["fd00:96::50", "UDP"]["endpoints"])
    assert all(front["group"] for front in found["frontends"])


def test_a_service_without_endpoints_says_so() -> None:
    found = services(StubFabric(other_service("alone", ip="10.96.0.99")))["default/alone"]
    assert found["state"] == "no endpoints"
    assert found["frontends"][0]["reason"] == "new connections are refused"
    assert found["frontends"][0]["group"] is None


def test_of_two_services_with_one_address_the_younger_is_told() -> None:
    found = services(StubFabric(other_service("thief")))
    assert found["default/web"]["state"] == "served"
    assert found["default/thief"]["state"] == "conflict"
    assert "default/web" in found["default/thief"]["frontends"][0]["reason"]
    assert found["default/thief"]["problems"]


def test_sctp_is_said_not_to_be_supported() -> None:
    found = services(StubFabric(other_service("sctp", protocol=Protocol.SCTP, ip="10.96.0.98")))["default/sctp"]
    assert found["state"] == "not supported"


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
