"""Lists and watches of one kind: pages and lines of JSON to translated objects.

A list is read in pages of one consistent snapshot. When that expires before its end (410), it is started
again, and the last time asked for whole. A watch gives one event per line and ends by itself after a while,
since quiet ends and new beginnings are how a dead server is noticed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from k8s_bridge import shapes, translate
from k8s_bridge.connection import ApiError, Connection, Response
from k8s_bridge.slices import Pause
from k8s_bridge.translate import Translated
from pipelines.model import Kind, Problem, Value

PATHS: dict[Kind, tuple[str, ...]] = {
    Kind.NODE: ("/api/v1/nodes",),
    Kind.POD: ("/api/v1/pods",),
    Kind.SERVICE: ("/api/v1/services",),
    Kind.ENDPOINT_SLICE: ("/apis/discovery.k8s.io/v1/endpointslices",),
    Kind.SERVICE_CIDR: (
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/networking.k8s.io/v1beta1/servicecidrs",
    ),
}
"""Where a kind is found: the first path that the server knows."""

OPTIONAL = (Kind.SERVICE_CIDR,)
"""Kinds that a cluster may be without."""

_PAGE = msgspec.json.Decoder(shapes.ObjectList)
_EVENT = msgspec.json.Decoder(shapes.WatchEvent)
_STATUS = msgspec.json.Decoder(shapes.Status)
_PAGED_ATTEMPTS = 2

Opened = Callable[[Response | None], None]  # told which response is being read, so that it can be shut down


class Listing(NamedTuple):
    """A whole kind. `path` None: the server does not know it."""

    path: str | None
    values: dict[str, Value]
    resource_version: str
    problems: tuple[Problem, ...] = ()  # of objects without a usable name


class Event(NamedTuple):
    """`object` None: only the resource version moved on (a bookmark)."""

    resource_version: str
    object: Translated | None


def list_kind(
    connection: Connection, kind: Kind, page_size: int, seconds: float, pause: Pause, opened: Opened
) -> Listing:
    """Everything of `kind`; raises FAILURES. `seconds` are for one page."""
    for path in PATHS[kind]:
        for attempt in range(_PAGED_ATTEMPTS + 1):
            limit = page_size if attempt < _PAGED_ATTEMPTS else 0
            try:
                return _pages(connection, kind, path, limit, seconds, pause, opened)
            except ApiError as error:
                if error.code == 404:
                    break
                if not error.gone or not limit:
                    raise
    if kind in OPTIONAL:
        return Listing(None, {}, "")
    raise ApiError(404, f"the server knows no {' or '.join(PATHS[kind])}")


def watch_kind(
    connection: Connection,
    kind: Kind,
    path: str,
    resource_version: str,
    seconds: int,
    silence: float,
    pause: Pause,
    opened: Opened,
) -> Iterator[Event]:
    """What happened after `resource_version`, for about `seconds`; raises FAILURES (410: list again)."""
    query: dict[str, str | int] = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": seconds,
    }
    response = connection.get(path, query, silence)
    opened(response)
    try:
        for line in _lines(response):
            pause()
            yield _event(kind, line)
        response.release_conn()
    finally:
        opened(None)
        response.close()


def _pages(
    connection: Connection, kind: Kind, path: str, limit: int, seconds: float, pause: Pause, opened: Opened
) -> Listing:
    values: dict[str, Value] = {}
    problems: list[Problem] = []
    query: dict[str, str | int] = {"limit": limit} if limit else {}
    while True:
        response = connection.get(path, query, seconds)
        opened(response)
        try:
            body = response.read()
            response.release_conn()
        finally:
            opened(None)
            response.close()
        page = _PAGE.decode(body)
        for item in page.items or ():
            pause()
            translated = translate.from_json(kind, item)
            if not translated.key:
                problems += translated.problems
            elif translated.value is not None:
                values[translated.key] = translated.value
        if not page.metadata.continue_:
            return Listing(path, values, page.metadata.resource_version or "", tuple(problems))
        query["continue"] = page.metadata.continue_


def _lines(response: Response) -> Iterator[bytes]:
    """Complete lines as they arrive; one that is cut off by the end is left out."""
    rest = bytearray()
    while piece := response.read1(64 * 1024):
        start = len(rest)
        rest += piece
        if b"\n" not in piece:
            continue
        end = rest.rindex(b"\n", start)
        whole, rest = rest[:end], rest[end + 1 :]
        for line in bytes(whole).split(b"\n"):
            if line:
                yield line


def _event(kind: Kind, line: bytes) -> Event:
    event = _EVENT.decode(line)
    if event.type == "ERROR":
        status = _STATUS.decode(event.object)
        raise ApiError(status.code or 500, status.message or status.reason or "the watch failed")
    if event.type in {"BOOKMARK", "DELETED"}:
        which = translate.identify(kind, event.object)
        version = which.resource_version or _version(event.object)
        return Event(version, which if event.type == "DELETED" else None)
    translated = translate.from_json(kind, event.object)
    return Event(translated.resource_version or _version(event.object), translated)


def _version(raw: msgspec.Raw) -> str:
    """The resource version of an object without a usable name (a bookmark has none)."""
    try:
        return msgspec.json.decode(raw, type=shapes.Identity).metadata.resource_version or ""
    except msgspec.DecodeError:
        return ""
