"""What a sender is told whose packet does not fit in the tunnel: how large its packets may be (RFC 1191, RFC 8201).

The answer comes from the node's gateway address and goes through the pipeline as if by the tunnel, so that the
sender of a translated connection is told about the connection that it knows. `TooBig` is the packet-in handler.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from controller import encode
from controller.connection import ConnectionLost, TimedOut
from controller.icmp import ICMP, ICMP6, error, may_be_told, sent
from controller.readback import PacketIn
from pipelines.actions import Resubmit, load
from pipelines.addresses import Ip
from pipelines.fields import ENTERED_BY, Entered
from pipelines.tables import UNSNAT

if TYPE_CHECKING:
    from controller.session import Session

FRAGMENTATION_NEEDED, PACKET_TOO_BIG = (3, 4), (2, 0)
# Echoes, both ways: who answers with too much has to know as well. Everything else may be an error itself.
_ECHOES = {ICMP: (0, 8, 13, 14), ICMP6: (128, 129)}
_BACK = (load(ENTERED_BY, Entered.TUNNEL), Resubmit(UNSNAT.id))


class Limit(NamedTuple):
    """What a node says: from which address, and how many bytes fit, the IP header included."""

    gateway: Ip
    mtu: int


def too_big(frame: bytes, limit: Callable[[int], Limit | None]) -> bytes | None:
    """The frame that tells the sender; `limit` says what holds for a family. None when nothing may be said."""
    packet = sent(frame)
    if packet is None or not may_be_told(packet, _ECHOES):
        return None
    size = len(packet.source)
    found = limit(4 if size == 4 else 6)
    if found is None:
        return None
    return error(
        packet, found.gateway.value.to_bytes(size), FRAGMENTATION_NEEDED if size == 4 else PACKET_TOO_BIG, found.mtu
    )


class TooBig:
    """`limit`: of a node, by its name, and a family. Counts what was answered and what could not be."""

    def __init__(self, limit: Callable[[str, int], Limit | None]) -> None:
        self.told = self.ignored = 0
        self._limit = limit

    def __call__(self, session: "Session", packet: PacketIn) -> None:
        reply = too_big(packet.data, lambda family: self._limit(session.node, family))
        if reply is None:
            self.ignored += 1
            return
        connection = session.connection
        try:
            connection.send(encode.packet_out(connection.next_xid(), reply, _BACK))
        except (ConnectionLost, TimedOut):
            self.ignored += 1  # the sender sends again
        else:
            self.told += 1
