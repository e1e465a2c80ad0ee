"""Rules: how facts follow from the model and from one another.

A rule is a pure function of one fact (a model value or another derived fact) and what it reads besides; it
returns claims. Where several objects claim one key (two pods one address, two services one ClusterIP, two
nodes one podCIDR) the oldest wins, always the same one whatever the order of events, and the losers are told.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pipelines.derived import Derived
from pipelines.model import Kind, Problem
from pipelines.view import Facts


class Claim(NamedTuple):
    """`rank` orders claims of one key: the smallest wins."""

    kind: Derived
    key: str
    value: Any
    rank: tuple[str, ...] = ()


class Outcome(NamedTuple):
    claims: Iterable[Claim] = ()
    problems: Iterable[Problem] = ()


class Rule(NamedTuple):
    """`subject`: the kind of fact it runs for, once for each key."""

    name: str
    subject: Kind | Derived
    derive: Callable[[str, Any, Facts], Outcome]
