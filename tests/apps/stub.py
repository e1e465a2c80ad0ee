"""A fabric without Ryu, sockets or threads: the demo's manifests compiled, and switches that somebody made up."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from apps import node_rows
from apps.settings import Config
from controller.connection import ConnectionLost
from controller.fleet import Fleet
from controller.release import NotReleased, Released
from controller.round import Rows
from controller.session import State
from controller.switches import SessionRow
from k8s_bridge import manifests
from k8s_bridge.source import SourceStatus
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS
from pipelines.model import Change, Kind, Port, Problem, Settings, port_key
from pipelines.unit import UnitKey

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def session_row(dpid: int, node: str, state: State, **more: Any) -> SessionRow:
    row: dict[str, Any] = {
        "dpid": dpid, "node": node, "state": state, "peer": f"192.0.2.{dpid}:40000", "role": "MASTER", "revision": 2,
        "flows": 300, "groups": 7, "flow_mods_sent": 300, "group_mods_sent": 7, "bundles_committed": 1,
        "bytes_sent": 60_000, "last_error": "", "exceptions": (), "held_removals": 0, "audits": 0, "drift": {},
        "packet_ins_dropped": 0, "packet_ins_failed": 0, "flows_renewed": 0, "flows_not_renewed": 0,
        "since": 1.0e9,
    }  # fmt: skip
    return SessionRow(**(row | more))


class StubSource:
    def __init__(self, counts: dict[str, int]) -> None:
        self.now = SourceStatus("directory demo", synced=True, complete=True, counts=counts, last_event_age=2.5)

    def status(self) -> SourceStatus:
        return self.now


class StubSwitches:
    def __init__(self) -> None:
        self.rows: list[SessionRow] = []
        self.refused = Counter({"handshake": 2})
        self.held: dict[int, Rows] = {}  # what each switch shows when it is read
        self.dropped: dict[int, dict[bytes, int]] = {}  # packets by flow, that each switch shows
        self.lost = ["n2"]  # nodes of switches that another controller took
        self.drift: dict[str, int] = {}  # what the next audit finds
        self.released: list[int] = []
        self.abandoned = Released(300, 7)  # what each switch that is released holds

    def claim(self) -> list[str]:
        claimed, self.lost = self.lost, []
        return claimed

    def audit(self, node: str | None = None) -> dict[str, State]:
        """The READY ones are done at once."""
        asked = {row.node: row.state for row in self.rows if row.node and node in (None, row.node)}
        self.rows = [
            replace(row, audits=row.audits + 1, drift=dict(Counter(row.drift) + Counter(self.drift)))
            if row.node in asked and row.state is State.READY
            else row
            for row in self.rows
        ]
        return asked

    def releasable(self, dpid: int) -> Released:
        row = self.session(dpid)
        if row is None:
            raise KeyError(dpid)
        if row.state is not State.UNCLAIMED:
            raise NotReleased(f"Node {row.node} names it")
        return self.abandoned

    def release(self, dpid: int) -> Released:
        found = self.releasable(dpid)
        self.released.append(dpid)
        return found

    def sessions(self) -> list[SessionRow]:
        return self.rows

    def session(self, dpid: int) -> SessionRow | None:
        return next((row for row in self.rows if row.dpid == dpid), None)

    def flows(self, dpid: int) -> Rows:
        if dpid not in self.held:
            raise ConnectionLost("it went away")
        return self.held[dpid]

    def drops(self, dpid: int) -> dict[bytes, int]:
        if dpid not in self.dropped:
            raise ConnectionLost("it went away")
        return self.dropped[dpid]


class StubNeighbors:
    """`rows`: what each key is said to have answered."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked, self.heard, self.malformed = 20, 18, 1

    def row(self, key: str) -> dict[str, Any] | None:
        return self.rows.get(key)


class StubRefuser:
    refused, ignored = 4, 3


class StubFabric:
    """`extra`: changes after the demo's objects. Ports are as a switch of n1 would tell them."""

    def __init__(self, *extra: Change, settings: Settings | None = None) -> None:
        reading = manifests.read(DEMO)
        self.config = Config(source=str(DEMO))
        self.compiler = Compiler()
        self.fleet = Fleet()
        ports = {"LOCAL": Port(0xFFFFFFFE, 0xAA0000000001), "eth1": Port(1, 0xAA0000000001), "gw0": Port(2, 0x0A01)}
        changes = [Change(Kind.SETTINGS, "", settings or Settings())]
        changes += [Change(kind, key, value) for (kind, key), value in reading.values.items()]
        changes += [Change(Kind.PORT, port_key("n1", name), port) for name, port in ports.items()]
        self.fleet.publish(self.compiler.run([*changes, *extra]), NUMBERS)
        self.switches = StubSwitches()
        self.neighbors = StubNeighbors()
        self.refuser = StubRefuser()
        self.source = StubSource(dict(Counter(kind.value for kind, _ in reading.values)))
        self.reasons: list[str] = []
        self.stall = 0.012
        self.compile_seconds = 0.034
        self.compilations = 1
        self.changes_pending = 0
        self.confirmed = 0

    def not_ready(self) -> list[str]:
        return self.reasons

    def problems(self) -> list[Problem]:
        return self.compiler.problems()

    def wrong_ports(self) -> list[Problem]:
        """Of n1 only, the one node whose ports are known."""
        rows = [row for row in self.switches.rows if row.node == "n1"]
        return [*node_rows.wrong_ports(self.compiler.facts, rows, lambda dpid, port: False)]

    def confirm(self) -> None:
        self.confirmed += 1

    def connect(self, states: Mapping[int, tuple[str, State]]) -> None:
        self.switches.rows = [session_row(dpid, *who) for dpid, who in sorted(states.items())]


def refusing(dpid: int, node: str, unit: UnitKey) -> SessionRow:
    return session_row(dpid, node, State.READY, exceptions=((unit, "BAD_MATCH"),), drift={"flows missing": 3})


def as_desired(fabric: StubFabric, dpid: int) -> Rows:
    """What a switch shows that holds exactly what it should."""
    units = [step.new for step in fabric.fleet.desired(fabric.fleet.members[dpid].scopes).steps if step.new]
    flows = {key: flow for unit in units for key, flow in unit.flows.items()}
    return Rows(flows, {number: group for unit in units for number, group in unit.groups.items()})
