"""Asks one server line by line on one TCP connection and prints each round trip in µs. Run by path, like `lab.echo`.

    python -IS round_trips.py ADDRESS PORT SECONDS

The first answers are not counted: they are about the switch deciding, not about the way.
"""

import json
import socket
import sys
from time import perf_counter

NOT_COUNTED = 50


def main() -> None:
    host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    times: list[float] = []
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = perf_counter() + seconds
        while True:
            began = perf_counter()
            if began > end and len(times) > NOT_COUNTED:
                break
            connection.sendall(b"x\n")
            while not connection.recv(4096).endswith(b"\n"):
                pass
            times.append(round((perf_counter() - began) * 1e6, 1))
    json.dump(times[NOT_COUNTED:], sys.stdout)


if __name__ == "__main__":
    main()
