"""One OpenFlow 1.5 connection: bytes in and out, replies to those who wait, the rest to a handler.

Ryu's own connection class blocks in `send_msg` when 16 messages queue, yields after 2,048 received messages
and never asks whether a silent switch is alive. Here one green thread receives and hands out, one sends, one
sends echo requests, and none of them waits for another connection:

- `send` waits (only its caller does) while more than a budget of bytes is queued for this switch; `post`
  never waits and goes ahead of what is queued, at a border between messages. Echo requests are posted, so a
  big bundle does not make a switch look dead.
- A reply goes to whoever waits for its xid. Errors for messages of a bundle go to whoever collects them.
- When the connection ends, everybody who waits learns it at once (`ConnectionLost`).
- A message that cannot be understood ends this connection and nothing else.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NamedTuple, Protocol

import eventlet
from msgspec import Struct

from controller import encode, readback
from controller.hub import Bell, Deadline, Gate, Slices

LOG = logging.getLogger(__name__)

VERSION = 6  # OpenFlow 1.5
MORE = 1  # flag of a multipart reply
LARGEST_REPLY = 1 << 27  # bytes of all parts: several hundred thousand flows
MOST_ERRORS = 100_000  # that are kept of one bundle; it has fewer messages
LARGEST_QUEUE_OF_POSTS = 1 << 20  # bytes; a switch that makes us answer more without reading is not served


class Stream(Protocol):
    """What a connection needs of a socket. All calls are green."""

    def recv(self, size: int) -> bytes: ...

    def sendall(self, data: bytes) -> None: ...

    def shutdown(self) -> None:
        """Wakes a `recv` and a `sendall` that wait; they fail or return nothing."""

    def close(self) -> None: ...


class Message(NamedTuple):
    type: int
    xid: int
    data: bytes  # all of it, from the header on


class ConnectionLost(Exception):
    """The connection has ended; the text says why."""


class TimedOut(Exception):
    """The switch did not read or did not answer in time. What it did is unknown."""


class Refused(Exception):
    """The switch answered with an error."""

    def __init__(self, error: readback.SwitchError) -> None:
        super().__init__(str(error))
        self.error = error


class Patience(Struct, frozen=True):
    """How long a connection waits, in seconds, and how many bytes it queues."""

    echo_interval: float = 5
    echo_timeout: float = 15
    reply_timeout: float = 30
    budget: int = 1 << 18


class Connection:
    """`handler` gets every message nobody asked for, on the receiving thread: it must not wait."""

    def __init__(self, stream: Stream, peer: str, patience: Patience | None = None) -> None:
        self.peer = peer
        self.patience = patience or Patience()
        self.handler: Callable[[Message], None] = lambda message: None
        self.ended: str | None = None  # the reason, once it has
        self.at_end: list[Callable[[], None]] = []
        self.bytes_sent = self.bytes_received = 0
        self._stream = stream
        self._users = 0  # threads that use the stream
        self._xid = 0
        self._heard = monotonic()
        self._greeting: Message | None = None
        self._greeted = Gate()
        self._replies: dict[int, _Replies] = {}
        self._errors: list[readback.SwitchError] | None = None
        self._queue: deque[bytes] = deque()
        self._posts: deque[bytes] = deque()
        self._queued = self._posted = 0
        self._room = Gate()
        self._work = Bell()

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Greets, and begins to receive and to send."""
        self.post(encode.hello(self.next_xid()))
        self._users = 2
        for loop in (self._receive, self._write):
            eventlet.spawn_n(self._use, loop)

    def greet(self) -> None:
        """Waits for the switch's hello. ConnectionLost, with what to do, when it does not speak OpenFlow 1.5."""
        deadline = Deadline(self.patience.echo_timeout)
        while self._greeting is None:
            self._check()
            if not self._greeted.wait(deadline.left) and deadline.passed:
                self.close("no hello")
        if not readback.speaks(self._greeting.data, VERSION):
            spoken = readback.version_name(self._greeting.data[0])
            reason = f"speaks {spoken}, not OpenFlow 1.5: set protocols=OpenFlow15 on its bridge"
            self.post(encode.hello_failed(self._greeting.xid, reason))
            eventlet.sleep(0.1)  # let the error leave before the connection does
            self.close(reason)
            raise ConnectionLost(reason)  # also when the switch, which has seen our hello, was first to close
        eventlet.spawn_n(self._run, self._keep_alive)

    def close(self, reason: str) -> None:
        """Ends the connection; repeated calls do nothing."""
        if self.ended is not None:
            return
        self.ended = reason
        self._queue.clear()
        self._posts.clear()
        self._stream.shutdown()
        self._work.ring()
        self._room.notify()
        self._greeted.notify()
        for replies in list(self._replies.values()):
            replies.bell.ring()
        for call in self.at_end:
            call()

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except ConnectionLost as end:
            self.close(str(end))
        except OSError as error:
            self.close(f"connection failed: {error}")
        except readback.DecodeError as error:
            self.close(f"malformed message: {error}")
        except Exception as error:
            LOG.exception("switch at %s: connection closed because of a fault here", self.peer)
            self.close(f"fault: {error!r}")

    def _use(self, loop: Callable[[], None]) -> None:
        """Only who is last closes: the hub would hand a number that another thread waits for to a new connection."""
        self._run(loop)
        self._users -= 1
        if not self._users:
            self._stream.close()

    def _check(self) -> None:
        if self.ended is not None:
            raise ConnectionLost(self.ended)

    # --- asking -------------------------------------------------------------------------------------------

    def next_xid(self) -> int:
        """An xid for a message of this connection alone; those of flows and groups lie above."""
        self._xid = self._xid % encode.LAST_CONNECTION_XID + 1
        return self._xid

    def request(self, message: bytes, timeout: float | None = None) -> Message:
        """The reply. Raises Refused, TimedOut, ConnectionLost."""
        deadline = Deadline(self.patience.reply_timeout if timeout is None else timeout)
        with self._expect(message) as replies:
            self.send(message, deadline.left)
            return self._next(replies, deadline.left)

    def parts(self, message: bytes, timeout: float | None = None) -> Iterator[Message]:
        """The parts of a multipart reply; `timeout` is for each. Raises as `request` does; DecodeError when endless."""
        with self._expect(message) as replies:
            self.send(message, timeout)
            more, size = True, 0
            while more:
                part = self._next(replies, self.patience.reply_timeout if timeout is None else timeout)
                more = len(part.data) >= 12 and bool(part.data[11] & MORE)
                size += len(part.data)
                if size > LARGEST_REPLY:
                    raise readback.DecodeError(f"a reply of more than {LARGEST_REPLY} bytes")
                yield part

    def probe(self, timeout: float) -> bool:
        """Whether the switch answers an echo request within `timeout` seconds."""
        message = encode.echo_request(self.next_xid())
        try:
            with self._expect(message) as replies:
                self.post(message)
                self._next(replies, timeout)
        except (ConnectionLost, TimedOut, Refused):
            return False
        return True

    @contextmanager
    def errors(self) -> Iterator[list[readback.SwitchError]]:
        """Collects the errors that answer no request, in order of arrival: those of a bundle's messages."""
        if self._errors is not None:
            raise RuntimeError("two bundles at once on one connection")
        self._errors = []
        try:
            yield self._errors
        finally:
            self._errors = None

    @contextmanager
    def _expect(self, message: bytes) -> Iterator["_Replies"]:
        self._check()
        xid = int.from_bytes(message[4:8], "big")
        replies = self._replies[xid] = _Replies()
        try:
            yield replies
        finally:
            self._replies.pop(xid, None)

    def _next(self, replies: "_Replies", timeout: float | None) -> Message:
        deadline = Deadline(timeout)
        while not replies.messages:
            self._check()
            if not replies.bell.wait(deadline.left) and deadline.passed:
                raise TimedOut(f"no reply within {timeout:.3g} s")
        message = replies.messages.popleft()
        if message.type == encode.ERROR:
            raise Refused(readback.error(message.data))
        return message

    # --- sending ------------------------------------------------------------------------------------------

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Queues whole messages (a chunk of at most some 64 KiB), waiting for room. TimedOut, ConnectionLost."""
        deadline = Deadline(self.patience.reply_timeout if timeout is None else timeout)
        while self._queued >= self.patience.budget:
            self._check()
            if not self._room.wait(deadline.left) and deadline.passed:
                raise TimedOut("the switch does not read")
        self._check()
        self._queue.append(data)
        self._queued += len(data)
        self._work.ring()

    def post(self, data: bytes) -> None:
        """Queues one message ahead of what `send` queued, without waiting. Nothing happens after the end."""
        if self.ended is not None:
            return
        if self._posted > LARGEST_QUEUE_OF_POSTS:
            self.close("the switch does not read")
            return
        self._posts.append(data)
        self._posted += len(data)
        self._work.ring()

    def _write(self) -> None:
        slices = Slices()
        while self.ended is None:
            if self._posts:
                data = self._posts.popleft()
                self._posted -= len(data)
            elif self._queue:
                data = self._queue.popleft()
                self._queued -= len(data)
                self._room.notify()
            else:
                self._work.wait()
                continue
            self._stream.sendall(data)
            self.bytes_sent += len(data)
            slices()

    def _keep_alive(self) -> None:
        echo, waiting_since = b"", 0.0
        while self.ended is None:
            eventlet.sleep(self.patience.echo_interval)
            if echo and self._heard >= waiting_since:
                echo = b""
            if echo and monotonic() - waiting_since > self.patience.echo_timeout:
                eventlet.sleep(0.05)  # when it was us who slept, what arrived meanwhile is read first
                if self._heard < waiting_since:
                    self.close(f"no answer to an echo request for {self.patience.echo_timeout:.3g} s")
            if not echo:
                echo, waiting_since = encode.echo_request(self.next_xid()), monotonic()
                self.post(echo)

    # --- receiving ----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        slices = Slices()
        buffer = bytearray()
        while self.ended is None:
            data = self._stream.recv(1 << 16)
            if not data:
                raise ConnectionLost("closed by the switch")
            self._heard = monotonic()
            self.bytes_received += len(data)
            buffer += data
            position = 0
            while len(buffer) - position >= 8 and self.ended is None:
                length = int.from_bytes(buffer[position + 2 : position + 4], "big")
                if length < 8:
                    raise readback.DecodeError(f"a message of {length} bytes")
                if len(buffer) - position < length:
                    break
                self._dispatch(bytes(buffer[position : position + length]))
                position += length
                slices()
            del buffer[:position]
            slices()

    def _dispatch(self, data: bytes) -> None:
        message = Message(data[1], int.from_bytes(data[4:8], "big"), data)
        if self._greeting is None:
            if message.type != encode.HELLO:
                raise readback.DecodeError(f"the first message is of type {message.type}, not a hello")
            self._greeting = message
            self._greeted.notify()
            return
        if message.type == encode.ERROR:
            self._dispatch_error(message)
        elif data[0] != VERSION:
            raise readback.DecodeError(f"version {data[0]} in a message")
        elif message.type == encode.ECHO_REQUEST:
            self.post(encode.echo_reply(data))
        elif message.xid in self._replies:
            self._replies[message.xid].deliver(message)
        elif message.type not in (encode.HELLO, encode.ECHO_REPLY):
            self.handler(message)

    def _dispatch_error(self, message: Message) -> None:
        if message.xid in self._replies:
            self._replies[message.xid].deliver(message)
        elif self._errors is not None and message.xid > encode.LAST_CONNECTION_XID:
            if len(self._errors) < MOST_ERRORS:
                self._errors.append(readback.error(message.data))
        else:
            self.handler(message)


class _Replies:
    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.bell = Bell()

    def deliver(self, message: Message) -> None:
        self.messages.append(message)
        self.bell.ring()


class PlainStream:
    """TCP as it is. `sock` is a green socket."""

    def __init__(self, sock: "eventlet.greenio.GreenSocket") -> None:
        self._socket = sock

    def recv(self, size: int) -> bytes:
        return bytes(self._socket.recv(size))

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)

    def shutdown(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(2)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
