"""Kubernetes objects as plain values, and a directory of them that changes while the product follows it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]

FAMILY_NAMES = {4: "IPv4", 6: "IPv6"}
MAC_ANNOTATION = "node.antrea.io/mac-address"


class PortOf(NamedTuple):
    """A service port: its number, and the port of its endpoints."""

    protocol: str  # "tcp" or "udp", also its name
    port: int
    target: int


def family(address: str) -> int:
    return 6 if ":" in address else 4


def _of_family(addresses: Iterable[str], wanted: int) -> list[str]:
    return [address for address in addresses if family(address) == wanted]


def node(
    name: str, number: int, mac: str | None, addresses: Iterable[str], gateways: Iterable[str], cidrs: list[str]
) -> Object:
    """`addresses` with prefix lengths; `mac` None: without the annotation."""
    notes = {
        "signalbox.dev/datapath-id": f"{number:016x}",
        "signalbox.dev/uplink": "eth1",
        "signalbox.dev/node-addresses": ",".join(addresses),
        "signalbox.dev/gateways": ",".join(gateways),
    }
    if mac is not None:
        notes[MAC_ANNOTATION] = mac
    internal = [{"type": "InternalIP", "address": text.partition("/")[0]} for text in addresses]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": {"addresses": internal},
    }


def pod(name: str, node_name: str, addresses: Iterable[str]) -> Object:
    ips = [{"ip": address} for address in addresses]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"nodeName": node_name, "containers": [{"name": "main", "image": "pause"}]},
        "status": {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips},
    }


def service(name: str, addresses: list[str], ports: Iterable[PortOf]) -> Object:
    families = [FAMILY_NAMES[family(address)] for address in addresses]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": addresses[0],
            "clusterIPs": addresses,
            "ipFamilies": families,
            "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
            "ports": [
                {"name": of.protocol, "protocol": of.protocol.upper(), "port": of.port, "targetPort": of.target}
                for of in ports
            ],
        },
    }


def slices(
    name: str, port: PortOf, endpoints: Mapping[str, tuple[Iterable[str], str | None]], *, ready: bool = True
) -> list[Object]:
    """The EndpointSlices of one service port, one for each family. `endpoints`: name → (addresses, node)."""
    found = []
    for number, text in FAMILY_NAMES.items():
        listed = [
            {
                "addresses": [address],
                "conditions": {"ready": ready, "serving": ready, "terminating": False},
                **({"nodeName": at} if at else {}),
            }
            for addresses, at in endpoints.values()
            for address in _of_family(addresses, number)
        ]
        found.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": "default",
                    "name": f"{name}-{port.protocol}-{number}",
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": text,
                "ports": [{"name": port.protocol, "protocol": port.protocol.upper(), "port": port.target}],
                "endpoints": listed,
            }
        )
    return found


def service_cidr(cidrs: list[str]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": cidrs},
    }


class Manifests:
    """A directory with one file for each object. A file is replaced at once, so nobody reads half of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def put(self, *objects: Object) -> None:
        for one in objects:
            path = self.path(one["kind"], one["metadata"]["name"])
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(one, indent=1))  # JSON is YAML
            draft.replace(path)

    def delete(self, kind: str, *names: str) -> None:
        for name in names:
            self.path(kind, name).unlink()

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.path(kind, name).read_text())
        return found

    def path(self, kind: str, name: str) -> Path:
        return self.directory / f"{kind.lower()}-{name}.yaml"

    def content(self) -> dict[str, bytes]:
        """All files by name."""
        return {path.name: path.read_bytes() for path in self.directory.iterdir()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Makes the directory hold these files and no others; what is equal is not touched."""
        self.directory.mkdir(exist_ok=True)
        now = self.content()
        for name in now.keys() - files.keys():
            (self.directory / name).unlink()
        for name, content in files.items():
            if now.get(name) != content:
                (self.directory / name).write_bytes(content)
