"""`signalbox compile`: ovs-ofctl accepts it, it is complete, and the same each time."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from apps import offline
from apps.cli import signalbox
from k8s_bridge import manifests
from pipelines.derived import Derived
from pipelines.ids import split_cookie
from pipelines.model import Settings
from pipelines.tables import TABLES
from pipelines.unit import ScopeKind
from tests.apps.stub import DEMO

NODES = ("n1", "n2", "n3")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(signalbox, ["compile", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("node", NODES)
def test_ovs_ofctl_accepts_every_flow(node: str, tmp_path: Path) -> None:
    printed = run("--node", node, "--only", "flows", DEMO)
    file = tmp_path / "flows"
    file.write_text(printed.stdout)
    words = ["ovs-ofctl", "-O", "OpenFlow15", "parse-flows", str(file)]
    parsed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    flows = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert parsed.stdout.count("OFPT_FLOW_MOD") == len(flows) > 100


@pytest.mark.parametrize("node", NODES)
def test_it_is_the_same_each_time(node: str) -> None:
    assert run("--node", node, DEMO).stdout == run("--node", node, DEMO).stdout


def test_every_table_has_a_flow_in_order_of_tables_and_priorities() -> None:
    flows = json.loads(run("--node", "n1", "--output", "json", DEMO).stdout)["flows"]
    order = [(row["table"], -row["priority"]) for row in flows]
    assert order == sorted(order)
    assert {row["table_name"] for row in flows} == set(TABLES)


def test_every_cookie_is_our_own_and_leads_to_its_object() -> None:
    flows = json.loads(run("--node", "n1", "--output", "json", DEMO).stdout)["flows"]
    assert all(split_cookie(int(row["cookie"], 16)) for row in flows)
    assert {"default/web-1", "10.96.0.80 TCP 80"} <= {row["object"] for row in flows}


def test_groups_that_flows_name_are_printed() -> None:
    printed = json.loads(run("--node", "n1", "--output", "json", DEMO).stdout)
    named = {word for row in printed["flows"] for word in row["flow"].replace(",", " ").split() if "group:" in word}
    assert {word.rpartition("group:")[2] for word in named} == {str(row["group"]) for row in printed["groups"]} != set()


def test_the_head_says_which_ports_were_made_up() -> None:
    head = [line for line in run("--node", "n1", DEMO).stdout.splitlines() if line.startswith("#")]
    assert "#   LOCAL: port LOCAL aa:00:00:00:00:01" in head
    assert "#   eth1: port 1 aa:00:00:00:00:01" in head
    assert any(line.startswith("#   default/a: port 10 0a:58:0a:0a:01:") for line in head)


def test_given_ports_are_used_and_nobody_else_gets_their_number() -> None:
    printed = run("--node", "n1", "--port", "default/b=1/02:00:00:00:00:0b", "--port", "gw0=77", DEMO).stdout
    head = [line.removeprefix("#   ") for line in printed.splitlines() if line.startswith("#   ")]
    assert "default/b: port 1 02:00:00:00:00:0b" in head
    assert "eth1: port 2 aa:00:00:00:00:01" in head
    assert any(line.startswith("gw0: port 77 ") for line in head)
    assert "in_port=77" in printed


@pytest.mark.parametrize("given", ["gw0", "gw0=x", "gw0=0", "=3", "gw0=3/zz", "gw0=99999999999"])
def test_a_port_that_is_none_is_refused(given: str) -> None:
    ran = run("--node", "n1", "--port", given, DEMO)
    assert ran.exit_code == 2
    assert given in ran.stderr or "MAC" in ran.stderr


def test_a_port_that_the_node_lacks_is_refused() -> None:
    ran = run("--node", "n1", "--port", "eth9=4", DEMO)
    assert ran.exit_code == 1
    assert "n1 has no port eth9; there are: LOCAL, eth1, gw0" in ran.stderr


def test_settings_decide_whether_there_is_a_tunnel(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    config.write_text("traffic_mode: encap\n")
    plain = run("--node", "n1", DEMO).stdout
    tunnelled = run("--node", "n1", "--config", config, DEMO).stdout
    to_n2 = "set_field:192.168.77.102->tun_dst"
    assert "tun0" not in plain
    assert "#   tun0: port 3 02:00:00:00:00:03" in tunnelled.splitlines()
    assert to_n2 not in plain
    assert to_n2 in tunnelled


def test_an_unknown_node_is_refused_with_the_known_ones() -> None:
    ran = run("--node", "n9", DEMO)
    assert ran.exit_code == 1
    assert "no usable Node n9; there are: n1, n2, n3" in ran.stderr


def test_a_node_carries_only_what_concerns_it() -> None:
    values = manifests.read(DEMO).values
    one, three = (offline.compile_node(values, Settings(), node) for node in ("n1", "n3"))
    assert {scope.name for scope in one.scopes - three.scopes} == {"n1", "east", "192.168.77.0/24", "fd00:77::/64"}
    assert not one.fleet.errors


@pytest.mark.parametrize("node", NODES)
def test_it_is_what_the_switch_would_be_given_the_flows_of_its_zone_among_it(node: str) -> None:
    compiled = offline.compile_node(manifests.read(DEMO).values, Settings(), node)
    members = compiled.compiler.facts.peek(Derived.MEMBER).values()
    assert [member.scopes for member in members if member.node == node] == [compiled.scopes]
    assert ScopeKind.ZONE in {scope.kind for scope in compiled.scopes}
