"""Sends datagrams from one socket, all at once, and prints what came back. Run by path, as lab.probe is.

Arguments: local port (0: any), then HOST PORT for each datagram. Standard output: one line for each answer, in
the order in which they came: HOST PORT of the sender, then its text.
"""

import socket
import sys

QUIET = 5.0  # seconds without an answer


def main() -> None:
    port, *rest = sys.argv[1:]
    targets = list(zip(rest[::2], map(int, rest[1::2]), strict=True))
    six = ":" in targets[0][0]
    client = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
    client.bind(("::" if six else "", int(port)))
    client.settimeout(QUIET)
    for target in targets:
        client.sendto(b"x\n", target)
    for _ in targets:
        try:
            data, sender = client.recvfrom(2048)
        except TimeoutError:
            break
        print(sender[0], sender[1], data.decode().strip())


if __name__ == "__main__":
    main()
