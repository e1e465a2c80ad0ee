"""Connections that no unit allows any more: their conntrack entries are flushed.

A UDP client that keeps its port would go on reaching a removed endpoint for as long as it sends. After a
round was committed, what the old units allowed and no unit of the switch allows now is flushed by exact
service address and endpoint, in the service zone only; after a read-back, when the old units are not known, by
the service addresses in the flows that were read. TCP is left alone: its ends notice by themselves.

Open vSwitch 3.1 may leave entries behind a flush that does not name the client, so it is repeated, and once
more a second later for connections that were committed by packets still on their way: those that are not
allowed then either. A flush is executed for a slave too, so only a session that is master may call this.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from controller import encode, readback
from controller.connection import Connection
from controller.fleet import FLUSHED, Fleet
from controller.round import Installed, Round, Step
from pipelines import fields
from pipelines.actions import ToGroup
from pipelines.addresses import Ip
from pipelines.fields import SERVICE_ZONE
from pipelines.unit import Scope, Tuple

REPEATS = 3
GROUP_ACTION = bytes((0, 22, 0, 8))  # as it begins in a flow's instructions: a cheap sieve

Flushed = Mapping[Tuple, Collection[Tuple] | None]
"""What is flushed, and the connections that it stands for, as far as they are known. None: whether allowed or not."""


def gone(
    steps: Iterable[Step],
    fleet: Fleet,
    scopes: Collection[Scope],
    kept: Iterable[Installed],
    pause: Callable[[], None] = lambda: None,
) -> Flushed:
    """What these steps no longer allow; all of a frontend at once where nothing of it is allowed any more.

    `kept`: what the switch holds of units that it refused to change.
    """
    still = {connection for installed in kept for connection in installed.allowed}
    served = {frontend_of(connection) for connection in still}
    found: dict[Tuple, set[Tuple]] = {}
    for step in steps:
        if step.old is None or (step.new is not None and step.new.allowed == step.old.allowed):
            continue
        for connection in step.old.allowed:
            if connection.protocol not in FLUSHED or connection in still or fleet.allows(scopes, connection):
                continue
            whole = frontend_of(connection)
            flushed = connection if whole in served or fleet.serves(scopes, connection) else whole
            found.setdefault(flushed, set()).add(connection)
        pause()
    return found


def once_more(
    flushed: Flushed,
    fleet: Fleet,
    scopes: Collection[Scope],
    kept: Iterable[Installed],
    pause: Callable[[], None] = lambda: None,
) -> set[Tuple]:
    """What of it is not allowed now either: connections that became allowed again were begun anew since then."""
    still = {connection for installed in kept for connection in installed.allowed}
    served = {frontend_of(connection) for connection in still}
    found = set()
    for one, connections in flushed.items():
        if connections is None or (frontend_of(one) not in served and not fleet.serves(scopes, one)):
            found.add(one)
        else:
            found |= {each for each in connections if each not in still and not fleet.allows(scopes, each)}
        pause()
    return found


def frontend_of(connection: Tuple) -> Tuple:
    """Stands for all connections of the frontend: the endpoint is the frontend itself, with port 0.

    SCTP of a NodePort stands for itself: without ports and without an address only its endpoint can be named.
    """
    if _nameless(connection):
        return connection
    return connection._replace(endpoint=connection.frontend, endpoint_port=0)


def _nameless(connection: Tuple) -> bool:
    return connection.protocol == fields.SCTP and not connection.frontend.value


def forgotten(read: Installed, sent: Round) -> set[Tuple]:
    """After a read-back, when what was allowed is not known: frontends that led to a group and do not lead there now.

    `read`: what the switch held; `sent`: what was done about it. A frontend counts when its flow was replaced or
    removed, or its group has become another; all of its connections are flushed.
    """
    touched = {flow.key for flow in sent.flows_in} | {flow.key for flow in sent.flows_out}
    groups = {group.id for group in (*sent.groups_in, *sent.groups_out)} & read.groups.keys()
    if not touched and not groups:
        return set()
    return {
        frontend
        for row in read.flows.values()
        if isinstance(row, readback.FlowRow) and GROUP_ACTION in row.instructions
        for frontend in _frontends(row, row.key in touched, groups)
    }


def _frontends(row: readback.FlowRow, touched: bool, groups: Collection[int]) -> Iterator[Tuple]:
    """Address and port in the match of a flow that leads to one of the groups, or to any when touched.

    A NodePort has no address of its own: the unspecified one of its family.
    """
    try:
        flow = readback.decode_flow(row)
    except readback.DecodeError:
        return  # not written by us
    if not touched and not any(isinstance(action, ToGroup) and action.group in groups for action in flow.actions):
        return
    exact = {item.field: item.value for item in flow.match if item.mask is None}
    protocol = exact.get(fields.IP_PROTO, 0)
    port = exact.get(fields.L4_DST[protocol]) if protocol in FLUSHED else None
    family = next((number for number, is_ip in fields.ETH.items() if exact.get(fields.ETH_TYPE) == is_ip.value), None)
    if port is not None and family is not None:
        address = Ip(family, exact.get(fields.IP_DST[family], 0))
        frontend = Tuple(protocol, address, port, address, 0)
        if not _nameless(frontend):
            yield frontend


def messages(connection: Connection, connections: Iterable[Tuple]) -> Iterator[bytes]:
    for one in sorted(connections):
        for _ in range(REPEATS):
            yield encode.ct_flush(connection.next_xid(), SERVICE_ZONE, one)
