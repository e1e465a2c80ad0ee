"""What a Service says beyond its ClusterIP: by type, with policies, affinity, source ranges and a load balancer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s_bridge.service_facts import NOBODY
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.model import Kind, Policy, Protocol, Service, ServicePort
from tests.bridge.translating import fields, translated

PORTS = ({"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"})
ADDRESSES = {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00:96::10"]}


def found(type_=None, ingress=None, labels=None, **spec):
    content = {
        "metadata": {"name": "web", "namespace": "shop", "labels": labels},
        "spec": {**ADDRESSES, "type": type_, "ports": list(PORTS)} | spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    return translated(Kind.SERVICE, content).value


def service(type_="LoadBalancer", **more):
    value = found(type_, **more)
    assert isinstance(value, Service)
    assert value.cluster_ips == tuple(map(parse_ip, ADDRESSES["clusterIPs"])), "whatever else is wrong"
    assert [port.port for port in value.ports] == [80, 53]
    return value


def ips(*texts):
    return tuple(map(parse_ip, texts))


# --- types ----------------------------------------------------------------------------------------------------------


def test_a_service_has_the_frontends_of_its_type_and_no_others():
    """B19: what an earlier type left in the object (a nodePort, an ingress address) counts no more."""
    ingress = [{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]
    more = {"ingress": ingress, "healthCheckNodePort": 31000, "loadBalancerSourceRanges": ["198.51.100.0/24"]}
    balanced = service("LoadBalancer", **more)
    assert balanced.load_balancer_ips == ips("192.0.2.10", "2001:db8::10")
    assert [port.node_port for port in balanced.ports] == [30080, 0]
    assert (balanced.health_check_port, balanced.source_ranges) == (31000, (parse_cidr("198.51.100.0/24"),))
    on_nodes = service("NodePort", **more)
    assert [port.node_port for port in on_nodes.ports] == [30080, 0]
    for plain in (service("ClusterIP", **more), service(None, **more)):
        assert [port.node_port for port in plain.ports] == [0, 0]
        assert plain.load_balancer_ips == on_nodes.load_balancer_ips == ()
        assert plain.health_check_port == on_nodes.health_check_port == 0
        assert plain.source_ranges == on_nodes.source_ranges == ()
    named = found("ExternalName", externalName="a.example", **more)
    assert named == Service("shop", "web", left_alone=named.left_alone), "nothing that flows could follow from"
    assert service("ClusterIP", **more) == plain, "and back again"


@pytest.mark.parametrize("value", ["other-proxy", ""])
def test_the_label_of_another_proxy_takes_a_service_away_and_gives_it_back(value):
    """B20, KEP-2447."""
    other = found("LoadBalancer", labels={"service.kubernetes.io/service-proxy-name": value})
    assert other == Service("shop", "web", left_alone=other.left_alone)
    assert "another proxy" in other.left_alone
    assert found("LoadBalancer", labels={"app": "web"}).left_alone == ""


def test_a_headless_service_has_no_external_frontends_either():
    value = found("ClusterIP", clusterIP="None", clusterIPs=["None"], externalIPs=["192.0.2.10"])
    assert value == Service("shop", "web", left_alone=value.left_alone)


@pytest.mark.parametrize("text", ["Nodeport", "External", "None"])
def test_a_type_that_kubernetes_does_not_have_is_told_and_means_cluster_ip(text):
    value = service(text)
    assert [port.node_port for port in value.ports] == [0, 0]
    assert fields(value) == ["spec.type"]


# --- load balancer addresses and external IPs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ingress",
    [
        None,
        [],
        [{"hostname": "lb.example"}],
        [{"ip": "192.0.2.10", "ipMode": "Proxy"}],
        [{"ip": ""}, {"ip": None}, {}],
    ],
)
def test_what_a_cloud_answers_for_itself_is_left_alone_without_complaint(ingress):
    """B20: by host name only, or with `ipMode: Proxy` (KEP-1860); ClusterIP and NodePort work all the same."""
    value = service(ingress=ingress)
    assert value.load_balancer_ips == ()
    assert value.problems == ()
    assert value.ports[0].node_port == 30080


def test_addresses_of_a_load_balancer_are_served_beside_those_of_the_cloud():
    value = service(
        ingress=[
            {"hostname": "lb.example", "ip": "192.0.2.10"},
            {"ip": "192.0.2.11", "ipMode": "Proxy"},
            {"ip": "192.0.2.12", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]},
            {"ip": "192.0.2.10"},
        ]
    )
    assert value.load_balancer_ips == ips("192.0.2.10", "192.0.2.12")
    assert value.problems == ()


def test_several_external_ips_of_both_families_keep_their_order():
    value = service("ClusterIP", externalIPs=["2001:db8::1", "192.0.2.2", "192.0.2.1", "192.0.2.2"])
    assert value.external_ips == ips("2001:db8::1", "192.0.2.2", "192.0.2.1")


@pytest.mark.parametrize("wrong", ["192.0.2.300", "0.0.0.0", "127.0.0.1", "224.0.0.1", "::1", "fe80::1%eth0", "lb", ""])
def test_a_wrong_external_address_is_left_out_and_reported_under_its_place(wrong):
    value = service("ClusterIP", externalIPs=["192.0.2.1", wrong])
    assert value.external_ips == ips("192.0.2.1")
    assert fields(value) == ["spec.externalIPs[1]"]
    if wrong:
        value = service(ingress=[{"ip": "192.0.2.1"}, {"ip": wrong}])
        assert value.load_balancer_ips == ips("192.0.2.1")
        assert fields(value) == ["status.loadBalancer.ingress[1].ip"]


# --- ports -----------------------------------------------------------------------------------------------------------


def ports_of(*ports):
    value = found("NodePort", ports=list(ports))
    assert isinstance(value, Service)
    return value


def test_one_node_port_serves_two_protocols():
    same = [{"name": proto, "port": 53, "nodePort": 30053, "protocol": proto} for proto in ("TCP", "UDP", "SCTP")]
    value = ports_of(*same)
    assert value.ports == tuple(ServicePort(proto, Protocol(proto), 53, 30053) for proto in ("TCP", "UDP", "SCTP"))
    assert value.problems == ()


@pytest.mark.parametrize("wrong", [-1, 65536, 30080])
def test_a_node_port_that_cannot_be_used_is_reported_and_its_port_is_served_without(wrong):
    value = ports_of({"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": wrong})
    assert [(port.port, port.node_port) for port in value.ports] == [(80, 30080), (81, 0)]
    assert fields(value) == ["spec.ports[1].nodePort"]


@pytest.mark.parametrize("absent", [0, None])
def test_a_node_port_that_is_not_given_yet_is_no_problem(absent):
    value = ports_of({"name": "a", "port": 80, "nodePort": absent}, {"name": "b", "port": 81, "nodePort": absent})
    assert [port.node_port for port in value.ports] == [0, 0]
    assert value.problems == ()


@pytest.mark.parametrize("wrong", [-1, 65536])
def test_a_wrong_health_check_port_is_left_out_and_reported(wrong):
    value = service(healthCheckNodePort=wrong)
    assert value.health_check_port == 0
    assert fields(value) == ["spec.healthCheckNodePort"]
    assert service(healthCheckNodePort=0).problems == ()


# --- policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policy"), [("Local", Policy.LOCAL), ("Cluster", Policy.CLUSTER), (None, Policy.CLUSTER)]
)
def test_each_policy_is_its_own(text, policy):
    value = service(externalTrafficPolicy=text)
    assert (value.external_policy, value.internal_policy) == (policy, Policy.CLUSTER)
    value = service("ClusterIP", internalTrafficPolicy=text)
    assert (value.external_policy, value.internal_policy) == (Policy.CLUSTER, policy)


@pytest.mark.parametrize("field", ["internalTrafficPolicy", "externalTrafficPolicy"])
def test_an_unknown_policy_counts_as_cluster_and_is_reported(field):
    value = service(**{field: "local"})
    assert (value.internal_policy, value.external_policy) == (Policy.CLUSTER, Policy.CLUSTER)
    assert fields(value) == [f"spec.{field}"]
    assert "'local' is not Cluster or Local" in value.problems[0].reason


# --- affinity --------------------------------------------------------------------------------------------------------

TIMEOUT = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"


def with_timeout(seconds):
    return service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": seconds}})


@pytest.mark.parametrize(
    ("seconds", "counts", "reported"),
    [
        (1, 1, []),
        (65535, 65535, []),
        (65536, 65536, []),
        (86400, 86400, []),
        (86401, 10800, [TIMEOUT]),
        (0, 10800, [TIMEOUT]),
        (-1, 10800, [TIMEOUT]),
        (None, 10800, []),
    ],
)
def test_a_timeout_is_never_wrapped_and_a_wrong_one_is_the_default(seconds, counts, reported):
    """B44: 65536 is neither 0, which is never, nor 65535; 86400 is not 20864."""
    value = with_timeout(seconds)
    assert value.affinity == counts
    assert fields(value) == reported


@pytest.mark.parametrize("config", [None, {}, {"clientIP": None}, {"clientIP": {}}])
def test_affinity_without_a_timeout_lasts_three_hours(config):
    assert service(sessionAffinity="ClientIP", sessionAffinityConfig=config).affinity == 10800


@pytest.mark.parametrize(
    ("text", "reported"), [(None, []), ("", []), ("None", []), ("Cookie", ["spec.sessionAffinity"])]
)
def test_without_affinity_a_timeout_that_was_left_over_means_nothing(text, reported):
    value = service(sessionAffinity=text, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 86400}})
    assert value.affinity == 0
    assert fields(value) == reported


# --- source ranges ---------------------------------------------------------------------------------------------------


def test_source_ranges_may_have_host_bits_spaces_and_no_length_at_all():
    value = service(loadBalancerSourceRanges=["198.51.100.7/24", " 10.0.0.0/8 ", "::/0", "2001:db8::1/32", "0.0.0.0/0"])
    cidrs = ("198.51.100.0/24", "10.0.0.0/8", "::/0", "2001:db8::/32", "0.0.0.0/0")
    assert [str(cidr) for cidr in value.source_ranges] == list(cidrs)
    assert value.problems == ()


def test_one_range_written_in_two_ways_is_one():
    assert len(service(loadBalancerSourceRanges=["10.1.2.3/8", "10.0.0.0/8"]).source_ranges) == 1


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0.0", "office", "", "::ffff:10.0.0.0/96/1"])
def test_a_wrong_range_is_left_out_and_reported_and_the_others_hold(wrong):
    value = service(loadBalancerSourceRanges=[wrong, "198.51.100.0/24"])
    assert value.source_ranges == (parse_cidr("198.51.100.0/24"),)
    assert fields(value) == ["spec.loadBalancerSourceRanges[0]"]


def test_where_every_range_is_wrong_nobody_is_let_in():
    value = service(loadBalancerSourceRanges=["198.51.100.0/33"])
    assert value.source_ranges == NOBODY
    assert fields(value) == ["spec.loadBalancerSourceRanges[0]", "spec.loadBalancerSourceRanges"]
    assert service(loadBalancerSourceRanges=[]).source_ranges == ()


@given(st.integers(0, (1 << 32) - 1), st.integers(0, 32))
def test_a_range_holds_the_address_that_it_was_written_with(number, length):
    text = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    (cidr,) = service(loadBalancerSourceRanges=[f"{text}/{length}"]).source_ranges
    assert parse_ip(text) in cidr
    assert cidr.length == length


# --- one wrong thing of each kind at once ----------------------------------------------------------------------------


def test_every_wrong_value_is_reported_with_object_and_field_and_harms_nothing_else():
    value = service(
        ingress=[{"ip": "192.0.2.10"}, {"ip": "x"}],
        externalIPs=["y", "192.0.2.20"],
        externalTrafficPolicy="Lokal",
        sessionAffinity="ClientIP",
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}},
        loadBalancerSourceRanges=["z", "10.0.0.0/8"],
        healthCheckNodePort=70000,
    )
    assert value.load_balancer_ips == ips("192.0.2.10")
    assert value.external_ips == ips("192.0.2.20")
    assert value.source_ranges == (parse_cidr("10.0.0.0/8"),)
    assert {(problem.kind, problem.key) for problem in value.problems} == {("Service", "shop/web")}
    assert set(fields(value)) == {
        "status.loadBalancer.ingress[1].ip",
        "spec.externalIPs[0]",
        "spec.externalTrafficPolicy",
        TIMEOUT,
        "spec.loadBalancerSourceRanges[0]",
        "spec.healthCheckNodePort",
    }
