"""Something changes at the moment at which the controller dies, and back while it is away (item 7).

When it is there again, switches hold what they should, and no flow was written that did not have to change: not the
others of the node in question, and none of anybody else. Streams that the change does not concern notice nothing.
"""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lab.announcements import announcement
from lab.switch import BRIDGE
from tests.ovs import world
from tests.ovs.cluster import LEARNED, Cluster
from tests.ovs.objects import Object
from tests.ovs.world import NODES

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

SETTINGS = {"mac_sources": ["switch", "annotation"]}
ASIDE = (("a", "only-b"), ("d", "g"), ("a", "g"), ("d", "only-h"), ("n1", "only-g"))  # all of them without n2
OTHER_MAC = "aa:00:00:00:01:02"
PATIENCE = 120  # seconds
HASTE = (0.0, 0.15, 0.4)  # seconds in which the controller may have done some of it
STATISTICS = re.compile(r"\b(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?")


class Written(NamedTuple):
    """A flow of a switch as ovs-ofctl says it, and for how many seconds it has been there."""

    flow: str
    age: float


def written(cluster: Cluster, node: str) -> list[Written]:
    dump = cluster.lab.ofctl(node, "dump-flows", BRIDGE).splitlines()
    ages = ((line, re.search(r"duration=([0-9.]+)s", line)) for line in dump if not LEARNED.search(line))
    return [Written(STATISTICS.sub("", line).strip(), float(age[1])) for line, age in ages if age]


def other_node(*cidrs: str, **more: str) -> Object:
    node = world.node_object("n2")
    if cidrs:
        node["spec"] = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
    node["metadata"] |= more
    return node


OWN = ("10.10.2.0/24", "fd00:10:2::/64")
SECOND = ("10.10.12.0/24", "fd00:10:12::/64")


def gets_a_second_pod_cidr(cluster: Cluster, back: bool) -> None:
    cluster.manifests.put(other_node() if back else other_node(*OWN, *SECOND))


def gives_its_pod_cidr_away(cluster: Cluster, back: bool) -> None:
    """To n5, which has it beside its own."""
    heir = world.node_object("n5")
    heir["spec"]["podCIDRs"] += () if back else OWN
    cluster.manifests.put(other_node() if back else other_node(*SECOND), heir)


def is_made_anew_with_other_values(cluster: Cluster, back: bool) -> None:
    cluster.manifests.delete("Node", "n2")
    time.sleep(0.1)
    cluster.manifests.put(other_node() if back else other_node(*SECOND, uid="another"))


def has_another_card(cluster: Cluster, back: bool) -> None:
    """What flows still say is the old MAC; its own switch says the new one, once it is connected."""
    mac = NODES["n2"].mac if back else OTHER_MAC
    cluster.lab.set_uplink_mac("n2", mac)
    frames = [announcement(address, mac) for address in cluster.lab.node("n2").addresses]
    cluster.lab.send_frames("n2", BRIDGE, frames)


def renumbers_its_uplink(cluster: Cluster, back: bool) -> None:
    renumber(cluster, "eth1", back)


def renumbers_a_pods_port(cluster: Cluster, back: bool) -> None:
    renumber(cluster, cluster.lab.pod("c").port, back)


def renumber(cluster: Cluster, port: str, back: bool) -> None:
    cluster.lab.renumber_port("n2", port, cluster.lab.port_number("n2", port) + (-300 if back else 300))


CHANGES: tuple[Callable[[Cluster, bool], None], ...] = (
    gets_a_second_pod_cidr,
    gives_its_pod_cidr_away,
    is_made_anew_with_other_values,
    has_another_card,
    renumbers_its_uplink,
    renumbers_a_pods_port,
)


# What says n2 may go and come where the controller lives to see the Node gone.
NAMES_N2 = re.compile("|".join(re.escape(text) for text in (*NODES["n2"].addresses.values(), "10.10.2.", "fd00:10:2:")))
PORTS = (renumbers_its_uplink, renumbers_a_pods_port)  # whose flows go with them, if anybody is there who sees it


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_when_the_controller_ends_is_all_that_it_writes_when_it_is_back(
    cluster: Cluster, change: Callable[[Cluster, bool], None]
) -> None:
    haste = HASTE[CHANGES.index(change) % len(HASTE)]
    first = cluster.held()
    with cluster.streams(ASIDE) as streams:
        for back in (False, True):
            before, began = {name: set(cluster.flows(name)) for name in NODES}, time.monotonic()
            if back or change in PORTS:
                cluster.product.kill()
                change(cluster, back)
            else:
                change(cluster, back)
                time.sleep(haste)
                cluster.product.kill()
            cluster.product.start()
            cluster.wait(lambda: is_level(cluster), "everything in place", PATIENCE)
            elapsed = time.monotonic() - began
            for name in NODES:
                flows = written(cluster, name)
                again = [one for one in flows if one.flow in before[name] and one.age < elapsed]
                if change is is_made_anew_with_other_values:
                    again = [one for one in again if not NAMES_N2.search(one.flow)]
                assert not again, f"{name}: {len(again)} of {len(flows)} were written again: {again[:3]}"
            assert (cluster.held() == first) is back
    assert streams.broken == {}


def is_level(cluster: Cluster) -> bool:
    """All Nodes are known, all switches there, and each has exactly what it should."""
    rows = [row for row in cluster.product.get("/v1/switches") if row["state"] == "READY"] if listens(cluster) else []
    return (
        {row["node"] for row in rows} == set(NODES)
        and len(cluster.product.get("/v1/nodes")) == len(NODES)
        and all(cluster.product.get(f"/v1/switches/{row['dpid']}/diff")["equal"] for row in rows)
    )


def listens(cluster: Cluster) -> bool:
    return cluster.product.status("/readyz?switches") == 200
