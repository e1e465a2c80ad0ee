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
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

import msgspec

from lab import manifests, netns, script, switch
from lab.changes import Changes
from lab.netns import LabError
from lab.plan import ROUTERS, STANDARD_MTU, Node, Options, Plan, plan

STATE = Path("/run/signalbox/lab")


class Synced(NamedTuple):
    """Keys ("NAMESPACE/NAME") of the pods that `sync` has made and removed; a changed pod is in both."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[str, ...]


class Lab(Changes):
    """A lab by its name. With `directory` it can be built; without, it is one that `attach` has found."""

    def __init__(
        self,
        name: str,
        directory: Path | str,
        controller: str = "",
        state: Path = STATE,
        *,
        tunnel: Literal["geneve", "vxlan"] | None = "geneve",
        in_band: bool = False,
        pod_mtu: int | None = None,
        unmasqueraded: Sequence[str] = (),
    ) -> None:
        """`controller` as ovs-vsctl takes it, if it is not in the lab. Raises LabError, ManifestError.

        `tunnel`: what tun0 is, None for no such port. `in_band`: the controller is on the first segment, and the
        nodes reach it through their uplinks. `unmasqueraded`: prefixes outside that see the pods' own addresses.
        """
        options = Options(tunnel or "", in_band, pod_mtu or STANDARD_MTU, tuple(unmasqueraded))
        facts = manifests.read(Path(directory))
        super().__init__(netns.check_name(name), state / name, plan(name, facts, controller, options))

    @classmethod
    def attach(cls, name: str, state: Path = STATE) -> Self:
        """A lab that is up already; raises LabError when there is none."""
        path = state / netns.check_name(name)
        try:
            kept = msgspec.json.decode((path / "plan.json").read_bytes(), type=Plan)
        except FileNotFoundError as error:
            known = ", ".join(labs(state)) or "none"
            raise LabError(f"no lab {name} is up; there are: {known}") from error
        lab = cls.__new__(cls)
        Changes.__init__(lab, name, path, kept)
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
            *(self._script(place, script.router(self.plan, place)) for place in ROUTERS),
            self._script("outside", script.station(self.plan.outside)),
            self._script("remote", script.station(self.plan.remote)),
            self._script("controller", script.controller(self.plan)),
            *(self._script(pod.key, script.station(pod.station)) for pod in self.plan.pods),
        ]
        netns.run_scripts(scripts)

    def sync(self, directory: Path | str) -> Synced:
        """Makes and removes pods so that they are those of the manifests now.

        Raises ManifestError (nothing is changed then), also when the nodes are not those that the lab was built of.
        """
        new = plan(self.name, manifests.read(Path(directory)), self.plan.controller, self.plan.options)
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


def labs(state: Path = STATE) -> list[str]:
    """The names of those that are up."""
    return sorted(plan.parent.name for plan in state.glob("*/plan.json"))


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


def _identity(node: Node) -> Node:
    """A node without what a test may have changed about it."""
    return msgspec.structs.replace(node, mac="")
