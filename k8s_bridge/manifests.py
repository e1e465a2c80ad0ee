"""A directory of Kubernetes manifests: which objects its files hold, and what is wrong with them.

`read` reads everything once, for `signalbox check`, `compile` and the lab; `directory` builds on the same
pieces (`found_files`, `parse`, `merge`) to follow edits. Nothing raises for anything that a file can contain.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from k8s_bridge import translate
from k8s_bridge.documents import SUFFIXES, BrokenFile, documents
from k8s_bridge.known_kinds import API_VERSIONS, ours, passed_over
from k8s_bridge.slices import Pause, no_pause
from k8s_bridge.source import value_problems
from k8s_bridge.wrong_types import shown
from pipelines.model import Kind, Problem, Value

Key = tuple[Kind, str]


class Found(NamedTuple):
    """One object in one file. `value` None: it exists, but is not for us."""

    key: Key
    value: Value | None
    line: int


class FileReading(NamedTuple):
    """What one file holds. `broken` when it could not be read to its end: then `found` is incomplete."""

    found: tuple[Found, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: bool = False


class Reading(NamedTuple):
    """A whole directory.

    `problems` are all of them: of files, of objects that exist twice, and those that the values carry.
    `origins` says where each value was written, "FILE:LINE" relative to the directory.
    """

    values: dict[Key, Value]
    problems: tuple[Problem, ...]
    origins: dict[Key, str]


def read(directory: Path | str, pause: Pause = no_pause) -> Reading:
    """Every object in the directory's *.yaml, *.yml and *.json files; also takes one file."""
    root = Path(directory)
    try:
        files = found_files(root)
    except OSError as error:
        return Reading({}, (file_problem(str(root), 0, f"cannot be read: {error.strerror}"),), {})
    readings = {}
    for name, path in files.items():
        readings[name] = parse_file(name, path, pause)
    merged = merge(readings, pause)
    if not files:
        problem = file_problem(str(root), 0, f"holds no manifest ({', '.join('*' + s for s in SUFFIXES)})")
        merged = merged._replace(problems=(problem, *merged.problems))
    return merged


def found_files(root: Path) -> dict[str, Path]:
    """Manifest files below `root`, by their relative name, in order of name; raises OSError.

    Hidden names are left out (editors' swap files; the real folders behind a mounted ConfigMap, whose files
    are also there as links). Links to folders are followed, each folder once.
    """
    if not root.is_dir():
        root.stat()
        return {root.name: root}
    return dict(sorted(_walk(root, "", set())))


def parse_file(name: str, path: Path, pause: Pause = no_pause) -> FileReading:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return FileReading(problems=(file_problem(name, 0, "is not a regular file"),), broken=True)
        content = path.read_bytes()
    except OSError as error:
        return FileReading(problems=(file_problem(name, 0, f"cannot be read: {error.strerror}"),), broken=True)
    return parse(name, content, pause)


def parse(name: str, content: bytes, pause: Pause = no_pause) -> FileReading:
    """The objects of one file; `name` decides between YAML and JSON and is what problems say."""
    found: list[Found] = []
    problems: list[Problem] = []
    try:
        for document in documents(name, content, pause):
            for item in _unrolled(document.content):
                pause()
                _add(found, problems, name, document.line, item)
    except BrokenFile as error:
        problems.append(file_problem(name, error.line, error.reason))
        return FileReading(tuple(found), tuple(problems), broken=True)
    except RecursionError:  # a list that holds itself, by an alias
        problems.append(file_problem(name, 0, "nested without end"))
        return FileReading((), tuple(problems), broken=True)
    return FileReading(tuple(found), tuple(problems))


def merge(readings: Mapping[str, FileReading], pause: Pause = no_pause) -> Reading:
    """Of an object that is written twice the first counts: by name of file, then by place in it."""
    values: dict[Key, Value] = {}
    owners: dict[Key, str] = {}
    problems: list[Problem] = []
    for name in sorted(readings):
        problems += readings[name].problems
        for found in readings[name].found:
            pause()
            where = f"{name}:{found.line}"
            owner = owners.setdefault(found.key, where)
            if owner is not where:
                kind, key = found.key
                problems.append(Problem(kind, key, "object", f"{where} is ignored: already in {owner}"))
            elif found.value is not None:
                values[found.key] = found.value
                problems += value_problems(found.value)
    return Reading(values, tuple(problems), {key: owners[key] for key in values})


def file_problem(name: str, line: int, reason: str) -> Problem:
    """A problem of a file as such, under the kind "File" and the key "NAME:LINE"."""
    return Problem("File", f"{name}:{line}" if line else name, "content", reason)


def _walk(folder: Path, prefix: str, visited: set[tuple[int, int]]) -> Iterator[tuple[str, Path]]:
    status = folder.stat()
    if (status.st_dev, status.st_ino) in visited:
        return
    visited.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", visited)
            elif entry.name.endswith(SUFFIXES):
                yield prefix + entry.name, folder / entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself is no reason to read nothing else
        return False


def _unrolled(content: Any) -> Iterator[Any]:
    """The objects of a List; items of a typed list (`PodList`) need not repeat their kind."""
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List"):
        yield content
        return
    items = content.get("items")
    if items is None:
        return
    if not isinstance(items, list):
        yield content
        return
    kind, version = kind.removesuffix("List"), content.get("apiVersion")
    for item in items:
        named = kind and isinstance(item, dict)
        yield from _unrolled({"kind": kind, "apiVersion": version} | item if named else item)


def _add(found: list[Found], problems: list[Problem], name: str, line: int, item: Any) -> None:
    if not isinstance(item, dict):
        problems.append(file_problem(name, line, f"expected a Kubernetes object, got {shown(item)}"))
        return
    kind, version = item.get("kind"), item.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        missing = "kind" if not isinstance(kind, str) else "apiVersion"
        problems.append(file_problem(name, line, f"{missing}: required: a text, got {shown(item.get(missing))}"))
        return
    wanted = ours(version, kind)
    if wanted is None:
        if not passed_over(version, kind):
            problems.append(file_problem(name, line, _unknown(version, kind)))
        return
    translated = translate.from_object(wanted, item, by_hand=True)
    if translated.key:
        found.append(Found((wanted, translated.key), translated.value, line))
    else:
        problems += (file_problem(name, line, str(problem)) for problem in translated.problems)


def _unknown(version: str, kind: str) -> str:
    versions: Iterable[str] = next((known for of, known in API_VERSIONS.items() if of.value == kind), ())
    hint = f" (expected {' or '.join(versions)})" if versions else ""
    return f"{kind} of apiVersion {version} is not a kind that is known here{hint}"
