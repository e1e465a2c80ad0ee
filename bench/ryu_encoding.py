"""Ryu's encoding of the flows that we encode, as an app written for Ryu does it: objects, then their serialization."""

from collections.abc import Collection, Iterable, Mapping
from time import process_time
from types import SimpleNamespace
from typing import Any

from ryu.ofproto import ofproto_v1_5, ofproto_v1_5_parser

from controller.encode import EncodedFlow, EncodedUnit
from pipelines.actions import Action, Ct, Move, Resubmit, SetField, ToGroup
from pipelines.addresses import Ip
from pipelines.fields import Field, Part, Show
from pipelines.flow import Flow
from pipelines.unit import Unit, UnitKey

FLOWS = 3000  # that are enough for a rate
INNER = 16  # where the flow mod begins in a bundle-add message
NAMES = {
    "dl_type": "eth_type",
    "nw_proto": "ip_proto",
    "nw_src": "ipv4_src",
    "nw_dst": "ipv4_dst",
    "dl_src": "eth_src",
    "dl_dst": "eth_dst",
}
SAME_PORT, COMMIT, NAT_DST, NO_TABLE = 0xFFF8, 1, 2, 255

_datapath: Any = SimpleNamespace(ofproto=ofproto_v1_5, ofproto_parser=ofproto_v1_5_parser)
_parser: Any = ofproto_v1_5_parser


def encodes(flow: Flow) -> bool:
    """Whether it is one of those that are made here: to a group, or to an IPv4 endpoint."""
    nats = [action.nat for action in flow.actions if isinstance(action, Ct)]
    to_endpoint = len(nats) == 1 and nats[0] is not None and nats[0].side == "dst"
    return to_endpoint or (len(flow.actions) == 1 and isinstance(flow.actions[0], ToGroup))


def flow_mod(flow: Flow, cookie: int, xid: int) -> bytes:
    actions = [_action(action) for action in flow.actions]
    message = _parser.OFPFlowMod(
        _datapath,
        cookie=cookie,
        table_id=flow.table,
        priority=flow.priority,
        out_port=ofproto_v1_5.OFPP_ANY,
        out_group=ofproto_v1_5.OFPG_ANY,
        match=_parser.OFPMatch(**_conditions(flow)),
        instructions=[_parser.OFPInstructionActions(ofproto_v1_5.OFPIT_APPLY_ACTIONS, actions)],
    )
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def _conditions(flow: Flow) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in flow.match:
        field, value, mask = item.field, item.value, item.mask
        if field.name.startswith("xreg"):  # unknown to Ryu: as two registers
            first = 2 * int(field.name.removeprefix("xreg"))
            found |= {f"reg{first}": value >> 32, f"reg{first + 1}": value & 0xFFFFFFFF}
        else:
            found[_name(field)] = _value(field, value, mask)
    return found


def _action(action: Action) -> Any:
    match action:
        case SetField(field, value):
            low, mask = (field.low, (1 << field.bits) - 1 << field.low) if isinstance(field, Part) else (0, None)
            return _parser.OFPActionSetField(**{_name(field): _value(field, value << low, mask)})
        case Move(source, target):
            ends = [_parser.OFPOxmId(_name(each)) for each in (source, target)]
            return _parser.OFPActionCopyField(source.bits, _low(source), _low(target), ends)
        case Resubmit(table):
            return _parser.NXActionResubmitTable(in_port=SAME_PORT, table_id=table)
        case ToGroup(group):
            return _parser.OFPActionGroup(group)
        case Ct(zone, table, commit, nat, exec_):
            inner = [_action(each) for each in exec_]
            if nat is not None and nat.ip is not None:
                address = str(nat.ip)
                inner.append(_parser.NXActionNAT(NAT_DST, range_ipv4_min=address, range_proto_min=nat.port))
            then = NO_TABLE if table is None else table
            return _parser.NXActionCT(COMMIT if commit else 0, 0, zone, then, 0, inner)
        case _:
            raise ValueError(f"{action} is not made here")


def _whole(field: Field | Part) -> Field:
    return field.field if isinstance(field, Part) else field


def _low(field: Field | Part) -> int:
    return field.low if isinstance(field, Part) else 0


def _name(field: Field | Part) -> str:
    name = _whole(field).name
    if name.startswith("xreg"):  # as source of a copy: unknown to Ryu, and the first of its registers is as much work
        return f"reg{2 * int(name.removeprefix('xreg'))}"
    return NAMES.get(name, name)


def _value(field: Field | Part, value: int, mask: int | None) -> Any:
    show = _whole(field).show
    one = str(Ip(4, value)) if show is Show.IP4 else value
    return one if mask is None else (one, str(Ip(4, mask)) if show is Show.IP4 else mask)


def sample(units: Mapping[UnitKey, Unit], encoded: Iterable[EncodedUnit]) -> list[tuple[Flow, EncodedFlow]]:
    """Flows that Ryu can be measured with, and what we made of them."""
    pairs = (pair for unit in encoded for pair in zip(units[unit.key].flows, unit.flows.values(), strict=True))
    found = [(flow, made) for flow, made in pairs if encodes(flow)]
    for flow, made in (found[0], found[-1]):
        if len(flow_mod(flow, made.cookie, made.xid)) != len(made.message) - INNER:
            raise AssertionError(f"Ryu says something else than we do: {flow.key}")
    return found[:: max(1, len(found) // FLOWS)]


def rate(pairs: Collection[tuple[Flow, EncodedFlow]]) -> float:
    """Flow mods by second of this process."""
    began = process_time()
    for flow, made in pairs:
        flow_mod(flow, made.cookie, made.xid)
    return len(pairs) / (process_time() - began)
