"""Who may write to a switch, and when nothing may be removed: second controllers, twins, guards (B75, B76)."""

import re
from pathlib import Path
from typing import Any

import pytest

from lab.product import Product
from node.bootstrap import COOKIE
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.world import NODES, SERVICES, Service, both

pytestmark = pytest.mark.ovs

FIRST = f"cookie={COOKIE:#x},"  # of the flows by which a node is reached before it has a controller

SECOND = {"ofp_listen": "0.0.0.0:6654", "rest_listen": "127.0.0.1:8081"}


def row(product: Product, node: str) -> dict[str, Any]:
    found = [row for row in product.get("/v1/switches") if row["node"] == node]
    return found[0] if found else {"state": "absent"}


def log(product: Product) -> str:
    return product.log.read_text()


@pytest.fixture
def files(cluster: Cluster, there_and_back: None) -> dict[str, bytes]:
    """The manifests, which the test may spoil."""
    return cluster.manifests.content()


# --- who may write --------------------------------------------------------------------------------------------


def test_second_controller_takes_over_and_the_first_says_so_and_stops(cluster: Cluster) -> None:
    """B76. Both are connected; the switch tells the first that it has lost, and it does not fight."""
    before = cluster.held()
    first = cluster.product
    second = Product(cluster.lab, cluster.manifests.directory, {**first.settings, **SECOND}, name="second")
    target = cluster.lab.plan.controller
    with cluster.streams() as streams:
        second.start()
        second.wait(lambda: second.status("/readyz") == 200, "the second to compile")
        cluster.lab.vsctl("n1", "set-controller", "br0", target, f"{target[:-1]}4")
        second.wait(lambda: row(second, "n1")["state"] == "READY", "the second to have n1")
        cluster.wait(lambda: row(first, "n1")["state"] == "SLAVE", "the first to know")
        assert re.search(r"n1.*another controller", log(first))
        assert row(second, "n1")["role"] == "MASTER"
        assert row(second, "n1")["flow_mods_sent"] == 0  # what the first wrote is what the second wants
        sent = row(first, "n1")["flow_mods_sent"]
        cluster.manifests.put(*Service("new", 210, both("b")).objects())
        second.wait(lambda: any("10.96.0.210" in flow for flow in cluster.flows("n1")), "the second to write")
        cluster.wait(lambda: any("10.96.0.210" in flow for flow in cluster.flows("n2")), "the first to write to n2")
        assert row(first, "n1")["flow_mods_sent"] == sent
        assert row(first, "n2")["state"] == "READY"
        for path in cluster.manifests.directory.glob("*-new*.yaml"):
            path.unlink()
        cluster.wait(lambda: cluster.held() == before, "both to remove it")
        second.stop()
        cluster.lab.vsctl("n1", "set-controller", "br0", target)
        cluster.wait(lambda: row(first, "n1")["state"] in ("SLAVE", "READY"), "n1 to be there")
        first.text("/v1/claim", "-X", "POST")
        cluster.ready()
        assert row(first, "n1")["role"] == "MASTER"
    assert cluster.held() == before
    assert streams.broken == {}


def test_two_switches_with_one_datapath_id_do_not_share_it(cluster: Cluster) -> None:
    """B75: the one that was there first stays while it answers; the other is sent away, and said so."""
    before = cluster.held()
    peer = row(cluster.product, "n1")["peer"]
    cluster.lab.vsctl("n2", "set", "bridge", "br0", f"other-config:datapath-id={1:016x}")
    cluster.wait(lambda: "has the same datapath id" in log(cluster.product), "the twin to be refused")
    assert cluster.product.get("/v1/status")["connections_refused"]["duplicate datapath id"]
    assert row(cluster.product, "n1")["peer"] == peer
    assert row(cluster.product, "n1")["state"] == "READY"
    cluster.lab.vsctl("n2", "set", "bridge", "br0", f"other-config:datapath-id={2:016x}")
    cluster.ready()
    assert cluster.held() == before
    cluster.check_paths()


def test_switch_that_no_node_names_is_listed_and_left_alone(cluster: Cluster) -> None:
    before = cluster.held()
    cluster.lab.vsctl("n2", "set", "bridge", "br0", "other-config:datapath-id=00000000000000ff")

    def unclaimed() -> list[dict[str, Any]]:
        return [one for one in cluster.product.get("/v1/switches") if one["state"] == "UNCLAIMED"]

    cluster.wait(unclaimed, "it to be listed")
    assert [(one["dpid"], one["flow_mods_sent"]) for one in unclaimed()] == [("00000000000000ff", 0)]
    assert log(cluster.product).count("00000000000000ff") <= 5
    assert cluster.held() == before
    cluster.lab.vsctl("n2", "set", "bridge", "br0", f"other-config:datapath-id={2:016x}")
    cluster.ready()
    assert cluster.held() == before


def test_switch_that_speaks_an_older_openflow_is_refused_with_the_reason(cluster: Cluster) -> None:
    cluster.lab.vsctl("n2", "set", "bridge", "br0", "protocols=OpenFlow13")
    reason = "was not accepted: speaks OpenFlow 1.3, not OpenFlow 1.5: set protocols=OpenFlow15 on its bridge"
    cluster.wait(lambda: reason in log(cluster.product), "the refusal in the log")
    assert cluster.state("n2") == "absent"
    assert cluster.state("n1") == "READY"
    cluster.lab.vsctl("n2", "set", "bridge", "br0", "protocols=OpenFlow15")
    cluster.ready()
    cluster.check_paths()


# --- when nothing may be removed --------------------------------------------------------------------------------


def test_directory_that_is_emptied_or_gone_removes_nothing(cluster: Cluster, files: dict[str, bytes]) -> None:
    """B76: not a packet is lost, and somebody is told."""
    before, sent = cluster.held(), cluster.sent()
    directory = cluster.manifests.directory
    away = directory.with_name("away")
    with cluster.streams() as streams:
        directory.rename(away)
        cluster.wait(lambda: "cannot be read" in log(cluster.product), "its absence to be told")
        assert cluster.held() == before
        directory.mkdir()
        cluster.wait(lambda: "holds no manifest" in log(cluster.product), "its emptiness to be told")
        assert "holds no manifest" in str(cluster.product.get("/v1/problems"))
        assert cluster.held() == before
        for name in sorted(files):  # it fills again, a file at a time
            (directory / name).write_bytes(files[name])
        cluster.wait(lambda: not cluster.product.get("/v1/problems"), "all to be well")
        cluster.level()
        assert (cluster.held(), cluster.sent()) == (before, sent)
    assert streams.broken == {}


def test_start_without_nodes_leaves_the_switches_alone(cluster: Cluster, files: dict[str, bytes]) -> None:
    """B76: Nodes that come later than everything else."""
    before = cluster.held()
    nodes = [name for name in files if name.startswith("node-")]
    with cluster.streams() as streams:
        cluster.product.stop()
        for name in nodes:
            (cluster.manifests.directory / name).unlink()
        cluster.product.start()
        cluster.wait(lambda: cluster.product.status("/readyz") == 200, "it to be ready")
        cluster.wait(lambda: len(cluster.product.get("/v1/switches")) == len(NODES), "the switches to connect")
        assert {one["state"] for one in cluster.product.get("/v1/switches")} == {"UNCLAIMED"}
        assert cluster.held() == before
        for name in nodes:
            (cluster.manifests.directory / name).write_bytes(files[name])
        cluster.ready()
        assert cluster.held() == before
        assert cluster.sent() == 0
    assert streams.broken == {}


def test_start_with_half_of_everything_holds_removals_until_confirmed(
    cluster: Cluster, files: dict[str, bytes]
) -> None:
    """B76: a list that comes back short. What is new is added meanwhile."""
    before = cluster.held()
    cluster.product.stop()
    for name in files:
        if not name.startswith(("node-", "servicecidr-")):
            (cluster.manifests.directory / name).unlink()
    cluster.manifests.put(*Service("new", 210, both("b")).objects())
    cluster.product.start()
    cluster.product.wait_ready()
    status = cluster.product.get("/v1/status")
    assert status["held_removals"] > 100
    now = cluster.held()
    for node in NODES:
        assert set(before[node][0]) <= set(now[node][0])
        assert set(before[node][1]) <= set(now[node][1])
        assert any("10.96.0.210" in flow for flow in now[node][0])
    cluster.check_paths()
    cluster.product.text("/v1/confirm", "-X", "POST")
    cluster.wait(lambda: cluster.product.get("/v1/status")["held_removals"] == 0, "the removals")
    after = cluster.held()
    assert not [flow for flow in after["n1"][0] if SERVICES["only-b"].addresses[4] in flow]
    assert any("10.96.0.210" in flow for flow in after["n1"][0])


@pytest.mark.parametrize("broken", ["service-only-e.yaml", "pod-c.yaml"])
def test_start_with_a_broken_manifest_removes_nothing(cluster: Cluster, files: dict[str, bytes], broken: str) -> None:
    """Nobody can know what it would have said."""
    before = cluster.held()
    path = cluster.manifests.directory / broken
    with cluster.streams() as streams:
        cluster.product.stop()
        path.write_text("kind: [")
        cluster.product.start()
        cluster.product.wait_ready()
        assert cluster.held() == before
        assert any(broken in problem["object"] for problem in cluster.product.get("/v1/problems"))
        path.write_bytes(files[broken])
        cluster.wait(lambda: not cluster.product.get("/v1/problems"), "it to be mended")
        cluster.level()
        assert cluster.held() == before
    assert streams.broken == {}


def test_start_with_broken_endpoints_refuses_nobody(cluster: Cluster, files: dict[str, bytes]) -> None:
    """The service is there, its endpoints may be in the file that cannot be read: what worked goes on."""
    before = cluster.held()
    slices = [name for name, content in files.items() if name.startswith("endpointslice-") and b'"only-e"' in content]
    assert slices
    with cluster.streams() as streams:
        cluster.product.stop()
        for name in slices:
            (cluster.manifests.directory / name).write_text("kind: [")
        cluster.product.start()
        cluster.product.wait_ready()
        assert cluster.held() == before
        for name in slices:
            (cluster.manifests.directory / name).write_bytes(files[name])
        cluster.wait(lambda: not cluster.product.get("/v1/problems"), "them to be mended")
        cluster.level()
        assert cluster.held() == before
    assert streams.broken == {}


def test_manifest_that_breaks_keeps_its_objects(cluster: Cluster, files: dict[str, bytes]) -> None:
    before = cluster.held()
    path = cluster.manifests.directory / "service-only-e.yaml"
    path.write_text("kind: Service\nmetadata: {name: [")
    cluster.wait(lambda: cluster.product.get("/v1/problems"), "the problem to be told")
    assert cluster.held() == before
    path.write_bytes(files[path.name])
    cluster.wait(lambda: not cluster.product.get("/v1/problems"), "it to be mended")
    assert cluster.held() == before


def test_object_that_is_invalid_harms_no_other(cluster: Cluster, files: dict[str, bytes]) -> None:
    """It is reported with object, field and reason; the rest goes on, and what is added works."""
    wrong = cluster.manifests.get("Service", "only-e")
    wrong["spec"]["clusterIPs"] = ["10.96.0.12", "not an address"]
    cluster.manifests.put(wrong)
    cluster.wait(lambda: cluster.product.get("/v1/problems"), "the problem to be told")
    found = cluster.product.get("/v1/problems")
    assert [(one["kind"], one["object"]) for one in found] == [("Service", "default/only-e")]
    assert "clusterIPs" in found[0]["field"]
    cluster.put(*Service("new", 210, both("b")).objects())
    assert any("10.96.0.210" in flow for flow in cluster.flows("n3"))


# --- observe ----------------------------------------------------------------------------------------------------


def test_observing_controller_writes_nothing_and_shows_what_it_would(tmp_path: Path) -> None:
    """Switches with nothing but a node's first flows stay so; those that another one has filled are found equal."""
    with Cluster(unique("tobserve"), tmp_path / "manifests", {"mode": "observe"}) as cluster:
        cluster.wait(lambda: cluster.product.status("/readyz?switches") == 200, "it to be ready")

        def states() -> set[str]:
            return {one["state"] for one in cluster.product.get("/v1/switches")}

        cluster.wait(
            lambda: states() == {"OBSERVING"} and len(cluster.product.get("/v1/switches")) == len(NODES), "all"
        )
        assert cluster.sent() == 0
        for flows, groups in cluster.held().values():
            assert ([flow for flow in flows if FIRST not in flow], groups) == ([], [])
        difference = cluster.product.get("/v1/switches/1/diff")
        assert difference["equal"] is False
        assert difference["counts"]["flows missing"] > 100
        assert cluster.lab.ofctl("n1", "dump-meters", "br0").count("meter=") == 0
        cluster.product.restart({"mode": "program"})
        cluster.ready()
        filled = cluster.held()
        cluster.product.restart({"mode": "observe"})
        cluster.wait(lambda: cluster.product.status("/readyz") == 200, "it to be ready again")
        cluster.wait(
            lambda: states() == {"OBSERVING"} and len(cluster.product.get("/v1/switches")) == len(NODES), "all again"
        )
        assert all(cluster.product.get(f"/v1/switches/{number}/diff")["equal"] for number in range(1, len(NODES) + 1))
        cluster.manifests.put(*Service("new", 210, both("b")).objects())
        cluster.wait(lambda: not cluster.product.get("/v1/switches/1/diff")["equal"], "the difference")
        assert (cluster.held(), cluster.sent()) == (filled, 0)
        cluster.check_paths()
