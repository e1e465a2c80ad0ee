"""What ovs-ofctl calls fields, protocols and flags: shared by writing (`text`) and reading (`parse`)."""

from typing import NamedTuple

from pipelines import fields
from pipelines.fields import Field


class Words(NamedTuple):
    """A field's names: in a match, in set_field and lists of fields, in move and output."""

    match: str
    action: str
    move: str


def _names() -> dict[Field, Words]:
    names = {
        fields.IN_PORT: Words("in_port", "in_port", "OXM_OF_IN_PORT"),
        fields.ETH_SRC: Words("dl_src", "eth_src", "NXM_OF_ETH_SRC"),
        fields.ETH_DST: Words("dl_dst", "eth_dst", "NXM_OF_ETH_DST"),
        fields.ETH_TYPE: Words("dl_type", "eth_type", "NXM_OF_ETH_TYPE"),
        fields.VLAN_TCI: Words("vlan_tci", "vlan_tci", "NXM_OF_VLAN_TCI"),
        fields.IP4_SRC: Words("nw_src", "ip_src", "NXM_OF_IP_SRC"),
        fields.IP4_DST: Words("nw_dst", "ip_dst", "NXM_OF_IP_DST"),
        fields.IP6_SRC: Words("ipv6_src", "ipv6_src", "NXM_NX_IPV6_SRC"),
        fields.IP6_DST: Words("ipv6_dst", "ipv6_dst", "NXM_NX_IPV6_DST"),
        fields.IP_PROTO: Words("nw_proto", "nw_proto", "NXM_OF_IP_PROTO"),
        fields.IP_TTL: Words("nw_ttl", "nw_ttl", "NXM_NX_IP_TTL"),
        fields.IP_FRAG: Words("nw_frag", "ip_frag", "NXM_NX_IP_FRAG"),
        fields.TCP_SRC: Words("tp_src", "tcp_src", "NXM_OF_TCP_SRC"),
        fields.TCP_DST: Words("tp_dst", "tcp_dst", "NXM_OF_TCP_DST"),
        fields.TCP_FLAGS: Words("tcp_flags", "tcp_flags", "NXM_NX_TCP_FLAGS"),
        fields.UDP_SRC: Words("tp_src", "udp_src", "NXM_OF_UDP_SRC"),
        fields.UDP_DST: Words("tp_dst", "udp_dst", "NXM_OF_UDP_DST"),
        fields.SCTP_SRC: Words("tp_src", "sctp_src", "OXM_OF_SCTP_SRC"),
        fields.SCTP_DST: Words("tp_dst", "sctp_dst", "OXM_OF_SCTP_DST"),
        fields.ICMP_TYPE: Words("icmp_type", "icmp_type", "NXM_OF_ICMP_TYPE"),
        fields.ICMP6_TYPE: Words("icmp_type", "icmpv6_type", "NXM_NX_ICMPV6_TYPE"),
        fields.ICMP6_CODE: Words("icmp_code", "icmpv6_code", "NXM_NX_ICMPV6_CODE"),
        fields.ND_TARGET: Words("nd_target", "nd_target", "NXM_NX_ND_TARGET"),
        fields.ND_SLL: Words("nd_sll", "nd_sll", "NXM_NX_ND_SLL"),
        fields.ND_TLL: Words("nd_tll", "nd_tll", "NXM_NX_ND_TLL"),
        fields.ND_RESERVED: Words("nd_reserved", "nd_reserved", "ERICOXM_OF_ICMPV6_ND_RESERVED"),
        fields.ND_OPTIONS_TYPE: Words("nd_options_type", "nd_options_type", "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE"),
        fields.TUN_SRC: Words("tun_src", "tun_src", "NXM_NX_TUN_IPV4_SRC"),
        fields.TUN_DST: Words("tun_dst", "tun_dst", "NXM_NX_TUN_IPV4_DST"),
        fields.TUN_IP6_SRC: Words("tun_ipv6_src", "tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC"),
        fields.TUN_IP6_DST: Words("tun_ipv6_dst", "tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST"),
        fields.ARP_OP: Words("arp_op", "arp_op", "NXM_OF_ARP_OP"),
        fields.ARP_SPA: Words("arp_spa", "arp_spa", "NXM_OF_ARP_SPA"),
        fields.ARP_TPA: Words("arp_tpa", "arp_tpa", "NXM_OF_ARP_TPA"),
        fields.ARP_SHA: Words("arp_sha", "arp_sha", "NXM_NX_ARP_SHA"),
        fields.ARP_THA: Words("arp_tha", "arp_tha", "NXM_NX_ARP_THA"),
        fields.CT_STATE: Words("ct_state", "ct_state", "NXM_NX_CT_STATE"),
        fields.CT_MARK: Words("ct_mark", "ct_mark", "NXM_NX_CT_MARK"),
        fields.CT_LABEL: Words("ct_label", "ct_label", "NXM_NX_CT_LABEL"),
    }
    for registers, prefix in (
        (fields.REGS, "NXM_NX_REG"),
        (fields.XREGS, "OXM_OF_PKT_REG"),
        (fields.XXREGS, "NXM_NX_XXREG"),
    ):
        for number, field in enumerate(registers):
            names[field] = Words(field.name, field.name, f"{prefix}{number}")
    return names


WORDS = _names()

# In the order of dump-flows; between the connection's fields and the rest stands the protocol's word.
CONNECTION_ORDER = (fields.CT_STATE, fields.CT_MARK, fields.CT_LABEL)
MATCH_ORDER = (
    *fields.REGS,
    fields.TUN_SRC,
    fields.TUN_DST,
    fields.TUN_IP6_SRC,
    fields.TUN_IP6_DST,
    fields.IN_PORT,
    fields.VLAN_TCI,
    fields.ETH_SRC,
    fields.ETH_DST,
    fields.ETH_TYPE,
    fields.IP6_SRC,
    fields.IP6_DST,
    fields.IP4_SRC,
    fields.IP4_DST,
    fields.ARP_SPA,
    fields.ARP_TPA,
    fields.IP_PROTO,
    fields.ARP_OP,
    fields.ARP_SHA,
    fields.ARP_THA,
    fields.IP_TTL,
    fields.IP_FRAG,
    fields.ICMP_TYPE,
    fields.ICMP6_TYPE,
    fields.ICMP6_CODE,
    fields.ND_TARGET,
    fields.ND_SLL,
    fields.ND_TLL,
    fields.ND_RESERVED,
    fields.ND_OPTIONS_TYPE,
    fields.TCP_SRC,
    fields.TCP_DST,
    fields.UDP_SRC,
    fields.UDP_DST,
    fields.SCTP_SRC,
    fields.SCTP_DST,
    fields.TCP_FLAGS,
)

# Ethernet type and IP protocol (None: not said) by the word that says them, the most specific first.
PROTOCOLS: dict[str, tuple[int, int | None]] = {
    "tcp": (0x0800, fields.TCP),
    "udp": (0x0800, fields.UDP),
    "sctp": (0x0800, fields.SCTP),
    "icmp": (0x0800, fields.ICMP),
    "tcp6": (0x86DD, fields.TCP),
    "udp6": (0x86DD, fields.UDP),
    "sctp6": (0x86DD, fields.SCTP),
    "icmp6": (0x86DD, fields.ICMP6),
    "ip": (0x0800, None),
    "ipv6": (0x86DD, None),
    "arp": (0x0806, None),
    "rarp": (0x8035, None),
}

# Names in a match that stand for another field with another protocol.
SHARED: dict[str, dict[int, Field]] = {
    "tp_src": {fields.TCP: fields.TCP_SRC, fields.UDP: fields.UDP_SRC, fields.SCTP: fields.SCTP_SRC},
    "tp_dst": {fields.TCP: fields.TCP_DST, fields.UDP: fields.UDP_DST, fields.SCTP: fields.SCTP_DST},
    "icmp_type": {fields.ICMP: fields.ICMP_TYPE, fields.ICMP6: fields.ICMP6_TYPE},
    "icmp_code": {fields.ICMP6: fields.ICMP6_CODE},
}

TCP_FLAG_BITS = {
    "fin": 1,
    "syn": 2,
    "rst": 4,
    "psh": 8,
    "ack": 16,
    "urg": 32,
    "ece": 64,
    "cwr": 128,
    "ns": 256,
    "[200]": 512,
    "[400]": 1024,
    "[800]": 2048,
}
FLAGS = {fields.Show.CT_STATE: fields.CT_STATE_BITS, fields.Show.TCP_FLAGS: TCP_FLAG_BITS}

# ip_frag is a bit "is a fragment" (1) and a bit "not the first" (2).
FRAGMENTS: dict[str, tuple[int, int]] = {
    "no": (0, 3),
    "yes": (1, 1),
    "first": (1, 3),
    "later": (3, 3),
    "not_later": (0, 2),
}
