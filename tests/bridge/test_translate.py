"""Objects of every kind: nothing that they can contain raises, and what cannot be used is reported."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s_bridge import translate
from pipelines.addresses import Cidr, Ip, parse_cidr
from pipelines.model import Invalid, Kind, ServiceCidr
from tests.bridge.translating import fields, translated

KINDS = (Kind.NODE, Kind.POD, Kind.SERVICE, Kind.ENDPOINT_SLICE, Kind.SERVICE_CIDR)


def test_service_cidrs_keep_what_can_be_used():
    content = {
        "metadata": {"name": "k", "deletionTimestamp": "x"},
        "spec": {"cidrs": ["10.96.0.0/16", "0.0.0.0/0", "fd00:96::/112"]},
    }
    value = translated(Kind.SERVICE_CIDR, content).value
    assert isinstance(value, ServiceCidr)
    assert value.cidrs == (parse_cidr("10.96.0.0/16"), parse_cidr("fd00:96::/112"))
    assert fields(value) == ["spec.cidrs[1]"]
    empty = translated(Kind.SERVICE_CIDR, {"metadata": {"name": "k"}, "spec": {}}).value
    assert isinstance(empty, Invalid)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "meta", [{}, {"name": None}, {"name": ""}, {"name": "A b"}, {"name": "a/b"}, {"name": "a", "namespace": "x y"}]
)
def test_an_object_without_a_usable_name_can_only_be_reported(kind, meta):
    got = translated(kind, {"metadata": meta})
    assert (got.key, got.value) == ("", None)
    assert got.problems[0].field in {"metadata.name", "metadata.namespace"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [None, [], 3, "x", {}, {"metadata": None}, {"metadata": []}])
def test_what_is_no_object_can_only_be_reported(kind, content):
    got = translated(kind, content)
    assert (got.key, got.value) == ("", None)
    assert got.problems


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_json_are_reported(kind):
    for raw in (b"", b"{", b'{"metadata": {"name": "\xff"}}', b"[" * 100_000):
        got = translate.from_json(kind, raw)
        assert got.key == ""
        assert got.problems


def test_a_deletion_names_its_object_even_when_the_rest_does_not_decode():
    raw = b'{"metadata":{"name":"web","namespace":"shop","resourceVersion":"7"},"spec":{"ports":"none"}}'
    assert translate.identify(Kind.SERVICE, raw) == translate.Translated(Kind.SERVICE, "shop/web", None, "7")


NAMES = [
    "metadata", "name", "namespace", "annotations", "labels", "spec", "status", "podCIDRs", "podCIDR", "addresses",
    "address", "type", "clusterIP", "clusterIPs", "ports", "port", "protocol", "endpoints", "conditions", "ready",
    "addressType", "cidrs", "podIPs", "podIP", "ip", "phase", "hostNetwork", "nodeName",
    "signalbox.dev/mac-address", "node.antrea.io/mac-address", "externalIPs", "loadBalancer", "ingress", "ipMode",
    "loadBalancerSourceRanges", "internalTrafficPolicy", "externalTrafficPolicy", "sessionAffinity", "timeoutSeconds",
    "sessionAffinityConfig", "clientIP", "nodePort", "healthCheckNodePort", "hints", "forZones", "forNodes",
    "signalbox.dev/node-addresses", "signalbox.dev/gateways", "signalbox.dev/datapath-id", "signalbox.dev/uplink",
    "signalbox.dev/uplink-mtu", "signalbox.dev/mtu", "kubernetes.io/service-name", "topology.kubernetes.io/zone",
]  # fmt: skip
TEXTS = st.sampled_from(
    [
        "",
        "None",
        "n1",
        "10.10.1.0/24",
        "10.10.1.1",
        "fd00::1",
        "fd00::/64",
        "IPv4",
        "IPv6",
        "TCP",
        "x,y",
        "::/0",
        "InternalIP",
        "LoadBalancer",
        "NodePort",
        "ClientIP",
        "Local",
        "10.0.0.1/8",
    ]
) | st.text(string.printable, max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-5, 70000) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(NAMES), TREES, max_size=6))
def test_nothing_that_an_object_can_contain_raises(kind, content):
    """And whatever comes out is of the kind, keyed by the name, with no prefix that takes every address."""
    got = translate.from_object(kind, {"metadata": {"name": "n1"}} | content)
    assert got == translate.from_json(kind, json.dumps({"metadata": {"name": "n1"}} | content).encode())
    translate.from_object(kind, {"metadata": {"name": "n1"}} | content, by_hand=True)
    if got.value is None or isinstance(got.value, Invalid):
        return
    assert type(got.value).__name__ == kind.replace("CIDR", "Cidr")
    for cidr in (*getattr(got.value, "pod_cidrs", ()), *getattr(got.value, "cidrs", ())):
        assert isinstance(cidr, Cidr)
        assert cidr.length > 0
    assert all(isinstance(ip, Ip) and ip.value for ip in getattr(got.value, "ips", ()))
