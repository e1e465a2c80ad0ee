"""An Open vSwitch of one's own without any network device: its dummy datapath, spoken to over a Unix socket."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import unpack_from

from controller import encode, readback
from controller.encode import EncodedUnit
from controller.readback import FlowRow, GroupRow, SwitchError

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
QUIET = ["-vconsole:off", "-vsyslog:off", "-vfile:info", "--log-file"]


class OpenVSwitch:
    """Database and switch in one directory, with one bridge `br0` that speaks OpenFlow 1.5."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pids: list[int] = []
        self._environment = os.environ | dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"), str(directory))

    def run(self, *command: str) -> str:
        """What it prints. Raises CalledProcessError with what it complains about."""
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert not done.returncode, f"{command}: {done.stderr}"
        return done.stdout

    def ofctl(self, *arguments: str) -> str:
        return self.run("ovs-ofctl", "-O", "OpenFlow15", *arguments)

    def start(self) -> None:
        database, remote = self.directory / "conf.db", self.directory / "db.sock"
        self.run("ovsdb-tool", "create", str(database), SCHEMA)
        self._detach("ovsdb-server", str(database), f"--remote=punix:{remote}")
        self.run("ovs-vsctl", f"--db=unix:{remote}", "--no-wait", "init")
        self._detach("ovs-vswitchd", f"unix:{remote}", "--enable-dummy", "--disable-system")
        bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "protocols=OpenFlow15"]
        self.run(
            "ovs-vsctl", f"--db=unix:{remote}", *bridge, "fail-mode=secure", "other-config:datapath-id=00000000000000aa"
        )

    def vsctl(self, *arguments: str) -> str:
        return self.run("ovs-vsctl", f"--db=unix:{self.directory / 'db.sock'}", *arguments)

    def _detach(self, program: str, *arguments: str) -> None:
        pidfile = self.directory / f"{program}.pid"
        # Files, not pipes: a daemon keeps them open, and one would wait for it for ever.
        with (self.directory / f"{program}.out").open("w") as out:
            subprocess.run(
                [program, *arguments, f"--pidfile={pidfile}", "--detach", "--no-chdir", *QUIET],
                env=self._environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=30,
                check=True,
            )
        self._pids.append(int(pidfile.read_text()))

    def stop(self) -> None:
        for pid in reversed(self._pids):
            with contextlib.suppress(ProcessLookupError):  # one that has ended by itself
                os.kill(pid, 15)
        for pid in self._pids:
            _wait_gone(pid)

    def connect(self) -> "Wire":
        return Wire(self.directory / "br0.mgmt")


def _wait_gone(pid: int) -> None:
    for _ in range(100):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or ") Z " in status.read_text():
            return
        subprocess.run(["sleep", "0.05"], check=True)


class Wire:
    """One blocking OpenFlow connection."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._xid = 0
        self._socket.sendall(encode.hello(self.xid()))
        assert readback.speaks(self.receive(), encode.VERSION)

    def close(self) -> None:
        self._socket.close()

    def xid(self) -> int:
        self._xid += 1
        return self._xid

    def send(self, *messages: bytes) -> None:
        self._socket.sendall(b"".join(messages))

    def receive(self) -> bytes:
        """One whole message; echo requests are answered on the way."""
        while True:
            head = self._exactly(8)
            message = head + self._exactly(unpack_from("!H", head, 2)[0] - 8)
            if message[1] != encode.ECHO_REQUEST:
                return message
            self.send(encode.echo_reply(message))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "closed by the switch"
            data += more
        return data

    def ask(self, message: bytes) -> bytes:
        """The reply, which may be an error; others are skipped."""
        self.send(message)
        while True:
            reply = self.receive()
            if reply[4:8] == message[4:8]:
                return reply

    def parts(self, message: bytes) -> Iterator[bytes]:
        self.send(message)
        more = True
        while more:
            part = self.receive()
            assert part[1] == encode.MULTIPART_REPLY, readback.error(part)
            more = bool(part[11] & 1)
            yield part

    def bundle(self, messages: Iterable[bytes]) -> list[SwitchError]:
        """Commits in any case that has no error before; returns the errors."""
        errors: list[SwitchError] = []
        self.send(encode.bundle_open(self.xid()), *messages)
        for control in (encode.bundle_close, encode.bundle_commit):
            message = (encode.bundle_discard if errors else control)(self.xid())
            self.send(message)
            while (reply := self.receive())[4:8] != message[4:8]:
                if reply[1] == encode.ERROR:
                    errors.append(readback.error(reply))
            if reply[1] == encode.ERROR:
                errors.append(readback.error(reply))
        return errors

    def install(self, unit: EncodedUnit) -> list[SwitchError]:
        groups = [group.message for group in unit.groups.values()]
        return self.bundle([*groups, *(flow.message for flow in unit.flows.values())])

    def flows(self) -> dict[bytes, FlowRow]:
        parts = self.parts(encode.flow_desc_request(self.xid()))
        return {row.key: row for part in parts for row in readback.flows(part)}

    def groups(self) -> dict[int, GroupRow]:
        parts = self.parts(encode.group_desc_request(self.xid()))
        return {row.id: row for part in parts for row in readback.groups(part)}
