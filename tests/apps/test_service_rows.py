"""What is said about services: every frontend, who has it, which endpoints clients get on which node, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from apps import service_rows
from apps.answers import Row
from pipelines import fields as f
from pipelines.actions import ToGroup
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.model import (
    Change,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Kind,
    Policy,
    Protocol,
    Served,
    Service,
    ServicePort,
    Settings,
)
from pipelines.tables import SERVICE_LB
from tests.apps.stub import StubFabric

KEY = "default/kiosk"
OUTER: dict[str, Any] = {"load_balancer_ips": ("198.18.0.10",), "external_ips": ("198.18.0.20",)}


def service(name: str = "kiosk", ip: str = "10.96.0.99", port: int = 80, node_port: int = 31080, **more: Any) -> Change:
    """A young one: any other that wants the same keeps it."""
    more = {"created": "2999-01-01T00:00:00Z"} | more
    for field in ("load_balancer_ips", "external_ips"):
        more[field] = tuple(map(parse_ip, more.get(field, ())))
    ports = (ServicePort("http", Protocol.TCP, port, node_port),)
    return Change(
        Kind.SERVICE, f"default/{name}", Service("default", name, cluster_ips=(parse_ip(ip),), ports=ports, **more)
    )


def slice_(*endpoints: Endpoint, name: str = "kiosk") -> Change:
    value = EndpointSlice("default", name, f"default/{name}", (EndpointPort("http", Protocol.TCP, 8080),), endpoints)
    return Change(Kind.ENDPOINT_SLICE, f"default/{name}", value)


def at(ip: str, node: str = "", **more: Any) -> Endpoint:
    return Endpoint(parse_ip(ip), node=node, **more)


TWO = slice_(at("10.10.1.20", "n1"), at("10.10.2.20", "n2"))


def rows(fabric: StubFabric) -> dict[str, Row]:
    return {row["name"]: row for row in service_rows.services(fabric.compiler.facts, fabric.problems())}


def fronts(row: Row) -> dict[str, Row]:
    """By kind of address, of those in IPv4."""
    return {front["entrance"]: front for front in row["frontends"] if ":" not in front["address"]}


def zoned(name: str, zone: str) -> Change:
    value = StubFabric().compiler.facts.peek(Kind.NODE)[name]
    return Change(Kind.NODE, name, replace(value, zone=zone))


# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_service_lists_its_endpoints_in_both_families() -> None:
    found = rows(StubFabric())["default/web"]
    assert found["state"] == "served"
    by = {(front["address"], front["protocol"]): front for front in found["frontends"]}
    used = {one["address"] for one in by["10.96.0.80", "TCP"]["endpoints"]}
    assert used == {"10.10.1.20", "10.10.2.20", "10.10.3.20"}
    assert all(":" in one["address"] for one in by["fd00:96::50", "UDP"]["endpoints"])
    assert all(front["group"] for front in found["frontends"])
    assert {one["address"] for one in found["endpoints"] if ":" not in one["address"]} == used


def test_every_frontend_tells_what_kind_it_is_and_whom_it_serves() -> None:
    more: dict[str, Any] = {
        "external_policy": Policy.LOCAL,
        "affinity": 600,
        "source_ranges": (parse_cidr("198.51.100.0/24"),),
    }
    found = rows(StubFabric(service(**OUTER, **more, health_check_port=31000), TWO))[KEY]
    shown = {
        kind: (front["address"], front["port"], front["policy"], front["sources"])
        for kind, front in fronts(found).items()
    }
    assert shown == {
        "ClusterIP": ("10.96.0.99", 80, "Cluster", []),
        "NodePort": ("0.0.0.0", 31080, "Local", []),
        "load balancer": ("198.18.0.10", 80, "Local", ["198.51.100.0/24"]),
        "external IP": ("198.18.0.20", 80, "Local", []),
    }
    assert {front["state"] for front in found["frontends"]} == {"served"}
    assert (found["affinity_seconds"], found["source_ranges"]) == (600, ["198.51.100.0/24"])
    assert (found["internal_policy"], found["external_policy"]) == ("Cluster", "Local")
    assert found["health_check_port"] == 31000
    assert rows(StubFabric())["default/web"]["affinity_seconds"] is None


def test_a_service_without_endpoints_says_so() -> None:
    found = rows(StubFabric(service()))[KEY]
    assert found["state"] == "no endpoints"
    assert found["frontends"][0]["reason"] == "new connections are refused"
    assert found["frontends"][0]["group"] is None


def test_endpoints_tell_where_they_are_their_state_and_whether_they_are_used() -> None:
    ending = at("10.10.2.20", "n2", ready=False, serving=True, terminating=True, for_zones=("b",))
    found = rows(StubFabric(service(), slice_(at("10.10.1.20", "n1", for_nodes=("n1",)), ending)))[KEY]
    (one, two) = found["endpoints"]
    assert one == {
        "address": "10.10.1.20", "port": 8080, "port_name": "http", "protocol": "TCP", "node": "n1", "ready": True,
        "serving": True, "terminating": False, "used": True, "for_zones": [], "for_nodes": ["n1"], "slice": "kiosk",
    }  # fmt: skip
    assert (two["ready"], two["serving"], two["terminating"], two["used"]) == (False, True, True, False)
    assert two["for_zones"] == ["b"]
    assert rows(StubFabric(service(), slice_(ending)))[KEY]["endpoints"][0]["used"], "when none is ready"


# --- conflicts ------------------------------------------------------------------------------------------------------


def test_of_two_services_with_one_address_the_younger_is_told() -> None:
    found = rows(StubFabric(service("thief", ip="10.96.0.80"), slice_(at("10.10.1.20"), name="thief")))
    assert found["default/web"]["state"] == "served"
    thief = found["default/thief"]
    assert thief["state"] == "conflict"
    lost = fronts(thief)["ClusterIP"]
    assert (lost["state"], lost["holder"]) == ("conflict", "default/web")
    assert lost["reason"].endswith("belongs to the older Service default/web; ignored here")
    assert (lost["served"], lost["group"], lost["endpoints"]) == (False, None, [])
    kept = fronts(thief)["NodePort"]
    assert (kept["state"], kept["served"]) == ("served", True), "it keeps what nobody else wants"
    assert kept["group"]
    assert kept["endpoints"]
    assert thief["reason"] == "conflict: ClusterIP 10.96.0.80 port 80/TCP; 1 of 2"
    assert found["default/web"]["reason"] is None
    reason = "ClusterIP 10.96.0.80 port 80/TCP belongs to the older Service default/web; ignored here"
    assert thief["problems"] == [{"field": "spec.ports", "reason": reason}]


def test_conflicts_of_node_ports_and_external_addresses_name_their_fields() -> None:
    old = service("old", ip="10.96.0.98", created="2000-01-01T00:00:00Z", **OUTER)
    fabric = StubFabric(old, service(**OUTER), TWO)
    assert {front["state"] for front in rows(fabric)["default/old"]["frontends"]} == {"no endpoints"}
    assert [(one.key, one.field, one.reason) for one in fabric.problems()] == [
        (KEY, field, f"{thing} belongs to the older Service default/old; ignored here")
        for field, thing in (
            ("spec.externalIPs", "external IP 198.18.0.20 port 80/TCP"),
            ("spec.ports[].nodePort", "NodePort 31080/TCP of IPv4"),
            ("status.loadBalancer.ingress", "load balancer 198.18.0.10 port 80/TCP"),
        )
    ]


def test_services_share_a_load_balancer_address_by_port() -> None:
    one = service("one", ip="10.96.0.97", port=81, node_port=31081, load_balancer_ips=("198.18.0.10",))
    fabric = StubFabric(one, service(load_balancer_ips=("198.18.0.10",)), TWO)
    assert fabric.problems() == []


def test_an_external_ip_of_a_node_leaves_the_ports_of_its_endpoints_alone() -> None:
    api = slice_(at("192.168.77.101", "n1"), name="api")
    fabric = StubFabric(service("api", ip="10.96.0.97", node_port=0), api, TWO,
                        service(port=8080, external_ips=("192.168.77.101",)))  # fmt: skip
    lost = fronts(rows(fabric)[KEY])["external IP"]
    reason = "external IP 192.168.77.101 port 8080/TCP is an endpoint on Node n1; ignored here"
    assert (lost["state"], lost["reason"], lost["holder"]) == ("not served", reason, None)
    assert [(one.field, one.reason) for one in fabric.problems()] == [("spec.externalIPs", reason)]
    fabric.compiler.run([service(port=80, external_ips=("192.168.77.101",))])
    assert fronts(rows(fabric)[KEY])["external IP"]["state"] == "served"


def test_an_address_that_is_a_pods_is_not_served_and_says_whose_it_is() -> None:
    lost = fronts(rows(StubFabric(service(external_ips=("10.10.2.77",)), TWO))[KEY])["external IP"]
    assert lost["state"] == "not served"
    assert lost["reason"] == "10.10.2.77 is in podCIDR 10.10.2.0/24 of Node n2; ignored here"


@pytest.mark.parametrize(
    ("served", "state", "entrances"),
    [
        (Served.ALL, "served", {"ClusterIP", "NodePort", "load balancer", "external IP"}),
        (Served.CLUSTER_IP, "served", {"ClusterIP"}),
        (Served.OFF, "not served", set()),
    ],
)
def test_what_is_left_to_another_proxy_is_not_listed(served: Served, state: str, entrances: set[str]) -> None:
    found = rows(StubFabric(service(**OUTER), TWO, settings=Settings(services=served)))[KEY]
    assert (found["state"], set(fronts(found))) == (state, entrances)


# --- on one node ----------------------------------------------------------------------------------------------------


def choices(fabric: StubFabric, node: str) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """(entrance, clients) → (choice, addresses)."""
    facts = fabric.compiler.facts
    found = service_rows.on_node(KEY, facts.peek(Kind.SERVICE)[KEY], facts.peek(Kind.NODE)[node], facts)
    return {
        (row["entrance"], row["clients"]): (row["choice"], tuple(one["address"] for one in row["endpoints"]))
        for row in found
    }


ALL, OTHERS, ITSELF = service_rows.EVERYBODY, service_rows.ALL_BUT_ITSELF, service_rows.ITSELF
BOTH = ("10.10.1.20", "10.10.2.20")


def test_without_policy_or_hint_clients_get_any_endpoint() -> None:
    assert choices(StubFabric(service(), TWO), "n3") == {
        ("ClusterIP", ALL): ("all", BOTH),
        ("NodePort", OTHERS): ("all", BOTH),
        ("NodePort", ITSELF): ("none", ()),
    }


def test_a_nodes_own_processes_do_not_reach_its_own_addresses() -> None:
    own = ("192.168.77.101", "198.18.0.20")
    facts = (fabric := StubFabric(service(external_ips=own), TWO)).compiler.facts
    rows = service_rows.on_node(KEY, facts.peek(Kind.SERVICE)[KEY], facts.peek(Kind.NODE)["n1"], facts)
    never = {(row["entrance"], row["address"]): row["reason"] for row in rows if row["clients"] == ITSELF}
    assert set(never) == {("NodePort", "0.0.0.0"), ("external IP", "192.168.77.101")}
    assert all("never reach the switch" in reason and "needs the node agent" in reason for reason in never.values())
    assert choices(fabric, "n2")["external IP", ALL] == ("all", BOTH), "another node's address"


def test_an_external_local_policy_binds_clients_outside_only() -> None:
    fabric = StubFabric(service(external_policy=Policy.LOCAL, **OUTER), TWO)
    assert choices(fabric, "n3")["load balancer", service_rows.INSIDE] == ("all", BOTH)
    assert choices(fabric, "n3")["load balancer", service_rows.OUTSIDE] == ("none", ())
    inside, outside = ("NodePort", service_rows.PODS), ("NodePort", service_rows.ELSEWHERE)
    here, elsewhere = choices(fabric, "n1"), choices(fabric, "n3")
    assert here[inside] == elsewhere[inside] == ("all", BOTH)
    assert here[outside] == ("own", ("10.10.1.20",))
    assert elsewhere[outside] == ("none", ())
    assert here["ClusterIP", ALL] == ("all", BOTH)


def test_an_internal_local_policy_binds_everybody() -> None:
    fabric = StubFabric(service(internal_policy=Policy.LOCAL), TWO)
    assert choices(fabric, "n2")["ClusterIP", ALL] == ("own", ("10.10.2.20",))
    assert choices(fabric, "n3")["ClusterIP", ALL] == ("none", ())
    assert choices(fabric, "n3")["NodePort", OTHERS] == ("all", BOTH)


def test_hints_for_the_node_win_over_those_for_its_zone() -> None:
    hinted = slice_(
        at("10.10.1.20", "n1", for_zones=("a",), for_nodes=("n1",)),
        at("10.10.2.20", "n2", for_zones=("a",), for_nodes=("n2",)),
        at("10.10.3.20", "n3", for_zones=("b",), for_nodes=("n3",)),
    )
    fabric = StubFabric(service(), hinted, *(zoned(name, "a") for name in ("n1", "n2")), zoned("n3", "b"))
    assert choices(fabric, "n1")["ClusterIP", ALL] == ("node hints", ("10.10.1.20",))
    zones = slice_(at("10.10.1.20", for_zones=("a",)), at("10.10.2.20", for_zones=("b",)))
    fabric.compiler.run([zones])
    assert choices(fabric, "n2")["ClusterIP", ALL] == ("zone hints", ("10.10.1.20",))
    assert choices(fabric, "n3")["NodePort", OTHERS] == ("zone hints", ("10.10.2.20",))


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_what_a_node_is_said_to_choose_is_what_its_switch_chooses_from(node: str) -> None:
    """Not a second opinion: the flow that decides leads to a group of these endpoints, or drops."""
    fabric = StubFabric(service(internal_policy=Policy.LOCAL), TWO)
    (member,) = (one for one in fabric.fleet.members.values() if one.node == node)
    units = [unit for key, unit in fabric.compiler.units.items() if key.scope in member.scopes]
    to = parse_ip("10.96.0.99").value
    flows = [
        flow
        for unit in units
        for flow in unit.flows
        if flow.table == SERVICE_LB.id and f.IP4_DST.eq(to) in flow.match and f.TCP_DST.eq(80) in flow.match
    ]
    best = max(flows, key=lambda flow: flow.priority)
    groups = {group.id: len(group.buckets) for unit in units for group in unit.groups}
    found = [groups[action.group] for action in best.actions if isinstance(action, ToGroup)]
    _, endpoints = choices(fabric, node)["ClusterIP", ALL]
    assert found == ([len(endpoints)] if endpoints else [])


def test_without_a_ready_endpoint_all_are_refused() -> None:
    fabric = StubFabric(service(external_policy=Policy.LOCAL))
    assert set(choices(fabric, "n1").values()) == {("none", ())}


def test_an_address_that_another_service_has_leads_nowhere_by_this_one() -> None:
    old = service("old", ip="10.96.0.98", created="2000-01-01T00:00:00Z")
    assert set(choices(StubFabric(old, service(), TWO), "n1")) == {("ClusterIP", ALL)}


# --- health checks --------------------------------------------------------------------------------------------------


def test_health_checks_say_that_nobody_answers_them_yet() -> None:
    local = service(external_policy=Policy.LOCAL, health_check_port=31000)
    (row,) = service_rows.health_checks(StubFabric(local, TWO).compiler.facts)
    assert row["answered"] is False


def health(fabric: StubFabric) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        f"{row['service']} {row['port']}": {
            one["node"]: (one["local_endpoints"], one["status"]) for one in row["nodes"]
        }
        for row in service_rows.health_checks(fabric.compiler.facts)
    }


def test_a_load_balancer_is_told_by_each_node_whether_it_has_a_ready_endpoint() -> None:
    endpoints = slice_(
        at("10.10.1.20", "n1"),
        at("10.10.1.21", "n1"),
        at("10.10.2.20", "n2", ready=False, serving=True, terminating=True),
        at("192.0.2.77"),
    )
    local = service(external_policy=Policy.LOCAL, health_check_port=31000)
    assert health(StubFabric(local, endpoints)) == {f"{KEY} 31000": {"n1": (2, 200), "n2": (0, 503), "n3": (0, 503)}}
    assert health(StubFabric(local)) == {f"{KEY} 31000": dict.fromkeys(("n1", "n2", "n3"), (0, 503))}


def test_only_local_services_that_are_served_have_health_checks() -> None:
    local = service(external_policy=Policy.LOCAL, health_check_port=31000)
    assert health(StubFabric(service(health_check_port=31000), TWO)) == {}
    assert health(StubFabric(service(external_policy=Policy.LOCAL), TWO)) == {}
    assert health(StubFabric(local, TWO, settings=Settings(services=Served.CLUSTER_IP))) == {}


# --- announcements --------------------------------------------------------------------------------------------------


def test_addresses_that_are_announced_say_by_whom_and_others_nothing() -> None:
    fabric = StubFabric()
    fabric.compiler.run([service(**OUTER), TWO])
    asked = {"198.18.0.10": ("n2", "announced"), "198.18.0.20": (None, "")}
    said = service_rows.services(fabric.compiler.facts, (), announcement=asked.__getitem__)
    row = next(row for row in said if row["name"] == KEY)
    by = {name: (front["announced_by"], front["announcement"]) for name, front in fronts(row).items()}
    assert by == {
        "ClusterIP": (None, None),
        "NodePort": (None, None),
        "load balancer": ("n2", "announced"),
        "external IP": (None, None),
    }


@pytest.mark.parametrize(
    ("address", "announcement"),
    [
        ("192.168.77.150", "not announced"),
        ("fd00:77::150", "not announced"),
        ("192.168.77.101", None),  # n1's, for which its host answers
        ("192.168.88.200", "not announced"),
        ("198.18.0.10", None),  # in nobody's subnet: routers send it
    ],
)
def test_an_address_in_a_subnet_of_nodes_that_is_in_no_pool_is_not_announced(
    address: str, announcement: str | None
) -> None:
    fabric = StubFabric(service(load_balancer_ips=(address,)), TWO)
    found = {front["address"]: front["announcement"] for front in rows(fabric)[KEY]["frontends"]}
    assert found.pop(address) == announcement
    assert set(found.values()) == {None}


def test_an_address_in_a_pool_is_not_said_to_be_silent() -> None:
    pools = (parse_cidr("192.168.77.128/25"),)
    fabric = StubFabric(service(load_balancer_ips=("192.168.77.150",)), TWO, settings=Settings(announce=pools))
    assert fronts(rows(fabric)[KEY])["load balancer"]["announcement"] is None


@pytest.mark.parametrize(
    ("prefix", "on", "state"), [("192.168.77.0/24", ["192.168.77.0/24"], "served"), ("fd00:77::/64", [], "not served")]
)
def test_node_ports_say_on_which_addresses_they_are(prefix: str, on: list[str], state: str) -> None:
    settings = Settings(node_port_addresses=(parse_cidr(prefix),))
    front = fronts(rows(StubFabric(service(), TWO, settings=settings))[KEY])["NodePort"]
    assert (front["node_addresses"], front["state"]) == (on, state)
    assert fronts(rows(StubFabric(service(), TWO))[KEY])["NodePort"]["node_addresses"] == []
