"""Every field that a flow may match or set, declared once.

A `Field` is a header or metadata field under the name that ovs-ofctl gives it. A `Part` is a named range of
bits in a register, in ct_mark or in ct_label, with the tables between which it means something. Flow code
says `ENTERED_BY.eq(Entered.POD)` and `SNAT_KIND.load(Snat.NODE)`; masks and shifts are made here only. Parts that
share bits while both are live are refused at import.

The layout is for the whole pipeline, also for tables that are still empty, so that it need not move later:
what is stored in connections (ct_mark, ct_label) outlives a restart of the controller.
"""

from collections.abc import Iterator
from enum import IntEnum, StrEnum

from msgspec import Struct

from pipelines.addresses import Cidr, Ip, prefix_mask


class Show(StrEnum):
    """How ovs-ofctl writes a field's value."""

    DECIMAL = "decimal"
    HEX = "hex"
    MAC = "mac"
    IP4 = "ip4"
    IP6 = "ip6"
    PORT = "port"
    CT_STATE = "ct_state"
    TCP_FLAGS = "tcp_flags"
    FRAG = "frag"


class Field(Struct, frozen=True, eq=False, gc=False):
    """A whole field. Compared by identity: there is one object for each."""

    name: str
    bits: int
    show: Show

    def eq(self, value: int) -> "Item":
        return Item(self, value, None)

    def masked(self, value: int, mask: int) -> "Item":
        return Item(self, value & mask, None if mask == self.ones else mask)

    @property
    def ones(self) -> int:
        return (1 << self.bits) - 1

    def __repr__(self) -> str:
        return self.name


class Part(Struct, frozen=True, eq=False, gc=False):
    """Bits `low` … `low + bits - 1` of a register, ct_mark or ct_label, live from table `first` to table `last`.

    Bits of ct_mark and ct_label are live in every table: they belong to the connection.
    """

    name: str
    field: Field
    low: int
    bits: int
    first: int
    last: int

    def eq(self, value: int) -> "Item":
        if value >> self.bits:
            raise ValueError(f"{value:#x} does not fit in {self.name} ({self.bits} bits)")
        return Item(self, value, None)

    def masked(self, value: int, mask: int) -> "Item":
        return Item(self, value & mask, None if mask == (1 << self.bits) - 1 else mask)

    def __repr__(self) -> str:
        return self.name


class Item(Struct, frozen=True, gc=False):
    """One condition. `mask` None: all bits of the field or part; else bits of the field or part itself."""

    field: Field | Part
    value: int
    mask: int | None


def _field(name: str, bits: int, show: Show = Show.HEX) -> Field:
    field = Field(name, bits, show)
    FIELDS[name] = field
    return field


FIELDS: dict[str, Field] = {}

IN_PORT = _field("in_port", 32, Show.PORT)
ETH_SRC = _field("dl_src", 48, Show.MAC)
ETH_DST = _field("dl_dst", 48, Show.MAC)
ETH_TYPE = _field("dl_type", 16)
VLAN_TCI = _field("vlan_tci", 16)
IP4_SRC = _field("nw_src", 32, Show.IP4)
IP4_DST = _field("nw_dst", 32, Show.IP4)
IP6_SRC = _field("ipv6_src", 128, Show.IP6)
IP6_DST = _field("ipv6_dst", 128, Show.IP6)
IP_PROTO = _field("nw_proto", 8, Show.DECIMAL)
IP_TTL = _field("nw_ttl", 8, Show.DECIMAL)
IP_FRAG = _field("ip_frag", 2, Show.FRAG)
TCP_SRC = _field("tcp_src", 16, Show.DECIMAL)
TCP_DST = _field("tcp_dst", 16, Show.DECIMAL)
TCP_FLAGS = _field("tcp_flags", 12, Show.TCP_FLAGS)
UDP_SRC = _field("udp_src", 16, Show.DECIMAL)
UDP_DST = _field("udp_dst", 16, Show.DECIMAL)
SCTP_SRC = _field("sctp_src", 16, Show.DECIMAL)
SCTP_DST = _field("sctp_dst", 16, Show.DECIMAL)
ICMP_TYPE = _field("icmp_type", 8, Show.DECIMAL)
ICMP6_TYPE = _field("icmpv6_type", 8, Show.DECIMAL)
ICMP6_CODE = _field("icmpv6_code", 8, Show.DECIMAL)
ND_TARGET = _field("nd_target", 128, Show.IP6)
ND_SLL = _field("nd_sll", 48, Show.MAC)
ND_TLL = _field("nd_tll", 48, Show.MAC)
ND_RESERVED = _field("nd_reserved", 32)
ND_OPTIONS_TYPE = _field("nd_options_type", 8, Show.DECIMAL)
TUN_SRC = _field("tun_src", 32, Show.IP4)
TUN_DST = _field("tun_dst", 32, Show.IP4)
TUN_IP6_SRC = _field("tun_ipv6_src", 128, Show.IP6)
TUN_IP6_DST = _field("tun_ipv6_dst", 128, Show.IP6)
ARP_OP = _field("arp_op", 16, Show.DECIMAL)
ARP_SPA = _field("arp_spa", 32, Show.IP4)
ARP_TPA = _field("arp_tpa", 32, Show.IP4)
ARP_SHA = _field("arp_sha", 48, Show.MAC)
ARP_THA = _field("arp_tha", 48, Show.MAC)
CT_STATE = _field("ct_state", 32, Show.CT_STATE)
CT_MARK = _field("ct_mark", 32)
CT_LABEL = _field("ct_label", 128)
REGS = tuple(_field(f"reg{i}", 32) for i in range(16))
XREGS = tuple(_field(f"xreg{i}", 64) for i in range(8))
XXREGS = tuple(_field(f"xxreg{i}", 128) for i in range(4))

TCP, UDP, SCTP, ICMP, ICMP6 = 6, 17, 132, 1, 58
IP4, IP6, ARP = ETH_TYPE.eq(0x0800), ETH_TYPE.eq(0x86DD), ETH_TYPE.eq(0x0806)
ETH = {4: IP4, 6: IP6}
IP_SRC = {4: IP4_SRC, 6: IP6_SRC}
IP_DST = {4: IP4_DST, 6: IP6_DST}
L4_DST = {TCP: TCP_DST, UDP: UDP_DST, SCTP: SCTP_DST}
L4_SRC = {TCP: TCP_SRC, UDP: UDP_SRC, SCTP: SCTP_SRC}

TUNNEL_SRC = {4: TUN_SRC, 6: TUN_IP6_SRC}
TUNNEL_DST = {4: TUN_DST, 6: TUN_IP6_DST}
TUNNEL_MAC = 0x0A005B000001  # destination of every inner frame: the receiving switch is a router

MULTICAST = 1 << 40  # the group bit of a MAC
TAGGED = VLAN_TCI.masked(0x1000, 0x1000)
TCP_SYN, TCP_RST = 0x002, 0x004

CT_STATE_BITS = {"new": 1, "est": 2, "rel": 4, "rpl": 8, "inv": 16, "trk": 32, "snat": 64, "dnat": 128}


def ct_state(text: str) -> Item:
    """`ct_state("+new-rpl+trk")` in ovs-ofctl's spelling."""
    value = mask = 0
    for word in text.replace("+", " +").replace("-", " -").split():
        bit = CT_STATE_BITS[word[1:]]
        mask |= bit
        value |= bit if word[0] == "+" else 0
    return Item(CT_STATE, value, mask)


def ranges(field: Field, first: int, last: int) -> Iterator["Item"]:
    """The conditions that together are `first` ≤ field ≤ `last`."""
    while first <= last:
        size = min(first & -first or 1 << field.bits, 1 << (last - first + 1).bit_length() - 1)
        yield field.masked(first, field.ones & ~(size - 1))
        first += size


def source(ip: Ip | Cidr) -> tuple[Item, Item]:
    """Ethernet type and source address or prefix."""
    return ETH[ip.family], _prefix(IP_SRC[ip.family], ip)


def destination(ip: Ip | Cidr) -> tuple[Item, Item]:
    """Ethernet type and destination address or prefix."""
    return ETH[ip.family], _prefix(IP_DST[ip.family], ip)


def _prefix(field: "Field | Part", ip: Ip | Cidr) -> Item:
    if isinstance(ip, Ip):
        return Item(field, ip.value, None)
    return field.masked(ip.value, prefix_mask(ip.family, ip.length))


# --- what the registers mean -------------------------------------------------------------------------------


class Entered(IntEnum):
    """By which kind of port a packet, or a connection's first packet, entered. Never a port number: those move.

    Ports of the node itself have one bit in common (ON_NODE).
    """

    NONE = 0
    UPLINK = 1
    TUNNEL = 2
    GATEWAY = 8  # gw0
    POD = 9
    LOCAL = 10


ON_NODE = 8


class Snat(IntEnum):
    """Which source address a service connection gets."""

    NONE = 0
    NODE_SNAT = 1  # S: the reserved address of the podCIDR
    VIRTUAL = 2  # V: hairpin and own-host endpoints
    NODE_ADDRESS = 3  # N: the node's own address in a reserved port range


class Place(IntEnum):
    """Where a chosen endpoint is, seen from this node."""

    OUTSIDE = 0
    LOCAL_POD = 1
    OWN_HOST = 2
    PEER_POD = 3  # reached directly
    PEER_POD_BY_GATEWAY = 4  # noEncap peer whose MAC is not known (yet)
    PEER_POD_BY_TUNNEL = 5
    PEER_HOST = 6
    PEER_HOST_BY_GATEWAY = 7
    CLIENT_ITSELF = 8
    PEER_POD_BY_ROUTER = 9
    PEER_HOST_BY_ROUTER = 10
    PEER_HOST_BY_TUNNEL = 11  # a peer whose pods are reached by tunnel, itself directly
    PEER_HOST_BY_TUNNEL_OR_ROUTER = 12  # the same on another segment


class Egress(IntEnum):
    """How a routed packet leaves; `egress` turns the class into MACs and a port."""

    NONE = 0
    POD = 1
    GATEWAY = 2
    UPLINK = 3
    LOCAL = 4
    TUNNEL = 5
    ROUTER = 6  # the node's next hop; while its MAC is unknown the host


PARTS: list[Part] = []


def _part(name: str, field: Field, low: int, bits: int, first: int = 0, last: int = 255) -> Part:
    part = Part(name, field, low, bits, first, last)
    PARTS.append(part)
    return part


# reg0 and ct_mark have the same layout in bits 0–11, so that a connection remembers what one move stores.
ENTERED_BY = _part("ENTERED_BY", REGS[0], 0, 4)
SERVICE = _part("SERVICE", REGS[0], 4, 1)  # in request direction of a service connection
LEARNED = _part("LEARNED", REGS[0], 5, 1)  # table reply_path knows the way back to the client
SNAT_KIND = _part("SNAT_KIND", REGS[0], 8, 4)
CONNECTION_FACTS = Part("CONNECTION_FACTS", REGS[0], 0, 12, 0, 255)  # the four above at once
TO_NODE = _part("TO_NODE", REGS[0], 12, 1, 20, 41)  # destination is an address of this node, before translation
OWN_SOURCE = _part("OWN_SOURCE", REGS[0], 13, 1)  # a host packet with an address of this node as source
TOO_BIG = _part("TOO_BIG", REGS[0], 14, 1, 100, 102)  # for the tunnel
OUTSIDE = _part("OUTSIDE", REGS[0], 15, 1, 30, 44)  # came by the uplink, from no node and no pod
NODE_PORT = _part("NODE_PORT", REGS[0], 24, 1, 20, 41)  # destination is an address of this node with NodePorts
PLACE = _part("PLACE", REGS[0], 16, 4, 42, 69)
EGRESS = _part("EGRESS", REGS[0], 20, 4, 70, 110)
OUT_PORT = _part("OUT_PORT", REGS[1], 0, 32, 70, 110)
ENDPOINT_PORT = _part("ENDPOINT_PORT", REGS[2], 0, 16, 40, 69)
ENDPOINT_IP4 = _part("ENDPOINT_IP4", REGS[3], 0, 32, 40, 69)
ENDPOINT4 = Part("ENDPOINT4", XREGS[1], 0, 64, 40, 69)  # port << 32 | address: both of the above in one action
ENDPOINT_IP6 = _part("ENDPOINT_IP6", XXREGS[1], 0, 128, 40, 69)
SERVICE_NUMBER = _part("SERVICE_NUMBER", REGS[10], 0, 24, 41, 45)  # of a service port with affinity
SHARE = _part("SHARE", REGS[11], 0, 24, 41, 46)  # of a service port's endpoints, where one group cannot hold all
CHOSEN = _part("CHOSEN", REGS[10], 24, 1, 40, 41)  # the endpoint is the one that the client had before
TURNED = _part("TURNED", REGS[0], 25, 1, 104, 105)  # source and destination are exchanged
KEPT_PORT = _part("KEPT_PORT", REGS[2], 0, 16, 104, 105)  # while they are exchanged
KEPT_IP4 = _part("KEPT_IP4", REGS[3], 0, 32, 104, 105)
KEPT_IP6 = _part("KEPT_IP6", XXREGS[1], 0, 128, 104, 105)
CLIENT_MAC = _part("CLIENT_MAC", XREGS[4], 0, 48)  # source MAC as the packet entered

CT_ENTERED_BY = _part("CT_ENTERED_BY", CT_MARK, 0, 4)
CT_SERVICE = _part("CT_SERVICE", CT_MARK, 4, 1)
CT_MOVED = _part("CT_MOVED", CT_MARK, 12, 1)  # a plain connection that got another port
CT_LEARNED = _part("CT_LEARNED", CT_MARK, 5, 1)
CT_SNAT_KIND = _part("CT_SNAT_KIND", CT_MARK, 8, 4)
CT_CONNECTION_FACTS = Part("CT_CONNECTION_FACTS", CT_MARK, 0, 12, 0, 255)
CT_CLIENT_MAC = _part("CT_CLIENT_MAC", CT_LABEL, 0, 48)
CT_SERVICE_PORT = _part("CT_SERVICE_PORT", CT_LABEL, 48, 16)  # SCTP, where NAT cannot rewrite ports
CT_ENDPOINT_PORT = _part("CT_ENDPOINT_PORT", CT_LABEL, 64, 16)

KEPT_IP = {4: KEPT_IP4, 6: KEPT_IP6}
ENDPOINT_IP = {4: ENDPOINT_IP4, 6: ENDPOINT_IP6}

SERVICE_ZONE = 1
SNAT_ZONE = 2


def endpoint(ip: Ip | Cidr) -> tuple[Item, Item]:
    """Ethernet type and the chosen endpoint's address."""
    return ETH[ip.family], _prefix(ENDPOINT_IP[ip.family], ip)


def chosen(ip: Ip, port: int) -> tuple[Item, ...]:
    """Exactly this endpoint was chosen."""
    if ip.family == 4:
        return (ENDPOINT4.eq(port << 32 | ip.value),)
    return ENDPOINT_PORT.eq(port), ENDPOINT_IP6.eq(ip.value)


def register_bits(field: Field, low: int, bits: int) -> tuple[str, int]:
    """Where the bits lie: (space, mask). Registers of all widths share one space, reg0 at its low end."""
    name, number = field.name.rstrip("0123456789"), field.name.lstrip("xreg")
    if name not in ("reg", "xreg", "xxreg"):
        return field.name, ((1 << bits) - 1) << low
    words = {"reg": 1, "xreg": 2, "xxreg": 4}[name]
    mask = 0
    for bit in range(low, low + bits):
        word = int(number) * words + (words - 1 - bit // 32)  # the first register of an xreg is its high half
        mask |= 1 << (word * 32 + bit % 32)
    return "registers", mask


def overlaps(parts: list[Part]) -> list[str]:
    """Pairs of parts that share bits in a table where both are live; empty when the layout is sound."""
    found = []
    for index, one in enumerate(parts):
        for two in parts[index + 1 :]:
            space, mask = register_bits(one.field, one.low, one.bits)
            other_space, other_mask = register_bits(two.field, two.low, two.bits)
            alive = one.first <= two.last and two.first <= one.last
            if space == other_space and mask & other_mask and alive:
                found.append(f"{one.name} and {two.name}")
    return found


if _found := overlaps(PARTS):
    raise AssertionError(f"fields overlap: {', '.join(_found)}")

_BY_BITS: dict[tuple[Field, int, int], Part] = {}
for _one in (*PARTS, CONNECTION_FACTS, CT_CONNECTION_FACTS, ENDPOINT4):
    _BY_BITS.setdefault((_one.field, _one.low, _one.bits), _one)


def bits_of(field: Field, low: int, bits: int) -> Field | Part:
    """The field itself when it is all of it, the part that is declared for exactly these bits, or a nameless one."""
    if bits == field.bits:
        return field
    return part_of(field, low, bits)


def part_of(field: Field, low: int, bits: int) -> Part:
    """Like `bits_of`, but a part also for a whole field. Raises ValueError for bits that the field does not have."""
    if low < 0 or bits < 1 or low + bits > field.bits:
        raise ValueError(f"{field.name} has no bits {low} to {low + bits - 1}")
    return _BY_BITS.get((field, low, bits)) or Part(f"{field.name}[{low}..{low + bits - 1}]", field, low, bits, 0, 255)
