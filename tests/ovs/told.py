"""Sends datagrams and prints what the network said about each. Run by path, as lab.probe is.

Arguments, for each datagram: HOST PORT HOPS BYTES LOCAL_PORT (0: any). Standard output: a JSON list with, for each,
"ECONNREFUSED", "EHOSTUNREACH" (hop limit exceeded), "EMSGSIZE" or whatever the errno is called, "answer", or "".
"""

import errno
import json
import select
import socket
import sys

PATIENCE = 1.5  # seconds for one try
TRIES = 6  # datagrams and errors are lost now and then, and routers limit how many they send
RECVERR = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
MTU_DISCOVER = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
NEVER_FRAGMENT = 2
HOPS = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TTL),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS),
}


def told(host: str, port: int, hops: int, size: int, local_port: int) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        for options, value in ((RECVERR, 1), (MTU_DISCOVER, NEVER_FRAGMENT), (HOPS, hops)):
            client.setsockopt(*options[family], value)
        client.bind(("::" if family == socket.AF_INET6 else "", local_port))
        client.connect((host, port))
        for _ in range(TRIES):
            try:
                client.send(b"x" * (size - 1) + b"\n")
                if select.select([client], [], [], PATIENCE)[0]:
                    client.recv(65536)
                    return "answer"
            except OSError as error:
                return errno.errorcode.get(error.errno or 0, str(error))
    return ""


def main() -> None:
    words = sys.argv[1:]
    wishes = [words[at : at + 5] for at in range(0, len(words), 5)]
    json.dump([told(host, *map(int, numbers)) for host, *numbers in wishes], sys.stdout)


if __name__ == "__main__":
    main()
