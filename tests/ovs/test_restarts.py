"""The controller and the switches end and come back while TCP and UDP streams run along every kind of path."""

import time
from typing import Any

import pytest

from lab.switch import BRIDGE
from tests.ovs.cluster import Cluster, Held
from tests.ovs.objects import Object
from tests.ovs.world import NODES, SERVICES, Service, both

pytestmark = pytest.mark.ovs

ALL = tuple(NODES)


def nothing_was_written(cluster: Cluster, since: float, before: Held) -> None:
    """By the controller's own counts, by the age of every flow, and by what is there."""
    assert cluster.sent() == 0
    elapsed = time.monotonic() - since
    assert all(cluster.youngest(node) > elapsed for node in ALL)
    assert cluster.held() == before


def test_restart_of_the_controller_loses_no_packet_and_writes_no_flow(cluster: Cluster) -> None:
    """B76: flows are evidence enough; a restart under traffic is invisible."""
    before, since = cluster.held(), time.monotonic()
    with cluster.streams() as streams:
        cluster.product.stop()
        began = time.monotonic()
        time.sleep(0.5)  # a while without a controller
        cluster.product.start()
        cluster.ready()
        away = time.monotonic() - began
        nothing_was_written(cluster, since, before)
    assert streams.broken == {}
    assert streams.longest < max(1000, away * 500), "as long as a half of the time without a controller"


def test_kill_of_the_controller_loses_no_packet_and_writes_no_flow(cluster: Cluster) -> None:
    """New connections are made while there is none."""
    before, since = cluster.held(), time.monotonic()
    with cluster.streams() as streams:
        cluster.product.kill()
        began = time.monotonic()
        cluster.check_paths()
        cluster.product.start()
        cluster.ready()
        away = time.monotonic() - began
        nothing_was_written(cluster, since, before)
    assert streams.broken == {}
    assert streams.longest < max(1000, away * 500), "as long as a half of the time without a controller"


def test_reconnect_of_a_switch_writes_nothing(cluster: Cluster) -> None:
    """B65, its other half: what survived is not sent again."""
    before, sent, since = cluster.held(), cluster.sent(), time.monotonic()

    def row() -> dict[str, Any]:
        return next(row for row in cluster.product.get("/v1/switches") if row["node"] == "n1")

    peer = row()["peer"]
    target = cluster.lab.plan.controller
    with cluster.streams() as streams:
        nobody = target.rpartition(":")[0] + ":9"
        cluster.lab.vsctl("n1", "set", "controller", BRIDGE, f'target="{nobody}"')
        cluster.wait(lambda: cluster.state("n1") == "absent", "n1 to disconnect")
        cluster.lab.vsctl("n1", "set", "controller", BRIDGE, f'target="{target}"')
        cluster.wait(lambda: cluster.state("n1") == "READY", "n1 to be back")
        assert row()["peer"] != peer
        assert row()["flow_mods_sent"] == row()["group_mods_sent"] == 0
        assert cluster.sent() <= sent
        elapsed = time.monotonic() - since
        assert cluster.youngest("n1") > elapsed
        assert cluster.held() == before
    assert streams.broken == {}


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_switch_that_comes_back_empty_is_filled_and_traffic_goes_on(cluster: Cluster, how: str) -> None:
    """B65. The userspace datapath loses its connections with it: what breaks is counted, and is TCP by n1 alone."""
    before = cluster.held()
    with cluster.streams() as streams:
        began = time.monotonic()
        if how == "restart":
            cluster.lab.stop_vswitchd("n1")
        else:
            cluster.lab.kill_vswitchd("n1")
        cluster.lab.start_vswitchd("n1")
        cluster.wait(lambda: cluster.state("n1") == "READY", "n1 to be back")
        back = time.monotonic() - began
        cluster.ready()
        assert cluster.held() == before
        time.sleep(1)  # for TCP to send again what was lost, and to see what became of it
    broken = streams.broken
    tcp = [label for label, stream in broken.items() if stream.breaks and " tcp" in label]
    lost = sum(stream.sent - stream.answered for label, stream in broken.items() if " udp" in label)
    print(
        f"\n{how}: n1 READY again after {back:.1f} s; of {len(streams.results)} streams {len(tcp)} TCP connections "
        f"broke, {lost} datagrams of {len(broken)} streams were lost, the longest silence was {streams.longest:.0f} ms"
    )
    aside = [label for label in broken if label.startswith("d → only-e")]
    assert not aside, "they do not pass n1"
    cluster.check_paths()


def test_tables_flushed_by_hand_are_found_and_filled_at_the_next_connection(cluster: Cluster) -> None:
    """B65: also when only some tables are gone."""
    before = cluster.held()
    cluster.lab.ofctl("n1", "del-flows", BRIDGE, "table=41")
    cluster.lab.ofctl("n1", "del-flows", BRIDGE, "table=70")
    cluster.lab.ofctl("n2", "del-groups", BRIDGE)  # and the flows that use them
    cluster.lab.flush_flows("n3")
    assert cluster.held() != before
    cluster.product.restart()
    cluster.ready()
    assert cluster.held() == before
    cluster.check_paths()


def test_flows_of_an_older_version_go_and_those_of_others_stay(cluster: Cluster) -> None:
    """B72: own flows are known by their cookie, whoever wrote them; all others are none of our business."""
    before = cluster.held()
    old = [f"cookie={0x5B << 56 | number:#x},table=60,priority={number},udp,actions=drop" for number in range(1, 9)]
    foreign = "cookie=0x77,table=60,priority=100,udp,actions=drop"
    for flow in (*old, foreign):
        cluster.lab.ofctl("n1", "add-flow", BRIDGE, flow)
    with cluster.streams() as streams:
        cluster.product.restart()
        cluster.ready()
    assert [flow for flow in cluster.flows("n1") if "table=60" in flow and "cookie=0x77" not in flow] == []
    assert len([flow for flow in cluster.flows("n1") if "cookie=0x77" in flow]) == 1
    cluster.lab.ofctl("n1", "del-flows", BRIDGE, "cookie=0x77/-1")
    assert cluster.held() == before
    assert streams.broken == {}


def test_half_open_connection_is_replaced_by_the_one_that_works(cluster: Cluster) -> None:
    """B75: with a cut cable the old connection stays open at the controller when the switch comes again."""
    before = cluster.held()
    cluster.lab.set_link("n2", up=False, management=True)
    cluster.wait(lambda: cluster.state("n2") == "absent", "the echo requests to time out")
    cluster.put(*small_change("changed while n2 was away"))
    cluster.lab.set_link("n2", up=True, management=True)
    cluster.wait(lambda: cluster.state("n2") == "READY", "n2 to be back")
    cluster.put(*small_change())
    assert cluster.held() == before
    cluster.check_paths()


def test_audit_finds_and_mends_what_was_changed_by_hand(cluster: Cluster) -> None:
    before = cluster.held()
    cluster.product.restart({"audit_interval": 1})
    cluster.ready()
    cluster.lab.ofctl("n1", "del-flows", BRIDGE, "table=42")
    cluster.lab.ofctl("n2", "mod-flows", BRIDGE, "table=70,actions=drop")  # which leaves the cookies
    cluster.lab.ofctl("n3", "del-groups", BRIDGE)
    cluster.lab.ofctl("n1", "add-flow", BRIDGE, "table=0,priority=7,udp,actions=drop")  # somebody else's: stays
    foreign = [flow for flow in cluster.flows("n1") if "priority=7,udp" in flow]
    assert len(foreign) == 1
    before["n1"] = sorted(before["n1"][0] + foreign), before["n1"][1]
    cluster.wait(lambda: cluster.held() == before, "the audits to mend everything")
    drift = {row["node"]: row["drift"] for row in cluster.product.get("/v1/switches")}
    assert drift["n1"]["flows missing"] > 0
    assert drift["n2"]["flows altered"] > 0
    assert drift["n3"]["groups missing"] > 0
    cluster.check_paths()


def small_change(word: str = "") -> list[Object]:
    service = SERVICES["only-b"]
    return (Service("only-b", service.number, both("b", "c")) if word else service).objects()
