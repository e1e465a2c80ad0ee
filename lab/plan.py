"""From facts about nodes and pods to everything a lab consists of: a pure function.

    mgmt ──────────────┬────────────┬──── controller        outside (Y)
                       │            │                          │
                   ┌── n1 ──┐   ┌── n2 ──┐                     │
    segment 0 ─────┴────────┴───┴────────┴──────────┬──────────┴──
                                                  router ──── far ──── remote (X)
    segment 1 ──── n3 ──────────────────────────────┘

Every subnet of node addresses becomes a segment. All values are text as `ip`, `nft` and `ovs-vsctl` take it, so
that a plan can be kept in the state directory and read by a person.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from lab.manifests import Facts, ManifestError, NodeFacts, PodFacts, inside
from pipelines.addresses import Cidr, Interface, Ip, mac_text, parse_cidr, parse_interface, pod_mac, pod_port_name

MANAGEMENT = "198.18.0."
CONTROLLER_ADDRESS = f"{MANAGEMENT}1"
CONTROLLER = f"tcp:{CONTROLLER_ADDRESS}:6653"
MOST_NODES = 240  # management addresses .11 to .250
FAR = (parse_cidr("203.0.113.0/24"), parse_cidr("fd00:203::/64"))
FAR_HOST = 9
OUTSIDE_HOST = {4: 200, 6: 0x200}
OUTSIDE_MAC = "ee:00:00:00:00:c8"
REMOTE_MAC = "ee:00:00:00:00:09"


class Route(NamedTuple):
    destination: str
    via: str


class Station(Struct, frozen=True):
    """A host with one device eth0: a pod, or a client outside the cluster."""

    mac: str
    addresses: tuple[str, ...]  # with prefix length
    gateways: tuple[str, ...]


class Pod(Struct, frozen=True):
    namespace: str
    name: str
    node: str
    port: str  # its name on the node's bridge
    station: Station

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Node(Struct, frozen=True):
    name: str
    index: int
    segment: int
    datapath_id: str
    uplink: str
    mac: str
    addresses: tuple[str, ...]  # with prefix length, held by br0
    gateways: tuple[str, ...]
    management: str
    pod_cidrs: tuple[str, ...]
    gateway_mac: str  # of gw0
    gateway_addresses: tuple[str, ...]  # with prefix length, held by gw0
    routes: tuple[Route, ...]  # to the peers' podCIDRs


class Segment(Struct, frozen=True):
    """One link layer with nodes on it and a leg of the router."""

    index: int
    router_mac: str
    router_addresses: tuple[str, ...]  # with prefix length: the first hops that the nodes name


class Plan(Struct, frozen=True):
    name: str
    controller: str  # as ovs-vsctl takes it
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    segments: tuple[Segment, ...]
    far_addresses: tuple[str, ...]  # the router's, on the far segment
    router_routes: tuple[Route, ...]
    outside: Station  # Y, on the first segment
    remote: Station  # X, behind the router
    cluster_cidrs: tuple[str, ...]  # destinations that pods reach with their own address
    problems: tuple[str, ...] = ()

    def node(self, name: str) -> Node:
        """Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"no node {name} in lab {self.name}")


def plan(name: str, facts: Facts, controller: str = CONTROLLER) -> Plan:
    """What the lab `name` consists of; raises ManifestError when the nodes cannot stand together."""
    _check(facts)
    subnets = _segments(facts.nodes)
    segment_of = {
        node.name: next(i for i, subnet in enumerate(subnets) if node.addresses[0].subnet in subnet)
        for node in facts.nodes
    }
    segments = tuple(_segment(i, subnet, facts.nodes) for i, subnet in enumerate(subnets))
    pods, problems = _pods(facts)
    return Plan(
        name=name,
        controller=controller,
        nodes=tuple(_node(index, node, facts.nodes, segment_of) for index, node in enumerate(facts.nodes)),
        pods=pods,
        segments=segments,
        far_addresses=tuple(f"{subnet.address(1)}/{subnet.length}" for subnet in FAR),
        router_routes=tuple(
            Route(str(cidr), str(via))
            for node in facts.nodes
            for cidr in node.pod_cidrs
            if (via := _first(node.addresses, cidr.family)) is not None
        ),
        outside=_outside(subnets[0], segments[0]),
        remote=Station(
            mac=REMOTE_MAC,
            addresses=tuple(f"{subnet.address(FAR_HOST)}/{subnet.length}" for subnet in FAR),
            gateways=tuple(str(subnet.address(1)) for subnet in FAR),
        ),
        cluster_cidrs=_cluster_cidrs(facts),
        problems=facts.problems + problems,
    )


def _check(facts: Facts) -> None:
    if not facts.nodes:
        raise ManifestError("no Node in the manifests")
    if len(facts.nodes) > MOST_NODES:
        raise ManifestError(f"{len(facts.nodes)} Nodes, a lab holds {MOST_NODES}")
    for field in ("name", "datapath_id", "mac"):
        holders: dict[str, str] = {}
        for node in facts.nodes:
            value = getattr(node, field)
            if value in holders:
                raise ManifestError(f"Node {node.name}: {field} {value} is also that of Node {holders[value]}")
            holders[value] = node.name
    owned = [(cidr, node.name) for node in facts.nodes for cidr in node.pod_cidrs]
    for i, (cidr, name) in enumerate(owned):
        for other, holder in owned[:i]:
            if cidr.overlaps(other):
                raise ManifestError(f"Node {name}: podCIDR {cidr} overlaps {other} of Node {holder}")


def _segments(nodes: Iterable[NodeFacts]) -> list[list[Cidr]]:
    """The subnets of each segment: nodes that share one subnet share all of theirs."""
    segments: list[list[Cidr]] = []
    for node in nodes:
        mine = [address.subnet for address in node.addresses if address.subnet is not None]
        touching = [segment for segment in segments if any(subnet in segment for subnet in mine)]
        if not touching:
            segments.append(list(dict.fromkeys(mine)))
            continue
        home = touching[0]
        for other in touching[1:]:
            home.extend(other)
            segments.remove(other)
        home.extend(subnet for subnet in dict.fromkeys(mine) if subnet not in home)
    return segments


def _segment(index: int, subnets: list[Cidr], nodes: Iterable[NodeFacts]) -> Segment:
    named = {gateway for node in nodes for gateway in node.gateways}
    addresses = [
        f"{ip}/{subnet.length}"
        for subnet in subnets
        for ip in sorted(ip for ip in named if inside(ip, subnet)) or [subnet.address(1)]
    ]
    return Segment(index=index, router_mac=f"fe:00:00:00:{index:02x}:01", router_addresses=tuple(addresses))


def _outside(subnets: list[Cidr], segment: Segment) -> Station:
    first_hops = [parse_interface(text) for text in segment.router_addresses]
    chosen = {subnet.family: subnet for subnet in reversed(subnets)}  # the first subnet of each family
    return Station(
        mac=OUTSIDE_MAC,
        addresses=tuple(f"{subnet.address(OUTSIDE_HOST[f])}/{subnet.length}" for f, subnet in sorted(chosen.items())),
        gateways=tuple(
            str(next(hop.ip for hop in first_hops if inside(hop.ip, subnet))) for _, subnet in sorted(chosen.items())
        ),
    )


def _node(index: int, node: NodeFacts, nodes: Iterable[NodeFacts], segment_of: dict[str, int]) -> Node:
    routes = []
    families = {address.ip.family for address in node.addresses}  # a peer may have one more
    for peer in nodes:
        for cidr in peer.pod_cidrs if peer.name != node.name else ():
            if cidr.family not in families:
                continue
            if segment_of[peer.name] == segment_of[node.name]:
                via = _first(peer.addresses, cidr.family)
            else:
                via = next((gateway for gateway in node.gateways if gateway.family == cidr.family), None)
            if via is not None:
                routes.append(Route(str(cidr), str(via)))
    return Node(
        name=node.name,
        index=index,
        segment=segment_of[node.name],
        datapath_id=node.datapath_id,
        uplink=node.uplink,
        mac=node.mac,
        addresses=tuple(map(str, node.addresses)),
        gateways=tuple(map(str, node.gateways)),
        management=f"{MANAGEMENT}{11 + index}",
        pod_cidrs=tuple(map(str, node.pod_cidrs)),
        gateway_mac=mac_text(pod_mac((node.pod_cidrs[0].address(1),))),
        gateway_addresses=tuple(f"{cidr.address(1)}/{cidr.length}" for cidr in node.pod_cidrs),
        routes=tuple(routes),
    )


def _pods(facts: Facts) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    nodes = {node.name: node for node in facts.nodes}
    pods: dict[str, Pod] = {}
    holders: dict[Ip, str] = {}
    problems: list[str] = []
    for pod in facts.pods:
        key = f"{pod.namespace}/{pod.name}"
        reason = _unusable(pod, nodes.get(pod.node), holders)
        if key in pods:
            reason = "appears twice"
        if reason:
            problems.append(f"Pod {key}: {reason}")
            continue
        holders.update(dict.fromkeys(pod.ips, key))
        pods[key] = Pod(pod.namespace, pod.name, pod.node, pod_port_name(pod.namespace, pod.name),
                        _pod_station(pod, nodes[pod.node]))  # fmt: skip
    return tuple(pods.values()), tuple(problems)


def _unusable(pod: PodFacts, node: NodeFacts | None, holders: dict[Ip, str]) -> str:
    if node is None:
        return f"there is no Node {pod.node}"
    for ip in pod.ips:
        if ip in holders:
            return f"{ip} is also that of Pod {holders[ip]}"
        if not any(inside(ip, cidr) for cidr in node.pod_cidrs):
            return f"{ip} is in no podCIDR of Node {node.name}"
        if any(ip in (cidr.address(1), cidr.address(2)) for cidr in node.pod_cidrs):
            return f"{ip} is reserved on Node {node.name}"
    return ""


def _pod_station(pod: PodFacts, node: NodeFacts) -> Station:
    links = [(ip, next(cidr for cidr in node.pod_cidrs if inside(ip, cidr))) for ip in pod.ips]
    return Station(
        mac=mac_text(pod_mac(pod.ips)),
        addresses=tuple(f"{ip}/{cidr.length}" for ip, cidr in links),
        gateways=tuple(str(cidr.address(1)) for _, cidr in links),
    )


def _cluster_cidrs(facts: Facts) -> tuple[str, ...]:
    cidrs = [cidr for node in facts.nodes for cidr in node.pod_cidrs]
    hosts = [
        f"{address.ip}/{32 if address.ip.family == 4 else 128}" for node in facts.nodes for address in node.addresses
    ]
    return tuple(dict.fromkeys([*map(str, cidrs), *hosts, *map(str, facts.service_cidrs)]))


def _first(addresses: Iterable[Interface], family: int) -> Ip | None:
    return next((address.ip for address in addresses if address.ip.family == family), None)
