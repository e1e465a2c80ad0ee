"""A feature: model in, flows out.

`compile` is a pure function of one fact and a view; the view's type follows from `scope`. Numbers are part of
every cookie and never change their meaning; a retired one is not used again.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pipelines.flow import Flow
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FactKind


class Feature(NamedTuple):
    """`subject`: the kind of fact that it runs for, once for each key and each scope that the fact concerns."""

    name: str
    number: int
    scope: ScopeKind
    subject: FactKind
    compile: Callable[[Any, Any], Unit]


def unit(flows: Iterable[Flow]) -> Unit:
    return Unit(flows=tuple(flows))
