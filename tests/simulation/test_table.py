"""The generated table of tests/ovs, every cell of every state, without a machine: one process, interpreted switches.

The same oracle says what should come of each. Here every endpoint of a service is tried, one after the other, and
every frame on every segment is looked at.
"""

from collections.abc import Iterator

import pytest

from pipelines.interpreter.story import packet_text
from tests.ovs import oracle, test_table
from tests.ovs.states import STATES, State
from tests.ovs.test_table import Cell
from tests.ovs.world import PLACES, PORTS, SERVICES, Service
from tests.simulation import cluster
from tests.simulation.network import Network
from tests.simulation.sockets import Question
from tests.simulation.verdict import fit, told, wrong


@pytest.fixture(scope="module", params=STATES, ids=lambda state: state.name)
def state(request: pytest.FixtureRequest) -> State:
    found: State = request.param
    return found


@pytest.fixture(scope="module")
def network(state: State) -> Network:
    return Network(cluster.in_state(state))


@pytest.fixture
def wires(network: Network, state: State) -> Iterator[None]:
    """What was on the segments while a test ran: nobody's frames but their sender's, nothing naked in `encap`."""
    network.wires.log = []
    yield
    log, network.wires.log = network.wires.log, None
    on_segments = [(name, packet) for name, packet in log if "→seg" in name or "→far" in name]
    assert len(on_segments) > 1000
    bad = [f"{name}: {packet_text(packet)}" for name, packet in on_segments if not fit(name, packet, network, state)]
    assert not bad, told(bad, len(on_segments))


def ask(network: Network, cell: Cell) -> Question:
    of = PORTS[cell.protocol]
    port = of.port if isinstance(cell.target, Service) else of.target
    return network.ask(cell.client, cell.protocol, cell.target.addresses[cell.family], port)


@pytest.mark.usefixtures("wires")
def test_every_pair_of_pods_hosts_and_clients_outside_talks(network: Network, state: State) -> None:
    cells = test_table.plain_cells()
    problems = []
    for cell in cells:
        server = PLACES[cell.target.name]
        seen = {server.name: oracle.seen_directly(cell.client, server, cell.family, state)}
        if problem := wrong(ask(network, cell), frozenset(seen), seen):
            problems.append(f"{cell}: {problem}")
    assert not problems, told(problems, len(cells))


@pytest.mark.usefixtures("wires")
def test_every_pair_is_pinged_once_and_by_the_right_number_of_hops(network: Network, state: State) -> None:
    problems = []
    wishes = [
        (client, server, address)
        for client, server in test_table.pairs()
        if not client.kind == server.kind == "outside"
        for family, address in server.addresses.items()
        if family in client.addresses
    ]
    for client, server, address in wishes:
        found = network.ping(client, address).hops
        due = oracle.hop_limits_of_reply(client, server, state)
        if len(found) != 1 or found[0] not in due:
            problems.append(f"{client.name} → {server.name} ({address}): hop limits {found}, not one of {due}")
    assert not problems, told(problems, len(wishes))


@pytest.mark.usefixtures("wires")
def test_every_client_reaches_every_endpoint_of_every_service(network: Network, state: State) -> None:
    problems, asked = [], 0
    for cell in test_table.service_cells():
        service = SERVICES[cell.target.name]
        names = oracle.answering(service, cell.protocol, cell.family)
        seen = {name: oracle.seen_through_service(cell.client, PLACES[name], cell.family, state) for name in names}
        answered = set()
        for network.bucket in range(max(1, len(names))):
            question = ask(network, cell)
            asked += 1
            answered |= {said.name for said in question.answers}
            if problem := wrong(question, names, seen):
                problems.append(f"{cell}, choice {network.bucket}: {problem}")
        if answered != names:
            problems.append(f"{cell}: only {answered} of {set(names)} were chosen")
    assert not problems, told(problems, asked)


@pytest.mark.parametrize("found", ["n1", "n2", "n1 n3", "n2 n4"])
@pytest.mark.parametrize("routers", [True, False], ids=["routers known", "routers unknown"])
def test_every_pair_talks_while_some_macs_are_known(found: str, routers: bool) -> None:
    """One way straight, the other by gw0 and the host; no connection minds."""
    state = State("some known", peers="neighbor", routers=routers)
    network = Network(cluster.in_state(state, frozenset(found.split())))
    test_every_pair_of_pods_hosts_and_clients_outside_talks(network, state)
