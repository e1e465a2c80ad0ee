"""Lists, watches, changes and removals, as a real API server tells them."""

import pytest

from pipelines.addresses import parse_cidr, parse_ip
from pipelines.model import Invalid, Kind, Pod
from tests.api.objects import CIDRS, NODES, PODS, SERVICES, SLICES, endpoint_slice, node, pod, service
from tests.bridge.recording import until


@pytest.fixture(autouse=True)
def clean(cluster):
    yield
    for path in (NODES, SLICES, PODS):
        cluster.request("DELETE", path)
    for item in cluster.request("GET", SERVICES)["items"]:
        if item["metadata"]["name"] != "kubernetes":
            cluster.request("DELETE", f"{SERVICES}/{item['metadata']['name']}")


def test_lists_in_pages_hold_every_object_once(cluster, follow):
    for number in range(23):
        cluster.request("POST", SLICES, endpoint_slice(f"web-{number}", "web", f"10.10.1.{number + 10}"))
    following = follow(page_size=5).wait_synced()
    keys = {key for key in following.sink.keys(Kind.ENDPOINT_SLICE) if "web-" in key}
    assert keys == {f"default/web-{number}" for number in range(23)}
    assert following.sink.synced_calls == 1
    status = following.source.status()
    assert (status.synced, status.complete, status.last_error) == (True, True, "")
    assert status.counts["EndpointSlice"] == len(following.sink.keys(Kind.ENDPOINT_SLICE))
    assert status.last_event_age is not None
    assert status.last_event_age < 20


def test_a_dual_stack_service_and_its_slices_arrive_change_and_go(cluster, follow):
    """B24: a second family appears and disappears with the spec."""
    sink = follow().wait_synced().sink
    made = cluster.request("POST", SERVICES, service("web", ipFamilyPolicy="SingleStack"))
    until(lambda: (Kind.SERVICE, "default/web") in sink.values)
    assert sink.values[Kind.SERVICE, "default/web"].cluster_ips == (parse_ip(made["spec"]["clusterIP"]),)
    changed = cluster.request("PATCH", f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "PreferDualStack"}}, patch=True)
    both = tuple(parse_ip(ip) for ip in changed["spec"]["clusterIPs"])
    assert [ip.family for ip in both] == [4, 6]
    until(lambda: sink.values[Kind.SERVICE, "default/web"].cluster_ips == both)
    back = {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": [str(both[0])]}}
    cluster.request("PATCH", f"{SERVICES}/web", back, patch=True)
    until(lambda: sink.values[Kind.SERVICE, "default/web"].cluster_ips == both[:1])
    cluster.request("POST", SLICES, endpoint_slice("web-6", "web", "fd00:10:1::10", family="IPv6"))
    until(lambda: (Kind.ENDPOINT_SLICE, "default/web-6") in sink.values)
    assert sink.values[Kind.ENDPOINT_SLICE, "default/web-6"].endpoints[0].ip == parse_ip("fd00:10:1::10")
    cluster.request("DELETE", f"{SLICES}/web-6")
    cluster.request("DELETE", f"{SERVICES}/web")
    until(lambda: not {"default/web-6", "default/web"} & {key for _, key in sink.values})


def test_toggling_the_proxy_label_removes_and_adds_the_service(cluster, follow):
    """B20: a service of another proxy is left alone; so are headless and ExternalName ones."""
    sink = follow().wait_synced().sink

    def served(name):
        value = sink.values.get((Kind.SERVICE, name))
        return value is not None and bool(value.ports) and not value.left_alone

    cluster.request("POST", SERVICES, service("headless", clusterIP="None"))
    cluster.request(
        "POST", SERVICES, {**service("named"), "spec": {"type": "ExternalName", "externalName": "a.example"}}
    )
    cluster.request("POST", SERVICES, service("web"))
    until(lambda: served("default/web"))
    label = {"service.kubernetes.io/service-proxy-name": "other"}
    cluster.request("PATCH", f"{SERVICES}/web", {"metadata": {"labels": label}}, patch=True)
    until(lambda: not served("default/web"))
    cluster.request("PATCH", f"{SERVICES}/web", {"metadata": {"labels": {next(iter(label)): None}}}, patch=True)
    until(lambda: served("default/web"))
    until(lambda: {"default/headless", "default/named"} <= sink.keys(Kind.SERVICE))
    assert not served("default/headless")
    assert not served("default/named")


def test_a_pod_gets_its_addresses_and_loses_them_when_it_has_finished(cluster, follow):
    sink = follow().wait_synced().sink
    cluster.request("POST", NODES, node("n1"))
    cluster.request("POST", PODS, pod("a", "n1"))
    until(lambda: (Kind.POD, "default/a") in sink.values)
    assert sink.values[Kind.POD, "default/a"].ips == ()
    running = {"status": {"phase": "Running", "podIP": "10.10.1.10", "podIPs": [{"ip": "10.10.1.10"}]}}
    cluster.request("PATCH", f"{PODS}/a/status", running, patch=True)
    until(lambda: sink.values[Kind.POD, "default/a"].ips == (parse_ip("10.10.1.10"),))
    value = sink.values[Kind.POD, "default/a"]
    assert isinstance(value, Pod)
    assert value.node == "n1"
    assert value.uid
    assert value.created
    cluster.request("PATCH", f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, patch=True)
    until(lambda: sink.values[Kind.POD, "default/a"].ips == ())


def test_what_does_not_matter_is_no_change(cluster, follow):
    cluster.request("POST", NODES, node("n1", "10.10.1.0/24"))
    sink = follow().wait_synced().sink
    before = len(sink.batches)
    for beat in range(5):
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{beat}Z"}
        cluster.request("PATCH", f"{NODES}/n1/status", {"status": {"conditions": [condition]}}, patch=True)
    cluster.request("POST", NODES, node("n2"))
    until(lambda: (Kind.NODE, "n2") in sink.values)
    assert [[change.key for change in batch] for batch in sink.batches[before:]] == [["n2"]]


def test_a_node_gets_its_pod_cidr_later_and_a_recreated_one_replaces_it(cluster, follow):
    """B11: a Node may come before its podCIDR. B13: the same name with another uid is one change of value."""
    sink = follow().wait_synced().sink
    cluster.request("POST", NODES, node("n2"))
    until(lambda: (Kind.NODE, "n2") in sink.values)
    assert sink.values[Kind.NODE, "n2"].pod_cidrs == ()
    spec = {"spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]}}
    cluster.request("PATCH", f"{NODES}/n2", spec, patch=True)
    until(lambda: sink.values[Kind.NODE, "n2"].pod_cidrs == (parse_cidr("10.10.2.0/24"),))
    first = sink.values[Kind.NODE, "n2"]
    cluster.request("DELETE", f"{NODES}/n2")
    cluster.request("POST", NODES, node("n2", "10.10.9.0/24"))
    until(lambda: (Kind.NODE, "n2") in sink.values and sink.values[Kind.NODE, "n2"].uid != first.uid)
    assert sink.values[Kind.NODE, "n2"].pod_cidrs == (parse_cidr("10.10.9.0/24"),)


def test_service_ranges_come_from_service_cidr_objects(cluster, follow):
    sink = follow().wait_synced().sink
    default = sink.values[Kind.SERVICE_CIDR, "kubernetes"]
    assert default.cidrs == (parse_cidr("10.96.0.0/16"), parse_cidr("fd00:96::/112"))
    extra = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"}}
    cluster.request("POST", CIDRS, extra | {"spec": {"cidrs": ["10.98.0.0/24"]}})
    until(lambda: (Kind.SERVICE_CIDR, "more") in sink.values)
    assert sink.values[Kind.SERVICE_CIDR, "more"].cidrs == (parse_cidr("10.98.0.0/24"),)
    cluster.request("DELETE", f"{CIDRS}/more")
    until(lambda: (Kind.SERVICE_CIDR, "more") not in sink.values)


def test_an_unusable_object_is_invalid_and_harms_no_other(cluster, follow):
    following = follow().wait_synced()
    sink = following.sink
    odd = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "odd"}}
    cluster.request("POST", CIDRS, odd | {"spec": {"cidrs": ["224.0.0.0/24"]}})
    cluster.request("POST", NODES, node("n1", "10.10.1.0/24", mac_address="01:00:5e:00:00:01"))
    until(lambda: (Kind.SERVICE_CIDR, "odd") in sink.values and (Kind.NODE, "n1") in sink.values)
    invalid, half = sink.values[Kind.SERVICE_CIDR, "odd"], sink.values[Kind.NODE, "n1"]
    assert isinstance(invalid, Invalid)
    assert invalid.problems[0].field == "spec.cidrs[0]"
    assert half.mac is None
    assert half.pod_cidrs == (parse_cidr("10.10.1.0/24"),)
    said = {(problem.kind, problem.key) for problem in following.source.status().problems}
    assert said == {("ServiceCIDR", "odd"), ("Node", "n1")}
    cluster.request(
        "PATCH", f"{NODES}/n1", {"metadata": {"annotations": {"signalbox.dev/mac-address": None}}}, patch=True
    )
    until(lambda: not sink.values[Kind.NODE, "n1"].problems)
    cluster.request("DELETE", f"{CIDRS}/odd")
    until(lambda: following.source.status().problems == ())
