"""What a table's declaration is, and that it holds: a flow outside its table's contract cannot be built."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from pipelines.actions import Action, CheckPktLarger, Ct, Goto, Learn, LearnLoad, Move, Resubmit, SetField, ToGroup
from pipelines.fields import Field, Item, Part
from pipelines.flow import Bucket, Flow, match

Declared = Field | Part
_WRITING = (Move, CheckPktLarger)


class Stage(StrEnum):
    """Netfilter's words for where a packet is."""

    VALIDATION = "validation"
    NEIGHBORS = "neighbors"
    CONNTRACK = "conntrack"
    PREROUTING = "pre-routing"
    ROUTING = "routing"
    POSTROUTING = "post-routing"
    OUTPUT = "output"
    RESERVED = "reserved"


class ContractError(ValueError):
    """A flow says something that its table's declaration does not allow."""


class Table(Struct, frozen=True, eq=False):
    """`learns`: tables that flows here write into. `miss`: where a packet goes that nothing matches; None drops it."""

    id: int
    name: str
    stage: Stage
    purpose: str
    matches: frozenset[Declared] = frozenset()
    sets: frozenset[Declared] = frozenset()
    goes: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    miss: int | None = None
    learns: tuple[int, ...] = ()

    def flow(self, priority: int, conditions: Iterable[Item], *actions: Action) -> Flow:
        """A flow of this table; no actions is drop. Raises ContractError, ValueError when conditions contradict."""
        conditions = tuple(conditions)
        for item in conditions:
            if item.field not in self.matches:
                raise ContractError(f"table {self.name} does not match {item.field.name}")
        for action in actions:
            self._check(action)
        return Flow(self.id, priority, match(*conditions), actions)

    def bucket(self, number: int, *actions: SetField | Resubmit, weight: int = 1) -> Bucket:
        """A bucket of a group that flows of this table send packets to."""
        for action in actions:
            self._check(action)
        return Bucket(number, actions, weight)

    def _check(self, action: Action) -> None:
        """By type, the most frequent ones first: every action of every endpoint comes here."""
        if isinstance(action, SetField):
            self._may_set(action.field)
        elif isinstance(action, Resubmit):
            self._reaches(action.table, self.calls)
        elif isinstance(action, Ct):
            if action.table is not None:
                self._reaches(action.table, self.goes)
            for part in action.exec:
                self._check(part)
        elif isinstance(action, _WRITING):
            self._may_set(action.target)
        elif isinstance(action, Goto):
            self._reaches(action.table, self.goes)
        elif isinstance(action, Learn):
            self._reaches(action.table, self.learns)
            if action.result is not None:
                self._may_set(action.result)
            DECLARED[action.table]._may_learn(action)
        elif isinstance(action, ToGroup) and not self.calls:
            raise ContractError(f"table {self.name} sends to no group")

    def _may_learn(self, action: Learn) -> None:
        for spec in action.specs:
            if isinstance(spec, LearnLoad):
                self._may_set(spec.field)
            elif spec.field not in self.matches:
                raise ContractError(f"table {self.name} does not match {spec.field.name}")

    def _may_set(self, target: Declared) -> None:
        if target not in self.sets:
            raise ContractError(f"table {self.name} does not set {target.name}")

    def _reaches(self, table: int, allowed: tuple[int, ...]) -> None:
        if table not in allowed:
            raise ContractError(f"table {self.name} does not go to table {table}")


DECLARED: dict[int, Table] = {}  # those of `tables`
