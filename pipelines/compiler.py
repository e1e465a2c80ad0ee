"""From changes to revisions: runs the rules and features that a change concerns, and nothing else.

Full compilation is the definition: all tasks, run in the order rules … features. A task is one rule or
feature for one key. What a task read is remembered; a change of it makes the task dirty, a dirty task runs
again whole, and where its result is equal to the last one the change stops. There are no add and remove
handlers to keep equal: what a task no longer returns is gone.

`compile()` is a generator. Its driver decides how long to go on before it lets others run; one revision is
returned at its end.
"""

import traceback
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from pipelines.claims import Claim, Rule
from pipelines.derived import Derived, Frontend
from pipelines.faults import Fault
from pipelines.feature import Feature
from pipelines.features import FEATURES
from pipelines.ids import GroupIds
from pipelines.model import Change, Invalid, Kind, Problem, Settings
from pipelines.rules import CONTESTED, ENTRANCES, RULES, UNITED
from pipelines.unit import EMPTY, FLEET, Member, Revision, Scope, ScopeKind, Unit, UnitChange, UnitKey
from pipelines.view import ALL, FactId, FactKind, Facts, FleetView, NodeView, SegmentView, ZoneView

VIEWS: dict[ScopeKind, type[FleetView]] = {
    ScopeKind.FLEET: FleetView,
    ScopeKind.ZONE: ZoneView,
    ScopeKind.SEGMENT: SegmentView,
    ScopeKind.NODE: NodeView,
}
OBSERVATIONS = (Kind.PORT, Kind.NEIGHBOR, Kind.EVIDENCE, Kind.DOWN)  # keys: a node, or a node and more
SHARED = {ScopeKind.ZONE: Derived.ZONE, ScopeKind.SEGMENT: Derived.SEGMENT}  # scopes of several nodes, and their names
TASKS_A_SLICE = 16


Task = tuple[int, str]  # number of the rule or feature, and the key of its subject


class Compiler:
    """Holds all facts, all units and their dependencies. Not thread-safe: one driver."""

    def __init__(
        self,
        rules: tuple[Rule, ...] = RULES,
        features: tuple[Feature, ...] = FEATURES,
        group_ids: GroupIds | None = None,
    ) -> None:
        self.facts = Facts()
        self.units: dict[UnitKey, Unit] = {}
        self.revision = 0
        self._stages: tuple[Rule | Feature, ...] = (*rules, *features)
        self._first_feature = len(rules)
        self._by_subject: dict[FactKind, list[int]] = {}
        for stage, step in enumerate(self._stages):
            self._by_subject.setdefault(step.subject, []).append(stage)
        self._dirty: list[dict[str, None]] = [{} for _ in self._stages]
        self._readers: dict[FactId, dict[Task, None]] = {}
        self._reads: dict[Task, set[FactId]] = {}
        self._claims_by_task: dict[Task, dict[FactId, Claim]] = {}
        self._claims_by_fact: dict[FactId, dict[Task, Claim]] = {}
        self._views: dict[Scope, FleetView] = {}
        self._units_by_task: dict[Task, dict[UnitKey, Unit]] = {}
        self._task_problems: dict[Task, tuple[Problem, ...]] = {}
        self._faults: dict[Task, Fault] = {}
        self._value_problems: dict[FactId, tuple[Problem, ...]] = {}
        self._contested: set[FactId] = set()
        self._group_ids = group_ids or GroupIds()
        self._changed: dict[UnitKey, Unit] = {}  # the unit as it was before this compilation
        self._changed_members: set[str] = set()
        self._owners_changed = False
        self._pending: dict[FactId, Any] = {(Kind.SETTINGS, ""): Settings()}
        self._compiling: dict[FactId, Any] = {}  # what the running compilation took from it

    # --- input ---------------------------------------------------------------------------------------------

    def submit(self, changes: Iterable[Change]) -> None:
        """Take notice; the last word about a key counts. Ports and MACs of a deleted Node are forgotten."""
        for change in changes:
            value = Settings() if change.kind is Kind.SETTINGS and change.value is None else change.value
            self._pending[(change.kind, change.key)] = value
            if change.kind is Kind.NODE and value is None:
                self._forget_observations(change.key)

    def _forget_observations(self, node: str) -> None:
        """Also those that were submitted and are not facts yet."""
        known = [(kind, key) for kind in OBSERVATIONS for key in self.facts.peek(kind)]
        for kind, key in (*known, *self._pending, *self._compiling):
            if kind in OBSERVATIONS and (key == node or key.startswith(f"{node} ")):
                self._pending[kind, key] = None

    @property
    def idle(self) -> bool:
        return not self._pending

    def run(self, changes: Iterable[Change] = ()) -> Revision:
        """Submit and compile to the end."""
        self.submit(changes)
        steps = self.compile()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                revision: Revision = end.value
                return revision

    # --- compilation ---------------------------------------------------------------------------------------

    def compile(self) -> Generator[None, None, Revision]:
        """Compile all that was submitted so far; yields every few tasks."""
        pending, self._pending = self._pending, {}
        self._compiling = pending
        self._changed, self._changed_members = {}, set()
        for number, (fact, value) in enumerate(pending.items()):
            self._set_model(fact, value)
            if number % TASKS_A_SLICE == 0:
                yield
        for stage in range(len(self._stages)):
            if stage == self._first_feature:
                self._assign_groups()
            yield from self._run_stage(stage)
        self._compiling, self._views = {}, {}
        self.revision += 1
        return Revision(self.revision, tuple(self._unit_changes()), self._member_changes())

    def _run_stage(self, stage: int) -> Iterator[None]:
        step = self._stages[stage]
        subjects = self.facts.peek(step.subject)
        while self._dirty[stage]:
            keys, self._dirty[stage] = self._dirty[stage], {}
            for number, key in enumerate(keys):
                self._run_task((stage, key), step, subjects.get(key))
                if number % TASKS_A_SLICE == 0:
                    yield

    def _run_task(self, task: Task, step: Rule | Feature, value: Any) -> None:
        self.facts.reads = set()
        problems: tuple[Problem, ...] = ()
        self._faults.pop(task, None)
        try:
            if isinstance(step, Rule):
                problems = self._run_rule(task, step, value)
            else:
                self._apply_units(task, {} if value is None else self._compile_feature(step, task[1], value))
        except Exception as error:  # noqa: BLE001  (one object's trouble must not stop the others)
            problems = (self._note_fault(task, step, error).problem,)
        if problems or task in self._task_problems:
            self._note_problems(task, problems)
        self._remember_reads(task)

    def _run_rule(self, task: Task, rule: Rule, value: Any) -> tuple[Problem, ...]:
        if value is None:
            self._apply_claims(task, {})
            return ()
        outcome = rule.derive(task[1], value, self.facts)
        self._apply_claims(task, {(claim.kind, claim.key): claim for claim in outcome.claims})
        return tuple(outcome.problems)

    def _compile_feature(self, feature: Feature, key: str, value: Any) -> dict[UnitKey, Unit]:
        units = {}
        for scope in self._scopes(feature, value):
            if unit := feature.compile(value, self._view(scope)):
                units[UnitKey(feature.name, scope, key)] = unit
        return units

    def _view(self, scope: Scope) -> FleetView:
        view = self._views.get(scope)
        if view is None:
            view = self._views[scope] = VIEWS[scope.kind](self.facts, scope)
        return view

    def _scopes(self, feature: Feature, value: Any) -> Iterable[Scope]:
        if feature.scope is ScopeKind.FLEET:
            return (FLEET,)
        if feature.scope in SHARED:
            if name := getattr(value, "zone", None):
                return (Scope(feature.scope, name),)
            return [Scope(feature.scope, name) for name in self.facts.all(SHARED[feature.scope])]
        node = getattr(value, "node", None) or value.name
        return (Scope(ScopeKind.NODE, node),) if self.facts.get(Kind.NODE, node) is not None else ()

    # --- facts ---------------------------------------------------------------------------------------------

    def _set_model(self, fact: FactId, value: Any) -> None:
        problems = getattr(value, "problems", ())
        if problems:
            self._value_problems[fact] = problems
        else:
            self._value_problems.pop(fact, None)
        self._set(fact, None if isinstance(value, Invalid) else value)

    def _set(self, fact: FactId, value: Any) -> None:
        kind, key = fact
        values = self.facts.peek(kind)
        if values.get(key) == value:
            return
        if value is None:
            del values[key]
        else:
            values[key] = value
        if kind is Derived.MEMBER:
            self._changed_members.add(key)
        elif kind is Derived.GROUP_OWNER:
            self._owners_changed = True
        for stage in self._by_subject.get(kind, ()):
            self._dirty[stage][key] = None
        for read in (fact, (kind, ALL)):
            for stage, reader in self._readers.get(read, ()):
                self._dirty[stage][reader] = None

    def _apply_claims(self, task: Task, claims: dict[FactId, Claim]) -> None:
        before = self._claims_by_task.get(task, {})
        if claims:
            self._claims_by_task[task] = claims
        else:
            self._claims_by_task.pop(task, None)
        for fact in before.keys() - claims.keys() if before else ():
            holders = self._claims_by_fact[fact]
            del holders[task]
            self._settle(fact, holders)
        for fact, claim in claims.items():
            if before.get(fact) != claim:
                holders = self._claims_by_fact.setdefault(fact, {})
                holders[task] = claim
                self._settle(fact, holders)

    def _settle(self, fact: FactId, holders: dict[Task, Claim]) -> None:
        """The fact becomes what its holders claim: the best claim, or all of them together."""
        kind = fact[0]
        if kind in CONTESTED:
            (self._contested.add if len(holders) > 1 else self._contested.discard)(fact)
        if not holders:
            del self._claims_by_fact[fact]
            self._set(fact, None)
        elif kind in UNITED:
            self._set(fact, tuple(sorted({one for claim in holders.values() for one in claim.value})))
        elif len(holders) == 1:
            self._set(fact, next(iter(holders.values())).value)
        else:
            self._set(fact, min(holders.items(), key=lambda held: (held[1].rank, held[0]))[1].value)

    def _assign_groups(self) -> None:
        if not self._owners_changed:
            return
        self._owners_changed = False
        wanted = self.facts.peek(Derived.GROUP_OWNER).keys()
        known = self.facts.peek(Derived.GROUP_ID).keys()
        for owner in self._group_ids.update(wanted - known, known - wanted):
            number = self._group_ids.get(owner)
            self._set((Derived.GROUP_ID, owner), number)

    def _remember_reads(self, task: Task) -> None:
        reads, before = self.facts.reads, self._reads.get(task)
        if reads == before or (not reads and before is None):
            return
        for fact in before - reads if before else ():
            readers = self._readers[fact]
            del readers[task]
            if not readers:
                del self._readers[fact]
        for fact in reads - before if before else reads:
            self._readers.setdefault(fact, {})[task] = None
        if reads:
            self._reads[task] = reads
        else:
            self._reads.pop(task, None)

    # --- output --------------------------------------------------------------------------------------------

    def _apply_units(self, task: Task, units: dict[UnitKey, Unit]) -> None:
        before = self._units_by_task.get(task, {})
        if not units and not before:
            return
        for key in before.keys() - units.keys() if before else ():
            self._changed.setdefault(key, before[key])
            del self.units[key]
        for key, new in units.items():
            old = before.get(key, EMPTY)
            if old != new:
                self._changed.setdefault(key, old)
                self.units[key] = new
        if units:
            self._units_by_task[task] = units
        else:
            self._units_by_task.pop(task, None)

    def _unit_changes(self) -> Iterator[UnitChange]:
        for key, old in self._changed.items():
            new = self.units.get(key, EMPTY)
            if old != new:
                yield UnitChange(key, old, new)

    def _member_changes(self) -> dict[int, Member | None]:
        members = self.facts.peek(Derived.MEMBER)
        return {int(key, 16): members.get(key) for key in sorted(self._changed_members)}

    # --- what a person should know ---------------------------------------------------------------------------

    def _note_fault(self, task: Task, step: Rule | Feature, error: Exception) -> Fault:
        kept = task in (self._claims_by_task if isinstance(step, Rule) else self._units_by_task)
        said, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
        self._faults[task] = Fault(step.name, step.subject.value, task[1], said, kept, trace)
        return self._faults[task]

    def faults(self) -> list[Fault]:
        """What no rule or feature could say the last time, those that concern every switch first."""
        return sorted(self._faults.values(), key=lambda fault: (not fault.whole, fault.step, fault.key))

    def _note_problems(self, task: Task, problems: tuple[Problem, ...]) -> None:
        if problems:
            self._task_problems[task] = problems
        else:
            self._task_problems.pop(task, None)

    def problems(self) -> list[Problem]:
        """Everything about the objects that a person should mend, in a fixed order."""
        found = self.findings()
        found |= {problem for problems in self._value_problems.values() for problem in problems}
        return sorted(found, key=lambda problem: (problem.kind, problem.key, problem.field, problem.reason))

    def findings(self) -> set[Problem]:
        """What objects do not say by themselves, only together with others."""
        found = {problem for problems in self._task_problems.values() for problem in problems}
        for fact in self._contested:
            fact_kind, fact_key = fact
            kind, field, words = CONTESTED[Derived(fact_kind)]
            thing: Any = fact_key.split(" ") if fact_kind is Derived.UPLINK_MAC else fact_key
            holders = sorted(self._claims_by_fact[fact].items(), key=lambda held: (held[1].rank, held[0]))
            (_, winner), best = holders[0]
            for (_stage, loser), claim in holders[1:]:
                if isinstance(claim.value, Frontend):
                    field, thing = ENTRANCES[claim.value.entrance], claim.value.said
                older = "the older " if best.rank[-2:] < claim.rank[-2:] else ""
                found.add(Problem(kind, loser, field, words.format(thing, f"{older}{kind} {winner}")))
        return found
