"""What every step of the tour stands on: the lab, the product, the manifests, and ways to look at packets."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from lab.capture import Capture
from lab.cluster import Lab
from lab.product import Product
from lab.traffic import Answer, Probe

CONNECTIONS = 60

# On a terminal as wide as that is; elsewhere wide enough for every table.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


class NotSeen(Exception):
    """A step did not show what it should; the text says what was seen instead."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotSeen(otherwise)


class Echoes(NamedTuple):
    """Pings that were watched: how many n1's gw0 carried, MACs and hop limits on the wire of n1's uplink."""

    by_gateway: int
    macs: set[tuple[str, str]]
    hop_limits: set[int]


class Stage:
    def __init__(self, lab: Lab, product: Product, manifests: Path) -> None:
        self.lab = lab
        self.product = product
        self.manifests = manifests

    def settle(self) -> None:
        """Until every switch has the newest revision, and has looked again at the decisions that it had cached."""
        self.product.wait(self._carried, "every switch to have the newest revision")
        for node in self.lab.plan.nodes:
            for _ in range(2):  # the first look may have begun before the flows changed
                self.lab.appctl(node.name, "revalidator/wait")

    def _carried(self) -> bool:
        status = self.product.get("/v1/status")
        revisions = {row["revision"] for row in self.product.get("/v1/switches")}
        return not status["changes_pending"] and revisions == {status["revision"]}

    def ping(self, address: str, naked: bool = True) -> Echoes:
        """Three pings from pod a. `naked` False: they are not expected to be seen on the wire as they are."""
        self.lab.run("a", "ping", "-c1", "-W5", address, check=False)  # neighbours of the first hops
        with (
            self.lab.capture("n1", "eth1", f"ether src aa:00:00:00:00:01 and host {address}") as capture,
            self.lab.capture("n1", "gw0", f"host {address}") as by_gateway,
        ):
            output = self.lab.run("a", "ping", "-c3", "-i0.05", "-W5", address).stdout
        expect("3 received" in output, f"not every ping to {address} was answered:\n{output}")
        echoes = _echo_requests(capture)
        expect(len(echoes) >= 3 or not naked, f"only {len(echoes)} pings to {address} were on n1's uplink")
        return Echoes(
            len(_echo_requests(by_gateway)),
            {(frame.src, frame.dst) for frame in echoes},
            {_hop_limit(frame) for frame in echoes},
        )

    def say_path(self, address: str, seen: Echoes) -> None:
        macs = ", ".join(f"{src} → {dst}" for src, dst in sorted(seen.macs))
        hops = "/".join(map(str, sorted(seen.hop_limits)))
        console.print(f"  a → {address}: on the wire {macs}, hop limit {hops}; {seen.by_gateway} pings by gw0")

    def answers(self, client: str, protocol: Any, host: str, port: int, count: int = CONNECTIONS) -> list[Answer]:
        """So many new connections at once, each of which has to be answered."""
        answers = self.lab.probe(client, [Probe(protocol, host, port, timeout=3, tries=2)] * count)
        errors = Counter(answer.error for answer in answers if not answer.ok)
        expect(not errors, f"{client} → {host}:{port}/{protocol}: {dict(errors)} of {count}")
        return answers

    def spread(self, client: str, protocol: Any, host: str, port: int) -> Counter[str]:
        """How often whom answered."""
        return Counter(answer.names[0] for answer in self.answers(client, protocol, host, port))

    def mac(self, node: str) -> Any:
        return next(row["mac"] for row in self.product.get("/v1/nodes") if row["name"] == node)

    def router(self, node: str, family: int) -> Any:
        """The next hop that a node uses, None while no MAC is known."""
        row = next(row for row in self.product.get("/v1/nodes") if row["name"] == node)
        return next((one for one in row["routers"] if one["family"] == family and one["used"] and one["mac"]), None)

    def edit(self, file: str, change: Callable[[list[Any]], object]) -> None:
        path = self.manifests / file
        objects = list(yaml.safe_load_all(path.read_text()))
        change(objects)
        draft = path.with_suffix(".draft")
        draft.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        draft.replace(path)


def table(*headings: str) -> Table:
    """Never cut: half an address says nothing."""
    found = Table(box=box.SIMPLE)
    for heading in headings:
        found.add_column(heading, no_wrap=True)
    return found


def named(objects: Iterable[Any], kind: str, name: str) -> Any:
    return next(one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name)


def _echo_requests(capture: Capture) -> list[Any]:
    return [
        frame
        for frame in capture.frames()
        if (frame.haslayer("ICMP") and frame["ICMP"].type == 8) or frame.haslayer("ICMPv6EchoRequest")
    ]


def _hop_limit(frame: Any) -> int:
    return int(frame["IP"].ttl if frame.haslayer("IP") else frame["IPv6"].hlim)
