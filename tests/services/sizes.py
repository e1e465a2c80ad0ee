"""Datagrams of some sizes over one socket each, and the sizes of the answers. Run by path, as lab.probe is.

serve PORT               answers a datagram with as many bytes; prints "ready"
ask HOST PORT SIZE…      sends each size in turn and prints the size of what came back, 0 for nothing; a line each
"""

import socket
import sys

PATIENCE, TRIES = 1.0, 4


def serve(port: str) -> None:
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", int(port)))
    print("ready", flush=True)
    while True:
        data, peer = server.recvfrom(65536)
        server.sendto(data, peer)


def ask(host: str, port: str, *sizes: str) -> None:
    client = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((host, int(port)))
    client.settimeout(PATIENCE)
    for size in sizes:
        found = 0
        for _ in range(TRIES):
            try:
                client.send(b"x" * int(size))
                found = len(client.recv(65536))
                break
            except OSError:
                continue
        print(found)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(*sys.argv[2:])
