"""docs/configuration.md, made from the settings' own declarations."""

from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct, inspect

from apps.settings import NESTED, Config
from apps.settings_file import choices

HEAD = """\
<!-- Made by `signalbox docs configuration` (`make docs`); edit apps/settings.py instead. -->

# Configuration

One YAML file holds all settings. `ryu-manager apps.fabric apps.inspection` reads the one named in the environment
variable `SIGNALBOX_CONFIG`; `signalbox run` takes it from there or from `--config FILE`, and its options (`--source`,
`--ofp-listen`, `--rest-listen`, `--mode`, `--log-level`) win over the file. `signalbox check --config FILE` reads it
with the same parser and says everything that is wrong with it.

A key that is not in these tables is an error, and so is one that occurs twice. Relative paths start at the file's own
folder; those of options at the current one.

    source: kubeconfig:/etc/signalbox/kubeconfig
    api_servers: [https://192.0.2.1:6443, https://192.0.2.2:6443]
    ofp_listen: "[::]:6653"
    tls: {ca: tls/ca.pem, certificate: tls/controller.pem, key: tls/controller.key}
    service_cidrs: [10.96.0.0/16, "fd00:96::/112"]
    observe_nodes: [n7]

Settings are read at the start. The most usual first step is `mode: observe`: it reads every switch back and shows, in
`signalbox diff`, what would be changed, and writes nothing.
"""


def page() -> str:
    return "\n".join([HEAD, *_table(Config), *_nested()])


def _nested() -> Iterator[str]:
    for name, struct in NESTED.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield " ".join((struct.__doc__ or "").split())
        yield ""
        yield from _table(struct, f"{name}.")
    yield ""


def _table(struct: type[Struct], prefix: str = "") -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    types = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        wanted = types[field.name]
        default = "required" if field.required else _default(field.default, field.name)
        yield f"| `{prefix}{field.name}` | {_type(wanted)} | {default} | {_meaning(wanted)} |"


def _default(value: Any, name: str) -> str:
    if name in NESTED:
        return "none" if value is None else "see below"
    if value in ("", (), None):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{_number(value)}`" if isinstance(value, float) else f"`{value}`"


def _number(value: float) -> str:
    """Without a point that says nothing, and never as a power of ten."""
    return str(int(value)) if value == int(value) else str(value)


def _meaning(wanted: Any) -> str:
    return next(str(meta.description) for meta in reversed(wanted.__metadata__) if meta.description)


def _type(wanted: Any) -> str:
    known = inspect.type_info(wanted)
    limits: dict[str, Any] = {}
    while isinstance(known, inspect.Metadata):
        known = known.type
    words = choices(wanted)
    if words:
        text = " or ".join(f"`{word}`" for word in words)
        return f"list of {text}" if isinstance(known, inspect.VarTupleType) else text
    if isinstance(known, inspect.VarTupleType):
        return "list of text"
    if isinstance(known, inspect.BoolType):
        return "`true` or `false`"
    if isinstance(known, inspect.IntType | inspect.FloatType):
        limits = {"from": known.ge, "above": known.gt, "to": known.le}
        name = "whole number" if isinstance(known, inspect.IntType) else "number"
        return " ".join([name, *(f"{word} {_number(value)}" for word, value in limits.items() if value is not None)])
    return "text" if isinstance(known, inspect.StrType) else "keys, see below"
