"""The matrix as a page of coloured squares: a table for each state, clients by services, a square for each cell."""

from collections.abc import Sequence
from html import escape

from tests.ovs.states import STATES
from tests.services.cells import CLIENTS, Cell
from tests.services.world import DOORS, SERVICES

STYLE = """
body { font: 13px system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; margin-bottom: 2.5em; }
th { font-weight: normal; text-align: left; padding: 1px 8px 1px 0; white-space: nowrap; }
thead th { writing-mode: vertical-rl; transform: rotate(180deg); padding: 6px 0; text-align: left; }
td { padding: 1px 2px; border-left: 1px solid #eee; line-height: 0; white-space: nowrap; }
i { display: inline-block; width: 4px; height: 9px; margin-right: 1px; background: #eee; }
.answered { background: #3a9d5d; } .dropped { background: #8d99a6; } .refused { background: #d9a441; }
.wrong { background: #d0021b; height: 13px; }
.legend i { width: 10px; height: 10px; margin: 0 4px 0 14px; }
"""
LEGEND = """Each square is one client, service, address, protocol and family.
<i class="answered"></i>answered by whom, and seen as whom it should
<i class="refused"></i>refused as it should<i class="dropped"></i>dropped as it should<i class="wrong"></i>wrong
"""


def html(results: Sequence[tuple[str, Cell, str]]) -> str:
    """`results`: name of the state, cell, and what is wrong with it or ""."""
    states = dict.fromkeys(name for name, *_ in results)
    wrong = sum(bool(problem) for *_, problem in results)
    parts = [
        f'<!doctype html><meta charset="utf-8"><title>Services</title><style>{STYLE}</style>',
        f"<h1>Services: {len(results)} cells, {wrong} wrong</h1>",
        f'<p class="legend">{LEGEND}</p>',
    ]
    for state in states:
        parts.append(_table(state, [(cell, problem) for name, cell, problem in results if name == state]))
    return "\n".join(parts)


def _table(state: str, problems: Sequence[tuple[Cell, str]]) -> str:
    at = next(one for one in STATES if one.name == state)
    squares: dict[tuple[str, str], dict[tuple[object, ...], str]] = {}
    for cell, problem in problems:
        kind = "wrong" if problem else cell.outcome(at).word
        title = escape(f"{cell}: {problem}" if problem else f"{cell}: {kind}", quote=True)
        of = squares.setdefault((cell.client.name, cell.service.name), {})
        of[DOORS.index(cell.door), cell.protocol, cell.family] = f'<i class="{kind}" title="{title}"></i>'
    head = "".join(f"<th>{escape(name)}</th>" for name in SERVICES)
    rows = []
    for client in CLIENTS:
        own = (squares.get((client, service), {}) for service in SERVICES)
        rows.append(f"<tr><th>{client}</th>{''.join(f'<td>{_square(of)}</td>' for of in own)}</tr>")
    wrong = sum(bool(problem) for _, problem in problems)
    title = f"<h2>{escape(state)}: {len(problems)} cells, {wrong} wrong</h2>"
    return f"{title}<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _square(cells: dict[tuple[object, ...], str]) -> str:
    """A line for each address."""
    lines: dict[object, str] = {}
    for key in sorted(cells, key=str):
        lines[key[0]] = lines.get(key[0], "") + cells[key]
    return "<br>".join(lines.values())
