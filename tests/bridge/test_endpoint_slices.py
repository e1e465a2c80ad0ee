"""EndpointSlices as Kubernetes has them: conditions, addresses, ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.addresses import parse_ip
from pipelines.model import Endpoint, EndpointPort, EndpointSlice, Invalid, Kind, Protocol
from tests.bridge.translating import fields, translated


def endpoint_slice(endpoints, family="IPv4", ports=({"name": "http", "port": 8080},), labels=None):
    content = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": labels or {"kubernetes.io/service-name": "web"}},
        "addressType": family,
        "ports": list(ports) if ports is not None else None,
        "endpoints": endpoints,
    }
    return translated(Kind.ENDPOINT_SLICE, content).value


def test_absent_conditions_mean_usable_and_published_not_ready_ones_count_as_ready():
    """B30: `{}` and null are ready; ready false is not; ready true with serving false was published as ready."""
    value = endpoint_slice(
        [
            {"addresses": ["10.10.1.1"], "conditions": {}},
            {"addresses": ["10.10.1.2"], "conditions": {"ready": None, "serving": None, "terminating": None}},
            {"addresses": ["10.10.1.3"], "conditions": None},
            {"addresses": ["10.10.1.4"], "conditions": {"ready": False, "serving": True, "terminating": False}},
            {"addresses": ["10.10.1.5"], "conditions": {"ready": True, "serving": False}, "nodeName": "n1"},
            {"addresses": ["10.10.1.6"], "conditions": {"ready": False, "serving": True, "terminating": True}},
        ]
    )
    assert value == EndpointSlice(
        namespace="shop",
        name="web-1",
        service="shop/web",
        ports=(EndpointPort("http", Protocol.TCP, 8080),),
        endpoints=(
            Endpoint(parse_ip("10.10.1.1")),
            Endpoint(parse_ip("10.10.1.2")),
            Endpoint(parse_ip("10.10.1.3")),
            Endpoint(parse_ip("10.10.1.4"), ready=False),
            Endpoint(parse_ip("10.10.1.5"), serving=False, node="n1"),
            Endpoint(parse_ip("10.10.1.6"), ready=False, terminating=True),
        ),
    )


def test_same_address_and_other_port_stay_two_endpoints():
    """B28: hostNetwork pods of one node differ by port, so by slice; nothing is merged across slices."""
    one = endpoint_slice([{"addresses": ["192.168.77.102"]}], ports=[{"name": "http", "port": 8080}])
    two = endpoint_slice([{"addresses": ["192.168.77.102"]}], ports=[{"name": "http", "port": 8081}])
    assert {(slice_.endpoints[0].ip, slice_.ports[0].port) for slice_ in (one, two)} == {
        (parse_ip("192.168.77.102"), 8080),
        (parse_ip("192.168.77.102"), 8081),
    }


@pytest.mark.parametrize(
    ("family", "address"),
    [
        ("IPv4", "fd00:10:1::1"),
        ("IPv6", "10.10.1.1"),
        ("IPv4", "0.0.0.0"),
        ("IPv4", "127.0.0.1"),
        ("IPv4", "224.0.0.1"),
        ("IPv4", "169.254.169.254"),
        ("IPv4", "255.255.255.255"),
        ("IPv6", "::"),
        ("IPv6", "::1"),
        ("IPv6", "ff02::1"),
        ("IPv6", "fe80::1"),
        ("IPv6", "fe80::1%eth0"),
        ("IPv6", "::ffff:10.10.1.1"),
        ("IPv4", "web.example"),
        ("IPv4", ""),
    ],
)
def test_an_address_that_no_endpoint_can_have_is_left_out_and_reported(family, address):
    """B24: v4 holds only v4, v6 only v6; and the special addresses are nobody's."""
    good = "10.10.1.9" if family == "IPv4" else "fd00:10:1::9"
    value = endpoint_slice([{"addresses": [address]}, {"addresses": [good]}], family)
    assert isinstance(value, EndpointSlice)
    assert [endpoint.ip for endpoint in value.endpoints] == [parse_ip(good)]
    assert fields(value) == ["endpoints[0].addresses[0]"]


def test_only_the_first_address_of_an_endpoint_counts_and_none_is_a_problem():
    value = endpoint_slice([{"addresses": ["10.10.1.1", "10.10.1.2"]}, {"addresses": []}, {}])
    assert [endpoint.ip for endpoint in value.endpoints] == [parse_ip("10.10.1.1")]
    assert fields(value) == ["endpoints[1].addresses", "endpoints[2].addresses"]


@given(st.permutations([(False, True), (True, True), (True, False), (False, False)]))
def test_of_two_endpoints_with_one_address_the_useful_one_counts_in_any_order(order):
    endpoints = [
        {"addresses": ["10.10.1.1"], "conditions": {"ready": ready, "terminating": terminating}}
        for ready, terminating in order
    ]
    value = endpoint_slice(endpoints)
    assert value.endpoints == (Endpoint(parse_ip("10.10.1.1")),)
    assert value.problems == ()


@given(st.permutations([f"10.10.1.{number}" for number in range(1, 7)]))
def test_endpoints_in_another_order_are_no_change(addresses):
    in_order = endpoint_slice([{"addresses": [f"10.10.1.{number}"]} for number in range(1, 7)])
    assert endpoint_slice([{"addresses": [address]} for address in addresses]) == in_order


@pytest.mark.parametrize(
    ("ports", "kept", "problems"),
    [
        (None, [], []),
        ([], [], []),
        ([{"name": "http", "port": None}], [], ["ports[0].port"]),
        ([{"port": 80, "protocol": None, "name": None}], [("", "TCP", 80)], []),
        ([{"name": "a", "port": 80}, {"name": "a", "port": 80}], [("a", "TCP", 80)], []),
        ([{"name": "a", "port": 80}, {"name": "a", "port": 81}], [("a", "TCP", 80)], ["ports[1].name"]),
        ([{"name": "a", "port": 80}, {"name": "b", "port": 80}], [("a", "TCP", 80), ("b", "TCP", 80)], []),
        ([{"name": "a", "port": 80, "protocol": "GRE"}], [], ["ports[0].protocol"]),
    ],
)
def test_ports_of_a_slice(ports, kept, problems):
    value = endpoint_slice([{"addresses": ["10.10.1.1"]}], ports=ports)
    assert [(port.name, port.protocol.value, port.port) for port in value.ports] == kept
    assert fields(value) == problems


def test_slices_that_are_not_of_a_service_or_hold_names_do_not_exist():
    assert endpoint_slice([], labels={"app": "x"}) is None
    assert endpoint_slice([], labels={"kubernetes.io/service-name": ""}) is None
    assert endpoint_slice([{"addresses": ["a.example"]}], family="FQDN") is None


@pytest.mark.parametrize("family", [None, "", "IPv5"])
def test_a_slice_of_unknown_family_is_invalid(family):
    value = endpoint_slice([], family=family)
    assert isinstance(value, Invalid)
    assert fields(value) == ["addressType"]


def hinted(hints):
    (endpoint,) = endpoint_slice([{"addresses": ["10.10.1.1"], "hints": hints}]).endpoints
    return endpoint.for_zones, endpoint.for_nodes


@pytest.mark.parametrize(
    ("hints", "zones", "nodes"),
    [
        (None, (), ()),
        ({}, (), ()),
        ({"forZones": None, "forNodes": []}, (), ()),
        ({"forZones": [{"name": "b"}, {"name": "a"}, {"name": "b"}, {"name": ""}, {}]}, ("a", "b"), ()),
        ({"forNodes": [{"name": "n1"}]}, (), ("n1",)),
    ],
)
def test_hints_name_zones_and_nodes_in_any_order(hints, zones, nodes):
    assert hinted(hints) == (zones, nodes)


def test_an_endpoint_may_be_not_ready_and_still_serve_while_it_ends():
    """B30: three conditions, each with its own default."""
    states = [{}, {"ready": False, "serving": True, "terminating": True}, {"ready": False, "serving": False}]
    endpoints = [{"addresses": [f"10.10.1.{n}"], "conditions": state} for n, state in enumerate(states, 1)]
    read = endpoint_slice(endpoints).endpoints
    assert [(one.ready, one.serving, one.terminating) for one in read] == [
        (True, True, False),
        (False, True, True),
        (False, False, False),
    ]
