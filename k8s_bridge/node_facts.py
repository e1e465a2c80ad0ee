"""What a Node object says: podCIDRs, addresses, and the annotations that are a contract with other tools.

| annotation | value |
|---|---|
| `signalbox.dev/datapath-id` | 16 hex digits, the bridge's datapath id |
| `signalbox.dev/uplink` | name of the bridge's port towards the network |
| `signalbox.dev/node-addresses` | `192.168.77.101/24,fd00:77::101/64`; wins over the addresses in the status |
| `signalbox.dev/gateways` | next hops of the default routes, `192.168.77.1,fd00:77::1` |
| `signalbox.dev/mac-address`, else `node.antrea.io/mac-address` | the uplink's MAC, `aa:bb:cc:dd:ee:ff` |

A wrong value is left out and reported, the rest of the Node is kept.
"""

import re

from k8s_bridge import shapes
from k8s_bridge.findings import Findings
from pipelines.addresses import BITS, Cidr, Interface, Ip, parse_interface, parse_mac, usable_mac

_DATAPATH_ID = re.compile(r"[0-9a-fA-F]{16}")
_PORT_NAME = re.compile(r"[^\s/]{1,15}")  # what Linux takes for the name of an interface
MOST_ENTRIES = 64  # of an annotation that is a list: no host has more, and it must not take long to read
_OWN_PORTS = ("gw0", "tun0", "LOCAL")


def annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def pod_cidrs(findings: Findings, spec: shapes.NodeSpec) -> tuple[Cidr, ...]:
    """One prefix per family, each with room for the gateway's and the SNAT address (its first and second)."""
    texts = spec.pod_cidrs or ([spec.pod_cidr] if spec.pod_cidr else [])
    found: dict[int, Cidr] = {}
    for index, text in enumerate(texts):
        field = f"spec.podCIDRs[{index}]"
        cidr = findings.cidr(field, text)
        if cidr is None:
            continue
        if cidr.length > BITS[cidr.family] - 2:
            findings.add(field, f"{cidr} has no room for a gateway, an SNAT address and pods")
        elif found.setdefault(cidr.family, cidr) != cidr:
            findings.add(field, f"{cidr} is a second IPv{cidr.family} prefix; only the first is used")
    return tuple(found.values())


def addresses(findings: Findings, notes: shapes.Annotations, status: shapes.NodeStatus) -> tuple[Interface, ...]:
    """The node's addresses by annotation, with prefix lengths, else those of its status, without."""
    found: dict[Ip, Interface] = {}
    for field, text in _listed(findings, shapes.ANNOTATION_ADDRESSES, notes.addresses):
        interface = _interface(findings, field, text)
        if interface is not None:
            found.setdefault(interface.ip, interface)
    if not found:
        for index, address in enumerate(status.addresses or ()):
            if address.type == "InternalIP":
                ip = findings.ip(f"status.addresses[{index}].address", address.address)
                if ip is not None:
                    found.setdefault(ip, Interface(ip, None))
    return tuple(found.values())


def gateways(findings: Findings, notes: shapes.Annotations) -> tuple[Ip, ...]:
    """Next hops of the default routes. A router's IPv6 address is often link-local."""
    found = (
        findings.ip(field, text, link_local=True)
        for field, text in _listed(findings, shapes.ANNOTATION_GATEWAYS, notes.gateways)
    )
    return tuple(dict.fromkeys(ip for ip in found if ip is not None))


def mac(findings: Findings, notes: shapes.Annotations) -> int | None:
    """The first usable MAC among the annotations that may hold it."""
    for name, value in ((shapes.ANNOTATION_MAC, notes.mac), (shapes.ANNOTATION_ANTREA_MAC, notes.antrea_mac)):
        text = findings.text(annotation(name), value)
        if text is None:
            continue
        try:
            parsed = parse_mac(text)
        except ValueError as error:
            findings.add(annotation(name), str(error))
            continue
        if usable_mac(parsed):
            return parsed
        findings.add(annotation(name), f"{text} is no station's MAC address (zero or group-addressed)")
    return None


def datapath_id(findings: Findings, notes: shapes.Annotations) -> int | None:
    field = annotation(shapes.ANNOTATION_DATAPATH_ID)
    text = findings.text(field, notes.datapath_id)
    if text is None:
        return None
    if _DATAPATH_ID.fullmatch(text) is None or int(text, 16) == 0:
        findings.add(field, f"{text!r} is not a datapath id (16 hex digits, not all zero)")
        return None
    return int(text, 16)


def uplink(findings: Findings, notes: shapes.Annotations) -> str | None:
    field = annotation(shapes.ANNOTATION_UPLINK)
    text = findings.text(field, notes.uplink)
    if text is None:
        return None
    if _PORT_NAME.fullmatch(text) is None:
        findings.add(field, f"{text!r} is not the name of a port (1 to 15 characters, no space, no '/')")
        return None
    if text in _OWN_PORTS:
        findings.add(field, f"{text!r} is a port of Signalbox's own, it cannot be the uplink")
        return None
    return text


def _listed(findings: Findings, name: str, value: object) -> list[tuple[str, str]]:
    """The entries of a comma-separated annotation, each with the field to name in a problem."""
    text = findings.text(annotation(name), value)
    if text is None:
        return []
    entries = [entry.strip() for entry in text.split(",", MOST_ENTRIES + 1) if entry.strip()]
    if len(entries) > MOST_ENTRIES:
        findings.add(annotation(name), f"has more than {MOST_ENTRIES} entries; only the first are used")
    return [(annotation(name), entry) for entry in entries[:MOST_ENTRIES]]


def _interface(findings: Findings, field: str, text: str) -> Interface | None:
    """An address and its link, `192.168.77.101/24`. The link's own or broadcast address is a slip, not a host."""
    try:
        interface = parse_interface(text)
    except ValueError as error:
        findings.add(field, str(error))
        return None
    if findings.ip(field, str(interface.ip)) is None:
        return None
    subnet, bits = interface.subnet, BITS[interface.ip.family]
    if subnet is None or subnet.length == 0:
        findings.add(field, f"{text} would put every address on this node's own link")
        return None
    if subnet.length < bits - 1:
        last = subnet.value | ((1 << (bits - subnet.length)) - 1)
        if interface.ip.value == subnet.value or (bits == 32 and interface.ip.value == last):
            findings.add(field, f"{text} is the subnet's own or broadcast address, not a host's")
            return None
    return interface
