"""Sends raw frames. Run by path, with nothing but the standard library:

    python -IS frames_out.py

`ready` on standard output: it waits. Each line of standard input is DEVICE and a frame in hexadecimal.
"""

import socket
import sys


def main() -> None:
    wires: dict[str, socket.socket] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        device, digits = line.split()
        if device not in wires:
            wires[device] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            wires[device].bind((device, 0))
        wires[device].send(bytes.fromhex(digits))


if __name__ == "__main__":
    main()
