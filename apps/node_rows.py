"""What REST and the command answer about nodes: what is known of each, and by which way it reaches the others.

Pure functions from facts to plain values, as in `answers`. `heard(key)` is asked when an address last answered
(keys of `pipelines.model.neighbor_key`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apps.answers import READY_STATES, Pause, Row, by_object, datapath_text, no_pause
from pipelines.addresses import Ip, mac_text
from pipelines.derived import Derived, LocalPod, NodeNetwork, PeerMac, Router
from pipelines.derived import segments as segments_of
from pipelines.model import (
    Kind,
    MacSource,
    Neighbor,
    Node,
    Port,
    Problem,
    Settings,
    TrafficMode,
    neighbor_key,
    port_key,
)
from pipelines.mtu import mtu_of_pods
from pipelines.unit import Scope, ScopeKind
from pipelines.view import Facts, SegmentView, Way

Heard = Callable[[str], Mapping[str, Any] | None]

NO_SWITCH = "NOT CONNECTED"
UNUSABLE = "unusable"
BY_TUNNEL = "tunnel"


def nobody(key: str) -> None:
    """In place of an ear, where nothing is asked."""
    del key


def nodes(
    facts: Facts, sessions: Iterable[Any], found: Iterable[Problem], pause: Pause = no_pause, heard: Heard = nobody
) -> Iterator[Row]:
    """`sessions`: rows of `Switches.sessions()`. Nodes that cannot be used are listed with their problems only."""
    by_node = {session.node: session for session in sessions if session.node}
    wrong = by_object(found, Kind.NODE)
    known = facts.peek(Kind.NODE)
    ports = _ports_by_node(facts, pause)
    pods = _pods_by_node(facts, pause)
    networks = facts.peek(Derived.NODE_NETWORK)
    for name in sorted(known.keys() | wrong.keys()):
        problems_here = wrong.get(name, [])
        if name not in known:
            yield {"name": name, "state": UNUSABLE, "mac": None, "routers": [], "problems": problems_here}
            continue
        seen = Seen(networks.get(name), ports.get(name, {}), pods.get(name, []), by_node.get(name))
        yield node(known[name], seen, problems_here, facts, heard)


class Seen(NamedTuple):
    """What is known of a node beside its object. `session` None: its switch is not connected."""

    network: NodeNetwork | None
    ports: Mapping[str, Port]
    pods: Sequence[LocalPod]
    session: Any


def node(value: Node, seen: Seen, wrong: list[Row], facts: Facts, heard: Heard) -> Row:
    network, ports, pods, session = seen
    settings = settings_of(facts)
    named = ports_wanted(value, settings)
    return {
        "name": value.name,
        "addresses": [str(address) for address in value.addresses],
        "pod_cidrs": [str(cidr) for cidr in (network.cidrs if network else ())],
        "zone": value.zone,
        "datapath_id": None if value.datapath_id is None else datapath_text(value.datapath_id),
        "segments": list(segments_of(value)),
        "mac": mac_row(network.mac if network else None, neighbor_key(value.name), heard),
        "routers": list(routers(value, facts, heard)),
        "uplink": value.uplink,
        "uplink_mtu": value.mtu or settings.uplink_mtu,
        "pod_mtu": mtu_of_pods(value, network.addresses if network else (), settings),
        "ports": {role: port_row(ports[name]) for role, name in named.items() if name in ports},
        "ports_missing": sorted(name for name in named.values() if name not in ports),
        "pods": len(pods),
        "pods_without_port": sorted(pod.key for pod in pods if pod.port not in ports),
        "state": NO_SWITCH if session is None else str(session.state),
        "peer": None if session is None else session.peer,
        "problems": wrong,
    }


def ports_wanted(value: Node, settings: Settings) -> dict[str, str]:
    """Names of the ports that a node's switch must have beside those of pods, by what they are for."""
    named = {"gw0": "gw0", "LOCAL": "LOCAL"} | ({"uplink": value.uplink} if value.uplink else {})
    return named if settings.traffic_mode is TrafficMode.NO_ENCAP else named | {"tunnel": "tun0"}


def wrong_ports(facts: Facts, sessions: Iterable[Any], device: Callable[[int, str], bool]) -> Iterator[Problem]:
    """Of nodes whose switch is connected and was read: what is wrong while it lacks a port, or has another instead.

    `device`: whether the switch of a datapath id describes a port as a network device, which no tunnel is. Of which
    type a tunnel is, OpenFlow does not tell.
    """
    settings, known, ports = settings_of(facts), facts.peek(Kind.NODE), facts.peek(Kind.PORT)
    for session in sessions:
        value: Node | None = known.get(session.node) if session.state in READY_STATES else None
        if value is None:
            continue
        for role, name in sorted(ports_wanted(value, settings).items()):
            if port_key(value.name, name) not in ports:
                yield Problem(Kind.NODE, value.name, f"port {name}", "its switch has no port of this name")
            elif role == "tunnel" and device(session.dpid, name):
                options = f"type={settings.tunnel.value} options:remote_ip=flow options:key=flow"
                reason = f"it is a network device and no tunnel: `ovs-vsctl set interface {name} {options}` on the node"
                yield Problem(Kind.NODE, value.name, f"port {name}", reason)


def settings_of(facts: Facts) -> Settings:
    found: Settings | None = facts.peek(Kind.SETTINGS).get("")
    return found or Settings()


def port_row(port: Port) -> Row:
    return {"number": port.number, "mac": mac_text(port.mac)}


def mac_row(mac: PeerMac | None, key: str, heard: Heard) -> Row | None:
    """None: not known. Only what has to be asked for ages; `age_seconds` is null otherwise."""
    if mac is None:
        return None
    age, _ = _when(key, heard) if mac.source == MacSource.NEIGHBOR.value else (None, ())
    return {"address": mac_text(mac.mac), "source": mac.source, "age_seconds": age}


def routers(value: Node, facts: Facts, heard: Heard) -> Iterator[Row]:
    """The next hops that a node names, in its order; of each family one is in use, once its MAC is known."""
    for ip in value.gateways:
        used: Router | None = facts.peek(Derived.ROUTER).get(f"{value.name} {ip.family}")
        chosen = used is not None and used.ip == ip
        key = neighbor_key(value.name, ip)
        found: Neighbor | None = facts.peek(Kind.NEIGHBOR).get(key)
        mac = used.mac if chosen and used else PeerMac(found.mac, MacSource.NEIGHBOR.value) if found else None
        age, problems = _when(key, heard)
        yield {
            "family": ip.family,
            "address": str(ip),
            "mac": mac_text(mac.mac) if mac else None,
            "source": mac.source if mac else None,
            "reachable": found.reachable if found else None,
            "used": bool(chosen and mac),
            "age_seconds": age,
            "problems": list(problems),
        }


def _when(key: str, heard: Heard) -> tuple[float | None, Sequence[str]]:
    """Seconds since the address last answered (None: never, or nobody asks), and what is wrong about it."""
    row = heard(key) or {}
    return row.get("age_seconds"), row.get("problems") or ()


def _ports_by_node(facts: Facts, pause: Pause) -> dict[str, dict[str, Port]]:
    ports: dict[str, dict[str, Port]] = {}
    for key, port in list(facts.peek(Kind.PORT).items()):
        node_name, _, name = key.partition(" ")
        ports.setdefault(node_name, {})[name] = port
        pause()
    return ports


def _pods_by_node(facts: Facts, pause: Pause) -> dict[str, list[LocalPod]]:
    pods: dict[str, list[LocalPod]] = {}
    for pod in list(facts.peek(Derived.LOCAL_POD).values()):
        pods.setdefault(pod.node, []).append(pod)
        pause()
    return pods


# --- the ways to the others -----------------------------------------------------------------------------------------


def ways(value: Node, facts: Facts, pause: Pause = no_pause) -> Iterator[Row]:
    """By which way pods of a node reach every other node's pods, for each family: "direct" by its MAC, "router",
    "tunnel", or "gateway" (gw0 and the host's routing) with the reason why no better one is known. A tunnel
    that lacks its port says so.
    """
    aside = facts.aside()
    views = [SegmentView(aside, Scope(ScopeKind.SEGMENT, name)) for name in segments_of(value)]
    ports = facts.peek(Kind.PORT)

    def without(name: str) -> str:
        return "" if port_key(value.name, name) in ports else f"no port {name} of its switch is known"

    no_tunnel = without("tun0")
    no_uplink = without(value.uplink) if value.uplink else "no uplink is named"
    for name, network in sorted(facts.peek(Derived.NODE_NETWORK).items()):
        pause()
        if name == value.name:
            continue
        for view in views:
            if any(one.family == view.family for one in (*network.cidrs, *network.addresses)):
                yield {"node": name, "family": view.family} | _way(value, network, view, facts, no_uplink, no_tunnel)


def _way(value: Node, network: NodeNetwork, view: SegmentView, facts: Facts, no_uplink: str, no_tunnel: str) -> Row:
    """`no_uplink`, `no_tunnel`: why the node's switch has none; empty when it has."""
    if view.by_tunnel(network):
        return _row(BY_TUNNEL, network.addresses[0], reason=no_tunnel)
    way = view.way(network)
    if no_uplink:
        return _row(Way.GATEWAY.value, reason=no_uplink)
    if way is Way.DIRECT and network.mac:
        return _row(way.value, mac=network.mac.mac)
    if way is Way.ROUTER:
        router: Router | None = facts.peek(Derived.ROUTER).get(f"{value.name} {view.family}")
        if router is not None and router.mac:
            return _row(way.value, router.ip, router.mac.mac)
        why = "no next hop is named" if router is None else f"the MAC of {router.ip} is not known"
        return _row(Way.GATEWAY.value, reason=why)
    return _row(Way.GATEWAY.value, reason="the MAC of its uplink is not known")


def _row(way: str, to: Ip | None = None, mac: int | None = None, reason: str = "") -> Row:
    """`to`: the router, or the other end of the tunnel."""
    return {
        "way": way,
        "address": None if to is None else str(to),
        "mac": None if mac is None else mac_text(mac),
        "reason": reason,
    }
