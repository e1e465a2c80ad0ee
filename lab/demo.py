"""`make demo`: a cluster on this machine and a tour through it, every step of which is observed, not assumed.

Exit status 0 only when each step was seen. KEEP=1 leaves the cluster running and says what to try.
"""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from lab.cluster import Lab
from lab.netns import LabError
from lab.product import Product
from lab.traffic import Probe

EXAMPLE = Path(__file__).parent.parent / "examples" / "demo"
CONNECTIONS = 60

console = Console(highlight=False, soft_wrap=True)


class NotSeen(Exception):
    """A step did not show what it should; the text says what was seen instead."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotSeen(otherwise)


class Tour:
    def __init__(self, lab: Lab, product: Product, manifests: Path) -> None:
        self.lab = lab
        self.product = product
        self.manifests = manifests

    # --- steps ----------------------------------------------------------------------------------------------

    def nodes(self) -> None:
        """Nodes, and where the MAC of each uplink came from"""
        table = _table("node", "addresses", "podCIDRs", "MAC of the uplink", "known from")
        for row in self.product.get("/v1/nodes"):
            mac = row["mac"] or {}
            expect(bool(mac), f"no MAC is known of {row['name']}")
            expect(row["state"] == "READY", f"the switch of {row['name']} is {row['state']}")
            table.add_row(
                row["name"],
                "\n".join(address.partition("/")[0] for address in row["addresses"]),
                "\n".join(row["pod_cidrs"]),
                mac["address"],
                mac["source"],
            )
        console.print(table)

    def direct(self) -> None:
        """Pod a on n1 to pod c on n2: straight through the uplink"""
        for address in ("10.10.2.10", "fd00:10:2::10"):
            seen = self._ping_watched(address)
            expect(seen["gw0"] == 0, f"{seen['gw0']} packets went through gw0")
            expect(seen["macs"] == {("aa:00:00:00:00:01", "aa:00:00:00:00:02")}, f"MACs on the wire: {seen['macs']}")
            expect(seen["wire_ttl"] == {63}, f"hop limits on the wire: {seen['wire_ttl']}")
            self._say_path(address, seen)

    def unknown(self) -> None:
        """The same while nobody knows n2's MAC: by gw0 and the host's routing; then straight again"""
        self._edit("nodes.yaml", lambda objects: _node(objects, "n2")["metadata"]["annotations"].pop(MAC_KEY))
        self.product.wait(lambda: self._mac("n2") is None, "the MAC of n2 to be unknown")
        self._await_switches()
        seen = self._ping_watched("10.10.2.10")
        expect(seen["gw0"] > 0, "nothing went through gw0")
        self._say_path("10.10.2.10", seen)
        annotate = {MAC_KEY: "aa:00:00:00:00:02"}
        self._edit("nodes.yaml", lambda objects: _node(objects, "n2")["metadata"]["annotations"].update(annotate))
        self.product.wait(lambda: self._mac("n2") is not None, "the MAC of n2 to be known again")
        self._await_switches()
        self.direct()

    def cluster_ip(self) -> None:
        """ClusterIP web, from pod a and from a process on node n1, over its three endpoints"""
        table = _table("client", "service", *BACKENDS)
        for client in ("a", "n1"):
            for protocol, host, port in SERVICES:
                counts = self._spread(client, protocol, host, port)
                expect(set(counts) == set(BACKENDS), f"{client} → {host}:{port} was answered by {dict(counts)}")
                table.add_row(client, f"{host} {port}/{protocol}", *(str(counts[name]) for name in BACKENDS))
        console.print(table)

    def live(self) -> None:
        """An endpoint is removed and added by editing the YAML"""
        kept: dict[str, Any] = {}

        def remove(objects: list[Any]) -> None:
            for slice_ in _slices(objects):
                kept[slice_["metadata"]["name"]] = slice_["endpoints"]
                slice_["endpoints"] = [one for one in slice_["endpoints"] if one["targetRef"]["name"] != "web-3"]

        def restore(objects: list[Any]) -> None:
            for slice_ in _slices(objects):
                slice_["endpoints"] = kept[slice_["metadata"]["name"]]

        for change, expected, words in ((remove, BACKENDS[:2], "without web-3"), (restore, BACKENDS, "with web-3")):
            edited = time.monotonic()
            self._edit("web.yaml", change)
            self.product.wait(partial(self._answered_by, set(expected)), words)
            console.print(f"  {words}: seen by clients {time.monotonic() - edited:.1f} s after the edit")

    def rest(self) -> None:
        """Everything can be asked over REST"""
        services = self.product.get("/v1/services")
        expect(any(row["name"] == "default/web" for row in services), "default/web is not among /v1/services")
        flows = self.product.get("/v1/flows?node=n1&table=endpoint_dnat")
        expect(bool(flows), "/v1/flows shows no flow in endpoint_dnat")
        last = flows[-1]
        console.print(f"  GET /v1/flows?node=n1&table=endpoint_dnat: {len(flows)} flows, one of which is there for")
        console.print(f"  {last['feature']} {last['object']}:")
        console.print(f"    {last['flow']}", style="dim")
        stall = _metric(self.product.text("/metrics"), "signalbox_hub_longest_stall_seconds")
        sent = sum(row["flow_mods_sent"] for row in self.product.get("/v1/switches"))
        console.print(f"  {sent} flow mods sent in all; the longest stall of the controller was {stall * 1e3:.0f} ms")
        expect(self.product.get("/v1/problems") == [], "there are problems: see /v1/problems")

    # --- observations ---------------------------------------------------------------------------------------

    def _await_switches(self) -> None:
        """Until every switch has the newest revision, and has looked again at the decisions that it had cached."""

        def carried() -> bool:
            status = self.product.get("/v1/status")
            revisions = {row["revision"] for row in self.product.get("/v1/switches")}
            return not status["changes_pending"] and revisions == {status["revision"]}

        self.product.wait(carried, "every switch to have the newest revision")
        for node in self.lab.plan.nodes:
            for _ in range(2):  # the first look may have begun before the flows changed
                self.lab.appctl(node.name, "revalidator/wait")

    def _ping_watched(self, address: str) -> dict[str, Any]:
        """Three pings from a, with what n1's gw0 counted and what the wire between the nodes showed."""
        self.lab.run("a", "ping", "-c1", "-W5", address, check=False)  # neighbours of the first hops
        before = self.lab.port_counters("n1")["gw0"]
        with self.lab.capture("n1", "eth1", f"ether src aa:00:00:00:00:01 and host {address}") as capture:
            output = self.lab.run("a", "ping", "-c3", "-i0.05", "-W5", address).stdout
        after = self.lab.port_counters("n1")["gw0"]
        expect("3 received" in output, f"not every ping to {address} was answered:\n{output}")
        echoes = [frame for frame in capture.frames() if _is_echo_request(frame)]
        expect(len(echoes) >= 3, f"only {len(echoes)} pings to {address} were on n1's uplink")
        return {
            "gw0": after.sent - before.sent,
            "macs": {(frame.src, frame.dst) for frame in echoes},
            "wire_ttl": {_hop_limit(frame) for frame in echoes},
            "reply_ttl": {int(word[4:]) for word in output.split() if word.startswith("ttl=")},
        }

    def _say_path(self, address: str, seen: dict[str, Any]) -> None:
        macs = ", ".join(f"{src} → {dst}" for src, dst in sorted(seen["macs"]))
        ttl = "/".join(map(str, sorted(seen["wire_ttl"])))
        console.print(f"  a → {address}: on the wire {macs}, hop limit {ttl}; {seen['gw0']} packets by gw0")

    def _spread(self, client: str, protocol: Any, host: str, port: int) -> Counter[str]:
        answers = self.lab.probe(client, [Probe(protocol, host, port, timeout=3, tries=2)] * CONNECTIONS)
        errors = Counter(answer.error for answer in answers if not answer.ok)
        expect(not errors, f"{client} → {host}:{port}/{protocol}: {dict(errors)} of {CONNECTIONS}")
        return Counter(answer.names[0] for answer in answers)

    def _answered_by(self, names: set[str]) -> bool:
        return set(self._spread("a", "tcp", "10.96.0.80", 80)) == names

    def _mac(self, node: str) -> Any:
        return next(row["mac"] for row in self.product.get("/v1/nodes") if row["name"] == node)

    def _edit(self, file: str, change: Callable[[list[Any]], object]) -> None:
        path = self.manifests / file
        objects = list(yaml.safe_load_all(path.read_text()))
        change(objects)
        draft = path.with_suffix(".draft")
        draft.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        draft.replace(path)


MAC_KEY = "node.antrea.io/mac-address"
BACKENDS = ("web-1", "web-2", "web-3")
SERVICES = (
    ("tcp", "10.96.0.80", 80),
    ("udp", "10.96.0.80", 53),
    ("tcp", "fd00:96::50", 80),
    ("udp", "fd00:96::50", 53),
)


def _table(*headings: str) -> Table:
    """Never cut: half an address says nothing."""
    table = Table(box=box.SIMPLE)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _node(objects: list[Any], name: str) -> Any:
    return next(one for one in objects if one["kind"] == "Node" and one["metadata"]["name"] == name)


def _slices(objects: list[Any]) -> list[Any]:
    return [one for one in objects if one["kind"] == "EndpointSlice"]


def _is_echo_request(frame: Any) -> bool:
    return bool((frame.haslayer("ICMP") and frame["ICMP"].type == 8) or frame.haslayer("ICMPv6EchoRequest"))


def _hop_limit(frame: Any) -> int:
    return int(frame["IP"].ttl if frame.haslayer("IP") else frame["IPv6"].hlim)


def _metric(text: str, name: str) -> float:
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


def tour(lab: Lab, product: Product, manifests: Path) -> None:
    """Raises NotSeen or LabError at the first step that does not show what it should."""
    for backend in BACKENDS:
        lab.echo(backend, tcp=[8080], udp=[5353])
    with console.status("waiting for the controller and its three switches"):
        product.wait_ready()
    walk = Tour(lab, product, manifests)
    steps = (walk.nodes, walk.direct, walk.unknown, walk.cluster_ip, walk.live, walk.rest)
    for number, step in enumerate(steps, 1):
        console.print(f"\n[bold]{number}. {step.__doc__}[/bold]")
        step()
        console.print("  [green]seen[/green]")


def main() -> int:
    name, keep = os.environ.get("NAME", "demo"), os.environ.get("KEEP") == "1"
    began = time.monotonic()
    lab = Lab(name, EXAMPLE)
    left_running = False
    try:
        with console.status(f"building lab {name}: three nodes with an Open vSwitch each, a router, pods"):
            lab.up(replace=True)
        manifests = lab.state / "manifests"
        shutil.copytree(EXAMPLE, manifests)
        # `annotation` alone, so that taking the annotation away makes a MAC unknown; by default a switch tells its own.
        product = Product(lab, manifests, {"mac_sources": ["annotation"]}).start()
        tour(lab, product, manifests)
        console.print(f"\n[green]every step was seen[/green], in {time.monotonic() - began:.0f} s")
        if keep:
            left_running = True
            _what_to_try(name, manifests)
    except (NotSeen, LabError) as error:
        console.print(f"\n[red]not seen:[/red] {error}")
        return 1
    finally:
        if not left_running:
            with console.status("taking the lab down"):
                lab.down()
    return 0


def _what_to_try(name: str, manifests: Path) -> None:
    lab, asked = "signalbox lab", f"signalbox lab exec --name {name} controller -- signalbox"
    console.print(f"\nThe lab stays. The controller follows {manifests}: edit it and look.")
    console.print(f"Its log is {manifests.parent / 'controller.log'}. Things to try:\n")
    for words in (
        f"{lab} exec --name {name} a -- ping -c3 10.10.2.10",
        f"{lab} exec --name {name} a -- curl -s http://10.96.0.80/",
        f"{asked} status",
        f"{asked} nodes",
        f"{asked} services",
        f"{asked} flows --node n1 --table route",
        f"{asked} diff",
        f"{lab} exec --name {name} n1 -- ovs-ofctl -OOpenFlow15 dump-flows br0 table=42",
        f"{lab} status --name {name}",
        f"{lab} sync --name {name} {manifests}  # after a Pod was added or removed",
        f"{lab} down --name {name}",
    ):
        console.print(f"  .venv/bin/{words}")


if __name__ == "__main__":
    sys.exit(main())
