"""What a sender is told whose packet does not fit in the tunnel: how large its packets may be (RFC 1191, RFC 8201).

The answer comes from the node's gateway address; for the host, which would not believe what comes from an address of
its own, from the address that it sent to. A packet may have been translated on its way here, and its sender knows only
the connection as it opened it. So what the answer quotes is the connection's first tuple, which the switch tells with
the packet, and the answer is routed back at once: connection tracking does not know a connection whose first packet was
too big, and Open vSwitch 3.1 damages IPv6 addresses inside of the ICMP errors that it translates. What only connection
tracking can translate goes through the pipeline as if it came by the tunnel: answers to replies (in IPv6 only where a
service is concerned), and to clients that are not on this node. `TooBig` is the packet-in handler.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from controller import encode
from controller.connection import ConnectionLost, TimedOut
from controller.icmp import ETHERNET, ICMP, ICMP6, SCTP, TCP, UDP, Sent, error, header_checksum, may_be_told, sent
from controller.oxm import WIRE
from controller.readback import PacketIn
from pipelines.actions import Action, Resubmit, load
from pipelines.addresses import Ip
from pipelines.fields import CT_MARK, CT_SERVICE, CT_STATE, CT_STATE_BITS, ENTERED_BY, Entered
from pipelines.tables import ROUTE, UNSNAT

if TYPE_CHECKING:
    from controller.session import Session

FRAGMENTATION_NEEDED, PACKET_TOO_BIG = (3, 4), (2, 0)
# Echoes, both ways: who answers with too much has to know as well. Everything else may be an error itself.
_ECHOES = {ICMP: (0, 8, 13, 14), ICMP6: (128, 129)}
_HERE = (Entered.POD, Entered.LOCAL, Entered.GATEWAY)
_ROUTED, _TRANSLATED_BACK = (
    (load(ENTERED_BY, Entered.TUNNEL), Resubmit(ROUTE.id)),
    (load(ENTERED_BY, Entered.TUNNEL), Resubmit(UNSNAT.id)),
)

# What a switch says of a packet beside its bytes, by OXM class and field.
_STATE = WIRE[CT_STATE].header >> 16, WIRE[CT_STATE].header >> 9 & 0x7F
_MARK = WIRE[CT_MARK].header >> 16, WIRE[CT_MARK].header >> 9 & 0x7F
_REGISTERS_0_1 = 0x8001, 0
_FIRST_TUPLE = {4: ((1, 120), (1, 121)), 16: ((1, 122), (1, 123))}  # source and destination, by length of an address
_FIRST_PORTS = (1, 124), (1, 125)
_PORTS = Struct("!HH")


class Limit(NamedTuple):
    """What a node says: from which address, and how many bytes fit, the IP header included."""

    gateway: Ip
    mtu: int


class Told(NamedTuple):
    """A frame for the sender, and what the switch shall do with it."""

    frame: bytes
    actions: tuple[Action, ...]


def too_big(packet_in: PacketIn, limit: Callable[[int], Limit | None]) -> Told | None:
    """`limit` says what holds for a family. None when nothing may be said."""
    packet = sent(packet_in.data)
    if packet is None or not may_be_told(packet, _ECHOES):
        return None
    size = len(packet.source)
    found = limit(4 if size == 4 else 6)
    if found is None:
        return None
    known = packet_in.metadata
    entered = known.get(_REGISTERS_0_1, 0) >> (32 + ENTERED_BY.low) & (1 << ENTERED_BY.bits) - 1
    reply = known.get(_STATE, 0) & CT_STATE_BITS["rpl"]
    service = known.get(_MARK, 0) >> CT_SERVICE.low & 1
    routed = entered in _HERE and not (reply and (service or size == 4))
    if routed and not reply:
        packet = _as_it_was_sent(packet, known)
    source = packet.destination if entered == Entered.LOCAL else found.gateway.value.to_bytes(size)
    frame = error(packet, source, FRAGMENTATION_NEEDED if size == 4 else PACKET_TOO_BIG, found.mtu)
    return Told(frame, _ROUTED if routed else _TRANSLATED_BACK)


def _as_it_was_sent(packet: Sent, metadata: Mapping[tuple[int, int], int]) -> Sent:
    """With the addresses and ports of the connection's first tuple; the packet itself when it has none."""
    size = len(packet.source)
    source, destination = (metadata.get(part) for part in _FIRST_TUPLE[size])
    if source is None or destination is None:
        return packet
    pair = source.to_bytes(size), destination.to_bytes(size)
    frame = bytearray(packet.frame)
    at = ETHERNET + (12 if size == 4 else 8)
    frame[at : at + 2 * size] = b"".join(pair)
    if size == 4:
        frame[ETHERNET + 10 : ETHERNET + 12] = header_checksum(frame[ETHERNET : packet.upper])
    if packet.protocol in (TCP, UDP, SCTP) and all(part in metadata for part in _FIRST_PORTS):
        _PORTS.pack_into(frame, packet.upper, *(metadata[part] for part in _FIRST_PORTS))
    return packet._replace(frame=bytes(frame), source=pair[0], destination=pair[1])


class TooBig:
    """`limit`: of a node, by its name, and a family. Counts what was answered and what could not be."""

    def __init__(self, limit: Callable[[str, int], Limit | None]) -> None:
        self.told = self.ignored = 0
        self._limit = limit

    def __call__(self, session: "Session", packet: PacketIn) -> None:
        reply = too_big(packet, lambda family: self._limit(session.node, family))
        if reply is None:
            self.ignored += 1
            return
        connection = session.connection
        try:
            connection.send(encode.packet_out(connection.next_xid(), *reply))
        except (ConnectionLost, TimedOut):
            self.ignored += 1  # the sender sends again
        else:
            self.told += 1
