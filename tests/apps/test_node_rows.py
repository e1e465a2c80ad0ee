"""What is said about nodes and pods: MACs and their age, routers, the ways to other nodes, sizes."""

import pytest
from msgspec.structs import replace

from apps import answers, node_rows, pod_rows
from controller.session import State
from pipelines.addresses import parse_ip, parse_mac
from pipelines.derived import Derived
from pipelines.model import (
    Change,
    Invalid,
    Kind,
    MacSource,
    Neighbor,
    Node,
    Pod,
    Port,
    Problem,
    Settings,
    TrafficMode,
    Tunnel,
    neighbor_key,
    port_key,
)
from tests.apps.stub import StubFabric

ROUTER, ROUTER_MAC = "192.168.77.1", "fe:00:00:00:77:01"


def nodes(fabric: StubFabric) -> dict[str, answers.Row]:
    rows = node_rows.nodes(
        fabric.compiler.facts, fabric.switches.sessions(), fabric.problems(), heard=fabric.neighbors.row
    )
    return {row["name"]: row for row in rows}


def neighbor(of: str, mac: str, address: str | None = None, reachable: bool = True) -> Change:
    key = neighbor_key(of, parse_ip(address) if address else None)
    return Change(Kind.NEIGHBOR, key, Neighbor(parse_mac(mac), reachable))


def ways(fabric: StubFabric, of: str = "n1") -> dict[tuple[str, int], answers.Row]:
    facts = fabric.compiler.facts
    value: Node = facts.peek(Kind.NODE)[of]
    return {(row["node"], row["family"]): row for row in node_rows.ways(value, facts)}


def test_a_node_says_where_its_mac_comes_from() -> None:
    found = nodes(StubFabric())
    assert found["n1"]["mac"] == {"address": "aa:00:00:00:00:01", "source": "switch", "age_seconds": None}
    assert found["n2"]["mac"] == {"address": "aa:00:00:00:00:02", "source": "annotation", "age_seconds": None}


def test_an_unknown_mac_is_null() -> None:
    assert nodes(StubFabric(settings=Settings(mac_sources=())))["n2"]["mac"] is None


def test_a_node_lists_addresses_and_prefixes_as_kubernetes_writes_them() -> None:
    node = nodes(StubFabric())["n1"]
    assert node["addresses"] == ["192.168.77.101/24", "fd00:77::101/64"]
    assert node["pod_cidrs"] == ["10.10.1.0/24", "fd00:10:1::/64"]
    assert node["segments"] == ["192.168.77.0/24", "fd00:77::/64"]
    assert node["datapath_id"] == "0000000000000001"


def test_a_node_shows_the_ports_it_has_and_those_it_lacks() -> None:
    found = nodes(StubFabric())
    assert found["n1"]["ports"]["uplink"] == {"number": 1, "mac": "aa:00:00:00:00:01"}
    assert found["n1"]["ports_missing"] == []
    assert found["n2"]["ports_missing"] == ["LOCAL", "eth1", "gw0"]


def test_pods_whose_port_is_not_there_are_named() -> None:
    fabric = StubFabric()
    port = next(pod.port for pod in fabric.compiler.facts.peek(Derived.LOCAL_POD).values() if pod.key == "default/a")
    fabric.compiler.run([Change(Kind.PORT, port_key("n1", port), Port(10, 1))])
    node = nodes(fabric)["n1"]
    assert "default/a" not in node["pods_without_port"]
    assert "default/b" in node["pods_without_port"]


def test_the_state_of_a_node_is_that_of_its_switch() -> None:
    fabric = StubFabric()
    fabric.connect({1: ("n1", State.READY), 9: ("", State.UNCLAIMED)})
    found = nodes(fabric)
    assert (found["n1"]["state"], found["n2"]["state"]) == ("READY", "NOT CONNECTED")


def test_a_node_that_cannot_be_used_is_listed_with_its_problems() -> None:
    problem = Problem(Kind.NODE, "n9", "metadata", "broken")
    found = nodes(StubFabric(Change(Kind.NODE, "n9", Invalid((problem,)))))
    assert found["n9"]["state"] == "unusable"
    assert found["n9"]["problems"] == [{"field": "metadata", "reason": "broken"}]


# --- what has to be asked for ---------------------------------------------------------------------------------------


def test_a_mac_that_answered_says_how_long_ago() -> None:
    settings = Settings(mac_sources=(MacSource.NEIGHBOR,))
    fabric = StubFabric(neighbor("n2", "aa:00:00:00:00:02"), settings=settings)
    assert nodes(fabric)["n2"]["mac"]["age_seconds"] is None
    fabric.neighbors.rows["n2"] = {"age_seconds": 4.5, "problems": []}
    assert nodes(fabric)["n2"]["mac"] == {"address": "aa:00:00:00:00:02", "source": "neighbor", "age_seconds": 4.5}


def test_a_router_that_nobody_has_heard_of_is_listed_as_unknown() -> None:
    first = nodes(StubFabric())["n1"]["routers"][0]
    assert first == {
        "family": 4, "address": ROUTER, "mac": None, "source": None, "reachable": None, "used": False,
        "age_seconds": None, "problems": [],
    }  # fmt: skip


def test_a_router_that_answered_is_in_use_and_shows_its_age_and_problems() -> None:
    fabric = StubFabric(neighbor("n1", ROUTER_MAC, ROUTER))
    fabric.neighbors.rows[f"n1 {ROUTER}"] = {"age_seconds": 12.0, "problems": ["two stations answer"]}
    assert nodes(fabric)["n1"]["routers"][0] == {
        "family": 4, "address": ROUTER, "mac": ROUTER_MAC, "source": "neighbor", "reachable": True, "used": True,
        "age_seconds": 12.0, "problems": ["two stations answer"],
    }  # fmt: skip
    assert nodes(fabric)["n2"]["routers"][0]["mac"] is None, "each node asks for itself"


def test_of_two_routers_the_one_that_answers_is_in_use() -> None:
    fabric = StubFabric()
    value: Node = fabric.compiler.facts.peek(Kind.NODE)["n1"]
    two = replace(value, gateways=(parse_ip(ROUTER), parse_ip("192.168.77.2")))
    silent = neighbor("n1", ROUTER_MAC, ROUTER, reachable=False)
    answering = neighbor("n1", "fe:00:00:00:77:02", "192.168.77.2")
    fabric.compiler.run([Change(Kind.NODE, "n1", two), silent, answering])
    first, second = nodes(fabric)["n1"]["routers"]
    assert (first["address"], first["mac"], first["reachable"], first["used"]) == (ROUTER, ROUTER_MAC, False, False)
    assert (second["mac"], second["reachable"], second["used"]) == ("fe:00:00:00:77:02", True, True)


# --- ways -----------------------------------------------------------------------------------------------------------


def test_the_way_to_a_peer_of_the_segment_is_its_mac() -> None:
    found = ways(StubFabric())
    assert found["n2", 4] == {
        "node": "n2", "family": 4, "way": "direct", "address": None, "mac": "aa:00:00:00:00:02", "reason": "",
    }  # fmt: skip
    assert found["n2", 6]["way"] == "direct"
    assert not [key for key in found if key[0] == "n1"], "no way to itself"


def test_an_unknown_mac_is_the_reason_for_the_way_by_the_host() -> None:
    way = ways(StubFabric(settings=Settings(mac_sources=())))["n2", 4]
    assert (way["way"], way["reason"]) == ("gateway", "the MAC of its uplink is not known")


def test_the_way_into_another_subnet_is_the_router_once_it_is_known() -> None:
    fabric = StubFabric()
    assert ways(fabric)["n3", 4]["reason"] == f"the MAC of {ROUTER} is not known"
    fabric.compiler.run([neighbor("n1", ROUTER_MAC, ROUTER)])
    found = ways(fabric)
    assert found["n3", 4]["way"] == "router"
    assert (found["n3", 4]["address"], found["n3", 4]["mac"]) == (ROUTER, ROUTER_MAC)
    assert found["n3", 6]["way"] == "gateway", "each family by itself"


def test_without_a_next_hop_the_host_is_the_way() -> None:
    fabric = StubFabric()
    value: Node = fabric.compiler.facts.peek(Kind.NODE)["n1"]
    fabric.compiler.run([Change(Kind.NODE, "n1", replace(value, gateways=()))])
    assert ways(fabric)["n3", 4]["reason"] == "no next hop is named"


@pytest.mark.parametrize(("mode", "near"), [(TrafficMode.HYBRID, "direct"), (TrafficMode.ENCAP, "tunnel")])
def test_a_tunnel_leads_to_the_peers_first_address(mode: TrafficMode, near: str) -> None:
    fabric = StubFabric(settings=Settings(traffic_mode=mode))
    found = ways(fabric)
    assert found["n2", 4]["way"] == near
    assert (found["n3", 6]["way"], found["n3", 6]["address"]) == ("tunnel", "192.168.88.103")
    assert found["n3", 4]["reason"] == "no port tun0 of its switch is known"
    assert "tun0" in nodes(fabric)["n1"]["ports_missing"]
    fabric.compiler.run([Change(Kind.PORT, port_key("n1", "tun0"), Port(3, 1))])
    assert ways(fabric)["n3", 4]["reason"] == ""
    assert nodes(fabric)["n1"]["ports"]["tunnel"]["number"] == 3


@pytest.mark.parametrize(
    ("uplink", "reason"), [("eth9", "no port eth9 of its switch is known"), (None, "no uplink is named")]
)
def test_without_an_uplink_the_host_is_the_way(uplink: str | None, reason: str) -> None:
    fabric = StubFabric()
    fabric.compiler.run([neighbor("n1", "fe:00:00:00:77:01", ROUTER)])
    assert {ways(fabric)[peer, 4]["reason"] for peer in ("n2", "n3")} == {""}
    value: Node = fabric.compiler.facts.peek(Kind.NODE)["n1"]
    fabric.compiler.run([Change(Kind.NODE, "n1", replace(value, uplink=uplink))])
    found = [ways(fabric)[peer, 4] for peer in ("n2", "n3")]
    assert {(row["way"], row["reason"]) for row in found} == {("gateway", reason)}


@pytest.mark.parametrize(("state", "counts"), [(State.READY, True), (State.OBSERVING, True), (State.READING, False)])
def test_a_port_that_a_switch_lacks_is_a_problem_once_it_was_read(state: State, counts: bool) -> None:
    fabric = StubFabric(settings=Settings(traffic_mode=TrafficMode.HYBRID))
    fabric.connect({1: ("n1", state)})
    found = [*node_rows.wrong_ports(fabric.compiler.facts, fabric.switches.sessions(), lambda dpid, port: True)]
    assert found == [Problem(Kind.NODE, "n1", "port tun0", "its switch has no port of this name")] * counts


def test_a_device_in_place_of_the_tunnel_is_a_problem_that_says_how_to_make_it_one() -> None:
    settings = Settings(traffic_mode=TrafficMode.ENCAP, tunnel=Tunnel.VXLAN)
    fabric = StubFabric(Change(Kind.PORT, "n1 tun0", Port(3, 0x0A03)), settings=settings)
    fabric.connect({1: ("n1", State.READY)})
    rows = fabric.switches.sessions()
    (problem,) = node_rows.wrong_ports(fabric.compiler.facts, rows, lambda dpid, port: (dpid, port) == (1, "tun0"))
    assert (problem.key, problem.field) == ("n1", "port tun0")
    assert "`ovs-vsctl set interface tun0 type=vxlan options:remote_ip=flow options:key=flow`" in problem.reason
    assert [*node_rows.wrong_ports(fabric.compiler.facts, rows, lambda dpid, port: port != "tun0")] == []


def test_asking_for_ways_leaves_the_compiler_as_it_was() -> None:
    """A read that is taken for a task's own would be forgotten wrongly later."""
    fabric = StubFabric()
    reads = set(fabric.compiler.facts.reads)
    ways(fabric)
    assert fabric.compiler.facts.reads == reads


# --- sizes ----------------------------------------------------------------------------------------------------------


def with_mtu(fabric: StubFabric, key: str, mtu: int) -> None:
    value: Pod = fabric.compiler.facts.peek(Kind.POD)[key]
    fabric.compiler.run([Change(Kind.POD, key, replace(value, mtu=mtu))])


def test_a_node_says_the_mtu_of_its_pods() -> None:
    assert nodes(StubFabric())["n1"]["pod_mtu"] == 1500
    found = nodes(StubFabric(settings=Settings(traffic_mode=TrafficMode.HYBRID, uplink_mtu=9000)))["n1"]
    assert (found["uplink_mtu"], found["pod_mtu"]) == (9000, 8950)


def test_pods_too_large_for_their_node_can_be_asked_for() -> None:
    fabric = StubFabric(settings=Settings(traffic_mode=TrafficMode.HYBRID))
    with_mtu(fabric, "default/a", 1500)
    with_mtu(fabric, "default/b", 1450)
    facts = fabric.compiler.facts
    (row,) = pod_rows.pods(facts, fabric.problems(), mtu="wrong")
    assert (row["name"], row["mtu"], row["mtu_most"], row["mtu_wrong"]) == ("default/a", 1500, 1450, True)
    assert row["problems"][0]["field"] == "metadata.annotations[signalbox.dev/mtu]"
    right = {row["name"]: row["mtu"] for row in pod_rows.pods(facts, [], mtu="right")}
    assert right["default/b"] == 1450
    assert "default/a" not in right


def test_pods_can_be_asked_for_by_node() -> None:
    fabric = StubFabric()
    everything = {row["name"]: row["node"] for row in pod_rows.pods(fabric.compiler.facts, [])}
    on_n1 = [row["name"] for row in pod_rows.pods(fabric.compiler.facts, [], node="n1")]
    assert sorted(on_n1) == sorted(name for name, at in everything.items() if at == "n1")
    assert len(on_n1) < len(everything)
