"""The smaller OpenFlow 1.5 messages that a controller sends. `xid` is always the first argument."""

from collections.abc import Iterable
from struct import Struct, pack

from controller.instructions import action_bytes
from controller.rows import REMOVED_IDLE
from pipelines import ids
from pipelines.actions import CONTROLLER_PORT, Action
from pipelines.addresses import Ip
from pipelines.fields import SCTP
from pipelines.unit import Tuple

VERSION = 6
LAST_CONNECTION_XID = 0xFFFF  # xids from 1 to here are for messages of one connection; those above are `encode.Xids`

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
FEATURES_REQUEST, FEATURES_REPLY, SET_CONFIG = 5, 6, 9
PACKET_IN, FLOW_REMOVED, PORT_STATUS, PACKET_OUT, FLOW_MOD, GROUP_MOD = 10, 11, 12, 13, 14, 15
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
ROLE_REQUEST, ROLE_REPLY, SET_ASYNC, METER_MOD, ROLE_STATUS = 24, 25, 28, 29, 30
BUNDLE_CONTROL, BUNDLE_ADD = 33, 34

BUNDLE_ID = 0x5B
BUNDLE_FLAGS = 3  # atomic and ordered
OPEN, CLOSE, COMMIT, DISCARD = 0, 2, 4, 6
NO_CHANGE, EQUAL, MASTER, SLAVE = 0, 1, 2, 3
FLOW_DESC, GROUP_DESC, METER_CONFIG, PORT_DESC = 1, 7, 10, 13
METER_ADD, METER_MODIFY, METER_DELETE = 0, 1, 2
METER_PACKETS, METER_BURST, BAND_DROP = 2, 4, 1
ANY = NO_BUFFER = 0xFFFFFFFF
ALL_TABLES = 0xFF
NICIRA, CT_FLUSH = 0x2320, 32
CT_ORIGINAL, CT_REPLY, CT_ZONE = 0, 1, 2
CT_SRC, CT_DST, CT_SPORT, CT_DPORT = 0, 1, 2, 3

_header = Struct("!BBHI").pack


def message(xid: int, kind: int, body: bytes = b"") -> bytes:
    return _header(VERSION, kind, 8 + len(body), xid) + body


def hello(xid: int) -> bytes:
    """With a bitmap that names OpenFlow 1.5 only."""
    return message(xid, HELLO, pack("!HHI", 1, 8, 1 << VERSION))


def hello_failed(xid: int, reason: str) -> bytes:
    """The error that says why a hello was not good enough; the switch logs its text."""
    return message(xid, ERROR, pack("!HH", 0, 0) + reason.encode("ascii", "replace")[:1024])


def echo_request(xid: int) -> bytes:
    return message(xid, ECHO_REQUEST)


def echo_reply(request: bytes) -> bytes:
    """To a whole echo request: same xid, same data, in our version."""
    return message(int.from_bytes(request[4:8], "big"), ECHO_REPLY, request[8:])


def features_request(xid: int) -> bytes:
    return message(xid, FEATURES_REQUEST)


def barrier(xid: int) -> bytes:
    return message(xid, BARRIER_REQUEST)


def role_query(xid: int) -> bytes:
    return message(xid, ROLE_REQUEST, pack("!I4xQ", NO_CHANGE, 0))


def role_master(xid: int, generation: int) -> bytes:
    return message(xid, ROLE_REQUEST, pack("!I4xQ", MASTER, generation))


def _multipart(xid: int, kind: int, body: bytes = b"") -> bytes:
    return message(xid, MULTIPART_REQUEST, pack("!HH4x", kind, 0) + body)


def port_desc_request(xid: int) -> bytes:
    return _multipart(xid, PORT_DESC, pack("!I4x", ANY))


def flow_desc_request(xid: int) -> bytes:
    """Own flows of all tables, without those that were learned."""
    body = pack("!B3xII4xQQ", ALL_TABLES, ANY, ANY, ids.OWN_COOKIE, ids.NOT_LEARNED_MASK)
    return _multipart(xid, FLOW_DESC, body + pack("!HH4x", 1, 4))


def group_desc_request(xid: int) -> bytes:
    return _multipart(xid, GROUP_DESC, pack("!I4x", 0xFFFFFFFC))


def meter_config_request(xid: int) -> bytes:
    """All meters."""
    return _multipart(xid, METER_CONFIG, pack("!I4x", ANY))


def meter_mod(xid: int, meter: int, packets: int, burst: int, *, modify: bool = False) -> bytes:
    """A meter that drops above `packets` per second after `burst` packets. Not allowed in a bundle."""
    command = METER_MODIFY if modify else METER_ADD
    band = pack("!HHII4x", BAND_DROP, 16, packets, burst)
    return message(xid, METER_MOD, pack("!HHI", command, METER_PACKETS | METER_BURST, meter) + band)


def meter_delete(xid: int, meter: int) -> bytes:
    """Open vSwitch deletes the flows that use it as well."""
    return message(xid, METER_MOD, pack("!HHI", METER_DELETE, 0, meter))


def _bundle(xid: int, control: int) -> bytes:
    return message(xid, BUNDLE_CONTROL, pack("!IHH", BUNDLE_ID, control, BUNDLE_FLAGS))


def bundle_open(xid: int) -> bytes:
    return _bundle(xid, OPEN)


def bundle_close(xid: int) -> bytes:
    return _bundle(xid, CLOSE)


def bundle_commit(xid: int) -> bytes:
    return _bundle(xid, COMMIT)


def bundle_discard(xid: int) -> bytes:
    return _bundle(xid, DISCARD)


def packet_out(xid: int, data: bytes, actions: tuple[Action, ...], in_port: int = CONTROLLER_PORT) -> bytes:
    """`data`: a whole frame. Raises ValueError when an action or the frame does not fit."""
    written = b"".join([action_bytes(action) for action in actions])
    match = pack("!HHIIxxxx", 1, 12, 0x80000004, in_port)
    body = pack("!IH2x", NO_BUFFER, len(written)) + match + written + data
    if len(body) + 8 > 0xFFFF:
        raise ValueError(f"a frame of {len(data)} bytes does not fit in an OpenFlow message")
    return message(xid, PACKET_OUT, body)


# The reasons that each kind of asynchronous message may have, as properties of SET_ASYNC.
PACKET_IN_SLAVE, PACKET_IN_MASTER, PORT_STATUS_SLAVE, PORT_STATUS_MASTER = 0, 1, 2, 3
FLOW_REMOVED_SLAVE, FLOW_REMOVED_MASTER, ROLE_STATUS_SLAVE, ROLE_STATUS_MASTER = 4, 5, 6, 7
EXPLICIT_PACKET_INS = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5  # miss, action, action set, group, packet-out


def set_async(xid: int) -> bytes:
    """A master gets packet-ins, port changes, and which flows that ask for it were not used; a slave port changes.

    Not which flows were deleted: with one endpoint may go what thousands of clients were given.
    """
    reasons = (
        (PACKET_IN_SLAVE, 0),
        (PACKET_IN_MASTER, EXPLICIT_PACKET_INS),
        (PORT_STATUS_SLAVE, 7),
        (PORT_STATUS_MASTER, 7),
        (FLOW_REMOVED_SLAVE, 0),
        (FLOW_REMOVED_MASTER, 1 << REMOVED_IDLE),
        (ROLE_STATUS_SLAVE, 7),
        (ROLE_STATUS_MASTER, 7),
    )
    return message(xid, SET_ASYNC, b"".join(pack("!HHI", kind, 8, mask) for kind, mask in reasons))


def ct_flush(xid: int, zone: int | None, connection: Tuple) -> bytes:
    """Forget the connections of a frontend to an endpoint, or to any when `endpoint_port` is 0, in one zone.

    The unspecified address as frontend stands for every address with this port: that of a NodePort.

    Raises ValueError for a missing zone: without one Open vSwitch would flush ALL zones. As Open vSwitch 3.1 leaves
    some of the matches behind, repeat it.
    """
    original: Iterable[tuple[int, bytes]] = ((CT_DPORT, pack("!H", connection.frontend_port)),)
    if connection.frontend.value:
        original = ((CT_DST, _mapped(connection.frontend)), *original)
    reply: Iterable[tuple[int, bytes]] = ()
    if connection.endpoint_port:
        reply = ((CT_SRC, _mapped(connection.endpoint)), (CT_SPORT, pack("!H", connection.endpoint_port)))
    if connection.protocol == SCTP:  # the userspace datapath knows its connections by addresses alone
        original = tuple(one for one in original if one[0] != CT_DPORT)
        reply = tuple(one for one in reply if one[0] != CT_SPORT)
        if not original and not reply:
            raise ValueError("an SCTP flush wants an address")
    return _ct_flush(xid, zone, connection.protocol, original, reply)


def ct_flush_exact(
    xid: int, zone: int | None, protocol: int, client: Ip, client_port: int, server: Ip, port: int
) -> bytes:
    """Forget exactly one connection, named as its first packet was before any translation. Raises as `ct_flush`."""
    original = (
        (CT_SRC, _mapped(client)),
        (CT_DST, _mapped(server)),
        (CT_SPORT, pack("!H", client_port)),
        (CT_DPORT, pack("!H", port)),
    )
    return _ct_flush(xid, zone, protocol, original, ())


def _ct_flush(
    xid: int,
    zone: int | None,
    protocol: int,
    original: Iterable[tuple[int, bytes]],
    reply: Iterable[tuple[int, bytes]],
) -> bytes:
    if zone is None or not 0 < zone <= 0xFFFF:
        raise ValueError(f"a conntrack flush wants a zone, not {zone!r}")
    tuples = b"".join(
        _tlv(kind, pack("!4x") + b"".join(_tlv(inner, value) for inner, value in fields))
        for kind, fields in ((CT_ORIGINAL, original), (CT_REPLY, reply))
        if fields
    )
    body = pack("!IIB7x", NICIRA, CT_FLUSH, protocol) + tuples + _tlv(CT_ZONE, pack("!H", zone))
    return message(xid, EXPERIMENTER, body)


def _tlv(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return pack("!HH", kind, size) + value + bytes(-size % 8)


def _mapped(ip: Ip) -> bytes:
    """16 bytes, an IPv4 address as an IPv4-mapped one."""
    return (ip.value if ip.family == 6 else 0xFFFF << 32 | ip.value).to_bytes(16, "big")
