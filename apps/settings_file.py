"""A file of settings: YAML into keys with values, each converted by itself, so that one error hides no other."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from apps import forms
from k8s_bridge.documents import BrokenFile, documents

FEW_KEYS = 8
_WORDS = {  # msgspec's names of types, and those of docs/configuration.md
    "`str`": "text",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`array`": "a list, as in [A, B]",
    "`object`": "keys with values",
    "`null`": "nothing",
}


class ConfigError(Exception):
    """`problems`: one line for each thing that is wrong, "KEY: REASON". `origin`: the file, with the line if known."""

    def __init__(self, problems: list[str], origin: str = "") -> None:
        self.problems = problems
        self.origin = origin
        super().__init__("\n".join(f"{origin}: {problem}" if origin else problem for problem in problems))


def read(path: Path) -> dict[str, Any]:
    try:
        found = list(documents(path.name, path.read_bytes()))
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    except BrokenFile as error:
        raise ConfigError([error.reason], f"{path}:{error.line}" if error.line else str(path)) from error
    if len(found) > 1:
        raise ConfigError(["holds more than one document"], f"{path}:{found[1].line}")
    content = found[0].content if found else {}
    if not isinstance(content, dict):
        raise ConfigError([f"expected keys with values, got {type(content).__name__}"], str(path))
    return content


def anchored(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths start at the file's folder; words are what they were written as."""
    source = raw.get("source")
    if isinstance(source, str) and source not in ("", "in-cluster"):
        scheme = forms.KUBECONFIG if source.startswith(forms.KUBECONFIG) else ""
        raw["source"] = scheme + str(folder / source.removeprefix(scheme))
    if raw.get("services") is False:
        raw["services"] = "off"  # YAML 1.1 takes the word for false
    if isinstance(raw.get("tls"), dict):
        raw["tls"] = {key: str(folder / name) if isinstance(name, str) else name for key, name in raw["tls"].items()}
    return raw


def place(raw: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = raw.get(name)
        raw[name] = dict(inner) if isinstance(inner, dict) else {}
        raw = raw[name]
    raw[path[-1]] = value


def converted(
    struct: type[Struct],
    raw: Mapping[Any, Any],
    problems: list[str],
    nested: Mapping[str, type[Struct]] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """The arguments of `struct` that `raw` gives. `nested`: what keys of it are structs themselves."""
    types = get_type_hints(struct, include_extras=True)
    values = {}
    for key, value in raw.items():
        if key not in types:
            problems.append(f"unknown key `{prefix}{key}`; {_meant(str(key), list(types), prefix)}")
            continue
        inner = (nested or {}).get(key)
        if inner is not None and isinstance(value, dict):
            before = len(problems)
            arguments = converted(inner, value, problems, prefix=f"{prefix}{key}.")
            required = [field.name for field in msgspec.structs.fields(inner) if field.required]
            problems += (f"{prefix}{key}.{name}: required" for name in required if name not in value)
            if len(problems) == before:
                values[key] = inner(**arguments)
            continue
        try:
            values[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            problems.append(f"{prefix}{key}{_reason(error, types[key])}")
    return values


def _meant(key: str, known: list[str], prefix: str) -> str:
    """What to write instead: the key that looks alike, the few that there are, or where all of them are described."""
    alike = get_close_matches(key, known, 1)
    if alike:
        return f"did you mean `{prefix}{alike[0]}`?"
    if len(known) <= FEW_KEYS:
        return f"known: {', '.join(prefix + name for name in known)}"
    return "docs/configuration.md has all"


def _reason(error: msgspec.ValidationError, wanted: Any) -> str:
    """`[PLACE]: REASON` from msgspec's "Reason - at `$[PLACE]`", with the choices where there are some."""
    reason, _, where = str(error).partition(" - at `$")
    known = choices(wanted)
    for theirs, ours in _WORDS.items():
        reason = reason.replace(theirs, ours)
    if known and reason.startswith("Invalid enum value"):
        reason += f"; choose from {', '.join(known)}"
    return f"{where.rstrip('`')}: {reason[0].lower()}{reason[1:]}"


def choices(wanted: Any) -> list[str]:
    """The words that a setting of this type may hold; empty when any will do."""
    known = msgspec.inspect.type_info(wanted)
    while isinstance(known, msgspec.inspect.Metadata | msgspec.inspect.VarTupleType):
        known = known.type if isinstance(known, msgspec.inspect.Metadata) else known.item_type
    if isinstance(known, msgspec.inspect.EnumType):
        return [one.value for one in known.cls]
    return [str(one) for one in known.values] if isinstance(known, msgspec.inspect.LiteralType) else []
