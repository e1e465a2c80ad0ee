"""The lab as one object: build it, take it down, run things in it, change it, break it.

    with Lab("tour", Path("examples/demo")) as lab:
        lab.run("default/a", "ping", "-c1", "10.10.2.10")
        lab.ofctl("n1", "dump-flows", "br0")

What a lab needs to be taken down by somebody else, later, after a crash, is found in its state directory, in the
names of its namespaces and in /proc; nothing is only in this object.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from lab import capture, manifests, netns, script, switch, traffic
from lab.netns import LabError
from lab.plan import CONTROLLER, Node, Plan, Pod, plan
from pipelines.addresses import link_local, parse_mac

STATE = Path("/run/signalbox/lab")


class Synced(NamedTuple):
    """Keys ("NAMESPACE/NAME") of the pods that `sync` has made and removed; a changed pod is in both."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[str, ...]


class Lab:
    """A lab by its name. With `directory` it can be built; without, it is one that `attach` has found.

    A place is the name of a node, "NAMESPACE/NAME" of a pod (or NAME alone where one pod has it and no node),
    "router", "outside", "remote", "controller" or "fabric".
    """

    def __init__(self, name: str, directory: Path | str, controller: str = CONTROLLER, state: Path = STATE) -> None:
        """`controller` as ovs-vsctl takes it. Raises LabError for the name, ManifestError for the manifests."""
        self.name = netns.check_name(name)
        self.state = state / name
        self.plan: Plan = plan(name, manifests.read(Path(directory)), controller)
        self._started: list[subprocess.Popen[str]] = []

    @classmethod
    def attach(cls, name: str, state: Path = STATE) -> Self:
        """A lab that is up already; raises LabError when there is none."""
        lab = cls.__new__(cls)
        lab.name = netns.check_name(name)
        lab.state = state / name
        lab._started = []
        try:
            lab.plan = msgspec.json.decode((lab.state / "plan.json").read_bytes(), type=Plan)
        except FileNotFoundError as error:
            raise LabError(f"no lab {name} is up") from error
        return lab

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, replace: bool = False) -> Self:
        """Builds it; raises LabError, having cleaned up. `replace`: one of this name goes first."""
        if os.geteuid() != 0:
            raise LabError("a lab needs root: it makes network namespaces")
        if replace:
            self.down()
        if self.state.exists() or netns.existing(self.name):
            raise LabError(f"lab {self.name} is up, or its remains are there: take it down first, or replace it")
        try:
            self._build()
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """Removes everything of a lab of this name, whole or not; nothing there is not an error."""
        take_down(self.name, self.state)
        while self._started:
            self._started.pop().communicate()

    def _build(self) -> None:
        (self.state / "nodes").mkdir(parents=True)
        for part in ("scripts", "captures", "processes"):
            (self.state / part).mkdir()
        self._keep()
        lines = [f"netns add {name}" for name in script.namespaces(self.plan)]
        netns.ip_batch([*lines, *script.links(self.plan), *script.pod_links(self.plan, self.plan.pods)])
        scripts = []
        for node in self.plan.nodes:  # first, for they take longest
            self.switch_directory(node.name).mkdir()
            scripts.append(self._script(node.name, script.node(self.plan, node, self.switch_directory(node.name))))
        scripts += [
            self._script("fabric", script.fabric(self.plan)),
            self._script("router", script.router(self.plan)),
            self._script("outside", script.station(self.plan.outside)),
            self._script("remote", script.station(self.plan.remote)),
            self._script("controller", script.controller()),
            *(self._script(pod.key, script.station(pod.station)) for pod in self.plan.pods),
        ]
        netns.run_scripts(scripts)

    # Places

    def namespace(self, place: str) -> str:
        """The network namespace of a place; raises LabError."""
        if place in netns.FIXED_PLACES:
            return netns.fixed(self.name, place)
        if any(node.name == place for node in self.plan.nodes):
            return netns.of_node(self.name, place)
        pods = [pod for pod in self.plan.pods if place in (pod.key, pod.name)]
        if len(pods) != 1:
            raise LabError(f"{place}: {'several pods are' if pods else 'nothing is'} called that in lab {self.name}")
        return netns.of_pod(self.name, pods[0].namespace, pods[0].name)

    def node(self, name: str) -> Node:
        try:
            return self.plan.node(name)
        except KeyError as error:
            raise LabError(error.args[0]) from error

    def pod(self, key: str) -> Pod:
        """A pod by "NAMESPACE/NAME" or by its name alone; raises LabError."""
        for pod in self.plan.pods:
            if netns.of_pod(self.name, pod.namespace, pod.name) == self.namespace(key):
                return pod
        raise LabError(f"{key} is no pod of lab {self.name}")

    def environment(self, place: str) -> dict[str, str]:
        """What programs in a place should have in their environment: on a node, where its Open vSwitch is."""
        on_node = any(node.name == place for node in self.plan.nodes)
        return switch.environment(self.switch_directory(place)) if on_node else {}

    def switch_directory(self, node: str) -> Path:
        return self.state / "nodes" / node

    # Running

    def run(
        self, place: str, *argv: str, timeout: float = 30, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end; raises LabError for a bad status (with `check`) and after `timeout` seconds."""
        words = netns.command(self.namespace(place), argv)
        return netns.run(words, timeout=timeout, check=check, stdin=stdin, environment=self.environment(place))

    def popen(self, place: str, *argv: str) -> "subprocess.Popen[str]":
        """Starts a program with pipes for all three streams. It is ended with the lab, if not before."""
        process = subprocess.Popen(
            netns.command(self.namespace(place), argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment(place)},
        )
        (self.state / "processes" / str(process.pid)).write_text(netns.started(process.pid))
        self._started.append(process)
        return process

    def stop(self, process: "subprocess.Popen[str]") -> str:
        """Ends a program that `popen` or `echo` started; returns what it still had to say on standard output."""
        process.terminate()
        return process.communicate(timeout=10)[0]

    def echo(
        self, place: str, name: str = "", tcp: Sequence[int] = (), udp: Sequence[int] = ()
    ) -> "subprocess.Popen[str]":
        """Starts an answering server and waits until its ports are open; `name`, if not given, is the place's."""
        process = self.popen(place, *traffic.echo_command(name or place.rpartition("/")[2], tcp, udp))
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LabError(f"echo server in {place}: {process.communicate()[1].strip()}")
        return process

    def start_probes(self, place: str, probes: Iterable[traffic.Probe]) -> traffic.Probing:
        """Asks in the background, for traffic while something else happens."""
        return traffic.Probing(self.popen(place, *traffic.probe_command()), probes)

    def probe(self, place: str, probes: Iterable[traffic.Probe], timeout: float = 60) -> list[traffic.Answer]:
        """Asks all at once from one process; one answer per probe, in order."""
        return self.start_probes(place, probes).answers(timeout)

    def capture(self, place: str, interface: str, expression: str = "") -> capture.Capture:
        """Captures the frames of an interface from now on; `expression` is a pcap filter."""
        netns_name = self.namespace(place)
        number = len(list((self.state / "captures").iterdir()))
        path = self.state / "captures" / f"{number:03}-{netns_name}-{interface}.pcap"
        path.touch()
        return capture.Capture(self.popen(place, *capture.tcpdump(interface, path, expression)), path)

    # Switches

    def ofctl(self, node: str, *argv: str, stdin: str | None = None, timeout: float = 30) -> str:
        return self._tool(node, "ovs-ofctl", "--protocols=OpenFlow15", *argv, stdin=stdin, timeout=timeout)

    def vsctl(self, node: str, *argv: str, timeout: float = 30) -> str:
        return self._tool(node, "ovs-vsctl", f"--timeout={timeout:.0f}", *argv, timeout=timeout + 1)

    def appctl(self, node: str, *argv: str, timeout: float = 30) -> str:
        return self._tool(node, "ovs-appctl", *argv, timeout=timeout)

    def port_counters(self, node: str) -> dict[str, switch.Counters]:
        """Port name → packets received and sent, at this moment."""
        return switch.counters(self.ofctl(node, "--names", "dump-ports", switch.BRIDGE))

    def port_number(self, node: str, port: str) -> int:
        return int(self.vsctl(node, "get", "interface", port, "ofport"))

    def controller_connected(self, node: str) -> bool:
        return self.vsctl(node, "get", "controller", switch.BRIDGE, "is_connected").strip() == "true"

    def flush_flows(self, node: str) -> None:
        """Flows and groups; what a controller has to notice by itself."""
        self.ofctl(node, "del-flows", switch.BRIDGE)
        self.ofctl(node, "del-groups", switch.BRIDGE)

    def flush_conntrack(self, node: str) -> None:
        self.appctl(node, "dpctl/flush-conntrack")

    def _tool(self, node: str, *argv: str, stdin: str | None = None, timeout: float) -> str:
        directory = self.switch_directory(self.node(node).name)
        return netns.run(argv, stdin=stdin, timeout=timeout, environment=switch.environment(directory)).stdout

    # Changes and faults

    def stop_vswitchd(self, node: str) -> None:
        switch.stop(self.switch_directory(self.node(node).name), "ovs-vswitchd")

    def kill_vswitchd(self, node: str) -> None:
        """Without asking: as after a crash."""
        pid = switch.pid(self.switch_directory(self.node(node).name), "ovs-vswitchd")
        netns.end([] if pid is None else [pid], patience=-1)

    def start_vswitchd(self, node: str) -> None:
        """With no flows. br0 and gw0 are new devices, which get their addresses and routes again."""
        self.run(node, *switch.daemon(self.switch_directory(node)))
        netns.run_scripts([self._script(node, script.host(self.node(node)), "host")])

    def restart_vswitchd(self, node: str) -> None:
        self.stop_vswitchd(node)
        self.start_vswitchd(node)

    def renumber_port(self, node: str, port: str, number: int) -> int:
        """Gives a port another OpenFlow number: it goes and comes back. Returns the number that it has now."""
        for transaction in switch.renumber(self.node(node), port, number):
            self.run(node, *transaction)
        if port == switch.GATEWAY:
            netns.run_scripts([self._script(node, script.host(self.node(node)), "host")])
        return self.port_number(node, port)

    def set_uplink_mac(self, node: str, mac: str) -> None:
        """As after a new network card: the uplink, LOCAL and the node's link-local address. Annotations stay."""
        old = self.node(node)
        self.run(node, "ip", "link", "set", old.uplink, "address", mac)
        self.run(node, *switch.set_mac(mac))
        device = ("dev", switch.BRIDGE)
        self.run(node, "ip", "address", "delete", f"{link_local(parse_mac(old.mac))}/64", *device, check=False)
        self.run(node, "ip", "address", "replace", f"{link_local(parse_mac(mac))}/64", *device, "nodad")
        new = msgspec.structs.replace(old, mac=mac)
        self._keep(nodes=tuple(new if other == old else other for other in self.plan.nodes))

    def set_link(self, node: str, up: bool, management: bool = False) -> None:
        """Cuts (or mends) a node's cable at the far end: that of its uplink, or the one to the controller."""
        device = f"{'m' if management else 'n'}{self.node(node).index}"
        self.run("fabric", "ip", "link", "set", device, "up" if up else "down")

    def add_pods(self, pods: Sequence[Pod]) -> None:
        """Makes namespaces, cables and ports of pods that the plan does not have; raises LabError."""
        twice = {pod.key for pod in pods} & {pod.key for pod in self.plan.pods}
        if twice:
            raise LabError(f"already in lab {self.name}: {', '.join(sorted(twice))}")
        self._keep(pods=(*self.plan.pods, *pods))  # first, so that what is half made is found by `down` and `sync`
        netns.ip_batch(script.pod_links(self.plan, pods))
        scripts = [self._script(pod.key, script.station(pod.station)) for pod in pods]
        for node, theirs in _by_node(pods).items():
            scripts.append(self._script(node, script.pod_ports(theirs), "ports"))
        netns.run_scripts(scripts)
        for node, theirs in _by_node(pods).items():
            self.run(node, *switch.add_ports(theirs))

    def remove_pods(self, keys: Iterable[str]) -> None:
        """Ends what runs in these pods and removes them; raises LabError for one that is not there."""
        pods = [self.pod(key) for key in keys]
        names = [netns.of_pod(self.name, pod.namespace, pod.name) for pod in pods]
        netns.end(netns.processes(names), patience=0.2)
        for node, theirs in _by_node(pods).items():
            self.run(node, *switch.remove_ports(theirs))
            netns.run_scripts([self._script(node, script.forget_ports(theirs), "ports")])
        netns.delete(names)
        self._keep(pods=tuple(pod for pod in self.plan.pods if pod not in pods))

    def sync(self, directory: Path | str) -> Synced:
        """Makes and removes pods so that they are those of the manifests now.

        Raises ManifestError (nothing is changed then), also when the nodes are not those that the lab was built of.
        """
        new = plan(self.name, manifests.read(Path(directory)), self.plan.controller)
        if [_identity(node) for node in new.nodes] != [_identity(node) for node in self.plan.nodes]:
            raise manifests.ManifestError(f"the Nodes of {directory} are not those that lab {self.name} was built of")
        gone = [pod.key for pod in self.plan.pods if pod not in new.pods]
        fresh = [pod for pod in new.pods if pod not in self.plan.pods]
        if gone:
            self.remove_pods(gone)
        if fresh:
            self.add_pods(fresh)
        if new.cluster_cidrs != self.plan.cluster_cidrs:
            self._keep(cluster_cidrs=new.cluster_cidrs)
            netns.run_scripts(
                self._script(node.name, script.masquerade(self.plan, node), "masquerade") for node in self.plan.nodes
            )
        return Synced(tuple(pod.key for pod in fresh), tuple(gone), new.problems)

    # State

    def _keep(self, **changes: object) -> None:
        self.plan = msgspec.structs.replace(self.plan, **changes)
        draft = self.state / "plan.json.new"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(self.plan)))
        draft.replace(self.state / "plan.json")

    def _script(self, place: str, text: str, part: str = "") -> tuple[str, Path]:
        """Writes a script where a person can read what was done to a place."""
        name = self.namespace(place)
        path = self.state / "scripts" / f"{name}{part and '.' + part}.sh"
        path.write_text(text)
        return name, path


def take_down(name: str, state: Path) -> None:
    """Removes processes, namespaces and state of the lab `name`, however much of it there is."""
    netns.check_name(name)
    names = netns.existing(name)
    for _ in range(3):  # a process may start another meanwhile
        found = netns.processes(names)
        if not found:
            break
        netns.end(found, patience=1)
    # Processes whose namespace somebody has deleted by hand.
    for directory in state.glob("nodes/*"):
        switch.stop(directory, "ovs-vswitchd", "ovsdb-server")
    noted = [path for path in state.glob("processes/*") if path.read_text() == netns.started(int(path.name)) != ""]
    netns.end(int(path.name) for path in noted)
    netns.delete(names)
    left = netns.existing(name)
    if left:
        raise LabError(f"namespaces that cannot be deleted: {', '.join(left)}")
    shutil.rmtree(state, ignore_errors=True)
    with contextlib.suppress(OSError):  # other labs are there, or nothing is
        state.parent.rmdir()
        state.parent.parent.rmdir()


def _by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(pod.node, []).append(pod)
    return groups


def _identity(node: Node) -> Node:
    """A node without what a test may have changed about it."""
    return msgspec.structs.replace(node, mac="")
