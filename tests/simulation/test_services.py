"""The matrix of services without a machine: one process, interpreted switches.

A part of its cells here, others in each state, so that each is asked in two at least; `make matrix` asks all.
"""

from zlib import crc32

import pytest

from pipelines import fields as f
from pipelines.addresses import parse_ip, parse_mac
from pipelines.interpreter import Packet
from tests.ovs.states import STATES, State
from tests.ovs.world import FAMILIES, NODES
from tests.services import world
from tests.services.cells import CLIENTS, Cell
from tests.services.world import DOORS, ROUTED, Door, Service, ready
from tests.simulation import services
from tests.simulation.cluster import Cluster
from tests.simulation.network import Network
from tests.simulation.sockets import PORTS
from tests.simulation.verdict import told

STEP = 3
AGAIN = 12  # of that part, one of so many
STICKY = Service("case", 90, ready("a", "b", "e", "g", "n2", "remote"), affinity=600)
LATER = 601.0  # seconds


def part(state: State) -> list[Cell]:
    at = STATES.index(state)
    return [cell for cell in services.all_cells() if (crc32(str(cell).encode()) + at) % STEP == 0]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_cells_come_out_as_kubernetes_promises(state: State) -> None:
    """Whichever endpoint is chosen. No frame strays, nothing loops, who refuses is the address that was asked."""
    matrix, wanted = services.Matrix(state), part(state)
    assert len(wanted) > 5000
    problems = [f"{cell}: {found}" for cell in wanted if (found := matrix.problem(cell))]
    assert not problems, told(problems, len(wanted))


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_packet_that_comes_again_before_the_answer_takes_the_same_way(state: State) -> None:
    """A SYN that is sent again, a burst of datagrams: one server, which sees one client."""
    matrix, asked = services.Matrix(state), 0
    for cell in part(state)[::AGAIN]:
        if cell.outcome(state).word == "answered":
            answers = services.ask(matrix.network, cell, times=3).answers
            assert len(answers) == 3, (cell, answers)
            assert len(set(answers)) == 1, (cell, answers)
            asked += 1
    assert asked > 300


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_what_no_service_has_is_refused_by_the_address_that_was_asked(state: State) -> None:
    """Another port of each kind of address, another address of the range. Nothing of it goes any further."""
    matrix, problems = services.Matrix(state), []
    at = matrix.network
    for client in CLIENTS.values():
        for family in client.addresses:
            some = world.SERVICES["pods-local"]
            addresses = [some.address(door, family) for door in DOORS if not door.node]
            wishes = [(address, PORTS["tcp"].port + 1) for address in addresses]
            wishes.append((some._replace(number=99).address(Door("ClusterIP"), family), PORTS["tcp"].port))
            for protocol in PORTS:
                for address, port in wishes:
                    frames = at.wires.log = []
                    question = at.ask(client, protocol, address, port)
                    if question.refused != parse_ip(address) or question.answers or matrix.watch.stray(frames):
                        problems.append(f"{client.name} → {address} {port} {protocol}: {question}")
    assert not problems, told(problems, len(CLIENTS) * 2 * len(PORTS) * 4)


def test_a_frame_that_should_not_be_is_seen() -> None:
    """The tests above look at frames: they would see one of a service where none may be."""
    watch, node = services.Matrix(STATES[0]).watch, NODES["n1"]
    ends = {"client": "10.10.1.10", "service": "10.96.1.10", "pod": "10.10.2.10", "outside": "192.168.77.200"}

    def stray(cable: str, source: str, to: str) -> bool:
        head = {f.ETH_SRC: parse_mac(node.mac), f.ETH_TYPE: f.IP4.value, f.IP_TTL: 63, f.IP_PROTO: f.UDP}
        addresses = {f.IP4_SRC: parse_ip(ends[source]).value, f.IP4_DST: parse_ip(ends[to]).value}
        return bool(watch.stray([(cable, Packet.of(head | addresses, 100))]))

    for cable in ("n1→seg0", "n1:→gw0", "n1:→LOCAL", "n1→b"):
        assert stray(cable, "client", "service")
        assert not stray(cable, "client", "pod")
    assert stray("n1→seg0", "service", "pod")
    assert stray("n1:→gw0", "service", "outside")
    assert not stray("n1→seg0", "service", "outside")
    assert not stray("n1→a", "service", "client")
    assert watch.stray([("n1→a", Packet.of({}))] * 101)


# --- affinity ----------------------------------------------------------------------------------------------


@pytest.fixture(params=(STATES[0], STATES[4]), ids=lambda state: state.name)
def sticky(request: pytest.FixtureRequest) -> "Sticky":
    return Sticky(request.param)


class Sticky:
    """A network with a service that has affinity."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.network = Network(self._compiled(STICKY), ROUTED)

    def _compiled(self, service: Service) -> Cluster:
        return services.compiled([*world.cluster(), *service.objects()], self._state)

    def change(self, service: Service) -> None:
        self.network.become(self._compiled(service))

    def who(self, cell: Cell, bucket: int) -> str:
        """Who answers when the group would choose this one."""
        self.network.bucket = bucket
        question = services.ask(self.network, cell)
        assert len(question.answers) == 1, (cell, question)
        return question.answers[0].name


def sticky_cells() -> list[Cell]:
    """Doors of every kind; a NodePort of a node that is not the client's."""
    return [
        Cell(CLIENTS[client], STICKY, door, protocol, family)
        for client in ("a", "e", "n1", "n3", "outside", "remote")
        for door in (*(door for door in DOORS if not door.node), Door("NodePort", "n5"))
        for protocol in PORTS
        for family in FAMILIES
        if family in NODES["n5"].addresses
        and not services.alike_both_ways(Cell(CLIENTS[client], STICKY, door, protocol, family))
    ]


def test_a_client_that_comes_again_gets_the_endpoint_that_it_had_until_it_stays_away(sticky: Sticky) -> None:
    for cell in sticky_cells():
        first = [sticky.who(cell, bucket) for bucket in (2, 0, 1, 3)]
        assert len(set(first)) == 1, (cell, first)
    assert sum(len(node.switch.learned) for node in sticky.network.nodes.values()) >= len(sticky_cells())
    cells = sticky_cells()
    kept = [sticky.who(cell, 3) for cell in cells]
    sticky.network.now = LATER - 2
    assert [sticky.who(cell, 4) for cell in cells] == kept
    sticky.network.now += LATER - 2  # it came in between: the time has begun anew
    assert [sticky.who(cell, 4) for cell in cells] == kept
    sticky.network.now += LATER
    assert all(sticky.who(cell, 4) != before for cell, before in zip(cells, kept, strict=True))


def test_a_choice_ends_with_its_endpoint_and_only_that_one(sticky: Sticky) -> None:
    cells = sticky_cells()
    first = [sticky.who(cell, number % 3) for number, cell in enumerate(cells)]
    assert len(set(first)) == 3
    left = tuple(end for end in STICKY.ends if end.place != first[0])
    sticky.change(STICKY._replace(ends=left))
    second = [sticky.who(cell, 4) for cell in cells]
    assert first[0] not in second
    assert all(now == before for before, now in zip(first, second, strict=True) if before != first[0])
    sticky.change(STICKY)
    assert [sticky.who(cell, 1) for cell in cells] == second


def test_affinity_that_is_switched_off_ends_at_once(sticky: Sticky) -> None:
    cells = sticky_cells()
    for cell in cells:
        assert sticky.who(cell, 0) == sticky.who(cell, 1)
    sticky.change(STICKY._replace(affinity=None))
    for cell in cells:
        assert sticky.who(cell, 0) != sticky.who(cell, 1)
