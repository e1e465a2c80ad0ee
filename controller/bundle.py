"""One bundle, and the three ways it can end.

OVS reports most errors when a message is added, leaves the bundle open all the same, and would apply the rest
at a commit. So the commit is asked for only after the reply to CLOSE, the fence behind all adds, and only
when no add failed. Errors that OVS finds at the commit (an unknown group) come with the failing add's xid,
followed by the failure of the commit itself; then nothing was applied.

When no answer comes, nobody knows what the switch did: that is an outcome of its own, and never taken for a
failure. The connection is closed and the switch is read back when it returns.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from controller import encode, readback
from controller.connection import Connection, ConnectionLost, Refused, TimedOut

CHUNK = 1 << 16


class Committed(Struct, frozen=True):
    """Every message was applied, all at once."""


class Rejected(Struct, frozen=True):
    """Nothing was applied. `errors` by the xid of the add that failed."""

    errors: dict[int, readback.SwitchError]


class NotMaster(Struct, frozen=True):
    """Nothing was applied: another controller is this switch's master."""

    error: readback.SwitchError


class Unknown(Struct, frozen=True):
    """Applied or not: it cannot be known. The connection has to go."""

    reason: str


Outcome = Committed | Rejected | NotMaster | Unknown


def commit(connection: Connection, messages: Iterable[bytes], timeout: float) -> Outcome:
    """Sends whole bundle-add messages as one atomic, ordered bundle. `timeout` in seconds for each wait."""
    try:
        with connection.errors() as errors:
            connection.send(encode.bundle_open(connection.next_xid()), timeout)
            for chunk in chunks(messages):
                connection.send(chunk, timeout)
            closed = _control(connection, encode.bundle_close(connection.next_xid()), timeout)
            if closed is None and not errors:
                committed = _control(connection, encode.bundle_commit(connection.next_xid()), timeout)
                if committed is None:
                    return Committed()
                return _failure(errors, committed)
            with suppress(Refused):
                connection.request(encode.bundle_discard(connection.next_xid()), timeout)
            return _failure(errors, closed)
    except (TimedOut, ConnectionLost) as end:
        return Unknown(str(end))


def _control(connection: Connection, message: bytes, timeout: float) -> readback.SwitchError | None:
    try:
        connection.request(message, timeout)
    except Refused as refused:
        return refused.error
    return None


def _failure(errors: list[readback.SwitchError], control: readback.SwitchError | None) -> Outcome:
    for error in (*errors, *([control] if control else ())):
        if error.is_secondary:
            return NotMaster(error)
    if not errors:
        return Unknown(f"the bundle failed as a whole: {control}")
    first: dict[int, readback.SwitchError] = {}
    for error in errors:
        first.setdefault(error.xid, error)
    return Rejected(first)


def chunks(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Messages joined to pieces of about CHUNK bytes, never cut."""
    pending: list[bytes] = []
    size = 0
    for message in messages:
        pending.append(message)
        size += len(message)
        if size >= CHUNK:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
