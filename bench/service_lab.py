"""A lab with one service on one node, which its switch serves by our flows, or OVN does, by turns.

    a, s1 … s4 (pods), uplink ──── br0, or br-int ──── outside

The pods and the uplink move between the two bridges of the same Open vSwitch; addresses, MACs, servers and clients
stay as they are. In OVN there are a logical switch for the pods and one for the segment, with a router of this node
between them that holds the addresses of gw0 and of the node. It translates no source address, as we do not for
endpoints on the node itself.
"""

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import layouts, streams
from bench.layouts import Layout
from bench.openvswitch import INTEGRATION
from bench.ovn import Ovn
from lab import switch
from lab.cluster import Lab
from lab.switch import BRIDGE
from pipelines.model import ReplyPath, Settings

NODE, CLIENT = "n1", "a"
SERVERS = {f"s{number}": f"10.10.1.{number + 20}" for number in range(1, 5)}
CLUSTER_IP, PORT, NODE_PORT = "10.96.0.200", 80, 30080
EXAMPLE = Path(__file__).parents[1] / "examples/demo"
CLIENTS = Path(__file__).parent / "clients.py"
SOURCES = "198.51.0.0/16"  # addresses of clients outside that are beyond the segment
PROCESSES = 3
REPLY_PATHS = {
    "learn": Settings(),
    "learn without limit": Settings(reply_limit=0),
    "label": Settings(reply_path=ReplyPath.LABEL),
}


class Served(NamedTuple):
    """Requests answered by second, and processor µs of the node's switch for one."""

    by_second: float
    processor: float


class NodeSwitch:
    """The Open vSwitch of a lab's node, as `bench.ovn` wants it."""

    def __init__(self, lab: Lab, node: str) -> None:
        self._lab, self._node = lab, node
        self.directory = lab.switch_directory(node)
        self.environment = switch.environment(self.directory)

    def vsctl(self, words: str) -> None:
        self._lab.vsctl(self._node, *words.split())


class ServiceLab:
    """Of a lab that is up and was built of `write_manifests`."""

    def __init__(self, lab: Lab, directory: Path, with_ovn: bool) -> None:
        self.lab = lab
        layouts.prepare(lab)
        for server in SERVERS:
            lab.echo(server, tcp=(streams.ECHO,))
        lab.run("outside", "ip", "route", "add", "local", SOURCES, "dev", "lo")
        self._numbers = {port: lab.port_number(NODE, port) for port in self._ports.values()}
        self._layouts = {
            name: _only(layouts.compiled(lab, directory, name, settings), NODE)
            for name, settings in REPLY_PATHS.items()
        }
        self.ovn = Ovn(NodeSwitch(lab, NODE), lambda ovn: _topology(ovn, lab)) if with_ovn else None

    @property
    def _ports(self) -> dict[str, str]:
        """What moves: OVN's name for it, and the device."""
        pods = {name: self.lab.pod(name).port for name in (CLIENT, *SERVERS)}
        return {**pods, "uplink": self.lab.node(NODE).uplink}

    def use_ours(self, reply_path: str = "learn") -> None:
        self._move(INTEGRATION, BRIDGE, lambda name, port: f"ofport_request={self._numbers[port]}")
        layouts.write(self.lab, self._layouts[reply_path])

    def use_ovn(self) -> None:
        assert self.ovn is not None
        self._move(BRIDGE, INTEGRATION, lambda name, port: f"external-ids:iface-id={name}")
        self.ovn.nbctl(["--timeout=30", "wait-until", "logical_switch_port", "uplink", "up=true"])
        self.ovn.wait()
        self.lab.flush_conntrack(NODE)

    def _move(self, old: str, new: str, how: Callable[[str, str], str]) -> None:
        there = (
            self.lab.vsctl(NODE, "list-ports", old).split() if old in self.lab.vsctl(NODE, "list-br").split() else []
        )
        moving = {name: port for name, port in self._ports.items() if port in there}
        if not moving:
            return
        gone = " -- ".join(f"del-port {old} {port}" for port in moving.values())
        back = " -- ".join(
            f"add-port {new} {port} -- set interface {port} {how(name, port)}" for name, port in moving.items()
        )
        for transaction in (gone, back):
            self.lab.vsctl(NODE, *transaction.split())

    # --- traffic ------------------------------------------------------------------------------------------------

    def ask(self, what: str, entrance: str, seconds: float, clients: int = 1) -> Served:
        """`what`: "connections" or "requests"; `entrance`: "ClusterIP", from a pod, or "NodePort", from outside."""
        place, address, port = _entrance(self.lab, entrance)
        words = [str(CLIENTS), address, str(port), str(seconds), str(PROCESSES), what]
        if clients > 1:
            words.append(f"{SOURCES}+{clients}")
        # A port that comes round again while its former connection is not yet swept ends Open vSwitch 3.1's userspace
        # datapath under OVN's flows, which translate plain connections to nothing.
        self.lab.flush_conntrack(NODE)
        self._ask(place, [*words[:3], "0.2", *words[4:]])  # decisions are cached, neighbours are found
        before = streams.processor(self.lab, [NODE])
        answered, failed = self._ask(place, words)
        spent = streams.processor(self.lab, [NODE]) - before
        if failed > answered / 100:
            raise RuntimeError(f"{what} by {entrance}: {failed} failed, {answered} were answered")
        return Served(answered / seconds, 1e6 * spent / answered)

    def _ask(self, place: str, words: list[str]) -> list[int]:
        printed = self.lab.run(place, sys.executable, "-IS", *words, timeout=120).stdout
        return msgspec.json.decode(printed, type=list[int])


def _entrance(lab: Lab, entrance: str) -> tuple[str, str, int]:
    if entrance == "ClusterIP":
        return CLIENT, CLUSTER_IP, PORT
    return "outside", _ip4(lab.node(NODE).addresses), NODE_PORT


def _ip4(addresses: Iterable[str], length: bool = False) -> str:
    found = next(text for text in addresses if ":" not in text)
    return found if length else found.partition("/")[0]


def _only(layout: Layout, node: str) -> Layout:
    return Layout(layout.name, {node: layout.lines[node]})


def _topology(ovn: Ovn, lab: Lab) -> None:
    node = lab.node(NODE)
    backends = ",".join(f"{address}:{streams.ECHO}" for address in SERVERS.values())
    commands = [
        "lr-add node",
        "set logical_router node options:chassis=bench",
        "ls-add pods",
        f"lrp-add node node-pods {node.gateway_mac} {_ip4(node.gateway_addresses, length=True)}",
        *_router_port("pods"),
        "ls-add segment",
        f"lrp-add node node-segment {node.mac} {_ip4(node.addresses, length=True)}",
        *_router_port("segment"),
        "lsp-add segment uplink",
        "lsp-set-addresses uplink unknown",
        f"lr-route-add node {SOURCES} {_ip4(lab.plan.outside.addresses)}",
        f"lb-add cluster {CLUSTER_IP}:{PORT} {backends} tcp",
        "ls-lb-add pods cluster",
        f"lb-add nodeport {_ip4(node.addresses)}:{NODE_PORT} {backends} tcp",
        "lr-lb-add node nodeport",
    ]
    ovn.nbctl([word for command in commands for word in ("--", *command.split())])
    for name in (CLIENT, *SERVERS):
        station = lab.pod(name).station
        addresses = f"{station.mac} {_ip4(station.addresses)}"
        ovn.nbctl(["lsp-add", "pods", name, "--", "lsp-set-addresses", name, addresses])


def _router_port(name: str) -> list[str]:
    port = f"{name}-node"
    return [
        f"lsp-add {name} {port}",
        f"lsp-set-type {port} router",
        f"lsp-set-addresses {port} router",
        f"lsp-set-options {port} router-port=node-{name}",
    ]


# --- manifests ----------------------------------------------------------------------------------------------


def write_manifests(directory: Path) -> Path:
    """The nodes and clients of the demo, four servers on n1, and the service that they stand behind. JSON is YAML."""
    directory.mkdir()
    for file in ("nodes.yaml", "clients.yaml", "cluster.yaml"):
        shutil.copy(EXAMPLE / file, directory)
    objects = [*(_server(name, address) for name, address in SERVERS.items()), *_service()]
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    (directory / "service.yaml").write_bytes(msgspec.json.encode(document))
    return directory


def _server(name: str, address: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"nodeName": NODE},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    }


def _service() -> list[dict[str, object]]:
    ports = [{"protocol": "TCP", "port": PORT, "targetPort": streams.ECHO, "nodePort": NODE_PORT}]
    spec = {"type": "NodePort", "clusterIP": CLUSTER_IP, "clusterIPs": [CLUSTER_IP], "ports": ports}
    ready = {"ready": True, "serving": True, "terminating": False}
    ends = [{"addresses": [address], "conditions": ready, "nodeName": NODE} for address in SERVERS.values()]
    labels = {"kubernetes.io/service-name": "echo"}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "echo"}, "spec": spec},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": "echo-1", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"protocol": "TCP", "port": streams.ECHO}],
            "endpoints": ends,
        },
    ]
