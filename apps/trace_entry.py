"""By which port a packet enters that `signalbox trace` is asked about, and with which MACs it would.

By the uplink a packet comes with the MAC of the station that put it on the segment: the peer's, or the router's for
what is beyond it. Where nobody told that MAC, STRANGER stands in.
"""

from pipelines import fields as f
from pipelines.addresses import Ip, parse_cidr, parse_ip, pod_port_name
from pipelines.derived import Derived, NodeNetwork, Router, around, known_segment, segments
from pipelines.interpreter import Packet
from pipelines.model import Kind, Node, Port
from pipelines.view import Facts

STRANGER = 0x0200000000FE  # the MAC of whoever sends by the uplink, or is sent to by the host
ENTRIES = {"host": "LOCAL", "gw0": "gw0", "tunnel": "tun0"}
LOOPBACK = parse_cidr("127.0.0.0/8"), parse_cidr("::1/128")
KNOWN = "pod:NAMESPACE/NAME of a pod of this node, uplink, host, gw0, tunnel:ADDRESS"


def entering(name: str, ports: dict[str, Port], facts: Facts, entry: str, packet: Packet) -> Packet:
    """By its port, with the MACs that belong there. Raises ValueError."""
    node: Node = facts.peek(Kind.NODE)[name]
    kind, _, rest = entry.partition(":")
    port = _port(node, kind, rest)
    if port not in ports or (kind == "tunnel") is not bool(rest and kind != "pod"):
        raise ValueError(f"--in {entry}: there is no such port on this node; {KNOWN}")
    source, destination = (Ip(packet.family, packet[one[packet.family]]) for one in (f.IP_SRC, f.IP_DST))
    if kind in ("host", "gw0"):
        _leaves_the_host(node, entry, destination)
    own, gateway = ports["LOCAL"].mac, ports["gw0"].mac
    if kind == "pod":
        macs = ports[port].mac, gateway
    elif kind == "uplink":
        macs = sender(source, node, facts), own
    elif kind == "host":
        macs = own, STRANGER
    elif kind == "gw0":
        macs = gateway, gateway
    else:
        macs = STRANGER, f.TUNNEL_MAC
    values = {f.IN_PORT: ports[port].number, f.ETH_SRC: macs[0], f.ETH_DST: macs[1]}
    if kind == "tunnel":
        end = parse_ip(rest)
        values[f.TUNNEL_SRC[end.family]] = end.value
    return packet.having(values)


def _port(node: Node, kind: str, rest: str) -> str:
    """Its name, "" where there is none."""
    if kind == "pod" and rest:
        namespace, slash, pod = rest.partition("/")
        return pod_port_name(namespace, pod) if slash else pod_port_name("default", namespace)
    if kind == "uplink":
        return node.uplink or ""
    return ENTRIES.get(kind, "")


def _leaves_the_host(node: Node, entry: str, destination: Ip) -> None:
    own = [at.ip for at in node.addresses] + [cidr.address(1) for cidr in node.pod_cidrs]
    if destination in own or any(cidr.__contains__(destination) for cidr in LOOPBACK):
        raise ValueError(
            f"--in {entry}: this packet never reaches the switch. {destination} is {node.name}'s own address, and its "
            "kernel keeps it; so a NodePort of a node cannot be used from that node (not yet, see docs/services.md)"
        )


def sender(source: Ip, node: Node, facts: Facts) -> int:
    """The MAC that a packet with this source comes with by the node's uplink."""
    home = facts.pod_cidr(source)
    peer = home.node if home else facts.peek(Derived.NODE_ADDRESS).get(str(source))
    network: NodeNetwork | None = facts.peek(Derived.NODE_NETWORK).get(peer or "")
    here = [name for name in segments(node) if known_segment(name)]
    if network is not None and set(here) & set(network.segments):
        return network.mac.mac if network.mac else STRANGER
    if network is None and around(source, here):
        return STRANGER
    router: Router | None = facts.peek(Derived.ROUTER).get(f"{node.name} {source.family}")
    return router.mac.mac if router is not None and router.mac is not None else STRANGER
