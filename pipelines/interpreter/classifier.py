"""The flow that a packet meets in a table: the one of highest priority among those that match.

Flows of one mask stand in one dictionary by value, so a look-up asks once for each mask, whatever the number of
flows; masks are asked in the order of the highest priority among their flows.
"""

from collections.abc import Iterable

from pipelines.flow import Flow
from pipelines.interpreter.packet import condition


class Classifier:
    """The flows of one table."""

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self._by_mask: dict[int, dict[int, Flow]] = {}
        for flow in flows:
            mask, value = condition(flow.match)
            same = self._by_mask.setdefault(mask, {})
            if value not in same or same[value].priority < flow.priority:
                same[value] = flow
        best = [(max(flow.priority for flow in same.values()), mask, same) for mask, same in self._by_mask.items()]
        self._ordered = sorted(best, key=lambda one: -one[0])

    def lookup(self, bits: int) -> Flow | None:
        """None: no flow matches, and the packet is dropped."""
        found: Flow | None = None
        for highest, mask, same in self._ordered:
            if found is not None and highest <= found.priority:
                break
            flow = same.get(bits & mask)
            if flow is not None and (found is None or flow.priority > found.priority):
                found = flow
        return found
