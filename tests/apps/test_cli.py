"""The `signalbox` command: what it hands to ryu-manager, and what it prints of a running controller's answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from apps import settings
from apps.cli import COMMANDS, signalbox
from apps.rest import Rest
from controller.release import Released
from controller.session import State
from pipelines.addresses import parse_cidr, parse_ip, parse_mac
from pipelines.model import Change, Endpoint, Invalid, Kind, Neighbor, Policy, Problem, Service, Settings, neighbor_key
from pipelines.tables import AFFINITY
from tests.apps.stub import StubFabric, as_desired, session_row


def run(*arguments: object, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(signalbox, [str(one) for one in arguments], env=environment, catch_exceptions=False)


@pytest.fixture
def fabric() -> StubFabric:
    made = StubFabric()
    made.connect({1: ("n1", State.READY), 9: ("", State.UNCLAIMED)})
    made.switches.held[1] = as_desired(made, 1)
    return made


@pytest.fixture
def url(fabric: StubFabric) -> Iterator[str]:
    rest = Rest(lambda: fabric, lambda: lambda: None)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            answer = rest.answer(self.command, path, query)
            body = b"".join(answer.body)
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  (the name is http.server's)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# --- run --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    calls: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, words, environment: calls.append((words, environment)))
    monkeypatch.delenv(settings.VARIABLE, raising=False)
    return calls


def test_run_becomes_ryu_manager_with_its_options(
    started: list[tuple[list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "manifests").mkdir()
    ran = run(
        "run", "--source", "manifests", "--ofp-listen", "[::]:6653", "--rest-listen", "127.0.0.1:9", "--mode", "observe"
    )
    assert ran.exit_code == 0
    (words, environment), *_ = started
    assert Path(words[0]).name == "ryu-manager"
    assert words[1:] == ["apps.fabric", "apps.inspection"]
    monkeypatch.setenv(settings.OPTIONS, environment[settings.OPTIONS])
    config = settings.current()
    assert (config.source, config.ofp_listen, config.rest_listen) == ("manifests", "[::]:6653", "127.0.0.1:9")
    assert config.mode == "observe"


@pytest.mark.parametrize("by_option", [True, False])
def test_run_takes_a_file_by_option_or_environment(
    by_option: bool, started: list[tuple[list[str], dict[str, str]]], tmp_path: Path
) -> None:
    file = tmp_path / "signalbox.yaml"
    file.write_text("source: in-cluster\n")
    if by_option:
        run("run", "--config", file)
    else:
        run("run", environment={settings.VARIABLE: str(file)})
    assert started[0][1][settings.VARIABLE] == str(file)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "source: required"),
        (["--source", "x", "--mode", "watch"], "mode: invalid enum value 'watch'"),
        (["--source", "x", "--ofp-listen", "6653"], "ofp_listen: '6653' is not of the form ADDRESS:PORT"),
        (["--config", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read"),
    ],
)
def test_run_refuses_wrong_settings_before_it_starts(
    options: list[str], said: str, started: list[tuple[list[str], dict[str, str]]]
) -> None:
    ran = run("run", *options)
    assert ran.exit_code == 1
    assert said in ran.stderr
    assert not started


def test_run_refuses_a_directory_that_is_not_there(
    started: list[tuple[list[str], dict[str, str]]], tmp_path: Path
) -> None:
    ran = run("run", "--source", tmp_path / "nodir")
    assert ran.exit_code == 2
    assert ran.stderr == f"Error: source: the directory {tmp_path}/nodir cannot be read: No such file or directory\n"
    assert not started


# --- questions to a running controller ------------------------------------------------------------------------------


def test_nodes_are_a_table(url: str) -> None:
    lines = run("nodes", "--url", url).stdout.splitlines()
    assert lines[0].split()[:3] == ["NODE", "SWITCH", "DATAPATH"]
    assert lines[1].split()[:3] == ["n1", "READY", "0000000000000001"]
    assert "aa:00:00:00:00:02 (annotation)" in lines[2]


def test_nodes_show_routers_their_age_and_the_mode(url: str, fabric: StubFabric) -> None:
    key = neighbor_key("n1", parse_ip("192.168.77.1"))
    fabric.compiler.run([Change(Kind.NEIGHBOR, key, Neighbor(parse_mac("fe:00:00:00:77:01")))])
    fabric.neighbors.rows[key] = {"age_seconds": 12.4, "problems": []}
    lines = run("nodes", "--url", url).stdout.splitlines()
    assert "192.168.77.1* fe:00:00:00:77:01 (neighbor, 12 s ago), fd00:77::1 unknown" in lines[1]
    assert "192.168.77.1 unknown" in lines[2]
    assert lines[-1] == "traffic: noEncap, egress gateway, MACs from switch, annotation, neighbor"
    fabric.compiler.run([Change(Kind.NEIGHBOR, key, Neighbor(parse_mac("fe:00:00:00:77:01"), reachable=False))])
    assert "(neighbor, 12 s ago, silent)" in run("nodes", "--url", url).stdout


def test_one_node_shows_its_way_to_each_other(url: str) -> None:
    lines = [" ".join(line.split()) for line in run("nodes", "n1", "--url", url).stdout.splitlines()]
    assert "n2 IPv4 direct aa:00:00:00:00:02" in lines
    assert "n3 IPv4 gateway - the MAC of 192.168.77.1 is not known" in lines
    ran = run("nodes", "n9", "--url", url)
    assert (ran.exit_code, "there is no Node n9" in ran.stderr) == (1, True)


def test_pods_are_a_table_with_what_they_may_send(url: str, fabric: StubFabric) -> None:
    value = fabric.compiler.facts.peek(Kind.POD)["default/a"]
    fabric.compiler.run([Change(Kind.POD, "default/a", replace(value, mtu=9000))])
    ran = run("pods", "--url", url, "--node", "n1")
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("default/a ")]
    assert "(missing)" in line
    assert line.endswith("9000 (at most 1500)")
    assert "9000 is more than the 1500 bytes" in ran.stderr
    assert len(run("pods", "--url", url, "--mtu", "wrong").stdout.splitlines()) == 2
    assert "more Pod" not in ran.stderr


def test_pods_without_a_port_are_counted(url: str, fabric: StubFabric) -> None:
    every = len(fabric.compiler.facts.peek(Kind.POD))
    listed = len(run("pods", "--url", url).stdout.splitlines()) - 1
    assert every > listed
    said = run("pods", "--url", url).stderr
    assert said.startswith(f"{every - listed} more Pods have no port: on the host network")


def test_services_are_a_table_with_endpoints(url: str) -> None:
    lines = run("services", "--url", url).stdout.splitlines()
    (line,) = [line for line in lines if "10.96.0.80:80" in line]
    assert line.split() == ["default/web", "10.96.0.80:80", "TCP", "ClusterIP", "Cluster", "-", "served",
                            "10.10.1.20:8080", "10.10.2.20:8080", "10.10.3.20:8080"]  # fmt: skip
    assert any("[fd00:96::50]:80" in line for line in lines)


def test_node_ports_and_load_balancer_addresses_have_lines_of_their_own(url: str) -> None:
    lines = [" ".join(line.split()) for line in run("services", "--url", url).stdout.splitlines()]
    assert any(line.startswith("default/shop 0.0.0.0:30080 TCP NodePort Cluster - served") for line in lines)
    assert any(line.startswith("default/shop [::]:30080 TCP NodePort Cluster - served") for line in lines)
    assert any(line.startswith("default/shop 192.0.2.80:80 TCP load balancer Cluster - served") for line in lines)


def test_the_list_shows_which_services_have_affinity(url: str) -> None:
    lines = [" ".join(line.split()) for line in run("services", "--url", url).stdout.splitlines()]
    assert any(line.startswith("default/sticky 10.96.0.92:80 TCP ClusterIP Cluster 600 s served") for line in lines)


def test_node_ports_are_shown_where_they_are(url: str, fabric: StubFabric) -> None:
    def lines() -> list[str]:
        return [" ".join(line.split()) for line in run("services", "shop", "--url", url).stdout.splitlines()]

    prefixes = tuple(map(parse_cidr, ("192.168.77.0/24", "192.168.78.0/24")))
    fabric.compiler.run([Change(Kind.SETTINGS, "", Settings(node_port_addresses=prefixes))])
    assert any("192.168.77.0/24:30080 192.168.78.0/24:30080 TCP NodePort" in line for line in lines())
    assert any(line.endswith("not served node_port_addresses has none of IPv6") for line in lines())


def test_an_address_that_nobody_announces_is_said_so_with_what_to_do(url: str, fabric: StubFabric) -> None:
    value = fabric.compiler.facts.peek(Kind.SERVICE)["default/web"]
    changed = replace(value, load_balancer_ips=(parse_ip("192.168.77.150"),))
    fabric.compiler.run([Change(Kind.SERVICE, "default/web", changed)])
    said = run("services", "web", "--url", url).stdout
    (line,) = [line for line in said.splitlines() if "192.168.77.150:80" in line]
    assert " load balancer Cluster - served, not announced 10.10.1.20:8080" in " ".join(line.split())
    assert "\n192.168.77.150: served, but not announced: clients on its subnet, and routers there, find it only" in said
    assert "`announce` (docs/services.md)" in said


def test_many_endpoints_are_counted_and_not_listed(url: str, fabric: StubFabric) -> None:
    key = "default/web-ipv4"
    slices = fabric.compiler.facts.peek(Kind.ENDPOINT_SLICE)
    many = tuple(Endpoint(parse_ip(f"192.0.2.{number}")) for number in range(1, 21))
    changes = [Change(Kind.ENDPOINT_SLICE, key, replace(slices[key], endpoints=many))]
    fabric.compiler.run(changes)
    (line,) = [line for line in run("services", "--url", url).stdout.splitlines() if "10.96.0.80:80" in line]
    assert line.endswith("192.0.2.8:8080 and 12 more")


def test_one_service_shows_its_endpoints_and_what_a_node_chooses(url: str, fabric: StubFabric) -> None:
    value = fabric.compiler.facts.peek(Kind.SERVICE)["default/web"]
    more = {"affinity": 600, "internal_policy": Policy.LOCAL, "health_check_port": 31000}
    ranges = (parse_cidr("198.51.100.0/24"),)
    fabric.compiler.run([Change(Kind.SERVICE, "default/web", replace(value, **more, source_ranges=ranges))])
    ran = run("services", "web", "--node", "n2", "--url", url)
    lines = [" ".join(line.split()) for line in ran.stdout.splitlines()]
    assert "a client keeps its endpoint for 600 s after its last connection" in lines
    assert "only for clients in 198.51.100.0/24" in lines
    assert "health checks on port 31000: not answered yet (needs the node agent)" in lines
    assert "10.10.2.20:8080 TCP n2 ready yes - web-ipv4" in lines
    choice = "10.96.0.80:80 TCP ClusterIP all clients own internalTrafficPolicy is Local 10.10.2.20:8080"
    assert choice in lines
    assert "own" not in run("services", "default/web", "--url", url).stdout


def test_a_node_alone_is_no_question_about_services(url: str) -> None:
    ran = run("services", "--node", "n1", "--url", url)
    assert (ran.exit_code, "needs the NAME" in ran.stderr) == (2, True)
    ran = run("services", "default/none", "--url", url)
    assert (ran.exit_code, "there is no Service default/none" in ran.stderr) == (1, True)


def test_flows_are_in_order_and_filtered(url: str) -> None:
    lines = run("flows", "--url", url, "--node", "n1", "--table", "route").stdout.splitlines()
    assert len(lines) > 20
    assert {line.split()[0] for line in lines[1:]} == {"route"}
    priorities = [int(line.partition("priority=")[2].split(",")[0].split()[0]) for line in lines[1:]]
    assert priorities == sorted(priorities, reverse=True)


def test_flows_of_an_object_are_found_by_its_name(url: str) -> None:
    lines = run("flows", "--url", url, "--node", "n1", "--object", "default/a").stdout.splitlines()
    assert lines[0].split() == ["TABLE", "OBJECT", "FEATURE", "SCOPE", "FLOW"]
    assert len(lines) > 1
    assert {line.split()[1] for line in lines[1:]} == {"default/a"}
    every = json.loads(run("flows", "--url", url, "--node", "n1", "--output", "json").stdout)
    some = json.loads(run("flows", "--url", url, "--node", "n1", "--object", "default/a", "--output", "json").stdout)
    assert some == [row for row in every if "default/a" in row["object"]]


def test_tables_into_which_switches_learn_say_where_that_is_seen(url: str) -> None:
    said = run("flows", "--url", url, "--table", "affinity").stderr
    assert said.startswith("affinity: flows that a switch learned are not listed")
    assert "ovs-ofctl -O OpenFlow15 dump-flows br0 table=40" in said
    assert run("flows", "--url", url, "--table", "affinity", "--object", "sticky").stderr == said
    assert run("flows", "--url", url, "--table", "route").stderr == ""


def test_a_wrong_parameter_is_said_in_the_controllers_words(url: str) -> None:
    ran = run("flows", "--url", url, "--table", "nowhere")
    assert ran.exit_code == 1
    assert "no table nowhere" in ran.stderr


def test_status_shows_problems_and_switches(url: str, fabric: StubFabric) -> None:
    fabric.source.now = type(fabric.source.now)("directory x", problems=(Problem("File", "a.yaml", "content", "bad"),))
    fabric.switches.rows.append(session_row(2, "n2", State.SLAVE, last_error="another master"))
    text = run("status", "--url", url).stdout
    for words in ("the switch of n2 is SLAVE: another master", "UNCLAIMED", "a.yaml", "longest stall"):
        assert words in text


def test_status_counts_problems_at_the_top_and_ends_well_in_spite_of_them(url: str, fabric: StubFabric) -> None:
    ran = run("status", "--url", url)
    assert ran.exit_code == 0
    assert ["problems", "none"] in [line.split() for line in ran.stdout.splitlines()]
    problems = tuple(Problem("File", name, "content", "bad") for name in ("a.yaml", "b.yaml"))
    fabric.source.now = type(fabric.source.now)("directory x", problems=problems)
    ran = run("status", "--url", url)
    assert " ".join(ran.stdout.splitlines()[2].split()) == "problems 2, listed below"
    assert ran.exit_code == 0


@pytest.mark.parametrize("output", ["text", "json"])
def test_status_ends_with_one_until_all_is_ready(output: str, url: str, fabric: StubFabric) -> None:
    fabric.reasons = ["the source is not in sync"]
    assert run("status", "--url", url, "--output", output).exit_code == 1


def test_status_says_which_nodes_have_no_switch(url: str) -> None:
    (line,) = [line for line in run("status", "--url", url).stdout.splitlines() if line.startswith("switches")]
    assert line.endswith("1 READY, 1 UNCLAIMED; no switch of n2, n3 is connected")


def test_status_says_what_switches_need_that_no_node_names(url: str, fabric: StubFabric) -> None:
    fabric.connect({9: ("", State.UNCLAIMED)})
    ran = run("status", "--url", url)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("ready")]
    assert "the only switch is UNCLAIMED: no Node names it by the annotation signalbox.dev/datapath-id" in line


def test_status_names_what_is_held_and_how_to_let_it_go(url: str, fabric: StubFabric) -> None:
    assert "signalbox confirm" not in run("status", "--url", url).stdout
    held = tuple((Kind.SERVICE, f"default/s{number}") for number in range(4))
    fabric.source.now = type(fabric.source.now)("directory x", held=held)
    (line,) = [line for line in run("status", "--url", url).stdout.splitlines() if line.startswith("held")]
    assert "4 objects (Service default/s0, Service default/s1, Service default/s2 …)" in line
    assert "`signalbox confirm`" in line


def test_nodes_tell_which_ports_their_switches_lack(url: str) -> None:
    ran = run("nodes", "--url", url)
    assert ran.stdout.splitlines()[1].endswith("3 (3 without port)")
    assert ran.stdout.splitlines()[2].endswith("2 (2 without port)")


def test_a_service_that_has_no_address_is_listed_too(url: str, fabric: StubFabric) -> None:
    problem = Problem(Kind.SERVICE, "default/broken", "spec.clusterIPs[0]", "'10.96.0.777' is no address")
    fabric.compiler.run([Change(Kind.SERVICE, "default/broken", Invalid((problem,)))])
    ran = run("services", "--url", url)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("default/broken")]
    assert line.split() == ["default/broken", "-", "-", "-", "-", "-", "unusable"]
    assert "'10.96.0.777' is no address" in ran.stderr


def test_a_service_that_is_left_alone_is_listed_with_the_reason(url: str, fabric: StubFabric) -> None:
    value = Service("default", "ext", left_alone="ExternalName: a name in DNS")
    fabric.compiler.run([Change(Kind.SERVICE, "default/ext", value)])
    for words in (("services",), ("services", "ext"), ("services", "ext", "--node", "n1")):
        ran = run(*words, "--url", url)
        assert ran.exit_code == 0
        (line,) = [line for line in ran.stdout.splitlines() if line.startswith("default/ext")]
        assert " ".join(line.split()) == "default/ext - - - - - left alone ExternalName: a name in DNS"


def test_diff_is_silent_and_ends_well_when_all_is_as_it_should_be(url: str) -> None:
    ran = run("diff", "--url", url)
    assert ran.exit_code == 0
    assert ran.stdout == "n1 (0000000000000001): no difference\n"


def test_diff_shows_lines_and_ends_with_one(url: str, fabric: StubFabric) -> None:
    fabric.switches.held[1] = type(fabric.switches.held[1])()
    ran = run("diff", "--url", url, "--node", "n1")
    assert ran.exit_code == 1
    assert "flows missing" in ran.stdout
    assert any(line.startswith("  + ") for line in ran.stdout.splitlines())


def test_drops_name_the_flow_and_its_object_the_most_first(url: str, fabric: StubFabric) -> None:
    every = as_desired(fabric, 1).flows
    local = next(key for key in every if feature_of(fabric, key) == "services.frontend")
    output = next(key for key in every if feature_of(fabric, key) == "output")
    called = next(key for key in every if key[0] == AFFINITY.id)  # there to do nothing is to go on
    fabric.switches.dropped[1] = {local: 5, output: 7, called: 9, b"nobody's": 9}
    lines = [line.split() for line in run("drops", "--url", url, "--node", "n1").stdout.splitlines()]
    assert lines[0] == ["NODE", "PACKETS", "TABLE", "OBJECT", "FEATURE", "FLOW"]
    assert [line[:3] for line in lines[1:]] == [["n1", "7", "output"], ["n1", "5", "service_lb"]]
    (first, _) = json.loads(run("drops", "--url", url, "--output", "json").stdout)
    assert (first["packets"], first["feature"]) == (7, "output")
    assert "it went away" in lost(fabric, url)


def feature_of(fabric: StubFabric, flow: bytes) -> str:
    units = fabric.fleet.units.values()
    return next(key.feature for of_scope in units for key, unit in of_scope.items() if flow in unit.flows)


def lost(fabric: StubFabric, url: str) -> str:
    fabric.switches.dropped.clear()
    return run("drops", "--url", url).stderr


def test_diff_of_a_node_that_is_not_connected_is_an_error(url: str) -> None:
    assert "the switch of node n2 is not connected" in run("diff", "--url", url, "--node", "n2").stderr


def test_confirm_says_what_was_released(url: str, fabric: StubFabric) -> None:
    fabric.switches.rows = [session_row(1, "n1", State.READY, held_removals=5)]
    assert "released: 5 flows and groups, 0 objects" in run("confirm", "--url", url).stdout
    assert fabric.confirmed == 1


def test_an_audit_waits_for_its_outcome(url: str, fabric: StubFabric) -> None:
    ran = run("audit", "--url", url)
    assert (ran.exit_code, ran.stdout) == (0, "n1: no difference\n")
    fabric.switches.drift = {"flows missing": 2}
    ran = run("audit", "--url", url, "--node", "n1")
    assert (ran.exit_code, ran.stdout) == (1, "n1: 2 flows were missing, put back\n")
    assert run("audit", "--url", url, "--node", "n2").exit_code == 1


def test_an_audit_says_what_was_done_about_each_difference(url: str, fabric: StubFabric) -> None:
    fabric.switches.drift = {"flows altered": 1, "flows too many": 3, "groups outdated": 2}
    said = run("audit", "--url", url).stdout
    assert said == (
        "n1: 1 flow was altered, written again; 3 flows were too many, removed; 2 groups were outdated, "
        "brought up to date\n"
    )
    fabric.switches.rows = [session_row(1, "n1", State.READY, held_removals=5)]
    fabric.switches.drift = {}
    assert "5 removals are held back; `signalbox confirm` lets them go" in run("audit", "--url", url).stdout


def test_an_audit_names_switches_that_it_does_not_look_at(url: str, fabric: StubFabric) -> None:
    fabric.switches.rows = [session_row(2, "n2", State.SLAVE)]
    ran = run("audit", "--url", url)
    assert (ran.exit_code, ran.stdout) == (1, "n2: not looked at: SLAVE\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("1",), "switch 0000000000000001 is not released: Node n1 names it"),
        (("77",), "no switch with datapath id 0000000000000077 is connected"),
        (("nine",), "'nine' is not a datapath id"),
        (("9", "--url", "http://127.0.0.1:1"), "no controller answers at http://127.0.0.1:1"),
    ],
)
def test_nobody_is_asked_about_a_release_that_cannot_be(url: str, arguments: tuple[str, ...], reason: str) -> None:
    ran = CliRunner().invoke(signalbox, ["release", "--url", url, *arguments], input="y\n")
    assert ran.exit_code == 1
    assert reason in ran.stderr
    assert "Delete" not in ran.stderr


def test_nobody_is_asked_about_a_switch_that_holds_nothing(url: str, fabric: StubFabric) -> None:
    fabric.switches.abandoned = Released(0, 0)
    ran = CliRunner().invoke(signalbox, ["release", "9", "--url", url], input="y\n")
    assert (ran.exit_code, ran.stdout) == (0, "switch 0000000000000009 holds nothing of Signalbox's\n")
    assert fabric.switches.released == []


def test_a_release_asks_first(url: str, fabric: StubFabric) -> None:
    asked = CliRunner().invoke(signalbox, ["release", "9", "--url", url], input="n\n")
    assert "Delete 300 flows and 7 groups from switch 0000000000000009?" in asked.stderr
    assert asked.exit_code == 1
    assert fabric.switches.released == []
    assert CliRunner().invoke(signalbox, ["release", "9", "--url", url], input="y\n").exit_code == 0
    assert (
        run("release", "9", "--yes", "--url", url).stdout
        == "released 0000000000000009: 300 flows and 7 groups deleted\n"
    )
    assert fabric.switches.released == [9, 9]
    assert "Node n1 names it" in run("release", "1", "--yes", "--url", url).stderr


@pytest.mark.parametrize(
    "command", ["status", "nodes", "pods", "services", "flows", "diff", "confirm", "claim", "audit"]
)
def test_json_is_json(command: str, url: str) -> None:
    assert json.loads(run(command, "--url", url, "--output", "json").stdout)


def test_no_controller_is_said_plainly() -> None:
    ran = run("nodes", "--url", "http://127.0.0.1:1")
    assert ran.exit_code == 1
    assert "no controller answers at http://127.0.0.1:1: " in ran.stderr
    assert "--url (or SIGNALBOX_URL) says where it is" in ran.stderr
    assert "`signalbox lab exec --name NAME controller -- signalbox …`" in ran.stderr


# --- the command itself ---------------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    text = run("--help").stdout
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_version_and_an_unknown_command() -> None:
    assert run("version").stdout.startswith("signalbox 0.")
    assert run("--version").stdout == run("-V").stdout == run("version").stdout
    assert run("launch").exit_code == 2


def test_the_command_imports_neither_ryu_nor_a_kubernetes_client_before_it_has_to() -> None:
    program = (
        "import sys; from apps.cli import main; main.__globals__['signalbox'].get_command(None, 'run');"
        "print(sorted({'ryu', 'eventlet', 'kubernetes'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
