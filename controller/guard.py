"""The removal guard: a read-back that would remove much is not believed at first sight.

An API server that answers with half a list, or a manifest directory that was not mounted, makes most flows of
a switch look superfluous. Then what is missing is added at once and what is too much is kept, until a second
look some time later, with the source in sync, comes to the same answer, or a person confirms. While the source
knows that objects may be missing (a manifest that was broken at the start), it is not a matter of how many.

What is replaced is no loss: flows of a unit that the switch goes on carrying, with others in their place. After an
upgrade that may be most of them, and old ones beside new ones would send packets wrong ways.
"""

from enum import Enum

from msgspec import Struct


class Allowed(Enum):
    """Which removals may go now."""

    ALL = "all"
    REPLACED = "what is replaced"
    NONE = "none"


class GuardRule(Struct, frozen=True):
    """Losses above `share` of the own flows read back and above `least` are held for `delay` seconds."""

    share: float = 0.3
    least: int = 30
    delay: float = 60


class Guard:
    """The guard of one session. Times are seconds of any one clock."""

    def __init__(self, rule: GuardRule) -> None:
        self._rule = rule
        self._since: float | None = None
        self._confirmed = False
        self.held = 0  # removals that wait

    @property
    def due(self) -> float | None:
        """When to look again; None when nothing is held."""
        if self._since is None:
            return None
        return self._since if self._confirmed else self._since + self._rule.delay

    def confirm(self) -> None:
        """A person agrees: what is held now may go."""
        if self._since is not None:
            self._confirmed = True

    def allows(self, removals: int, lost: int, read: int, now: float, in_sync: bool) -> Allowed:
        """Which of `removals` of `read` flows and groups may go now; the rest is held. `lost`: those not replaced.

        `in_sync`: the source has no reason to think that objects are missing.
        """
        few = lost <= self._rule.least or lost <= self._rule.share * read
        if not removals or (few and in_sync):
            self._release()
            return Allowed.ALL
        second_look = self._since is not None and now >= self._since + self._rule.delay and in_sync
        if self._confirmed or second_look:
            self._release()
            return Allowed.ALL
        if self._since is None or now >= self._since + self._rule.delay:
            self._since = now  # not in sync at the second look: later again
        self.held = lost if in_sync else removals
        return Allowed.REPLACED if in_sync else Allowed.NONE

    def _release(self) -> None:
        self._since, self._confirmed, self.held = None, False, 0
