"""A server that tells a client who answered and as whom it was seen: `NAME ADDRESS PORT`.

One process, any number of TCP and UDP ports, both families, every address of its namespace. It needs nothing but
the standard library and is run by path, so that starting hundreds of them is cheap:

    python -IS echo.py NAME --tcp 8080 --udp 5353

A TCP connection stays and is answered line by line; a request that starts with GET gets an HTTP answer. A datagram is
answered from the address that it was sent to. `ready` on standard output: every port is open.
"""

import argparse
import selectors
import socket
import struct
from collections.abc import Callable

MOST = 65536
Handler = Callable[[], None]


def listen(kind: int, port: int) -> socket.socket:
    """A socket for both families on all addresses."""
    server = socket.socket(socket.AF_INET6, kind)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == socket.SOCK_DGRAM:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    server.bind(("::", port))
    if kind == socket.SOCK_STREAM:
        server.listen(1024)
    server.setblocking(False)
    return server


def answer(name: str, peer: tuple[str, int]) -> bytes:
    return f"{name} {peer[0].removeprefix('::ffff:')} {peer[1]}\n".encode()


def http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def accept(selector: selectors.BaseSelector, server: socket.socket, name: str) -> None:
    try:
        connection, peer = server.accept()
    except OSError:
        return  # the client has gone again
    connection.setblocking(False)
    buffer = bytearray()
    reply = answer(name, peer[:2])

    def read() -> None:
        try:
            data = connection.recv(MOST)
            if not data:
                raise ConnectionResetError
            buffer.extend(data)
            while True:
                is_http = buffer.startswith(b"GET ")
                request, end, _ = bytes(buffer).partition(b"\r\n\r\n" if is_http else b"\n")
                if not end:
                    return
                del buffer[: len(request) + len(end)]
                connection.sendall(http(reply) if is_http else reply)
        except BlockingIOError:
            return
        except OSError:
            selector.unregister(connection)
            connection.close()

    selector.register(connection, selectors.EVENT_READ, read)


def datagram(server: socket.socket, name: str) -> None:
    try:
        _, ancillary, _, peer = server.recvmsg(MOST, socket.CMSG_SPACE(20))
        control = []
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
                # From the address that was asked; interface 0: the routes decide where to.
                control = [(level, kind, data[:16] + struct.pack("=I", 0))]
        server.sendmsg([answer(name, peer[:2])], control, 0, peer)
    except OSError:
        return  # an ICMP error of an earlier answer, or no way back


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("name")
    arguments.add_argument("--tcp", type=int, nargs="*", default=[])
    arguments.add_argument("--udp", type=int, nargs="*", default=[])
    options = arguments.parse_args()
    selector = selectors.DefaultSelector()

    def open_port(kind: int, port: int) -> None:
        server = listen(kind, port)
        stream = kind == socket.SOCK_STREAM
        handler: Handler = lambda: accept(selector, server, options.name) if stream else datagram(server, options.name)  # noqa: E731 - a def would only repeat the condition
        selector.register(server, selectors.EVENT_READ, handler)

    for port in options.tcp:
        open_port(socket.SOCK_STREAM, port)
    for port in options.udp:
        open_port(socket.SOCK_DGRAM, port)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            key.data()


if __name__ == "__main__":
    main()
