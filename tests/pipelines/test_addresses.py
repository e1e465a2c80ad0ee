"""Addresses, prefixes and MACs: strict in, one spelling out."""

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.addresses import (
    Cidr,
    Interface,
    Ip,
    link_local,
    mac_text,
    parse_cidr,
    parse_interface,
    parse_ip,
    parse_mac,
    pod_mac,
    pod_port_name,
    usable_mac,
)

IPS = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda value: Ip(4, value)),
    st.integers(0, 2**128 - 1).map(lambda value: Ip(6, value)),
)


def holds(cidr: Cidr, what: object) -> bool:
    return cidr.__contains__(what)


@given(IPS)
def test_an_address_reads_back_as_itself(ip: Ip) -> None:
    assert parse_ip(str(ip)) == ip


@given(IPS, st.integers(0, 128), IPS)
def test_a_prefix_holds_what_the_standard_library_says_it_holds(base: Ip, length: int, other: Ip) -> None:
    length = min(length, 32 if base.family == 4 else 128)
    network = ipaddress.ip_network(f"{base}/{length}", strict=False)
    cidr = parse_cidr(str(network))
    assert str(cidr) == str(network)
    assert cidr.mask == int(network.netmask)
    assert holds(cidr, base)
    assert holds(cidr, other) == (ipaddress.ip_address(str(other)) in network)


@given(IPS, st.integers(0, 32), IPS, st.integers(0, 32))
def test_prefixes_overlap_when_one_holds_the_other(one: Ip, length: int, two: Ip, other_length: int) -> None:
    first = ipaddress.ip_network(f"{one}/{length}", strict=False)
    second = ipaddress.ip_network(f"{two}/{other_length}", strict=False)
    assert parse_cidr(str(first)).overlaps(parse_cidr(str(second))) == first.overlaps(second)


def test_addresses_of_two_families_are_never_in_each_others_prefixes() -> None:
    assert not holds(parse_cidr("10.10.1.0/24"), Ip(6, 0x0A0A0101))
    assert not parse_cidr("0.0.0.0/0").overlaps(parse_cidr("::/0"))
    assert not holds(parse_cidr("10.10.1.0/24"), "10.10.1.1")


@pytest.mark.parametrize(
    "text", [" ", "10.0.0", "10.0.0.256", "10.0.0.01", "10.0.0.1/24", "fe80::1%eth0", "fd00:::1", "1", "localhost"]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_ip(text)


@pytest.mark.parametrize(
    "text", ["10.10.1.1/24", "10.10.1.0", "10.10.1.0/33", "fd00::1/64", "/24", "10.10.1.0/-1", " "]
)
def test_a_prefix_with_host_bits_or_without_a_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_cidr(text)


def test_an_interface_keeps_its_host_bits_and_knows_its_subnet() -> None:
    at = parse_interface("192.168.77.101/24")
    assert (str(at), str(at.ip), str(at.subnet)) == ("192.168.77.101/24", "192.168.77.101", "192.168.77.0/24")
    assert str(parse_interface("fd00:77::101/64").subnet) == "fd00:77::/64"


def test_an_address_without_a_length_is_on_no_known_subnet() -> None:
    at = Interface(parse_ip("192.168.77.101"), None)
    assert (at.subnet, str(at)) == (None, "192.168.77.101")
    with pytest.raises(ValueError, match="no prefix length"):
        parse_interface("192.168.77.101")


@given(st.integers(0, 2**48 - 1))
def test_a_mac_reads_back_as_itself(mac: int) -> None:
    assert parse_mac(mac_text(mac)) == mac
    assert parse_mac(mac_text(mac).upper()) == mac


@pytest.mark.parametrize(
    "text", ["", "aa:bb:cc:dd:ee", "aa:bb:cc:dd:ee:ff:00", "aa-bb-cc-dd-ee-ff", "aabb.ccdd.eeff", "gg:00:00:00:00:00"]
)
def test_a_mac_of_another_form_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="aa:bb:cc:dd:ee:ff"):
        parse_mac(text)


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("00:00:00:00:00:00", False),
        ("01:00:5e:00:00:01", False),
        ("ff:ff:ff:ff:ff:ff", False),
        ("02:00:00:00:00:01", True),
        ("00:00:00:00:00:01", True),
    ],
)
def test_a_station_has_neither_the_zero_mac_nor_a_group_mac(text: str, usable: bool) -> None:
    assert usable_mac(parse_mac(text)) == usable


def test_a_pods_mac_follows_from_its_ipv4_address_wherever_it_stands() -> None:
    four, six = parse_ip("10.10.1.10"), parse_ip("fd00:10:1::10")
    assert mac_text(pod_mac((four,))) == "0a:58:0a:0a:01:0a"
    assert pod_mac((four, six)) == pod_mac((six, four)) == pod_mac((four,))


def test_a_pod_with_ipv6_alone_gets_a_mac_of_its_own_that_never_changes() -> None:
    assert mac_text(pod_mac((parse_ip("fd00:10:1::10"),))) == "0a:58:9b:35:91:da"
    macs = {pod_mac((Ip(6, value),)) for value in range(1000)}
    assert len(macs) == 1000
    assert all(usable_mac(mac) and mac >> 32 == 0x0A58 for mac in macs)


def test_a_pods_port_name_fits_an_interface_and_depends_on_namespace_and_name() -> None:
    assert pod_port_name("default", "a") == "sb9efb36117d50"
    assert pod_port_name("a", "b/c") == pod_port_name("a/b", "c")  # neither can hold a slash in Kubernetes
    assert pod_port_name("a", "b") != pod_port_name("b", "a")


def test_the_link_local_address_is_the_modified_eui_64_of_the_mac() -> None:
    assert str(link_local(parse_mac("0a:58:0a:0a:01:0a"))) == "fe80::858:aff:fe0a:10a"
    assert str(link_local(parse_mac("00:00:00:00:00:00"))) == "fe80::200:ff:fe00:0"


def test_the_first_and_second_address_of_a_prefix_are_those_of_gateway_and_snat() -> None:
    assert [str(parse_cidr("10.10.1.0/24").address(index)) for index in (1, 2)] == ["10.10.1.1", "10.10.1.2"]
    assert str(Cidr(6, parse_ip("fd00:10:1::").value, 64).address(2)) == "fd00:10:1::2"
