"""A node's own Open vSwitch: an ovsdb-server and an ovs-vswitchd with everything under one directory.

The datapath is the userspace one, which needs no kernel module. br0 and gw0 are taps that live as long as
ovs-vswitchd: whoever starts it again has to prepare the host's side again (`script.host`).
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from lab import netns
from lab.plan import HOST_DEVICE, Node, Pod

BRIDGE = HOST_DEVICE
GATEWAY = "gw0"
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
TUNNEL = "tun0"
UPLINK_NUMBER, GATEWAY_NUMBER, TUNNEL_NUMBER = 1, 2, 3
LOG = ("--log-file", "-vconsole:off", "-vsyslog:off", "-vfile:info")
COUNTERS = re.compile(r"^\s*port\s+(.+?): rx pkts=(\d+|\?).*\n\s+tx pkts=(\d+|\?)", re.MULTILINE)


class Counters(NamedTuple):
    """Packets that a port has received and sent, seen from the switch."""

    received: int
    sent: int


def environment(directory: Path) -> dict[str, str]:
    """What makes every tool of Open vSwitch talk to the switch in `directory`."""
    return {name: str(directory) for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")}


def database(directory: Path) -> list[str]:
    """The command that starts ovsdb-server."""
    socket = directory / "db.sock"
    return ["ovsdb-server", str(directory / "conf.db"), f"--remote=punix:{socket}", "--pidfile", "--detach", *LOG]


def daemon(directory: Path) -> list[str]:
    """The command that starts ovs-vswitchd; it returns when the bridge of the database exists."""
    return ["ovs-vswitchd", f"unix:{directory / 'db.sock'}", "--pidfile", "--detach", *LOG]


def create(directory: Path) -> list[str]:
    return ["ovsdb-tool", "create", str(directory / "conf.db"), str(SCHEMA)]


def bridge(node: Node, controller: str, tunnel: str, pods: list[Pod]) -> list[str]:
    """One ovs-vsctl transaction: the bridge, its controller and its ports. `tunnel`: of which type tun0 is, "": none.

    The controller is there from the beginning: Open vSwitch forgets all flows when a bridge gets its first one.
    """
    settings = f"datapath_type=netdev protocols=OpenFlow15 fail_mode=secure other-config:datapath-id={node.datapath_id}"
    words = [
        f"add-br {BRIDGE} -- set bridge {BRIDGE} {settings} {_hwaddr(node.mac)}",
        f"set-controller {BRIDGE} {controller}",
        # Milliseconds: a controller that comes back is found within a second, one that is stuck is left after five.
        # Out-of-band also where the way there is the uplink: flows carry the connection, and none that are hidden.
        f"set controller {BRIDGE} connection-mode=out-of-band max_backoff=1000 inactivity_probe=5000",
        f"add-port {BRIDGE} {node.uplink} -- set interface {node.uplink} ofport_request={UPLINK_NUMBER}",
        f"add-port {BRIDGE} {GATEWAY} -- {_gateway(node)} ofport_request={GATEWAY_NUMBER}",
        *([f"add-port {BRIDGE} {TUNNEL} -- {_tunnel(tunnel)} ofport_request={TUNNEL_NUMBER}"] if tunnel else ()),
        *(f"add-port {BRIDGE} {pod.port}" for pod in pods),
    ]
    return _vsctl(words)


def add_ports(pods: list[Pod]) -> list[str]:
    return _vsctl([f"--may-exist add-port {BRIDGE} {pod.port}" for pod in pods])


def remove_ports(pods: list[Pod]) -> list[str]:
    return _vsctl([f"--if-exists del-port {BRIDGE} {pod.port}" for pod in pods])


def set_mac(mac: str) -> list[str]:
    return _vsctl([f"set bridge {BRIDGE} {_hwaddr(mac)}"])


def renumber(node: Node, port: str, number: int, tunnel: str = "") -> tuple[list[str], list[str]]:
    """Two transactions, because one that deletes and adds the same port changes nothing."""
    kind = {GATEWAY: _gateway(node), TUNNEL: _tunnel(tunnel)}.get(port, f"set interface {port}")
    again = [f"add-port {BRIDGE} {port} -- {kind} ofport_request={number}"]
    return _vsctl([f"del-port {BRIDGE} {port}"]), _vsctl(again)


def counters(dump: str) -> dict[str, Counters]:
    """Reads `ovs-ofctl --names dump-ports`; the bridge's own port is `br0`."""
    return {
        name.strip().strip('"').replace("LOCAL", BRIDGE): Counters(
            *(0 if text == "?" else int(text) for text in counts)
        )
        for name, *counts in COUNTERS.findall(dump)
    }


def pid(directory: Path, program: str) -> int | None:
    """The living process of `program` that belongs to this directory, if any: pids are used again by others."""
    try:
        number = int((directory / f"{program}.pid").read_text())
    except (OSError, ValueError):
        return None
    line = netns.command_line(number)
    return number if program in line and str(directory) + "/" in line else None


def stop(directory: Path, *programs: str) -> None:
    netns.end(number for program in programs if (number := pid(directory, program)) is not None)


def _gateway(node: Node) -> str:
    return f'set interface {GATEWAY} type=internal mac=\\"{node.gateway_mac}\\"'


def _tunnel(kind: str) -> str:
    return f"set interface {TUNNEL} type={kind} options:remote_ip=flow options:key=flow"


def _hwaddr(mac: str) -> str:
    return f'other-config:hwaddr=\\"{mac}\\"'


def _vsctl(words: list[str]) -> list[str]:
    return ["ovs-vsctl", "--timeout=15", *shlex.split(" -- ".join(words))]
