"""Values of a type that Kubernetes does not have in their place: each is refused by itself, the rest is kept.

An API server lets no such value through, but a person's YAML may say `nodePort: "x"` or `externalIPs: 10.0.0.1`. So
an object is decoded strictly first, which is fast, and comes here only after that has failed. What is refused
counts as absent, except in lists: there something empty stands in its place, so that the others keep their numbers.
Whether an object makes sense without the value is for `translate` to say, and `Findings` knows what was refused.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

LONGEST_SHOWN = 60  # characters of a value that are worth repeating
_ABSENT = object()

Shaped = TypeVar("Shaped")


class Refused(NamedTuple):
    """A value that is left out: `field` in dotted Kubernetes spelling, "object" for the whole."""

    field: str
    reason: str


def usable(shape: type[Shaped], data: object) -> tuple[Shaped | None, tuple[Refused, ...]]:
    """What can be used of `data` (plain Python values) as a `shape`, and what cannot. None: not even its frame."""
    refused: list[Refused] = []
    kept = _kept(inspect.type_info(shape), data, "", refused)
    return (None if kept is _ABSENT else msgspec.convert(kept, shape)), tuple(refused)


def must_be(wanted: str, value: object) -> str:
    """Words for people: `must be a whole number, not the text "x"`."""
    quotes = isinstance(value, bool | int | float) and wanted == TEXT
    return f"must be {wanted}, not {shown(value)}" + (": put it in quotes" if quotes else "")


TEXT = "a text"


def shown(value: object) -> str:
    """A value in a few words, whatever it is."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {_digits(value)}"
        case str():
            text = value if len(value) <= LONGEST_SHOWN else value[: LONGEST_SHOWN - 1] + "…"
            return f'the text "{text}"'
        case list() | tuple() | set():
            return "a list"
        case dict():
            return "a mapping"
    return f"a value of type {type(value).__name__}"


def _digits(number: float) -> str:
    """Python writes no number of thousands of digits."""
    if isinstance(number, int) and number.bit_length() > 100:
        return f"of {number.bit_length()} bits"
    return str(number)


def _kept(kind: inspect.Type, value: object, field: str, refused: list[Refused]) -> Any:
    """The part of `value` that is of `kind`, _ABSENT for none; notes what is not."""
    if isinstance(kind, inspect.UnionType):  # with null, which is what absent is
        return None if value is None else _kept(kind.types[0], value, field, refused)
    wanted = _unlike(kind, value)
    if wanted:
        refused.append(Refused(field or "object", must_be(wanted, value)))
        return _ABSENT
    match kind:
        case inspect.StructType():
            return _struct(kind, value, field, refused)
        case inspect.ListType():
            assert isinstance(value, list)
            return [_item(kind.item_type, item, f"{field}[{index}]", refused) for index, item in enumerate(value)]
        case inspect.DictType():
            assert isinstance(value, dict)
            return dict(_texts(value, field, refused))
    return value


def _unlike(kind: inspect.Type, value: object) -> str:
    """What `value` should be and is not."""
    match kind:
        case inspect.StructType() | inspect.DictType() if not isinstance(value, dict):
            return "a mapping"
        case inspect.ListType() if not isinstance(value, list):
            return "a list"
        case inspect.StrType() if not isinstance(value, str):
            return TEXT
        case inspect.BoolType() if not isinstance(value, bool):
            return "true or false"
        case inspect.IntType() if not isinstance(value, int) or isinstance(value, bool):
            return "a whole number"
        case inspect.IntType(ge=int() as least, le=int() as most) if not least <= value <= most:  # type: ignore[operator]
            return "a number of 32 bits"
    return ""


def _struct(kind: inspect.StructType, value: Any, field: str, refused: list[Refused]) -> Any:
    found = {}
    for one in kind.fields:
        name = f"{field}.{one.encode_name}".removeprefix(".")
        part = value.get(one.encode_name, _ABSENT)
        if one.required and part in (_ABSENT, None):
            refused.append(Refused(name, "required"))
            return _ABSENT
        kept = part if part is _ABSENT else _kept(one.type, part, name, refused)
        if kept is not _ABSENT:
            found[one.encode_name] = kept
        elif one.required:
            return _ABSENT
    return found


def _item(kind: inspect.Type, value: object, field: str, refused: list[Refused]) -> Any:
    kept = _kept(kind, value, field, refused)
    if kept is not _ABSENT:
        return kept
    return {} if isinstance(kind, inspect.StructType) else ""


def _texts(value: dict[object, object], field: str, refused: list[Refused]) -> Iterator[tuple[str, object]]:
    for name, part in value.items():
        if isinstance(name, str):
            yield name, part
        else:
            refused.append(Refused(field, f"the name of an entry {must_be(TEXT, name)}"))
