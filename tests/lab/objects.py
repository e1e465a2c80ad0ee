"""Nodes and Pods as manifests have them, for labs of any shape."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec


def node(name: str, number: int, address: str, **changes: Any) -> dict[str, Any]:
    """A Node with datapath id and podCIDR of this number; `changes`: annotations, None for one that is not there."""
    notes = {
        "signalbox.dev/datapath-id": f"{number:016x}",
        "signalbox.dev/uplink": "eth1",
        "signalbox.dev/node-addresses": address,
        **changes,
    }
    notes = {key: text for key, text in notes.items() if text is not None}
    spec = {"podCIDRs": [f"10.10.{number}.0/24"]}
    return {"kind": "Node", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def pod(name: str, on: str, *ips: str, **spec: Any) -> dict[str, Any]:
    status = {"phase": "Running", "podIPs": [{"ip": ip} for ip in ips]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": on, **spec}, "status": status}


def segments(count: int) -> list[dict[str, Any]]:
    """A node and a pod on each of so many segments, in both families; nodes name fe80::1 as first hop."""
    objects = []
    for number in range(1, count + 1):
        addresses = f"192.168.{70 + number}.11/24,fd00:{70 + number}::11/64"
        gateways = f"192.168.{70 + number}.1,fe80::1"
        one = node(f"n{number}", number, addresses, **{"signalbox.dev/gateways": gateways})
        one["spec"] = {"podCIDRs": [f"10.10.{number}.0/24", f"fd00:10:{number}::/64"]}
        objects += [one, pod(f"p{number}", f"n{number}", f"10.10.{number}.10", f"fd00:10:{number}::10")]
    return objects


def write(directory: Path, objects: Iterable[dict[str, Any]]) -> Path:
    directory.mkdir(exist_ok=True)
    text = b"".join(b"---\n" + msgspec.json.encode(one) + b"\n" for one in objects)  # JSON is YAML
    (directory / "all.yaml").write_bytes(text)
    return directory
