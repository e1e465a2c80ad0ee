"""Questions by the uplinks of fake switches, answers as packet-ins, and what becomes of them in flows."""

from collections.abc import Iterator

import pytest

from controller.session import State
from pipelines.addresses import parse_ip
from pipelines.derived import Derived
from pipelines.model import Change, EgressMode, Kind, MacSource, Node, neighbor_key
from tests.apps.neighborhood import GATEWAY, OTHER_MAC, ROUTER_MAC, Cluster, announcement, answer
from tests.controller.world import until


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(**getattr(request, "param", {}))
    yield made
    made.end()


def key(number: int, family: int = 4) -> str:
    return neighbor_key(f"n{number}", GATEWAY[family])


by_asking = pytest.mark.parametrize("cluster", [{"mac_sources": (MacSource.NEIGHBOR,)}], indirect=True)


def test_next_hops_of_both_families_are_asked_by_the_nodes_own_switch(cluster: Cluster) -> None:
    cluster.connect(1)
    for family in (4, 6):
        cluster.wait(key(1, family), ROUTER_MAC)
        assert cluster.router(1, family) == ROUTER_MAC
    assert cluster.router(2, 4) is None
    assert {asked for asked, _ in cluster.fakes[1].asked} >= set(GATEWAY.values())
    row = cluster.neighbors.row(key(1))
    assert row is not None
    assert row["age_seconds"] < 20
    assert row["problems"] == []


def test_a_question_comes_from_the_nodes_mac_and_its_address_in_the_subnet(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    frame = next(frame for asked, frame in cluster.fakes[1].asked if asked.family == 4)
    assert frame[6:12] == frame[22:28] == cluster.fakes[1].mac.to_bytes(6)
    assert frame[28:32] == parse_ip("192.168.77.101").value.to_bytes(4)


def test_nothing_is_asked_by_a_switch_that_another_controller_has(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    session = cluster.switches.session(1)
    assert session is not None
    session.lose_master("another one has it")
    cluster.await_state(1, State.SLAVE)
    cluster.run(0.1)
    cluster.fakes[1].asked.clear()
    cluster.run(1)
    assert cluster.fakes[1].asked == []
    session.claim()
    cluster.await_state(1, State.READY)
    cluster.run(1)
    assert cluster.fakes[1].asked


def test_a_switch_that_goes_takes_no_mac_with_it_and_is_asked_when_it_is_back(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.fakes[1].fake.unplug()
    cluster.await_state(1, None)
    cluster.run(0.8)
    assert cluster.router(1, 4) == ROUTER_MAC
    cluster.stations[GATEWAY[4]][:] = [OTHER_MAC]
    cluster.connect(1)
    cluster.wait(key(1), OTHER_MAC)


def test_a_fail_over_reaches_the_flows_and_nothing_else_is_written(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.wait(key(1, 6), ROUTER_MAC)
    cluster.run(0.1)
    written = cluster.fakes[1].fake.flow_mods
    cluster.stations[GATEWAY[4]][:] = [OTHER_MAC]
    cluster.fakes[1].tell(announcement(GATEWAY[4], OTHER_MAC))
    cluster.wait(key(1), OTHER_MAC)
    until(lambda: cluster.fakes[1].fake.flow_mods > written)
    cluster.run(0.1)
    assert cluster.fakes[1].fake.flow_mods - written <= 4


def test_an_announcement_alone_is_not_believed(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    for _ in range(20):
        cluster.fakes[1].tell(announcement(GATEWAY[4], OTHER_MAC))
        cluster.run(0.02)
    cluster.run(0.3)
    assert cluster.router(1, 4) == ROUTER_MAC
    found = cluster.neighbors.problems()
    assert [(problem.key, problem.field) for problem in found] == [("n1", "next hop")]
    assert "claim" in found[0].reason


def test_what_another_node_was_answered_is_no_answer_to_this_one(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    _, question = cluster.fakes[1].asked[0]
    stranger = question[:28] + parse_ip("192.168.77.102").value.to_bytes(4) + question[32:]
    cluster.stations[GATEWAY[4]].clear()
    for _ in range(30):
        cluster.fakes[1].tell(answer(GATEWAY[4], OTHER_MAC, stranger))
        cluster.run(0.02)
    assert cluster.router(1, 4) == ROUTER_MAC


def test_a_next_hop_that_the_node_does_not_name_any_more_is_forgotten(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.apply([cluster.node(1, gateways=(GATEWAY[6],))])
    cluster.wait(key(1), None)
    assert cluster.neighbors.row(key(1)) is None
    cluster.run(0.1)
    cluster.fakes[1].asked.clear()
    cluster.run(0.8)
    asked = {asked for asked, _ in cluster.fakes[1].asked}
    assert GATEWAY[6] in asked
    assert GATEWAY[4] not in asked


def test_a_node_that_goes_and_comes_again_at_once_is_found_out_again(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    fresh = cluster.node(1)
    assert isinstance(fresh.value, Node)
    cluster.compiler.submit([Change(Kind.NODE, "n1", None)])
    cluster.apply([fresh])
    cluster.neighbors.forget({"n1"})
    cluster.switches.forget({"n1"})
    cluster.wait(key(1), ROUTER_MAC)


def test_a_deleted_node_takes_what_it_found_with_it(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.wait(key(1), ROUTER_MAC)
    cluster.apply([Change(Kind.NODE, "n1", None)])
    cluster.run(0.5)
    assert cluster.compiler.facts.peek(Kind.NEIGHBOR) == {}
    assert cluster.neighbors.row(key(1)) is None


@pytest.mark.parametrize("cluster", [{"ask_routers": False}], indirect=True)
def test_no_next_hop_is_asked_where_that_is_switched_off(cluster: Cluster) -> None:
    cluster.connect(1)
    cluster.run(0.6)
    assert {asked for asked, _ in cluster.fakes[1].asked} & set(GATEWAY.values()) == set()


@by_asking
def test_a_peer_without_a_switch_is_asked_by_its_neighbour(cluster: Cluster) -> None:
    peer = parse_ip("192.168.77.102")
    cluster.stations[peer] = [cluster.fakes[2].mac]
    cluster.connect(1)
    cluster.wait("n2", cluster.fakes[2].mac)
    assert cluster.compiler.facts.peek(Derived.NODE_NETWORK)["n2"].mac == (cluster.fakes[2].mac, "neighbor")
    cluster.run(0.2)
    assert "n1" not in cluster.compiler.facts.peek(Kind.NEIGHBOR), "nobody is there to ask for n1"


def test_a_peer_whose_switch_tells_its_mac_is_asked_no_more(cluster: Cluster) -> None:
    cluster.stations[parse_ip("192.168.77.102")] = [OTHER_MAC]
    cluster.connect(1)
    cluster.wait("n2", OTHER_MAC)
    cluster.connect(2)
    cluster.wait("n2", None)
    assert cluster.compiler.facts.peek(Derived.NODE_NETWORK)["n2"].mac == (cluster.fakes[2].mac, "switch")
    assert cluster.neighbors.row("n2") is None


@by_asking
def test_the_mac_of_the_asking_node_is_refused_and_reported(cluster: Cluster) -> None:
    cluster.stations[parse_ip("192.168.77.102")] = [cluster.fakes[1].mac]
    cluster.connect(1)

    def reported() -> bool:
        cluster.run(0.01)
        return any(problem.key == "n2" and "not believed" in problem.reason for problem in cluster.neighbors.problems())

    until(reported)
    assert "n2" not in cluster.compiler.facts.peek(Kind.NEIGHBOR)


@pytest.mark.parametrize("cluster", [{"egress": EgressMode.DIRECT}], indirect=True)
def test_a_controller_that_starts_again_writes_nothing(cluster: Cluster) -> None:
    cluster.connect(1, 2)
    for number in (1, 2):
        for family in (4, 6):
            cluster.wait(key(number, family), ROUTER_MAC)
    cluster.run(0.3)
    held = {number: dict(switch.fake.tables.flows) for number, switch in cluster.fakes.items()}
    written = {number: switch.fake.flow_mods for number, switch in cluster.fakes.items()}
    for switch in cluster.fakes.values():
        switch.fake.unplug()
    again = Cluster(egress=EgressMode.DIRECT)
    for number, switch in again.fakes.items():
        switch.fake = cluster.fakes[number].fake
    again.connect(1, 2)
    for number in (1, 2):
        for family in (4, 6):
            again.wait(key(number, family), ROUTER_MAC)
    again.run(0.2)
    assert {number: switch.fake.flow_mods for number, switch in again.fakes.items()} == written
    assert {number: dict(switch.fake.tables.flows) for number, switch in again.fakes.items()} == held
    assert again.compiler.facts.peek(Kind.EVIDENCE) == {}
    again.end()
