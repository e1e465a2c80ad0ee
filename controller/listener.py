"""Where switches connect: a TCP port, with or without TLS.

With TLS every switch has to show a certificate that the given context accepts. The handshake is done on the
connection's own green thread with a time limit, so a peer that never speaks keeps nobody out. TLS works on
memory buffers over a plain green socket: sending and receiving at once, for any number of switches.
"""

import logging
import ssl
from collections.abc import Callable
from contextlib import suppress

import eventlet
from eventlet.green import socket as green
from eventlet.greenio import GreenSocket
from eventlet.semaphore import Semaphore
from eventlet.timeout import Timeout

from controller.connection import PlainStream, Stream
from controller.switches import Switches

LOG = logging.getLogger(__name__)

HANDSHAKE = 10  # seconds
PIECE = 1 << 14  # bytes: one TLS record


class TlsStream:
    """TLS over a green socket, on the server's side or on the client's."""

    def __init__(self, sock: GreenSocket, context: ssl.SSLContext, server_side: bool = True) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self._sending = Semaphore()

    def handshake(self) -> None:
        """Raises OSError (ssl.SSLError is one) when the peer is not accepted."""
        while True:
            try:
                self._tls.do_handshake()
                self._flush()
                return
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # the alert says why
                raise

    def recv(self, size: int) -> bytes:
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._flush(wait=False)
                self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            self._tls.write(data[start : start + PIECE])
            self._flush()

    def _fill(self) -> None:
        data = self._socket.recv(1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self, wait: bool = True) -> None:
        """Records must leave in their order. The receiver does not wait: whoever is sending takes its bytes along."""
        if self._outgoing.pending and self._sending.acquire(blocking=wait):
            try:
                while self._outgoing.pending:
                    self._socket.sendall(self._outgoing.read())
            finally:
                self._sending.release()

    def shutdown(self) -> None:
        PlainStream(self._socket).shutdown()

    def close(self) -> None:
        PlainStream(self._socket).close()


class Listener:
    """`tls`: a server context with certificate, key and CA, and client certificates required. None: plain TCP.

    `found_at` is told at which address and port a connection was accepted, before anything is said on it.
    """

    def __init__(
        self,
        address: tuple[str, int],
        switches: Switches,
        tls: ssl.SSLContext | None = None,
        found_at: Callable[[str, int], None] = lambda address, port: None,
    ) -> None:
        if tls is not None and tls.verify_mode != ssl.CERT_REQUIRED:
            raise ValueError("TLS for switches needs verify_mode CERT_REQUIRED: anybody could pose as a switch")
        family = green.AF_INET6 if ":" in address[0] else green.AF_INET
        self._socket = eventlet.listen(address, family=family, backlog=256, reuse_port=False)
        self._switches = switches
        self._tls = tls
        self._found_at = found_at
        self._closing = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, also when port 0 was asked for."""
        host, port, *_ = self._socket.getsockname()
        return host, port

    def start(self) -> None:
        eventlet.spawn_n(self._accept)

    def close(self) -> None:
        """No new connections; those that are there stay."""
        self._closing = True
        PlainStream(self._socket).shutdown()  # wakes the accepting thread, which closes

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if self._closing:
                    self._socket.close()
                    return
                LOG.error("accepting switches: %s", error)
                eventlet.sleep(0.2)
                continue
            sock.setsockopt(green.IPPROTO_TCP, green.TCP_NODELAY, 1)
            eventlet.spawn_n(self._serve, sock, f"{address[0]}:{address[1]}")
            eventlet.sleep(0)  # hundreds may come at once

    def _serve(self, sock: GreenSocket, peer: str) -> None:
        stream: Stream = PlainStream(sock)
        with suppress(OSError):  # it may be gone already
            self._found_at(*sock.getsockname()[:2])
        if self._tls is not None:
            secure = TlsStream(sock, self._tls)
            try:
                with Timeout(HANDSHAKE):
                    secure.handshake()
            except (OSError, Timeout) as error:
                LOG.error("switch at %s: TLS handshake failed: %s", peer, error)
                stream.close()
                return
            stream = secure
        self._switches.serve(stream, peer)
