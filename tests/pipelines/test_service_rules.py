"""What follows from Services beyond ClusterIPs: whose an external address is, and which endpoints are a host's."""

import pytest
from msgspec.structs import replace

from pipelines.addresses import parse_cidr, parse_ip
from pipelines.compiler import Compiler
from pipelines.derived import Derived, Entrance, Frontend, local_choice, zone_choice
from pipelines.model import Change, Endpoint, Kind, Listening, Policy, Served
from tests.pipelines.objects import compiled, ips, node, operator, service, service_cidr, slice_

WEB = ("http", "TCP", 80)
BACK = ("http", "TCP", 8080)
N1 = node("n1", ["10.10.1.0/24"], ["192.168.77.101/24"], created="2024-01-01")
N2 = node("n2", ["10.10.2.0/24"], ["192.168.77.102/24"], created="2024-01-01")


def with_node_port(change: Change, number: int = 30080) -> Change:
    value = change.value
    return change._replace(value=replace(value, ports=tuple(replace(port, node_port=number) for port in value.ports)))  # type: ignore[union-attr,type-var]


def frontends(compiler: Compiler) -> dict[str, Frontend]:
    found: dict[str, Frontend] = compiler.facts.peek(Derived.FRONTEND)
    return found


def said(compiler: Compiler) -> list[str]:
    return [str(problem) for problem in compiler.problems()]


OUTER = {"load_balancer_ips": ips("192.0.2.10"), "external_ips": ips("192.0.2.20")}


@pytest.mark.parametrize(
    ("served", "keys"),
    [
        (
            Served.ALL,
            {"10.96.0.10 TCP 80", "NodePort IPv4 TCP 30080", "192.0.2.10 TCP 80", "192.0.2.20 TCP 80"},
        ),
        (Served.CLUSTER_IP, {"10.96.0.10 TCP 80"}),
        (Served.OFF, set()),
    ],
)
def test_what_is_left_to_another_proxy_has_no_frontend(served: Served, keys: set[str]) -> None:
    web = with_node_port(service("web", ["10.96.0.10"], WEB, **OUTER))
    compiler = compiled(operator(services=served), service_cidr("10.96.0.0/16"), web)
    assert frontends(compiler).keys() == keys
    assert said(compiler) == []
    assert bool(compiler.facts.peek(Derived.SERVICE_RANGE)) is (served is not Served.OFF)


def test_an_address_that_a_service_names_twice_is_what_it_is_first() -> None:
    both = ips("192.0.2.10", "10.96.0.10")
    web = service("web", ["10.96.0.10"], WEB, load_balancer_ips=both, external_ips=both)
    kinds = {key: front.entrance for key, front in frontends(compiled(web)).items()}
    assert kinds == {"10.96.0.10 TCP 80": Entrance.CLUSTER_IP, "192.0.2.10 TCP 80": Entrance.LOAD_BALANCER}


def test_node_ports_are_of_the_families_that_the_service_has() -> None:
    web = with_node_port(service("web", ["fd00:96::10"], WEB, external_ips=ips("192.0.2.20")))
    assert frontends(compiled(web)).keys() == {"fd00:96::10 TCP 80", "NodePort IPv6 TCP 30080", "192.0.2.20 TCP 80"}


def test_source_ranges_hold_for_what_the_settings_say_by_family() -> None:
    ranges = tuple(map(parse_cidr, ("198.51.100.0/24", "2001:db8::/32")))
    web = with_node_port(service("web", ["10.96.0.10"], WEB, **OUTER, source_ranges=ranges))
    for everywhere in (False, True):
        compiler = compiled(operator(source_ranges_everywhere=everywhere), web)
        found = {front.entrance: front.sources for front in frontends(compiler).values()}
        assert found[Entrance.LOAD_BALANCER] == ranges[:1]
        assert found[Entrance.NODE_PORT] == found[Entrance.EXTERNAL_IP] == (ranges[:1] if everywhere else ())
        assert found[Entrance.CLUSTER_IP] == ()


def test_losers_of_a_node_port_and_an_address_are_told_which_and_to_whom() -> None:
    old = with_node_port(service("old", ["10.96.0.10"], WEB, **OUTER, created="2024-01-01"))
    young = with_node_port(service("young", ["10.96.0.11"], WEB, **OUTER, created="2024-01-02"))
    compiler = compiled(young, old)
    assert said(compiler) == [
        f"Service default/young: {field}: {thing} belongs to the older Service default/old; ignored here"
        for field, thing in (
            ("spec.externalIPs", "external IP 192.0.2.20 port 80/TCP"),
            ("spec.ports[].nodePort", "NodePort 30080/TCP of IPv4"),
            ("status.loadBalancer.ingress", "load balancer 192.0.2.10 port 80/TCP"),
        )
    ]
    owners = {front.service for key, front in frontends(compiler).items() if key != "10.96.0.11 TCP 80"}
    assert owners == {"default/old"}


# --- node addresses -------------------------------------------------------------------------------------------------


def test_a_nodes_address_may_be_an_external_one_but_for_the_ports_of_endpoints() -> None:
    """An external IP equal to that of an API server must not take the API server away."""
    api = service("api", ["10.96.0.1"], ("https", "TCP", 443))
    ends = slice_("api", "api", ["192.168.77.101"], ("https", "TCP", 6443))
    thief = service("thief", ["10.96.0.10"], ("a", "TCP", 6443), ("b", "TCP", 80), external_ips=ips("192.168.77.101"))
    compiler = compiled(N1, api, ends, thief)
    assert {key for key in frontends(compiler) if key.startswith("192.")} == {"192.168.77.101 TCP 80"}
    (told,) = said(compiler)
    thing = "external IP 192.168.77.101 port 6443/TCP"
    assert told == f"Service default/thief: spec.externalIPs: {thing} is an endpoint on Node n1; ignored here"
    compiler.run([ends._replace(value=None)])
    assert {key for key in frontends(compiler) if key.startswith("192.")} == {
        "192.168.77.101 TCP 80",
        "192.168.77.101 TCP 6443",
    }


def test_an_address_of_an_endpoint_outside_may_be_an_external_one_but_for_that_port() -> None:
    """The load balancer before the API servers: what it is asked on other ports is its own business, too."""
    api = service("api", ["10.96.0.1"], ("https", "TCP", 443))
    ends = slice_("api", "api", ["198.51.100.6"], ("https", "TCP", 6443))
    thief = service("thief", ["10.96.0.10"], ("a", "TCP", 6443), ("b", "TCP", 80), external_ips=ips("198.51.100.6"))
    compiler = compiled(N1, api, ends, thief)
    assert {key for key in frontends(compiler) if key.startswith("198.")} == {"198.51.100.6 TCP 80"}
    assert compiler.facts.peek(Derived.LONE_ADDRESS).keys().isdisjoint({"198.51.100.6"})
    thing = "external IP 198.51.100.6 port 6443/TCP"
    assert said(compiler) == [
        f"Service default/thief: spec.externalIPs: {thing} is an endpoint of a service; ignored here"
    ]
    compiler.run([ends._replace(value=None)])
    assert "198.51.100.6 TCP 6443" in frontends(compiler)
    assert "198.51.100.6" in compiler.facts.peek(Derived.LONE_ADDRESS)


@pytest.mark.parametrize("field", ["external_ips", "load_balancer_ips"])
def test_no_service_takes_the_controller_from_its_switches(field: str) -> None:
    """They could not come back, and nobody could tell them otherwise."""
    here = Change(Kind.CONTROLLER, "192.168.77.250", Listening(6653))
    thief = service("thief", ["10.96.0.10"], ("a", "TCP", 6653), ("b", "TCP", 80), **{field: ips("192.168.77.250")})
    compiler = compiled(N1, thief, here)
    assert {key for key in frontends(compiler) if key.startswith("192.")} == set()
    (told,) = said(compiler)
    assert told.endswith("192.168.77.250 is where switches find this controller; ignored here")


def test_of_a_controller_on_a_node_its_port_alone_is_taken_by_nobody() -> None:
    here = Change(Kind.CONTROLLER, "192.168.77.101", Listening(6653))
    thief = service("thief", ["10.96.0.10"], ("a", "TCP", 6653), ("b", "TCP", 80), external_ips=ips("192.168.77.101"))
    compiler = compiled(N1, thief, here)
    assert {key for key in frontends(compiler) if key.startswith("192.")} == {"192.168.77.101 TCP 80"}
    (told,) = said(compiler)
    assert told.endswith("port 6653/TCP is where switches find this controller; ignored here")


def test_a_cluster_ip_is_never_a_nodes_address() -> None:
    compiler = compiled(N1, service("web", ["192.168.77.101"], WEB))
    assert frontends(compiler) == {}
    assert "spec.clusterIPs: 192.168.77.101 is an address of Node n1" in said(compiler)[0]


@pytest.mark.parametrize(
    ("address", "cidr"), [("192.168.77.101/24", "10.10.1.0/24"), ("10.10.1.77/24", "10.10.1.0/24")]
)
def test_an_endpoint_at_a_nodes_address_is_known_as_one_also_inside_its_own_pod_cidr(address: str, cidr: str) -> None:
    ip = address.partition("/")[0]
    changes = [service("web", ["10.96.0.10"], WEB), slice_("web", "web", [ip, "10.10.1.9", "198.51.100.1"], BACK)]
    compiler = compiled(*changes)
    assert compiler.facts.peek(Derived.HOST_ENDPOINT) == {}
    compiler.run([node("n1", [cidr], [address])])
    assert compiler.facts.peek(Derived.HOST_ENDPOINT).keys() == {f"{ip} TCP 8080"}
    compiler.run([node("n1", [cidr], ["192.168.77.9/24"])])
    assert compiler.facts.peek(Derived.HOST_ENDPOINT) == {}


# --- hints and policies ---------------------------------------------------------------------------------------------


def test_no_hint_leads_to_an_endpoint_above_the_cap() -> None:
    """It has no flow in endpoint_dnat."""
    hinted = [Endpoint(parse_ip(f"10.10.1.{n}"), node="n1", for_zones=("a",), for_nodes=("n1",)) for n in range(10, 15)]
    web = service("web", ["10.96.0.10"], WEB, internal_policy=Policy.LOCAL)
    compiler = compiled(operator(endpoints_per_service_port=2), web, slice_("web", "web", hinted, BACK))
    (near,) = compiler.facts.peek(Derived.ZONE_BACKENDS).values()
    (here,) = compiler.facts.peek(Derived.NODE_BACKENDS).values()
    known = set(compiler.facts.peek(Derived.ENDPOINT).values())
    assert len(near.targets) == len(here.hinted) == 2
    assert {*near.targets, *here.hinted, *here.local} <= known


def test_every_choice_has_a_group_id_and_loses_it_with_its_last_endpoint() -> None:
    at = "default/web http TCP 4"
    near = slice_("web", "web", [Endpoint(parse_ip("10.10.1.9"), node="n1", for_zones=("a",))], BACK)
    compiler = compiled(service("web", ["10.96.0.10"], WEB, internal_policy=Policy.LOCAL), near)
    assert compiler.facts.peek(Derived.GROUP_ID).keys() == {at, local_choice(at), zone_choice(at)}
    compiler.run([near._replace(value=None)])
    assert compiler.facts.peek(Derived.GROUP_ID).keys() == {at}
