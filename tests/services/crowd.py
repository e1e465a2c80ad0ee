"""One datagram from each of many sockets. Run by path, as lab.probe is. Arguments: HOST, PORT, number of sockets."""

import socket
import sys
import time

AT_ONCE, PAUSE = 10, 0.01  # a switch decides anew for each, and its ports hold only so many


def main() -> None:
    host, port, count = sys.argv[1:]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(int(count)):
        with socket.socket(family, socket.SOCK_DGRAM) as client:
            client.sendto(b"x\n", (host, int(port)))
        if number % AT_ONCE == AT_ONCE - 1:
            time.sleep(PAUSE)


if __name__ == "__main__":
    main()
