"""`signalbox trace`: where a packet goes, by which flows, and a word about what was asked wrongly."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from apps import packet_words
from apps.cli import signalbox
from pipelines import fields as f
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
    assert spoofed.stdout.splitlines()[-1] == "dropped"


def test_a_tunnel_takes_only_from_nodes(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    config.write_text("traffic_mode: encap\n")
    packet = "icmp,10.10.2.10->10.10.1.10"
    taken = told("--config", config, "--in", "tunnel:192.168.77.102", packet)
    assert [sent["port"] for sent in taken["out"]] == ["pod:default/a"]
    assert told("--config", config, "--in", "tunnel:203.0.113.5", packet)["out"] == []


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
