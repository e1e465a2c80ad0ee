"""What a Node object says: podCIDRs, addresses, and the annotations that are a contract with other tools.

| annotation | value |
|---|---|
| `signalbox.dev/datapath-id` | 16 hex digits, the bridge's datapath id |
| `signalbox.dev/uplink` | name of the bridge's port towards the network |
| `signalbox.dev/node-addresses` | `192.168.77.101/24,fd00:77::101/64`; wins over the addresses in the status |
| `signalbox.dev/gateways` | next hops of the default routes, `192.168.77.1,fd00:77::1` |
| `signalbox.dev/uplink-mtu` | MTU of the uplink in bytes, when it is not the settings' `uplink_mtu` |
| `signalbox.dev/mac-address`, else `node.antrea.io/mac-address` | the uplink's MAC, `aa:bb:cc:dd:ee:ff` |

A wrong value is left out and reported, the rest of the Node is kept.
"""

import re
from collections.abc import Collection

from k8s_bridge import shapes
from k8s_bridge.annotations import field as annotation
from k8s_bridge.findings import Findings, special
from pipelines.addresses import BITS, Cidr, Interface, Ip, parse_interface, parse_mac, usable_mac

_DATAPATH_ID = re.compile(r"[0-9a-fA-F]{16}")
_PORT_NAME = re.compile(r"[^\s/]{1,15}")  # what Linux takes for the name of an interface
MOST_ENTRIES = 64  # of an annotation that is a list: no host has more, and it must not take long to read
_OWN_PORTS = ("gw0", "tun0", "LOCAL")


def pod_cidrs(findings: Findings, spec: shapes.NodeSpec) -> tuple[Cidr, ...]:
    """All of them, in their order; each has room for the gateway's and the SNAT address (its first and second)."""
    texts = spec.pod_cidrs or ([spec.pod_cidr] if spec.pod_cidr else [])
    found: list[Cidr] = []
    for index, text in enumerate(texts):
        field = f"spec.podCIDRs[{index}]"
        cidr = findings.cidr(field, text)
        if cidr is None or cidr in found:
            continue
        other = next((known for known in found if known.overlaps(cidr)), None)
        if cidr.length > BITS[cidr.family] - 2:
            findings.add(field, f"{cidr} has no room for a gateway, an SNAT address and pods")
        elif other is not None:
            findings.add(field, f"{cidr} overlaps {other}, which is listed before it; it is not used")
        else:
            found.append(cidr)
    return tuple(found)


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


def gateways(
    findings: Findings, notes: shapes.Annotations, own: tuple[Interface, ...], cidrs: tuple[Cidr, ...]
) -> tuple[Ip, ...]:
    """Next hops of the default routes, in their order. A router's IPv6 address is often link-local.

    `own` and `cidrs`: the node's addresses and podCIDRs, where no router can be.
    """
    found: list[Ip] = []
    for field, text in _listed(findings, shapes.ANNOTATION_GATEWAYS, notes.gateways):
        ip = findings.ip(field, text, link_local=True)
        if ip is None or ip in found:
            continue
        home = next((cidr for cidr in cidrs if cidr.__contains__(ip)), None)
        if any(at.ip == ip for at in own):
            findings.add(field, f"{ip} is this node's own address, it cannot be its gateway")
        elif home is not None:
            findings.add(field, f"{ip} lies in podCIDR {home} of this node, no router can be there")
        else:
            if _off_link(ip, own):
                findings.add(field, f"{ip} is in no subnet of this node's addresses; it is tried all the same")
            found.append(ip)
    return tuple(found)


def _off_link(ip: Ip, own: tuple[Interface, ...]) -> bool:
    """Of IPv4 only: an IPv6 prefix need not be on the link. A host with a /32 has its router outside on purpose."""
    if ip.family == 6 or special(ip) == "link-local":
        return False
    subnets = [at.subnet for at in own if at.ip.family == 4]
    known = [subnet for subnet in subnets if subnet is not None and subnet.length < BITS[4]]
    return len(known) == len(subnets) > 0 and not any(s.__contains__(ip) for s in known)


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


def uplink(findings: Findings, notes: shapes.Annotations, *, required: bool) -> str | None:
    """`required`: the node names its switch, which sends nothing itself without an uplink."""
    field = annotation(shapes.ANNOTATION_UPLINK)
    before = len(findings.problems)
    text = findings.text(field, notes.uplink)
    if text is None:
        if required and len(findings.problems) == before:
            findings.add(field, "required: without it the node's pods reach others by gw0 and their host only")
        return None
    if _PORT_NAME.fullmatch(text) is None:
        findings.add(field, f"{text!r} is not the name of a port (1 to 15 characters, no space, no '/')")
        return None
    if text in _OWN_PORTS:
        findings.add(field, f"{text!r} is a port of Signalbox's own, it cannot be the uplink")
        return None
    return text


def mtu(findings: Findings, notes: shapes.Annotations, families: Collection[int]) -> int | None:
    """Of the uplink, in bytes. `families`: those of the node's addresses and podCIDRs."""
    return findings.mtu(annotation(shapes.ANNOTATION_UPLINK_MTU), notes.uplink_mtu, families)


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
