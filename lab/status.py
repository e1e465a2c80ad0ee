"""What a lab looks like right now, for people and for programs."""

from msgspec import Struct

from lab import netns, switch
from lab.cluster import Lab
from lab.netns import LabError


class NodeStatus(Struct, frozen=True):
    name: str
    datapath_id: str
    addresses: tuple[str, ...]
    mac: str  # of the uplink
    vswitchd: int | None  # process id; None: it is not running
    connected: bool  # to a controller
    flows: int


class PodStatus(Struct, frozen=True):
    key: str
    node: str
    port: str
    addresses: tuple[str, ...]
    present: bool  # its namespace exists


class Status(Struct, frozen=True):
    name: str
    controller: str
    router: str  # the active one
    nodes: tuple[NodeStatus, ...]
    pods: tuple[PodStatus, ...]
    problems: tuple[str, ...]  # of manifests that could not be built


def status(lab: Lab) -> Status:
    present = set(netns.existing(lab.name))
    return Status(
        name=lab.name,
        controller=lab.plan.controller,
        router=lab.plan.active,
        nodes=tuple(_node(lab, node.name) for node in lab.plan.nodes),
        pods=tuple(
            PodStatus(pod.key, pod.node, pod.port, pod.station.addresses, lab.namespace(pod.key) in present)
            for pod in lab.plan.pods
        ),
        problems=lab.plan.problems,
    )


def _node(lab: Lab, name: str) -> NodeStatus:
    node = lab.node(name)
    pid = switch.pid(lab.switch_directory(name), "ovs-vswitchd")
    connected, flows = False, 0
    if pid is not None:
        try:
            connected = lab.controller_connected(name)
            flows = int(lab.ofctl(name, "dump-aggregate", switch.BRIDGE).rpartition("flow_count=")[2].split()[0])
        except (LabError, ValueError, IndexError):
            pass  # it is ending or starting: what is known is shown
    return NodeStatus(name, node.datapath_id, node.addresses, node.mac, pid, connected, flows)
