"""Holds removals that look like an accident: a list that lost many objects at once is not believed at first.

An API server that was restored from a backup, or a directory whose file system is not mounted, shows an empty
cluster; obeying that would take every service down. So what such a list does not name is kept until a second
list agrees (from another origin, or from the same one some time later) or an operator confirms. Single
deletions that a watch reports never come here.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from pipelines.model import Kind

SHARE = 0.3  # of a kind: more than this at once is suspicious …
HANDFUL = 3  # … unless it is this many objects or fewer
SECOND_LIST_AFTER = 30.0  # seconds until the same origin may confirm itself


class Trust(Enum):
    """How far a list is believed about what it does not name."""

    FULL = "every removal is obeyed"
    USUAL = "mass removals are held"
    NONE = "every removal is held"


class Doubt(NamedTuple):
    """An object was first missed at `since`, in a list by `origin`."""

    since: float
    origin: str


class Guard:
    def __init__(
        self, share: float = SHARE, handful: int = HANDFUL, second_list_after: float = SECOND_LIST_AFTER
    ) -> None:
        self._share = share
        self._handful = handful
        self._after = second_list_after
        self._doubts: dict[tuple[Kind, str], Doubt] = {}

    def seen(self, kind: Kind, key: str) -> None:
        """Something definite was said about this object: no doubt is left."""
        self._doubts.pop((kind, key), None)

    def obeyed(
        self, kind: Kind, missing: Sequence[str], total: int, now: float, origin: str, trust: Trust
    ) -> list[str]:
        """Which of the `missing` keys really go, out of `total` objects; the others are held."""
        usual = len(missing) <= self._handful or len(missing) <= self._share * total
        if trust is Trust.FULL or (trust is Trust.USUAL and usual):
            return list(missing)
        gone = []
        for key in missing:
            doubt = self._doubts.setdefault((kind, key), Doubt(now, origin))
            if doubt.origin != origin or now - doubt.since >= self._after:
                gone.append(key)
        return gone

    def release(self) -> list[tuple[Kind, str]]:
        """Everything that is held, no longer held."""
        keys = sorted(self._doubts)
        self._doubts.clear()
        return keys

    def held(self) -> tuple[tuple[Kind, str], ...]:
        return tuple(sorted(self._doubts))

    def recheck_in(self, kind: Kind, now: float) -> float | None:
        since = [doubt.since for (of, _), doubt in self._doubts.items() if of is kind]
        return max(0.0, min(since) + self._after - now) if since else None
