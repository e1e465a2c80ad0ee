"""By what way packets went: the frames of a node's uplink and of its gw0, held against the oracle."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network

from pipelines import fields as f
from pipelines.addresses import mac_text
from tests.ovs import oracle
from tests.ovs.oracle import Way
from tests.ovs.states import State
from tests.ovs.wire import GENEVE, VXLAN, Frame
from tests.ovs.world import (
    FAMILIES,
    NODES,
    OUTSIDE,
    OUTSIDE_MAC,
    PLACES,
    PODS,
    ROUTER_MACS,
    SERVICE_RANGES,
    Place,
    gateway,
    snat,
)

TUNNEL_PORTS = {"geneve": GENEVE, "vxlan": VXLAN}
TUNNEL_MAC = mac_text(f.TUNNEL_MAC)
_ND = ((133, 0), (134, 0), (135, 0), (136, 0), (137, 0))

# Every address of the cluster → the node that it belongs to, and what of that is no network's business but ours.
_PODS_OF = {at: pod.node for pod in PODS.values() for at in pod.addresses.values()} | {
    of(node, family): node for node in NODES for family in FAMILIES for of in (gateway, snat)
}
_HOME = _PODS_OF | {at: node.name for node in NODES.values() for at in node.addresses.values()}
_RANGES = [
    Place(f"podCIDR of {node.name}", "pod", {family: of(node.name, family)}, node.segment, node.name)
    for node in NODES.values()
    for family in FAMILIES
    for of in (gateway, snat)
]
_PLACE_OF = {at: place for place in (*_RANGES, *PLACES.values()) for at in place.addresses.values()}
_OUTSIDE = {at: place for place in OUTSIDE.values() for at in place.addresses.values()}


def on_uplink(node: str, gateway_mac: str, frames: Iterable[Frame], state: State) -> list[str]:
    """What is wrong: MACs, pod addresses naked where a tunnel is due, tunnels where none is; "" is never among it.

    B01: no MAC of a pod or a gateway is ever the source of a frame here.
    """
    place = NODES[node]
    known = {other.mac for other in NODES.values() if other.segment == place.segment} | set(ROUTER_MACS)
    known |= {OUTSIDE_MAC} if place.segment == 0 else set()
    faults: dict[str, None] = {}  # in order, each once
    peers = set()
    for frame in frames:
        if frame.src not in known:
            faults[f"{node}: {frame.src} is nobody's MAC here: {frame}"] = None
        if frame.src != place.mac or not frame.source or frame.kind == "arp" or _multicast(frame):
            continue
        if frame.inner is not None:
            peers.add(_HOME.get(frame.destination, frame.destination))
        faults |= dict.fromkeys(_sent(place, gateway_mac, frame, state))
    due = {peer for peer in NODES if oracle.tunnelled(node, peer, state)}
    if peers != due:
        faults[f"{node}: tunnels to {sorted(peers)}, not to {sorted(due)}"] = None
    return list(faults)


def _sent(node: Place, gateway_mac: str, frame: Frame, state: State) -> Iterator[str]:
    """About an IP packet that a node sent by its uplink."""
    if (frame.kind == "icmp6" and frame.ports in _ND) or ip_address(frame.destination).is_link_local:
        return
    if frame.dst not in _next_hops(node, frame.destination):
        yield f"{node.name}: not the MAC of where it goes: {frame}"
    if frame.inner is not None:
        yield from _carried(node, gateway_mac, frame, frame.inner, state)
        return
    ends = _HOME.get(frame.source), _HOME.get(frame.destination)
    of_pods = not _PODS_OF.keys().isdisjoint((frame.source, frame.destination))
    if ends[0] and ends[1] and of_pods and oracle.tunnelled(ends[0], ends[1], state):
        yield f"{node.name}: not in a tunnel: {frame}"


def _next_hops(node: Place, destination: str) -> set[str]:
    """Where the network beneath is told to bring an address. Nobody there knows one of a service."""
    place = _OUTSIDE.get(destination) or NODES.get(_HOME.get(destination, ""))
    if place is None:
        return set()
    router = ROUTER_MACS[node.segment or 0]
    if place.segment != node.segment:
        return {router}
    if place.kind == "outside":  # what its question came by
        return {OUTSIDE_MAC, router}
    return {place.mac}


def _carried(node: Place, gateway_mac: str, outer: Frame, inner: Frame, state: State) -> Iterator[str]:
    if outer.ports[1] != TUNNEL_PORTS[state.tunnel]:
        yield f"{node.name}: not {state.tunnel}: {outer}"
    ends = _HOME.get(inner.source), _HOME.get(inner.destination)
    if ends != (node.name, _HOME.get(outer.destination)) or outer.source != min(node.addresses.items())[1]:
        yield f"{node.name}: not from this node to the one at the other end: {outer}"
    if not {inner.source, inner.destination} & _PODS_OF.keys():
        yield f"{node.name}: between two hosts by tunnel: {outer}"
    if (inner.src, inner.dst) != (gateway_mac, TUNNEL_MAC):
        yield f"{node.name}: inner MACs: {outer}"


def on_gateway(node: str, mac: str, frames: Iterable[Frame], state: State) -> list[str]:
    """What is wrong about what a node's pods gave to its host for others: all that is due and nothing else."""
    faults: dict[str, None] = {}
    seen = set()
    for frame in frames:
        if frame.dst != mac or not frame.source or (frame.kind == "icmp6" and frame.ports in _ND):
            continue
        if any(ip_address(frame.destination) in ip_network(prefix) for prefix in SERVICE_RANGES):
            faults[f"{node}: a service address on gw0: {frame}"] = None
        if _HOME.get(frame.destination, node) == node:
            continue
        to = _PLACE_OF[frame.destination]
        by_pod = _by_pod(node, frame.source)
        if oracle.way(node, to, state, by_pod) is not Way.HOST:
            faults[f"{node}: by gw0: {frame}"] = None
        elif by_pod and to.name in PLACES:
            seen.add(to.name)
    due = {
        place.name
        for place in (*NODES.values(), *PODS.values())
        if place.node != node and oracle.way(node, place, state, from_pod=True) is Way.HOST
    }
    if seen != due:
        faults[f"{node}: by gw0 to {sorted(seen)}, not to {sorted(due)}"] = None
    return list(faults)


def _by_pod(node: str, source: str) -> bool:
    return any(source in pod.addresses.values() for pod in PODS.values() if pod.node == node)


def _multicast(frame: Frame) -> bool:
    return bool(int(frame.dst[:2], 16) & 1)
