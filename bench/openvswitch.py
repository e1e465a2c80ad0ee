"""One Open vSwitch for a part of the bench, with a bridge for each who is measured, and somebody who looks at one."""

import socket
import struct
from pathlib import Path

from lab import netns, switch
from lab.netns import LabError

OURS, OFCTL, INTEGRATION = "br0", "br1", "br-int"
VERSION, HELLO, MULTIPART = 6, 0, 18
FLOW_DESC, TABLES = 1, 3
ANY = 0xFFFFFFFF


class OpenVSwitch:
    """Started at once; it ends with the enclosure."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = switch.environment(directory)
        netns.run(["ip", "link", "set", "lo", "up"])
        for command in (switch.create(directory), switch.database(directory)):
            self.run(*command)
        self.run("ovs-vsctl", "--no-wait", "init")
        self.run(*switch.daemon(directory))

    def run(self, *argv: str, stdin: str | None = None) -> str:
        """What the program printed; LabError when it failed."""
        return netns.run(argv, stdin=stdin, timeout=120, environment=self.environment).stdout

    def vsctl(self, words: str) -> None:
        self.run("ovs-vsctl", "--timeout=30", *words.split())

    def add_bridge(self, name: str, dpid: int) -> None:
        """With fail mode secure: it has no flows until somebody writes some."""
        self.vsctl(
            f"add-br {name} -- set bridge {name} datapath_type=netdev protocols=OpenFlow15 fail_mode=secure"
            f" other-config:datapath-id={dpid:016x}"
        )

    def add_internal_ports(self, bridge: str, *names: str) -> None:
        for name in names:
            self.vsctl(f"add-port {bridge} {name} -- set interface {name} type=internal")

    def set_controller(self, bridge: str, port: int) -> None:
        self.vsctl(
            f"set-controller {bridge} tcp:127.0.0.1:{port}"
            f" -- set controller {bridge} connection-mode=out-of-band max_backoff=1000 inactivity_probe=0"
        )

    def no_controller(self, bridge: str) -> None:
        self.vsctl(f"del-controller {bridge}")

    def ofctl(self, *words: str) -> str:
        return self.run("ovs-ofctl", "-O", "OpenFlow15", *words)

    def empty(self, bridge: str) -> None:
        for command in ("del-flows", "del-groups", "del-meters"):
            self.ofctl(command, bridge)

    def version(self) -> str:
        return self.run("ovs-vsctl", "--version").split("\n", 1)[0].rpartition(" ")[2]


class Observer:
    """A second OpenFlow connection to a bridge, which asks and blocks until it is answered."""

    def __init__(self, directory: Path, bridge: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(directory / f"{bridge}.mgmt"))
        self._socket.sendall(struct.pack("!BBHI", VERSION, HELLO, 8, 0))
        self._xid = 0

    def flows(self) -> int:
        """How many flows the bridge holds."""
        rows = self._ask(TABLES, b"")
        return sum(struct.unpack_from("!I", rows, start + 4)[0] for start in range(0, len(rows), 24))

    def holds(self, cookie: int) -> bool:
        """Whether there is a flow with exactly this cookie."""
        body = struct.pack("!B3xII4xQQHH4x", 255, ANY, ANY, cookie, 0xFFFFFFFFFFFFFFFF, 1, 4)
        return bool(self._ask(FLOW_DESC, body))

    def _ask(self, kind: int, body: bytes) -> bytes:
        self._xid += 1
        self._socket.sendall(struct.pack("!BBHIHH4x", VERSION, MULTIPART, 16 + len(body), self._xid, kind, 0) + body)
        answer = b""
        while True:
            head = self._exactly(8)
            _, message, length, xid = struct.unpack("!BBHI", head)
            rest = self._exactly(length - 8)
            if message == 1:
                raise LabError(f"the bridge answered with an error: {rest.hex()}")
            if xid == self._xid and message == MULTIPART + 1:
                answer += rest[8:]
                if not rest[3] & 1:
                    return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise LabError("the bridge closed the connection")
            data += more
        return data
