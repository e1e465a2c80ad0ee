"""What may happen to a lab that is up: pods come and go, and everything fails that can fail."""

from collections.abc import Iterable, Sequence

import msgspec

from lab import netns, script, switch
from lab.netns import LabError
from lab.places import Places
from lab.plan import ROUTERS, Pod, router_mac
from node import bootstrap
from pipelines.addresses import link_local, parse_mac


class Changes(Places):
    """Changes and faults. All but those of processes outlive this object: they are in the plan that is kept."""

    def stop_vswitchd(self, node: str) -> None:
        switch.stop(self.switch_directory(self.node(node).name), "ovs-vswitchd")

    def kill_vswitchd(self, node: str) -> None:
        """Without asking: as after a crash."""
        pid = switch.pid(self.switch_directory(self.node(node).name), "ovs-vswitchd")
        netns.end([] if pid is None else [pid], patience=-1)

    def start_vswitchd(self, node: str) -> None:
        """With the first flows only. br0 and gw0 are new devices, which get their addresses and routes again."""
        self.run(node, *switch.daemon(self.switch_directory(node)))
        self._prepare_host(node)

    def restart_vswitchd(self, node: str) -> None:
        self.stop_vswitchd(node)
        self.start_vswitchd(node)

    def renumber_port(self, node: str, port: str, number: int) -> int:
        """Gives a port another OpenFlow number: it goes and comes back. Returns the number that it has now."""
        for transaction in switch.renumber(self.node(node), port, number, self.plan.options.tunnel):
            self.run(node, *transaction)
        if port == switch.GATEWAY:
            self._prepare_host(node)
        if port == self.node(node).uplink:
            self._write_flows(node, bootstrap.text(port))
        return self.port_number(node, port)

    def flush_flows(self, node: str) -> None:
        """Flows and groups; what a controller has to notice by itself. The node's first flows are there again."""
        self._write_flows(node, "delete\n" + bootstrap.text(self.node(node).uplink))
        self.ofctl(node, "del-groups", switch.BRIDGE)

    def _write_flows(self, node: str, text: str) -> None:
        self.run(node, *bootstrap.command(switch.BRIDGE, self.switch_directory(node)), stdin=text)

    def _prepare_host(self, node: str) -> None:
        text = script.host(self.node(node), self.switch_directory(node))
        netns.run_scripts([self._script(node, text, "host")])

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
        self._prepare_host(node)  # Open vSwitch takes br0 down for it, and IPv6 addresses and all routes go

    def set_link(self, node: str, up: bool, management: bool = False) -> None:
        """Cuts (or mends) a node's cable at the far end: that of its uplink, or the one to the controller."""
        if management and self.plan.in_band is not None:
            raise LabError(f"in lab {self.name} the nodes have no cable to the controller but their uplinks")
        self._set_cable(f"{'m' if management else 'n'}{self.node(node).index}", up)

    def _set_cable(self, port: str, up: bool) -> None:
        self.run("fabric", "ip", "link", "set", port, "up" if up else "down")

    # Routers

    def router_macs(self, segment: int = 0) -> tuple[str, str]:
        """Those of the active router and of the one that stands by, on a segment."""
        macs = dict(zip(ROUTERS, self.plan.segments[segment].router_macs, strict=True))
        return macs[self.plan.active], macs[self.plan.standby]

    def set_router_link(self, up: bool, segment: int | None = None) -> None:
        """Cuts (or mends) the active router's cable to a segment; None: to all of them, but not to the far one."""
        for one in self.plan.segments if segment is None else [self.plan.segments[segment]]:
            self._set_cable(script.router_port(self.plan.active, one.index), up)

    def fail_over(self, announce: bool = True, mac: str | None = None) -> str:
        """All first hops move to the router that stands by, within some milliseconds; returns its name.

        It says so on every segment for every address, or, without `announce`, on the far one only: a node that does
        not ask goes on sending to the old one, which drops. `mac`: what the new one has on all segments this time,
        instead of its own.
        """
        old, new = self.plan.active, self.plan.standby
        number = ROUTERS.index(new)
        after = msgspec.structs.replace(
            self.plan,
            active=new,
            segments=tuple(
                one.with_router_mac(number, mac or router_mac(one.index, number)) for one in self.plan.segments
            ),
        )
        speaker = self.start_frames(new)
        self._ip(old, script.stand_by(self.plan), force=True)
        self._ip(new, [*script.router_macs(self.plan, after), *script.take_over(after)])
        speaker.send(
            (device, frame) for device, frame in script.announcements(after) if announce or device == script.FAR
        )
        self._keep(active=new, segments=after.segments)
        return new

    def _ip(self, place: str, lines: Iterable[str], force: bool = False) -> None:
        words = ["ip", *(["-force"] if force else []), "-batch", "-"]
        self.run(place, *words, stdin="".join(f"{line}\n" for line in lines), check=not force)

    # Pods

    def set_pod_mtu(self, pod: str, mtu: int) -> None:
        """Until the pod is made anew; above 1500 also at the switch's end of its cable."""
        there, at_switch = script.mtu(self.pod(pod), mtu)
        self._ip(self.pod(pod).node, at_switch)
        self._ip(pod, there)

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


def _by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(pod.node, []).append(pod)
    return groups
