"""Raw objects to the model: what counts, what is left out, and what is reported under which field."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s_bridge import translate
from pipelines.addresses import Cidr, Interface, Ip, parse_cidr, parse_interface, parse_ip, parse_mac
from pipelines.model import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Invalid,
    Kind,
    Node,
    Pod,
    Protocol,
    Service,
    ServiceCidr,
    ServicePort,
)

KINDS = (Kind.NODE, Kind.POD, Kind.SERVICE, Kind.ENDPOINT_SLICE, Kind.SERVICE_CIDR)
MAC = "signalbox.dev/mac-address"
ANTREA_MAC = "node.antrea.io/mac-address"


def translated(kind, content):
    """By both ways into the same value: JSON as from the API, Python values as out of YAML."""
    by_json = translate.from_json(kind, json.dumps(content).encode())
    by_object = translate.from_object(kind, content)
    assert by_json == by_object
    return by_json


def node(spec=None, status=None, **annotations):
    content = {"metadata": {"name": "n1", "annotations": annotations}, "spec": spec, "status": status}
    value = translated(Kind.NODE, content).value
    assert isinstance(value, Node)
    return value


def service(labels=None, **spec):
    content = {"metadata": {"name": "web", "namespace": "shop", "labels": labels}, "spec": spec}
    return translated(Kind.SERVICE, content).value


def endpoint_slice(endpoints, family="IPv4", ports=({"name": "http", "port": 8080},), labels=None):
    content = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": labels or {"kubernetes.io/service-name": "web"}},
        "addressType": family,
        "ports": list(ports) if ports is not None else None,
        "endpoints": endpoints,
    }
    return translated(Kind.ENDPOINT_SLICE, content).value


def fields(value):
    return [problem.field for problem in value.problems]


# -- Node


def test_a_node_says_everything_by_annotations():
    value = node(
        {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24", "fd00:10:1::/64"]},
        {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        **{
            "signalbox.dev/datapath-id": "00000000000000A1",
            "signalbox.dev/uplink": "eth0",
            "signalbox.dev/node-addresses": "192.168.77.101/24, fd00:77::101/64",
            "signalbox.dev/gateways": "192.168.77.1,fe80::1",
            "signalbox.dev/uplink-mtu": "9000",
            MAC: "aa:00:00:00:00:01",
            "something.else/entirely": "x",
        },
    )
    assert value == Node(
        name="n1",
        pod_cidrs=(parse_cidr("10.10.1.0/24"), parse_cidr("fd00:10:1::/64")),
        addresses=(parse_interface("192.168.77.101/24"), parse_interface("fd00:77::101/64")),
        mac=parse_mac("aa:00:00:00:00:01"),
        datapath_id=0xA1,
        uplink="eth0",
        gateways=(parse_ip("192.168.77.1"), parse_ip("fe80::1")),
        mtu=9000,
    )


def test_without_the_annotation_a_nodes_addresses_come_from_its_status_without_a_link():
    status = {
        "addresses": [
            {"type": "Hostname", "address": "n1"},
            {"type": "InternalIP", "address": "192.168.77.101"},
            {"type": "InternalIP", "address": "fd00:77::101"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
        ]
    }
    expected = (Interface(parse_ip("192.168.77.101"), None), Interface(parse_ip("fd00:77::101"), None))
    assert node(None, status).addresses == expected
    wrong = node(None, status, **{"signalbox.dev/node-addresses": "192.168.77.101"})
    assert wrong.addresses == expected, "an annotation of which nothing can be used is as good as none"
    assert fields(wrong) == ["metadata.annotations[signalbox.dev/node-addresses]"]


@pytest.mark.parametrize(
    "text",
    [
        "192.168.77.101",
        "192.168.77.0/24",
        "192.168.77.255/24",
        "192.168.77.101/33",
        "192.168.77.101/0",
        "127.0.0.1/8",
        "224.0.0.1/4",
        "169.254.1.1/16",
        "fe80::1/64",
        "fd00:77::/64",
        "::ffff:10.0.0.1/120",
        "n1/24",
    ],
)
def test_a_wrong_node_address_is_left_out_and_reported_and_the_others_are_kept(text):
    value = node(**{"signalbox.dev/node-addresses": f"{text},fd00:77::101/64"})
    assert value.addresses == (parse_interface("fd00:77::101/64"),)
    assert fields(value) == ["metadata.annotations[signalbox.dev/node-addresses]"]


@pytest.mark.parametrize(
    "mac",
    [
        "01:00:5e:00:00:01",
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "aa:bb:cc",
        "aa-00-00-00-00-01",
        "zz:00:00:00:00:01",
    ],
)
def test_a_mac_that_no_station_has_is_refused_and_reported(mac):
    value = node({"podCIDR": "10.10.1.0/24"}, **{MAC: mac})
    assert value.mac is None
    assert fields(value) == [f"metadata.annotations[{MAC}]"]
    assert value.pod_cidrs == (parse_cidr("10.10.1.0/24"),), "the rest is kept"


def test_the_own_mac_annotation_wins_and_the_other_stands_in_when_it_is_wrong():
    both = {MAC: "aa:00:00:00:00:01", ANTREA_MAC: "aa:00:00:00:00:02"}
    assert node(**both).mac == parse_mac("aa:00:00:00:00:01")
    assert node(**{ANTREA_MAC: "aa:00:00:00:00:02"}).mac == parse_mac("aa:00:00:00:00:02")
    assert node(**both | {MAC: "none"}).mac == parse_mac("aa:00:00:00:00:02")
    assert node(**both | {MAC: "  "}).problems == (), "blank is absent"


@pytest.mark.parametrize(
    "text", ["a1", "0x000000000000a1", "0000000000000000", "00000000000000a1a1", "00:00:00:00:00:00:00:a1"]
)
def test_a_datapath_id_has_sixteen_hex_digits(text):
    value = node(**{"signalbox.dev/datapath-id": text})
    assert value.datapath_id is None
    assert fields(value) == ["metadata.annotations[signalbox.dev/datapath-id]"]


@pytest.mark.parametrize("text", ["gw0", "tun0", "a/b", "eth 0", "sixteencharacter"])
def test_an_uplink_is_the_name_of_a_port_but_not_of_an_own_one(text):
    value = node(**{"signalbox.dev/uplink": text})
    assert value.uplink is None
    assert fields(value) == ["metadata.annotations[signalbox.dev/uplink]"]


def test_an_annotation_that_is_no_text_is_reported_and_spoils_nothing_else():
    value = node({"podCIDR": "10.10.1.0/24"}, **{"signalbox.dev/datapath-id": 161, "signalbox.dev/uplink": "eth0"})
    assert (value.datapath_id, value.uplink) == (None, "eth0")
    assert "161" in value.problems[0].reason
    assert "quotes" in value.problems[0].reason


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (None, []),
        ({}, []),
        ({"podCIDRs": []}, []),
        ({"podCIDRs": None, "podCIDR": None}, []),
        ({"podCIDRs": [""]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.10.2.0"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.10.2.0/24/24"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.10.2.5/24"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["0.0.0.0/0"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["::/0"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["0.0.0.0/1"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.10.2.1/32"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["10.10.2.0/31"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["fd00::/127"]}, ["spec.podCIDRs[0]"]),
        ({"podCIDRs": ["ff00::/64"]}, ["spec.podCIDRs[0]"]),
    ],
)
def test_a_node_without_a_usable_pod_cidr_is_a_node_all_the_same(spec, problems):
    """B11: appears before it has a podCIDR; [""] and what does not parse never become 0.0.0.0/0."""
    value = node(spec)
    assert value.pod_cidrs == ()
    assert fields(value) == problems


def test_one_wrong_pod_cidr_leaves_the_others_and_several_of_one_family_keep_their_order():
    value = node({"podCIDRs": ["10.10.3.0/24", "x", "10.10.2.0/24", "fd00:10:2::/64", "10.10.3.0/24"]})
    assert value.pod_cidrs == tuple(map(parse_cidr, ("10.10.3.0/24", "10.10.2.0/24", "fd00:10:2::/64")))
    assert fields(value) == ["spec.podCIDRs[1]"]


def test_of_a_nodes_own_pod_cidrs_that_overlap_the_first_counts():
    value = node({"podCIDRs": ["10.10.2.0/24", "10.10.0.0/16"]})
    assert value.pod_cidrs == (parse_cidr("10.10.2.0/24"),)
    assert [problem.field for problem in value.problems] == ["spec.podCIDRs[1]"]
    assert "overlaps 10.10.2.0/24" in value.problems[0].reason


ADDRESSES = "192.168.77.101/24,fd00:77::101/64"


def test_several_gateways_keep_their_order_and_ipv6_ones_may_be_link_local():
    value = node(
        **{
            "signalbox.dev/node-addresses": ADDRESSES,
            "signalbox.dev/gateways": "fe80::2, 192.168.77.2,192.168.77.1,fe80::1,192.168.77.2",
        }
    )
    assert value.gateways == tuple(map(parse_ip, ("fe80::2", "192.168.77.2", "192.168.77.1", "fe80::1")))
    assert value.problems == ()


@pytest.mark.parametrize(
    ("gateway", "reason"),
    [
        ("192.168.77.101", "this node's own address"),
        ("fd00:77::101", "this node's own address"),
        ("10.10.1.1", "lies in podCIDR 10.10.1.0/24"),
        ("fd00:10:1::1", "lies in podCIDR fd00:10:1::/64"),
        ("224.0.0.1", "multicast"),
        ("router", "router"),
    ],
)
def test_a_gateway_that_can_be_none_is_left_out_with_the_reason(gateway, reason):
    value = node(
        {"podCIDRs": ["10.10.1.0/24", "fd00:10:1::/64"]},
        **{"signalbox.dev/node-addresses": ADDRESSES, "signalbox.dev/gateways": f"{gateway},192.168.77.1"},
    )
    assert value.gateways == (parse_ip("192.168.77.1"),)
    assert fields(value) == ["metadata.annotations[signalbox.dev/gateways]"]
    assert reason in value.problems[0].reason


@pytest.mark.parametrize(
    ("addresses", "gateway", "reported"),
    [
        (ADDRESSES, "192.168.78.1", True),
        ("10.0.0.5/24,192.168.78.5/24", "192.168.78.1", False),
        ("192.168.77.101/32", "172.31.1.1", False),
        (ADDRESSES, "169.254.0.1", False),
        (ADDRESSES, "fd00:78::1", False),
        ("", "192.168.78.1", False),
    ],
)
def test_a_gateway_outside_the_nodes_subnet_is_kept_and_reported(addresses, gateway, reported):
    notes = {"signalbox.dev/gateways": gateway}
    value = node(**notes | ({"signalbox.dev/node-addresses": addresses} if addresses else {}))
    assert value.gateways == (parse_ip(gateway),)
    assert [problem.reason for problem in value.problems] == (
        [f"{gateway} is in no subnet of this node's addresses; it is tried all the same"] if reported else []
    )


def test_a_node_that_names_its_switch_has_to_name_its_uplink_too():
    value = node(**{"signalbox.dev/datapath-id": "00000000000000a1"})
    assert fields(value) == ["metadata.annotations[signalbox.dev/uplink]"]
    assert "reaches no other node" in value.problems[0].reason
    assert node().problems == ()
    wrong = node(**{"signalbox.dev/datapath-id": "00000000000000a1", "signalbox.dev/uplink": 5})
    assert len(wrong.problems) == 1, "one thing is said once"


@pytest.mark.parametrize(("text", "mtu"), [("576", 576), (" 9000 ", 9000), ("65535", 65535), ("", None)])
def test_a_node_says_the_mtu_of_its_uplink(text, mtu):
    value = node(**{"signalbox.dev/uplink-mtu": text})
    assert (value.mtu, value.problems) == (mtu, ())


@pytest.mark.parametrize("text", ["575", "65536", "-1500", "1500 bytes", "1e3", "٣٠٠٠", "9" * 5000, 1500])
def test_an_mtu_that_is_none_is_left_out_and_reported(text):
    value = node({"podCIDR": "10.10.1.0/24"}, **{"signalbox.dev/uplink-mtu": text})
    assert value.mtu is None
    assert fields(value) == ["metadata.annotations[signalbox.dev/uplink-mtu]"]
    assert value.pod_cidrs, "the rest is kept"


def test_a_node_of_ipv6_has_an_mtu_of_at_least_1280():
    small = {"signalbox.dev/uplink-mtu": "1279"}
    assert node({"podCIDR": "10.10.1.0/24"}, **small).mtu == 1279
    value = node({"podCIDR": "fd00:10:1::/64"}, **small)
    assert value.mtu is None
    assert "1280" in value.problems[0].reason


def test_a_recreated_node_differs_by_its_uid():
    """B13: a watch that turns delete and add into one change with another uid."""
    content = {"metadata": {"name": "n2", "uid": "a"}, "spec": {"podCIDRs": ["10.10.2.0/24"]}}
    again = {"metadata": {"name": "n2", "uid": "b"}, "spec": {"podCIDRs": ["10.10.9.0/24"]}}
    one, two = translated(Kind.NODE, content), translated(Kind.NODE, again)
    assert one.key == two.key == "n2"
    assert one.value != two.value
    assert isinstance(two.value, Node)
    assert two.value.pod_cidrs == (parse_cidr("10.10.9.0/24"),)


# -- Pod


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


# -- Service


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
    ("labels", "spec"),
    [
        (None, {"clusterIP": "None", "ports": [{"port": 80}]}),
        (None, {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}),
        (None, {"type": "ExternalName", "externalName": "a.example"}),
        (None, {"type": "ExternalName", "clusterIP": "10.96.0.10", "ports": [{"port": 80}]}),
        ({"service.kubernetes.io/service-proxy-name": "other"}, {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}),
        ({"service.kubernetes.io/service-proxy-name": ""}, {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}),
        (None, {"ports": [{"port": 80}]}),
        (None, {"clusterIP": "", "ports": [{"port": 80}]}),
        (None, {}),
    ],
)
def test_services_that_must_be_ignored_do_not_exist(labels, spec):
    """B20: headless, ExternalName, another proxy's, and not allocated yet: no value and no complaint."""
    content = {"metadata": {"name": "web", "labels": labels}, "spec": spec}
    assert translated(Kind.SERVICE, content) == translate.Translated(Kind.SERVICE, "default/web", None)


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


def test_a_field_of_the_wrong_type_makes_the_object_invalid_under_its_dotted_name():
    value = service(clusterIP="10.96.0.10", ports=[{"port": 80}, {"port": "eighty"}])
    assert isinstance(value, Invalid)
    (problem,) = value.problems
    assert (problem.kind, problem.key, problem.field) == ("Service", "shop/web", "spec.ports[1].port")
    assert "int" in problem.reason


# -- EndpointSlice


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


# -- ServiceCIDR


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


# -- every kind


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
    "addressType", "cidrs", "podIPs", "podIP", "ip", "phase", "hostNetwork", "nodeName", MAC, ANTREA_MAC,
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
    if got.value is None or isinstance(got.value, Invalid):
        return
    assert type(got.value).__name__ == kind.replace("CIDR", "Cidr")
    for cidr in (*getattr(got.value, "pod_cidrs", ()), *getattr(got.value, "cidrs", ())):
        assert isinstance(cidr, Cidr)
        assert cidr.length > 0
    assert all(isinstance(ip, Ip) and ip.value for ip in getattr(got.value, "ips", ()))
