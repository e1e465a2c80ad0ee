"""The places of a lab that is up: finding them, running things in them, asking their switches.

A place is the name of a node, "NAMESPACE/NAME" of a pod (or NAME alone where one pod has it and no node), or one of
"router", "router2", "outside", "remote", "controller" and "fabric".
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from lab import capture, netns, switch, traffic
from lab.netns import LabError
from lab.plan import Node, Plan, Pod


class Places:
    """What `attach` knows of a lab: its name, its plan, and where its files are."""

    def __init__(self, name: str, state: Path, plan: Plan) -> None:
        """`state`: the lab's own directory."""
        self.name = name
        self.state = state
        self.plan = plan
        self._started: list[subprocess.Popen[str]] = []

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

    def send_frames(self, place: str, device: str, frames: Iterable[bytes]) -> None:
        """Sends frames as they are, which no kernel has to agree with."""
        self.start_frames(place).send((device, frame) for frame in frames)

    def start_frames(self, place: str) -> traffic.FramesOut:
        """Somebody who is ready to send frames at once."""
        return traffic.FramesOut(self.popen(place, *traffic.frames_command()))

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

    def flush_conntrack(self, node: str) -> None:
        self.appctl(node, "dpctl/flush-conntrack")

    def _tool(self, node: str, *argv: str, stdin: str | None = None, timeout: float) -> str:
        directory = self.switch_directory(self.node(node).name)
        return netns.run(argv, stdin=stdin, timeout=timeout, environment=switch.environment(directory)).stdout

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
