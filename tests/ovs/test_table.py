"""Every client to every place and every service, in both families and in every state that a cluster can be in.

What should come of each cell is said by oracle.py, which knows nothing about flows; that it came by the way that
it should is seen on the wires. All cells of a table are asked at once; those that are wrong are listed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lab.capture import Capture
from lab.switch import GATEWAY
from lab.traffic import Answer, Probe
from tests.ovs import oracle, passage, states, wire, world
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.oracle import Seen
from tests.ovs.states import STATES, State
from tests.ovs.wire import Frame
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, PLACES, PODS, PORTS, PROTOCOLS, SERVICES, Place, Service

pytestmark = pytest.mark.ovs

CLIENTS = {**PODS, **NODES, **OUTSIDE}
TIMEOUT = 6.0  # seconds; the machine may be busy
TRIES = 2  # of a datagram: a single one may be lost
AT_ONCE_MS = 2500.0  # for a refusal: far below the second SYN of a client that hangs, with some load
EVERY = 3  # connections in each cell of a service with several endpoints
FIRST_RESERVED = 61440  # ports from here on are no host's to choose
ON_GATEWAY = ("n1", "n3")  # whose gw0 is looked at


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
        return Probe(
            self.protocol,  # type: ignore[arg-type]
            self.target.addresses[self.family],
            port,
            timeout=TIMEOUT if self.protocol == "tcp" else TIMEOUT / TRIES,
            tries=TRIES,
        )


class Labs:
    """One lab at a time: that which the state needs."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp = tmp_path_factory
        self._tunnel = ""
        self._cluster: Cluster | None = None

    def enter(self, state: State) -> Cluster:
        if self._cluster is None or self._tunnel != state.tunnel:
            self.down()
            directory = self._tmp.mktemp(state.tunnel) / "manifests"
            self._tunnel = state.tunnel
            cluster = Cluster(unique("ttable"), directory, state.settings, options=states.LABS[state.tunnel])
            cluster.__enter__()
            self._cluster = cluster
            for client, entry in world.ENTRIES.items():
                _route_services(cluster, client, entry)
        states.enter(self._cluster, state)
        return self._cluster

    def down(self) -> None:
        if self._cluster is not None:
            self._cluster.__exit__()
            self._cluster = None


def _route_services(cluster: Cluster, client: str, entry: str) -> None:
    """The network beneath brings service addresses of clients outside to one of the nodes."""
    on_segment = PLACES[client].segment is not None
    for family, prefix in zip(FAMILIES, world.SERVICE_RANGES, strict=True):
        at = NODES[entry].addresses[family]
        cluster.lab.run(client if on_segment else "router", "ip", "route", "replace", prefix, "via", at)


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    labs = Labs(tmp_path_factory)
    try:
        yield labs
    finally:
        labs.down()


@pytest.fixture(scope="module", params=STATES, ids=lambda state: state.name)
def state(request: pytest.FixtureRequest) -> State:
    found: State = request.param
    return found


@pytest.fixture(scope="module")
def cluster(labs: Labs, state: State) -> Cluster:
    return labs.enter(state)


Wires = dict[tuple[str, str], Capture]  # by node and device


@pytest.fixture(scope="module", autouse=True)
def wires(cluster: Cluster, state: State) -> Iterator[Wires]:
    """Everything that passes on the uplinks, and on some gw0, while the cluster is in a state."""
    del state
    found = {(name, "eth1"): cluster.lab.capture(name, "eth1") for name in NODES}
    found |= {(name, GATEWAY): cluster.lab.capture(name, GATEWAY) for name in ON_GATEWAY}
    yield found
    for capture in found.values():
        capture.stop(linger=0)


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
    states.forget_connections(cluster)
    asked: dict[str, list[Cell]] = {}
    for cell in cells:
        asked.setdefault(cell.client.name, []).extend([cell] * times(cell))
    answers = cluster.ask_all({name: [cell.probe for cell in own] for name, own in asked.items()})
    return [pair for name, own in asked.items() for pair in zip(own, answers[name], strict=True)]


def wrong(cell: Cell, answer: Answer, seen: dict[str, Seen]) -> str:
    """What is not as it should be; "" when nothing. `seen`: who may answer, and as whom each should see the client."""
    names = ", ".join(sorted(seen))
    if not seen:
        if answer.error != "ECONNREFUSED":
            return f"{cell}: not refused: {answer.error or answer.answers}"
        return f"{cell}: refused late, after {answer.milliseconds} ms" if answer.milliseconds > AT_ONCE_MS else ""
    if not answer.ok:
        return f"{cell}: {answer.error}, should be answered by {names}"
    name, address, port = answer.answers[0].split()
    if name not in seen:
        return f"{cell}: answered by {name}, not by {names}"
    due = seen[name]
    reserved = int(port) >= FIRST_RESERVED
    if address != due.address or reserved is not (reserved if due.reserved is None else due.reserved):
        return f"{cell}: {name} saw {address} port {port}, not {due}"
    return ""


def report(problems: list[str], cells: int) -> str:
    return f"{len(problems)} of {cells} are wrong:\n" + "\n".join(problems)


def test_every_pair_of_pods_hosts_and_clients_outside_talks(cluster: Cluster, state: State) -> None:
    """B04, rule R6. Only what leaves the cluster is masqueraded."""
    cells = plain_cells()
    problems = []
    for cell, answer in ask(cluster, cells):
        server = PLACES[cell.target.name]
        seen = {server.name: oracle.seen_directly(cell.client, server, cell.family, state)}
        if problem := wrong(cell, answer, seen):
            problems.append(problem)
    assert not problems, report(problems, len(cells))


def test_every_pair_is_pinged_once_and_by_the_right_number_of_hops(cluster: Cluster, state: State) -> None:
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
    states.forget_connections(cluster)
    with cluster.watched("n1", "eth1", "icmp or icmp6") as frames:
        found = cluster.echoes({name: list(targets) for name, targets in wishes.items()})
    problems = []
    for name, targets in wishes.items():
        for address, server in targets.items():
            due, limits = oracle.hop_limits_of_reply(PLACES[name], server, state), found[name][address]
            if len(limits) != 2 or not due.issuperset(limits):
                problems.append(f"{name} → {server.name} ({address}): hop limits {limits}, not twice {due}")
    assert not problems, report(problems, sum(map(len, wishes.values())))
    if not oracle.tunnelled("n1", "n2", state):
        check_wire(frames)


def check_wire(frames: list[Frame]) -> None:
    """B01: echo requests of pod a to pod c on the wire."""
    for source, destination in (("10.10.1.10", "10.10.2.10"), ("fd00:10:1::10", "fd00:10:2::10")):
        asked = [f for f in frames if (f.source, f.destination) == (source, destination) and f.ports[0] in (8, 128)]
        assert {(frame.src, frame.dst, frame.ttl) for frame in asked} == {
            (NODES["n1"].mac, NODES["n2"].mac, 63),
        }, source
        assert len(asked) <= 2, asked


def test_every_client_reaches_every_service(cluster: Cluster, state: State) -> None:
    """B15, B28, B53, B55: who answers, and as whom it sees the client; without endpoints: refused at once (B27)."""
    cells = service_cells()

    def backends(cell: Cell) -> frozenset[str]:
        return oracle.answering(SERVICES[cell.target.name], cell.protocol, cell.family)

    done = ask(cluster, cells, lambda cell: EVERY if len(backends(cell)) > 1 else 1)
    problems = []
    for cell, answer in done:
        names = backends(cell)
        seen = {name: oracle.seen_through_service(cell.client, PLACES[name], cell.family, state) for name in names}
        if problem := wrong(cell, answer, seen):
            problems.append(problem)
    assert not problems, report(problems, len(done))
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


def test_all_of_that_went_by_the_way_that_it_should(cluster: Cluster, state: State, wires: Wires) -> None:
    """B01: MACs on the wires; by tunnel and by gw0 what should, and nothing else. The last of a state's tests."""
    problems = []
    for (name, device), capture in wires.items():
        capture.stop()
        frames = wire.read(capture.path)
        mac = cluster.lab.plan.node(name).gateway_mac
        look = passage.on_gateway if device == GATEWAY else passage.on_uplink
        problems += look(name, mac, frames, state)[:3]
    assert not problems, "\n".join(problems)
