"""The matrix of services, every cell of every state, without a machine: one process, interpreted switches."""

import pytest

from tests.ovs.states import STATES, State
from tests.simulation import services
from tests.simulation.verdict import told


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_cells_come_out_as_kubernetes_promises(state: State) -> None:
    matrix = services.Matrix(state)
    wanted = list(services.all_cells())
    problems = [f"{cell}: {found}" for cell in wanted if (found := matrix.problem(cell))]
    assert not problems, told(problems, len(wanted))
