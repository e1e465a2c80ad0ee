"""Pings many hosts at once, twice each, and prints the hop limits of the answers. Run by path, as lab.probe is.

Arguments: addresses. Standard output: JSON, address → list of hop limits, one for each answer, so that a lost or a
doubled answer shows.
"""

import json
import os
import select
import socket
import struct
import sys
import time

COUNT = 2
PATIENCE, LINGER = 5.0, 0.3  # seconds: until all have answered at least so often, then for what comes double
IPV6_RECVHOPLIMIT, IPV6_HOPLIMIT = 51, 52


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def main() -> None:
    targets = sys.argv[1:]
    seen: dict[str, list[int]] = {target: [] for target in targets}
    number = struct.pack("!H", os.getpid() & 0xFFFF)
    four = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    six = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    six.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1)
    for sequence in range(COUNT):
        for target in targets:
            rest = number + struct.pack("!H", sequence) + b"signalbox!"
            if ":" in target:
                six.sendto(b"\x80\0\0\0" + rest, (target, 0))  # the kernel computes the checksum
            else:
                data = b"\x08\0\0\0" + rest
                four.sendto(data[:2] + struct.pack("!H", checksum(data)) + data[4:], (target, 0))
        time.sleep(0.02)
    end = time.monotonic() + PATIENCE
    linger = None
    while time.monotonic() < (linger or end):
        if linger is None and all(len(ttls) >= COUNT for ttls in seen.values()):
            linger = time.monotonic() + LINGER
        for ready in select.select([four, six], [], [], 0.05)[0]:
            if ready is four:
                data, (source, _) = four.recvfrom(2048)
                ttl, answer = data[8], data[(data[0] & 15) * 4 :]
                kind = 0
            else:
                answer, ancillary, _, (source, *_) = six.recvmsg(2048, 64)
                ttl = next(struct.unpack("=i", value)[0] for _, name, value in ancillary if name == IPV6_HOPLIMIT)
                kind = 129
            if answer[0] == kind and answer[4:6] == number and source in seen:
                seen[source].append(ttl)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
