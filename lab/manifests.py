"""The few facts that a lab needs from a directory of Kubernetes YAML: nodes, pods and cluster ranges.

Stricter than the product about nodes, because a lab with half a node proves nothing; as lenient about pods: one
that cannot be built becomes a problem, and the rest stands.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.addresses import Cidr, Interface, Ip, mac_text, parse_cidr, parse_interface, parse_ip, parse_mac

ANNOTATION = "signalbox.dev/"
MAC_ANNOTATIONS = ("node.antrea.io/mac-address", "signalbox.dev/mac-address")
LINK_LOCAL = parse_cidr("fe80::/64")
FINISHED = ("Succeeded", "Failed")


class ManifestError(ValueError):
    """Names the file or object, the field, and what is wrong with it."""


class NodeFacts(NamedTuple):
    name: str
    datapath_id: str  # 16 hex digits
    uplink: str
    mac: str  # of the uplink
    addresses: tuple[Interface, ...]
    gateways: tuple[Ip, ...]
    pod_cidrs: tuple[Cidr, ...]


class PodFacts(NamedTuple):
    namespace: str
    name: str
    node: str
    ips: tuple[Ip, ...]


class Facts(NamedTuple):
    nodes: tuple[NodeFacts, ...]
    pods: tuple[PodFacts, ...]
    service_cidrs: tuple[Cidr, ...]
    problems: tuple[str, ...]


def read(directory: Path) -> Facts:
    """Reads every *.yaml and *.yml under `directory`, in path order; raises ManifestError."""
    if not directory.is_dir():
        raise ManifestError(f"{directory}: no such directory")
    return facts(document for path in sorted(directory.rglob("*.y*ml")) for document in _documents(path))


def facts(documents: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> Facts:
    """The facts of Kubernetes objects given as plain mappings; raises ManifestError for a Node that is no use."""
    nodes: list[NodeFacts] = []
    pods: list[PodFacts] = []
    ranges: list[Cidr] = []
    problems: list[str] = []
    for document in documents:
        metadata = document.get("metadata") or {}
        where = f"{document.get('kind')} {metadata.get('name')}"
        try:
            match document.get("kind"):
                case "Node":
                    nodes.append(_node(document))
                case "Pod":
                    pod = _pod(document)
                    if pod is not None:
                        pods.append(pod)
                case "ServiceCIDR":
                    ranges.extend(parse_cidr(text) for text in document["spec"]["cidrs"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{where}: {_reason(error)}"
            if document.get("kind") == "Node":
                raise ManifestError(reason) from error
            problems.append(reason)
    return Facts(tuple(nodes), tuple(pods), tuple(ranges), tuple(problems))


def inside(ip: Ip, cidr: Cidr) -> bool:
    """`ip in cidr`, which a type checker takes for a search among the prefix's three numbers."""
    return cidr.__contains__(ip)


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            documents = list(yaml.safe_load_all(file))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ManifestError(f"{path}: {error}") from error
    for document in documents:
        if not isinstance(document, dict):
            continue
        if str(document.get("kind", "")).endswith("List"):
            yield from (item for item in document.get("items") or () if isinstance(item, dict))
        else:
            yield document


def _node(document: Mapping[str, Any]) -> NodeFacts:
    metadata = document["metadata"]
    notes: Mapping[str, str] = metadata.get("annotations") or {}

    def note(name: str) -> str:
        if not notes.get(ANNOTATION + name):
            raise ValueError(f"annotation {ANNOTATION}{name} is missing")
        return notes[ANNOTATION + name]

    datapath_id = note("datapath-id")
    if len(datapath_id) != 16 or int(datapath_id, 16) == 0:
        raise ValueError(f"annotation {ANNOTATION}datapath-id: {datapath_id!r} is not 16 hex digits")
    addresses = tuple(parse_interface(text.strip()) for text in note("node-addresses").split(","))
    gateways = tuple(parse_ip(text.strip()) for text in notes.get(ANNOTATION + "gateways", "").split(",") if text)
    for gateway in gateways:
        on_link = [LINK_LOCAL, *(address.subnet for address in addresses if address.subnet)]
        if not any(inside(gateway, subnet) for subnet in on_link):
            raise ValueError(f"annotation {ANNOTATION}gateways: {gateway} is in no subnet of the node's addresses")
    spec = document["spec"]
    pod_cidrs = tuple(parse_cidr(text) for text in spec.get("podCIDRs") or [spec["podCIDR"]])
    mac = next((parse_mac(notes[name]) for name in MAC_ANNOTATIONS if name in notes), None)
    return NodeFacts(
        name=metadata["name"],
        datapath_id=datapath_id,
        uplink=note("uplink"),
        mac=mac_text(_mac_of(addresses) if mac is None else mac),
        addresses=addresses,
        gateways=gateways,
        pod_cidrs=pod_cidrs,
    )


def _mac_of(addresses: tuple[Interface, ...]) -> int:
    """aa:00:00 and the last three bytes of the IPv4 address (IPv6-only: of that address)."""
    first = next((address.ip for address in addresses if address.ip.family == 4), addresses[0].ip)
    return 0xAA0000 << 24 | first.value & 0xFFFFFF


def _pod(document: Mapping[str, Any]) -> PodFacts | None:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    texts = [item["ip"] for item in status.get("podIPs") or ()] or [status.get("podIP")]
    if spec.get("hostNetwork") or status.get("phase") in FINISHED or not texts[0] or not spec.get("nodeName"):
        return None
    metadata = document["metadata"]
    ips = tuple(parse_ip(text) for text in texts)
    return PodFacts(metadata.get("namespace") or "default", metadata["name"], spec["nodeName"], ips)


def _reason(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
