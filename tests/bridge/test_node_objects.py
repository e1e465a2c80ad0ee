"""Nodes as Kubernetes has them: what counts, what is left out, and what is reported under which field."""

import pytest

from pipelines.addresses import Interface, parse_cidr, parse_interface, parse_ip, parse_mac
from pipelines.model import Kind, Node
from tests.bridge.translating import fields, translated

MAC = "signalbox.dev/mac-address"
ANTREA_MAC = "node.antrea.io/mac-address"


def node(spec=None, status=None, **annotations):
    content = {"metadata": {"name": "n1", "annotations": annotations}, "spec": spec, "status": status}
    value = translated(Kind.NODE, content).value
    assert isinstance(value, Node)
    return value


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
    assert "by gw0 and their host only" in value.problems[0].reason
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
