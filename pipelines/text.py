"""Flows and groups as ovs-ofctl text, both ways.

There is one canonical spelling, that of `ovs-ofctl -O OpenFlow15 --no-stats --no-names dump-flows`, apart from
the head, which always says table and priority. Parts of registers are written as their bits, wide registers in
a match as the 32-bit ones they are made of. `parse_flow(flow_text(flow))` has the same text and the same bytes
on the wire; it is equal to `flow` itself when that names whole fields wherever it can.
"""

from collections.abc import Iterator
from functools import lru_cache

from pipelines import fields
from pipelines.actions import (
    CONTROLLER_PORT,
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
from pipelines.addresses import BITS, Ip, mac_text, prefix_mask
from pipelines.fields import Field, Item, Part, Show
from pipelines.flow import Bucket, Flow, Group
from pipelines.parse import TextError, parse_flow, parse_group
from pipelines.words import CONNECTION_ORDER, FLAGS, FRAGMENTS, MATCH_ORDER, PROTOCOLS, WORDS

__all__ = ["TextError", "action_text", "flow_text", "group_text", "match_text", "parse_flow", "parse_group"]

PORT_NAMES = {LOCAL_PORT: "LOCAL", IN_PORT_ACTION: "IN_PORT", CONTROLLER_PORT: "CONTROLLER"}
_FAMILY = {Show.IP4: 4, Show.IP6: 6}
_PROTOCOL_WORDS = {numbers: word for word, numbers in PROTOCOLS.items()}
_FRAGMENT_WORDS = {numbers: word for word, numbers in FRAGMENTS.items()}
_VLAN_PRESENT, _VLAN_ID, _VLAN_PRIORITY = 0x1000, 0x0FFF, 0xE000


def flow_text(flow: Flow, cookie: int | None = None) -> str:
    """`table=42, priority=100,tcp,… actions=…`, with `cookie=0x…, ` in front when a cookie is given."""
    head = "" if cookie is None else f"cookie={cookie:#x}, "
    head += f"table={flow.table}, "
    if flow.idle_timeout:
        head += f"idle_timeout={flow.idle_timeout}, "
    if flow.hard_timeout:
        head += f"hard_timeout={flow.hard_timeout}, "
    words = match_text(flow.match)
    comma = "," if words else ""
    return f"{head}priority={flow.priority}{comma}{words} actions={actions_text(flow.actions)}"


def group_text(group: Group) -> str:
    """`group_id=7,type=select,selection_method=…,bucket=bucket_id:1,actions=…`."""
    names = sorted((WORDS[field].action for field in group.hash_fields), key=_field_position)
    if not names:
        method = "selection_method=dp_hash"
    elif len(names) == 1:
        method = f"selection_method=hash,fields={names[0]}"
    else:
        method = f"selection_method=hash,fields({','.join(names)})"
    buckets = "".join(f",bucket={_bucket_text(bucket)}" for bucket in group.buckets)
    return f"group_id={group.id},type=select,{method}{buckets}"


def _field_position(name: str) -> int:
    return _FIELD_POSITIONS[name]


_FIELD_POSITIONS = {words.action: position for position, words in enumerate(WORDS.values())}


def _bucket_text(bucket: Bucket) -> str:
    weight = "" if bucket.weight == 1 else f"weight:{bucket.weight},"
    return f"bucket_id:{bucket.id},{weight}actions={actions_text(bucket.actions)}"


# --- matches -----------------------------------------------------------------------------------------------


def match_text(match: tuple[Item, ...]) -> str:
    """The conditions, joined by commas; empty when everything matches."""
    items = {item.field: item for item in _narrow(match)}
    words = [_item_text(items.pop(field)) for field in CONNECTION_ORDER if field in items]
    if protocol := _protocol(items):
        words.append(protocol)
    words += [_item_text(items[field]) for field in MATCH_ORDER if field in items]
    return ",".join(words)


def _narrow(match: tuple[Item, ...]) -> Iterator[Item]:
    """Wide registers as the 32-bit registers they are made of, conditions on one register merged."""
    merged: dict[Field, tuple[int, int]] = {}
    for item in match:
        field, value, mask = item.field, item.value, item.mask
        if isinstance(field, Part):
            raise TypeError(f"a condition on part {field.name}: build the match with flow.match()")
        if field not in _NARROW:
            yield item
            continue
        for register, shift in _NARROW[field]:
            some = (field.ones if mask is None else mask) >> shift & register.ones
            known_value, known_mask = merged.get(register, (0, 0))
            merged[register] = known_value | value >> shift & some, known_mask | some
    for register, (value, some) in merged.items():
        if some:
            yield Item(register, value, None if some == register.ones else some)


def _halves(number: int, words: int) -> tuple[tuple[Field, int], ...]:
    return tuple((fields.REGS[number * words + word], 32 * (words - 1 - word)) for word in range(words))


_NARROW: dict[Field, tuple[tuple[Field, int], ...]] = {
    field: _halves(number, words)
    for registers, words in ((fields.REGS, 1), (fields.XREGS, 2), (fields.XXREGS, 4))
    for number, field in enumerate(registers)
}


def _protocol(items: dict[Field | Part, Item]) -> str:
    """The word for Ethernet type and IP protocol, which are taken out of `items` when it says them."""
    ethernet = items.get(fields.ETH_TYPE)
    if ethernet is None:
        return ""
    protocol = items.get(fields.IP_PROTO)
    if protocol and (word := _PROTOCOL_WORDS.get((ethernet.value, protocol.value))):
        del items[fields.ETH_TYPE], items[fields.IP_PROTO]
        return word
    word = _PROTOCOL_WORDS.get((ethernet.value, None), "")
    if word:
        del items[fields.ETH_TYPE]
    return word


@lru_cache(maxsize=16384)
def _item_text(item: Item) -> str:
    field, value, mask = item.field, item.value, item.mask
    assert isinstance(field, Field)
    name = WORDS[field].match
    if field is fields.VLAN_TCI:
        return _vlan_text(value, field.ones if mask is None else mask)
    if field is fields.ETH_TYPE:
        return f"dl_type=0x{value:04x}"
    if field is fields.IP_FRAG:
        return f"nw_frag={_FRAGMENT_WORDS[value, field.ones if mask is None else mask]}"
    if field.show in FLAGS:
        return f"{name}={_flags_text(FLAGS[field.show], value, mask)}"
    if mask is None:
        return f"{name}={_value_text(field, value)}"
    return f"{name}={_masked_text(field, value, mask)}"


def _vlan_text(value: int, mask: int) -> str:
    identifier = _VLAN_PRESENT | _VLAN_ID
    if mask & identifier == identifier and value & _VLAN_PRESENT:
        priority = f",dl_vlan_pcp={value >> 13}" if mask & _VLAN_PRIORITY else ""
        return f"dl_vlan={value & _VLAN_ID}{priority}"
    return f"vlan_tci=0x{value & identifier:04x}/0x{mask & identifier:04x}"


def _flags_text(bits: dict[str, int], value: int, mask: int | None) -> str:
    if mask is None:
        return "|".join(name for name, bit in bits.items() if value & bit) or "0"
    return "".join(("+" if value & bit else "-") + name for name, bit in bits.items() if mask & bit)


def _value_text(field: Field, value: int) -> str:
    if field.show is Show.MAC:
        return mac_text(value)
    if field.show in _FAMILY:
        return _ip_text(Ip(_FAMILY[field.show], value))
    if field.show is Show.PORT:
        return PORT_NAMES.get(value, str(value))
    if field.show is Show.DECIMAL or field is fields.ND_RESERVED:
        return str(value)
    return f"{value:#x}" if value else "0"


def _masked_text(field: Field, value: int, mask: int) -> str:
    if field.show is Show.MAC:
        return f"{mac_text(value)}/{mac_text(mask)}"
    if field.show in _FAMILY:
        family = _FAMILY[field.show]
        length = mask.bit_count()
        plain = mask == prefix_mask(family, length) and length <= BITS[family]
        return f"{_ip_text(Ip(family, value))}/{length if plain else _ip_text(Ip(family, mask))}"
    return f"{value:#x}/{mask:#x}" if field.show is Show.DECIMAL else f"{_hex(value)}/{mask:#x}"


def _ip_text(ip: Ip) -> str:
    """As inet_ntop does it: IPv6 addresses that hold an IPv4 address show it."""
    if ip.family == 6 and (ip.value >> 32 == 0xFFFF or 0xFFFF < ip.value <= 0xFFFFFFFF):
        return ("::ffff:" if ip.value >> 32 else "::") + str(Ip(4, ip.value & 0xFFFFFFFF))
    return str(ip)


def _hex(value: int) -> str:
    return f"{value:#x}" if value else "0"


# --- actions -----------------------------------------------------------------------------------------------


def actions_text(actions: tuple[Action, ...]) -> str:
    return ",".join(map(action_text, actions)) or "drop"


@lru_cache(maxsize=16384)
def action_text(action: Action) -> str:
    match action:
        case SetField():
            return _set_field_text(action)
        case Move(source, target):
            return f"move:{_bits_text(source)}->{_bits_text(target)}"
        case CheckPktLarger(length, target):
            return f"check_pkt_larger({length})->{_bits_text(target)}"
        case Ct():
            return _ct_text(action)
        case Learn():
            return _learn_text(action)
        case DecTtl():
            return "dec_ttl"
        case _:
            return _target_text(action)


def _target_text(action: Output | OutputPart | Controller | Resubmit | ToGroup | Meter | Goto) -> str:
    match action:
        case Output(port):
            return PORT_NAMES.get(port, f"output:{port}")
        case OutputPart(part):
            return f"output:{_bits_text(part)}"
        case Controller(longest):
            return f"CONTROLLER:{longest}"
        case Resubmit(table):
            return f"resubmit(,{table})"
        case ToGroup(group):
            return f"group:{group}"
        case Meter(meter):
            return f"meter:{meter}"
        case Goto(table):
            return f"goto_table:{table}"


def _bits_text(field: Field | Part) -> str:
    if isinstance(field, Field):
        return f"{WORDS[field].move}[]"
    name = WORDS[field.field].move
    if field.bits == field.field.bits:
        return f"{name}[]"
    if field.bits == 1:
        return f"{name}[{field.low}]"
    return f"{name}[{field.low}..{field.low + field.bits - 1}]"


def _set_field_text(action: SetField) -> str:
    field = action.field
    if isinstance(field, Part) and field.bits != field.field.bits:
        mask = (1 << field.bits) - 1 << field.low
        return f"set_field:{_hex(action.value << field.low)}/{mask:#x}->{WORDS[field.field].action}"
    whole = field.field if isinstance(field, Part) else field
    return f"set_field:{_value_text(whole, action.value)}->{WORDS[whole].action}"


def _ct_text(ct: Ct) -> str:
    words = ["commit"] if ct.commit else []
    if ct.table is not None:
        words.append(f"table={ct.table}")
    if ct.zone:
        words.append(f"zone={ct.zone}")
    if ct.nat is not None:
        words.append(_nat_text(ct.nat))
    if ct.exec:
        words.append(f"exec({','.join(map(action_text, ct.exec))})")
    return f"ct({','.join(words)})" if words else "ct"


def _nat_text(nat: Nat) -> str:
    if nat.ip is None:
        return "nat"
    if not nat.ip.value:
        return f"nat({nat.side})"  # the zero address keeps the address: on the wire it is no range
    address = _ip_text(nat.ip)
    if nat.ip.family == 6 and nat.port is not None:
        address = f"[{address}]"
    ports = "" if nat.port is None else f":{nat.port}"
    if nat.last_port is not None:
        ports += f"-{nat.last_port}"
    return f"nat({nat.side}={address}{ports})"


def _learn_text(learn: Learn) -> str:
    words = [f"table={learn.table}"]
    words += [
        f"{name}={number}"
        for name, number, usual in (
            ("idle_timeout", learn.idle_timeout, 0),
            ("hard_timeout", learn.hard_timeout, 0),
            ("priority", learn.priority, 32768),
        )
        if number != usual
    ]
    if learn.send_flow_rem:
        words.append("send_flow_rem")
    if learn.delete_learned:
        words.append("delete_learned")
    if learn.cookie:
        words.append(f"cookie={learn.cookie:#x}")
    if learn.limit:
        words.append(f"limit={learn.limit}")
    if learn.result is not None:
        words.append(f"result_dst={_bits_text(learn.result)}")
    return f"learn({','.join([*words, *map(_spec_text, learn.specs)])})"


def _spec_text(spec: LearnMatch | LearnLoad) -> str:
    field, source = spec.field, spec.source
    if isinstance(spec, LearnLoad):
        return f"load:{_hex(source) if isinstance(source, int) else _bits_text(source)}->{_bits_text(field)}"
    target = _bits_text(field)
    if not isinstance(source, int):
        return target if _bits_text(source) == target else f"{target}={_bits_text(source)}"
    if isinstance(field, Part) and field.bits != field.field.bits:
        return f"{target}={_hex(source)}"
    whole = field.field if isinstance(field, Part) else field
    return f"{WORDS[whole].action}={_value_text(whole, source)}"
