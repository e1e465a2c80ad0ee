"""Objects that want what others have: addresses and prefixes that overlap in every way. Who was first keeps it."""

from typing import Any

import pytest

from pipelines.addresses import parse_cidr
from pipelines.compiler import Compiler
from pipelines.model import Change, ServiceCidr
from tests.pipelines.objects import compiled, flows_of, gone, node, operator, pod, port, service, service_cidr, slice_

OLD, YOUNG = "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"
AGE: dict[str, Any] = {"created": OLD}
HTTP = ("http", "TCP", 8080)
PEOPLE = (
    node("n1", ("10.10.1.0/24", "fd00:10:1::/64"), ("192.168.77.101/24", "fd00:77::101/64"), datapath_id=1, **AGE),
    node("n2", ("10.10.2.0/24", "fd00:10:2::/64"), ("192.168.77.102/24", "fd00:77::102/64"), datapath_id=2, **AGE),
    pod("a", "n1", "10.10.1.10", "fd00:10:1::10", **AGE),
    pod("c", "n2", "10.10.2.10", "fd00:10:2::10", **AGE),
    port("n1", "gw0", 2, "0a:58:0a:0a:01:01"),
    service("web", ("10.96.0.80",), ("http", "TCP", 80), **AGE),
    slice_("web-1", "web", ("10.10.2.10",), HTTP),
)


def ranges(*cidrs: str, name: str = "kubernetes", created: str = OLD) -> Change:
    change = service_cidr(*cidrs, name=name)
    return change._replace(value=ServiceCidr(name, created, tuple(parse_cidr(text) for text in cidrs)))


RANGES = ranges("10.96.0.0/16", "fd00:96::/112")
CLUSTER = (*PEOPLE, RANGES)


def flows(compiler: Compiler) -> set[str]:
    return {str(flow) for on in ("n1", "n2") for flow in flows_of(compiler, on)}


def unharmed(*intruders: Change) -> str:
    """The intruders change no flow of the others, come first or last; returns what they are told."""
    before = flows(compiled(*CLUSTER))
    first, last = compiled(*intruders, *CLUSTER), compiled(*CLUSTER)
    last.run(intruders)
    for compiler in (first, last):
        assert not before - flows(compiler)
    assert flows(first) == flows(last)
    assert first.problems() == last.problems()
    last.run(gone(change) for change in intruders)
    assert flows(last) == before
    assert last.problems() == []
    return " ".join(str(problem) for problem in first.problems())


@pytest.mark.parametrize(
    "cidr", ["10.0.0.0/8", "10.10.2.0/24", "10.10.2.16/28", "192.168.77.0/24", "192.168.77.102/32", "fd00::/8"]
)
def test_younger_service_range_does_not_swallow_pods_and_nodes(cidr: str) -> None:
    """In a range everything that is no service is refused."""
    told = unharmed(ranges(cidr, name="bad", created=YOUNG))
    assert f"ServiceCIDR bad: spec.cidrs: {cidr}" in told
    assert "not used as a service range" in told


def test_only_the_prefix_that_overlaps_is_left_out() -> None:
    compiler = compiled(*PEOPLE, ranges("10.0.0.0/8", "fd00:96::/112", created=YOUNG))
    assert any("fd00:96::/112" in flow for flow in flows(compiler))
    assert not any("10.0.0.0/8" in flow for flow in flows(compiler))


@pytest.mark.parametrize("cidr", ["10.96.0.0/16", "10.0.0.0/8", "10.96.3.0/24", "fd00:96::/64"])
def test_younger_podcidr_does_not_take_a_service_range(cidr: str) -> None:
    told = unharmed(node("nx", (cidr,), ("192.168.77.150/24",), created=YOUNG))
    assert "Node nx: spec.podCIDRs" in told
    assert "older service range" in told


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("10.10.2.10/24", "podCIDR 10.10.2.0/24 of the older Node n2"),  # a pod's
        ("10.10.1.1/24", "podCIDR 10.10.1.0/24 of the older Node n1"),  # the gateway's
        ("10.10.1.2/24", "podCIDR 10.10.1.0/24 of the older Node n1"),  # the SNAT address
        ("10.96.0.80/16", "older service range 10.96.0.0/16"),  # a service's
        ("192.168.77.102/24", "belongs to the older Node n2"),
        ("fd00:10:2::10/64", "podCIDR fd00:10:2::/64 of the older Node n2"),
    ],
)
def test_younger_node_does_not_take_an_address(address: str, whose: str) -> None:
    assert whose in unharmed(node("nx", ("10.10.9.0/24",), (address,), created=YOUNG))


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("10.10.2.10", "in podCIDR 10.10.2.0/24 of Node n2"),
        ("10.10.2.99", "in podCIDR 10.10.2.0/24 of Node n2"),
        ("10.10.1.1", "the gateway of podCIDR 10.10.1.0/24"),
        ("10.10.1.2", "the SNAT address of podCIDR 10.10.1.0/24"),
        ("192.168.77.102", "an address of Node n2"),
        ("fd00:77::101", "an address of Node n1"),
        ("fd00:5b::fd", "the virtual address"),
    ],
)
def test_service_does_not_take_an_address_that_is_in_use(address: str, whose: str) -> None:
    bad = service("bad", (address,), ("http", "TCP", 8080), ("ssh", "TCP", 22))
    assert f"Service default/bad: spec.clusterIPs: {address} is {whose}" in unharmed(
        bad, slice_("bad-1", "bad", ("10.10.1.10",), HTTP)
    )


def test_service_with_one_good_address_keeps_that() -> None:
    compiler = compiled(*CLUSTER, service("s", ("10.96.0.90", "fd00:77::101"), ("http", "TCP", 80)))
    assert any("10.96.0.90" in flow for flow in flows(compiler))


def test_ranges_of_the_configuration_come_before_every_node() -> None:
    compiler = compiled(
        *PEOPLE,
        operator(service_cidrs=(parse_cidr("10.96.0.0/16"),)),
        node("nx", ("10.96.4.0/24",), ("10.96.0.80/16",), created="1990-01-01T00:00:00Z"),
    )
    told = " ".join(str(problem) for problem in compiler.problems())
    assert told.count("service range 10.96.0.0/16") == 2


def test_range_is_used_once_what_it_held_is_gone() -> None:
    bad = ranges("10.64.0.0/10", name="more", created=YOUNG)
    other = node("nx", ("10.99.0.0/24",), ("192.168.77.150/24",), created="2025-01-01T00:00:00Z")
    compiler = compiled(*PEOPLE, other, bad)
    assert not any("10.64.0.0/10" in flow for flow in flows(compiler))
    compiler.run([gone(other)])
    assert any("10.64.0.0/10" in flow for flow in flows(compiler))
    compiler.run([other])
    assert not any("10.64.0.0/10" in flow for flow in flows(compiler))
