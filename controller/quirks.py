"""Where Open vSwitch reads a flow back in other bytes than one would write.

Measured on 3.1.0 under OpenFlow 1.5, and held by tests against a real one (`tests/codec`). Encoding already
writes the form that comes back, so keys, cookies' digests and instructions can be compared byte by byte:

- Conditions on registers come back as 64-bit registers: reg2 and reg3 are the high and the low half of xreg1,
  xxreg1 is xreg2 and xreg3. Two conditions on halves of one xreg come back as one.
- vlan_tci comes back as vlan_vid (with the "present" bit 0x1000) and vlan_pcp; the priority bits are matched all
  or not at all, only beside an identifier, and are lost for "no tag".
- Fields are in a fixed order (`oxm.WIRE`); a mask of all ones is left out.
- Inside `learn` fields have their Nicira numbers, everywhere else OpenFlow's; a learn with a limit or a result is
  another action than one without.
- `move` comes back as OpenFlow's copy_field, `load` as set_field, a meter as an action.
"""

from struct import pack

from pipelines.fields import REGS, XREGS, XXREGS, Field

# Bits of one xreg: (its number 0 … 7, value, mask), each 64 bits wide.
Piece = tuple[int, int, int]

_LONG = (1 << 64) - 1
_VID_HEADER, _VID_MASKED_HEADER, _PCP_HEADER = 0x80000C02, 0x80000D04, 0x80000E01
_VID_BITS, _PCP_BITS = 0x1FFF, 0xE000


def _halves(field: Field) -> tuple[tuple[int, int, int], ...]:
    """Where the bits of a register lie in xregs: (xreg, shift there, shift in the register)."""
    family = field.name.rstrip("0123456789")
    number = int(field.name[len(family) :])
    if family == "reg":
        return ((number // 2, 0 if number % 2 else 32, 0),)
    if family == "xreg":
        return ((number, 0, 0),)
    return (number * 2, 0, 64), (number * 2 + 1, 0, 0)


_PLACES = {field: _halves(field) for field in (*REGS, *XREGS, *XXREGS)}


def xreg_pieces(field: Field, value: int, mask: int) -> tuple[Piece, ...] | None:
    """A condition on any register as conditions on xregs, lowest number first; None for other fields."""
    places = _PLACES.get(field)
    if places is None:
        return None
    return tuple(
        [
            (xreg, (value >> down & _LONG) << up, (mask >> down & _LONG) << up)
            for xreg, up, down in places
            if mask >> down & _LONG
        ]
    )


def merge(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """At most one piece for each xreg, lowest number first. Raises ValueError when two contradict each other."""
    merged: dict[int, Piece] = {}
    for piece in pieces:
        number, value, mask = piece
        other = merged.get(number)
        if other is None:
            merged[number] = piece
            continue
        if (value ^ other[1]) & mask & other[2]:
            raise ValueError(f"a match on xreg{number} contradicts itself")
        merged[number] = number, value | other[1], mask | other[2]
    return tuple(sorted(merged.values()))


def vlan(value: int, mask: int) -> bytes:
    """A condition on vlan_tci as Open vSwitch writes it. Raises ValueError for what it cannot write."""
    if value & ~mask or mask >> 16 or value < 0:
        raise ValueError(f"vlan_tci={value:#x}/{mask:#x} has bits outside its mask or beyond 16 bits")
    vid, vid_mask = value & _VID_BITS, mask & _VID_BITS
    untagged = vid_mask == _VID_BITS and vid == 0
    if mask & _PCP_BITS and not (untagged and value == 0):
        if mask & _PCP_BITS != _PCP_BITS or vid_mask != _VID_BITS:
            raise ValueError(f"vlan_tci={value:#x}/{mask:#x}: priority bits go all together, beside a whole VLAN id")
        return pack("!IH", _VID_HEADER, vid) + pack("!IB", _PCP_HEADER, value >> 13)
    if vid_mask == _VID_BITS:
        return pack("!IH", _VID_HEADER, vid)
    return pack("!IHH", _VID_MASKED_HEADER, vid, vid_mask) if vid_mask else b""
