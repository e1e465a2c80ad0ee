"""What the source last said about every object, and what changed: pure, and level-triggered.

A watch says what one object is now (`put`); a list says what there is of one kind (`replace`), and what it
does not name has gone, unless `guard` holds that. Only real differences come out, so events may be repeated,
squashed or come in any order: the last word about each object is what counts. With one exception, the same as for
a manifest file that is broken: a word that cannot be used at all does not take away what was good before.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from k8s_bridge.guard import Guard, Trust
from k8s_bridge.slices import Pause, no_pause
from k8s_bridge.source import KINDS, value_problems
from pipelines.model import Change, EndpointSlice, Invalid, Kind, Node, Pod, Problem, Service, ServiceCidr, Value

KEPT = "cannot be used as it is now, so what it said before is kept"


class Mirror:
    """Objects by kind and key. Values are never None: what is not for us is not here."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._values: dict[Kind, dict[str, Value]] = {kind: {} for kind in KINDS}
        self._problems: dict[tuple[Kind, str], tuple[Problem, ...]] = {}  # only of objects that have any

    def put(self, kind: Kind, key: str, value: Value | None) -> list[Change]:
        """One object is now `value`; None: gone, or none of our business. Obeyed, whatever it is.

        `Invalid` leaves a good value as it was, but for its problems.
        """
        values = self._values[kind]
        if isinstance(value, Invalid):
            value = _kept(kind, key, values.get(key), value)
        self._guard.seen(kind, key)
        if problems := value_problems(value):
            self._problems[kind, key] = problems
        else:
            self._problems.pop((kind, key), None)
        if value is None:
            return [Change(kind, key, None)] if values.pop(key, None) is not None else []
        if values.get(key) == value:
            return []
        values[key] = value
        return [Change(kind, key, value)]

    def replace(
        self,
        kind: Kind,
        listing: Mapping[str, Value],
        now: float,
        origin: str = "",
        *,
        trust: Trust = Trust.USUAL,
        pause: Pause = no_pause,
    ) -> list[Change]:
        """Everything there is of one kind, as listed by `origin` at `now` (seconds, monotonic).

        Changes and additions are obeyed; removals too, unless the guard holds them. `pause` is called often;
        nobody else may touch this kind meanwhile.
        """
        changes = []
        values = self._values[kind]
        for key, value in listing.items():
            pause()
            changes += self.put(kind, key, value)
        missing = [key for key in values if key not in listing]
        gone = self._guard.obeyed(kind, missing, len(values), now, origin, trust)
        return changes + self._remove((kind, key) for key in sorted(gone))

    def confirm(self) -> list[Change]:
        """Remove what was held."""
        return self._remove(self._guard.release())

    def held(self) -> tuple[tuple[Kind, str], ...]:
        return self._guard.held()

    def recheck_in(self, kind: Kind, now: float) -> float | None:
        """Seconds until a second list may release what is held of this kind; None: nothing is."""
        return self._guard.recheck_in(kind, now)

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the objects, in order of kind and key."""
        return tuple(problem for key in sorted(self._problems) for problem in self._problems[key])

    def counts(self) -> dict[str, int]:
        return {kind.value: len(values) for kind, values in self._values.items()}

    def _remove(self, keys: Iterable[tuple[Kind, str]]) -> list[Change]:
        return [change for kind, key in keys for change in self.put(kind, key, None)]


def _kept(kind: Kind, key: str, known: Value | None, now: Invalid) -> Value:
    if not isinstance(known, Node | Pod | Service | EndpointSlice | ServiceCidr):
        return now
    return replace(known, problems=(*now.problems, Problem(kind, key, "object", KEPT)))
