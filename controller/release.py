"""Letting a switch go: all that is ours leaves it, once an operator says so.

A switch whose Node is gone keeps its flows, since nobody can tell a slip from a farewell. It is cleared on order
only, and only while no Node names it. The order is carried out by the session's own thread, which alone writes.
"""

from collections.abc import Callable

from eventlet.event import Event
from msgspec import Struct

from controller import encode, roles
from controller.bundle import Committed, NotMaster, Rejected, commit
from controller.connection import Connection
from controller.reading import read


class Released(Struct, frozen=True):
    """What the switch held of ours; learned flows, which go as well, are not counted."""

    flows: int
    groups: int


class NotReleased(Exception):
    """Nothing was deleted, or it is not known what was; the text says why."""


class Release:
    """An order to one session. `ring` wakes it."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._asked: Event | None = None

    def ask(self, seconds: float) -> Released:
        """Waits until the session has done it. Raises NotReleased."""
        asked = self._asked = self._asked or Event()
        self._ring()
        outcome = asked.wait(seconds)
        if self._asked is asked:
            self._asked = None  # not begun: nor may it be, when nobody waits for it any more
        if isinstance(outcome, Released):
            return outcome
        raise NotReleased(outcome or f"it was not done within {seconds:g} s")

    def carry_out(self, connection: Connection, pause: Callable[[], None], timeout: float) -> None:
        """By the session's thread, while no Node names its switch. Raises what the connection raises."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        try:
            asked.send(release(connection, pause, timeout))
        except (NotReleased, roles.MasterLost) as reason:
            asked.send(str(reason))
        except Exception as error:
            asked.send(str(error))
            raise

    def refuse(self, why: str) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.send(why)


def release(connection: Connection, pause: Callable[[], None], timeout: float) -> Released:
    """Deletes every own flow and group, in one bundle. Raises NotReleased, MasterLost, and what the connection raises.

    `timeout` in seconds for each wait.
    """
    roles.claim_master(connection)
    rows = read(connection, pause)
    outcome = commit(connection, [encode.delete_own_flows(), *map(encode.delete_group, rows.groups)], timeout)
    if isinstance(outcome, Committed):
        return Released(len(rows.flows), len(rows.groups))
    if isinstance(outcome, Rejected):
        raise NotReleased(f"the switch refused: {'; '.join(map(str, outcome.errors.values()))}")
    if isinstance(outcome, NotMaster):
        raise NotReleased(f"another controller is its master: {outcome.error}")
    connection.close(f"the outcome of a bundle is not known: {outcome.reason}")
    raise NotReleased(f"what the switch did is not known: {outcome.reason}")
