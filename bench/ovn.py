"""OVN beside us: its own databases, ovn-northd and ovn-controller on the same Open vSwitch.

Where only flows count: one logical switch with one port of this machine, and every service as a load balancer of that
switch. No router: with one, each load balancer would take more flows. `bench.service_lab` has another topology.
"""

import re
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Protocol

from bench.cluster import Cluster
from bench.kinds import AFFINITY_SECONDS, ServiceKind
from bench.openvswitch import INTEGRATION
from lab import netns, switch
from pipelines.addresses import Ip

SCHEMAS = "/usr/share/ovn"
DONE = re.compile(r"ovn-controller\(s\) completion:\s+(\d+)ms")
SWITCH = "pods"
AT_ONCE = 5000  # commands


def installed() -> bool:
    return all(which(program) for program in ("ovn-northd", "ovn-controller", "ovn-nbctl"))


class Switch(Protocol):
    """An Open vSwitch whose files are under one directory."""

    @property
    def directory(self) -> Path: ...
    @property
    def environment(self) -> dict[str, str]: ...
    def vsctl(self, words: str) -> None: ...


class Ovn:
    """Started at once; it ends with the enclosure. `topology`: what it is told first."""

    def __init__(self, ovs: Switch, topology: "Callable[[Ovn], None] | None" = None) -> None:
        self.ovs = ovs
        at = str(ovs.directory)
        self._environment = ovs.environment | dict.fromkeys(("OVN_RUNDIR", "OVN_DBDIR", "OVN_LOGDIR"), at)
        for database in ("nb", "sb"):
            self._run("ovsdb-tool", "create", f"{at}/{database}.db", f"{SCHEMAS}/ovn-{database}.ovsschema")
            words = [f"--remote=punix:{at}/{database}.sock", f"--unixctl={at}/{database}.ctl"]
            pidfile = f"--pidfile={at}/{database}.pid"
            self._run("ovsdb-server", f"{at}/{database}.db", *words, pidfile, "--detach", *_log(f"{at}/{database}.log"))
        self._nb, self._sb = f"unix:{at}/nb.sock", f"unix:{at}/sb.sock"
        self._run("ovn-nbctl", f"--db={self._nb}", "init")
        self._run("ovn-sbctl", f"--db={self._sb}", "init")
        databases = (f"--ovnnb-db={self._nb}", f"--ovnsb-db={self._sb}")
        self._run("ovn-northd", *databases, "--pidfile", "--detach", *_log(f"{at}/northd.log"))
        ids = f"system-id=bench ovn-remote={self._sb} ovn-encap-type=geneve ovn-encap-ip=127.0.0.1"
        ovs.vsctl("set open_vswitch . " + " ".join(f"external-ids:{each}" for each in ids.split()))
        ovs.vsctl(f"add-br {INTEGRATION} -- set bridge {INTEGRATION} datapath_type=netdev fail_mode=secure")
        self._start_controller()
        (topology or one_switch)(self)
        self.wait()

    def _start_controller(self) -> None:
        database = f"unix:{self.ovs.directory}/db.sock"
        log = _log(f"{self.ovs.directory}/ovn-controller.log")
        self._run("ovn-controller", database, "--pidfile", "--detach", *log)

    def _run(self, *argv: str) -> str:
        return netns.run(argv, timeout=120, environment=self._environment).stdout

    def nbctl(self, words: list[str]) -> str:
        return self._run("ovn-nbctl", f"--db={self._nb}", *words)

    def wait(self) -> None:
        """Until every hypervisor has what the northbound database says."""
        self.nbctl(["--timeout=60", "--wait=hv", "sync"])

    def apply(self, commands: list[list[str]]) -> float:
        """Seconds from the commit to the northbound database until the flows are in the switch (OVN's own count).

        More than a command line holds becomes several, one after the other.
        """
        return sum(self._apply(commands[at : at + AT_ONCE]) for at in range(0, len(commands), AT_ONCE))

    def _apply(self, commands: list[list[str]]) -> float:
        words = [word for command in commands for word in ("--", *command)]
        printed = self.nbctl(["--timeout=60", "--wait=hv", "--print-wait-time", *words])
        found = DONE.search(printed)
        if found is None:
            raise netns.LabError(f"ovn-nbctl did not say how long it took: {printed}")
        return int(found[1]) / 1000

    def restart_controller(self) -> None:
        """ovn-controller forgets, reads the switch's flows away and writes them again."""
        process = switch.pid(self.ovs.directory, "ovn-controller")
        if process is not None:
            netns.end([process])
        self._start_controller()
        self.wait()


def one_switch(ovn: Ovn) -> None:
    ovn.ovs.vsctl(f"add-port {INTEGRATION} pod -- set interface pod type=internal external-ids:iface-id=pod")
    ovn.nbctl(f"ls-add {SWITCH} -- lsp-add {SWITCH} pod".split())
    ovn.nbctl(["lsp-set-addresses", "pod", "0a:58:0a:80:00:02 10.128.0.2"])
    ovn.nbctl(["--timeout=30", "wait-until", "logical_switch_port", "pod", "up=true"])


def balancers(cluster: Cluster) -> list[list[str]]:
    """Commands that make every service."""
    return [
        command
        for service in range(cluster.services)
        for command in (
            *balancer(cluster, service, cluster.endpoint_addresses(service)),
            ["ls-lb-add", SWITCH, f"service-{service}"],
        )
    ]


def balancer(cluster: Cluster, service: int, endpoints: list[Ip]) -> list[list[str]]:
    """The commands that make a service, or change its endpoints.

    Who asks where there is no backend on this node is refused; OVN has no flow that only drops.
    """
    name = f"service-{service}"
    found = [
        ["--may-exist", *(() if vip.backends else ("--reject",)), "lb-add", name, vip.at, ",".join(vip.backends), "tcp"]
        for vip in cluster.vips(service, endpoints)
    ]
    if cluster.kinds.of(service) is ServiceKind.AFFINITY:
        found.append(["set", "load_balancer", name, f"options:affinity_timeout={AFFINITY_SECONDS}"])
    return found


def no_balancers(cluster: Cluster) -> list[list[str]]:
    return [["lb-del", f"service-{service}"] for service in range(cluster.services)]


def _log(file: str) -> tuple[str, ...]:
    return f"--log-file={file}", "-vconsole:off", "-vsyslog:off", "-vfile:info"
