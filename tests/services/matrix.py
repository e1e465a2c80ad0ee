"""The whole matrix with real packets: every cell in every state of the cluster.

    python -m tests.services.matrix [--step N] [--state NAME]… [--page FILE]

prints what was asked and what is wrong, by state and by address; `--page` also draws it. `--step` asks one of N cells,
others in each state. Root is needed; the status is 1 when a cell is wrong.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lab.traffic import Answer
from tests.ovs import states
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.states import STATES, State, TunnelType
from tests.services import cells, page, world
from tests.services.cells import Cell
from tests.services.conftest import route_services
from tests.services.world import KINDS

LONGEST = 600.0  # seconds for all cells of a state
AT_ONCE = 4000  # cells: each waits for its turn with its place's others, and no answer should wait for long


class Result(NamedTuple):
    state: State
    cell: Cell
    problem: str  # "" when none


@contextmanager
def lab(directory: Path, tunnel: TunnelType, first: State) -> Iterator[Cluster]:
    """A lab for the states with one type of tunnel."""
    options = states.LABS[tunnel]
    with Cluster(unique("tmatrix"), directory, first.settings, objects=world.everything(), options=options) as cluster:
        route_services(cluster)
        yield cluster


def asked(cluster: Cluster, state: State, wanted: Sequence[Cell]) -> Iterator[Result]:
    """Cells in a state that the cluster is in, some thousands at once. What is wrong is asked a second time, alone.

    A single one of thousands may wait for a processor longer than it has patience; a fault stays.
    """
    for start in range(0, len(wanted), AT_ONCE):
        done = _ask(cluster, state, wanted[start : start + AT_ONCE])
        doubtful = [cell for cell, answer in done if cell.wrong(answer, state)]
        again = {str(cell): answer for cell, answer in _ask(cluster, state, doubtful)}
        for cell, answer in done:
            yield Result(state, cell, cell.wrong(again.get(str(cell), answer), state))


def _ask(cluster: Cluster, state: State, wanted: Sequence[Cell]) -> list[tuple[Cell, Answer]]:
    return cells.ask(wanted, state, lambda wishes: cluster.ask_all(wishes, LONGEST))


def whole(chosen: Sequence[State], step: int) -> Iterator[Result]:
    """One of `step` cells in each state."""
    everything = list(cells.all_cells())
    for tunnel in dict.fromkeys(state.tunnel for state in chosen):
        of_lab = [state for state in chosen if state.tunnel == tunnel]
        with tempfile.TemporaryDirectory() as directory, lab(Path(directory) / "manifests", tunnel, of_lab[0]) as at:
            for state in of_lab:
                states.enter(at, state)
                yield from asked(at, state, cells.every(everything, step, chosen.index(state)))


def table(results: Sequence[Result]) -> Iterator[str]:
    """By state and kind of address: cells, and how many of them are wrong."""
    count = Counter((result.state.name, result.cell.door.kind) for result in results)
    wrong = Counter((result.state.name, result.cell.door.kind) for result in results if result.problem)
    yield f"{'':40}" + "".join(f"{kind:>16}" for kind in KINDS)
    for name in dict.fromkeys(result.state.name for result in results):
        row = (f"{wrong[name, kind]} of {count[name, kind]}" for kind in KINDS)
        yield f"{name:40}" + "".join(f"{text:>16}" for text in row)


def main() -> int:
    parser = argparse.ArgumentParser(description="Every cell of the matrix of services, with real packets.")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--state", action="append", choices=[state.name for state in STATES], default=[])
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    chosen = [state for state in STATES if not given.state or state.name in given.state]
    start = time.monotonic()
    results: list[Result] = []
    for result in whole(chosen, given.step):
        if not results or results[-1].state != result.state:
            print(f"{time.monotonic() - start:5.0f} s  {result.state.name}", flush=True)
        results.append(result)
        if result.problem:
            print(f"         {result.cell}: {result.problem}", flush=True)
    wrong = sum(bool(result.problem) for result in results)
    print(f"\ncells that are wrong, after {time.monotonic() - start:.0f} s:\n" + "\n".join(table(results)))
    print(f"\n{wrong} of {len(results)} cells are wrong")
    if given.page:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(page.html([(result.state.name, result.cell, result.problem) for result in results]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
