"""Our bytes are those of Ryu's OpenFlow 1.5 encoder, wherever Ryu can say the same.

Ryu cannot: nd_reserved, nd_options_type, 64-bit registers as one field, check_pkt_larger, learn with a limit,
NAT followed by another action inside ct (it does not pad it), select groups' selection method (an opaque property
there too).
"""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from ryu.ofproto import ofproto_v1_5 as ofproto
from ryu.ofproto import ofproto_v1_5_parser as parser

from controller import encode, oxm
from controller.encode import encode_flow, encode_group
from controller.instructions import action_bytes
from pipelines import actions, fields
from pipelines.addresses import Ip, mac_text, parse_ip
from pipelines.fields import Item, Show
from pipelines.flow import Bucket, Flow, Group, match

DATAPATH = SimpleNamespace(ofproto=ofproto, ofproto_parser=parser)

NAMES = {
    fields.IN_PORT: "in_port",
    fields.ETH_SRC: "eth_src",
    fields.ETH_DST: "eth_dst",
    fields.ETH_TYPE: "eth_type",
    fields.IP4_SRC: "ipv4_src",
    fields.IP4_DST: "ipv4_dst",
    fields.IP6_SRC: "ipv6_src",
    fields.IP6_DST: "ipv6_dst",
    fields.IP_PROTO: "ip_proto",
    fields.IP_TTL: "nw_ttl",
    fields.IP_FRAG: "ip_frag",
    fields.TCP_SRC: "tcp_src",
    fields.TCP_DST: "tcp_dst",
    fields.TCP_FLAGS: "tcp_flags",
    fields.UDP_SRC: "udp_src",
    fields.UDP_DST: "udp_dst",
    fields.SCTP_SRC: "sctp_src",
    fields.SCTP_DST: "sctp_dst",
    fields.ICMP_TYPE: "icmpv4_type",
    fields.ICMP6_TYPE: "icmpv6_type",
    fields.ICMP6_CODE: "icmpv6_code",
    fields.ND_TARGET: "ipv6_nd_target",
    fields.ND_SLL: "ipv6_nd_sll",
    fields.ND_TLL: "ipv6_nd_tll",
    fields.ARP_OP: "arp_op",
    fields.ARP_SPA: "arp_spa",
    fields.ARP_TPA: "arp_tpa",
    fields.ARP_SHA: "arp_sha",
    fields.ARP_THA: "arp_tha",
    fields.TUN_SRC: "tun_ipv4_src",
    fields.TUN_DST: "tun_ipv4_dst",
    fields.TUN_IP6_SRC: "tun_ipv6_src",
    fields.TUN_IP6_DST: "tun_ipv6_dst",
    fields.CT_STATE: "ct_state",
    fields.CT_MARK: "ct_mark",
    fields.CT_LABEL: "ct_label",
} | {register: register.name for register in (*fields.REGS, *fields.XXREGS)}
FAMILIES = {Show.IP4: 4, Show.IP6: 6}


def user(field, value):
    """A value as Ryu wants it."""
    if field.show is Show.MAC:
        return mac_text(value)
    return str(Ip(FAMILIES[field.show], value)) if field.show in FAMILIES else value


def ryu_match(**conditions) -> bytes:
    """Without the match's header and padding."""
    found = parser.OFPMatch(**conditions)
    buffer = bytearray()
    found.serialize(buffer, 0)
    return bytes(buffer[4 : int.from_bytes(buffer[2:4], "big")])


def ryu_bytes(action) -> bytes:
    buffer = bytearray()
    action.serialize(buffer, 0)
    return bytes(buffer)


@pytest.mark.parametrize("field", NAMES, ids=repr)
def test_condition_has_ryus_bytes(field):
    ones = (1 << field.bits) - 1
    value = 0x0A0B0C0D0E0F1A1B1C1D1E1F2A2B2C2D & ones
    mask = 0x0FF0F00F0FF0F00F0FF0F00F0FF0F00F & ones
    assert oxm.condition(field, value, None) == ryu_match(**{NAMES[field]: user(field, value)})
    if oxm.WIRE[field].maskable:
        masked = (user(field, value & mask), user(field, mask))
        assert oxm.condition(field, value & mask, mask) == ryu_match(**{NAMES[field]: masked})


def test_vlan_conditions_have_ryus_bytes():
    def ours(value, mask):
        return oxm.match_fields((Item(fields.VLAN_TCI, value, mask),))

    assert ours(0x1005, 0x1FFF) == ryu_match(vlan_vid=0x1005)
    assert ours(0x7005, 0xFFFF) == ryu_match(vlan_vid=0x1005, vlan_pcp=3)
    assert ours(0x1000, 0x1000) == ryu_match(vlan_vid=(0x1000, 0x1000))
    assert ours(0, 0x1FFF) == ryu_match(vlan_vid=0)


@pytest.mark.parametrize("field", set(NAMES) - {fields.IP_FRAG, fields.TCP_FLAGS}, ids=repr)
def test_set_field_has_ryus_bytes(field):
    value = 0x0A0B0C0D0E0F1A1B1C1D1E1F2A2B2C2D & ((1 << field.bits) - 1)
    expected = parser.OFPActionSetField(**{NAMES[field]: user(field, value)})
    assert action_bytes(actions.SetField(field, value)) == ryu_bytes(expected)


def test_set_field_of_bits_has_ryus_bytes():
    expected = parser.OFPActionSetField(ct_mark=(0x300, 0xF00))
    assert action_bytes(actions.load(fields.CT_SNAT_KIND, 3)) == ryu_bytes(expected)


NAT4 = actions.Nat("dst", parse_ip("10.0.0.1"), 80)
NAT6 = actions.Nat("src", parse_ip("fd00::1"), 1024, 2048)
REG0_TO_MARK = parser.OFPActionCopyField(
    n_bits=12, src_offset=0, dst_offset=0, oxm_ids=[parser.OFPOxmId("reg0"), parser.OFPOxmId("ct_mark")]
)


def ryu_ct(flags, zone, table, *inner):
    return parser.NXActionCT(flags, "", zone, table, 0, list(inner))


LEARN = actions.Learn(
    75,
    0x5B01,
    (
        actions.LearnMatch(fields.ETH_TYPE, 0x0800),
        actions.LearnMatch(fields.IP4_DST, fields.IP4_SRC),
        actions.LearnMatch(fields.ENTERED_BY, fields.ENTERED_BY),
        actions.LearnLoad(fields.ETH_DST, fields.ETH_SRC),
        actions.LearnLoad(fields.EGRESS, fields.Egress.UPLINK),
    ),
    priority=100,
    idle_timeout=60,
    hard_timeout=600,
    delete_learned=True,
)
RYU_LEARN = parser.NXActionLearn(
    table_id=75,
    specs=[
        parser.NXFlowSpecMatch(src=0x0800, dst=("eth_type_nxm", 0), n_bits=16),
        parser.NXFlowSpecMatch(src=("ipv4_src_nxm", 0), dst=("ipv4_dst_nxm", 0), n_bits=32),
        parser.NXFlowSpecMatch(src=("reg0", 0), dst=("reg0", 0), n_bits=4),
        parser.NXFlowSpecLoad(src=("eth_src_nxm", 0), dst=("eth_dst_nxm", 0), n_bits=48),
        parser.NXFlowSpecLoad(src=3, dst=("reg0", 20), n_bits=4),
    ],
    idle_timeout=60,
    hard_timeout=600,
    priority=100,
    cookie=0x5B01,
    flags=2,
)

PAIRS: dict[str, tuple[actions.Action, Any]] = {
    "output": (actions.Output(5), parser.OFPActionOutput(5, 0)),
    "local": (actions.Output(actions.LOCAL_PORT), parser.OFPActionOutput(ofproto.OFPP_LOCAL, 0)),
    "in_port": (actions.Output(actions.IN_PORT_ACTION), parser.OFPActionOutput(ofproto.OFPP_IN_PORT, 0)),
    "controller": (actions.Controller(128), parser.OFPActionOutput(ofproto.OFPP_CONTROLLER, 128)),
    "group": (actions.ToGroup(0x5B000007), parser.OFPActionGroup(0x5B000007)),
    "meter": (actions.Meter(7), parser.OFPActionMeter(7)),
    "dec_ttl": (actions.DecTtl(), parser.OFPActionDecNwTtl()),
    "resubmit": (actions.Resubmit(42), parser.NXActionResubmitTable(table_id=42)),
    "output_reg": (actions.OutputPart(fields.OUT_PORT), parser.NXActionOutputReg(31, "reg1", 0xFFFF)),
    "learn": (LEARN, RYU_LEARN),
    "move": (actions.move(fields.CONNECTION_FACTS, fields.CT_CONNECTION_FACTS), REG0_TO_MARK),
    "ct": (actions.Ct(1, 31), ryu_ct(0, 1, 31)),
    "ct_nat": (actions.Ct(1, 31, nat=actions.Nat()), ryu_ct(0, 1, 31, parser.NXActionNAT(0))),
    "ct_commit": (
        actions.Ct(2, commit=True, exec=(actions.load(fields.CT_SERVICE, 1),)),
        ryu_ct(1, 2, 255, parser.OFPActionSetField(ct_mark=(0x10, 0x10))),
    ),
    "ct_dnat": (
        actions.Ct(1, 43, commit=True, nat=NAT4),
        ryu_ct(1, 1, 43, parser.NXActionNAT(2, range_ipv4_min="10.0.0.1", range_proto_min=80)),
    ),
    "ct_snat6": (
        actions.Ct(1, 43, commit=True, nat=NAT6),
        ryu_ct(1, 1, 43, parser.NXActionNAT(1, range_ipv6_min="fd00::1", range_proto_min=1024, range_proto_max=2048)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_action_has_ryus_bytes(name):
    ours, theirs = action_bytes(PAIRS[name][0]), ryu_bytes(PAIRS[name][1])
    length = int.from_bytes(theirs[2:4], "big")  # Ryu counts the padding of a NAT at the end, and does not write it
    assert ours == theirs.ljust(length, b"\0")


def test_flow_mod_has_ryus_bytes():
    flow = Flow(
        42,
        100,
        match(fields.IP4, fields.IP_PROTO.eq(6), fields.TCP_DST.eq(80)),
        (actions.load(fields.ETH_DST, 0x0A580A0A0005), actions.Output(5), actions.Goto(110)),
        idle_timeout=60,
    )
    ours = encode_flow(flow, 0x5B << 56, 77)
    theirs = parser.OFPFlowMod(
        DATAPATH,
        cookie=ours.cookie,
        table_id=42,
        priority=100,
        idle_timeout=60,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=parser.OFPMatch(eth_type=0x0800, ip_proto=6, tcp_dst=80),
        instructions=[
            parser.OFPInstructionActions(
                ofproto.OFPIT_APPLY_ACTIONS,
                [parser.OFPActionSetField(eth_dst="0a:58:0a:0a:00:05"), parser.OFPActionOutput(5, 0)],
            ),
            parser.OFPInstructionGotoTable(110),
        ],
    )
    theirs.xid = 77
    assert ours.message == bundled(theirs, 77)


def bundled(message, xid) -> bytes:
    """Ryu's bundle-add, with the xid that it leaves out."""
    outer = parser.OFPBundleAddMsg(
        DATAPATH, encode.BUNDLE_ID, ofproto.OFPBF_ATOMIC | ofproto.OFPBF_ORDERED, message, []
    )
    outer.xid = message.xid = xid
    outer.serialize()
    return bytes(outer.buf)


def test_group_mod_has_ryus_bytes():
    group = Group(0x5B000007, (Bucket(5, (actions.load(fields.ENDPOINT_IP4, 0x0A0A0005), actions.Resubmit(42)), 3),))
    ours = encode_group(group, 77)
    weight = parser.OFPGroupBucketPropWeight(type_=ofproto.OFPGBPT_WEIGHT, weight=3)
    bucket = parser.OFPBucket(
        bucket_id=5,
        actions=[parser.OFPActionSetField(reg3=0x0A0A0005), parser.NXActionResubmitTable(table_id=42)],
        properties=[weight],
    )
    method = struct.unpack("!7I", bytes(4) + b"dp_hash".ljust(16, b"\0") + bytes(8))  # Ryu wants 32-bit words
    theirs = parser.OFPGroupMod(
        DATAPATH,
        command=0x8000,
        type_=ofproto.OFPGT_SELECT,
        group_id=0x5B000007,
        buckets=[bucket],
        properties=[parser.OFPGroupPropExperimenter(type_=0xFFFF, experimenter=0x154D, exp_type=1, data=list(method))],
    )
    theirs.xid = 77
    assert ours.message == bundled(theirs, 77)


def written(message) -> bytes:
    message.xid = 9
    message.serialize()
    return bytes(message.buf)


def test_small_messages_have_ryus_bytes():
    band = parser.OFPMeterBandDrop(rate=100, burst_size=50)
    flags = ofproto.OFPMF_PKTPS | ofproto.OFPMF_BURST
    role, bundle = parser.OFPRoleRequest, parser.OFPBundleCtrlMsg
    bundle_flags = ofproto.OFPBF_ATOMIC | ofproto.OFPBF_ORDERED
    pairs = [
        (encode.features_request(9), parser.OFPFeaturesRequest(DATAPATH)),
        (encode.barrier(9), parser.OFPBarrierRequest(DATAPATH)),
        (encode.echo_request(9), parser.OFPEchoRequest(DATAPATH)),
        (encode.port_desc_request(9), parser.OFPPortDescStatsRequest(DATAPATH, 0, ofproto.OFPP_ANY)),
        (encode.group_desc_request(9), parser.OFPGroupDescStatsRequest(DATAPATH, 0, ofproto.OFPG_ALL)),
        (encode.meter_config_request(9), parser.OFPMeterDescStatsRequest(DATAPATH, 0, 0xFFFFFFFF)),
        (encode.meter_mod(9, 7, 100, 50), parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_ADD, flags, 7, [band])),
        (
            encode.meter_mod(9, 7, 100, 50, modify=True),
            parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_MODIFY, flags, 7, [band]),
        ),
        (encode.meter_delete(9, 7), parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_DELETE, 0, 7, [])),
        (encode.bundle_open(9), bundle(DATAPATH, encode.BUNDLE_ID, ofproto.OFPBCT_OPEN_REQUEST, bundle_flags, [])),
        (encode.bundle_commit(9), bundle(DATAPATH, encode.BUNDLE_ID, ofproto.OFPBCT_COMMIT_REQUEST, bundle_flags, [])),
    ]
    for ours, theirs in pairs:
        assert ours == written(theirs), type(theirs).__name__
    generation = (1 << 64) - 1
    # Ryu 4.34 writes OpenFlow 1.5's 4 bytes of short id as padding, as we do
    assert encode.role_master(9, generation) == written(role(DATAPATH, ofproto.OFPCR_ROLE_MASTER, 0, generation))
