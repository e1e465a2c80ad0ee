"""What the cluster of the table may be set to, and what the controller may know in it: one more dimension of the table.

States of one laboratory follow each other by a restart of the controller with other settings. Those that know less
come first: what was known once is read back from the switches.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tests.ovs.cluster import Cluster
from tests.ovs.world import FAMILIES, NODES, PODS

TunnelType = Literal["geneve", "vxlan"]


class State(NamedTuple):
    """`peers`, `routers`: where their MACs are known from, "" when they are not.

    `own_address`: prefixes outside the cluster that see pods' own addresses.
    """

    name: str
    mode: Literal["noEncap", "hybrid", "encap"] = "noEncap"
    tunnel: TunnelType = "geneve"
    peers: Literal["", "switch", "annotation", "neighbor"] = "switch"
    routers: bool = True
    direct: bool = False  # pods leave the cluster straight from the switch
    own_address: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "traffic_mode": self.mode,
            "tunnel": self.tunnel,
            "mac_sources": [self.peers] if self.peers else [],
            "ask_routers": self.routers,
            "egress": "direct" if self.direct else "gateway",
            "no_masquerade": list(self.own_address),
        }


FAR = ("203.0.113.0/24",)  # and not in IPv6

STATES = (
    State("noEncap, nothing known", peers="", routers=False),
    State("encap, nothing known", mode="encap", peers="", routers=False),
    State("noEncap, peers known", peers="annotation", routers=False),
    State("noEncap, all asked for", peers="neighbor"),
    State("hybrid, egress direct", mode="hybrid", direct=True),
    State("encap vxlan", mode="encap", tunnel="vxlan", own_address=FAR),
    State("noEncap, egress direct, own addresses", tunnel="vxlan", direct=True, own_address=FAR),
)

# For each type of tunnel a lab of its own, whose hosts masquerade alike in all of its states.
LABS: dict[TunnelType, dict[str, Any]] = {"geneve": {}, "vxlan": {"tunnel": "vxlan", "unmasqueraded": FAR}}


def forget_connections(cluster: Cluster) -> None:
    """On all switches, while nothing talks.

    A port that a client takes again while its old connection is over but not yet swept away (30 s after the last
    packet of UDP or ping, for up to 20 s) ends ovs-vswitchd 3.1.0: `assertion conn->conn_type ==
    CT_CONN_TYPE_DEFAULT failed`, with a connection that is translated to nothing. Thousands of cells a minute do so.
    """
    for node in NODES:
        cluster.lab.run(node, "ovs-appctl", "dpctl/flush-conntrack")


def enter(cluster: Cluster, state: State) -> None:
    """Restarts the controller in this state; returns when it knows what it should, and every way has been used."""
    forget_connections(cluster)
    cluster.product.restart(state.settings)
    cluster.ready()
    cluster.wait(lambda: all(map(_settled(state), cluster.product.get("/v1/nodes"))), f"what is known in {state.name}")
    cluster.level()
    cluster.wait(lambda: _warm(cluster), "pings along every way")


def _settled(state: State) -> Callable[[dict[str, Any]], bool]:
    """Of a row of /v1/nodes. A node that is alone on its segment is nobody's to ask for."""
    segments = Counter(node.segment for node in NODES.values())

    def holds(row: dict[str, Any]) -> bool:
        alone = state.peers == "neighbor" and segments[NODES[row["name"]].segment] == 1
        peers = (row["mac"]["source"] if row["mac"] else "") == state.peers
        routers = all((router["mac"] is not None) is state.routers for router in row["routers"])
        return (peers or alone) and routers

    return holds


def _warm(cluster: Cluster) -> bool:
    """The first packet by tunnel to a next hop that a switch has not resolved is lost: it asks for the MAC first."""
    firsts = {node: next(pod for pod in PODS.values() if pod.node == node) for node in NODES}
    wishes = {
        pod.name: [
            other.addresses[family]
            for other in firsts.values()
            for family in FAMILIES
            if other != pod and family in other.addresses and family in pod.addresses
        ]
        for pod in firsts.values()
    }
    return all(answers for found in cluster.echoes(wishes).values() for answers in found.values())
