"""Cluster YAML in, ovs-ofctl text out: what each node's switch holds, line by line, as files to read and to review.

`make golden` writes the files anew; the difference is then part of the change that caused it. Ports have the
numbers that `signalbox compile` assumes.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from apps.offline import compile_node
from k8s_bridge import manifests
from pipelines.flow import Flow, Group
from pipelines.model import Kind, Node, Settings
from pipelines.text import flow_text, group_text, parse_flow, parse_group

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "examples" / "demo"
CLUSTERS = {"demo": DEMO} | {path.parent.name: path.parent for path in sorted(HERE.glob("*/cluster.yaml"))}


def nodes(directory: Path) -> list[str]:
    """The nodes that have a switch."""
    values = manifests.read(directory).values
    return [key for (kind, key), node in values.items() if kind is Kind.NODE and switched(node)]


def switched(node: object) -> bool:
    return isinstance(node, Node) and node.datapath_id is not None


CASES = [(cluster, node) for cluster, directory in CLUSTERS.items() for node in nodes(directory)]


def file_of(cluster: str, node: str) -> Path:
    return HERE / cluster / f"{node}.flows"


def installed(cluster: str, node: str) -> tuple[list[Group], list[Flow]]:
    offline = compile_node(manifests.read(CLUSTERS[cluster]).values, Settings(), node)
    units = [unit for key, unit in offline.compiler.units.items() if key.scope in offline.scopes]
    groups = sorted((group for unit in units for group in unit.groups), key=lambda group: group.id)
    flows = [flow for unit in units for flow in unit.flows]
    return groups, sorted(flows, key=lambda flow: (flow.table, -flow.priority, flow_text(flow)))


def text(cluster: str, node: str) -> str:
    groups, flows = installed(cluster, node)
    return "".join(f"{line}\n" for line in (*map(group_text, groups), *map(flow_text, flows)))


@pytest.mark.parametrize(("cluster", "node"), CASES)
def test_a_cluster_becomes_the_flows_that_were_reviewed(
    cluster: str, node: str, request: pytest.FixtureRequest
) -> None:
    file = file_of(cluster, node)
    if request.config.getoption("--regenerate-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text(cluster, node))
    assert text(cluster, node).splitlines() == file.read_text().splitlines(), "`make golden` writes it anew"


def test_no_golden_file_is_left_over() -> None:
    assert {file_of(*case) for case in CASES} == set(HERE.glob("*/*.flows"))


@pytest.mark.parametrize(("cluster", "node"), CASES)
def test_a_golden_file_reads_back_as_the_same_text(cluster: str, node: str) -> None:
    for line in file_of(cluster, node).read_text().splitlines():
        again = group_text(parse_group(line)) if line.startswith("group_id") else flow_text(parse_flow(line))
        assert again == line


@pytest.mark.skipif(shutil.which("ovs-ofctl") is None, reason="Open vSwitch is not installed")
@pytest.mark.parametrize(("cluster", "node"), CASES)
def test_open_vswitch_accepts_every_flow_of_a_golden_file(cluster: str, node: str) -> None:
    lines = file_of(cluster, node).read_text().splitlines()
    flows = [line for line in lines if not line.startswith("group_id")]
    command = ["ovs-ofctl", "-O", "OpenFlow15", "parse-flows", "-"]
    ran = subprocess.run(command, input="\n".join(flows), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    said = [line for line in ran.stdout.splitlines() if "FLOW_MOD" in line]
    assert len(said) == len(flows) > 100
