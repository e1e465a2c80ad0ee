"""Annotations that were meant for Signalbox and are read by nobody: a slip in a name would otherwise be silent."""

from collections.abc import Iterable
from difflib import SequenceMatcher

from k8s_bridge import shapes
from k8s_bridge.findings import Findings, shortened
from pipelines.model import Kind

PREFIX = "signalbox.dev"
KNOWN: dict[Kind, tuple[str, ...]] = {
    Kind.NODE: (
        shapes.ANNOTATION_DATAPATH_ID,
        shapes.ANNOTATION_UPLINK,
        shapes.ANNOTATION_ADDRESSES,
        shapes.ANNOTATION_GATEWAYS,
        shapes.ANNOTATION_UPLINK_MTU,
        shapes.ANNOTATION_MAC,
    ),
    Kind.POD: (shapes.ANNOTATION_MTU,),
}
_KIND_OF = {name: kind for kind, names in KNOWN.items() for name in names}
_NAMES = frozenset(name.partition("/")[2] for name in _KIND_OF)
_ALIKE = 0.75  # from which on a prefix is a slip: `signalbox.io`


def field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def check(findings: Findings, kind: Kind, names: Iterable[str]) -> None:
    """Notes each name with our prefix (or nearly so) that is not one of the kind's."""
    for name in sorted(names):
        prefix, _, rest = name.partition("/")
        if prefix == PREFIX:
            if _KIND_OF.get(name) is not kind:
                findings.add(field(shortened(name)), _reason(kind, name))
        elif rest in _NAMES and _alike(prefix, PREFIX) >= _ALIKE:
            findings.add(field(shortened(name)), f"nobody reads this; did you mean {PREFIX}/{rest}?")


def _reason(kind: Kind, name: str) -> str:
    owner = _KIND_OF.get(name)
    said = f"is for a {owner}, and this is a {kind}" if owner else "is not known"
    known = KNOWN.get(kind, ())
    if not known:
        return f"{said}; Signalbox reads no annotation of a {kind}"
    nearest = max(known, key=lambda one: _alike(name.partition("/")[2].lower(), one.partition("/")[2]))
    return f"{said}, so nobody reads it; the nearest that is known is {nearest}"


def _alike(one: str, other: str) -> float:
    """0 … 1. Of long texts only the beginning counts: nobody needs to wait for them."""
    return SequenceMatcher(None, one[:100], other).ratio()
