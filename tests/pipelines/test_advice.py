"""What a person is told about objects that cannot work, and that it is taken back."""

import pytest

from pipelines.model import Change, Kind, Pod, Problem, Settings, TrafficMode, Tunnel
from pipelines.mtu import mtu_of_pods, pod_mtu
from tests.pipelines.objects import compiled, gone, ips, node, operator, pod


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
