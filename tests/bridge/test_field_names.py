"""Misspelt names of fields are told; those of Kubernetes, today's and tomorrow's, are not."""

import time
from typing import Any

import pytest
from kubernetes import client
from msgspec import inspect

from k8s_bridge import field_names, shapes
from k8s_bridge.manifests import parse, read
from k8s_bridge.source import value_problems
from pipelines.model import Invalid, Kind, Policy
from tests.apps.stub import DEMO
from tests.bridge.translating import fields, value_of

META = {"name": "web", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
SPEC = {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}
HEARD = {
    Kind.SERVICE: {"metadata": META, "spec": SPEC},
    Kind.ENDPOINT_SLICE: {"metadata": META, "addressType": "IPv4", "endpoints": [{"addresses": ["10.10.1.9"]}]},
    Kind.NODE: {"metadata": {"name": "n1"}, "spec": {}, "status": {}},
    Kind.POD: {"metadata": META, "spec": {}, "status": {}},
}


@pytest.mark.parametrize(
    ("kind", "content", "field", "meant"),
    [
        (Kind.SERVICE, {"spec": SPEC | {"externalTraficPolicy": "Local"}}, "spec.externalTraficPolicy",
         "externalTrafficPolicy"),
        (Kind.SERVICE, {"spec": SPEC | {"externalIps": []}}, "spec.externalIps", "externalIPs"),
        (Kind.SERVICE, {"spec": SPEC | {"ports": [{"port": 80, "nodeport": 30080}]}}, "spec.ports[0].nodeport",
         "nodePort"),
        (Kind.SERVICE, {"spec": SPEC | {"sessionAffinityConfig": {"clientIp": {}}}},
         "spec.sessionAffinityConfig.clientIp", "clientIP"),
        (Kind.SERVICE, {"spec": SPEC | {"sessionAffinityConfig": {"clientIP": {"timeoutSecond": 1}}}},
         "spec.sessionAffinityConfig.clientIP.timeoutSecond", "timeoutSeconds"),
        (Kind.SERVICE, {"status": {"loadbalancer": {}}}, "status.loadbalancer", "loadBalancer"),
        (Kind.SERVICE, {"spec": SPEC | {"tpye": "NodePort"}}, "spec.tpye", "type"),
        (Kind.ENDPOINT_SLICE, {"endpoints": [{"addresses": ["10.10.1.9"], "nodename": "n1"}]},
         "endpoints[0].nodename", "nodeName"),
        (Kind.ENDPOINT_SLICE, {"endpoints": [{"addresses": ["10.10.1.9"], "conditions": {"raedy": False}}]},
         "endpoints[0].conditions.raedy", "ready"),
        (Kind.ENDPOINT_SLICE, {"endpoints": [{"addresses": ["10.10.1.9"], "hints": {"forZone": []}}]},
         "endpoints[0].hints.forZone", "forZones"),
        (Kind.ENDPOINT_SLICE, {"port": []}, "port", "ports"),
        (Kind.NODE, {"spec": {"podCidr": "10.10.1.0/24"}}, "spec.podCidr", "podCIDR"),
        (Kind.NODE, {"status": {"adresses": []}}, "status.adresses", "addresses"),
        (Kind.POD, {"spec": {"hostNetwrok": True}}, "spec.hostNetwrok", "hostNetwork"),
        (Kind.POD, {"status": {"podIps": []}}, "status.podIps", "podIPs"),
    ],
)  # fmt: skip
def test_a_misspelt_field_is_told_with_the_one_that_was_meant(kind: Kind, content: Any, field: str, meant: str) -> None:
    value = value_of(kind, HEARD[kind] | content)
    told = {problem.field: problem.reason for problem in value.problems}
    assert told[field] == f"unknown field; did you mean {meant}?"


def test_the_object_is_used_all_the_same() -> None:
    value = value_of(Kind.SERVICE, {"metadata": META, "spec": SPEC | {"externalTraficPolicy": "Local"}})
    assert value.external_policy is Policy.CLUSTER
    assert len(value.ports) == 1


@pytest.mark.parametrize(
    "content",
    [
        {"spec": {"clusterIPP": "10.96.0.10", "ports": SPEC["ports"]}},
        {"spec": {"clusterIP": "10.96.0.10", "prots": SPEC["ports"]}},
        {"spce": SPEC},
    ],
)
def test_a_slip_that_loses_what_an_object_needs_makes_it_unusable_and_not_absent(content: Any) -> None:
    """So that a source keeps its last good version."""
    assert isinstance(value_of(Kind.SERVICE, {"metadata": META} | content), Invalid)


def test_a_slip_beside_the_right_name_loses_nothing() -> None:
    value = value_of(Kind.SERVICE, {"metadata": META, "spec": SPEC | {"port": 80}})
    assert fields(value) == ["spec.port"]
    assert len(value.ports) == 1


REAL = {
    shapes.Service: client.V1Service,
    shapes.ServiceSpec: client.V1ServiceSpec,
    shapes.ServicePort: client.V1ServicePort,
    shapes.AffinityConfig: client.V1SessionAffinityConfig,
    shapes.ClientIpAffinity: client.V1ClientIPConfig,
    shapes.ServiceStatus: client.V1ServiceStatus,
    shapes.LoadBalancer: client.V1LoadBalancerStatus,
    shapes.Ingress: client.V1LoadBalancerIngress,
    shapes.EndpointSlice: client.V1EndpointSlice,
    shapes.Endpoint: client.V1Endpoint,
    shapes.EndpointPort: client.DiscoveryV1EndpointPort,
    shapes.Conditions: client.V1EndpointConditions,
    shapes.Hints: client.V1EndpointHints,
    shapes.Hint: client.V1ForZone,
    shapes.Node: client.V1Node,
    shapes.NodeSpec: client.V1NodeSpec,
    shapes.NodeStatus: client.V1NodeStatus,
    shapes.NodeAddress: client.V1NodeAddress,
    shapes.Pod: client.V1Pod,
    shapes.PodSpec: client.V1PodSpec,
    shapes.PodStatus: client.V1PodStatus,
    shapes.PodIp: client.V1PodIP,
    shapes.ServiceCidr: client.V1ServiceCIDR,
    shapes.ServiceCidrSpec: client.V1ServiceCIDRSpec,
}


@pytest.mark.parametrize("shape", REAL, ids=lambda shape: shape.__name__)
def test_every_field_that_kubernetes_has_is_known(shape: Any) -> None:
    """By the models of its own client."""
    names = set(REAL[shape].attribute_map.values())
    part = field_names._part(shape)
    assert names <= part.known
    assert set(part.read) <= names, "what is read does exist"
    assert field_names.misspelt(shape, dict.fromkeys(names)) == ()


def test_every_mapping_that_is_read_is_compared_with_kubernetes() -> None:
    def shapes_in(shape: Any) -> set[Any]:
        kind: Any = inspect.type_info(shape)
        inner = (one.cls for field in kind.fields for one in field_names._mappings(field.type))
        return {shape}.union(*map(shapes_in, inner))

    tops = (shapes.Node, shapes.Pod, shapes.Service, shapes.EndpointSlice, shapes.ServiceCidr)
    assert set().union(*map(shapes_in, tops)) == set(REAL)


@pytest.mark.parametrize("name", ["trafficPolicy", "loadBalancerAlgorithm", "nodePortRange", "x-mine", "egress", ""])
def test_a_field_that_looks_like_none_that_is_read_is_passed_over(name: str) -> None:
    assert fields(value_of(Kind.SERVICE, {"metadata": META, "spec": SPEC | {name: 1}})) == []


def test_manifests_of_the_demo_have_no_slip() -> None:
    assert read(DEMO).problems == ()


def test_thousands_of_unknown_names_take_no_time() -> None:
    spec = ", ".join(f"externalTraficPolicy{number}: 1" for number in range(50_000))
    began = time.thread_time()
    reading = parse("a.yaml", f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{{spec}}}\n".encode())
    whole = time.thread_time() - began
    began = time.thread_time()
    parse("a.yaml", f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nspec: {{{spec}}}\n".encode())
    assert len(value_problems(reading.found[0].value)) == field_names.MOST_COMPARED
    assert whole < 1 + 2 * (time.thread_time() - began)
