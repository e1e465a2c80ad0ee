"""What a node's switch would hold, without any switch: for `signalbox compile`, `trace`, `check`, and a page of docs.

The same compiler, fleet and encoding as in the running controller; only what switches tell is made up: the
numbers and MACs of ports, always the same ones for the same manifests. What the network would tell, the MACs of
routers, is given or not known.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from controller.fleet import Fleet
from pipelines.actions import LOCAL_PORT
from pipelines.addresses import Ip, mac_text, parse_ip, parse_mac, pod_mac, pod_port_name, usable_mac
from pipelines.compiler import Compiler
from pipelines.derived import Derived, LocalPod, NodeNetwork, PeerMac, Router, segments
from pipelines.features import NUMBERS
from pipelines.model import (
    Change,
    Kind,
    MacSource,
    Neighbor,
    Node,
    Port,
    Settings,
    TrafficMode,
    Value,
    neighbor_key,
    port_key,
)
from pipelines.unit import FLEET, Scope, ScopeKind
from pipelines.view import Facts

UPLINK, GATEWAY, TUNNEL, FIRST_POD = 1, 2, 3, 10  # port numbers
UPLINK_MAC, GATEWAY_MAC, TUNNEL_MAC = 0x020000000001, 0x020000000002, 0x020000000003

Values = Mapping[tuple[Kind, str], Value]


class Unknown(LookupError):
    """Something was named that the manifests do not have; the text says what there is."""


class UnknownNode(Unknown):
    """The manifests hold no usable node of that name; the text says which there are."""


class UnknownPort(Unknown):
    """A port was given that the node does not have; the text says which there are."""


class UnknownNeighbor(Unknown):
    """A MAC was given for an address that is nobody's, or that something better tells; the text says which."""


class Given(Struct, frozen=True):
    """A port as a user gave it. `mac` None: the stand-in's."""

    number: int
    mac: int | None = None


class Offline(Struct):
    """`ports` by name: those that were made up for the node, or given."""

    compiler: Compiler
    fleet: Fleet
    scopes: frozenset[Scope] = frozenset()
    ports: dict[str, Port] = {}


def compile_all(values: Values, settings: Settings) -> Offline:
    """Everything, with no port known: no switch has connected."""
    compiler = Compiler()
    fleet = Fleet()
    changes = [Change(Kind.SETTINGS, "", settings)]
    changes += [Change(kind, key, value) for (kind, key), value in values.items()]
    fleet.publish(compiler.run(changes), NUMBERS)
    return Offline(compiler, fleet)


def compile_node(
    values: Values,
    settings: Settings,
    name: str,
    given: Mapping[str, Given] | None = None,
    neighbors: Mapping[Ip, int] | None = None,
) -> Offline:
    """The units of one node, its ports made up. `neighbors`: MACs by address, as ARP and ND would find.

    Raises UnknownNode, UnknownPort, UnknownNeighbor.
    """
    compiled = compile_all(values, settings)
    facts = compiled.compiler.facts
    node = facts.peek(Kind.NODE).get(name)
    if node is None:
        known = ", ".join(sorted(facts.peek(Kind.NODE))) or "none"
        raise UnknownNode(f"no usable Node {name}; there are: {known}")
    pods = [pod for pod in facts.peek(Derived.LOCAL_POD).values() if pod.node == name]
    with_tunnel = settings.traffic_mode is not TrafficMode.NO_ENCAP
    compiled.ports = stand_ins(node, pods, given or {}, with_tunnel=with_tunnel)
    changes = [Change(Kind.PORT, port_key(name, port), value) for port, value in compiled.ports.items()]
    found = {_neighbor(node, ip, facts): mac for ip, mac in (neighbors or {}).items()}
    changes += [Change(Kind.NEIGHBOR, key, Neighbor(mac)) for key, mac in found.items()]
    compiled.fleet.publish(compiled.compiler.run(changes), NUMBERS)
    compiled.scopes = scopes(node)
    for key, mac in found.items():
        _used(key, mac, settings, facts)
    return compiled


def _neighbor(node: Node, ip: Ip, facts: Facts) -> str:
    """Whose MAC that is: of a next hop of the node, or of the node that has the address."""
    if ip in node.gateways:
        return neighbor_key(node.name, ip)
    peer: str | None = facts.peek(Derived.NODE_ADDRESS).get(str(ip))
    if peer is None or peer == node.name:
        hops = ", ".join(map(str, node.gateways)) or "none"
        raise UnknownNeighbor(f"{ip} is no next hop of {node.name} ({hops}), and no address of another node")
    return neighbor_key(peer)


def _used(key: str, mac: int, settings: Settings, facts: Facts) -> None:
    """A MAC that something better tells, or that is not to be asked for, would be passed over in silence."""
    name, _, hop = key.partition(" ")
    if hop:
        router: Router | None = facts.peek(Derived.ROUTER).get(f"{name} {parse_ip(hop).family}")
        if router is None or router.mac is None:
            why = "it is that of the node's own uplink" if settings.ask_routers else "ask_routers is off"
            raise UnknownNeighbor(f"{mac_text(mac)} is not used as the MAC of {hop}: {why}")
        return
    network: NodeNetwork | None = facts.peek(Derived.NODE_NETWORK).get(name)
    if network is None or network.mac != PeerMac(mac, MacSource.NEIGHBOR.value):
        known = f"it is {mac_text(network.mac.mac)} by {network.mac.source}" if network and network.mac else "not used"
        raise UnknownNeighbor(f"the MAC of Node {name} is not taken from --neighbor: {known}")


def scopes(node: Node) -> frozenset[Scope]:
    """Those that its switch would be a member of, also when the Node names none."""
    here = [Scope(ScopeKind.SEGMENT, name) for name in segments(node)]
    if node.zone:
        here.append(Scope(ScopeKind.ZONE, node.zone))
    return frozenset((FLEET, Scope(ScopeKind.NODE, node.name), *here))


def stand_ins(
    node: Node, pods: Iterable[LocalPod], given: Mapping[str, Given], *, with_tunnel: bool = False
) -> dict[str, Port]:
    """LOCAL, uplink, gw0, tun0 and the pods' ports in order of the pods' names. Given ports keep their number."""
    uplink_mac = node.mac if node.mac is not None and usable_mac(node.mac) else UPLINK_MAC
    wanted = [("LOCAL", LOCAL_PORT, uplink_mac)]
    if node.uplink:
        wanted.append((node.uplink, UPLINK, uplink_mac))
    wanted.append(("gw0", GATEWAY, pod_mac((node.pod_cidrs[0].address(1),)) if node.pod_cidrs else GATEWAY_MAC))
    if with_tunnel:
        wanted.append(("tun0", TUNNEL, TUNNEL_MAC))
    ordered = sorted(pods, key=lambda pod: pod.key)
    wanted += [(pod.port, FIRST_POD + index, pod.mac) for index, pod in enumerate(ordered)]
    taken = {one.number for one in given.values()}
    ports: dict[str, Port] = {}
    for name, number, mac in wanted:
        own = given.get(name)
        if own is not None:
            ports[name] = Port(own.number, mac if own.mac is None else own.mac)
            continue
        while number in taken:
            number += 1  # noqa: PLW2901  (the next free one)
        taken.add(number)
        ports[name] = Port(number, mac)
    for name in given.keys() - ports.keys():
        raise UnknownPort(f"{node.name} has no port {name}; there are: {', '.join(ports)}")
    return ports


def parse_port(text: str) -> tuple[str, Given]:
    """`NAME=NUMBER` or `NAME=NUMBER/MAC`; a pod may be named NAMESPACE/NAME. Raises ValueError."""
    name, equals, rest = text.rpartition("=")
    number, _, mac = rest.partition("/")
    if not equals or not name or not number.isascii() or not number.isdigit() or not 0 < int(number) <= LOCAL_PORT:
        raise ValueError(f"{text!r} is not of the form NAME=NUMBER or NAME=NUMBER/MAC")
    namespace, slash, pod = name.partition("/")
    port = pod_port_name(namespace, pod) if slash else name
    return port, Given(int(number), parse_mac(mac) if mac else None)


def parse_neighbor(text: str) -> tuple[Ip, int]:
    """`ADDRESS=MAC`. Raises ValueError."""
    address, equals, mac = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not of the form ADDRESS=MAC")
    found = parse_mac(mac)
    if not usable_mac(found):
        raise ValueError(f"{mac} is no station's MAC address (zero or group-addressed)")
    return parse_ip(address), found


def describe(ports: Mapping[str, Port], pods: Iterable[LocalPod]) -> list[str]:
    """A line for each port, for people."""
    names = {pod.port: pod.key for pod in pods}
    lines = []
    for name, port in ports.items():
        number = "LOCAL" if port.number == LOCAL_PORT else str(port.number)
        lines.append(f"{names.get(name, name)}: port {number} {mac_text(port.mac)}")
    return lines
