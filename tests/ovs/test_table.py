"""Every client to every place and every service, in both families, with the peers' MACs unknown and known.

What should come of each cell is said by oracle.py, which knows nothing about flows. All cells of a table are asked
at once; those that are wrong are listed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lab.traffic import Answer, Probe
from tests.ovs import oracle
from tests.ovs.cluster import Cluster
from tests.ovs.wire import Frame
from tests.ovs.world import (
    FAMILIES,
    FAR_MAC,
    NODES,
    OUTSIDE_MAC,
    PLACES,
    PODS,
    PORTS,
    PROTOCOLS,
    ROUTER_MACS,
    SERVICES,
    Place,
    Service,
)

pytestmark = pytest.mark.ovs

CLIENTS = {**PODS, **NODES}
TIMEOUT = 6.0  # seconds; the machine may be busy
AT_ONCE_MS = 2500.0  # for a refusal: far below the second SYN of a client that hangs, with some load
EVERY = 4  # connections in each cell of a service with several endpoints


class Cell(NamedTuple):
    client: Place
    target: Place | Service
    protocol: str
    family: int

    def __str__(self) -> str:
        return f"{self.client.name} → {self.target.name} {self.protocol} IPv{self.family}"

    @property
    def probe(self) -> Probe:
        to_service = isinstance(self.target, Service)
        port = PORTS[self.protocol].port if to_service else PORTS[self.protocol].target
        return Probe(self.protocol, self.target.addresses[self.family], port, timeout=TIMEOUT)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=["unknown", "known"])
def macs_known(request: pytest.FixtureRequest, cluster: Cluster) -> bool:
    """Unknown comes first: a MAC that was once known is read back from the switches."""
    known: bool = request.param == "known"
    if known:
        cluster.product.restart({"mac_sources": ["annotation"]})
        cluster.ready()
    return known


SETTINGS: dict[str, list[str]] = {"mac_sources": []}


def pairs() -> Iterator[tuple[Place, Place]]:
    return ((client, server) for client in PLACES.values() for server in PLACES.values() if client != server)


def plain_cells() -> list[Cell]:
    return [
        Cell(client, server, protocol, family)
        for client, server in pairs()
        if not (client.kind == server.kind == "outside")
        for family in FAMILIES
        if family in client.addresses and family in server.addresses
        for protocol in PROTOCOLS
    ]


def service_cells() -> list[Cell]:
    return [
        Cell(client, service, protocol, family)
        for client in CLIENTS.values()
        for service in SERVICES.values()
        for protocol in PROTOCOLS
        for family in service.families
        if family in client.addresses
    ]


def ask(
    cluster: Cluster, cells: list[Cell], times: Callable[[Cell], int] = lambda cell: 1
) -> list[tuple[Cell, Answer]]:
    """All cells at once, each so many times; pairs of a cell and one answer."""
    asked: dict[str, list[Cell]] = {}
    for cell in cells:
        asked.setdefault(cell.client.name, []).extend([cell] * times(cell))
    answers = cluster.ask_all({name: [cell.probe for cell in own] for name, own in asked.items()})
    return [pair for name, own in asked.items() for pair in zip(own, answers[name], strict=True)]


def wrong(cell: Cell, answer: Answer, names: frozenset[str], seen: dict[str, str]) -> str:
    """What is not as it should be; "" when nothing. `seen`: as whom each server should see the client."""
    if not names:
        if answer.error != "ECONNREFUSED":
            return f"{cell}: not refused: {answer.error or answer.answers}"
        return f"{cell}: refused late, after {answer.milliseconds} ms" if answer.milliseconds > AT_ONCE_MS else ""
    if not answer.ok:
        return f"{cell}: {answer.error}, should be answered by {', '.join(sorted(names))}"
    name, source = answer.names[0], answer.seen_as
    if name not in names:
        return f"{cell}: answered by {name}, not by {', '.join(sorted(names))}"
    return "" if source == seen[name] else f"{cell}: {name} saw {source}, not {seen[name]}"


def strangers(segment: int) -> str:
    """A pcap filter for frames whose source MAC nobody on a segment has."""
    own = [node.mac for node in NODES.values() if node.segment == segment]
    macs = [*own, *ROUTER_MACS, *([OUTSIDE_MAC, FAR_MAC] if segment == 0 else [])]
    return " and ".join(f"not ether src {mac}" for mac in macs)


@pytest.fixture(scope="module", autouse=True)
def uplinks(cluster: Cluster) -> Iterator[None]:
    """B01: over the whole of the tables no MAC of a pod or a gateway is a source on any uplink."""
    captures = {name: cluster.lab.capture(name, "eth1", strangers(NODES[name].segment or 0)) for name in NODES}
    yield
    for capture in captures.values():
        capture.stop()
    found = {name: [bytes(frame)[:64].hex() for frame in capture.frames()][:5] for name, capture in captures.items()}
    assert not any(found.values()), found


DIRECT = (
    "(net 10.10.1.0/24 and net 10.10.2.0/24) or (net fd00:10:1::/64 and net fd00:10:2::/64)"
    " or host 192.168.77.102 or host fd00:77::102"
)


def test_every_pair_of_pods_hosts_and_clients_outside_talks(cluster: Cluster, macs_known: bool) -> None:
    """B04, rule R6. Only what leaves the cluster is masqueraded; the straight way does not touch gw0."""
    cells = plain_cells()
    with cluster.watched("n1", "gw0", DIRECT) as by_gateway:
        done = ask(cluster, cells)
    problems = [
        problem
        for cell, answer in done
        if (
            problem := wrong(
                cell,
                answer,
                frozenset({cell.target.name}),
                {cell.target.name: oracle.seen_directly(cell.client, PLACES[cell.target.name], cell.family)},
            )
        )
    ]
    assert not problems, f"{len(problems)} of {len(cells)} cells:\n" + "\n".join(problems)
    assert (len(by_gateway) == 0) is macs_known, by_gateway[:5]


def test_every_pair_is_pinged_once_and_by_the_right_number_of_hops(cluster: Cluster, macs_known: bool) -> None:
    """B04, B08: no answer is lost or comes twice, and every router counts once."""
    wishes = {
        client.name: {
            address: server
            for server in PLACES.values()
            if server != client and not (client.kind == server.kind == "outside")
            for family, address in server.addresses.items()
            if family in client.addresses
        }
        for client in PLACES.values()
    }
    with cluster.watched("n1", "eth1", "icmp or icmp6") as frames:
        found = cluster.echoes({name: list(targets) for name, targets in wishes.items()})
    problems = []
    for name, targets in wishes.items():
        for address, server in targets.items():
            due = [oracle.hop_limit_of_reply(PLACES[name], server)] * 2
            if found[name][address] != due:
                problems.append(f"{name} → {server.name} ({address}): hop limits {found[name][address]}, not {due}")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)
    check_wire(frames)


def check_wire(frames: list[Frame]) -> None:
    """B01: echo requests of pod a to pod c on the wire."""
    for source, destination in (("10.10.1.10", "10.10.2.10"), ("fd00:10:1::10", "fd00:10:2::10")):
        asked = [f for f in frames if (f.source, f.destination) == (source, destination) and f.ports[0] in (8, 128)]
        assert {(frame.src, frame.dst, frame.ttl) for frame in asked} == {
            (NODES["n1"].mac, NODES["n2"].mac, 63),
        }, source
        assert len(asked) <= 2, asked


def test_every_client_reaches_every_service(cluster: Cluster, macs_known: bool) -> None:
    """B15, B28, B53, B55: who answers, and as whom it sees the client; without endpoints: refused at once (B27)."""
    cells = service_cells()

    def backends(cell: Cell) -> frozenset[str]:
        return oracle.answering(SERVICES[cell.target.name], cell.protocol, cell.family)

    done = ask(cluster, cells, lambda cell: EVERY if len(backends(cell)) > 1 else 1)
    problems = []
    for cell, answer in done:
        names = backends(cell)
        seen = {name: oracle.seen_through_service(cell.client, PLACES[name], cell.family, macs_known) for name in names}
        if problem := wrong(cell, answer, names, seen):
            problems.append(problem)
    assert not problems, f"{len(problems)} of {len(done)} connections ({len(cells)} cells):\n" + "\n".join(problems)
    used = Counter(
        (cell.target.name, cell.protocol, cell.family, answer.names[0]) for cell, answer in done if answer.ok
    )
    for service in SERVICES.values():
        for protocol in PROTOCOLS:
            for family in service.families:
                for name in service.backends(protocol, family):
                    assert used[service.name, protocol, family, name], f"{name} of {service.name} was never chosen"


@pytest.mark.parametrize("client", ["a", "n1", "d"])
def test_connections_of_one_client_are_spread_over_all_endpoints(cluster: Cluster, client: str) -> None:
    """A UDP client must not stick to one endpoint: Open vSwitch's default hash ignores its ports."""
    cells = [
        Cell(CLIENTS[client], SERVICES["every"], protocol, family) for protocol in PROTOCOLS for family in FAMILIES
    ]
    done = ask(cluster, cells, lambda cell: 60)
    for cell in cells:
        counts = Counter(answer.names[0] if answer.ok else answer.error for one, answer in done if one == cell)
        assert set(counts) == {"a", "c", "d"}, f"{cell}: {dict(counts)}"
        assert min(counts.values()) >= 5, f"{cell}: {dict(counts)}"
