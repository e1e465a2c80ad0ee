"""Frames that no socket makes: as a place sends them to its next hop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tests.ovs.cluster import Cluster
from tests.ovs.world import NODES, OUTSIDE_MAC, PLACES, PODS, ROUTER_MACS

SYN, RST, ACK = 0x02, 0x04, 0x10


def device(place: str) -> str:
    return "br0" if place in NODES else "eth0"


def mac(place: str) -> str:
    if place in PODS:
        return "0a:58:" + ":".join(f"{int(part):02x}" for part in PODS[place].addresses[4].split("."))
    return NODES[place].mac if place in NODES else OUTSIDE_MAC


def packet(place: str, destination: str, inner: Packet, **fields: Any) -> Packet:
    """From a place to an address, by its next hop: gw0, a router, or for the client outside the node that it asks.

    For it that is n1 if it asks none.
    """
    if place in PODS:
        hop = f"0a:58:0a:0a:{int(PODS[place].node[1:]):02x}:01"
    elif place in NODES:
        hop = ROUTER_MACS[NODES[place].segment or 0]
    else:
        asked = (node.mac for node in NODES.values() if destination in node.addresses.values())
        hop = next(asked, NODES["n1"].mac)
    family = 6 if ":" in destination else 4
    layer = IPv6 if family == 6 else IP
    source = PLACES[place].addresses[family]
    return Ether(src=mac(place), dst=hop) / layer(**{"src": source, "dst": destination} | fields) / inner


@contextmanager
def unanswered(cluster: Cluster, *places: str) -> Iterator[None]:
    """Their kernels answer neither SCTP nor TCP at the echo servers' port: it would end what frames have begun."""
    chain = "chain in {\ntype filter hook input priority 0;\ntcp dport 8080 drop;\nmeta l4proto sctp drop;\n}"
    for place in places:
        cluster.lab.run(place, "nft", f"table inet hush {{\n{chain}\n}}")
    try:
        yield
    finally:
        for place in places:
            cluster.lab.run(place, "nft", "delete table inet hush")
