"""What Kubernetes and docs/architecture.md promise, as a page of rules that know nothing about flows.

Who may answer, by which way a packet goes, as whom a server sees the client, and how many hops an answer has passed.
"""

from enum import Enum
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from tests.ovs.states import State
from tests.ovs.world import ENTRIES, PLACES, VIRTUAL, Place, Service, gateway, snat


class Way(Enum):
    """From one node to a place on another."""

    DIRECT = "direct"  # to its MAC on the same segment
    ROUTER = "router"  # to a router's MAC
    HOST = "host"  # by gw0 and the routes of the node's own kernel, as long as a MAC is not known
    TUNNEL = "tunnel"


class Seen(NamedTuple):
    """A client as a server sees it. `reserved`: by a port that no process on a node can have; None: whichever."""

    address: str
    reserved: bool | None = False


def answering(service: Service, protocol: str, family: int) -> frozenset[str]:
    """Names; empty: refused at once."""
    return frozenset(service.backends(protocol, family))


def tunnelled(node: str, peer: str, state: State) -> bool:
    """Whether pods of two nodes talk by tunnel."""
    apart = PLACES[node].segment != PLACES[peer].segment
    return node != peer and (state.mode == "encap" or (state.mode == "hybrid" and apart))


def way(node: str, to: Place, state: State, from_pod: bool = False) -> Way:
    """From a node, or from one of its pods, to a place on another node."""
    if tunnelled(node, to.node, state) and (from_pod or to.kind == "pod"):
        return Way.TUNNEL
    if PLACES[node].segment == to.segment:
        return Way.DIRECT if state.peers else Way.HOST
    return Way.ROUTER if state.routers else Way.HOST


def seen_through_service(client: Place, server: Place, family: int, state: State) -> Seen:
    """Behind a service address. Replies must come back to the node that translated."""
    own = Seen(client.addresses[family])
    if client.name == server.name and client.kind != "outside":
        return Seen(VIRTUAL[family], None)
    if client.kind == "pod":
        return masqueraded(client, server, family, state) if server.kind == "outside" else own
    if client.kind == "outside":
        return _from_outside(client, server, family, state)
    if server.kind == "outside" or server.node == client.node:
        return own
    by = way(client.node, server, state)
    return Seen(snat(client.node, family), None) if by in (Way.HOST, Way.TUNNEL) else own


def _from_outside(client: Place, server: Place, family: int, state: State) -> Seen:
    """Through the node that the network sends service addresses to."""
    entry = ENTRIES[client.name]
    if server.node == entry:
        return Seen(client.addresses[family])
    if server.kind == "outside":
        return Seen(PLACES[entry].addresses[family], state.routers)  # else the host masquerades it
    if server.kind == "node" and tunnelled(entry, server.node, state) and way(entry, server, state) is not Way.HOST:
        return Seen(PLACES[entry].addresses[family], True)  # the tunnel is not for hosts, if it need not be
    return Seen(snat(entry, family), None)


def seen_directly(client: Place, server: Place, family: int, state: State) -> Seen:
    """Without a service: its own address, but for pods that leave the cluster."""
    if client.kind == "pod" and server.kind == "outside":
        if (
            state.direct
            and state.routers
            and server.segment != client.segment
            and not _as_itself(server, family, state)
        ):
            return Seen(PLACES[client.node].addresses[family], True)
        return masqueraded(client, server, family, state)
    if client.kind == "node" and server.kind == "pod" and server.node == client.node:
        return Seen(gateway(client.node, family))  # the kernel's choice: the address of the device it leaves by
    return Seen(client.addresses[family])


def masqueraded(pod: Place, server: Place, family: int, state: State) -> Seen:
    """By the host of the pod's node."""
    return Seen(pod.addresses[family] if _as_itself(server, family, state) else PLACES[pod.node].addresses[family])


def _as_itself(server: Place, family: int, state: State) -> bool:
    at = ip_address(server.addresses[family])
    return any(at in ip_network(prefix) for prefix in state.own_address if (":" in prefix) == (family == 6))


def hop_limits_of_reply(client: Place, server: Place, state: State) -> set[int]:
    """What may be left of 64 when the client has the server's answer.

    Each node is a router for its pods, whether Open vSwitch or the host's kernel forwards; nothing is for the node.
    """
    same_node = client.node == server.node != ""
    hops = 0
    if server.kind == "pod" and not same_node:
        hops += 1
    if client.kind == "pod" and not same_node:
        hops += 1
    between_nodes = "outside" not in (client.kind, server.kind)
    if between_nodes and "pod" in (client.kind, server.kind) and tunnelled(client.node, server.node, state):
        return {64 - hops}  # no router sees the hop limit of what is inside
    if server.kind == "pod" and client.name == "outside":
        # A pod's answer to a client outside goes by where that client's newest packet came from: asking for a pod
        # it takes the router, for a service not.
        return {64 - hops - 1} | ({64 - hops} if client.segment == server.segment else set())
    return {64 - hops - (client.segment != server.segment)}
