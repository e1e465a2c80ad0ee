"""Flows that learn actions have written: which there are, and when they go."""

from collections.abc import Iterable
from typing import NamedTuple

from pipelines.actions import Learn, LearnMatch, SetField
from pipelines.fields import Field, Item, Part
from pipelines.flow import Flow, FlowKey, match
from pipelines.interpreter.classifier import Classifier
from pipelines.interpreter.packet import read


class Entry(NamedTuple):
    """Times in seconds on the clock of whoever sends the packets."""

    flow: Flow
    cookie: int
    written: float
    used: float
    goes: bool  # with the last flow that learns it

    def over(self, now: float) -> bool:
        idle, hard = self.flow.idle_timeout, self.flow.hard_timeout
        return bool((idle and now >= self.used + idle) or (hard and now >= self.written + hard))


class Learned:
    def __init__(self) -> None:
        self._entries: dict[FlowKey, Entry] = {}
        self._tables: dict[int, Classifier] = {}

    def copy(self) -> "Learned":
        other = Learned()
        other._entries, other._tables = dict(self._entries), dict(self._tables)
        return other

    @property
    def flows(self) -> list[Flow]:
        return [entry.flow for entry in self._entries.values()]

    def keep(self, learning: Iterable[Learn]) -> None:
        """What these actions learn, and what outlives those that learned it."""
        said = {(action.table, action.cookie) for action in learning}
        gone = [key for key, entry in self._entries.items() if entry.goes and (key[0], entry.cookie) not in said]
        for key in gone:
            del self._entries[key]
        for table in {key[0] for key in gone}:
            self._index(table)

    def lookup(self, table: int, bits: int, now: float) -> Flow | None:
        if table not in self._tables:
            return None
        for key in [key for key, entry in self._entries.items() if key[0] == table and entry.over(now)]:
            del self._entries[key]
            self._index(table)
        flow = self._tables[table].lookup(bits)
        if flow is not None:
            self._entries[flow.key] = self._entries[flow.key]._replace(used=now)
        return flow

    def _index(self, table: int) -> None:
        self._tables[table] = Classifier(flow for flow in self.flows if flow.table == table)

    def learn(self, action: Learn, bits: int, now: float) -> bool:
        """Whether the flow was written or renewed. At the limit nothing is, not even a flow that is there."""
        flow = _flow(action, bits)
        same = [key for key, entry in self._entries.items() if entry.cookie == action.cookie and key[0] == action.table]
        if action.limit and len(same) >= action.limit:
            return False
        before = self._entries.get(flow.key)
        self._entries[flow.key] = Entry(flow, action.cookie, now, now, action.delete_learned)
        if before is None or before.flow != flow:
            self._index(action.table)
        return True


def _flow(action: Learn, bits: int) -> Flow:
    def said(source: Field | Part | int) -> int:
        return source if isinstance(source, int) else read(bits, source)

    conditions = [Item(spec.field, said(spec.source), None) for spec in action.specs if isinstance(spec, LearnMatch)]
    loads = [SetField(spec.field, said(spec.source)) for spec in action.specs if not isinstance(spec, LearnMatch)]
    times = action.idle_timeout, action.hard_timeout
    return Flow(action.table, action.priority, match(*conditions), tuple(loads), *times)
