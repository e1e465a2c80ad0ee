"""The documents of one YAML or JSON file, as plain Python values, each with the line it starts on.

YAML is read as Kubernetes reads it: times and sexagesimal numbers (10:20:30:40:50:10 is a MAC address, not an
integer) stay text, and a key that occurs twice is an error, since one of the two would be lost silently. Aliases that
would multiply without end are one as well: a page of text must not become more than a machine can hold.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from k8s_bridge.slices import Pause, no_pause

_MERGE = "tag:yaml.org,2002:merge"
SUFFIXES = (".yaml", ".yml", ".json")
MOST_NODES = 1_000_000  # values of a document in which aliases are used, each counted as often as it is named


class Document(NamedTuple):
    line: int
    content: Any


class BrokenFile(ValueError):
    """A file that cannot be read as YAML or JSON. `line` is 0 where none is known."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def documents(name: str, content: bytes, pause: Pause = no_pause) -> Iterator[Document]:
    """The documents of a file called `name`, empty ones left out; raises BrokenFile."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BrokenFile(line, f"not UTF-8 (byte {error.start})") from error
    try:
        yield from _json(text, pause) if name.endswith(".json") else _yaml(text, pause)
    except BrokenFile:
        raise
    except json.JSONDecodeError as error:
        raise BrokenFile(error.lineno, error.msg) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise BrokenFile(mark.line + 1 if mark is not None else 0, reason) from error
    except yaml.reader.ReaderError as error:
        raise BrokenFile(text.count("\n", 0, error.position) + 1, error.reason) from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise BrokenFile(0, str(error)) from error


def _json(text: str, pause: Pause) -> Iterator[Document]:
    whole = _json_list(text)
    if whole is not None:
        for item in whole.items:
            yield Document(1, {"kind": whole.kind, "apiVersion": whole.version, "items": [msgspec.json.decode(item)]})
            pause()
        return
    decoder = json.JSONDecoder()
    position = _skip_space(text, 0)
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        content, position = decoder.raw_decode(text, position)
        yield Document(line, content)
        position = _skip_space(text, position)
        pause()


class _RawList(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]
    version: Any = msgspec.field(name="apiVersion", default=None)


def _json_list(text: str) -> _RawList | None:
    """A file that is one list, which may be long: its items are decoded one at a time. None: it is not that."""
    try:
        whole = msgspec.json.decode(text, type=_RawList)
    except msgspec.DecodeError:
        return None  # whatever is wrong with it, the slower way says where
    return whole if whole.kind.endswith("List") else None


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _yaml(text: str, pause: Pause) -> Iterator[Document]:
    loader = _Loader(_PausingText(text, pause), pause)
    anchors = "&" in text
    try:
        while loader.check_node():
            node = loader.get_node()
            if anchors and node is not None:
                _check_size(node, pause)
            content = loader.construct_document(node)
            loader.forget()
            if node is not None and content is not None:
                yield Document(node.start_mark.line + 1, content)
    finally:
        loader.dispose()


def _check_size(root: yaml.Node, pause: Pause) -> None:
    """Raises BrokenFile when aliases make more of a document than MOST_NODES values, or put one into itself."""
    line = root.start_mark.line + 1
    sizes: dict[int, int] = {}  # by identity; 0 while the node's parts are being counted
    work = [root]
    while work:
        pause()
        node = work[-1]
        parts = _parts(node)
        if id(node) not in sizes:
            sizes[id(node)] = 0
            if any(sizes.get(id(part)) == 0 for part in parts):
                raise BrokenFile(line, "nested without end: an alias stands inside of what it names")
            work += [part for part in parts if id(part) not in sizes]
            continue
        work.pop()
        if sizes[id(node)]:
            continue  # named more than once
        sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
        if sizes[id(node)] > MOST_NODES:
            raise BrokenFile(line, f"aliases make more than {MOST_NODES} values of it")


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return []


class _PausingText(io.StringIO):
    """The parser asks for its input piece by piece, which is where a long document can give way."""

    def __init__(self, text: str, pause: Pause) -> None:
        super().__init__(text)
        self._pause = pause

    def read(self, size: int | None = -1) -> str:
        self._pause()
        return super().read(size)


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader without the types that Kubernetes' YAML does not know."""

    def __init__(self, stream: io.StringIO, pause: Pause) -> None:
        super().__init__(stream)
        self._pause = pause
        self._seen: set[yaml.Node] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Every mapping comes here before it is used, and also before `<<` copies it into another.

        That copying leaves a key twice where the mapping overrides what it merges. So each mapping is checked as it
        was written, and afterwards only the last of a key is left: else PyYAML would copy the overridden one on.
        """
        self._pause()
        if node in self._seen:
            return
        self._seen.add(node)
        keys, merges = set(), False
        for key, _ in node.value:
            if key.tag == _MERGE:
                merges = True
            elif not isinstance(key, yaml.ScalarNode):
                continue
            elif key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} occurs twice", key.start_mark)
            else:
                keys.add(key.value)
        super().flatten_mapping(node)
        if merges:
            last = {
                key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value) for key, value in node.value
            }
            node.value = list(last.values())

    def forget(self) -> None:
        """A document is done: its nodes are not needed any more."""
        self._seen.clear()


_UNKNOWN_TAGS = ("timestamp", "int", "float")
_NUMBERS = (
    ("int", r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0[0-7]+)"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"),
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in _UNKNOWN_TAGS]
    for first, known in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list("-+.0123456789"))
