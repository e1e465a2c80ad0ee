"""Pairs of connections with a gap between them, and who answered each. Run by path, as lab.probe is.

Arguments: "tcp" or "udp", address, port, gap in milliseconds, number of pairs, "fresh" if each pair comes from an
address of its own (of those that the place holds), then those addresses. Standard output: JSON, a list of pairs.
"""

import json
import socket
import sys
import time

PATIENCE = 5.0


def connection(kind: int, family: int, source: str, target: tuple[str, int]) -> socket.socket:
    client = socket.socket(family, kind)
    client.settimeout(PATIENCE)
    if source:
        client.bind((source, 0))
    if kind == socket.SOCK_STREAM:
        client.setblocking(False)
        client.connect_ex(target)
        client.settimeout(PATIENCE)
    else:
        client.connect(target)
        client.send(b"x\n")
    return client


def name(client: socket.socket, kind: int) -> str:
    try:
        if kind == socket.SOCK_STREAM:
            client.sendall(b"x\n")
        return client.recv(2048).decode().split()[0]
    except OSError as error:
        return type(error).__name__
    finally:
        client.close()


def main() -> None:
    protocol, host, port, gap, count, *sources = sys.argv[1:]
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    pairs = []
    for number in range(int(count)):
        source = sources[number % len(sources)] if sources else ""
        first = connection(kind, family, source, (host, int(port)))
        end = time.perf_counter() + float(gap) / 1000
        while time.perf_counter() < end:
            pass
        second = connection(kind, family, source, (host, int(port)))
        pairs.append([name(one, kind) for one in (first, second)])
    json.dump(pairs, sys.stdout)


if __name__ == "__main__":
    main()
