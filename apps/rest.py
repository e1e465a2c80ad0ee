"""The REST side without HTTP glue: a method, a path and a query in, a status and bytes out.

Reads only, but for what is asked by POST. Lists are arrays and leave in pieces, so that a long one
never keeps the hub: between two rows others run. A wrong parameter is named; an unknown path is a JSON 404.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from apps import answers, flow_rows, metrics, node_rows, pod_rows, service_rows
from controller.connection import ConnectionLost, Refused, TimedOut
from controller.release import NotReleased, Released
from pipelines.derived import Derived
from pipelines.features import NUMBERS
from pipelines.model import Kind
from pipelines.tables import BY_ID, TABLES
from pipelines.unit import Member, Scope

LOG = logging.getLogger("signalbox.rest")

JSON = "application/json"
PIECE = 1 << 15  # bytes of a list that leave at once

Query = dict[str, str]
Found = TypeVar("Found")
_NO_TURN = nullcontext()
_DATAPATH = "(?P<datapath_id>[^/]+)"
_SERVICE = "/v1/services/(?P<namespace>[^/]+)/(?P<name>[^/]+)"
_SHOWN = re.compile(r"\(\?P<(\w+)>[^)]*\)")  # a part of a path, as the index shows it


class Answer(NamedTuple):
    status: int
    body: Iterable[bytes]
    type: str = JSON


class Wrong(Exception):
    """The request cannot be answered. `parameter` names what was wrong with it, "" when it is none."""

    def __init__(self, status: int, reason: str, parameter: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.parameter = parameter


class Resource(NamedTuple):
    """`path`: a regular expression; `answer` gets the query and the groups of the path."""

    method: str
    path: str
    parameters: tuple[str, ...]
    answer: Callable[..., Answer]
    says: str


class Rest:
    """`fabric()`: the running product, None while there is none; `pauses()`: a new pause for one request.

    `turn` is held while a piece of an answer is made: of many requests at once only one works, so that together
    they keep the hub no longer than one does.
    """

    def __init__(
        self,
        fabric: Callable[[], Any],
        pauses: Callable[[], Callable[[], None]],
        turn: AbstractContextManager[Any] = _NO_TURN,
    ) -> None:
        self._find = fabric
        self._pauses = pauses
        self._turn = turn
        self.resources = (
            Resource("GET", "/", (), self._index, "this list"),
            Resource("GET", "/healthz", (), self._healthz, "the process serves requests"),
            Resource("GET", "/readyz", ("switches",), self._readyz, "source in sync, a whole revision compiled"),
            Resource("GET", "/metrics", (), self._metrics, "figures for Prometheus"),
            Resource("GET", "/v1/status", (), self._status, "the whole at a glance"),
            Resource("GET", "/v1/nodes", (), self._nodes, "nodes, their MACs, routers and switches"),
            Resource("GET", "/v1/nodes/(?P<name>[^/]+)", (), self._node, "a node, and its way to each other node"),
            Resource("GET", "/v1/pods", ("node", "mtu"), self._pods, "pods; mtu=wrong: those too large for their node"),
            Resource("GET", "/v1/services", (), self._services, "services, their addresses and endpoints"),
            Resource("GET", _SERVICE, ("node",), self._service, "a service; node=NAME: what clients there may get"),
            Resource(
                "GET", "/v1/healthchecks", (), self._health_checks, "healthCheckNodePorts, as nodes should answer"
            ),
            Resource("GET", "/v1/switches", (), self._switches, "connected switches"),
            Resource("GET", f"/v1/switches/{_DATAPATH}/diff", (), self._diff, "a switch against what it should hold"),
            Resource("GET", f"/v1/switches/{_DATAPATH}/drops", (), self._drops, "packets that its flows dropped"),
            Resource("GET", "/v1/flows", ("node", "table", "feature"), self._flows, "flows with their objects"),
            Resource("GET", "/v1/groups", ("node", "feature"), self._groups, "groups with their objects"),
            Resource("GET", "/v1/problems", (), self._problems, "what a person should mend"),
            Resource("POST", "/v1/confirm", (), self._confirm, "lets removals go that are held back"),
            Resource("POST", "/v1/audit", ("node",), self._audit, "compares switches now, and mends them"),
            Resource("GET", f"/v1/switches/{_DATAPATH}/release", (), self._releasable, "what that would delete"),
            Resource("POST", f"/v1/switches/{_DATAPATH}/release", (), self._release, "clears one that no Node names"),
            Resource("POST", "/v1/claim", (), self._claim, "claims switches that another controller is master of"),
        )

    def answer(self, method: str, path: str, query: str) -> Answer:
        try:
            return self._answer(method, path, query)
        except Wrong as wrong:
            content = {"error": str(wrong)} | ({"parameter": wrong.parameter} if wrong.parameter else {})
            return _json(content, wrong.status)
        except Exception:
            LOG.exception("%s %s", method, path)
            return _json({"error": "a fault of the controller; its log says more"}, 500)

    def _answer(self, method: str, path: str, query: str) -> Answer:
        found = [(one, match) for one in self.resources if (match := re.fullmatch(one.path, path.rstrip("/") or "/"))]
        if not found:
            raise Wrong(404, f"there is no {path}; GET / lists what there is")
        wanted = "GET" if method == "HEAD" else method
        for resource, match in found:
            if resource.method == wanted:
                return resource.answer(_query(query, resource), *match.groups())
        raise Wrong(405, f"{path} takes {', '.join(resource.method for resource, _ in found)}, not {method}")

    @property
    def _fabric(self) -> Any:
        fabric = self._find()
        if fabric is None:
            raise Wrong(503, "apps.fabric is not loaded")
        return fabric

    # --- the process ----------------------------------------------------------------------------------------------

    def _index(self, query: Query) -> Answer:
        del query
        rows = [
            {"method": one.method, "path": _SHOWN.sub(r"{\1}", one.path), "says": one.says}
            | ({"parameters": one.parameters} if one.parameters else {})
            for one in self.resources
        ]
        return _json(rows)

    def _healthz(self, query: Query) -> Answer:
        del query
        return _json({"healthy": True})

    def _readyz(self, query: Query) -> Answer:
        reasons = answers.not_ready(self._fabric, switches_too="switches" in query)
        return _json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    def _metrics(self, query: Query) -> Answer:
        del query
        return Answer(200, [metrics.FabricCollector(self._fabric).text()], metrics.TYPE)

    def _status(self, query: Query) -> Answer:
        del query
        return _json(answers.status(self._fabric))

    def _problems(self, query: Query) -> Answer:
        del query
        fabric = self._fabric
        found = answers.all_problems(fabric.problems(), fabric.source.status())
        return self._list(answers.problems(found))

    def _confirm(self, query: Query) -> Answer:
        del query
        fabric = self._fabric
        held = answers.status(fabric)
        fabric.confirm()
        return _json({"released_removals": held["held_removals"], "released_objects": held["held_objects"]})

    def _claim(self, query: Query) -> Answer:
        del query
        return _json({"claimed": self._fabric.switches.claim()})

    def _audit(self, query: Query) -> Answer:
        states = self._fabric.switches.audit(query.get("node"))
        if "node" in query and not states:
            raise Wrong(409, f"the switch of node {query['node']} is not connected", "node")
        rows = [{"node": node, "state": str(state), "audited": state == "READY"} for node, state in states.items()]
        return _json(sorted(rows, key=lambda row: str(row["node"])))

    # --- objects --------------------------------------------------------------------------------------------------

    def _nodes(self, query: Query) -> Answer:
        del query
        return self._list(self._node_rows())

    def _node(self, query: Query, name: str) -> Answer:
        del query
        facts = self._fabric.compiler.facts
        with self._turn:
            row = next((row for row in self._node_rows() if row["name"] == name), None)
            if row is None:
                raise Wrong(404, f"there is no Node {name}")
            value = facts.peek(Kind.NODE).get(name)
            row["ways"] = [] if value is None else list(node_rows.ways(value, facts, self._pauses()))
        return _json(row)

    def _node_rows(self) -> Iterator[answers.Row]:
        fabric = self._fabric
        neighbors = getattr(fabric, "neighbors", None)
        return node_rows.nodes(
            fabric.compiler.facts,
            fabric.switches.sessions(),
            fabric.problems(),
            self._pauses(),
            node_rows.nobody if neighbors is None else neighbors.row,
        )

    def _pods(self, query: Query) -> Answer:
        fabric = self._fabric
        facts, node, mtu = fabric.compiler.facts, query.get("node"), query.get("mtu")
        if mtu not in (None, "wrong", "right"):
            raise Wrong(400, f"mtu is wrong or right, not {mtu}", "mtu")
        if node is not None and node not in facts.peek(Kind.NODE):
            raise Wrong(400, f"no Node {node} is known", "node")
        return self._list(pod_rows.pods(facts, fabric.problems(), node, mtu, self._pauses()))

    def _services(self, query: Query) -> Answer:
        del query
        fabric = self._fabric
        return self._list(
            service_rows.services(fabric.compiler.facts, fabric.problems(), self._pauses(), self._announcement())
        )

    def _service(self, query: Query, namespace: str, name: str) -> Answer:
        fabric = self._fabric
        facts, key = fabric.compiler.facts, f"{namespace}/{name}"
        with self._turn:
            wrong = answers.by_object(fabric.problems(), Kind.SERVICE).get(key, [])
            value = facts.peek(Kind.SERVICE).get(key)
            if value is None:
                raise Wrong(404, f"there is no Service {key}" if not wrong else wrong[0]["reason"])
            slices = service_rows.slices_by_service(facts, self._pauses()).get(key, ())
            row = service_rows.service(key, value, facts, wrong, slices, self._announcement())
            if "node" in query:
                node = facts.peek(Kind.NODE).get(query["node"])
                if node is None:
                    raise Wrong(400, f"no Node {query['node']} is known", "node")
                row["on_node"] = list(service_rows.on_node(key, value, node, facts))
        return _json(row)

    def _announcement(self) -> service_rows.Announcement:
        announcer = getattr(self._fabric, "announcer", None)
        return service_rows.nobody if announcer is None else announcer.row

    def _health_checks(self, query: Query) -> Answer:
        del query
        return self._list(service_rows.health_checks(self._fabric.compiler.facts, self._pauses()))

    # --- switches -------------------------------------------------------------------------------------------------

    def _switches(self, query: Query) -> Answer:
        del query
        return self._list(answers.switches(self._fabric.switches.sessions()))

    def _diff(self, query: Query, datapath: str) -> Answer:
        del query
        dpid, member, rows = self._of_member(datapath, self._fabric.switches.flows)
        with self._turn:
            found = flow_rows.difference(self._fabric.fleet, member.scopes, rows, self._pauses())
        return _json({"dpid": f"{dpid:016x}", "node": member.node} | found)

    def _drops(self, query: Query, datapath: str) -> Answer:
        del query
        _, member, counts = self._of_member(datapath, self._fabric.switches.drops)
        return self._list(flow_rows.drops(self._fabric.fleet, member.scopes, counts, self._pauses()))

    def _of_member(self, datapath: str, ask: Callable[[int], Found]) -> tuple[int, Member, Found]:
        fabric, dpid = self._fabric, _datapath_id(datapath)
        if fabric.switches.session(dpid) is None:
            raise Wrong(404, f"no switch with datapath id {dpid:016x} is connected")
        member: Member | None = fabric.fleet.members.get(dpid)
        if member is None:
            raise Wrong(409, f"no Node names the switch {dpid:016x}, so it should hold nothing of ours")
        try:
            return dpid, member, ask(dpid)
        except (ConnectionLost, TimedOut, Refused, KeyError) as error:
            raise Wrong(502, f"switch {dpid:016x} could not be read: {error}") from error

    def _releasable(self, query: Query, datapath: str) -> Answer:
        del query
        dpid, found = self._of_abandoned(datapath, self._fabric.switches.releasable)
        return _json({"dpid": f"{dpid:016x}", "flows": found.flows, "groups": found.groups})

    def _release(self, query: Query, datapath: str) -> Answer:
        del query
        dpid, released = self._of_abandoned(datapath, self._fabric.switches.release)
        LOG.warning("switch %016x released: %d flows, %d groups deleted", dpid, released.flows, released.groups)
        return _json({"dpid": f"{dpid:016x}", "flows": released.flows, "groups": released.groups})

    def _of_abandoned(self, datapath: str, ask: Callable[[int], Released]) -> tuple[int, Released]:
        dpid = _datapath_id(datapath)
        try:
            return dpid, ask(dpid)
        except KeyError:
            raise Wrong(404, f"no switch with datapath id {dpid:016x} is connected") from None
        except NotReleased as reason:
            raise Wrong(409, f"switch {dpid:016x} is not released: {reason}") from reason
        except (ConnectionLost, TimedOut, Refused) as error:
            raise Wrong(502, f"switch {dpid:016x} could not be read: {error}") from error

    def _flows(self, query: Query) -> Answer:
        scopes, feature = self._scopes(query), _feature(query)
        table = _table(query)
        found = flow_rows.units(self._fabric.fleet, scopes)
        return self._list(flow_rows.flow_rows(found, table, feature, self._pauses()))

    def _groups(self, query: Query) -> Answer:
        scopes, feature = self._scopes(query), _feature(query)
        return self._list(flow_rows.group_rows(flow_rows.units(self._fabric.fleet, scopes), feature, self._pauses()))

    def _scopes(self, query: Query) -> frozenset[Scope] | None:
        if "node" not in query:
            return None
        name = query["node"]
        members: Iterable[Member] = self._fabric.compiler.facts.peek(Derived.MEMBER).values()
        scopes = next((member.scopes for member in members if member.node == name), None)
        if scopes is None:
            raise Wrong(400, f"no Node {name} that names its switch is known", "node")
        return scopes

    def _list(self, rows: Iterable[answers.Row]) -> Answer:
        return Answer(200, _pieces(rows, self._pauses(), self._turn))


def _query(text: str, resource: Resource) -> Query:
    query = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in resource.parameters:
            known = f"known: {', '.join(resource.parameters)}" if resource.parameters else "it takes none"
            raise Wrong(400, f"unknown parameter {name}; {known}", name)
        if name in query:
            raise Wrong(400, f"parameter {name} is given twice", name)
        query[name] = value
    return query


def _datapath_id(text: str) -> int:
    if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", text):
        raise Wrong(400, f"{text!r} is not a datapath id (16 hex digits)", "datapath id")
    return int(text, 16)


def _table(query: Query) -> int | None:
    text = query.get("table")
    if text is None:
        return None
    if text in TABLES:
        return TABLES[text].id
    if text.isascii() and text.isdigit() and int(text) in BY_ID:
        return int(text)
    raise Wrong(400, f"no table {text}; there are: {', '.join(TABLES)}", "table")


def _feature(query: Query) -> str | None:
    text = query.get("feature")
    if text is not None and text not in NUMBERS:
        raise Wrong(400, f"no feature {text}; there are: {', '.join(NUMBERS)}", "feature")
    return text


_ENCODER = msgspec.json.Encoder()


def _json(content: Any, status: int = 200) -> Answer:
    return Answer(status, [_ENCODER.encode(content) + b"\n"])


def _pieces(
    rows: Iterable[Any], pause: Callable[[], None], turn: AbstractContextManager[Any] = _NO_TURN
) -> Iterator[bytes]:
    """A JSON array, some rows at a time. Whoever reads slowly keeps nobody waiting: `turn` is not held meanwhile."""
    left = iter(rows)
    between, ended = b"[\n", False
    while not ended:
        buffer = bytearray()
        with turn:
            ended = True
            for row in left:
                buffer += between + _ENCODER.encode(row)
                between = b",\n"
                pause()
                if len(buffer) > PIECE:
                    ended = False
                    break
        if ended:
            buffer += b"]\n" if between == b",\n" else b"[]\n"
        yield bytes(buffer)
