"""What somebody changes by hand on a real switch: `signalbox diff` shows it, audits mend it, observed nodes keep it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.switch import BRIDGE
from lab.traffic import Probe
from pipelines.derived import GROUP_SIZE
from pipelines.model import Settings
from tests.ovs import objects
from tests.ovs.asking import VIP, gone
from tests.ovs.cluster import Cluster, Held
from tests.ovs.world import NODES, PORTS

pytestmark = pytest.mark.ovs

OWN = "cookie=0x5b00000000000001,table=0,priority=999,udp,actions=drop"
SETTINGS = {"audit_interval": 0}


def diff(cluster: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    """As a person would call it beside the controller."""
    command = str(Path(sys.executable).with_name("signalbox"))
    return cluster.lab.run("controller", command, "diff", "--url", "http://127.0.0.1:8080", *words, check=False)


def spoil(cluster: Cluster, node: str) -> None:
    """One of each kind: flows gone, altered under their cookie, too many; groups altered, of another type, gone."""
    numbers = [re.findall(r"group_id=(\d+)", line)[0] for line in cluster.groups(node)]
    cluster.lab.ofctl(node, "del-flows", BRIDGE, "table=42,udp")
    cluster.lab.ofctl(node, "mod-flows", BRIDGE, "table=110,actions=drop")
    cluster.lab.ofctl(node, "add-flow", BRIDGE, OWN)
    bucket = "bucket=bucket_id:1,actions=resubmit(,42)"
    cluster.lab.ofctl(node, "mod-group", BRIDGE, f"group_id={numbers[0]},type=select,{bucket}")
    cluster.lab.ofctl(node, "mod-group", BRIDGE, f"group_id={numbers[1]},type=all,{bucket}")
    cluster.lab.ofctl(node, "del-groups", BRIDGE, f"group_id={numbers[2]}")  # with the flow that uses it


KINDS = {"flows missing", "flows altered", "flows too many", "groups altered", "groups missing"}


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[Held]:
    before = cluster.held()
    yield before
    assert cluster.held() == before


def test_what_was_changed_by_hand_is_shown_and_mended(cluster: Cluster, whole: Held) -> None:
    """B71 too: a group of ours that has become one of another type is ours again."""
    said = diff(cluster)
    assert (said.returncode, said.stdout.count(": no difference\n")) == (0, len(NODES)), said.stdout + said.stderr
    spoil(cluster, "n2")
    spoilt = cluster.held()
    said = diff(cluster, "--node", "n2")
    assert said.returncode == 1
    assert all(kind in said.stdout.splitlines()[0] for kind in KINDS), said.stdout[:500]
    assert {line[:4] for line in said.stdout.splitlines()[1:]} == {"  + ", "  - ", "  ~ "}
    assert "table=0, priority=999,udp actions=drop" in said.stdout
    assert diff(cluster, "--node", "n1").returncode == 0
    assert cluster.held() == spoilt, "to look is not to write"
    cluster.product.restart({"audit_interval": 1})
    cluster.ready()
    spoil(cluster, "n1")
    cluster.wait(lambda: cluster.held() == whole, "a sync to mend n2, and an audit n1")
    drift = {row["node"]: row["drift"] for row in cluster.product.get("/v1/switches")}
    assert drift["n1"].keys() >= KINDS
    assert diff(cluster).returncode == 0
    cluster.check_paths()


def test_one_node_is_observed_and_the_others_are_programmed(cluster: Cluster, whole: Held) -> None:
    cluster.product.stop()
    spoil(cluster, "n1")
    spoil(cluster, "n2")
    spoilt = cluster.held()
    cluster.product.settings |= {"observe_nodes": ["n2"], "audit_interval": 1}
    cluster.product.start()
    cluster.wait(lambda: cluster.product.status("/readyz") == 200, "it to compile")
    wanted = {node: "OBSERVING" if node == "n2" else "READY" for node in NODES}
    cluster.wait(
        lambda: {row["node"]: row["state"] for row in cluster.product.get("/v1/switches")} == wanted, "all switches"
    )
    cluster.wait(lambda: cluster.held() == {**whole, "n2": spoilt["n2"]}, "the sync and an audit to mend n1")
    said = diff(cluster, "--node", "n2")
    assert said.returncode == 1
    assert all(kind in said.stdout.splitlines()[0] for kind in KINDS), said.stdout[:500]
    row = next(row for row in cluster.product.get("/v1/switches") if row["node"] == "n2")
    assert row["flow_mods_sent"] == row["group_mods_sent"] == 0
    cluster.product.restart({"observe_nodes": []})
    cluster.ready()
    cluster.wait(lambda: cluster.held() == whole, "the sync and an audit to mend n2")


CROWD = {4: "10.200.0.0/22", 6: "fd00:200::/118"}


def test_service_of_a_thousand_endpoints_uses_as_many_as_it_may_and_harms_no_other(
    cluster: Cluster, whole: Held
) -> None:
    """B32: the cap is told, the lowest addresses are kept, all of those are chosen. As many as one group can hold."""
    cluster.product.restart({"endpoints_per_service_port": GROUP_SIZE})
    cluster.ready()
    for family, prefix in CROWD.items():
        by = {4: "192.168.77.200", 6: "fd00:77::200"}[family]
        cluster.lab.run("router", "ip", "route", "add", prefix, "via", by)
        cluster.lab.run("outside", "ip", "route", "add", "local", prefix, "dev", "lo")
    ends = {str(n): ([f"10.200.{n >> 8}.{n & 255}", f"fd00:200::{n:x}"], None) for n in range(1, 1001)}
    port = PORTS["tcp"]
    cluster.put(objects.service("crowd", list(VIP), [port]), *objects.slices("crowd", port, ends))
    cluster.wait(lambda: cluster.product.get("/v1/problems"), "it to be told")
    for problem in cluster.product.get("/v1/problems"):
        assert (problem["kind"], problem["object"], problem["field"]) == ("Service", "default/crowd", "endpoints")
        assert re.search(r"has 1000 IPv[46] endpoints; only the 900 lowest addresses are used", problem["reason"])

    def large(node: str) -> list[str]:
        return [line for line in cluster.groups(node) if line.count("bucket=") == 900]

    # The source may have seen one file of a family before the other.
    cluster.wait(lambda: all(len(large(node)) == 2 for node in NODES), "a full group for each family")
    cluster.level()
    for node in NODES:
        text = " ".join(cluster.flows(node, "table=42"))
        assert "nat(dst=10.200.3.132:8080)" in text
        assert "nat(dst=10.200.3.133:8080)" not in text
    assert diff(cluster).returncode == 0, "what was read back is what was written"
    for address in VIP:
        answers = cluster.lab.probe("a", [Probe("tcp", address, 80, timeout=4)] * 200)
        assert {answer.error or answer.names[0] for answer in answers} == {"outside"}
    stats = cluster.lab.ofctl("n1", "dump-group-stats", BRIDGE).splitlines()
    used = [len(re.findall(r"bucket\d+:packet_count=[1-9]", line)) for line in stats if line.count("bucket") == 900]
    assert len(used) == 2
    assert min(used) > 100, "connections are spread"
    cluster.check_paths()
    gone(cluster, "crowd")
    cluster.product.restart({"endpoints_per_service_port": Settings().endpoints_per_service_port})
    cluster.ready()
