"""What REST and the command answer about switches and the whole: pure functions from facts to plain values.

They know neither Ryu nor HTTP. Lists may be long, so they are generators: whoever sends them lets others run
between two rows. Addresses, MACs and datapath ids are text, as in Kubernetes and in Open vSwitch.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from k8s_bridge.source import SourceStatus
from pipelines.model import Kind, Problem, Settings, TrafficMode
from pipelines.several import several

Row = dict[str, Any]
Pause = Callable[[], None]


def no_pause() -> None:
    pass


UNUSABLE = "unusable"


def problems(found: Iterable[Problem]) -> Iterator[Row]:
    for problem in found:
        yield {"kind": problem.kind, "object": problem.key, "field": problem.field, "reason": problem.reason}


def by_object(found: Iterable[Problem], kind: Kind) -> dict[str, list[Row]]:
    """The problems of one kind's objects, by key."""
    sorted_out: dict[str, list[Row]] = {}
    for problem in found:
        if problem.kind == kind:
            sorted_out.setdefault(problem.key, []).append({"field": problem.field, "reason": problem.reason})
    return sorted_out


# --- switches -----------------------------------------------------------------------------------------------------


def datapath_text(dpid: int) -> str:
    return f"{dpid:016x}"


def switches(sessions: Iterable[Any]) -> Iterator[Row]:
    """Rows of `Switches.sessions()`, unclaimed switches among them."""
    for session in sessions:
        row: Row = msgspec.structs.asdict(session)
        row["dpid"] = datapath_text(session.dpid)
        row["exceptions"] = [{"unit": str(unit), "error": error} for unit, error in session.exceptions]
        yield row


# --- the whole ----------------------------------------------------------------------------------------------------


def status(fabric: Any) -> Row:
    """`fabric`: the running product (see `apps.fabric`)."""
    sessions = fabric.switches.sessions()
    source: SourceStatus = fabric.source.status()
    reasons = not_ready(fabric, switches_too=True)
    return {
        "ready": not reasons,
        "not_ready": reasons,
        "mode": fabric.config.mode,
        "traffic": traffic(fabric.compiler.facts.peek(Kind.SETTINGS).get("") or Settings()),
        "revision": fabric.fleet.revision,
        "units": len(fabric.compiler.units),
        "problems": len(fabric.problems()),
        "faults": [
            {"step": one.step, "kind": one.kind, "object": one.key, "error": one.error}
            for one in fabric.compiler.faults()
        ],
        "units_not_encoded": {str(unit): reason for unit, reason in sorted(fabric.fleet.errors.items())},
        "compile_seconds": fabric.compile_seconds,
        "compilations": fabric.compilations,
        "changes_pending": fabric.changes_pending,
        "longest_stall_seconds": fabric.stall,
        "switches": dict(sorted(Counter(str(session.state) for session in sessions).items())),
        "nodes_without_switch": without_switch(fabric, sessions),
        "connections_refused": dict(fabric.switches.refused),
        "held_removals": sum(session.held_removals for session in sessions),
        "held_objects": [f"{kind} {key}" for kind, key in source.held],
        "source": source_row(source),
    }


def traffic(settings: Settings) -> Row:
    """How packets reach other nodes and the outside."""
    return {
        "mode": settings.traffic_mode.value,
        "tunnel": None if settings.traffic_mode is TrafficMode.NO_ENCAP else settings.tunnel.value,
        "egress": settings.egress.value,
        "mac_sources": [source.value for source in settings.mac_sources],
        "ask_routers": settings.ask_routers,
    }


def source_row(source: SourceStatus) -> Row:
    return {
        "name": source.name,
        "synced": source.synced,
        "complete": source.complete,
        "objects": dict(source.counts),
        "servers": list(source.servers),
        "last_error": source.last_error,
        "last_event_age_seconds": source.last_event_age,
        "current_age_seconds": source.current_age,
    }


READY_STATES = ("READY", "OBSERVING")


def without_switch(fabric: Any, sessions: Iterable[Any]) -> list[str]:
    """Nodes whose switch is not connected, and those that name none."""
    connected = {member.node for one in sessions if (member := fabric.fleet.members.get(one.dpid)) is not None}
    return sorted(fabric.compiler.facts.peek(Kind.NODE).keys() - connected)


def not_ready(fabric: Any, *, switches_too: bool) -> list[str]:
    """Why not; empty when ready. Never while something cannot be said that concerns every switch.

    `switches_too`: every connected switch that a Node names has to be READY and have the ports it needs, and nothing
    be left out of its flows.
    """
    reasons: list[str] = list(fabric.not_ready())
    left_out = [(one.whole, f"{one.step} {one.key}".rstrip() + f": {one.error}") for one in fabric.compiler.faults()]
    left_out += [(not unit.key, f"{unit}: {why}") for unit, why in sorted(fabric.fleet.errors.items())]
    reasons += [f"a fault of Signalbox concerns every switch: {text}" for whole, text in left_out if whole]
    if switches_too:
        objects = [text for whole, text in left_out if not whole]
        if objects:
            reasons.append(f"a fault of Signalbox leaves objects out: {several(objects, between='; ')}")
        reasons += _switches_not_ready(fabric, fabric.switches.sessions())
        reasons += [f"Node {one.key}: {one.field}: {one.reason}" for one in fabric.wrong_ports()]
    return reasons


def _switches_not_ready(fabric: Any, sessions: Sequence[Any]) -> Iterator[str]:
    for session in sessions:
        member = fabric.fleet.members.get(session.dpid)
        if member is not None and session.state not in READY_STATES:
            todo = "; `signalbox claim` takes it back" if session.state == "SLAVE" else ""
            yield f"the switch of {member.node} is {session.state}: {session.last_error}".rstrip(": ") + todo
    if sessions and all(session.state == "UNCLAIMED" for session in sessions):
        which = f"all {len(sessions)} switches are" if len(sessions) > 1 else "the only switch is"
        yield f"{which} UNCLAIMED: no Node names it by the annotation signalbox.dev/datapath-id, so it gets no flows"


def switch_problems(sessions: Iterable[Any]) -> Iterator[Problem]:
    """What a person should do about connected switches that nothing is written to."""
    for session in sessions:
        dpid = datapath_text(session.dpid)
        if session.state == "UNCLAIMED":
            reason = (
                f"no Node names this switch ({session.peer}), so it is UNCLAIMED and not touched: annotate its Node "
                f"with signalbox.dev/datapath-id={dpid}; if that is gone for good, `signalbox release {dpid}` clears it"
            )
            yield Problem("Switch", dpid, "datapath id", reason)
        elif session.state == "SLAVE":
            reason = (
                f"another controller is master of the switch of {session.node}, nothing is written to it; "
                "when the other one is gone, `signalbox claim` takes it back"
            )
            yield Problem("Switch", dpid, "role", reason)


def all_problems(compiler_problems: Iterable[Problem], source: SourceStatus) -> list[Problem]:
    """Of objects and of the source itself, each once."""
    found = {*compiler_problems, *source.problems}
    return sorted(found, key=lambda problem: (problem.kind, problem.key, problem.field, problem.reason))
