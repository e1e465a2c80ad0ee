"""Services as Kubernetes has them: addresses and ports, and which are none of our business."""

import pytest

from pipelines.addresses import parse_ip
from pipelines.model import Invalid, Kind, Protocol, Service, ServicePort
from tests.bridge.translating import fields, translated

OTHER = {"service.kubernetes.io/service-proxy-name": "other"}


def service(labels=None, **spec):
    content = {"metadata": {"name": "web", "namespace": "shop", "labels": labels}, "spec": spec}
    return translated(Kind.SERVICE, content).value


def test_a_service_has_its_addresses_and_ports():
    ports = [
        {"name": "http", "port": 80},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "s", "port": 9, "protocol": "SCTP"},
    ]
    value = service(clusterIP="10.96.0.10", clusterIPs=["10.96.0.10", "fd00:96::10"], ports=ports)
    assert value == Service(
        namespace="shop",
        name="web",
        cluster_ips=(parse_ip("10.96.0.10"), parse_ip("fd00:96::10")),
        ports=(
            ServicePort("http", Protocol.TCP, 80),
            ServicePort("dns", Protocol.UDP, 53),
            ServicePort("s", Protocol.SCTP, 9),
        ),
    )


@pytest.mark.parametrize(
    ("labels", "spec", "why"),
    [
        (None, {"clusterIP": "None", "ports": [{"port": 80}]}, "headless"),
        (None, {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}, "headless"),
        (None, {"type": "ExternalName", "externalName": "a.example"}, "ExternalName"),
        (None, {"type": "ExternalName", "clusterIP": "10.96.0.10", "ports": [{"port": 80}]}, "ExternalName"),
        (OTHER, {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}, "another proxy"),
        (dict.fromkeys(OTHER, ""), {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}, "another proxy"),
        (None, {"ports": [{"port": 80}]}, "no ClusterIP"),
        (None, {"clusterIP": "", "ports": [{"port": 80}]}, "no ClusterIP"),
        (None, {}, "no ClusterIP"),
    ],
)
def test_services_that_must_be_left_alone_say_why_and_nothing_else(labels, spec, why):
    """B20: headless, ExternalName, another proxy's, and not allocated yet: nothing to serve and no complaint."""
    value = service(labels, **spec)
    assert why in value.left_alone
    assert value == Service("shop", "web", left_alone=value.left_alone)


def test_a_second_family_appears_and_disappears_with_the_spec():
    """B24: dual stack."""
    ports = [{"port": 80}]
    one = service(clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"], ports=ports)
    two = service(clusterIP="10.96.0.10", clusterIPs=["10.96.0.10", "fd00:96::10"], ports=ports)
    assert [ip.family for ip in one.cluster_ips] == [4]
    assert [ip.family for ip in two.cluster_ips] == [4, 6]


@pytest.mark.parametrize(
    ("ports", "kept", "problems"),
    [
        ([{"name": "a"}, {"name": "b", "port": 80}], [80], ["spec.ports[0].port"]),
        (
            [{"name": "a", "port": 0}, {"name": "b", "port": 65536}, {"name": "c", "port": 1}],
            [1],
            ["spec.ports[0].port", "spec.ports[1].port"],
        ),
        ([{"name": "a", "port": 80, "protocol": "ICMP"}, {"name": "b", "port": 81}], [81], ["spec.ports[0].protocol"]),
        ([{"name": "a", "port": 80}, {"name": "b", "port": 80}], [80], ["spec.ports[1]"]),
        ([{"name": "a", "port": 80}, {"name": "a", "port": 81}], [80], ["spec.ports[1].name"]),
        ([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}], [80, 80], []),
        ([], [], ["spec.ports"]),
    ],
)
def test_wrong_ports_of_a_service_are_left_out_and_reported(ports, kept, problems):
    value = service(clusterIP="10.96.0.10", ports=ports)
    assert isinstance(value, Service)
    assert [port.port for port in value.ports] == kept
    assert fields(value) == problems


def test_a_service_without_a_usable_address_is_invalid():
    value = service(clusterIPs=["10.96.0.300", "224.0.0.1"], ports=[{"port": 80}])
    assert isinstance(value, Invalid)
    assert fields(value) == ["spec.clusterIPs[0]", "spec.clusterIPs[1]"]
