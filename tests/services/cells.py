"""The cells of the matrix: who asks which service by which of its addresses, and what is wrong with what came."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lab.traffic import Answer, Probe
from tests.ovs.states import State
from tests.ovs.world import FAMILIES, NODES, OUTSIDE, PODS, PROTOCOLS, Place
from tests.services import oracle
from tests.services.oracle import Outcome
from tests.services.world import DOORS, SERVICES, Door, Service

CLIENTS = {**PODS, **NODES, **OUTSIDE}
PATIENCE = 8.0  # seconds; the machine may be busy
SILENCE = 1.5  # seconds in which nothing may come where all is dropped
TRIES = 4  # of a datagram: a single one may be lost
AT_ONCE_MS = 2500.0  # for a refusal
FIRST_RESERVED = 61440  # ports from here on are no host's to choose


class Cell(NamedTuple):
    client: Place
    service: Service
    door: Door
    protocol: str
    family: int

    def __str__(self) -> str:
        return f"{self.client.name} → {self.service.name} by {self.door}, {self.protocol} IPv{self.family}"

    def outcome(self, state: State) -> Outcome:
        return oracle.outcome(self.client, self.service, self.door, self.family, state)

    def probe(self, state: State) -> Probe:
        dropped = self.outcome(state).word == "dropped"
        udp = self.protocol == "udp"
        return Probe(
            self.protocol,  # type: ignore[arg-type]
            self.service.address(self.door, self.family),
            self.service.port(self.door, self.protocol),
            timeout=SILENCE if dropped else PATIENCE / TRIES if udp else PATIENCE,
            tries=1 if dropped else TRIES,
        )

    def wrong(self, answer: Answer, state: State) -> str:
        """What is not as it should be; "" when nothing."""
        due = self.outcome(state)
        if due.word == "dropped":
            return "" if answer.error == "timeout" else f"not dropped: {answer.error or answer.answers}"
        if due.word == "refused":
            if answer.error != "ECONNREFUSED":
                return f"not refused: {answer.error or answer.answers}"
            return f"refused late, after {answer.milliseconds} ms" if answer.milliseconds > AT_ONCE_MS else ""
        names = ", ".join(sorted(due.seen))
        if not answer.ok:
            return f"{answer.error}, should be answered by {names}"
        name, address, port = answer.answers[0].split()
        if name not in due.seen:
            return f"answered by {name}, not by {names}"
        seen = due.seen[name]
        reserved = int(port) >= FIRST_RESERVED
        if address != seen.address or reserved is not (reserved if seen.reserved is None else seen.reserved):
            return f"{name} saw {address} port {port}, not {seen}"
        return ""


def all_cells() -> Iterator[Cell]:
    """A process on a node that asks for its own node's port is none: its packets never leave that host's `lo`."""
    for client in CLIENTS.values():
        for service in SERVICES.values():
            for door in DOORS:
                if client.kind == "node" and door.node == client.name:
                    continue
                for protocol in PROTOCOLS:
                    for family in FAMILIES:
                        there = not door.node or family in NODES[door.node].addresses
                        if family in client.addresses and there:
                            yield Cell(client, service, door, protocol, family)


def every(cells: Iterable[Cell], step: int, offset: int = 0) -> list[Cell]:
    """One of `step` cells, so that neither protocols nor families nor neighbours are left out for long."""
    return [cell for cell in cells if (_place(cell) + offset) % step == 0]


def _place(cell: Cell) -> int:
    names = list(CLIENTS)
    services = list(SERVICES)
    return (
        names.index(cell.client.name) * 5
        + services.index(cell.service.name)
        + DOORS.index(cell.door) * 3
        + PROTOCOLS.index(cell.protocol)
        + FAMILIES.index(cell.family) * 2
    )


Ask = Callable[[dict[str, list[Probe]]], dict[str, list[Answer]]]


def ask(cells: Iterable[Cell], state: State, ask_all: Ask) -> list[tuple[Cell, Answer]]:
    """All cells at once; pairs of a cell and its answer."""
    asked: dict[str, list[Cell]] = {}
    for cell in cells:
        asked.setdefault(cell.client.name, []).append(cell)
    answers = ask_all({name: [cell.probe(state) for cell in own] for name, own in asked.items()})
    return [pair for name, own in asked.items() for pair in zip(own, answers[name], strict=True)]
