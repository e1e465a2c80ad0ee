"""Flows and groups as Hypothesis makes them: every field and every action, and only what a switch accepts."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from controller.oxm import WIRE
from pipelines import fields
from pipelines.actions import (
    IN_PORT_ACTION,
    LOCAL_PORT,
    Action,
    CheckPktLarger,
    Controller,
    Ct,
    DecTtl,
    Goto,
    Learn,
    LearnLoad,
    LearnMatch,
    Meter,
    Move,
    Nat,
    Output,
    OutputPart,
    Resubmit,
    SetField,
    ToGroup,
)
from pipelines.addresses import Ip
from pipelines.fields import ARP, IP4, IP6, IP_PROTO, Field, Item, Part
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.ids import FIRST_GROUP

GROUPS = (FIRST_GROUP + 1, FIRST_GROUP + 2)
METER = 7

IP_FIELDS = (fields.IP_TTL, fields.IP_FRAG)
IP4_FIELDS = (fields.IP4_SRC, fields.IP4_DST, *IP_FIELDS)
IP6_FIELDS = (fields.IP6_SRC, fields.IP6_DST, *IP_FIELDS)
TCP_FIELDS = (fields.TCP_SRC, fields.TCP_DST, fields.TCP_FLAGS)
UDP_FIELDS = (fields.UDP_SRC, fields.UDP_DST)
SCTP_FIELDS = (fields.SCTP_SRC, fields.SCTP_DST)
ND_FIELDS = (fields.ND_TARGET, fields.ND_RESERVED, fields.ND_OPTIONS_TYPE)
ARP_FIELDS = (fields.ARP_OP, fields.ARP_SPA, fields.ARP_TPA, fields.ARP_SHA, fields.ARP_THA)
NS = (IP6, IP_PROTO.eq(58), fields.ICMP6_TYPE.eq(135), fields.ICMP6_CODE.eq(0))
NA = (IP6, IP_PROTO.eq(58), fields.ICMP6_TYPE.eq(136), fields.ICMP6_CODE.eq(0))

# What makes fields meaningful, and the fields that then are: each field of `fields` is in one of them.
CONTEXTS: dict[str, tuple[tuple[Item, ...], tuple[Field, ...]]] = {
    "anything": ((), ()),
    "other": ((fields.ETH_TYPE.eq(0x1234),), ()),
    "ip": ((IP4,), IP4_FIELDS),
    "ipv6": ((IP6,), IP6_FIELDS),
    "igmp": ((IP4, IP_PROTO.eq(2)), IP4_FIELDS),
    "tcp": ((IP4, IP_PROTO.eq(6)), IP4_FIELDS + TCP_FIELDS),
    "tcp6": ((IP6, IP_PROTO.eq(6)), IP6_FIELDS + TCP_FIELDS),
    "udp": ((IP4, IP_PROTO.eq(17)), IP4_FIELDS + UDP_FIELDS),
    "udp6": ((IP6, IP_PROTO.eq(17)), IP6_FIELDS + UDP_FIELDS),
    "sctp": ((IP4, IP_PROTO.eq(132)), IP4_FIELDS + SCTP_FIELDS),
    "sctp6": ((IP6, IP_PROTO.eq(132)), IP6_FIELDS + SCTP_FIELDS),
    "icmp": ((IP4, IP_PROTO.eq(1)), (*IP4_FIELDS, fields.ICMP_TYPE)),
    "icmp6": ((IP6, IP_PROTO.eq(58)), (*IP6_FIELDS, fields.ICMP6_TYPE, fields.ICMP6_CODE)),
    "ns": (NS, (*IP6_FIELDS, *ND_FIELDS, fields.ND_SLL)),
    "na": (NA, (*IP6_FIELDS, *ND_FIELDS, fields.ND_TLL)),
    "arp": ((ARP,), ARP_FIELDS),
}
REGISTERS: tuple[Field, ...] = (*fields.REGS, *fields.XREGS, *fields.XXREGS)
TUNNEL = (fields.TUN_SRC, fields.TUN_DST, fields.TUN_IP6_SRC, fields.TUN_IP6_DST)
ALWAYS = (fields.IN_PORT, fields.ETH_SRC, fields.ETH_DST, fields.VLAN_TCI, *TUNNEL, *REGISTERS)
CONNECTION = (fields.CT_STATE, fields.CT_MARK, fields.CT_LABEL)

VLANS = ((0, 0x1FFF), (0, 0xFFFF), (0x1005, 0x1FFF), (0x7005, 0xFFFF), (0x1000, 0x1000), (0, 0x1000), (0x1004, 0x100C))
FRAGMENTS = ((0, 3), (1, 1), (1, 3), (3, 3), (0, 2))
STATES = ("+trk", "-trk", "+new+trk", "+new+trk+dnat", "+est+trk", "-new+est-rpl+trk", "+inv+trk", "+rel+rpl+trk-snat")
LATER = 3
PORTS_AND_FLAGS: set[Field | Part] = {
    *TCP_FIELDS,
    *UDP_FIELDS,
    *SCTP_FIELDS,
    fields.ICMP_TYPE,
    fields.ICMP6_TYPE,
    fields.ICMP6_CODE,
}
NOT_SET = {fields.IN_PORT, fields.ETH_TYPE, fields.IP_PROTO, fields.IP_FRAG, fields.TCP_FLAGS}
NOT_LEARNED = {fields.IN_PORT, fields.VLAN_TCI, fields.IP_FRAG, fields.TCP_FLAGS}
# numbers of ports that a switch takes whether it has them or not
PORTS = st.one_of(st.integers(1, 0xFEFF), st.just(LOCAL_PORT))
PARTS: list[Field | Part] = [
    part for part in (*fields.PARTS, fields.CONNECTION_FACTS, fields.ENDPOINT4) if part.field in REGISTERS
]
CT_PARTS: list[Field | Part] = [
    part for part in (*fields.PARTS, fields.CT_CONNECTION_FACTS) if part.field in CONNECTION
]
CT_SETTABLE: list[Field | Part] = [*CT_PARTS, fields.CT_MARK, fields.CT_LABEL]
REGISTER_SETTABLE: list[Field | Part] = [*PARTS, *REGISTERS]


def values(field: Field | Part) -> SearchStrategy[int]:
    if field is fields.IN_PORT:
        return PORTS
    if field is fields.ARP_OP:
        return st.integers(1, 255)
    edges = st.sampled_from((0, 1, (1 << field.bits) - 1))
    return st.one_of(edges, st.integers(0, (1 << field.bits) - 1))


@st.composite
def conditions(draw: DrawFn, field: Field) -> Item:
    if field is fields.VLAN_TCI:
        return field.masked(*draw(st.sampled_from(VLANS)))
    if field is fields.IP_FRAG:
        return field.masked(*draw(st.sampled_from(FRAGMENTS)))
    if field is fields.CT_STATE:
        return fields.ct_state(draw(st.sampled_from(STATES)))
    value = draw(values(field))
    if not WIRE[field].maskable or draw(st.booleans()):
        return field.eq(value)
    ones = (1 << field.bits) - 1
    prefixes = st.integers(1, field.bits).map(lambda length: ones >> field.bits - length << field.bits - length)
    return field.masked(value, draw(st.one_of(prefixes, st.integers(1, ones))))


def _matches(head: tuple[Item, ...], items: list[Item]) -> tuple[Item, ...] | None:
    try:
        return match(*head, *items)
    except ValueError:
        return None  # contradicts itself


@st.composite
def matches(draw: DrawFn, context: str) -> tuple[Item, ...]:
    head, own = CONTEXTS[context]
    chosen = draw(st.lists(st.sampled_from((*ALWAYS, *CONNECTION, *own * 4)), max_size=6, unique=True))
    registers = [field for field in chosen if field in REGISTERS]
    overlapping = {field for field in registers[1:] if field not in fields.REGS}
    items = [draw(conditions(field)) for field in chosen if field not in overlapping]
    if any(item.field is fields.IP_FRAG and item.value == LATER for item in items):
        items = [item for item in items if item.field not in PORTS_AND_FLAGS]  # a later fragment has none
    narrow = [item for item in items if item.field in fields.REGS]
    wide = [item for item in items if item.field in (*fields.XREGS, *fields.XXREGS)]
    if wide:
        items = [item for item in items if item not in narrow]
    found = _matches(head, items)
    return match(*head) if found is None else found


def set_fields(field: Field | Part) -> SearchStrategy[SetField]:
    return values(field).map(lambda value: SetField(field, value))


@st.composite
def translations(draw: DrawFn, family: int) -> Nat:
    if draw(st.booleans()):
        return Nat()
    ip = Ip(family, draw(st.integers(0, (1 << (32 if family == 4 else 128)) - 2)))
    if not ip.value:
        return Nat(draw(st.sampled_from(("src", "dst"))), ip)
    first = draw(st.one_of(st.none(), st.integers(1, 65000)))
    last = draw(st.one_of(st.none(), st.integers(first + 1, 65535))) if first else None
    return Nat(draw(st.sampled_from(("src", "dst"))), ip, first, last)


@st.composite
def trackings(draw: DrawFn, family: int) -> Ct:
    zone = draw(st.integers(1, 65535))
    table = draw(st.one_of(st.none(), st.integers(0, 253)))
    if not draw(st.booleans()):
        return Ct(zone, table, nat=draw(st.sampled_from((None, Nat()))))
    inner = st.one_of(
        st.sampled_from(CT_SETTABLE).flatmap(set_fields),
        st.sampled_from(
            [Move(fields.ETH_SRC, fields.CT_CLIENT_MAC), Move(fields.CONNECTION_FACTS, fields.CT_CONNECTION_FACTS)]
        ),
    )
    nat = draw(st.one_of(st.none(), translations(family)))
    return Ct(zone, table, commit=True, nat=nat, exec=tuple(draw(st.lists(inner, max_size=3))))


@st.composite
def single_bits(draw: DrawFn) -> Part:
    field = draw(st.sampled_from(REGISTERS))
    return fields.part_of(field, draw(st.integers(0, field.bits - 1)), 1)


@st.composite
def learnings(draw: DrawFn, context: str, settable: list[Field | Part], places: list[Field | Part]) -> Learn:
    head, own = CONTEXTS[context]
    specs: list[LearnMatch | LearnLoad] = [LearnMatch(item.field, item.value) for item in head]
    matchable: list[Field | Part] = [field for field in (*ALWAYS, *own) if field not in NOT_LEARNED]
    for field in draw(st.lists(st.sampled_from([*matchable, *PARTS]), max_size=3)):
        specs.append(LearnMatch(field, draw(_sources(field, places))))
    for field in draw(st.lists(st.sampled_from(settable), max_size=3)):
        specs.append(LearnLoad(field, draw(_sources(field, places))))
    times = st.integers(0, 65535)
    return Learn(
        draw(st.integers(0, 253)),
        draw(st.integers(0, (1 << 64) - 1)),
        tuple(specs),
        draw(st.one_of(st.just(32768), times)),
        draw(times),
        draw(times),
        draw(st.one_of(st.just(0), st.integers(0, 0xFFFFFFFF))),
        draw(st.one_of(st.none(), single_bits())),
        delete_learned=draw(st.booleans()),
        send_flow_rem=draw(st.booleans()),
    )


def _sources(field: Field | Part, places: list[Field | Part]) -> SearchStrategy[Field | Part | int]:
    equal = [place for place in places if place.bits == field.bits]
    return st.one_of(values(field), st.sampled_from(equal)) if equal else values(field)


def actions(context: str) -> SearchStrategy[tuple[Action, ...]]:
    own = [field for field in CONTEXTS[context][1] if field not in NOT_SET]
    settable: list[Field | Part] = [fields.ETH_SRC, fields.ETH_DST, *TUNNEL, *REGISTERS, *PARTS, *own * 3]
    places: list[Field | Part] = [fields.ETH_SRC, fields.ETH_DST, *TUNNEL, *CONNECTION, *REGISTERS, *PARTS, *own * 2]
    pairs = [
        Move(source, target)
        for source in places
        for target in places
        if source.bits == target.bits and target not in CONNECTION and source is not target
    ]
    kinds: list[SearchStrategy[Action]] = [
        st.sampled_from(settable).flatmap(set_fields),
        st.sampled_from(pairs),
        st.one_of(PORTS, st.just(IN_PORT_ACTION)).map(Output),
        st.sampled_from((fields.OUT_PORT, fields.part_of(fields.XXREGS[0], 32, 32))).map(OutputPart),
        st.integers(0, 65535).map(Controller),
        st.builds(CheckPktLarger, st.integers(0, 65535), single_bits()),
        st.integers(0, 253).map(Resubmit),
        st.sampled_from(GROUPS).map(ToGroup),
    ]
    kinds.append(learnings(context, settable, places))
    if fields.IP_TTL in own:
        family = 4 if fields.IP4_SRC in own else 6
        kinds += [st.just(DecTtl()), trackings(family), trackings(family)]
    several = st.lists(st.one_of(kinds), max_size=5)
    return st.tuples(st.booleans(), several).map(lambda drawn: ((Meter(METER),) if drawn[0] else ()) + tuple(drawn[1]))


def _names(action: Action) -> set[Field | Part]:
    if isinstance(action, SetField):
        return {action.field}
    if isinstance(action, Learn):
        return {place for spec in action.specs for place in (spec.field, spec.source) if not isinstance(place, int)}
    return {action.source, action.target} if isinstance(action, Move) else set()


@st.composite
def flows(draw: DrawFn) -> Flow:
    context = draw(st.sampled_from(sorted(CONTEXTS)))
    table = draw(st.integers(0, 252))
    end: tuple[Action, ...] = draw(st.one_of(st.just(()), st.integers(table + 1, 253).map(lambda to: (Goto(to),))))
    conditions_ = draw(matches(context))
    done = draw(actions(context))
    if any(item.field is fields.IP_FRAG and item.value == LATER for item in conditions_):
        done = tuple(action for action in done if not _names(action) & PORTS_AND_FLAGS)
    if fields.ct_state("+inv+trk") in conditions_:  # what is invalid cannot be committed
        done = tuple(action for action in done if not (isinstance(action, Ct) and action.commit))
    return Flow(
        table,
        draw(st.integers(0, 65535)),
        conditions_,
        done + end,
        draw(st.sampled_from((0, 0, 60, 65535))),
        draw(st.sampled_from((0, 0, 60, 65535))),
    )


HASHABLE = (
    *fields.IP_SRC.values(),
    *fields.IP_DST.values(),
    fields.IP_PROTO,
    *fields.L4_SRC.values(),
    *fields.L4_DST.values(),
    fields.ETH_SRC,
)


@st.composite
def groups(draw: DrawFn) -> Group:
    action = st.one_of(
        st.sampled_from(REGISTER_SETTABLE).flatmap(set_fields),
        st.integers(0, 253).map(Resubmit),
    )
    numbers = draw(st.lists(st.integers(0, 0xFFFFFEFF), max_size=5, unique=True))
    buckets = tuple(
        Bucket(number, tuple(draw(st.lists(action, max_size=3))), draw(st.integers(1, 65535))) for number in numbers
    )
    chosen = draw(st.lists(st.sampled_from(HASHABLE), max_size=4, unique=True))
    return Group(FIRST_GROUP + 100 + draw(st.integers(0, 3)), buckets, tuple(chosen))
