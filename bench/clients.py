"""Many clients of one TCP server, in a few processes: how often they were answered. Run by path, like `lab.echo`.

    python -IS clients.py ADDRESS PORT SECONDS PROCESSES connections|requests [SOURCES]

`connections`: each request on a connection of its own, which is then reset, so that no port stays taken. `requests`:
one connection for each process. SOURCES, a prefix like 198.51.0.0/16+10000: each connection comes from the next of
so many addresses in it, all of which are this host's. Prints how many requests were answered and how many failed.
"""

import ipaddress
import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from itertools import cycle
from time import perf_counter

RESET = struct.pack("ii", 1, 0)
TIMEOUT = 2.0


def main() -> None:
    host, port, seconds, processes, what = sys.argv[1:6]
    sources = sys.argv[6] if len(sys.argv) > 6 else ""
    work = {"connections": connections, "requests": requests}[what]
    readers = []
    for number in range(int(processes)):
        reader, writer = os.pipe()
        if os.fork() == 0:
            counted = work((host, int(port)), float(seconds), addresses(sources, number, int(processes)))
            os.write(writer, json.dumps(counted).encode())
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    found = [json.loads(os.read(reader, 100)) for reader in readers]
    json.dump([sum(answered for answered, _ in found), sum(failed for _, failed in found)], sys.stdout)


def addresses(sources: str, number: int, processes: int) -> Iterator[str]:
    """Those that one of several processes binds to, for ever; "" leaves it to the kernel."""
    if not sources:
        return cycle([""])
    prefix, _, count = sources.partition("+")
    first = int(ipaddress.ip_network(prefix).network_address) + 1
    return cycle([str(ipaddress.ip_address(first + index)) for index in range(number, int(count), processes)])


def connections(server: tuple[str, int], seconds: float, sources: Iterator[str]) -> tuple[int, int]:
    answered = failed = 0
    end = perf_counter() + seconds
    while perf_counter() < end:
        try:
            with connected(server, next(sources)) as connection:
                ask(connection)
                answered += 1
        except OSError:
            failed += 1
    return answered, failed


def requests(server: tuple[str, int], seconds: float, sources: Iterator[str]) -> tuple[int, int]:
    answered = 0
    end = perf_counter() + seconds
    with connected(server, next(sources)) as connection:
        while perf_counter() < end:
            ask(connection)
            answered += 1
    return answered, 0


def connected(server: tuple[str, int], source: str) -> socket.socket:
    connection = socket.socket()
    try:
        connection.settimeout(TIMEOUT)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: one port serves many sources
            connection.bind((source, 0))
        connection.connect(server)
    except OSError:
        connection.close()
        raise
    return connection


def ask(connection: socket.socket) -> None:
    connection.sendall(b"x\n")
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(4096)
        if not part:
            raise ConnectionResetError
        data += part


if __name__ == "__main__":
    main()
