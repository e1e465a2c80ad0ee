"""From manifests to a plan, and from a plan to the words of the shell: pure, so no lab is built here."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import script
from lab.manifests import ManifestError, facts, read
from lab.plan import Options, Plan, Route, plan
from tests.lab.objects import node, pod, segments

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def planned(*documents: dict[str, Any]) -> Plan:
    return plan("lab", facts(list(documents)))


@pytest.fixture(scope="module")
def demo() -> Plan:
    return plan("lab", read(DEMO))


def test_demo_has_two_segments_and_no_problems(demo: Plan) -> None:
    assert demo.problems == ()
    assert [(node.name, node.segment) for node in demo.nodes] == [("n1", 0), ("n2", 0), ("n3", 1)]
    assert {pod.name for pod in demo.pods} == {"a", "b", "c", "d", "web-1", "web-2", "web-3"}


def test_router_holds_the_first_hops_that_the_nodes_name(demo: Plan) -> None:
    first, second = demo.segments
    assert first.router_macs == ("fe:00:00:00:00:01", "fe:00:00:00:00:02")
    assert first.router_addresses == ("192.168.77.1/24", "fd00:77::1/64", "fe80::1/64")
    assert second.router_macs == ("fe:00:00:00:01:01", "fe:00:00:00:01:02")
    assert second.router_addresses == ("192.168.88.1/24", "fd00:88::1/64", "fe80::1/64")
    assert Route("fd00:10:3::/64", "fd00:88::103", "seg1") in demo.router_routes


def test_peers_of_the_same_subnet_are_reached_directly_and_others_by_the_gateway(demo: Plan) -> None:
    assert demo.node("n1").routes == (
        Route("10.10.2.0/24", "192.168.77.102", "br0"),
        Route("fd00:10:2::/64", "fd00:77::102", "br0"),
        Route("10.10.3.0/24", "192.168.77.1", "br0"),
        Route("fd00:10:3::/64", "fd00:77::1", "br0"),
    )


def test_gateway_port_holds_the_first_address_of_each_pod_cidr(demo: Plan) -> None:
    assert demo.node("n2").gateway_addresses == ("10.10.2.1/24", "fd00:10:2::1/64")
    assert demo.node("n2").gateway_mac == "0a:58:0a:0a:02:01"


def test_pod_has_its_computed_mac_and_the_gateways_of_its_node(demo: Plan) -> None:
    d = next(pod for pod in demo.pods if pod.name == "d")
    assert d.port == "sb2f035c8d5cf2"
    assert d.station.mac == "0a:58:0a:0a:03:0a"
    assert d.station.addresses == ("10.10.3.10/24", "fd00:10:3::10/64")
    assert d.station.gateways == ("10.10.3.1", "fd00:10:3::1")


def test_clients_outside_stand_where_tests_expect_them(demo: Plan) -> None:
    assert demo.outside.mac == "ee:00:00:00:00:c8"
    assert demo.outside.addresses == ("192.168.77.200/24", "fd00:77::200/64")
    assert demo.outside.gateways == ("192.168.77.1", "fd00:77::1")
    assert demo.remote.addresses == ("203.0.113.9/24", "fd00:203::9/64")


def test_plan_survives_the_state_file(demo: Plan) -> None:
    assert msgspec.json.decode(msgspec.json.encode(demo), type=Plan) == demo


def test_node_without_a_mac_annotation_has_one_made_of_its_address() -> None:
    assert planned(node("n1", 1, "192.168.77.101/24")).node("n1").mac == "aa:00:00:a8:4d:65"


def test_nodes_that_share_one_subnet_share_a_segment() -> None:
    both = planned(
        node("n1", 1, "192.168.77.101/24"),
        node("n2", 2, "fd00:77::102/64"),
        node("n3", 3, "192.168.77.103/24,fd00:77::103/64"),
    )
    assert [node.segment for node in both.nodes] == [0, 0, 0]
    assert both.segments[0].router_addresses == ("192.168.77.1/24", "fd00:77::1/64", "fe80::1/64")


def test_lab_of_one_family_has_no_trace_of_the_other() -> None:
    only6 = node("n1", 1, "fd00:77::101/64", **{"signalbox.dev/gateways": "fd00:77::1"})
    only6["spec"] = {"podCIDRs": ["fd00:10:1::/64"]}
    built = planned(only6)
    assert built.outside.addresses == ("fd00:77::200/64",)
    assert "cluster4" not in script.masquerade(built, built.nodes[0])


def test_node_of_one_family_has_no_route_of_the_other() -> None:
    both = node("n2", 2, "192.168.77.102/24,fd00:77::102/64")
    both["spec"] = {"podCIDRs": ["10.10.2.0/24", "fd00:10:2::/64"]}
    built = planned(node("n1", 1, "192.168.77.101/24"), both)
    assert built.node("n1").routes == (Route("10.10.2.0/24", "192.168.77.102", "br0"),)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (node("n2", 2, "192.168.77.102/24", **{"signalbox.dev/datapath-id": None}), "datapath-id is missing"),
        (node("n2", 2, "192.168.77.102/24", **{"signalbox.dev/datapath-id": "2"}), "is not 16 hex digits"),
        (node("n2", 2, "192.168.77.102"), "has no prefix length"),
        (node("n2", 2, "192.168.77.102/24", **{"signalbox.dev/gateways": "10.0.0.1"}), "10.0.0.1 is in no subnet"),
        (node("n2", 1, "192.168.77.102/24", **{"signalbox.dev/datapath-id": "2" * 16}), "overlaps 10.10.1.0/24"),
        (node("n2", 2, "192.168.77.102/24", **{"signalbox.dev/datapath-id": f"{1:016x}"}), "is also that of Node n1"),
        (node("n1", 2, "192.168.77.102/24"), "name n1 is also that of Node n1"),
        ({**node("n2", 2, "192.168.77.102/24"), "spec": {}}, "podCIDR is missing"),
    ],
)  # fmt: skip
def test_node_that_cannot_be_built_is_refused_by_name(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said) as caught:
        planned(node("n1", 1, "192.168.77.101/24"), broken)
    assert f"Node {broken['metadata']['name']}" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (pod("p", "n9", "10.10.1.11"), "there is no Node n9"),
        (pod("p", "n1", "10.10.2.11"), "10.10.2.11 is in no podCIDR of Node n1"),
        (pod("p", "n1", "10.10.1.2"), "10.10.1.2 is reserved on Node n1"),
        (pod("p", "n1", "10.10.1.10"), "10.10.1.10 is also that of Pod default/good"),
        (pod("good", "n1", "10.10.1.11"), "appears twice"),
        (pod("p", "n1", "ten"), "'ten' does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_pod_that_cannot_be_built_is_left_out_and_the_rest_stands(broken: dict[str, Any], said: str) -> None:
    built = planned(node("n1", 1, "192.168.77.101/24"), pod("good", "n1", "10.10.1.10"), broken)
    assert [pod.name for pod in built.pods] == ["good"]
    (problem,) = built.problems
    assert said in problem


@pytest.mark.parametrize(
    "absent",
    [
        pod("p", "n1", "192.168.77.101", hostNetwork=True),
        {**pod("p", "n1", "10.10.1.10"), "status": {"phase": "Pending"}},
        {**pod("p", "n1", "10.10.1.10"), "status": {"phase": "Succeeded", "podIPs": [{"ip": "10.10.1.10"}]}},
    ],
)
def test_pod_without_a_network_of_its_own_gets_no_namespace(absent: dict[str, Any]) -> None:
    built = planned(node("n1", 1, "192.168.77.101/24"), absent)
    assert (built.pods, built.problems) == ((), ())


def test_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("kind: [Node")
    with pytest.raises(ManifestError, match=r"nodes\.yaml"):
        read(tmp_path)
    with pytest.raises(ManifestError, match="no such directory"):
        read(tmp_path / "nowhere")


def test_lists_as_kubectl_prints_them_are_read(tmp_path: Path) -> None:
    items = msgspec.json.encode({"kind": "List", "items": [node("n1", 1, "192.168.77.101/24")]})
    (tmp_path / "all.yaml").write_bytes(items)
    assert [node.name for node in read(tmp_path).nodes] == ["n1"]


def test_link_local_first_hops_are_on_every_segment_and_routes_say_by_which_device() -> None:
    built = planned(*segments(3))
    assert [one.router_addresses[-1] for one in built.segments] == ["fe80::1/64"] * 3
    assert Route("fd00:10:3::/64", "fe80::1", "br0") in built.node("n1").routes
    other = node("n1", 1, "192.168.77.101/24,fd00:77::101/64", **{"signalbox.dev/gateways": "fe80::7"})
    assert planned(other).segments[0].router_addresses[-2:] == ("fe80::1/64", "fe80::7/64")


def test_standby_router_holds_no_address_and_no_route(demo: Plan) -> None:
    active, standby = (script.router(demo, place) for place in (demo.active, demo.standby))
    assert (demo.active, demo.standby) == ("router", "router2")
    assert "address replace 192.168.77.1/24 dev seg0" in active
    assert "route replace 10.10.1.0/24 via 192.168.77.101 dev seg0" in active
    assert "link set seg1 up" in standby
    assert "address" not in standby
    assert "route " not in standby


def test_what_a_router_takes_over_is_what_the_other_lets_go(demo: Plan) -> None:
    taken = [line.replace(" replace ", " ").removesuffix(" nodad") for line in script.take_over(demo)]
    left = [line.replace(" delete ", " ") for line in script.stand_by(demo)]
    assert sorted(taken) == sorted(left)
    assert len(taken) == 14


def test_controller_in_band_is_on_the_first_segment_and_there_is_no_other_network(demo: Plan) -> None:
    built = plan("lab", read(DEMO), options=Options(in_band=True))
    assert (demo.controller, built.controller) == ("tcp:198.18.0.1:6653", "tcp:192.168.77.250:6653")
    assert not [line for line in script.links(built) if "mgmt" in line]
    assert "c master seg0" in script.fabric(built)
    assert "master mgmt" not in script.fabric(built)
    assert "mgmt0" not in script.node(built, built.nodes[0], Path("/dir"))
    only6 = node("n1", 1, "fd00:77::101/64")
    assert plan("lab", facts([only6]), options=Options(in_band=True)).controller == "tcp:[fd00:77::250]:6653"


def test_tunnel_port_is_of_the_type_that_was_chosen_or_not_there(demo: Plan) -> None:
    def text(tunnel: Any) -> str:
        built = plan("lab", read(DEMO), options=Options(tunnel=tunnel))
        return script.node(built, built.nodes[0], Path("/dir"))

    for kind in ("geneve", "vxlan"):
        wanted = f"interface tun0 type={kind} options:remote_ip=flow options:key=flow ofport_request=3"
        assert wanted in text(kind)
    assert "tun0" not in text("")


def test_prefixes_outside_can_be_reached_with_the_address_of_the_pod() -> None:
    built = plan("lab", read(DEMO), options=Options(unmasqueraded=("203.0.113.0/24", "fd00:203::/64")))
    sets = [line for line in script.masquerade(built, built.nodes[0]).splitlines() if "set cluster" in line]
    assert [("203.0.113.0/24" in line, "fd00:203::/64" in line) for line in sets] == [(False, True), (True, False)]


def test_host_translates_with_ports_that_the_switch_does_not_use(demo: Plan) -> None:
    rules = script.masquerade(demo, demo.node("n1"))
    first, second = (line for line in rules.splitlines() if "ip daddr" in line)
    assert first.endswith("meta l4proto { tcp, udp } masquerade to :1024-61439")
    assert second.endswith("@cluster4 masquerade")
    assert "echo 61440-65535 >" in script.node(demo, demo.node("n1"), Path("/dir"))


def test_pods_keep_their_address_towards_the_cluster_only(demo: Plan) -> None:
    rules = script.masquerade(demo, demo.node("n1"))
    assert "ip saddr { 10.10.1.0/24 } ip daddr != @cluster4 masquerade" in rules
    for cidr in ("10.10.3.0/24", "192.168.77.102/32", "10.96.0.0/16", "fd00:88::103/128", "fd00:96::/112"):
        assert cidr in rules


def test_every_tapped_device_is_silenced_before_it_comes_up(demo: Plan) -> None:
    text = script.node(demo, demo.node("n1"), Path("/dir"))
    for device in ("eth1", *(one.port for one in demo.pods if one.node == "n1")):
        assert text.index(f'ingress device "{device}"') < text.index(f"link set {device} up")
    assert f'"{next(one.port for one in demo.pods if one.node == "n3")}"' not in text
