"""One winner for each thing that several objects want, whatever the order; and what follows from endpoints."""

from itertools import permutations

import pytest

from pipelines.addresses import parse_cidr, parse_ip, parse_mac
from pipelines.compiler import Compiler
from pipelines.derived import Derived, service_port_key
from pipelines.model import Change, Endpoint, Invalid, Kind, MacSource, Problem, Protocol, Service, ServicePort
from pipelines.tables import ARP, ROUTE
from tests.pipelines.objects import (
    compiled,
    evidence,
    flows_of,
    gone,
    ips,
    node,
    node_ports,
    operator,
    pod,
    port,
    service,
    service_cidr,
    slice_,
    small_cluster,
)


def owners(compiler: Compiler) -> dict[str, str]:
    return {prefix: home.node for prefix, home in compiler.facts.peek(Derived.POD_CIDR).items()}


def reasons(compiler: Compiler) -> list[str]:
    return [str(problem) for problem in compiler.problems()]


def in_every_order(*changes: Change) -> list[Compiler]:
    """Compilers that heard of the changes one by one, in every order, and one that heard all at once."""
    found = [compiled(*changes)]
    for order in permutations(changes):
        compiler = Compiler()
        for change in order:
            compiler.run([change])
        found.append(compiler)
    return found


def targets(compiler: Compiler, service_name: str = "web", name: str = "", family: int = 4) -> list[str]:
    key = service_port_key(f"default/{service_name}", name, Protocol.TCP, family)
    found = compiler.facts.peek(Derived.SERVICE_PORT)[key]
    return [f"{target.ip}:{target.port}" for target in found.targets]


# --- nodes -------------------------------------------------------------------------------------------------


def test_of_overlapping_pod_cidrs_the_oldest_nodes_wins_whatever_the_order() -> None:
    wide = node("b-wide", ["10.10.0.0/16"], created="2024-01-02")
    old = node("old", ["10.10.1.0/24"], created="2024-01-01")
    young = node("a-young", ["10.10.1.128/25"], created="2024-01-03")
    for compiler in in_every_order(wide, old, young):
        assert owners(compiler) == {"10.10.1.0/24": "old"}
        assert reasons(compiler) == [
            "Node a-young: spec.podCIDRs: 10.10.1.128/25 overlaps 10.10.1.0/24 of the older Node old; it is not routed",
            "Node b-wide: spec.podCIDRs: 10.10.0.0/16 overlaps 10.10.1.0/24 of the older Node old; it is not routed",
        ]


def test_a_loser_of_overlapping_pod_cidrs_wins_once_the_older_node_is_gone() -> None:
    old = node("old", ["10.10.1.0/24"], created="2024-01-01")
    compiler = compiled(old, node("b-wide", ["10.10.0.0/16"], created="2024-01-02"))
    compiler.run([gone(old)])
    assert owners(compiler) == {"10.10.0.0/16": "b-wide"}
    assert reasons(compiler) == []


def test_of_equal_pod_cidrs_the_oldest_nodes_wins_and_names_break_a_tie() -> None:
    first, second = node("a", ["10.10.1.0/24"]), node("b", ["10.10.1.0/24"])
    for compiler in in_every_order(first, second):
        assert owners(compiler) == {"10.10.1.0/24": "a"}
        assert reasons(compiler) == [
            "Node b: spec.podCIDRs: 10.10.1.0/24 belongs to the older Node a; it is not routed to this Node"
        ]


def test_neighbouring_pod_cidrs_do_not_overlap() -> None:
    compiler = compiled(node("a", ["10.10.0.0/25", "fd00::/65"]), node("b", ["10.10.0.128/25", "fd00:0:0:0:8000::/65"]))
    assert len(compiler.facts.peek(Derived.POD_CIDR)) == 4
    assert reasons(compiler) == []


def test_a_datapath_id_serves_the_oldest_node_that_names_it() -> None:
    old, young = node("old", datapath_id=7, created="2024-01-01"), node("a-young", datapath_id=7, created="2024-01-02")
    for compiler in in_every_order(old, young):
        members = compiler.facts.peek(Derived.MEMBER)
        assert [member.node for member in members.values()] == ["old"]
        assert len(reasons(compiler)) == 1
        assert "Node a-young: metadata.annotations[signalbox.dev/datapath-id]" in reasons(compiler)[0]
        revision = compiler.run([gone(old)])
        assert revision.members[7] is not None
        assert revision.members[7].node == "a-young"


def test_a_datapath_id_that_no_node_names_any_more_has_no_member() -> None:
    only = node("only", datapath_id=7)
    assert compiled(only).run([gone(only)]).members == {7: None}


def test_a_nodes_zone_of_segments_follows_its_first_address_of_each_family() -> None:
    compiler = compiled(
        node("n", addresses=["192.168.77.101/24", "10.0.0.1/8", "fd00:77::101"], datapath_id=1),
    )
    names = {scope.name for scope in compiler.facts.peek(Derived.MEMBER)[f"{1:016x}"].scopes}
    assert names == {"", "n", "192.168.77.0/24", "6:"}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((MacSource.SWITCH, MacSource.ANNOTATION), ("aa:00:00:00:00:01", "switch")),
        ((MacSource.ANNOTATION, MacSource.SWITCH), ("aa:00:00:00:00:02", "annotation")),
        ((), ("aa:00:00:00:00:03", "read-back")),
    ],
)
def test_a_peers_mac_comes_from_the_sources_in_their_order(
    sources: tuple[MacSource, ...], expected: tuple[str, str]
) -> None:
    compiler = compiled(
        operator(mac_sources=sources),
        node("n", mac="aa:00:00:00:00:02"),
        port("n", "eth1", 1, "aa:00:00:00:00:01"),
        evidence("n", "aa:00:00:00:00:03"),
    )
    assert compiler.facts.peek(Derived.NODE_NETWORK)["n"].mac == (parse_mac(expected[0]), expected[1])


@pytest.mark.parametrize("useless", ["00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff"])
def test_a_mac_that_no_station_can_have_is_reported_and_the_next_source_counts(useless: str) -> None:
    compiler = compiled(node("n", mac="aa:00:00:00:00:02"), port("n", "eth1", 1, useless))
    assert compiler.facts.peek(Derived.NODE_NETWORK)["n"].mac == (parse_mac("aa:00:00:00:00:02"), "annotation")
    assert len(reasons(compiler)) == 1
    assert f"{useless} from switch is no station's MAC" in reasons(compiler)[0]


def test_ports_and_macs_of_a_deleted_node_are_forgotten_also_those_just_submitted() -> None:
    there = node("n", mac="aa:00:00:00:00:02", datapath_id=1)
    ports = [*node_ports("n", "aa:00:00:00:00:01", "0a:00:00:00:00:01"), evidence("n", "aa:00:00:00:00:03")]
    at_once = Compiler()
    at_once.run([there, *ports, gone(there)])
    in_steps = compiled(there, *ports)
    in_steps.run([gone(there)])
    for compiler in (at_once, in_steps):
        assert compiler.facts.peek(Kind.PORT) == {}
        assert compiler.facts.peek(Kind.EVIDENCE) == {}


def test_ports_submitted_before_a_running_compilation_are_forgotten_with_their_node() -> None:
    there, ports = node("n"), node_ports("n", "aa:00:00:00:00:01", "0a:00:00:00:00:01")
    compiler = Compiler()
    compiler.submit([*[node(f"other-{number}") for number in range(40)], there, *ports])
    steps = compiler.compile()
    next(steps)
    compiler.submit([gone(there)])
    for _ in steps:
        pass
    compiler.run()
    assert compiler.facts.peek(Kind.PORT) == {}


def test_settings_that_are_gone_are_the_defaults() -> None:
    compiler = compiled(operator(service_cidrs=(parse_cidr("10.96.0.0/16"),)))
    compiler.run([gone(operator())])
    assert compiler.units == compiled().units
    assert compiler.units


def test_an_object_that_becomes_invalid_is_as_absent_and_says_why() -> None:
    problem = Problem("Pod", "default/a", "status.podIPs", "is wrong")
    compiler = compiled(pod("a", "n1", "10.10.1.10"))
    compiler.run([Change(Kind.POD, "default/a", Invalid((problem,)))])
    assert compiler.facts.peek(Derived.LOCAL_POD) == {}
    assert compiler.problems() == [problem]
    compiler.run([gone(pod("a", "n1"))])
    assert compiler.problems() == []


# --- pods --------------------------------------------------------------------------------------------------


def test_a_pod_address_belongs_to_the_oldest_pod_whatever_the_order() -> None:
    old = pod("old", "n1", "10.10.1.10", created="2024-01-01")
    young = pod("a-young", "n2", "10.10.1.10", created="2024-01-02")
    for compiler in in_every_order(old, young, node("n1", ["10.10.1.0/24"]), node("n2")):
        assert list(compiler.facts.peek(Derived.LOCAL_POD)) == ["default/old"]
        assert len(reasons(compiler)) == 1
        assert "Pod default/a-young: status.podIPs" in reasons(compiler)[0]


def test_a_pod_that_lost_the_address_its_mac_follows_from_is_not_served_by_the_rest() -> None:
    """Two ports with one MAC, and so one link-local address, would answer for each other."""
    old = pod("old", "n1", "10.10.1.10", created="2024-01-01")
    young = pod("a-young", "n1", "10.10.1.10", "fd00:10:1::11", created="2024-01-02")
    for compiler in in_every_order(old, young, node("n1"), node("n2")):
        assert list(compiler.facts.peek(Derived.LOCAL_POD)) == ["default/old"]


def test_a_pod_that_lost_another_address_keeps_the_rest() -> None:
    old = pod("old", "n1", "10.10.1.10", "fd00:10:1::10", created="2024-01-01")
    young = pod("a-young", "n1", "10.10.1.11", "fd00:10:1::10", created="2024-01-02")
    for compiler in in_every_order(old, young):
        assert compiler.facts.peek(Derived.LOCAL_POD)["default/a-young"].ips == ips("10.10.1.11")


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("10.10.1.1", "the gateway of podCIDR 10.10.1.0/24"),
        ("10.10.1.2", "the SNAT address of podCIDR 10.10.1.0/24"),
        ("fd00:10:2::1", "the gateway of podCIDR fd00:10:2::/64"),
        ("192.168.77.102", "an address of Node n2"),
        ("169.254.0.253", "the virtual address"),
    ],
)
def test_a_pod_cannot_take_an_address_that_stands_for_something_else(address: str, whose: str) -> None:
    compiler = compiled(*small_cluster(), pod("thief", "n1", address))
    before = compiled(*small_cluster())
    assert "default/thief" not in compiler.facts.peek(Derived.LOCAL_POD)
    assert reasons(compiler) == [f"Pod default/thief: status.podIPs: {address} is {whose}; ignored here"]
    assert flows_of(compiler, "n1") == flows_of(before, "n1")


def test_a_pods_address_comes_free_when_the_pod_cidr_moves_away() -> None:
    first = pod("first", "n1", "10.10.1.1")
    compiler = compiled(node("n1", ["10.10.1.0/24"]), first)
    assert compiler.facts.peek(Derived.LOCAL_POD) == {}
    compiler.run([node("n1", ["10.10.0.0/23"])])
    assert list(compiler.facts.peek(Derived.LOCAL_POD)) == ["default/first"]


def test_a_pod_without_a_node_claims_no_address() -> None:
    early, late = (pod("early", "", "10.10.1.10", created="2023"), pod("late", "n1", "10.10.1.10", created="2024"))
    compiler = compiled(early, late, node("n1", ["10.10.1.0/24"]))
    assert list(compiler.facts.peek(Derived.LOCAL_POD)) == ["default/late"]
    assert reasons(compiler) == []


def test_a_pod_without_a_port_has_no_flows_until_the_switch_shows_the_port() -> None:
    compiler = compiled(*small_cluster())
    before = flows_of(compiler, "n1")
    compiler.run([pod("new", "n1", "10.10.1.77")])
    assert [flow for flow in flows_of(compiler, "n1") if flow not in before and flow.table in (ARP.id, ROUTE.id)] == []


# --- services and endpoints --------------------------------------------------------------------------------


def test_a_cluster_ip_and_port_belong_to_the_oldest_service_whatever_the_order() -> None:
    old = service("old", ["10.96.0.10"], ("", "TCP", 80), created="2024-01-01")
    young = service("a-young", ["10.96.0.10"], ("", "TCP", 80), ("more", "TCP", 81), created="2024-01-02")
    for compiler in in_every_order(old, young):
        owners = {key: front.service for key, front in compiler.facts.peek(Derived.FRONTEND).items()}
        assert owners == {"10.96.0.10 TCP 80": "default/old", "10.96.0.10 TCP 81": "default/a-young"}
        assert len(reasons(compiler)) == 1
        assert "Service default/a-young: spec.ports" in reasons(compiler)[0]


def test_a_cluster_ip_comes_before_an_external_ip_however_old() -> None:
    old = service("old", ["10.96.0.9"], ("", "TCP", 80), created="2024-01-01", external_ips=ips("10.96.0.10"))
    young = service("young", ["10.96.0.10"], ("", "TCP", 80), created="2024-01-02")
    for compiler in in_every_order(old, young):
        assert compiler.facts.peek(Derived.FRONTEND)["10.96.0.10 TCP 80"].service == "default/young"
        said = "external IP 10.96.0.10 port 80/TCP belongs to Service default/young; ignored here"
        assert reasons(compiler) == [f"Service default/old: spec.externalIPs: {said}"]


def test_a_node_port_that_takes_what_is_for_an_endpoint_of_a_host_is_told() -> None:
    host = node("n1", ("10.10.1.0/24",), ("192.168.77.101/24",), datapath_id=1)
    web = service("web", ["10.96.0.10"], ("", "TCP", 80))
    at_host = slice_("web", "web", ["192.168.77.101"], ("", "TCP", 8080))
    ports = (ServicePort("", Protocol.TCP, 80, node_port=8080),)
    greedy = Change(
        Kind.SERVICE, "default/greedy", Service("default", "greedy", cluster_ips=ips("10.96.0.11"), ports=ports)
    )
    takes = "NodePort 8080/TCP of IPv4 takes what is for 192.168.77.101 port 8080/TCP"
    reason = f"{takes}, where an endpoint on Node n1 listens"
    for compiler in in_every_order(host, web, at_host, greedy):
        assert reasons(compiler) == [f"Service default/greedy: spec.ports[].nodePort: {reason}"]
        compiler.run([operator(node_port_addresses=(parse_cidr("192.168.88.0/24"),))])
        assert not [one for one in reasons(compiler) if "greedy" in one]
    own = slice_("own", "greedy", ["192.168.77.101"], ("", "TCP", 8080))
    assert reasons(compiled(host, web, at_host, greedy, own)) == [], "its own endpoint, asked directly"


@pytest.mark.parametrize(
    ("ip", "whose"),
    [("10.96.0.11", "in the service range 10.96.0.0/16"), ("10.10.1.2", "the SNAT address of podCIDR 10.10.1.0/24")],
)
def test_an_endpoint_where_nothing_can_listen_is_told(ip: str, whose: str) -> None:
    others = service_cidr("10.96.0.0/16"), node("n1", ("10.10.1.0/24",), ("192.168.77.101/24",), datapath_id=1)
    wrong = slice_("web", "web", ["10.10.1.10", ip], ("", "TCP", 8080))
    for compiler in in_every_order(*others, wrong, service("web", ["10.96.0.10"], ("", "TCP", 80))):
        assert reasons(compiler) == [f"EndpointSlice default/web: endpoints: {ip} is {whose}; no connection gets there"]


def test_endpoints_above_the_cap_are_left_out_lowest_address_first_whatever_the_order() -> None:
    settings = operator(endpoints_per_service_port=2)
    web = service("web", ["10.96.0.10"], ("", "TCP", 80))
    high, low = (
        slice_("high", "web", ["10.10.9.9", "10.10.1.100"], ("", "TCP", 8080)),
        slice_("low", "web", ["10.10.1.9"], ("", "TCP", 8080)),
    )
    for compiler in in_every_order(settings, web, high, low):
        assert targets(compiler) == ["10.10.1.9:8080", "10.10.1.100:8080"]
        assert reasons(compiler) == [
            "Service default/web: endpoints: port 80/TCP has 3 IPv4 endpoints; only the 2 lowest addresses are used"
        ]


def test_an_endpoint_in_two_slices_counts_once() -> None:
    compiler = compiled(
        service("web", ["10.96.0.10"], ("", "TCP", 80)),
        slice_("one", "web", ["10.10.1.10"], ("", "TCP", 8080)),
        slice_("two", "web", ["10.10.1.10", "10.10.2.10"], ("", "TCP", 8080)),
    )
    assert targets(compiler) == ["10.10.1.10:8080", "10.10.2.10:8080"]


def states(*listed: tuple[str, bool, bool, bool]) -> list[str]:
    """The endpoints that get new connections, of some with (address, ready, serving, terminating)."""
    found = [
        Endpoint(parse_ip(ip), ready=ready, serving=serving, terminating=terminating)
        for ip, ready, serving, terminating in listed
    ]
    web = service("web", ["10.96.0.10"], ("", "TCP", 80))
    return targets(compiled(web, slice_("web", "web", found, ("", "TCP", 8080))))


READY = ("10.10.1.1", True, True, False)
UNREADY = ("10.10.1.2", False, False, False)
SERVING_TERMINATING = ("10.10.1.3", False, True, True)
DEAD_TERMINATING = ("10.10.1.4", False, False, True)
PUBLISHED_NOT_READY = ("10.10.1.5", True, False, False)
STARTING = ("10.10.1.6", False, True, False)


def test_unready_and_terminating_endpoints_get_nothing_while_one_is_ready() -> None:
    assert states(READY, UNREADY, SERVING_TERMINATING, DEAD_TERMINATING, STARTING) == ["10.10.1.1:8080"]


def test_serving_terminating_endpoints_are_used_only_when_none_is_ready() -> None:
    assert states(UNREADY, SERVING_TERMINATING, DEAD_TERMINATING, STARTING) == ["10.10.1.3:8080"]


def test_a_terminating_endpoint_that_serves_no_more_never_gets_a_connection() -> None:
    assert states(UNREADY, DEAD_TERMINATING, STARTING) == []


def test_a_published_endpoint_is_used_though_it_does_not_serve() -> None:
    assert states(PUBLISHED_NOT_READY, UNREADY) == ["10.10.1.5:8080"]


def test_a_ready_endpoint_in_another_slice_beats_a_terminating_one_in_this() -> None:
    web = service("web", ["10.96.0.10"], ("", "TCP", 80))
    terminating = Endpoint(parse_ip("10.10.1.3"), ready=False, serving=True, terminating=True)
    one = slice_("one", "web", [terminating], ("", "TCP", 8080))
    two = slice_("two", "web", ["10.10.1.1"], ("", "TCP", 8080))
    for compiler in in_every_order(web, one, two):
        assert targets(compiler) == ["10.10.1.1:8080"]


def test_a_slices_port_feeds_only_the_service_port_of_its_name_and_protocol() -> None:
    compiler = compiled(
        service("web", ["10.96.0.10"], ("http", "TCP", 80), ("dns", "UDP", 53)),
        slice_("web", "web", ["10.10.1.10"], ("http", "UDP", 8080), ("dns", "UDP", 5353)),
    )
    assert targets(compiler, name="http") == []


def test_a_slice_of_the_other_family_feeds_only_the_other_family() -> None:
    compiler = compiled(
        service("web", ["10.96.0.10", "fd00:96::10"], ("", "TCP", 80)),
        slice_("six", "web", ["fd00:10:1::10"], ("", "TCP", 8080)),
    )
    assert targets(compiler, family=4) == []
    assert targets(compiler, family=6) == ["fd00:10:1::10:8080"]


def test_sctp_has_a_frontend_like_any_other_protocol() -> None:
    compiler = compiled(service("web", ["10.96.0.10"], ("", "SCTP", 80)))
    assert list(compiler.facts.peek(Derived.FRONTEND)) == ["10.96.0.10 SCTP 80"]


def test_service_ranges_come_from_objects_and_from_settings_together() -> None:
    settings, objects = (
        operator(service_cidrs=(parse_cidr("10.96.0.0/16"),)),
        service_cidr("10.96.0.0/16", "10.97.0.0/16"),
    )
    compiler = compiled(settings, objects)
    assert set(compiler.facts.peek(Derived.SERVICE_RANGE)) == {"10.96.0.0/16", "10.97.0.0/16"}
    compiler.run([gone(objects)])
    assert set(compiler.facts.peek(Derived.SERVICE_RANGE)) == {"10.96.0.0/16"}


def test_endpoints_outside_the_pod_network_are_tracked_and_those_inside_follow_their_pod_cidr() -> None:
    compiler = compiled(
        node("n1", ["10.10.1.0/24"]),
        operator(service_cidrs=(parse_cidr("10.96.0.0/16"),)),
        service("web", ["10.96.0.10"], ("", "TCP", 80)),
        slice_("web", "web", ["10.10.1.10", "198.51.100.7"], ("", "TCP", 8080)),
    )
    assert set(compiler.facts.peek(Derived.TRACKED)) == {"10.96.0.0/16", "10.10.1.0/24", "198.51.100.7"}
    compiler.run([gone(node("n1"))])
    assert set(compiler.facts.peek(Derived.TRACKED)) == {"10.96.0.0/16", "10.10.1.10", "198.51.100.7"}


def test_a_service_address_outside_every_range_is_a_range_of_its_own() -> None:
    compiler = compiled(service("web", ["10.96.0.10"], ("a", "TCP", 80), ("b", "UDP", 53)))
    assert set(compiler.facts.peek(Derived.LONE_ADDRESS)) == {"10.96.0.10"}
    assert set(compiler.facts.peek(Derived.TRACKED)) == {"10.96.0.10"}
    compiler.run([service_cidr("10.96.0.0/16")])
    assert compiler.facts.peek(Derived.LONE_ADDRESS) == {}
    assert set(compiler.facts.peek(Derived.TRACKED)) == {"10.96.0.0/16"}


def test_a_range_of_one_address_and_that_address_are_tracked_once() -> None:
    compiler = compiled(service_cidr("10.96.0.10/32"), node("n1", addresses=["10.96.0.10/24"]))
    assert list(compiler.facts.peek(Derived.TRACKED)) == ["10.96.0.10"]


def test_no_two_kinds_of_facts_share_a_name() -> None:
    """They are texts, and texts that are equal would be one key."""
    assert len({*map(str, Kind), *map(str, Derived)}) == len(Kind) + len(Derived)
