"""A part of the matrix that covers it: every client, service, address, protocol and family, in states that differ most.

`make matrix` asks all cells in all states.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.ovs import states
from tests.ovs.cluster import Cluster
from tests.ovs.states import STATES, State
from tests.ovs.world import FAMILIES, PROTOCOLS
from tests.services import cells, matrix
from tests.services.world import DOORS, SERVICES

# Each asks one of so many cells; what they know grows, as what was known once is read back from switches.
STEPS = {
    "noEncap, nothing known": 8,
    "encap, nothing known": 16,
    "noEncap, all asked for": 4,
    "hybrid, egress direct": 8,
}
CHOSEN = [state for state in STATES if state.name in STEPS]


def wanted(state: State) -> list[cells.Cell]:
    return cells.every(cells.all_cells(), STEPS[state.name], CHOSEN.index(state))


@pytest.fixture(scope="module")
def matrix_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with matrix.lab(tmp_path_factory.mktemp("matrix") / "manifests", "geneve", CHOSEN[0]) as cluster:
        yield cluster


def test_every_value_of_every_dimension_is_among_the_cells() -> None:
    """A client with every address; a service with every address, protocol and family; every outcome."""
    for state in CHOSEN:
        of = wanted(state)
        assert {(cell.client.name, cell.door.kind) for cell in of} == {
            (client, door.kind) for client in cells.CLIENTS for door in DOORS
        }
        counts = Counter(cell.outcome(state).word for cell in of)
        assert min(counts.values()) > 50, counts
        assert counts.keys() == {"answered", "refused", "dropped"}
    asked = {(cell.service.name, cell.door, cell.protocol, cell.family) for state in CHOSEN for cell in wanted(state)}
    no_such = {(name, door, p, 6) for name in SERVICES for door in DOORS if door.node == "n4" for p in PROTOCOLS}
    assert asked | no_such == {
        (name, door, protocol, family)
        for name in SERVICES
        for door in DOORS
        for protocol in PROTOCOLS
        for family in FAMILIES
    }


@pytest.mark.ovs
@pytest.mark.parametrize("state", CHOSEN, ids=lambda state: state.name)
def test_cells_come_out_as_kubernetes_promises(matrix_lab: Cluster, state: State) -> None:
    states.enter(matrix_lab, state)
    results = list(matrix.asked(matrix_lab, state, wanted(state)))
    assert len(results) == len(wanted(state)) > 500
    problems = [f"{result.cell}: {result.problem}" for result in results if result.problem]
    assert not problems, f"{len(problems)} of {len(results)} are wrong:\n" + "\n".join(problems[:100])
