"""A packet as values by field, kept in one number.

Every field has a place of its own in that number, registers and what a connection says included, so that a
flow's match is a mask and a value, and setting a field is a shift. Wide registers lie where the narrow ones lie
that they are made of.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from pipelines import fields as f
from pipelines.fields import FIELDS, Field, Item, Part, Show

# What flows cannot say and connection tracking needs.
ICMP_CODE = Field("icmp_code", 8, Show.DECIMAL)
ICMP_ID = Field("icmp_id", 16, Show.DECIMAL)  # of echo messages, both families
CT_ZONE = Field("ct_zone", 16, Show.DECIMAL)

_WIDE = {field for registers in (f.REGS, f.XREGS, f.XXREGS) for field in registers}


class Place(NamedTuple):
    shift: int
    ones: int
    mask: int


def _places() -> dict[Field | Part, Place]:
    shifts: dict[Field, int] = {}
    for registers, bits in ((f.REGS, 32), (f.XREGS, 64), (f.XXREGS, 128)):
        for number, field in enumerate(registers):
            shifts[field] = 512 - bits * (number + 1)  # the first one is the high end of the wide one
    end = 512
    for field in (*FIELDS.values(), ICMP_CODE, ICMP_ID, CT_ZONE):
        if field not in _WIDE:
            shifts[field] = end
            end += field.bits
    return {field: Place(shift, field.ones, field.ones << shift) for field, shift in shifts.items()}


_PLACES = _places()
HEADERS = tuple(field for field in _PLACES if isinstance(field, Field) and field not in _WIDE)


def place(field: Field | Part) -> Place:
    """Where a field or part lies."""
    found = _PLACES.get(field)
    if found is None:
        assert isinstance(field, Part)
        shift, ones = _PLACES[field.field].shift + field.low, (1 << field.bits) - 1
        found = _PLACES[field] = Place(shift, ones, ones << shift)
    return found


def read(bits: int, field: Field | Part) -> int:
    at = _PLACES.get(field) or place(field)
    return bits >> at.shift & at.ones


def written(bits: int, field: Field | Part, value: int) -> int:
    at = _PLACES.get(field) or place(field)
    return bits & ~at.mask | value << at.shift


def condition(items: Iterable[Item]) -> tuple[int, int]:
    """A match as a mask and a value of the whole packet."""
    mask = value = 0
    for item in items:
        at = place(item.field)
        mask |= (at.ones if item.mask is None else item.mask) << at.shift
        value |= item.value << at.shift
    return mask, value


# Never part of what is on the wire: a switch knows it of a packet while it has it.
_STATE = (1 << 512) - 1 | sum(place(field).mask for field in (f.CT_STATE, f.CT_MARK, f.CT_LABEL, CT_ZONE))
_METADATA = _STATE | sum(place(field).mask for field in (f.IN_PORT, f.TUN_SRC, f.TUN_IP6_SRC))


class Packet(Struct, frozen=True, gc=False):
    """`packet[f.ETH_DST]` reads a field or part; what a packet does not have is 0.

    `length` in bytes, Ethernet header included. `carried`: of an ICMP error the packet that it quotes, of a tunnel's
    outer packet the one inside. `data` is anything that a station says to another one.
    """

    bits: int
    length: int = 0
    data: str = ""
    carried: "Packet | None" = None

    @classmethod
    def of(
        cls, values: Mapping[Field, int], length: int = 0, data: str = "", carried: "Packet | None" = None
    ) -> "Packet":
        return cls(0, length, data, carried).having(values)

    def __getitem__(self, field: Field | Part) -> int:
        return read(self.bits, field)

    def having(self, values: Mapping[Field, int]) -> Self:
        """The same packet with other values; raises ValueError for one that does not fit."""
        bits = self.bits
        for field, value in values.items():
            if value < 0 or value >> field.bits:
                raise ValueError(f"{value:#x} does not fit in {field.name} ({field.bits} bits)")
            bits = written(bits, field, value)
        return msgspec.structs.replace(self, bits=bits)

    def entering(self) -> Self:
        """As a switch takes it in: nothing is known of it yet but the port and where a tunnel came from."""
        return msgspec.structs.replace(self, bits=self.bits & ~_STATE)

    def leaving(self) -> Self:
        """As it leaves a switch; where a tunnel shall lead stays."""
        return msgspec.structs.replace(self, bits=self.bits & ~_METADATA)

    @property
    def family(self) -> int:
        """4, 6, or 0 for what is not IP."""
        return {0x0800: 4, 0x86DD: 6}.get(self[f.ETH_TYPE], 0)

    @property
    def headers(self) -> Iterator[tuple[Field, int]]:
        """The fields that are not zero, registers aside."""
        return ((field, value) for field in HEADERS if (value := self[field]))
