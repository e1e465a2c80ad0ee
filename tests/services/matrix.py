"""The whole matrix: every cell in every state of the cluster, on interpreted switches and with real packets.

    python -m tests.services.matrix [--step N] [--state NAME]… [--page FILE] [--interpreted]

prints what was asked and what is wrong, by state and by address; `--page` also draws it. `--step` asks one of N cells
with real packets, others in each state; interpreted switches are asked all of them, SCTP too, and with `--interpreted`
nobody else is. Root is needed for real packets; the status is 1 when a cell is wrong.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lab.traffic import Answer
from tests.ovs import states
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.states import STATES, State, TunnelType
from tests.ovs.world import PROTOCOLS
from tests.services import cells, page, world
from tests.services.cells import Cell
from tests.services.conftest import route_services
from tests.services.world import KINDS
from tests.simulation import services

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


def interpreted(chosen: Sequence[State]) -> Iterator[Result]:
    """All cells, whichever endpoint is chosen."""
    for state in chosen:
        matrix = services.Matrix(state)
        yield from (Result(state, cell, matrix.problem(cell)) for cell in services.all_cells())


def table(title: str, results: Sequence[Result]) -> Iterator[str]:
    """By state and kind of address: cells, and how many of them are wrong."""
    count = Counter((result.state.name, result.cell.door.kind) for result in results)
    wrong = Counter((result.state.name, result.cell.door.kind) for result in results if result.problem)
    yield f"{title:40}" + "".join(f"{kind:>16}" for kind in KINDS)
    for name in dict.fromkeys(result.state.name for result in results):
        row = (f"{wrong[name, kind]} of {count[name, kind]}" for kind in KINDS)
        yield f"{name:40}" + "".join(f"{text:>16}" for text in row)


def main() -> int:
    parser = argparse.ArgumentParser(description="Every cell of the matrix of services.")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--state", action="append", choices=[state.name for state in STATES], default=[])
    parser.add_argument("--page", type=Path)
    parser.add_argument("--interpreted", action="store_true")
    given = parser.parse_args()
    chosen = [state for state in STATES if not given.state or state.name in given.state]
    thought = list(_told(interpreted(chosen), "interpreted"))
    real = [] if given.interpreted else list(_told(whole(chosen, given.step), "real packets"))
    found = {"interpreted": thought, "real packets": real}
    print("\ncells that are wrong:")
    for title, results in found.items():
        print("\n".join(table(title, results)) if results else f"{title}: none asked")
    wrong = sum(bool(result.problem) for results in found.values() for result in results)
    print(f"\n{wrong} of {len(thought)} interpreted and {len(real)} real cells are wrong")
    if given.page:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        drawn = real or [result for result in thought if result.cell.protocol in PROTOCOLS]
        given.page.write_text(page.html([(result.state.name, result.cell, result.problem) for result in drawn]))
    return bool(wrong)


def _told(results: Iterable[Result], how: str) -> Iterator[Result]:
    """As they come: the states, what is wrong, and how long it took."""
    start, state = time.monotonic(), None
    for result in results:
        if result.state != state:
            print(f"{time.monotonic() - start:5.0f} s  {how}: {result.state.name}", flush=True)
        state = result.state
        if result.problem:
            print(f"         {result.cell}: {result.problem}", flush=True)
        yield result
    print(f"{time.monotonic() - start:5.0f} s  {how}: done", flush=True)


if __name__ == "__main__":
    sys.exit(main())
