"""The whole lab in one process: interpreted switches, kernels, routers and segments, laid out as lab.plan says."""

from collections.abc import Callable, Iterable
from itertools import count, cycle

from lab.plan import Node, Station
from pipelines import fields as f
from pipelines.actions import LOCAL_PORT, load
from pipelines.addresses import Ip, parse_cidr, parse_interface, parse_ip, parse_mac
from pipelines.flow import Bucket, Group
from pipelines.interpreter import Outcome, Packet, Switch
from pipelines.interpreter.connections import Connections
from pipelines.tables import ROUTE, SERVICE_LB, resubmit
from tests.ovs import world
from tests.ovs.world import Place
from tests.simulation.cluster import TUNNEL, UPLINK, Cluster
from tests.simulation.kernel import HOPS, Kernel
from tests.simulation.sockets import Question, refusal
from tests.simulation.wires import Segment, Take, Wires

TUNNEL_PORTS = {"geneve": 6081, "vxlan": 4789}
OUTER = 50  # bytes of the outer packet's headers, roughly
OWN_PORTS = range(20000, 60000)  # of clients, in turn
Join = Callable[[str, Take], Take]  # a station's name and what it takes; what it sends with


class Network:
    """Built once for a state of the cluster; questions follow each other, and everybody remembers.

    `routed`: prefixes of services that the network beneath brings to one of the nodes, of clients outside.
    """

    def __init__(self, cluster: Cluster, routed: Iterable[str] = world.SERVICE_RANGES) -> None:
        self.wires = Wires()
        self.bucket = 0  # which one of a group is chosen
        self.now = 0.0  # seconds, for learned flows
        self.kernels: dict[str, Kernel] = {}
        self.nodes: dict[str, NodeSwitch] = {}
        self._ports, self._numbers = cycle(OWN_PORTS), count(1)
        self.plan = plan = cluster.plan
        self._segments = [Segment(f"seg{segment.index}", self.wires) for segment in plan.segments]
        far = Segment("far", self.wires)
        self.macs: dict[tuple[int, Ip], int] = {}  # by segment and address
        self._router(far)
        for node in plan.nodes:
            self.nodes[node.name] = NodeSwitch(self, cluster, node, self._segments[node.segment])
        for pod in plan.pods:
            self._station(pod.name, pod.station, self.nodes[pod.node].joins(pod.port))
        self._station("outside", plan.outside, self._segments[0].join)
        self._station("remote", plan.remote, far.join)
        self._route_services(routed)

    def _station(self, name: str, station: Station, join: Join) -> None:
        kernel = self.kernels[name] = Kernel(name)
        send = join(name, kernel.taker("eth0"))
        kernel.add_device("eth0", parse_mac(station.mac), station.addresses, send)
        for gateway in station.gateways:
            kernel.add_route("default", gateway, "eth0")

    def _router(self, far: Segment) -> None:
        plan = self.plan
        router = self.kernels["router"] = Kernel("router", forwards=True)
        for segment, wire in zip(plan.segments, self._segments, strict=True):
            device, mac = f"seg{segment.index}", parse_mac(segment.router_macs[0])
            router.add_device(device, mac, segment.router_addresses, wire.join("router", router.taker(device)))
            for text in segment.router_addresses:
                self.macs[segment.index, parse_interface(text).ip] = mac
        router.add_device("far", 0xFE00000000FF, plan.far_addresses, far.join("router", router.taker("far")))
        for route in plan.router_routes:
            router.add_route(*route)

    def _route_services(self, routed: Iterable[str]) -> None:
        for client, entry in world.ENTRIES.items():
            near = world.PLACES[client].segment is not None
            device = "eth0" if near else f"seg{world.NODES[entry].segment}"
            for prefix in routed:
                via = world.NODES[entry].addresses[parse_cidr(prefix).family]
                self.kernels[client if near else "router"].add_route(prefix, via, device)

    def mac_of(self, name: str, segment: str) -> int:
        """What a place has as source of every frame on a segment."""
        return self.kernels[name].mac({"router": segment, "outside": "eth0", "remote": "eth0"}.get(name, "br0"))

    def become(self, cluster: Cluster) -> None:
        """Switches hold other flows, as after a change of services. Nodes and pods are the same."""
        for name, node in self.nodes.items():
            node.switch.hold(cluster.tables[name].flows, cluster.tables[name].groups)

    def forget_connections(self) -> None:
        """On all switches and hosts, while nothing talks. What switches have learned stays."""
        for node in self.nodes.values():
            node.switch.connections = Connections()
        for kernel in self.kernels.values():
            kernel.forget()

    # --- questions --------------------------------------------------------------------------------------------

    def ask(self, client: Place, protocol: str, address: str, port: int, times: int = 1) -> Question:
        """`times`: how often the first packet is sent, before anything comes back."""
        kernel, to = self.kernels[client.name], parse_ip(address)
        question, packet = kernel.sockets.ask(protocol, kernel.source_for(to), next(self._ports), to, port)
        for _ in range(times):
            kernel.send(packet)
        self.wires.run()
        return question

    def ping(self, client: Place, address: str) -> Question:
        kernel, to = self.kernels[client.name], parse_ip(address)
        question, packet = kernel.sockets.ping(kernel.source_for(to), to, next(self._numbers))
        kernel.send(packet)
        self.wires.run()
        return question


class NodeSwitch:
    """A node: its switch, its kernel at LOCAL and gw0, and the ends of its tunnels."""

    def __init__(self, network: Network, cluster: Cluster, node: Node, segment: Segment) -> None:
        self._network, self._node = network, node
        self._tables = cluster.tables[node.name]
        self.switch: Switch = self._tables.switch(self._choose)
        self._udp_port = TUNNEL_PORTS.get(cluster.plan.options.tunnel, 0)
        self._own = [parse_interface(text).ip for text in node.addresses]
        self._out: dict[int, Take] = {TUNNEL: self._encapsulate}
        wires, gateway = network.wires, self._tables.ports["gw0"]
        kernel = self.kernel = network.kernels[node.name] = Kernel(node.name, forwards=True, reverse_path=True)
        kernel.masqueraded = tuple(map(parse_cidr, node.pod_cidrs))
        kernel.cluster = tuple(map(parse_cidr, cluster.plan.cluster_cidrs))
        mac = parse_mac(node.mac)
        kernel.add_device("br0", mac, node.addresses, wires.cable(f"{node.name}:LOCAL→", self._taker(LOCAL_PORT)))
        gw0 = wires.cable(f"{node.name}:gw0→", self._taker(gateway))
        kernel.add_device("gw0", parse_mac(node.gateway_mac), node.gateway_addresses, gw0)
        for hop in node.gateways:
            kernel.add_route("default", hop, "br0")
        for route in node.routes:
            kernel.add_route(*route)
        self._to_host = wires.cable(f"{node.name}:→LOCAL", kernel.taker("br0"))
        self._out[LOCAL_PORT] = self._to_local
        self._out[gateway] = wires.cable(f"{node.name}:→gw0", kernel.taker("gw0"))
        self._out[UPLINK] = segment.join(node.name, self._taker(UPLINK))
        for ip in self._own:
            network.macs[node.segment, ip] = mac

    def _choose(self, group: Group, packet: Packet) -> Bucket:
        return group.buckets[self._network.bucket % len(group.buckets)]

    def joins(self, port: str) -> Join:
        number = self._tables.ports[port]
        cable = self._network.wires.cable

        def join(name: str, take: Take) -> Take:
            self._out[number] = cable(f"{self._node.name}→{name}", take)
            return cable(f"{name}→{self._node.name}", self._taker(number))

        return join

    def _taker(self, number: int) -> Take:
        return lambda packet: self._carry(self.switch.receive(packet.having({f.IN_PORT: number}), self._network.now))

    def _carry(self, outcome: Outcome) -> None:
        for port, packet in outcome.sent:
            self._out[port](packet)
        for message in outcome.to_controller:
            if message.flow.table == SERVICE_LB.id:
                self._refuse(message.in_port, message.packet)

    def _refuse(self, port: int, packet: Packet) -> None:
        """As the controller does, by packet-out. What came by tunnel is routed back, so that its other end is found."""
        frame = {f.ETH_SRC: packet[f.ETH_DST], f.ETH_DST: packet[f.ETH_SRC], f.IP_TTL: HOPS}
        said = refusal(packet).having(frame)
        if port == TUNNEL:
            routed = load(f.ENTERED_BY, f.Entered.TUNNEL), resubmit(ROUTE)
            self._carry(self.switch.execute(said, routed, self._network.now))
        else:
            self._out[port](said)

    # --- tunnels ----------------------------------------------------------------------------------------------

    def _encapsulate(self, packet: Packet) -> None:
        """The outer packet enters the switch as the host's own, with the MAC that Open vSwitch has asked for."""
        remote = Ip(4, packet[f.TUN_DST]) if packet[f.TUN_DST] else Ip(6, packet[f.TUN_IP6_DST])
        route = self.kernel.route(remote)
        assert route is not None
        hop = self._network.macs[self._node.segment, route.via or remote]
        family = remote.family
        head = {f.ETH_SRC: parse_mac(self._node.mac), f.ETH_DST: hop, f.ETH_TYPE: 0x0800 if family == 4 else 0x86DD}
        head |= {f.IP_SRC[family]: self.kernel.source_for(remote).value, f.IP_DST[family]: remote.value}
        head |= {f.IP_PROTO: f.UDP, f.IP_TTL: HOPS, f.UDP_SRC: 50000, f.UDP_DST: self._udp_port}
        inner = packet.having({f.TUN_DST: 0, f.TUN_IP6_DST: 0})
        self._taker(LOCAL_PORT)(Packet.of(head, packet.length + OUTER, carried=inner))

    def _to_local(self, packet: Packet) -> None:
        inner, family = packet.carried, packet.family
        mine = bool(family) and Ip(family, packet[f.IP_DST[family]]) in self._own
        if inner is None or packet[f.UDP_DST] != self._udp_port or not mine:
            self._to_host(packet)
            return
        source = {f.TUN_SRC if family == 4 else f.TUN_IP6_SRC: packet[f.IP_SRC[family]]}
        self._taker(TUNNEL)(inner.having(source))
