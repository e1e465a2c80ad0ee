"""Connections that no unit allows any more: their conntrack entries are flushed.

A UDP client that keeps its port would go on reaching a removed endpoint for as long as it sends. After a
round was committed, what the old units allowed and no unit of the switch allows now is flushed by exact
service address and endpoint, in the service zone only. TCP is left alone: its ends notice by themselves.

Open vSwitch 3.1 may leave entries behind a flush that does not name the client, so it is repeated, and once
more a second later for connections that were committed by packets still on their way. A flush is executed
for a slave too, so only a session that is master may call this.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from controller import encode
from controller.connection import Connection
from controller.fleet import FLUSHED, Fleet
from controller.round import Installed, Step
from pipelines.fields import SERVICE_ZONE
from pipelines.unit import Scope, Tuple

REPEATS = 3


def gone(
    steps: Iterable[Step],
    fleet: Fleet,
    scopes: Collection[Scope],
    kept: Iterable[Installed],
    pause: Callable[[], None] = lambda: None,
) -> set[Tuple]:
    """What these steps no longer allow; all of a frontend at once where nothing of it is allowed any more.

    `kept`: what the switch holds of units that it refused to change.
    """
    still = {connection for installed in kept for connection in installed.allowed}
    served = {frontend_of(connection) for connection in still}
    found = set()
    for step in steps:
        if step.old is None or (step.new is not None and step.new.allowed == step.old.allowed):
            continue
        for connection in step.old.allowed:
            if connection.protocol not in FLUSHED or connection in still or fleet.allows(scopes, connection):
                continue
            whole = frontend_of(connection)
            found.add(connection if whole in served or fleet.serves(scopes, connection) else whole)
        pause()
    return found


def frontend_of(connection: Tuple) -> Tuple:
    """Stands for all connections of the frontend: the endpoint is the frontend itself, with port 0."""
    return connection._replace(endpoint=connection.frontend, endpoint_port=0)


def changed_frontends(steps: Iterable[Step], read: Installed) -> set[Tuple]:
    """After a read-back, when the old units are not known: the frontends whose group the switch had otherwise.

    Each as a Tuple without endpoint (port 0): every connection of the frontend is flushed.
    """
    frontends = set()
    for step in steps:
        for number, group in step.new.groups.items() if step.new else ():
            there = read.groups.get(number)
            if step.new and there is not None and there.content != group.content:
                flushed = [allowed for allowed in step.new.allowed if allowed.protocol in FLUSHED]
                frontends |= {frontend_of(allowed) for allowed in flushed}
    return frontends


def messages(connection: Connection, connections: Iterable[Tuple]) -> Iterator[bytes]:
    for one in sorted(connections):
        for _ in range(REPEATS):
            yield encode.ct_flush(connection.next_xid(), SERVICE_ZONE, one)
