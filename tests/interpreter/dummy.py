"""An Open vSwitch whose ports are files: frames are given to it one by one, and what comes of each is seen."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from struct import unpack_from

from controller import encode, readback
from pipelines.addresses import Ip
from pipelines.ids import NEIGHBOR_METER, REJECT_METER, TOO_BIG_METER
from pipelines.interpreter.ends import Ends
from pipelines.text import flow_text, group_text
from tests.codec.openvswitch import OpenVSwitch, Wire
from tests.simulation.cluster import Tables

BRIDGE, LOCAL = "br0", "LOCAL"
PCAP_HEADER, RECORD_HEADER = 24, 16
SET_CONFIG, PACKET_IN = 9, 10


class Ctl:
    """The control socket of ovs-vswitchd, without a process for each command."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._number = 0

    def __call__(self, method: str, *arguments: str) -> str:
        self._number += 1
        request = {"id": self._number, "method": method, "params": list(arguments)}
        self._socket.sendall(json.dumps(request).encode())
        text = b""
        while True:
            text += self._socket.recv(1 << 20)
            try:
                answer = json.loads(text)
            except ValueError:
                continue
            assert answer["error"] is None, (method, arguments, answer["error"])
            return str(answer["result"])

    def close(self) -> None:
        self._socket.close()


class Dummy:
    """The switch of one node, as `tables` say. `tunnel`: what tun0 really is; "": a file like the others."""

    def __init__(self, switch: OpenVSwitch, tables: Tables, tunnel: str = "") -> None:
        self._ports = {name: BRIDGE if name == LOCAL else name for name in tables.ports}
        self._files: dict[str, Path] = {}
        self._read: dict[str, int] = {}
        words = []
        for name, number in tables.ports.items():
            device = self._ports[name]
            file = self._files[name] = switch.directory / f"{name}.pcap"
            file.unlink(missing_ok=True)
            self._read[name] = PCAP_HEADER
            if name != LOCAL:
                kind = f"type={tunnel}" if tunnel and name == "tun0" else "type=dummy"
                words += ["--", "add-port", BRIDGE, device, "--", "set", "interface", device, kind]
                words += [f"ofport_request={number}"]
            else:
                words += ["--", "set", "interface", device]
            if tunnel and name == "tun0":
                words += ["options:remote_ip=flow", "options:key=flow"]
            else:
                words += [f"options:tx_pcap={file}", "mtu_request=9000"]
        switch.vsctl(*words[1:])
        self._ctl = Ctl(next(switch.directory.glob("ovs-vswitchd.*.ctl")))
        self._load(switch, tables)
        self._wire = switch.connect()
        # A connection is told of packets only once it has said how much of them it wants.
        self._wire.send(
            bytes((encode.VERSION, SET_CONFIG, 0, 12)) + self._wire.xid().to_bytes(4, "big") + b"\0\0\xff\xff"
        )

    def _load(self, switch: OpenVSwitch, tables: Tables) -> None:
        for meter in (REJECT_METER, NEIGHBOR_METER, TOO_BIG_METER):
            switch.ofctl("add-meter", BRIDGE, f"meter={meter},pktps,burst,bands=type=drop,rate=1000000,burst_size=1000")
        for name, lines in (
            ("groups", [group_text(group) for group in tables.groups]),
            ("flows", [flow_text(flow) for flow in tables.flows]),
        ):
            file = switch.directory / f"{name}.txt"
            file.write_text("".join(f"{line}\n" for line in lines))
            switch.ofctl("--bundle", f"add-{name}", BRIDGE, str(file))

    def ask(self, *words: str) -> str:
        """What a command of ovs-appctl prints."""
        return self._ctl(*words)

    def close(self) -> None:
        self._wire.close()
        self._ctl.close()

    def forget(self, ends: Ends) -> None:
        """One connection, by its original direction."""
        family = "" if ends.family == 4 else "6"
        source, destination = (str(Ip(ends.family, value)) for value in (ends.source, ends.destination))
        words = (
            f"ct_{'nw' if not family else 'ipv6'}_src={source},ct_{'nw' if not family else 'ipv6'}_dst={destination}"
        )
        ports = f"ct_tp_src={ends.source_port},ct_tp_dst={ends.destination_port}"
        self._ctl("dpctl/flush-conntrack", f"zone={ends.zone}", f"{words},ct_nw_proto={ends.protocol},{ports}")

    def revalidate(self) -> None:
        """What was learned acts only on packets that no decision is remembered for."""
        self._ctl("revalidator/purge")

    def connections(self) -> list[str]:
        return self._ctl("dpctl/dump-conntrack").splitlines()

    def give(self, port: str, frame: bytes) -> tuple[list[tuple[str, bytes]], int]:
        """What left by which port, and how many packets went to the controller."""
        self._ctl("netdev-dummy/receive", self._ports[port], frame.hex())
        # Before the switch reads its OpenFlow connections it has taken packets from its ports.
        to_controller = self._packet_ins()
        return [(name, out) for name in self._files for out in self._new(name)], to_controller

    def _new(self, name: str) -> list[bytes]:
        data = self._files[name].read_bytes()
        frames = []
        while self._read[name] + RECORD_HEADER <= len(data):
            length = unpack_from("<I", data, self._read[name] + 8)[0]
            start = self._read[name] + RECORD_HEADER
            frames.append(data[start : start + length])
            self._read[name] = start + length
        return frames

    def _packet_ins(self) -> int:
        xid = self._wire.xid()
        self._wire.send(bytes((encode.VERSION, 20, 0, 8)) + xid.to_bytes(4, "big"))  # a barrier request
        found = 0
        while (message := self._wire.receive())[4:8] != xid.to_bytes(4, "big"):
            assert message[1] != encode.ERROR, readback.error(message)
            found += message[1] == PACKET_IN
        return found


def mapping(tables: Tables) -> Mapping[int, str]:
    """Port names by number."""
    return {number: name for name, number in tables.ports.items()}


__all__ = ["Ctl", "Dummy", "Wire", "mapping"]
