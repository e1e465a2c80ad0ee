"""`signalbox trace`: where a packet goes, by which flows, and a word about what was asked wrongly."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from apps import packet_words
from apps.cli import signalbox
from apps.commands.trace import Chosen
from pipelines import fields as f
from pipelines.flow import Bucket, Group
from tests.apps.stub import DEMO

TO_SERVICE = "tcp,10.10.1.10:40000→10.96.0.80:80"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(signalbox, ["trace", str(DEMO), "--node", "n1", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("--output", "json", *arguments).stdout)
    return found


def test_a_service_is_translated_to_the_endpoint_that_was_chosen() -> None:
    ends = set()
    for choice in (1, 2):
        out = told("--in", "pod:default/a", "--choice", choice, TO_SERVICE)["out"]
        assert len(out) == 1
        assert out[0]["packet"]["tcp_dst"] == "8080"
        ends.add((out[0]["port"], out[0]["packet"]["nw_dst"]))
    assert len(ends) == 2
    assert ("eth1", "10.10.2.20") in ends


def test_a_pod_without_namespace_is_one_of_default() -> None:
    assert told("--in", "pod:a", TO_SERVICE) == told("--in", "pod:default/a", TO_SERVICE)


def test_the_answer_finds_its_way_back_translated() -> None:
    answers = told("--in", "pod:default/a", "--choice", 2, "--reply", TO_SERVICE)["answers"]
    out = [(sent["port"], sent["packet"]["nw_src"], sent["packet"]["tcp_src"]) for sent in answers[0]["out"]]
    assert out == [("pod:default/a", "10.96.0.80", "80")]


def test_every_step_names_its_flow_and_what_that_is_there_for() -> None:
    steps = told("--in", "pod:default/a", TO_SERVICE)["steps"]
    assert steps[0]["table"] == "classify"
    assert (steps[0]["feature"], steps[0]["object"]) == ("classify.pod", "default/a")
    assert {"field": "ENTERED_BY", "from": "NONE", "to": "POD"} in steps[0]["changes"]
    assert all(step["flow"] and step["feature"] for step in steps)


def test_problems_of_the_manifests_are_counted_beside_the_way(tmp_path: Path) -> None:
    assert run("--in", "pod:a", TO_SERVICE).stderr == ""
    config = tmp_path / "signalbox.yaml"
    config.write_text("virtual_ip4: 192.168.77.102\n")
    ran = run("--in", "pod:a", "--config", config, TO_SERVICE)
    assert ran.exit_code == 0
    assert ran.stderr == f"1 problem was found, `signalbox check {DEMO}` lists them\n"


def test_people_are_told_line_by_line() -> None:
    lines = run("--in", "pod:default/a", "--reply", TO_SERVICE).stdout.splitlines()
    assert lines[0].startswith("by pod:default/a: ")
    assert lines[1].startswith("classify: ")
    assert lines[1].endswith("  # classify.pod default/a")
    assert "The answer:" in lines
    assert lines[-1].startswith("out by pod:default/a: ")


def test_what_no_service_takes_goes_to_the_controller() -> None:
    found = told("--in", "pod:default/a", "tcp,10.10.1.10→10.96.0.80:81")
    assert found["out"] == []
    assert found["to_controller"][0]["tcp_dst"] == "81"


def test_what_is_dropped_says_so() -> None:
    spoofed = run("--in", "pod:default/a", "udp,10.10.1.99:1→10.10.2.10:2")
    assert spoofed.exit_code == 0
    assert spoofed.stdout.splitlines()[-1] == "dropped: its source is none of the addresses of who sends it"
    assert "dropped\n" not in spoofed.stdout


def without_endpoint_on_n1(path: Path) -> Path:
    """The demo's, where no endpoint of the service `local` is on n1."""
    for file in DEMO.iterdir():
        text = file.read_text()
        (path / file.name).write_text(
            text.replace("nodeName: n1", "nodeName: n2") if file.name == "shop.yaml" else text
        )
    return path


def test_what_a_local_policy_drops_says_so(tmp_path: Path) -> None:
    packet = "tcp,203.0.113.9→192.168.77.101:30081"
    assert told("--in", "uplink", packet)["result"] == "sent"
    words = ["trace", str(without_endpoint_on_n1(tmp_path)), "--node", "n1", "--in", "uplink", packet]
    last = CliRunner().invoke(signalbox, words).stdout.splitlines()[-1]
    policy = "externalTrafficPolicy of Service default/local is Local"
    assert last == f"dropped: {policy}, and no endpoint on this node is ready"


def test_a_service_without_endpoints_refuses_by_name() -> None:
    last = run("--in", "pod:a", "tcp,10.10.1.10→10.96.0.93:80").stdout.splitlines()[-1]
    assert last == "refused: TCP reset, because no endpoint of Service default/empty is ready"


def test_what_is_refused_says_how_and_why() -> None:
    ports = {"tcp": "refused: TCP reset", "udp": "refused: ICMP port unreachable"}
    for protocol, said in ports.items():
        last = run("--in", "pod:a", f"{protocol},10.10.1.10→10.96.0.80:81").stdout.splitlines()[-1]
        assert last == f"{said}, because no Service in 10.96.0.0/16 has this address, port and protocol"
    found = told("--in", "pod:a", "tcp,10.10.1.10→10.96.0.80:81")
    assert (found["result"], found["reason"].partition(",")[0]) == ("refused", "TCP reset")
    assert (told("--in", "pod:a", TO_SERVICE)["result"], told("--in", "pod:a", TO_SERVICE)["reason"]) == ("sent", "")


def test_pings_of_services_are_dropped_with_the_reason() -> None:
    found = told("--in", "pod:a", "icmp,10.10.1.10→10.96.0.80")
    assert (found["result"], "no service answers pings" in found["reason"]) == ("dropped", True)


def test_a_tunnel_takes_only_from_nodes(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    config.write_text("traffic_mode: encap\n")
    packet = "icmp,10.10.2.10->10.10.1.10"
    taken = told("--config", config, "--in", "tunnel:192.168.77.102", packet)
    assert [sent["port"] for sent in taken["out"]] == ["pod:default/a"]
    assert told("--config", config, "--in", "tunnel:203.0.113.5", packet)["out"] == []


def test_an_endpoint_that_is_not_there_is_not_chosen() -> None:
    found = [told("--in", "pod:a", "--choice", number, TO_SERVICE)["out"] for number in (1, 2, 3)]
    assert {out[0]["packet"]["nw_dst"] for out in found} == {"10.10.1.20", "10.10.2.20", "10.10.3.20"}
    ran = run("--in", "pod:a", "--choice", 4, TO_SERVICE)
    assert (ran.exit_code, ran.stderr) == (1, "Error: --choice 4: there are 3 endpoints; choose 1 to 3\n")


def test_a_choice_goes_on_in_the_group_that_it_leads_to() -> None:
    outer = Group(1, (Bucket(1, (), weight=2), Bucket(2, (), weight=3)))
    inner = Group(2, tuple(Bucket(number, ()) for number in range(3)))
    packet, chosen = packet_words.parse(TO_SERVICE), Chosen(4)
    assert [chosen(group, packet).id for group in (outer, inner)] == [2, 1]
    with pytest.raises(ValueError, match="choose 1 to 5"):
        Chosen(6)(outer, packet)


@pytest.mark.parametrize(
    ("entry", "to"),
    [("host", "192.168.77.101"), ("host", "10.10.1.1"), ("gw0", "192.168.77.101"), ("host", "127.0.0.1")],
)
def test_what_a_node_sends_to_itself_never_reaches_its_switch(entry: str, to: str) -> None:
    ran = run("--in", entry, f"tcp,192.168.77.101→{to}:30080")
    assert ran.exit_code == 1
    assert f"{to} is n1's own address, and its kernel keeps it" in ran.stderr


@pytest.mark.parametrize(
    ("source", "mac"),
    [
        ("203.0.113.9", "fe:00:00:00:00:01"),  # beyond the router
        ("10.10.3.10", "fe:00:00:00:00:01"),  # a pod of the other subnet
        ("192.168.77.50", "02:00:00:00:00:fe"),  # a stranger on the segment
        ("192.168.77.102", "aa:00:00:00:00:02"),  # n2
        ("10.10.2.10", "aa:00:00:00:00:02"),  # a pod on n2
    ],
)
def test_by_the_uplink_a_packet_has_the_mac_of_the_station_that_sends_it(source: str, mac: str) -> None:
    given = ("--in", "uplink", "--neighbor", "192.168.77.1=fe:00:00:00:00:01")
    assert told(*given, f"tcp,{source}→192.168.77.101:30080")["packet"]["dl_src"] == mac


def test_a_router_that_nobody_knows_has_a_stand_in() -> None:
    packet = "tcp,203.0.113.9→192.168.77.101:30080"
    assert told("--in", "uplink", packet)["packet"]["dl_src"] == "02:00:00:00:00:fe"
    assert told("--in", "uplink", "--src-mac", "02:00:00:00:00:01", packet)["packet"]["dl_src"] == "02:00:00:00:00:01"


ROUTER, ROUTER_MAC = "192.168.77.1", "02:00:00:00:77:01"
TO_N3 = "icmp,10.10.1.10->10.10.3.10"


def test_a_router_whose_mac_is_told_carries_packets_and_their_answers() -> None:
    assert [sent["port"] for sent in told("--in", "pod:a", TO_N3)["out"]] == ["gw0"]
    found = told("--in", "pod:a", "--neighbor", f"{ROUTER}={ROUTER_MAC}", "--reply", TO_N3)
    (sent,) = found["out"]
    assert (sent["port"], sent["packet"]["dl_dst"]) == ("eth1", ROUTER_MAC)
    assert [one["port"] for one in found["answers"][0]["out"]] == ["pod:default/a"]


def test_a_router_of_the_other_family_changes_nothing_for_this_one() -> None:
    found = told("--in", "pod:a", "--neighbor", f"fd00:77::1={ROUTER_MAC}", TO_N3)
    assert [sent["port"] for sent in found["out"]] == ["gw0"]


def test_a_peer_whose_mac_nothing_better_tells_may_be_told(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    config.write_text("mac_sources: [neighbor]\n")
    packet = "icmp,10.10.1.10->10.10.2.10"
    given = ("--config", config, "--in", "pod:a")
    assert [sent["port"] for sent in told(*given, packet)["out"]] == ["gw0"]
    (sent,) = told(*given, "--neighbor", f"192.168.77.102={ROUTER_MAC}", packet)["out"]
    assert (sent["port"], sent["packet"]["dl_dst"]) == ("eth1", ROUTER_MAC)


@pytest.mark.parametrize(
    ("neighbor", "code", "reason"),
    [
        (f"{ROUTER}", 2, "is not of the form ADDRESS=MAC"),
        (f"{ROUTER}=1:2", 2, "'1:2' is not a MAC address"),
        (f"{ROUTER}=01:00:5e:00:00:01", 2, "is no station's MAC address"),
        (f"n2={ROUTER_MAC}", 2, "'n2' does not appear to be an IPv4 or IPv6 address"),
        (f"192.168.77.7={ROUTER_MAC}", 1, "is no next hop of n1 (192.168.77.1, fd00:77::1), and no address of another"),
        (f"192.168.77.101={ROUTER_MAC}", 1, "no address of another node"),
        (f"192.168.77.102={ROUTER_MAC}", 1, "the MAC of Node n2 is not taken from --neighbor: it is aa:00:00:00:00:02"),
        (f"{ROUTER}=aa:00:00:00:00:01", 1, "it is that of the node's own uplink"),
    ],
)
def test_a_neighbor_that_would_change_nothing_is_refused_in_words(neighbor: str, code: int, reason: str) -> None:
    ran = run("--in", "pod:a", "--neighbor", neighbor, TO_N3)
    assert ran.exit_code == code
    assert reason in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--in", "pod:default/nobody", TO_SERVICE), "no such port on this node"),
        (("--in", "tunnel:192.168.77.102", TO_SERVICE), "no such port on this node"),
        (("--in", "uplink:1", TO_SERVICE), "no such port on this node"),
        (("--in", "host", "10.10.1.10→10.96.0.80"), "is not of the form"),
        (("--in", "host", "gre,10.10.1.10→10.96.0.80"), "'gre' is none of tcp, udp, sctp, icmp"),
        (("--in", "host", "tcp,10.10.1.10→10.96.0.80"), "needs a destination port"),
        (("--in", "host", "tcp,10.10.1.10→10.96.0.80:99999"), "'99999' is not a port number"),
        (("--in", "host", "tcp,10.10.1.10→[fd00:96::80]:80"), "of two families"),
        (("--in", "host", "icmp,10.10.1.10:1→10.96.0.80"), "icmp has no ports"),
        (("--in", "host", "--src-mac", "1:2", TO_SERVICE), "'1:2' is not a MAC address"),
    ],
)
def test_what_cannot_be_is_refused_in_words(arguments: tuple[str, ...], reason: str) -> None:
    asked = run(*arguments)
    assert asked.exit_code == 1
    assert reason in asked.stderr


def test_ipv6_ends_with_and_without_a_port() -> None:
    packet = packet_words.parse("udp, fd00:10:1::10 → [fd00:96::80]:53")
    assert (packet[f.UDP_SRC], packet[f.UDP_DST]) == (packet_words.FIRST_PORT, 53)
    assert packet.family == 6
