"""Session affinity that is longer than a flow can have: says of what a switch has forgotten whether it goes on.

Known are the cookies of what switches learn for services with such an affinity, as of the last revision. A service,
endpoint or affinity that is gone by then is not among them.
"""

from controller.readback import FlowRemoved
from controller.renewal import Rest
from pipelines.actions import SetField
from pipelines.derived import Derived, ServiceBackends
from pipelines.features import affinity
from pipelines.features.affinity import PUT_BACK_AT, Unused
from pipelines.unit import Revision
from pipelines.view import Facts

FEATURE = affinity.FEATURES[0].name


class LongAffinity:
    """`follow` is called with each revision before anything else is compiled."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._kept: dict[str, dict[int, tuple[SetField, ...]]] = {}  # by service port
        self._service_port: dict[int, str] = {}  # by cookie

    def follow(self, revision: Revision) -> None:
        for change in revision.changes:
            if change.key.feature == FEATURE:
                self._follow(change.key.key)

    def _follow(self, key: str) -> None:
        for cookie in self._kept.pop(key, ()):
            self._service_port.pop(cookie, None)
        backends = self._backends(key)
        if backends is not None and (kept := affinity.kept(backends)):
            self._kept[key] = kept
            self._service_port.update(dict.fromkeys(kept, key))

    def _backends(self, key: str) -> ServiceBackends | None:
        found: ServiceBackends | None = self._facts.peek(Derived.SERVICE_PORT).get(key)
        return found

    def __call__(self, removed: FlowRemoved) -> Rest | None:
        """Nobody has used this flow for its time."""
        key = self._service_port.get(removed.cookie)
        backends = self._backends(key) if key is not None else None
        if key is None or backends is None:
            return None
        unused = Unused(removed.idle_timeout, removed.priority, removed.packets)
        seconds = affinity.rest(backends.affinity, unused)
        return Rest(seconds, PUT_BACK_AT, self._kept[key][removed.cookie]) if seconds else None
