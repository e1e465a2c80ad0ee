"""What a person is told about objects that cannot work, and that it is taken back."""

from typing import Any

import pytest

from pipelines.addresses import Cidr, parse_cidr, parse_ip
from pipelines.model import Change, Kind, Pod, Problem, Settings, TrafficMode, Tunnel
from pipelines.mtu import mtu_of_pods, pod_mtu
from tests.pipelines.objects import compiled, gone, ips, node, operator, pod, service_cidr


def told(*changes: Change) -> list[str]:
    return [str(problem) for problem in compiled(*changes).problems()]


def with_mtu(mtu: int) -> Change:
    return pod("a", "n1", "10.10.1.10", mtu=mtu)


N1 = node("n1", ["10.10.1.0/24"], ["192.168.77.101/24"])


def test_a_pod_of_an_unknown_node_is_told_until_the_node_is_there() -> None:
    compiler = compiled(pod("a", "n1", "10.10.1.10"))
    reason = "there is no usable Node n1; nothing reaches this pod"
    assert compiler.problems() == [Problem(Kind.POD, "default/a", "spec.nodeName", reason)]
    compiler.run([N1])
    assert compiler.problems() == []
    compiler.run([gone(N1)])
    assert len(compiler.problems()) == 1


def test_a_pod_without_address_needs_no_node() -> None:
    assert told(Change(Kind.POD, "default/a", Pod("default", "a", node="n1"))) == []


@pytest.mark.parametrize(
    ("mode", "mtu", "wrong"),
    [
        (TrafficMode.NO_ENCAP, 1500, False),
        (TrafficMode.NO_ENCAP, 1501, True),
        (TrafficMode.HYBRID, 1450, False),
        (TrafficMode.HYBRID, 1451, True),
        (TrafficMode.ENCAP, 1500, True),
    ],
)
def test_a_pod_whose_mtu_is_too_large_for_its_node_is_told(mode: TrafficMode, mtu: int, wrong: bool) -> None:
    assert bool(told(N1, with_mtu(mtu), operator(traffic_mode=mode))) is wrong


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("10.10.1.10", ""),
        ("10.10.2.10", "lies in no podCIDR of its Node n1 (10.10.1.0/24), but in 10.10.2.0/24 of Node n2; only pods"),
        ("10.99.0.10", "10.99.0.10 lies in no podCIDR of its Node n1 (10.10.1.0/24); only pods of that node reach it"),
        ("fd00:10:1::10", "(it has no IPv6 one)"),
    ],
)
def test_a_pod_whose_address_is_not_of_its_node_is_told(address: str, words: str) -> None:
    found = told(N1, node("n2", ["10.10.2.0/24"]), pod("a", "n1", address))
    if not words:
        assert found == []
        return
    (line,) = found
    assert line.startswith("Pod default/a: status.podIPs: ")
    assert words in line


def test_a_pod_that_did_not_get_its_address_is_told_that_alone() -> None:
    (line,) = told(N1, pod("a", "n1", "192.168.77.101"))
    assert "is an address of Node n1; ignored here" in line


def test_pods_of_a_node_whose_pod_cidr_is_not_routed_are_not_told_one_by_one() -> None:
    older = node("n0", ["10.10.1.0/24"], created="2023")
    (line,) = told(older, node("n1", ["10.10.1.0/24"], created="2024"), pod("a", "n1", "10.10.1.10"))
    assert line.startswith("Node n1: spec.podCIDRs: ")


# --- settings against the cluster ---------------------------------------------------------------------------

CLUSTER = (
    node("n1", ["10.10.1.0/24", "fd00:10:1::/64"], ["192.168.77.101/24", "fd00:77::101/64"]),
    service_cidr("10.96.0.0/16", "fd00:96::/112"),
)


def about_settings(*changes: Change, **settings: Any) -> list[str]:
    chosen = {name: prefixes(value) if isinstance(value, list) else value for name, value in settings.items()}
    return told(*(changes or CLUSTER), operator(**chosen))


def prefixes(texts: list[str]) -> tuple[Cidr, ...]:
    return tuple(parse_cidr(text) for text in texts)


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ("192.168.77.128/25", ""),
        ("192.168.0.0/16", ""),
        ("10.0.0.0/8", "10.0.0.0/8 lies in no subnet of nodes (192.168.77.0/24); nothing in it is announced"),
        (
            "10.10.1.128/25",
            "10.10.1.128/25 lies in podCIDR 10.10.1.0/24 of Node n1; name addresses of the nodes' subnet",
        ),
        ("10.10.1.0/24", "lies in podCIDR 10.10.1.0/24"),
        ("10.96.7.0/24", "lies in the service range 10.96.0.0/16"),
        ("fd00:96::8/125", "lies in the service range fd00:96::/112"),
        ("fd00:78::/64", "lies in no subnet of nodes (fd00:77::/64)"),
    ],
)
def test_a_pool_that_cannot_be_announced_is_told(pool: str, words: str) -> None:
    found = about_settings(announce=[pool])
    assert len(found) == bool(words)
    assert not words or (found[0].startswith("Settings: announce: ") and words in found[0])


def test_what_is_said_of_a_pool_does_not_depend_on_which_node_came_first() -> None:
    nodes = [node(f"n{number}", (), [f"192.168.{number}.1/24"]) for number in (7, 8, 9)]
    assert about_settings(*nodes, announce=["10.0.0.0/8"]) == about_settings(*nodes[::-1], announce=["10.0.0.0/8"])


def test_a_pool_in_a_configured_service_range_is_told_and_without_nodes_nothing_else_is() -> None:
    (line,) = about_settings(operator(), announce=["10.97.1.0/24", "10.9.0.0/24"], service_cidrs=["10.97.0.0/16"])
    assert "10.97.1.0/24 lies in the service range 10.97.0.0/16" in line


def test_a_pool_is_told_when_no_prefix_of_a_node_is_known() -> None:
    (line,) = about_settings(node("n1", (), ["192.168.77.101"]), announce=["192.168.77.128/25"])
    assert "none is known: do Nodes say their addresses with prefix lengths?" in line


def test_prefixes_for_node_ports_that_match_no_node_are_told_while_there_are_nodes() -> None:
    (line,) = about_settings(node_port_addresses=["192.168.0.0/16", "127.0.0.0/8"])
    assert line.startswith("Settings: node_port_addresses: no Node has an address in 127.0.0.0/8")
    assert line.endswith("they have 192.168.77.101, fd00:77::101")
    assert about_settings(operator(), node_port_addresses=["127.0.0.0/8"]) == []


@pytest.mark.parametrize(
    ("ip", "words"),
    [
        ("169.254.0.253", ""),
        ("203.0.113.1", ""),
        ("192.168.77.101", "is an address of Node n1; name one that nothing has, as the default"),
        ("192.168.77.9", "lies in 192.168.77.0/24, a subnet of nodes"),
        ("10.10.1.9", "lies in podCIDR 10.10.1.0/24 of Node n1"),
        ("10.96.9.9", "lies in the service range 10.96.0.0/16"),
        ("fd00:77::9", "lies in fd00:77::/64, a subnet of nodes"),
        ("fd00:10:1::9", "lies in podCIDR fd00:10:1::/64 of Node n1"),
    ],
)
def test_a_virtual_address_that_somebody_may_have_is_told(ip: str, words: str) -> None:
    parsed = parse_ip(ip)
    found = about_settings(**{f"virtual_ip{parsed.family}": parsed})
    assert len(found) == bool(words)
    assert not words or (found[0].startswith(f"Settings: virtual_ip{parsed.family}: {ip} ") and words in found[0])


def test_what_is_said_about_settings_is_taken_back_when_the_cluster_changes() -> None:
    compiler = compiled(*CLUSTER, operator(node_port_addresses=prefixes(["10.1.0.0/16"])))
    assert len(compiler.problems()) == 1
    compiler.run([node("n2", ["10.10.2.0/24"], ["10.1.0.7/24"])])
    assert compiler.problems() == []


def test_a_change_of_mode_lists_pods_that_are_too_large_now() -> None:
    compiler = compiled(N1, with_mtu(1500))
    assert compiler.problems() == []
    compiler.run([operator(traffic_mode=TrafficMode.HYBRID)])
    (problem,) = compiler.problems()
    assert problem.reason == "1500 is more than the 1450 bytes that pods on Node n1 should have"
    compiler.run([operator(traffic_mode=TrafficMode.HYBRID, uplink_mtu=1550)])
    assert compiler.problems() == []


def test_an_uplink_too_small_for_ipv6_in_a_tunnel_is_told() -> None:
    both = node("n1", ["10.10.1.0/24", "fd00:10:1::/64"], ["192.168.77.101/24"], mtu=1300)
    assert told(both) == []
    (line,) = told(both, operator(traffic_mode=TrafficMode.ENCAP))
    assert line.endswith("its pods can have an MTU of 1250 only; IPv6 needs 1280")
    assert told(node("n1", ["10.10.1.0/24"], mtu=1300), operator(traffic_mode=TrafficMode.ENCAP)) == []


@pytest.mark.parametrize(
    ("mode", "tunnel", "first", "uplink", "mtu"),
    [
        (TrafficMode.NO_ENCAP, Tunnel.GENEVE, "192.168.77.101", 1500, 1500),
        (TrafficMode.ENCAP, Tunnel.GENEVE, "192.168.77.101", 1500, 1450),
        (TrafficMode.HYBRID, Tunnel.VXLAN, "192.168.77.101", 1500, 1450),
        (TrafficMode.ENCAP, Tunnel.GENEVE, "fd00:77::101", 1500, 1430),
        (TrafficMode.ENCAP, Tunnel.VXLAN, "fd00:77::101", 1500, 1430),
        (TrafficMode.ENCAP, Tunnel.GENEVE, "192.168.77.101", 65535, 65000),
    ],
)
def test_the_mtu_of_pods_leaves_room_for_the_tunnel(
    mode: TrafficMode, tunnel: Tunnel, first: str, uplink: int, mtu: int
) -> None:
    addresses = ips(first)
    assert pod_mtu(uplink, mode, tunnel, addresses[0].family) == mtu
    settings = Settings(traffic_mode=mode, tunnel=tunnel)
    assert mtu_of_pods(node("n1", mtu=uplink).value, addresses, settings) == mtu  # type: ignore[arg-type]
