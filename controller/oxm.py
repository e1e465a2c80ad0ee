"""Field numbers on the wire, and conditions as Open vSwitch writes them back.

A flow's identity must not depend on who wrote its bytes, so a match has ONE spelling here: that in which Open
vSwitch 3.1 answers a flow-desc request under OpenFlow 1.5 (see `quirks` for how it differs from what one
would write). `WIRE` holds the fields in that order.
"""

from struct import Struct
from typing import NamedTuple

from controller import quirks
from pipelines import fields
from pipelines.fields import Field, Item, Part

BASIC, PACKET_REGISTERS, NXM_0, NXM_1, ERICSSON = 0x8000, 0x8001, 0x0000, 0x0001, 0x1000


class Oxm(NamedTuple):
    """A field on the wire: header without mask, bytes of its value, position in a match, whether bits may be chosen."""

    header: int
    size: int
    order: int
    maskable: bool

    @property
    def masked_header(self) -> int:
        return self.header + self.size | 0x100


WIRE: dict[Field, Oxm] = {}


def _wire(field: Field, number_class: int, number: int, maskable: bool = True) -> None:
    size = (field.bits + 7) // 8
    WIRE[field] = Oxm(number_class << 16 | number << 9 | size, size, len(WIRE), maskable)


_wire(fields.IN_PORT, BASIC, 0, maskable=False)
_wire(fields.ETH_SRC, BASIC, 4)
_wire(fields.ETH_DST, BASIC, 3)
_wire(fields.ETH_TYPE, BASIC, 5, maskable=False)
_wire(fields.VLAN_TCI, NXM_0, 4)  # in actions; a match on it is written by `quirks.vlan`
_wire(fields.IP4_SRC, BASIC, 11)
_wire(fields.IP4_DST, BASIC, 12)
_wire(fields.IP6_SRC, BASIC, 26)
_wire(fields.IP6_DST, BASIC, 27)
_wire(fields.IP_FRAG, NXM_1, 26)
_wire(fields.IP_TTL, NXM_1, 29, maskable=False)
_wire(fields.IP_PROTO, BASIC, 10, maskable=False)
_wire(fields.TCP_SRC, BASIC, 13)
_wire(fields.TCP_DST, BASIC, 14)
_wire(fields.TCP_FLAGS, BASIC, 42)
_wire(fields.UDP_SRC, BASIC, 15)
_wire(fields.UDP_DST, BASIC, 16)
_wire(fields.SCTP_SRC, BASIC, 17)
_wire(fields.SCTP_DST, BASIC, 18)
_wire(fields.ICMP_TYPE, BASIC, 19, maskable=False)
_wire(fields.ICMP6_TYPE, BASIC, 29, maskable=False)
_wire(fields.ICMP6_CODE, BASIC, 30, maskable=False)
_wire(fields.ND_RESERVED, ERICSSON, 1, maskable=False)
_wire(fields.ND_TARGET, BASIC, 31)
_wire(fields.ND_OPTIONS_TYPE, ERICSSON, 2, maskable=False)
_wire(fields.ND_SLL, BASIC, 32)
_wire(fields.ND_TLL, BASIC, 33)
_wire(fields.ARP_OP, BASIC, 21, maskable=False)
_wire(fields.ARP_SPA, BASIC, 22)
_wire(fields.ARP_TPA, BASIC, 23)
_wire(fields.ARP_SHA, BASIC, 24)
_wire(fields.ARP_THA, BASIC, 25)
_wire(fields.TUN_SRC, NXM_1, 31)
_wire(fields.TUN_DST, NXM_1, 32)
_wire(fields.TUN_IP6_SRC, NXM_1, 109)
_wire(fields.TUN_IP6_DST, NXM_1, 110)
for _number, _field in enumerate(fields.REGS):
    _wire(_field, NXM_1, _number)
for _number, _field in enumerate(fields.XREGS):
    _wire(_field, PACKET_REGISTERS, _number)
for _number, _field in enumerate(fields.XXREGS):
    _wire(_field, NXM_1, 111 + _number)
_wire(fields.CT_STATE, NXM_1, 105)
_wire(fields.CT_MARK, NXM_1, 107)
_wire(fields.CT_LABEL, NXM_1, 108)

# Fields as learn names them: by their older Nicira numbers, where they have one (`quirks`). No port
# numbers: they must not outlive a packet.
_NICIRA_NUMBERS = {
    NXM_0: {
        fields.ETH_DST: 1,
        fields.ETH_SRC: 2,
        fields.ETH_TYPE: 3,
        fields.IP_PROTO: 6,
        fields.IP4_SRC: 7,
        fields.IP4_DST: 8,
        fields.TCP_SRC: 9,
        fields.TCP_DST: 10,
        fields.UDP_SRC: 11,
        fields.UDP_DST: 12,
        fields.ICMP_TYPE: 13,
        fields.ARP_OP: 15,
        fields.ARP_SPA: 16,
        fields.ARP_TPA: 17,
    },
    NXM_1: {
        fields.ARP_SHA: 17,
        fields.ARP_THA: 18,
        fields.IP6_SRC: 19,
        fields.IP6_DST: 20,
        fields.ICMP6_TYPE: 21,
        fields.ICMP6_CODE: 22,
        fields.ND_TARGET: 23,
        fields.ND_SLL: 24,
        fields.ND_TLL: 25,
        fields.TCP_FLAGS: 34,
    },
}
LEARN_HEADER: dict[Field, int] = {field: oxm.header for field, oxm in WIRE.items() if field is not fields.IN_PORT} | {
    field: number_class << 16 | number << 9 | WIRE[field].size
    for number_class, numbers in _NICIRA_NUMBERS.items()
    for field, number in numbers.items()
}
BY_LEARN_HEADER: dict[int, Field] = {header: field for field, header in LEARN_HEADER.items()}

BY_HEADER: dict[int, Field] = {oxm.header: field for field, oxm in WIRE.items()}

if _missing := set(fields.FIELDS.values()) - set(WIRE):
    raise AssertionError(f"fields without a wire number: {_missing}")

_header = Struct("!I").pack


def condition(field: Field, value: int, mask: int | None) -> bytes:
    """One condition: header, value, mask. Raises ValueError when the field cannot say that."""
    oxm = WIRE[field]
    checked(field, value)
    if mask is None:
        return _header(oxm.header) + value.to_bytes(oxm.size, "big")
    checked(field, mask)
    if not oxm.maskable:
        raise ValueError(f"{field.name} cannot be matched by bits")
    if value & ~mask:
        raise ValueError(f"{field.name}={value:#x}/{mask:#x} has bits outside its mask")
    return _header(oxm.masked_header) + value.to_bytes(oxm.size, "big") + mask.to_bytes(oxm.size, "big")


def checked(field: Field | Part, value: int) -> int:
    """The value; ValueError when it does not fit."""
    if value < 0 or value >> field.bits:
        raise ValueError(f"{value:#x} does not fit in {field.name} ({field.bits} bits)")
    return value


# --- a whole match -----------------------------------------------------------------------------------------

# What one item contributes: its position and bytes, and for registers the xregs that it is made of.
_Piece = tuple[int, bytes, tuple[quirks.Piece, ...] | None]

_CACHE_SIZE = 65536
_LONG = (1 << 64) - 1
_items: dict[Item, _Piece] = {}
_FIRST_XREG = WIRE[fields.XREGS[0]].order
_XREG_HEADERS = [(_header(WIRE[field].header), _header(WIRE[field].masked_header)) for field in fields.XREGS]
_two_longs = Struct("!QQ").pack
_long = Struct("!Q").pack


def match_fields(match: tuple[Item, ...]) -> bytes:
    """The conditions of a match in normal form, without OpenFlow's match header and padding.

    Raises ValueError for what cannot be written.
    """
    pieces = []
    registers: tuple[quirks.Piece, ...] = ()
    for item in match:
        piece = _items.get(item)
        if piece is None:
            piece = _piece(item)
        if piece[2] is None:
            pieces.append(piece)
        elif registers:
            registers += piece[2]
        else:
            registers, alone = piece[2], piece
    if registers:
        if registers is not alone[2]:
            alone = _FIRST_XREG, _xregs(quirks.merge(registers)), None
        pieces.append(alone)
    pieces.sort()
    return b"".join([piece[1] for piece in pieces])


def _piece(item: Item) -> _Piece:
    field, value, mask = item.field, item.value, item.mask
    if isinstance(field, Part):
        raise ValueError(f"a condition on part {field.name}: build the match with flow.match()")  # noqa: TRY004  (a bad value)
    if field is fields.VLAN_TCI:
        piece: _Piece = WIRE[field].order, quirks.vlan(value, field.ones if mask is None else mask), None
    else:
        plain = condition(field, value, mask) if mask != 0 else b""
        split = quirks.xreg_pieces(field, value, field.ones if mask is None else mask)
        piece = (WIRE[field].order, plain, None) if split is None else (_FIRST_XREG, _xregs(split), split)
    if len(_items) >= _CACHE_SIZE:
        _items.clear()
    _items[item] = piece
    return piece


def _xregs(split: tuple[quirks.Piece, ...]) -> bytes:
    return b"".join(
        [
            _XREG_HEADERS[number][0] + _long(value)
            if mask == _LONG
            else _XREG_HEADERS[number][1] + _two_longs(value, mask)
            for number, value, mask in split
        ]
    )
