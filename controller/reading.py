"""Reading a switch back: its own flows and groups, by struct, without decoding what they say.

Only cookies of our mark are asked for, and none of learned flows: those belong to the switch.
"""

from collections.abc import Callable

from controller import encode, readback
from controller.connection import Connection
from controller.round import Rows
from pipelines.ids import FIRST_GROUP, LAST_GROUP


def read(connection: Connection, pause: Callable[[], None]) -> Rows:
    """All flows that we wrote and all groups in our range."""
    flows: dict[bytes, readback.FlowRow] = {}
    for part in connection.parts(encode.flow_desc_request(connection.next_xid())):
        for row in readback.flows(part.data):
            flows[row.key] = row
            pause()
    groups: dict[int, readback.GroupRow] = {}
    for part in connection.parts(encode.group_desc_request(connection.next_xid())):
        for group in readback.groups(part.data):
            if FIRST_GROUP <= group.id <= LAST_GROUP:
                groups[group.id] = group
            pause()
    return Rows(flows, groups)


def drops(connection: Connection, pause: Callable[[], None]) -> dict[bytes, int]:
    """How many packets each of our flows has dropped, by its key, since the switch got it. Not those with none."""
    found: dict[bytes, int] = {}
    for part in connection.parts(encode.flow_desc_request(connection.next_xid())):
        for key, packets in readback.dropped(part.data):
            if packets:
                found[key] = packets
            pause()
    return found
