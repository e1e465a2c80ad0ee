"""ovs-ofctl text, both ways."""

import re
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.encode import encode_flow, encode_group
from pipelines import fields
from pipelines.actions import (
    CONTROLLER_PORT,
    CheckPktLarger,
    Controller,
    Ct,
    Goto,
    Learn,
    LearnLoad,
    LearnMatch,
    Move,
    Nat,
    OutputPart,
    Resubmit,
    SetField,
    load,
    move,
)
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.text import TextError, flow_text, group_text, parse_flow, parse_group
from tests.codec import samples

ENDPOINT = parse_ip("10.10.0.5")

SPELLINGS = [
    (Flow(0, 0, (), ()), "table=0, priority=0 actions=drop"),
    (
        Flow(
            42,
            100,
            match(
                *fields.endpoint(ENDPOINT),
                fields.IP_PROTO.eq(fields.TCP),
                fields.ENDPOINT_PORT.eq(80),
                fields.ct_state("+new-rpl+trk"),
            ),
            (
                Ct(
                    1,
                    43,
                    commit=True,
                    nat=Nat("dst", ENDPOINT, 80),
                    exec=(move(fields.CONNECTION_FACTS, fields.CT_CONNECTION_FACTS), load(fields.CT_SERVICE, 1)),
                ),
            ),
        ),
        (
            "table=42, priority=100,ct_state=+new-rpl+trk,tcp,reg2=0x50/0xffff,reg3=0xa0a0005 "
            "actions=ct(commit,table=43,zone=1,nat(dst=10.10.0.5:80),"
            "exec(move:NXM_NX_REG0[0..11]->NXM_NX_CT_MARK[0..11],set_field:0x10/0x10->ct_mark))"
        ),
    ),
    (
        Flow(
            70,
            200,
            match(*fields.destination(parse_cidr("fd00:10:1::/64"))),
            (
                load(fields.ETH_DST, 0x0A580A0A0005),
                load(fields.EGRESS, fields.Egress.UPLINK),
                OutputPart(fields.OUT_PORT),
                Controller(128),
                Resubmit(42),
                Goto(100),
            ),
            idle_timeout=60,
        ),
        (
            "table=70, idle_timeout=60, priority=200,ipv6,ipv6_dst=fd00:10:1::/64 "
            "actions=set_field:0a:58:0a:0a:00:05->eth_dst,set_field:0x300000/0xf00000->reg0,"
            "output:NXM_NX_REG1[],CONTROLLER:128,resubmit(,42),goto_table:100"
        ),
    ),
    (
        Flow(
            106,
            10,
            match(fields.IP6),
            (Ct(2, commit=True, nat=Nat("src", parse_ip("fd00::1"), 5000, 6000)), Ct(1, 31, nat=Nat())),
        ),
        "table=106, priority=10,ipv6 actions=ct(commit,zone=2,nat(src=[fd00::1]:5000-6000)),ct(table=31,zone=1,nat)",
    ),
    (
        Flow(
            6,
            100,
            match(fields.IP4, fields.TUN_SRC.eq(0x0A000001), fields.TUN_IP6_DST.eq(1)),
            (load(fields.TUN_DST, 0x0A000002), load(fields.TUN_IP6_DST, 2), CheckPktLarger(1464, fields.TOO_BIG)),
        ),
        (
            "table=6, priority=100,ip,tun_src=10.0.0.1,tun_ipv6_dst=::1 "
            "actions=set_field:10.0.0.2->tun_dst,set_field:::2->tun_ipv6_dst,check_pkt_larger(1464)->NXM_NX_REG0[14]"
        ),
    ),
    (
        Flow(
            43,
            100,
            match(fields.IP4, fields.ENTERED_BY.eq(fields.Entered.UPLINK)),
            (
                Learn(
                    75,
                    0x5B01,
                    (
                        LearnMatch(fields.ETH_TYPE, 0x0800),
                        LearnMatch(fields.IP4_DST, fields.IP4_SRC),
                        LearnMatch(fields.SERVICE, fields.SERVICE),
                        LearnMatch(fields.EGRESS, 3),
                        LearnLoad(fields.ETH_DST, fields.CLIENT_MAC),
                        LearnLoad(fields.CT_MARK, 0),
                    ),
                    priority=100,
                    idle_timeout=60,
                    hard_timeout=600,
                    limit=1000,
                    result=fields.TOO_BIG,
                    delete_learned=True,
                ),
                Learn(75, 0, (LearnMatch(fields.OUT_PORT, 0), LearnMatch(fields.ETH_SRC, 0))),
                Goto(70),
            ),
        ),
        (
            "table=43, priority=100,ip,reg0=0x1/0xf actions=learn(table=75,idle_timeout=60,hard_timeout=600,"
            "priority=100,delete_learned,cookie=0x5b01,limit=1000,result_dst=NXM_NX_REG0[14],eth_type=0x800,"
            "NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],NXM_NX_REG0[4],NXM_NX_REG0[20..23]=0x3,"
            "load:OXM_OF_PKT_REG4[0..47]->NXM_OF_ETH_DST[],load:0->NXM_NX_CT_MARK[]),"
            "learn(table=75,reg1=0,eth_src=00:00:00:00:00:00),goto_table:70"
        ),
    ),
]


@pytest.mark.parametrize(("flow", "text"), SPELLINGS, ids=[text.split(" actions")[0] for _, text in SPELLINGS])
def test_flow_has_one_spelling(flow, text):
    assert flow_text(flow) == text
    assert str(flow) == text
    assert flow_text(flow, cookie=0x5B1) == f"cookie=0x5b1, {text}"
    assert parse_flow(f"cookie=0x5b1, {text}") == parse_flow(text)


@given(samples.flows())
def test_flow_from_its_text_has_the_same_text_and_the_same_bytes(flow):
    again = parse_flow(flow_text(flow))
    assert flow_text(again) == flow_text(flow)
    assert encode_flow(again, 0, 1) == encode_flow(flow, 0, 1)


@given(samples.groups())
def test_group_from_its_text_has_the_same_text_and_the_same_bytes(group):
    again = parse_group(group_text(group))
    assert group_text(again) == group_text(group)
    assert encode_group(again, 1) == encode_group(group, 1)


def test_text_gives_back_declared_parts():
    flow = Flow(69, 1, match(fields.IP4), (load(fields.SNAT_KIND, 1), move(fields.ETH_SRC, fields.CLIENT_MAC)))
    again = parse_flow(flow_text(flow))
    assert again == flow
    assert isinstance(again.actions[0], SetField)
    assert again.actions[0].field is fields.SNAT_KIND
    assert isinstance(again.actions[1], Move)
    assert again.actions[1].target is fields.CLIENT_MAC


@pytest.mark.parametrize(
    ("other", "ours"),
    [
        (
            "cookie=0x5b, duration=1.5s, table=3, n_packets=0, n_bytes=0, priority=7,udp,tp_dst=53 actions=drop",
            "table=3, priority=7,udp,tp_dst=53 actions=drop",
        ),
        (
            "table=3,priority=7,eth_type=0x0800,ip_proto=17,udp_dst=53 actions=drop",
            "table=3, priority=7,udp,tp_dst=53 actions=drop",
        ),
        (
            "tcp,nw_dst=10.0.0.0/255.0.0.0 actions=output:1",
            "table=0, priority=32768,tcp,nw_dst=10.0.0.0/8 actions=output:1",
        ),
        ("in_port=LOCAL actions=controller:128", "table=0, priority=32768,in_port=LOCAL actions=CONTROLLER:128"),
        ("dl_vlan=5 actions=LOCAL", "table=0, priority=32768,dl_vlan=5 actions=LOCAL"),
    ],
)
def test_common_other_spellings_are_read(other, ours):
    assert flow_text(parse_flow(other)) == ours


@pytest.mark.parametrize(
    "text",
    [
        "",
        "table=1",
        "tcp actions=flood",
        "tp_dst=53 actions=drop",
        "nonsense=1 actions=drop",
        "reg0=0x100000000 actions=drop",
        "nw_dst=fd00::1 actions=drop",
        "ip actions=resubmit(1,2)",
        "ip actions=ct(commit,exec(drop)",
        "ip actions=ct(alg=ftp)",
        "ip actions=ct(commit,nat(src=10.0.0.1:-5))",
        "ip actions=set_field:0x5/0x5->reg0",
        "ip actions=set_field:1->nothing",
        "ip actions=learn(table=75,fin_idle_timeout=5)",
        "ip actions=learn(table=75,output:NXM_NX_REG1[])",
        "ip actions=learn(table=75,NXM_OF_IP_DST[]=NXM_NX_REG0[0..3])",
        "ip actions=learn(table=75,reg0=0x100000000)",
        "ip actions=learn(table=75,load:->NXM_NX_REG0[])",
        "ip actions=check_pkt_larger(1500)",
        "ip actions=check_pkt_larger()->NXM_NX_REG0[1]",
        "ip actions=check_pkt_larger(1500)->NXM_NX_REG0[0..1]",
        "ip actions=check_pkt_larger(1500)->NXM_NX_REG0[32]",
        "ip actions=move:NXM_NX_REG0[0..3]->NXM_NX_REG1[0..4]",
        "ip actions=move:NXM_NX_REG0[30..35]->NXM_NX_REG1[0..5]",
        "ip,ct_state=+new+none actions=drop",
    ],
)
def test_what_is_no_flow_of_ours_is_refused(text):
    with pytest.raises(TextError):
        parse_flow(text)


@given(st.text(max_size=60))
def test_any_other_text_is_refused_in_one_way(text):
    for parse in (parse_flow, parse_group):
        with suppress(TextError):
            parse(text)


@given(samples.flows(), st.integers(0, 200), st.integers(0, 200), st.text("=,()[]:/->0x9f tcp", max_size=4))
def test_damaged_text_is_read_or_refused(flow, start, length, inserted):
    text = flow_text(flow)
    with suppress(TextError):
        parse_flow(text[:start] + inserted + text[start + length :])


def _printed(*arguments: str, lines: str) -> list[str]:
    done = subprocess.run(
        ["ovs-ofctl", "-O", "OpenFlow15", *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert not done.returncode, done.stderr
    return [line for line in done.stdout.splitlines() if "FLOW_MOD" in line]


def _mod(line: str) -> str:
    """What a printed flow mod says after its head; the cookie's place differs between the two."""
    words = line.split("): ", 1)[1].split(" ")
    return " ".join(word for word in words if not word.startswith("cookie:"))


# ovs-ofctl prints such masks of IPv6 addresses, and takes them for prefix lengths when it reads them
UNREADABLE = re.compile(r"(?:ipv6_src|ipv6_dst|nd_target)=[0-9a-f:.]+/[0-9]+:")


@pytest.mark.ovs
@given(st.lists(samples.flows(), min_size=1, max_size=12))
def test_ovs_ofctl_reads_the_text_and_the_bytes_as_the_same_flow(flows):
    flows = [flow for flow in flows if not UNREADABLE.search(flow_text(flow))]
    from_text = _printed("parse-flows", "-", lines="".join(f"{flow_text(flow)}\n" for flow in flows))
    for flow, printed in zip(flows, from_text, strict=True):
        message = encode_flow(flow, 0, 1).message[16:].hex()
        from_bytes = _printed("ofp-print", message, lines="")
        assert [_mod(line) for line in from_bytes] == [_mod(printed)]


def test_group_has_one_spelling():
    buckets = (
        Bucket(5, (load(fields.ENDPOINT4, 80 << 32 | ENDPOINT.value), Resubmit(42))),
        Bucket(6, (Resubmit(42),), weight=3),
    )
    assert group_text(Group(7, buckets)) == (
        "group_id=7,type=select,selection_method=dp_hash,"
        "bucket=bucket_id:5,actions=set_field:0x500a0a0005->xreg1,resubmit(,42),"
        "bucket=bucket_id:6,weight:3,actions=resubmit(,42)"
    )
    assert group_text(Group(7, (), (fields.IP4_SRC, fields.UDP_SRC))) == (
        "group_id=7,type=select,selection_method=hash,fields(ip_src,udp_src)"
    )


def test_controller_is_an_action_of_its_own():
    assert parse_flow("ip actions=CONTROLLER:0").actions == (Controller(0),)
    assert CONTROLLER_PORT not in [getattr(a, "port", None) for a in parse_flow("ip actions=CONTROLLER:5").actions]
