"""A plan in the words of `ip` and of the shell: pure functions from plan to text.

Everything that happens to one namespace is one script, because starting a process costs more than what it does.
Settings are written before a device comes up, so that no duplicate address detection, router solicitation or
stray answer happens in between.
"""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from lab import netns, switch
from lab.announcements import announcement
from lab.plan import (
    CONTROLLER_ADDRESS,
    FAR_SEGMENT,
    ROUTERS,
    STANDARD_MTU,
    Node,
    Plan,
    Pod,
    Route,
    Station,
    router_mac,
)
from node import bootstrap

IP4, IP6 = "/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf"
FAR = "far"  # the routers' device there, and the bridge in the fabric
LEAVING = 5  # a group of devices
# The switch translates to the node's address with ports of its own, which the host's kernel must not choose.
RESERVED_PORTS = "61440-65535"
MASQUERADE_PORTS = ":1024-61439"


def namespaces(plan: Plan) -> list[str]:
    """Every namespace of the lab except those of the pods."""
    places = [netns.fixed(plan.name, place) for place in netns.FIXED_PLACES]
    return places + [netns.of_node(plan.name, node.name) for node in plan.nodes]


def links(plan: Plan) -> list[str]:
    """`ip` commands that lay the cables between the namespaces, pods aside. Both ends are born in their places."""
    fabric = netns.fixed(plan.name, "fabric")
    lines = []
    for node in plan.nodes:
        home = netns.of_node(plan.name, node.name)
        lines.append(_cable(home, node.uplink, node.mac, fabric, f"n{node.index}"))
        if plan.in_band is None:
            lines.append(_cable(home, "mgmt0", None, fabric, f"m{node.index}"))
    for number, place in enumerate(ROUTERS):
        home = netns.fixed(plan.name, place)
        for segment in plan.segments:
            device = f"seg{segment.index}"
            lines.append(_cable(home, device, segment.router_macs[number], fabric, router_port(place, segment.index)))
        lines.append(_cable(home, FAR, router_mac(FAR_SEGMENT, number), fabric, router_port(place)))
    for place, station, port in (
        ("outside", plan.outside, "y"),
        ("remote", plan.remote, "x"),
        ("controller", plan.in_band, "c"),
    ):
        lines.append(_cable(netns.fixed(plan.name, place), "eth0", station.mac if station else None, fabric, port))
    return lines


def router_port(router: str, segment: int | None = None) -> str:
    """The end in the fabric of a router's cable to a segment; None: to the far segment."""
    return f"{'r' if router == ROUTERS[0] else 's'}{FAR if segment is None else segment}"


def pod_links(plan: Plan, pods: Iterable[Pod]) -> list[str]:
    """`ip` commands that make the pods' namespaces and lay their cables."""
    lines = []
    for pod in pods:
        home = netns.of_pod(plan.name, pod.namespace, pod.name)
        lines.append(f"netns add {home}")
        mtu = pod.station.mtu if pod.station.mtu > STANDARD_MTU else None
        lines.append(_cable(home, "eth0", pod.station.mac, netns.of_node(plan.name, pod.node), pod.port, mtu))
    return lines


def fabric(plan: Plan) -> str:
    """The bridges: one for every segment, one beyond the routers, and one for management. They only switch."""
    ports = {
        f"seg{segment.index}": [router_port(place, segment.index) for place in ROUTERS] for segment in plan.segments
    }
    ports["seg0"].append("y")
    ports[FAR] = ["x", *(router_port(place) for place in ROUTERS)]
    if plan.in_band is None:
        ports["mgmt"] = ["c", *(f"m{node.index}" for node in plan.nodes)]
    else:
        ports["seg0"].append("c")
    for node in plan.nodes:
        ports[f"seg{node.segment}"].append(f"n{node.index}")
    lines = []
    for bridge, members in ports.items():
        lines.append(f"link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        lines += [f"link set {member} master {bridge} up" for member in members]
        lines.append(f"link set {bridge} up")
    silent = _write(f"{IP6}/default/disable_ipv6 {IP6}/all/disable_ipv6", 1)
    # The bridges must not send frames through netfilter, where that is compiled in.
    netfilter = "for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done\n"
    return silent + netfilter + _no_offload(member for members in ports.values() for member in members) + _ip(lines)


def router(plan: Plan, place: str) -> str:
    """One of the routers. The one that stands by has its links, and neither addresses nor routes."""
    devices = [*(f"seg{segment.index}" for segment in plan.segments), FAR]
    lines = ["link set lo up", *(f"link set {device} up" for device in devices)]
    duties = take_over(plan) if place == plan.active else []
    return _forwarding(rp_filter=0) + _no_offload(devices) + _ip(lines + duties)


def take_over(plan: Plan) -> list[str]:
    """`ip` commands that make a router the active one."""
    lines = [line for device, addresses in _first_hops(plan) for line in _addresses(device, addresses)]
    return lines + _routes(plan.router_routes)


def stand_by(plan: Plan) -> list[str]:
    """`ip` commands after which a router answers for nothing and forwards nothing; some may fail."""
    routes = [f"route delete {route.destination} via {route.via} dev {route.device}" for route in plan.router_routes]
    # Routes first: those of IPv4 go with the last address of their device, those of IPv6 would stay.
    return routes + [
        f"address delete {address} dev {device}" for device, addresses in _first_hops(plan) for address in addresses
    ]


def router_macs(before: Plan, after: Plan) -> list[str]:
    """`ip` commands for the router that is active afterwards, where its MACs change."""
    number = ROUTERS.index(after.active)
    return [
        f"link set seg{new.index} address {new.router_macs[number]}"
        for old, new in zip(before.segments, after.segments, strict=True)
        if old != new
    ]


def announcements(plan: Plan) -> list[tuple[str, bytes]]:
    """What the active router says of its addresses: device and frame, for each."""
    number = ROUTERS.index(plan.active)
    macs = {f"seg{segment.index}": segment.router_macs[number] for segment in plan.segments}
    macs[FAR] = router_mac(FAR_SEGMENT, number)
    return [
        (device, announcement(address, macs[device]))
        for device, addresses in _first_hops(plan)
        for address in addresses
    ]


def _first_hops(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """What the active router holds, by device."""
    return [
        *((f"seg{segment.index}", segment.router_addresses) for segment in plan.segments),
        (FAR, plan.far_addresses),
    ]


def station(host: Station) -> str:
    """A pod, or somebody outside the cluster."""
    return _quiet() + _no_offload(["eth0"]) + _ip(
        ["link set lo up", f"link set eth0 mtu {host.mtu} up", *_addresses("eth0", host.addresses)]
        + [f"route add default via {gateway} dev eth0" for gateway in host.gateways]
    )  # fmt: skip


def controller(plan: Plan) -> str:
    if plan.in_band is not None:
        return station(plan.in_band)
    lines = ["link set lo up", f"address add {CONTROLLER_ADDRESS}/24 dev eth0", "link set eth0 up"]
    return _quiet() + _write(f"{IP6}/eth0/disable_ipv6", 1) + _no_offload(["eth0"]) + _ip(lines)


def node(plan: Plan, node: Node, directory: Path) -> str:
    """All of a node: its kernel, its Open vSwitch in `directory`, its pods' ports, its addresses and routes."""
    pods = [pod for pod in plan.pods if pod.node == node.name]
    commands = (
        switch.create(directory),
        switch.database(directory),
        ["ovs-vsctl", "--no-wait", "init"],
        switch.daemon(directory),
        switch.bridge(node, plan.controller, plan.options.tunnel, pods),
    )
    return (
        _forwarding(rp_filter=1)
        + f"echo {RESERVED_PORTS} >/proc/sys/net/ipv4/ip_local_reserved_ports\n"
        + _ip(["link set lo up"])
        + ("" if plan.in_band else _management(node))
        + masquerade(plan, node)
        + _taps(node.uplink, *(pod.port for pod in pods))
        + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in switch.environment(directory).items())
        + "".join(f"{shlex.join(words)} </dev/null\n" for words in commands)
        + host(node, directory)
    )


def _management(node: Node) -> str:
    lines = [f"address add {node.management}/24 dev mgmt0", "link set mgmt0 up"]
    return _write(f"{IP6}/mgmt0/disable_ipv6", 1) + _no_offload(["mgmt0"]) + _ip(lines)


def pod_ports(pods: Iterable[Pod]) -> str:
    """A node's ends of the cables of further pods."""
    return _taps(*(pod.port for pod in pods))


def mtu(pod: Pod, mtu: int) -> tuple[list[str], list[str]]:
    """`ip` commands in the pod and on its node. The switch's own ports follow the smallest one: not below the usual."""
    return [f"link set eth0 mtu {mtu}"], [f"link set {pod.port} mtu {max(mtu, STANDARD_MTU)}"]


def first_flows(node: Node, directory: Path) -> str:
    """What the node's switch holds without a controller: to be said again after ovs-vswitchd was started."""
    words = bootstrap.command(switch.BRIDGE, directory)
    return _input(shlex.join(words), bootstrap.text(node.uplink).splitlines())


def host(node: Node, directory: Path) -> str:
    """The first flows, and the host's side of br0 and gw0: again whenever ovs-vswitchd has made them anew."""
    lines = [f"link set {switch.BRIDGE} up", f"link set {switch.GATEWAY} up"]
    lines += _addresses(switch.BRIDGE, node.addresses) + _addresses(switch.GATEWAY, node.gateway_addresses)
    lines += [f"route replace default via {gateway} dev {switch.BRIDGE}" for gateway in node.gateways]
    # A service packet that takes the way by the host comes back with the node's own address as its source.
    return (
        first_flows(node, directory)
        + _write(f"{IP4}/{switch.GATEWAY}/accept_local", 1)
        + _no_offload([switch.BRIDGE, switch.GATEWAY])
        + _ip(lines + _routes(node.routes))
    )


def masquerade(plan: Plan, node: Node) -> str:
    """Pods of this node leave the cluster with the node's address."""
    rules = []
    for family, word in ((4, "ip"), (6, "ip6")):
        mine = [cidr for cidr in node.pod_cidrs if (":" in cidr) == (family == 6)]
        cluster = [cidr for cidr in plan.cluster_cidrs if (":" in cidr) == (family == 6)]
        if mine:
            leaves = f"    {word} saddr {{ {', '.join(mine)} }} {word} daddr != @cluster{family}"
            rules += [f"{leaves} meta l4proto {{ tcp, udp }} masquerade to {MASQUERADE_PORTS}", f"{leaves} masquerade"]
            rules.insert(0, f"  set cluster{family} {{ type ipv{family}_addr; flags interval; auto-merge;"
                            f" elements = {{ {', '.join(cluster)} }} }}")  # fmt: skip
    sets = [rule for rule in rules if rule.startswith("  set")]
    chain = ["  chain postrouting {", "    type nat hook postrouting priority srcnat;",
             *(rule for rule in rules if rule not in sets), "  }"]  # fmt: skip
    return _nft(["table inet pods_out", "delete table inet pods_out", "table inet pods_out {", *sets, *chain, "}"])


def forget_ports(pods: Iterable[Pod]) -> str:
    """Takes away a node's ends of the cables of pods that go.

    At once, not when the kernel comes to it: the next pod of that name has the same port. As one group of devices,
    because the kernel takes its time for every single one.
    """
    devices = [pod.port for pod in pods]
    tables = _nft(
        line
        for device in devices
        for line in (f"table netdev {_table(device)}", f"delete table netdev {_table(device)}")
    )
    links = [f"link set {device} group {LEAVING}" for device in devices]
    # Not an error: with a namespace that somebody has deleted, its cable went too.
    return tables + "set +e\n" + _input("ip -force -batch -", [*links, f"link delete group {LEAVING}"]) + "true\n"


def _taps(*devices: str) -> str:
    """Devices that the switch taps. The kernel sees their frames too and must not answer them."""
    rules = []
    for device in devices:
        table = f"table netdev {_table(device)}"
        hook = f'type filter hook ingress device "{device}" priority 0; policy drop;'
        rules += [table, f"delete {table}", f"{table} {{", "  chain ingress {", f"    {hook}", "  }", "}"]
    silent = _write(" ".join(f"{IP6}/{device}/disable_ipv6" for device in devices), 1)
    return silent + _nft(rules) + _no_offload(devices) + _ip(f"link set {device} up" for device in devices)


def _table(device: str) -> str:
    return "silence_" + re.sub(r"[^A-Za-z0-9]", "_", device)


def _forwarding(rp_filter: int) -> str:
    # ip_forward first: writing it puts other settings back to what a router should have.
    return (
        _write("/proc/sys/net/ipv4/ip_forward", 1)
        + _write(f"{IP6}/all/forwarding {IP6}/default/forwarding", 1)
        + _write(f"{IP4}/*/rp_filter", rp_filter)
        + _write(f"{IP4}/*/send_redirects", 0)
        + _quiet()
    )


def _quiet() -> str:
    """Addresses are what the plan says, at once: nothing is detected, solicited, advertised or redirected."""
    names = ("accept_dad", "accept_ra", "accept_redirects", "router_solicitations")
    return _write(f"{IP4}/*/accept_redirects " + " ".join(f"{IP6}/*/{name}" for name in names), 0)


def _cable(netns1: str, device1: str, mac: str | None, netns2: str, device2: str, mtu: int | None = None) -> str:
    address = f" address {mac}" if mac else ""
    size = f" mtu {mtu}" if mtu else ""
    return f"link add {device1} netns {netns1}{address}{size} type veth peer name {device2} netns {netns2}{size}"


def _addresses(device: str, addresses: Iterable[str]) -> list[str]:
    return [f"address replace {text} dev {device}{' nodad' if ':' in text else ''}" for text in addresses]


def _routes(routes: Iterable[Route]) -> list[str]:
    return [
        f"route replace {route.destination} via {route.via}" + (f" dev {route.device}" if route.device else "")
        for route in routes
    ]


def _write(paths: str, value: int) -> str:
    return f"for f in {paths}; do echo {value} > $f; done\n"


def _no_offload(devices: Iterable[str]) -> str:
    # Otherwise the userspace datapath is given packets whose checksums nobody has computed.
    return f"for d in {' '.join(devices)}; do ethtool -K $d tx off >/dev/null; done\n"


def _ip(lines: Iterable[str]) -> str:
    return _input("ip -batch -", lines)


def _nft(lines: Iterable[str]) -> str:
    return _input("nft -f -", lines)


def _input(command: str, lines: Iterable[str]) -> str:
    return f"{command} <<'END'\n" + "".join(f"{line}\n" for line in lines) + "END\n"
