"""From facts about nodes and pods to everything a lab consists of: a pure function.

    mgmt ──────────────┬────────────┬──── controller        outside (Y)
                       │            │                          │
                   ┌── n1 ──┐   ┌── n2 ──┐                     │
    segment 0 ─────┴────────┴───┴────────┴──────────┬──────────┴──
                                            router, router2 ──── far ──── remote (X)
    segment 1 ──── n3 ──────────────────────────────┘

Every subnet of node addresses becomes a segment. Of the two routers one is active and holds every first hop, the
other stands by. In-band there is no mgmt, and the controller is on segment 0. All values are text as `ip`, `nft` and
`ovs-vsctl` take it, so that a plan can be kept in the state directory and read by a person.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from lab.manifests import LINK_LOCAL, Facts, ManifestError, NodeFacts, PodFacts, inside
from pipelines.addresses import Cidr, Interface, Ip, mac_text, parse_cidr, parse_interface, pod_mac, pod_port_name

HOST_DEVICE = "br0"  # on every node: the port of the bridge that is the host's own
MANAGEMENT = "198.18.0."
CONTROLLER_ADDRESS = f"{MANAGEMENT}1"
CONTROLLER = f"tcp:{CONTROLLER_ADDRESS}:6653"
MOST_NODES = 240  # management addresses .11 to .250
FAR = (parse_cidr("203.0.113.0/24"), parse_cidr("fd00:203::/64"))
FAR_HOST = 9
OUTSIDE_HOST = {4: 200, 6: 0x200}
CONTROLLER_HOST = {4: 250, 6: 0x250}
OUTSIDE_MAC = "ee:00:00:00:00:c8"
CONTROLLER_MAC = "ee:00:00:00:00:fa"
REMOTE_MAC = "ee:00:00:00:00:09"
ROUTERS = ("router", "router2")  # places; the first one is active when a lab has been built
FIRST_HOP = LINK_LOCAL.address(1)  # on every segment, for nodes that name it
FAR_SEGMENT = 0xFF  # in the routers' MACs
STANDARD_MTU = 1500


class Options(Struct, frozen=True):
    """What a lab's manifests do not say."""

    tunnel: Literal["geneve", "vxlan", ""] = "geneve"  # the type of tun0; "": there is none
    in_band: bool = False  # nodes reach the controller through their uplinks
    pod_mtu: int = STANDARD_MTU
    unmasqueraded: tuple[str, ...] = ()  # prefixes outside the cluster that see pods' own addresses


DEFAULTS = Options()


class Route(NamedTuple):
    destination: str
    via: str
    device: str = ""  # needed where `via` is link-local


class Station(Struct, frozen=True):
    """A host with one device eth0: a pod, or a client outside the cluster."""

    mac: str
    addresses: tuple[str, ...]  # with prefix length
    gateways: tuple[str, ...]
    mtu: int = STANDARD_MTU


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
    """One link layer with nodes on it and a leg of each router."""

    index: int
    router_macs: tuple[str, ...]  # of ROUTERS
    router_addresses: tuple[str, ...]  # with prefix length: the first hops that the nodes name, and FIRST_HOP

    def with_router_mac(self, router: int, mac: str) -> "Segment":
        macs = (*self.router_macs[:router], mac, *self.router_macs[router + 1 :])
        return structs.replace(self, router_macs=macs)


class Plan(Struct, frozen=True):
    name: str
    controller: str  # as ovs-vsctl takes it
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    segments: tuple[Segment, ...]
    active: str  # of ROUTERS
    far_addresses: tuple[str, ...]  # the active router's, on the far segment
    router_routes: tuple[Route, ...]
    outside: Station  # Y, on the first segment
    remote: Station  # X, behind the routers
    in_band: Station | None  # the controller, where it is on the first segment
    options: Options
    cluster_cidrs: tuple[str, ...]  # destinations that pods reach with their own address
    problems: tuple[str, ...] = ()

    @property
    def standby(self) -> str:
        return ROUTERS[1 - ROUTERS.index(self.active)]

    def node(self, name: str) -> Node:
        """Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"no node {name} in lab {self.name}")


def plan(name: str, facts: Facts, controller: str = "", options: Options = DEFAULTS) -> Plan:
    """What the lab `name` consists of; raises ManifestError when the nodes cannot stand together.

    `controller`: as ovs-vsctl takes it; "": port 6653 of the place of that name.
    """
    _check(facts)
    subnets = _segments(facts.nodes)
    segment_of = {
        node.name: next(i for i, subnet in enumerate(subnets) if node.addresses[0].subnet in subnet)
        for node in facts.nodes
    }
    segments = tuple(_segment(i, subnet, facts.nodes) for i, subnet in enumerate(subnets))
    pods, problems = _pods(facts, options.pod_mtu)
    in_band = _client(CONTROLLER_MAC, CONTROLLER_HOST, subnets[0], segments[0]) if options.in_band else None
    return Plan(
        name=name,
        controller=controller or (CONTROLLER if in_band is None else _target(in_band)),
        nodes=tuple(_node(index, node, facts.nodes, segment_of) for index, node in enumerate(facts.nodes)),
        pods=pods,
        segments=segments,
        active=ROUTERS[0],
        far_addresses=tuple(f"{subnet.address(1)}/{subnet.length}" for subnet in FAR),
        router_routes=tuple(
            Route(str(cidr), str(via), f"seg{segment_of[node.name]}")
            for node in facts.nodes
            for cidr in node.pod_cidrs
            if (via := _first(node.addresses, cidr.family)) is not None
        ),
        outside=_client(OUTSIDE_MAC, OUTSIDE_HOST, subnets[0], segments[0]),
        remote=Station(
            mac=REMOTE_MAC,
            addresses=tuple(f"{subnet.address(FAR_HOST)}/{subnet.length}" for subnet in FAR),
            gateways=tuple(str(subnet.address(1)) for subnet in FAR),
        ),
        in_band=in_band,
        options=options,
        cluster_cidrs=tuple(dict.fromkeys([*_cluster_cidrs(facts), *options.unmasqueraded])),
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
    if any(subnet.family == 6 for subnet in subnets):
        own = {FIRST_HOP, *(ip for ip in named if inside(ip, LINK_LOCAL))}
        addresses += [f"{ip}/{LINK_LOCAL.length}" for ip in sorted(own)]
    return Segment(
        index=index,
        router_macs=tuple(router_mac(index, router) for router in range(len(ROUTERS))),
        router_addresses=tuple(addresses),
    )


def router_mac(segment: int, router: int) -> str:
    """What the leg of a router (by its index in ROUTERS) on a segment has until a test changes it."""
    return f"fe:00:00:00:{segment:02x}:{router + 1:02x}"


def _client(mac: str, host: dict[int, int], subnets: list[Cidr], segment: Segment) -> Station:
    """A station on a segment, not of the cluster: in the first subnet of each family, at `host`[family]."""
    first_hops = [parse_interface(text) for text in segment.router_addresses]
    chosen = {subnet.family: subnet for subnet in reversed(subnets)}
    return Station(
        mac=mac,
        addresses=tuple(f"{subnet.address(host[f])}/{subnet.length}" for f, subnet in sorted(chosen.items())),
        gateways=tuple(
            str(next(hop.ip for hop in first_hops if inside(hop.ip, subnet))) for _, subnet in sorted(chosen.items())
        ),
    )


def _target(controller: Station) -> str:
    ip = parse_interface(controller.addresses[0]).ip
    return f"tcp:{ip}:6653" if ip.family == 4 else f"tcp:[{ip}]:6653"


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
                routes.append(Route(str(cidr), str(via), HOST_DEVICE))
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


def _pods(facts: Facts, mtu: int) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
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
                        _pod_station(pod, nodes[pod.node], mtu))  # fmt: skip
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


def _pod_station(pod: PodFacts, node: NodeFacts, mtu: int) -> Station:
    links = [(ip, next(cidr for cidr in node.pod_cidrs if inside(ip, cidr))) for ip in pod.ips]
    return Station(
        mac=mac_text(pod_mac(pod.ips)),
        addresses=tuple(f"{ip}/{cidr.length}" for ip, cidr in links),
        gateways=tuple(str(cidr.address(1)) for _, cidr in links),
        mtu=mtu,
    )


def _cluster_cidrs(facts: Facts) -> tuple[str, ...]:
    cidrs = [cidr for node in facts.nodes for cidr in node.pod_cidrs]
    hosts = [
        f"{address.ip}/{32 if address.ip.family == 4 else 128}" for node in facts.nodes for address in node.addresses
    ]
    return tuple(dict.fromkeys([*map(str, cidrs), *hosts, *map(str, facts.service_cidrs)]))


def _first(addresses: Iterable[Interface], family: int) -> Ip | None:
    return next((address.ip for address in addresses if address.ip.family == family), None)
