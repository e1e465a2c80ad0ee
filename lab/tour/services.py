"""Services: from pods, from nodes, from outside; changed while they are used."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.tour.stage import Stage, console, expect, table
from lab.traffic import Probe

BACKENDS = ("web-1", "web-2", "web-3")
SERVICES = (
    ("tcp", "10.96.0.80", 80),
    ("udp", "10.96.0.80", 53),
    ("tcp", "fd00:96::50", 80),
    ("udp", "fd00:96::50", 53),
)
N1, N3 = "192.168.77.101", "192.168.88.103"
OUTSIDE, REMOTE = "192.168.77.200", "203.0.113.9"
NODE_PORT, LOCAL_PORT = 30080, 30081
BALANCED = "192.0.2.80"
STICKY = "10.96.0.92"


def cluster_ip(stage: Stage) -> None:
    """ClusterIP web, from pod a and from a process on node n1, over its three endpoints"""
    found = table("client", "service", *BACKENDS)
    for client in ("a", "n1"):
        for protocol, host, port in SERVICES:
            counts = stage.spread(client, protocol, host, port)
            expect(set(counts) == set(BACKENDS), f"{client} → {host}:{port} was answered by {dict(counts)}")
            found.add_row(client, f"{host} {port}/{protocol}", *(str(counts[name]) for name in BACKENDS))
    console.print(found)


def live(stage: Stage) -> None:
    """An endpoint is removed and added by editing the YAML"""
    kept: dict[str, Any] = {}

    def remove(objects: list[Any]) -> None:
        for slice_ in _slices(objects):
            kept[slice_["metadata"]["name"]] = slice_["endpoints"]
            slice_["endpoints"] = [one for one in slice_["endpoints"] if one["targetRef"]["name"] != "web-3"]

    def restore(objects: list[Any]) -> None:
        for slice_ in _slices(objects):
            slice_["endpoints"] = kept[slice_["metadata"]["name"]]

    changes: tuple[tuple[Callable[[list[Any]], None], tuple[str, ...], str], ...] = (
        (remove, BACKENDS[:2], "without web-3"),
        (restore, BACKENDS, "with web-3"),
    )
    for change, expected, words in changes:
        edited = time.monotonic()
        stage.edit("web.yaml", change)
        stage.product.wait(partial(_answered_by, stage, set(expected)), words)
        console.print(f"  {words}: seen by clients {time.monotonic() - edited:.1f} s after the edit")


def _answered_by(stage: Stage, names: set[str]) -> bool:
    return set(stage.spread("a", "tcp", "10.96.0.80", 80)) == names


def _slices(objects: list[Any]) -> list[Any]:
    return [one for one in objects if one["kind"] == "EndpointSlice"]


def from_outside(stage: Stage) -> None:
    """From outside the cluster: a NodePort on every node, and a load balancer's address"""
    stage.lab.run("outside", "ip", "route", "replace", f"{BALANCED}/32", "via", N1)
    found = table("client", "address", *BACKENDS, "clients as the servers see them")
    for client, host, port in (
        ("outside", N1, NODE_PORT),
        ("remote", N1, NODE_PORT),
        ("remote", N3, NODE_PORT),
        ("outside", BALANCED, 80),
    ):
        answers = stage.answers(client, "tcp", host, port)
        names = [answer.names[0] for answer in answers]
        expect(set(names) == set(BACKENDS), f"{client} → {host}:{port} was answered by {set(names)}")
        seen = ", ".join(sorted({answer.seen_as for answer in answers}))
        found.add_row(client, f"{host}:{port}", *(str(names.count(name)) for name in BACKENDS), seen)
    console.print(found)
    learned = stage.lab.ofctl("n1", "--no-stats", "dump-flows", "br0", f"table=75,ip,nw_dst={OUTSIDE}")
    flows = [line.strip() for line in learned.splitlines() if "actions=" in line]
    expect(len(flows) == 1, f"n1 has learned {len(flows)} ways back to {OUTSIDE}:\n{learned}")
    console.print(f"  n1 has learned where {OUTSIDE} was last seen:")
    console.print(f"    {flows[0]}", style="dim")


def local_policy(stage: Stage) -> None:
    """With externalTrafficPolicy Local the endpoint sees its client's address"""
    answers = stage.answers("remote", "tcp", N1, LOCAL_PORT, count=10)
    seen = {(answer.names[0], answer.seen_as) for answer in answers}
    expect(seen == {("web-1", REMOTE)}, f"answered by, and as whom it saw the client: {seen}")
    console.print(f"  {REMOTE} → {N1}:{LOCAL_PORT}: all answered by web-1 on that node, which saw {REMOTE}")


def affinity(stage: Stage) -> None:
    """With session affinity a client stays with its endpoint, others get others"""
    chosen = {}
    for client in ("a", "b", "c", "d"):
        names = set(stage.spread(client, "tcp", STICKY, 80))
        expect(len(names) == 1, f"{client} → {STICKY}:80 was answered by {names}")
        chosen[client] = names.pop()
    console.print("  " + ", ".join(f"{client} → {name}" for client, name in chosen.items()))


def refused(stage: Stage) -> None:
    """A service without endpoints, and a port that a service does not have, refuse at once"""
    for host, port in (("10.96.0.93", 80), ("10.96.0.80", 81)):
        answer = stage.lab.probe("a", [Probe("tcp", host, port)])[0]
        expect(answer.error == "ECONNREFUSED", f"a → {host}:{port}: {answer.error or answer.answers}")
        console.print(f"  a → {host}:{port}: refused after {answer.milliseconds:.1f} ms")
