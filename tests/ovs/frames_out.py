"""Sends raw frames by one device. Run by path. Arguments: device; standard input: one frame a line, in hexadecimal."""

import socket
import sys


def main() -> None:
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((sys.argv[1], 0))
    for line in sys.stdin:
        wire.send(bytes.fromhex(line))


if __name__ == "__main__":
    main()
