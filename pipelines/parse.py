"""From ovs-ofctl text to flows and groups: what `text` writes, and the common other spellings of the same."""

import re
from collections.abc import Callable, Iterator

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
from pipelines.addresses import Ip, parse_ip, parse_mac, prefix_mask
from pipelines.fields import Field, Item, Part, Show
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.words import FLAGS, FRAGMENTS, PROTOCOLS, SHARED, WORDS

_PORTS = {"LOCAL": LOCAL_PORT, "IN_PORT": IN_PORT_ACTION, "CONTROLLER": CONTROLLER_PORT}
_FAMILY = {Show.IP4: 4, Show.IP6: 6}
_BY_MATCH = {words.match: field for field, words in WORDS.items() if words.match not in SHARED}
_BY_ACTION = {words.action: field for field, words in WORDS.items()}
_BY_ACTION["ip_proto"] = fields.IP_PROTO
_BY_MOVE = {words.move: field for field, words in WORDS.items()}
_FLAG = re.compile(r"([+-])(\[?\w+\]?)")
_BITS = re.compile(r"(\w+)\[(?:(\d+)(?:\.\.(\d+))?)?\]")
_NAT = re.compile(r"(src|dst)=(?:\[([^\]]+)\]|([0-9.]+)|([0-9a-fA-F:.]+))(?::(\d+)(?:-(\d+))?)?")


class TextError(ValueError):
    """Text that is not a flow or group, or says what we do not."""


def parse_flow(text: str) -> Flow:
    """Counters and the cookie are read over. Raises TextError."""
    head, found, actions = text.strip().partition("actions=")
    if not found:
        raise TextError(f"no actions in {text!r}")
    numbers = {"table": 0, "priority": 32768, "idle_timeout": 0, "hard_timeout": 0}
    words: list[tuple[str, str]] = []
    try:
        for word in re.split(r"[,\s]+", head.strip(" ,")):
            name, _, value = word.partition("=")
            if name in numbers:
                numbers[name] = int(value, 0)
            elif name and name not in ("cookie", "duration", "n_packets", "n_bytes", "idle_age", "hard_age"):
                words.append((name, value))
        return Flow(
            numbers["table"],
            numbers["priority"],
            match(*_items(words)),
            _actions(actions),
            numbers["idle_timeout"],
            numbers["hard_timeout"],
        )
    except TextError:
        raise
    except (ValueError, KeyError, IndexError, OverflowError) as problem:
        raise TextError(f"{problem} in {text!r}") from problem


def parse_group(text: str) -> Group:
    """Raises TextError."""
    try:
        return _group(text.strip())
    except TextError:
        raise
    except (ValueError, KeyError, IndexError, OverflowError) as problem:
        raise TextError(f"{problem} in {text!r}") from problem


def _group(text: str) -> Group:
    head, *buckets = text.split(",bucket=")
    number: int | None = None
    names: list[str] = []
    for word in _split(head):
        name, _, value = word.partition("=")
        if name == "group_id":
            number = int(value, 0)
        elif name == "fields" or word.startswith("fields("):
            names = [value] if value else word[len("fields(") : -1].split(",")
        elif word not in ("type=select", "selection_method=hash", "selection_method=dp_hash"):
            raise TextError(f"{word!r} in a group")
    if number is None:
        raise TextError("a group without group_id")
    return Group(number, tuple(map(_bucket, buckets)), tuple(_BY_ACTION[name] for name in names))


def _bucket(text: str) -> Bucket:
    head, _, actions = text.partition("actions=")
    numbers = {"bucket_id": 0, "weight": 1}
    for word in head.strip(",").split(","):
        name, _, value = word.replace("=", ":").partition(":")
        if name not in numbers:
            raise TextError(f"{word!r} in a bucket")
        numbers[name] = int(value, 0)
    parsed: list[SetField | Resubmit] = []
    for action in _actions(actions):
        if not isinstance(action, SetField | Resubmit):
            raise TextError(f"{action} in a bucket")
        parsed.append(action)
    return Bucket(numbers["bucket_id"], tuple(parsed), numbers["weight"])


# --- matches -----------------------------------------------------------------------------------------------


def _items(words: list[tuple[str, str]]) -> Iterator[Item]:
    protocol: int | None = None
    for name, value in words:
        if name in PROTOCOLS and not value:
            ethernet, protocol = PROTOCOLS[name]
            yield fields.ETH_TYPE.eq(ethernet)
            if protocol is not None:
                yield fields.IP_PROTO.eq(protocol)
        elif name in ("nw_proto", "ip_proto"):
            protocol = int(value, 0)
    for name, value in words:
        if name in PROTOCOLS and not value:
            continue
        if name == "dl_vlan":
            yield fields.VLAN_TCI.masked(0x1000 | int(value, 0), 0x1FFF)
        elif name == "dl_vlan_pcp":
            yield fields.VLAN_TCI.masked(int(value, 0) << 13, 0xE000)
        elif name in SHARED:
            if protocol not in SHARED[name]:
                raise TextError(f"{name} without its protocol")
            yield _item(SHARED[name][protocol], value)
        else:
            field = _BY_MATCH.get(name) or _BY_ACTION.get(name)
            if field is None:
                raise TextError(f"unknown field {name!r}")
            yield _item(field, value)


def _item(field: Field, text: str) -> Item:
    if field is fields.IP_FRAG:
        return field.masked(*FRAGMENTS[text])
    if field.show in FLAGS:
        return _flags(field, FLAGS[field.show], text)
    value, slash, mask = text.partition("/")
    number = _fits(field, _value(field, value))
    if not slash:
        return field.eq(number)
    if field.show in _FAMILY and mask.isdigit():
        return field.masked(number, prefix_mask(_FAMILY[field.show], int(mask)))
    return field.masked(number, _fits(field, _value(field, mask)))


def _flags(field: Field, bits: dict[str, int], text: str) -> Item:
    if text[:1] not in ("+", "-"):
        return field.eq(sum(bits[word] for word in text.split("|")) if text != "0" else 0)
    value = mask = 0
    if "".join("".join(pair) for pair in _FLAG.findall(text)) != text:
        raise TextError(f"{text!r} is not a list of flags")
    for sign, word in _FLAG.findall(text):
        mask |= bits[word]
        value |= bits[word] if sign == "+" else 0
    return field.masked(value, mask)


def _value(field: Field, text: str) -> int:
    if field.show is Show.MAC:
        return parse_mac(text)
    if field.show in _FAMILY:
        ip = parse_ip(text)
        if ip.family != _FAMILY[field.show]:
            raise TextError(f"{text!r} is not an address for {field.name}")
        return ip.value
    return _PORTS[text] if field.show is Show.PORT and text in _PORTS else int(text, 0)


def _fits(field: Field | Part, value: int) -> int:
    if value < 0 or value >> field.bits:
        raise TextError(f"{value:#x} does not fit in {field.name}")
    return value


# --- actions -----------------------------------------------------------------------------------------------


def _split(text: str) -> Iterator[str]:
    """At the commas that stand in no parenthesis."""
    depth = start = 0
    for position, character in enumerate(text):
        if character == "," and not depth:
            yield text[start:position]
            start = position + 1
        depth += (character == "(") - (character == ")")
    if depth:
        raise TextError(f"parentheses do not match in {text!r}")
    yield text[start:]


def _actions(text: str) -> tuple[Action, ...]:
    text = text.strip()
    return () if text == "drop" else tuple(map(_action, _split(text)))


def _action(text: str) -> Action:
    if text in ("LOCAL", "IN_PORT"):
        return Output(_PORTS[text])
    if text == "dec_ttl":
        return DecTtl()
    if text == "ct" or text.startswith("ct("):
        return _ct(text[3:-1])
    if text.startswith("resubmit("):
        port, _, table = text[len("resubmit(") : -1].partition(",")
        if port:
            raise TextError(f"{text!r} with a port")
        return Resubmit(int(table))
    if text.startswith("learn("):
        return _learn(text[len("learn(") : -1])
    if text.startswith("check_pkt_larger("):
        return _check_pkt_larger(text[len("check_pkt_larger(") :])
    name, _, argument = text.partition(":")
    if name not in _ACTIONS:
        raise TextError(f"unknown action {text!r}")
    return _ACTIONS[name](argument)


def _output(text: str) -> Action:
    if text in _PORTS and text != "CONTROLLER":
        return Output(_PORTS[text])
    return Output(int(text, 0)) if text.isdigit() else OutputPart(_part(text))


def _set_field(text: str) -> SetField:
    value, _, name = text.rpartition("->")
    if name not in _BY_ACTION:
        raise TextError(f"unknown field {name!r}")
    field = _BY_ACTION[name]
    number, slash, mask_text = value.partition("/")
    if not slash:
        return SetField(field, _fits(field, _value(field, number)))
    mask = _fits(field, _value(field, mask_text))
    low = (mask & -mask).bit_length() - 1
    if not mask or mask + (1 << low) & mask:
        raise TextError(f"set_field of scattered bits {mask_text}")
    target = fields.bits_of(field, low, mask.bit_count())
    return SetField(target, _fits(target, _value(field, number) >> low))


def _move(text: str) -> Move:
    source, _, target = text.partition("->")
    move = Move(_bits(source), _bits(target))
    if move.source.bits != move.target.bits:
        raise TextError(f"move of different widths {text!r}")
    return move


def _check_pkt_larger(text: str) -> CheckPktLarger:
    length, _, target = text.partition(")->")
    part = _part(target)
    if part.bits != 1:
        raise TextError(f"{target} is not one bit")
    return CheckPktLarger(int(length, 0), part)


def _place(text: str) -> tuple[Field, int, int]:
    found = _BITS.fullmatch(text)
    if not found or found[1] not in _BY_MOVE:
        raise TextError(f"{text!r} is no range of bits")
    field = _BY_MOVE[found[1]]
    if found[2] is None:
        return field, 0, field.bits
    low = int(found[2])
    return field, low, int(found[3] or low) - low + 1


def _bits(text: str) -> Field | Part:
    return fields.bits_of(*_place(text))


def _part(text: str) -> Part:
    return fields.part_of(*_place(text))


def _ct(text: str) -> Ct:
    zone, table, commit = 0, None, False
    nat: Nat | None = None
    inner: list[SetField | Move] = []
    for word in filter(None, _split(text)):
        name, _, value = word.partition("=")
        if word == "commit":
            commit = True
        elif name == "zone":
            zone = int(value, 0)
        elif name == "table":
            table = int(value, 0)
        elif word.startswith("nat"):
            nat = _nat(word)
        elif word.startswith("exec("):
            for action in _actions(word[len("exec(") : -1]):
                if not isinstance(action, SetField | Move):
                    raise TextError(f"{action} in exec")
                inner.append(action)
        else:
            raise TextError(f"{word!r} in ct")
    return Ct(zone, table, commit, nat, tuple(inner))


def _nat(text: str) -> Nat:
    if text == "nat":
        return Nat()
    if text in ("nat(src)", "nat(dst)"):
        return Nat(text[4:7], Ip(4, 0))
    found = _NAT.fullmatch(text[len("nat(") : -1])
    if not found:
        raise TextError(f"{text!r} is not a translation")
    side, bracketed, ip4, ip6, first, last = found.groups()
    ip = parse_ip(bracketed or ip4 or ip6)
    return Nat(side, ip, int(first) if first else None, int(last) if last else None)


def _learn(text: str) -> Learn:
    numbers = {"table": 1, "idle_timeout": 0, "hard_timeout": 0, "priority": 32768, "cookie": 0, "limit": 0}
    result: Part | None = None
    delete_learned = send_flow_rem = False
    specs: list[LearnMatch | LearnLoad] = []
    for word in _split(text):
        name, _, value = word.partition("=")
        if name in numbers:
            numbers[name] = int(value, 0)
        elif name == "result_dst":
            result = _part(value)
        elif word == "delete_learned":
            delete_learned = True
        elif word == "send_flow_rem":
            send_flow_rem = True
        elif word.startswith("load:"):
            specs.append(_learned_load(word[len("load:") :]))
        else:
            specs.append(_learned_match(name, value))
    return Learn(
        **numbers, specs=tuple(specs), result=result, delete_learned=delete_learned, send_flow_rem=send_flow_rem
    )


def _learned_load(text: str) -> LearnLoad:
    value, _, target = text.partition("->")
    field = _bits(target)
    return LearnLoad(field, _fits(field, int(value, 0)) if value[:1].isdigit() else _as_wide(field, value))


def _learned_match(name: str, value: str) -> LearnMatch:
    if name in _BY_ACTION:
        whole = _BY_ACTION[name]
        return LearnMatch(whole, _fits(whole, _value(whole, value)))
    field = _bits(name)
    if not value:
        return LearnMatch(field, field)
    if _BITS.fullmatch(value):
        return LearnMatch(field, _as_wide(field, value))
    whole = field.field if isinstance(field, Part) else field
    return LearnMatch(field, _fits(field, _value(whole, value) if whole is field else int(value, 0)))


def _as_wide(field: Field | Part, text: str) -> Field | Part:
    source = _bits(text)
    if source.bits != field.bits:
        raise TextError(f"{text} and {field.name} have different widths")
    return source


_ACTIONS: dict[str, Callable[[str], Action]] = {
    "output": _output,
    "CONTROLLER": lambda text: Controller(int(text or 65535)),
    "controller": lambda text: Controller(int(text or 65535)),
    "set_field": _set_field,
    "move": _move,
    "group": lambda text: ToGroup(int(text)),
    "meter": lambda text: Meter(int(text)),
    "goto_table": lambda text: Goto(int(text)),
}
