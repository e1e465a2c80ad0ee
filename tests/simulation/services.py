"""The matrix of services on interpreted switches: every cell, each endpoint that may be chosen, SCTP too.

The oracle is that of the matrix of real packets. Beside what comes of a question, every frame on its way is looked at:
an address of a service is for whoever asks it, and for the node that translates it.
"""

from collections.abc import Iterable, Iterator

from lab.plan import Options
from pipelines.addresses import parse_ip
from pipelines.interpreter import Packet
from pipelines.interpreter.switch import Looping
from tests.ovs import states
from tests.ovs.objects import Object
from tests.ovs.states import State
from tests.ovs.world import NODES
from tests.services import cells, world
from tests.services.cells import Cell
from tests.services.oracle import Outcome
from tests.services.world import ROUTED
from tests.simulation import cluster
from tests.simulation.cluster import Cluster
from tests.simulation.network import Network
from tests.simulation.sockets import PORTS, Question
from tests.simulation.verdict import wrong
from tests.simulation.watch import Watch
from tests.simulation.wires import Storm


def with_sctp(objects: Iterable[Object]) -> Iterator[Object]:
    """Every service has a third port, of SCTP, with the number that its others have."""
    for one in objects:
        yield one
        if one["kind"] == "Service":
            [udp] = [port for port in one["spec"]["ports"] if port["name"] == "udp"]
            one["spec"]["ports"].append({**udp, "name": "sctp", "protocol": "SCTP", "targetPort": PORTS["sctp"].target})
        elif one["kind"] == "EndpointSlice" and one["ports"][0]["name"] == "udp":
            name = one["metadata"]["name"].replace("-udp-", "-sctp-")
            port = {"name": "sctp", "protocol": "SCTP", "port": PORTS["sctp"].target}
            yield {**one, "metadata": {**one["metadata"], "name": name}, "ports": [port]}


def compiled(objects: Iterable[Object], state: State) -> Cluster:
    """With all MACs known that the state lets a cluster know."""
    more = states.LABS[state.tunnel].get("unmasqueraded", ())
    options = Options(tunnel=state.tunnel, unmasqueraded=tuple(more))
    found = NODES if state.peers == "neighbor" else ()
    settings = cluster.settings_of(state.settings)
    return cluster.compiled(with_sctp(objects), settings, options, found=found, routers=state.routers)


class Matrix:
    """All cells in a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.network = Network(compiled(world.everything(), state), ROUTED)
        self.watch = Watch(self.network, state)

    def problem(self, cell: Cell) -> str:
        """What is wrong with a cell, whichever endpoint is chosen; "" when nothing."""
        due, at = _due(cell, self._state), self.network
        answered = set()
        for at.bucket in range(max(1, len(due.seen))):
            try:
                question, frames = self._seen(cell)
            except (Storm, Looping) as error:
                return f"{type(error).__name__}: {error}"
            if found := _wrong(question, cell, due) or self.watch.stray(frames):
                return f"{found} (choice {at.bucket})"
            answered |= {said.name for said in question.answers}
        return "" if answered == due.seen.keys() else f"only {answered} of {set(due.seen)} were chosen"

    def _seen(self, cell: Cell) -> tuple[Question, list[tuple[str, Packet]]]:
        frames: list[tuple[str, Packet]] = []
        self.network.wires.log = frames
        try:
            return ask(self.network, cell), frames
        finally:
            self.network.wires.log = None


def all_cells() -> Iterator[Cell]:
    for cell in cells.all_cells():
        yield cell
        if cell.protocol == "udp" and not alike_both_ways(cell):
            yield cell._replace(protocol="sctp")


def alike_both_ways(cell: Cell) -> bool:
    """The endpoint outside asks itself by a node: its requests and its answers have the same two addresses.

    No datapath that knows SCTP by its addresses alone can tell them apart.
    """
    itself = any(end.place == cell.client.name for end in cell.service.ends)
    return itself and cell.client.kind == "outside" and cell.door.kind == "NodePort"


def ask(at: Network, cell: Cell, times: int = 1) -> Question:
    """SCTP has the numbers of UDP's ports.

    The userspace datapath knows an association by its addresses alone: two at once of the same pair are one.
    """
    if cell.protocol == "sctp":
        at.forget_connections()
    address = cell.service.address(cell.door, cell.family)
    return at.ask(cell.client, cell.protocol, address, cell.service.port(cell.door, "udp"), times)


def _due(cell: Cell, state: State) -> Outcome:
    """The userspace datapath finds no other port for SCTP."""
    due = cell.outcome(state)
    if cell.protocol != "sctp":
        return due
    return due._replace(seen={name: seen._replace(reserved=None) for name, seen in due.seen.items()})


def _wrong(question: Question, cell: Cell, due: Outcome) -> str:
    if due.word == "dropped":
        return f"not dropped: {question}" if question.answers or question.refused else ""
    by = parse_ip(cell.service.address(cell.door, cell.family))
    if due.word == "refused" and question.refused not in (None, by):
        return f"refused by {question.refused}"
    return wrong(question, frozenset(due.seen), due.seen)
