"""Units: what one feature says about one object in one scope, and the changes between revisions.

A unit is compiled and encoded once for all switches of its scope. The fleet scope is every switch, a
segment is the nodes of one subnet, a zone those of one topology zone, and a node is one switch.
"""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from pipelines.addresses import Ip
from pipelines.flow import Flow, Group


class ScopeKind(IntEnum):
    FLEET = 0
    ZONE = 1
    SEGMENT = 2
    NODE = 3


class Scope(NamedTuple):
    """`name` is "" for the fleet, the subnet's text for a segment (`4:` or `6:` when it is not known), else a name."""

    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return self.kind.name.lower() + (f" {self.name}" if self.name else "")


FLEET = Scope(ScopeKind.FLEET, "")


class UnitKey(NamedTuple):
    """Which feature (its name), in which scope, about which object (its key, "" for the feature's fixed flows)."""

    feature: str
    scope: Scope
    key: str

    def __str__(self) -> str:
        return f"{self.feature} [{self.scope}] {self.key}".rstrip()


class Tuple(NamedTuple):
    """A service connection that conntrack may hold: flushed when no unit allows it any more. Protocol is the number.

    The frontend of a NodePort is the unspecified address.
    """

    protocol: int
    frontend: Ip
    frontend_port: int
    endpoint: Ip
    endpoint_port: int


class Unit(Struct, frozen=True, gc=False):
    flows: tuple[Flow, ...] = ()
    groups: tuple[Group, ...] = ()
    allowed: frozenset[Tuple] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.flows or self.groups or self.allowed)


EMPTY = Unit()


class UnitChange(NamedTuple):
    """`old` and `new` differ; EMPTY stands for absent."""

    key: UnitKey
    old: Unit
    new: Unit


class Member(NamedTuple):
    """The node that a switch serves, and the scopes whose units it carries."""

    node: str
    scopes: frozenset[Scope]


class Revision(NamedTuple):
    """What one compilation changed.

    `members`: by datapath id, the switches whose membership changed; None: no Node names that id any more.
    """

    number: int
    changes: tuple[UnitChange, ...]
    members: dict[int, Member | None]
