"""What Kubernetes promises of services, as a page of rules that know nothing about flows.

A service address is translated by one node, the entry: a client's own for pods and for processes of nodes, unless
they ask for another node's port; for everybody else the node that the network brought the packets to.

    client, door, service ─► entry ─► who may answer ─► as whom each of them sees the client

Differences from kube-proxy: a client keeps its own address where an answer finds back to the entry by itself; where it
does not, kube-proxy masquerades with the node's address, and Signalbox with an address of the node's podCIDR.
"""

from typing import Literal, NamedTuple

from tests.ovs import oracle
from tests.ovs.oracle import Seen, Way
from tests.ovs.states import State
from tests.ovs.world import ENTRIES, PLACES, Place, snat
from tests.services.world import Door, End, Service


class Outcome(NamedTuple):
    """`seen`: who may answer, and as whom it sees the client. `word`: what comes of it."""

    seen: dict[str, Seen]
    word: Literal["answered", "refused", "dropped"]


def outcome(client: Place, service: Service, door: Door, family: int, state: State) -> Outcome:
    able = usable(service.ends, family)
    if not able:
        return Outcome({}, "refused")  # at once, whatever the policy
    if bound(client, service, door):
        able = usable([end for end in service.ends if PLACES[end.place].node == entry(client, door)], family)
        if not able:
            return Outcome({}, "dropped")  # another node may serve the client: no word that nobody does
    return Outcome({name: seen(client, door, PLACES[name], family, state) for name in able}, "answered")


def usable(ends: tuple[End, ...] | list[End], family: int) -> list[str]:
    """The ready ones; if there are none those that terminate and still serve (KEP-1669)."""
    here = [end for end in ends if family in PLACES[end.place].addresses]
    ready = [end.place for end in here if end.ready]
    return ready or [end.place for end in here if end.terminating and end.serving]


def inside(client: Place, door: Door) -> bool:
    """Whether a client's own node is the entry: then no external policy binds it."""
    return client.kind != "outside" and door.node in ("", client.node)


def entry(client: Place, door: Door) -> str:
    if inside(client, door):
        return client.node
    return door.node or ENTRIES[client.name]


def bound(client: Place, service: Service, door: Door) -> bool:
    """Whether a Local policy leaves a client only the endpoints of the entry."""
    if door.kind == "ClusterIP":
        return service.internal_local
    return service.external_local and not inside(client, door)


def seen(client: Place, door: Door, server: Place, family: int, state: State) -> Seen:
    if inside(client, door):
        return oracle.seen_through_service(client, server, family, state)
    at = entry(client, door)
    if server.node == at:
        return Seen(client.addresses[family])
    if server.kind == "outside":
        return Seen(PLACES[at].addresses[family], state.routers)  # without a router the host masquerades it
    by_tunnel = server.kind == "node" and oracle.tunnelled(at, server.node, state)
    if by_tunnel and oracle.way(at, server, state) is not Way.HOST:
        return Seen(PLACES[at].addresses[family], True)  # the tunnel is not for hosts, if it need not be
    return Seen(snat(at, family), None)
