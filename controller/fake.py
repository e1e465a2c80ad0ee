"""A switch that is not there: speaks OpenFlow 1.5 over a stream, keeps tables, and fails when told to.

It behaves as Open vSwitch 3.1 was seen to: an add that is refused leaves the bundle open and a commit applies
the rest; what only a commit can find makes all of it fail, names the add, then the commit; a second OPEN
destroys the bundle; one master at a time, by generation id; a slave is refused.

Faults are planned by the number of the message, counted from `arm`: answer late, apply and say nothing, lose
the message, refuse it, close before or after, stop reading.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar

import eventlet
from eventlet.green import socket as green
from eventlet.semaphore import Semaphore
from msgspec import Struct

from controller.connection import PlainStream, Stream
from controller.fake_tables import ANY, Failure, Tables, flow_desc, group_desc
from controller.hub import Gate

(HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER, FEATURES, PACKET_IN, FLOW_REMOVED, PORT_STATUS, PACKET_OUT) = (
    0, 1, 2, 3, 4, 5, 10, 11, 12, 13,
)  # fmt: skip
FLOW_MOD, GROUP_MOD, MULTIPART, BARRIER, ROLE, SET_ASYNC, METER_MOD, ROLE_STATUS, BUNDLE, BUNDLE_ADD = (
    14, 15, 18, 20, 24, 28, 29, 30, 33, 34,
)  # fmt: skip
EQUAL, MASTER, SLAVE = 1, 2, 3
OPEN, CLOSE, COMMIT, DISCARD = 0, 2, 4, 6
PART = 60_000  # bytes of a multipart reply's part

IS_SECONDARY = (1, 10)
STALE = (11, 0)
BAD_BUNDLE_ID, BUNDLE_CLOSED, BAD_XID, MESSAGE_FAILED = (17, 2), (17, 4), (17, 9), (17, 13)
UNKNOWN_METER = (12, 3)


class Fault(StrEnum):
    """What happens to one message."""

    IGNORE = "ignore"  # lost before it was applied, and all that follows on this connection too
    SILENT = "silent"  # applied, the reply is lost
    CLOSE = "close"  # the connection ends, nothing is applied
    CLOSE_AFTER = "close after"  # applied, then the connection ends without a reply
    REFUSE = "refuse"
    LATE = "late"  # this and all that follows wait `Fake.late` seconds, and are applied even if the peer has left
    STALL = "stall"  # nothing is read any more


class FakePort(Struct, frozen=True):
    """`medium`: features of a network device, as OpenFlow numbers them; a tunnel has none."""

    number: int
    name: str
    mac: int
    medium: int = 0


class Fake:
    """One switch; it may have several connections. Tables survive a connection, as those of a real one do."""

    def __init__(self, dpid: int, ports: tuple[FakePort, ...] = (), version: int = 6) -> None:
        self.dpid = dpid
        self.ports = {port.name: port for port in ports}
        self.version = version
        self.tables = Tables()
        self.meters: dict[int, bytes] = {}
        self.flushed: list[bytes] = []  # bodies of NXT_CT_FLUSH
        self.packet_outs: list[bytes] = []
        self.flow_mods = 0  # that arrived, in bundles or alone
        self.commits = 0
        self.received: list[int] = []  # types of the messages that count
        self.generation = 0
        self.late = 0.5
        self.links: list[Link] = []
        self._plan: Callable[[int, bytes], Fault | None] = lambda index, message: None

    def arm(self, plan: Callable[[int, bytes], Fault | None] | dict[int, Fault]) -> None:
        """Count messages (hello and echo excepted) from 0 again; `plan` says which meets which fault."""
        self.received.clear()
        self._plan = (lambda index, _: plan.get(index)) if isinstance(plan, dict) else plan

    def fault(self, message: bytes) -> Fault | None:
        self.received.append(message[1])
        return self._plan(len(self.received) - 1, message)

    def connect(self, address: tuple[str, int]) -> "Link":
        """To a listener, over TCP."""
        return self.attach(PlainStream(eventlet.connect(address)))

    def attach(self, stream: Stream) -> "Link":
        """Speak over this stream; returns at once."""
        link = Link(self, stream)
        self.links.append(link)
        eventlet.spawn_n(link.run)
        return link

    def pair(self) -> PlainStream:
        """A new connection; what is returned is the controller's end."""
        ours, theirs = green.socketpair()
        self.attach(PlainStream(ours))
        return PlainStream(theirs)

    def unplug(self) -> None:
        """End all connections."""
        for link in list(self.links):
            link.close()

    def say(self, kind: int, body: bytes) -> None:
        """An asynchronous message to every connection."""
        for link in self.links:
            link.send(kind, 0, body)

    def set_port(self, port: FakePort) -> None:
        """Add a port or change it."""
        reason = 2 if port.name in self.ports else 0
        self.ports[port.name] = port
        self.say(PORT_STATUS, struct.pack("!B7x", reason) + _port(port))

    def remove_port(self, name: str) -> None:
        self.say(PORT_STATUS, struct.pack("!B7x", 1) + _port(self.ports.pop(name)))


class Link:
    """One connection of a fake switch."""

    def __init__(self, fake: Fake, stream: Stream) -> None:
        self.fake = fake
        self.role = EQUAL
        self.open = True
        self._stream = stream
        self._sending = Semaphore()
        self._ended = Gate()
        self.deaf = False  # what arrives is lost
        self._bundles: dict[int, tuple[list[bytes], bool]] = {}  # messages, closed

    def close(self) -> None:
        self.open = False
        if self in self.fake.links:
            self.fake.links.remove(self)
        self._stream.shutdown()
        self._ended.notify()

    def send(self, kind: int, xid: int, body: bytes = b"") -> None:
        message = struct.pack("!BBHI", self.fake.version, kind, 8 + len(body), xid) + body
        with self._sending, suppress(OSError):  # what arrived is applied, whether or not anybody listens
            if self.open:
                self._stream.sendall(message)

    def _reply(self, message: bytes, kind: int, body: bytes = b"") -> None:
        self.send(kind, int.from_bytes(message[4:8], "big"), body)

    def error(self, failure: tuple[int, int], message: bytes) -> None:
        self.send(ERROR, int.from_bytes(message[4:8], "big"), struct.pack("!HH", *failure) + message[:64])

    def run(self) -> None:
        """Until the connection ends."""
        buffer = bytearray()
        try:
            self.send(HELLO, 1, struct.pack("!HHI", 1, 8, 1 << self.fake.version))
            while self.open:
                data = self._stream.recv(1 << 16)
                if not data:
                    break
                buffer += data
                position = 0
                while len(buffer) - position >= 8:
                    length = int.from_bytes(buffer[position + 2 : position + 4], "big")
                    if len(buffer) - position < length:
                        break
                    self._take(bytes(buffer[position : position + length]))
                    position += length
                del buffer[:position]
                eventlet.sleep(0)
        except OSError:
            pass
        finally:
            self.close()
            with self._sending:  # nobody may wait for a closed socket
                self._stream.close()

    def _take(self, message: bytes) -> None:
        kind, xid = message[1], int.from_bytes(message[4:8], "big")
        if self.deaf or not self.open:
            return
        if kind == ECHO_REQUEST:
            self.send(ECHO_REPLY, xid, message[8:])
        elif kind not in (HELLO, ERROR, ECHO_REPLY):
            self._meet(self.fake.fault(message), message)

    def _meet(self, fault: Fault | None, message: bytes) -> None:
        if fault is Fault.STALL:
            self._ended.wait()
        elif fault is Fault.CLOSE:
            self.close()
        elif fault is Fault.REFUSE:
            self.error((1, 1) if message[1] != BUNDLE_ADD else (2, 0), message)
        elif fault is Fault.IGNORE:
            self.deaf = True
        elif fault is Fault.LATE:
            eventlet.sleep(self.fake.late)
            self._answer(message)
        elif fault in (Fault.SILENT, Fault.CLOSE_AFTER):
            self.open = False  # so that nothing is sent
            self._answer(message)
            self.open = fault is Fault.SILENT
            if not self.open:
                self.close()
        else:
            self._answer(message)

    def _answer(self, message: bytes) -> None:
        try:
            self._handlers[message[1]](self, message)
        except KeyError:
            self.error((1, 1), message)
        except Failure as failure:
            self.error((failure.kind, failure.code), message)

    # --- one method for each kind of message --------------------------------------------------------------

    def _features(self, message: bytes) -> None:
        self._reply(message, FEATURES + 1, struct.pack("!QIBB2xII", self.fake.dpid, 0, 254, 0, 0x4F, 0))

    def _barrier(self, message: bytes) -> None:
        self._reply(message, BARRIER + 1)

    def _role(self, message: bytes) -> None:
        role, generation = struct.unpack_from("!I4xQ", message, 8)
        if role in (MASTER, SLAVE):
            if self.fake.generation and (generation - self.fake.generation) & 1 << 63:
                raise Failure(*STALE)
            self.fake.generation = generation
        if role == MASTER:
            for other in self.fake.links:
                if other is not self and other.role == MASTER:
                    other.role = SLAVE
                    other.send(ROLE_STATUS, 0, struct.pack("!IB3xQ", SLAVE, 0, generation))
        self.role = role or self.role
        self._reply(message, ROLE + 1, struct.pack("!I4xQ", self.role, self.fake.generation))

    def _meter(self, message: bytes) -> None:
        self._write()
        number = int.from_bytes(message[12:16], "big")
        self.fake.meters[number] = message[10:12] + message[16:]

    def _experimenter(self, message: bytes) -> None:
        self.fake.flushed.append(message[16:])

    def _packet_out(self, message: bytes) -> None:
        self.fake.packet_outs.append(message)

    def _single(self, message: bytes) -> None:
        self._write()
        self.fake.flow_mods += message[1] == FLOW_MOD
        self.fake.tables.check(message)
        if failed := self.fake.tables.apply([message]):
            raise failed[1]

    def _multipart(self, message: bytes) -> None:
        kind = int.from_bytes(message[8:10], "big")
        body = message[16:]
        entries: list[bytes]
        if kind == 1:
            table, cookie, mask = struct.unpack_from("!B15xQQ", body)
            entries = [
                flow_desc(key, flow)
                for key, flow in self.fake.tables.flows.items()
                if (flow.cookie ^ cookie) & mask == 0 and table in (key.table, 255)
            ]
        elif kind == 7:
            entries = [group_desc(number, group) for number, group in self.fake.tables.groups.items()]
        elif kind == 10:
            number = int.from_bytes(body[:4], "big")
            if number != ANY and number not in self.fake.meters:
                raise Failure(*UNKNOWN_METER)
            entries = [
                struct.pack("!H", 8 + len(meter) - 2) + meter[:2] + struct.pack("!I", each) + meter[2:]
                for each, meter in self.fake.meters.items()
            ]
        elif kind == 13:
            entries = [_port(port) for port in self.fake.ports.values()]
        else:
            raise Failure(1, 2)  # bad multipart type
        part = b""
        for entry in entries:
            if len(part) + len(entry) > PART:
                self._reply(message, MULTIPART + 1, struct.pack("!HH4x", kind, 1) + part)
                part = b""
            part += entry
        self._reply(message, MULTIPART + 1, struct.pack("!HH4x", kind, 0) + part)

    def _bundle_add(self, message: bytes) -> None:
        self._write()
        number = int.from_bytes(message[8:12], "big")
        inner = message[16:]
        self.fake.flow_mods += inner[1] == FLOW_MOD
        if inner[4:8] != message[4:8]:
            raise Failure(*BAD_XID)
        messages, closed = self._bundles.setdefault(number, ([], False))
        if closed:
            raise Failure(*BUNDLE_CLOSED)
        self.fake.tables.check(inner)
        messages.append(inner)

    def _bundle_control(self, message: bytes) -> None:
        self._write()
        number, kind = struct.unpack_from("!IH", message, 8)
        if kind == OPEN:
            if self._bundles.pop(number, None) is not None:
                raise Failure(*BAD_BUNDLE_ID)
            self._bundles[number] = ([], False)
        elif number not in self._bundles:
            raise Failure(*BAD_BUNDLE_ID)
        elif kind == CLOSE:
            messages, closed = self._bundles[number]
            if closed:
                raise Failure(*BUNDLE_CLOSED)
            self._bundles[number] = (messages, True)
        elif kind == COMMIT:
            messages, _ = self._bundles.pop(number)
            if failed := self.fake.tables.apply(messages):
                index, failure = failed
                self.error((failure.kind, failure.code), messages[index])
                raise Failure(*MESSAGE_FAILED)
            self.fake.commits += 1
        elif kind == DISCARD:
            del self._bundles[number]
        self._reply(message, BUNDLE, struct.pack("!IHH", number, kind + 1, 3))

    def _write(self) -> None:
        if self.role == SLAVE:
            raise Failure(*IS_SECONDARY)

    _handlers: ClassVar[dict[int, Callable[["Link", bytes], None]]] = {
        EXPERIMENTER: _experimenter,
        FEATURES: _features,
        PACKET_OUT: _packet_out,
        FLOW_MOD: _single,
        GROUP_MOD: _single,
        MULTIPART: _multipart,
        BARRIER: _barrier,
        ROLE: _role,
        SET_ASYNC: lambda link, message: None,
        METER_MOD: _meter,
        BUNDLE: _bundle_control,
        BUNDLE_ADD: _bundle_add,
    }


def _port(port: FakePort) -> bytes:
    head = struct.pack("!IH2x6s2x16sII", port.number, 72, port.mac.to_bytes(6, "big"), port.name.encode()[:15], 0, 4)
    return head + struct.pack("!HH4x6I", 0, 32, port.medium, 0, 0, 0, 0, 0)
