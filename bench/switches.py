"""Fake switches in a process of their own: `python -m bench.switches PORT COUNT` connects them and never ends.

Each is a `controller.fake.Fake`. It takes more time for a message than the controller does, so what the controller
could deliver is seen in its processor time.
"""

import sys

import eventlet

from bench.cluster import FIRST_DATAPATH
from controller.fake import Fake, FakePort


def main() -> None:
    port, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        ports = (FakePort(1, "uplink", 0x020000000000 | number), FakePort(2, "gw0", 0x0200000A0000 | number))
        Fake(FIRST_DATAPATH + number, ports).connect(("127.0.0.1", port))
    while True:
        eventlet.sleep(60)


if __name__ == "__main__":
    main()
