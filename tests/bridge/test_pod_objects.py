"""Pods as Kubernetes has them: their addresses and the MTU of their interface."""

import pytest

from pipelines.addresses import parse_ip
from pipelines.model import Kind, Pod
from tests.bridge.translating import fields, translated


def pod(spec=None, status=None, **meta):
    value = translated(Kind.POD, {"metadata": {"name": "a"} | meta, "spec": spec, "status": status}).value
    assert isinstance(value, Pod)
    return value


def test_a_pod_says_the_mtu_of_its_interface():
    status = {"podIPs": [{"ip": "fd00:10:1::10"}]}
    assert pod({}, status, annotations={"signalbox.dev/mtu": "1450"}).mtu == 1450
    wrong = pod({}, status, annotations={"signalbox.dev/mtu": "1279"})
    assert wrong.mtu is None
    assert fields(wrong) == ["metadata.annotations[signalbox.dev/mtu]"]
    assert wrong.ips == (parse_ip("fd00:10:1::10"),), "the rest is kept"


def test_a_pod_has_its_addresses_while_it_may_run():
    status = {"phase": "Running", "podIP": "10.10.1.10", "podIPs": [{"ip": "10.10.1.10"}, {"ip": "fd00:10:1::10"}]}
    running = pod({"nodeName": "n1"}, status)
    assert running.ips == (parse_ip("10.10.1.10"), parse_ip("fd00:10:1::10"))
    assert (running.namespace, running.node) == ("default", "n1")
    assert pod({"nodeName": "n1"}, {"podIP": "10.10.1.10"}).ips == (parse_ip("10.10.1.10"),)
    leaving = pod({"nodeName": "n1"}, status, deletionTimestamp="2026-01-01T00:00:00Z")
    assert leaving.ips == running.ips, "a pod that is being deleted still answers"


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"hostNetwork": True}, {"phase": "Running", "podIPs": [{"ip": "192.168.77.101"}]}),
        ({}, {"phase": "Succeeded", "podIPs": [{"ip": "10.10.1.10"}]}),
        ({}, {"phase": "Failed", "podIP": "10.10.1.10"}),
        ({}, {"phase": "Pending"}),
        ({}, {"podIPs": [], "podIP": ""}),
        ({}, {"podIPs": [{"ip": ""}]}),
        (None, None),
    ],
)
def test_a_pod_without_a_port_of_its_own_has_no_addresses(spec, status):
    value = pod(spec, status)
    assert value.ips == ()
    assert value.problems == ()


def test_a_wrong_pod_address_is_reported_and_the_other_kept():
    value = pod({}, {"podIPs": [{"ip": "0.0.0.0"}, {"ip": "fd00:10:1::10"}, {"ip": "fd00:10:1::11"}]})
    assert value.ips == (parse_ip("fd00:10:1::10"),)
    assert fields(value) == ["status.podIPs[0].ip", "status.podIPs[2].ip"]
