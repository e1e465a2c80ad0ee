"""Values of wrong types, as people write them: each harms what cannot do without it, and nothing else."""

from typing import Any

import pytest

from k8s_bridge import service_facts
from pipelines.addresses import parse_ip
from pipelines.model import EndpointSlice, Invalid, Kind, Node, Pod, Protocol, Service, ServicePort
from tests.bridge.translating import fields, translated, value_of

META = {"name": "web", "namespace": "shop"}
SPEC = {"type": "LoadBalancer", "clusterIP": "10.96.0.10", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]}
SLICE = {
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"name": "a", "port": 8080}],
    "endpoints": [{"addresses": ["10.10.1.10"], "nodeName": "n1"}, {"addresses": ["10.10.1.11"]}],
}


def service(status: Any = None, **spec: Any) -> Any:
    return translated(Kind.SERVICE, {"metadata": META, "spec": SPEC | spec, "status": status}).value


def slice_of(**content: Any) -> Any:
    return translated(Kind.ENDPOINT_SLICE, SLICE | content).value


GOOD = service()
PORT = {"name": "a", "port": 80, "nodePort": 30080}


def reasons(value):
    return [f"{problem.field}: {problem.reason}" for problem in value.problems]


@pytest.mark.parametrize(
    ("spec", "left", "said"),
    [
        (
            {"ports": [PORT | {"nodePort": "x"}]},
            {"ports": (ServicePort("a", Protocol.TCP, 80),)},
            ['spec.ports[0].nodePort: must be a whole number, not the text "x"'],
        ),
        (
            {"ports": [{"name": "b", "port": "80"}, PORT]},
            {},
            ['spec.ports[0].port: must be a whole number, not the text "80"'],
        ),
        ({"ports": [7, PORT]}, {}, ["spec.ports[0]: must be a mapping, not the number 7"]),
        ({"ports": [None, PORT]}, {}, ["spec.ports[0]: must be a mapping, not null"]),
        ({"ports": [{"port": 81, "name": "b", "protocol": 17}, PORT]}, {},
         ["spec.ports[0].protocol: must be a text, not the number 17: put it in quotes"]),
        (
            {"ports": [PORT | {"name": 80}]},
            {"ports": (ServicePort("", Protocol.TCP, 80, 30080),)},
            ["spec.ports[0].name: must be a text, not the number 80: put it in quotes"],
        ),
        ({"externalIPs": "192.0.2.1"}, {}, ['spec.externalIPs: must be a list, not the text "192.0.2.1"']),
        (
            {"externalIPs": [1.5, "192.0.2.1"]},
            {"external_ips": (parse_ip("192.0.2.1"),)},
            ["spec.externalIPs[0]: must be a text, not the number 1.5: put it in quotes"],
        ),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": "10m"}}},
            {"affinity": service_facts.DEFAULT_AFFINITY},
            ['spec.sessionAffinityConfig.clientIP.timeoutSeconds: must be a whole number, not the text "10m"'],
        ),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": []},
            {"affinity": service_facts.DEFAULT_AFFINITY},
            ["spec.sessionAffinityConfig: must be a mapping, not a list"],
        ),
        ({"externalTrafficPolicy": True}, {},
         ["spec.externalTrafficPolicy: must be a text, not true: put it in quotes"]),
        ({"healthCheckNodePort": 1 << 40}, {},
         ["spec.healthCheckNodePort: must be a number of 32 bits, not the number 1099511627776"]),
        ({"clusterIPs": "10.96.0.11"}, {}, ['spec.clusterIPs: must be a list, not the text "10.96.0.11"']),
        ({"clusterIPs": [5, "10.96.0.10"]}, {},
         ["spec.clusterIPs[0]: must be a text, not the number 5: put it in quotes"]),
    ],
)  # fmt: skip
def test_a_wrong_type_in_a_service_costs_the_smallest_part_that_needs_it(spec, left, said):
    value = service(**spec)
    assert isinstance(value, Service)
    assert reasons(value) == said
    for name in ("cluster_ips", "external_ips", "ports", "affinity", "external_policy", "health_check_port"):
        assert getattr(value, name) == left.get(name, getattr(GOOD, name)), name


def test_source_ranges_of_a_wrong_type_let_nobody_in():
    wrongs: tuple[Any, ...] = ("10.0.0.0/8", [10], {})
    for wrong in wrongs:
        value = service(loadBalancerSourceRanges=wrong)
        assert value.source_ranges == service_facts.NOBODY
        assert len(value.problems) == 2, "what is wrong, and what follows"
    half = service(loadBalancerSourceRanges=[10, "10.0.0.0/8"])
    assert [str(cidr) for cidr in half.source_ranges] == ["10.0.0.0/8"]


def test_a_status_of_a_wrong_type_costs_only_the_addresses_in_it():
    ingress = [{"ip": "192.0.2.80"}, {"ip": 5}]
    assert service({"loadBalancer": {"ingress": ingress}}).load_balancer_ips == (parse_ip("192.0.2.80"),)
    value = service({"loadBalancer": []})
    assert (value.load_balancer_ips, value.ports) == ((), GOOD.ports)
    assert fields(value) == ["status.loadBalancer"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"spec": []}, "spec"),
        ({"spec": SPEC | {"ports": "80"}}, "spec.ports"),
        ({"spec": SPEC | {"clusterIP": 10}}, "spec.clusterIP"),
        ({"spec": SPEC | {"clusterIP": None, "clusterIPs": [10]}}, "spec.clusterIPs[0]"),
    ],
)
def test_a_service_without_what_it_needs_is_invalid(content, field):
    value = translated(Kind.SERVICE, {"metadata": META} | content).value
    assert isinstance(value, Invalid)
    assert fields(value) == [field]


def test_wrong_types_in_metadata_cost_only_themselves():
    meta = META | {"uid": 5, "resourceVersion": 7, "creationTimestamp": 2024, "annotations": [], "labels": "x"}
    got = translated(Kind.SERVICE, {"metadata": meta, "spec": SPEC})
    assert got.key == "shop/web"
    assert isinstance(got.value, Service)
    assert (got.value.uid, got.value.created, got.value.ports) == ("", "", GOOD.ports)
    assert fields(got.value) == [
        f"metadata.{name}" for name in ("uid", "creationTimestamp", "resourceVersion", "annotations", "labels")
    ]


@pytest.mark.parametrize("meta", [META | {"name": 17}, META | {"namespace": ["x"]}])
def test_a_name_of_a_wrong_type_is_no_name(meta):
    got = translated(Kind.SERVICE, {"metadata": meta, "spec": SPEC})
    assert (got.key, got.value) == ("", None)
    assert "must be a text, not" in got.problems[0].reason


def test_a_name_of_an_annotation_that_is_no_text_costs_only_that_annotation():
    annotations = {"signalbox.dev/uplink": "eth0", 5: "x"}
    value = value_of(Kind.NODE, {"metadata": {"name": "n1", "annotations": annotations}})
    assert value.uplink == "eth0"
    assert "the name of an entry must be a text, not the number 5" in value.problems[0].reason


@pytest.mark.parametrize(
    ("first", "used", "said"),
    [
        ("10.10.1.9", ["10.10.1.11"], ["endpoints[0]"]),
        ({"addresses": "10.10.1.9"}, ["10.10.1.11"], ["endpoints[0].addresses"]),
        ({"addresses": [9]}, ["10.10.1.11"], ["endpoints[0].addresses[0]"]),
        ({"addresses": ["10.10.1.9"], "nodeName": 1}, ["10.10.1.9", "10.10.1.11"], ["endpoints[0].nodeName"]),
        ({"addresses": ["10.10.1.9"], "hints": []}, ["10.10.1.9", "10.10.1.11"], ["endpoints[0].hints"]),
        (
            {"addresses": ["10.10.1.9"], "conditions": {"ready": "false"}},
            ["10.10.1.11"],
            ["endpoints[0].conditions.ready", "endpoints[0]"],
        ),
        ({"addresses": ["10.10.1.9"], "conditions": []}, ["10.10.1.11"], ["endpoints[0].conditions", "endpoints[0]"]),
    ],
)
def test_a_bad_endpoint_harms_only_itself(first, used, said):
    value = slice_of(endpoints=[first, {"addresses": ["10.10.1.11"]}])
    assert isinstance(value, EndpointSlice)
    assert [str(one.ip) for one in value.endpoints] == used
    assert fields(value) == said


def test_a_bad_port_of_a_slice_harms_only_itself():
    value = slice_of(ports=[{"name": "b", "port": "x"}, {"name": "a", "port": 8080}])
    assert [port.name for port in value.ports] == ["a"]
    assert fields(value) == ["ports[0].port"]


@pytest.mark.parametrize(
    "content", [{"endpoints": "x"}, {"ports": {}}, {"addressType": 4}, {"metadata": {"name": "a", "labels": 5}}]
)
def test_a_slice_without_what_it_needs_is_invalid(content):
    assert isinstance(slice_of(**content), Invalid)


def test_a_slice_of_no_service_stays_none_of_our_business_whatever_is_wrong_in_it():
    assert slice_of(metadata={"name": "own"}, endpoints=[5]) is None


def test_a_node_keeps_its_other_values():
    content = {
        "metadata": {"name": "n1"},
        "spec": {"podCIDRs": [5, "10.10.1.0/24"]},
        "status": {"addresses": ["x", {"type": "InternalIP", "address": "192.168.77.101"}]},
    }
    value = translated(Kind.NODE, content).value
    assert isinstance(value, Node)
    assert [str(cidr) for cidr in value.pod_cidrs] == ["10.10.1.0/24"]
    assert [str(at.ip) for at in value.addresses] == ["192.168.77.101"]
    assert fields(value) == ["spec.podCIDRs[0]", "status.addresses[0]"]


def test_a_node_needs_its_status_only_where_no_annotation_has_its_addresses():
    meta = {"name": "n1", "annotations": {"signalbox.dev/node-addresses": "192.168.77.101/24"}}
    value = translated(Kind.NODE, {"metadata": meta, "status": []}).value
    assert isinstance(value, Node)
    assert [str(at.ip) for at in value.addresses] == ["192.168.77.101"]
    assert isinstance(translated(Kind.NODE, {"metadata": {"name": "n1"}, "status": []}).value, Invalid)
    assert isinstance(translated(Kind.NODE, {"metadata": meta, "spec": []}).value, Invalid)


def test_a_pod_of_which_nobody_can_tell_whose_network_it_uses_has_no_address():
    status = {"phase": "Running", "podIPs": [{"ip": "10.10.1.10"}]}
    value = translated(Kind.POD, {"metadata": META, "spec": {"hostNetwork": "yes"}, "status": status}).value
    assert isinstance(value, Pod)
    assert value.ips == ()
    assert reasons(value) == ['spec.hostNetwork: must be true or false, not the text "yes"']


def test_a_pod_keeps_its_other_values():
    status = {"phase": 5, "podIPs": [{"ip": "10.10.1.10"}, 7]}
    value = translated(Kind.POD, {"metadata": META, "spec": {"nodeName": 1}, "status": status}).value
    assert isinstance(value, Pod)
    assert (value.node, value.ips) == ("", (parse_ip("10.10.1.10"),))
    assert fields(value) == ["spec.nodeName", "status.phase", "status.podIPs[1]"]


def test_numbers_of_thousands_of_digits_are_told_without_writing_them():
    """Python refuses to write them in decimal; YAML may have them as 0xfff…"""
    long = 1 << 20_000
    for spec in ({"ports": [PORT, {"name": "b", "port": long}]}, {"type": long}):
        value = value_of(Kind.SERVICE, {"metadata": META, "spec": SPEC | spec})
        assert isinstance(value, Service)
        assert "the number of 20001 bits" in value.problems[0].reason
    notes = {"signalbox.dev/uplink": long}
    assert value_of(Kind.NODE, {"metadata": {"name": "n", "annotations": notes}}).uplink is None
