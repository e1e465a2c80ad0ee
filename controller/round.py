"""A round: the netted difference that one transaction brings to one switch.

A round is made of steps, one for each unit, each with what the switch holds of the unit and what it should
hold. All units are netted together by key: an address that moves from one object to another is an add with a
new cookie, never a delete. The same function makes the difference of a read-back, with what was read as one
more step that has no unit.

Order inside a round: groups in, flows in (last tables first), flows out, groups out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from controller import encode
from pipelines.features import NUMBERS
from pipelines.ids import split_cookie
from pipelines.unit import Tuple, UnitKey

_FEATURES = frozenset(NUMBERS.values())


class InstalledFlow(Protocol):
    """An EncodedFlow, or a row that was read back."""

    @property
    def key(self) -> bytes: ...
    @property
    def cookie(self) -> int: ...


class InstalledGroup(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def content(self) -> bytes: ...


class Installed(Protocol):
    """What a switch holds of a unit: an EncodedUnit, or `Rows`."""

    @property
    def flows(self) -> Mapping[bytes, InstalledFlow]: ...
    @property
    def groups(self) -> Mapping[int, InstalledGroup]: ...
    @property
    def allowed(self) -> frozenset[Tuple]: ...


class Rows(Struct, frozen=True):
    """Flows and groups that were read back."""

    flows: Mapping[bytes, InstalledFlow] = {}
    groups: Mapping[int, InstalledGroup] = {}
    allowed: frozenset[Tuple] = frozenset()


class Step(NamedTuple):
    """From `old` (what the switch holds) to `new`; None for nothing. `unit` None: rows whose unit is not known."""

    unit: UnitKey | None
    old: Installed | None
    new: encode.EncodedUnit | None


class Round(Struct, frozen=True):
    """What to send. `growth`: how many flows more the switch holds afterwards; `group_growth` likewise."""

    groups_in: tuple[encode.EncodedGroup, ...] = ()
    flows_in: tuple[encode.EncodedFlow, ...] = ()
    flows_out: tuple[InstalledFlow, ...] = ()
    groups_out: tuple[InstalledGroup, ...] = ()
    growth: int = 0
    group_growth: int = 0

    def __bool__(self) -> bool:
        return bool(self.groups_in or self.flows_in or self.flows_out or self.groups_out)

    def __len__(self) -> int:
        return len(self.groups_in) + len(self.flows_in) + len(self.flows_out) + len(self.groups_out)

    @property
    def removals(self) -> int:
        return len(self.flows_out) + len(self.groups_out)

    def without_removals(self) -> "Round":
        return self._removing(())

    def without_losses(self, steps: Iterable[Step]) -> "Round":
        """Of what goes out only flows of units that `steps` lead to, and of features that there are no more.

        They are told by their half of the cookie.
        """
        if not self.flows_out:
            return self.without_removals()
        staying = {flow.cookie >> 32 for step in steps if step.new for flow in step.new.flows.values()}
        replaced = (row for row in self.flows_out if row.cookie >> 32 in staying or _of_no_feature(row.cookie))
        return self._removing(tuple(replaced))

    def _removing(self, flows_out: "tuple[InstalledFlow, ...]") -> "Round":
        return Round(
            self.groups_in,
            self.flows_in,
            flows_out,
            growth=self.growth + len(self.flows_out) - len(flows_out),
            group_growth=self.group_growth + len(self.groups_out),
        )

    def messages(self) -> Iterator[bytes]:
        """Whole bundle-add messages, in order."""
        for group in self.groups_in:
            yield group.message
        for flow in self.flows_in:
            yield flow.message
        for gone in self.flows_out:
            yield encode.delete_flow(gone)
        for gone_group in self.groups_out:
            yield encode.delete_group(gone_group.id)


def net(
    steps: Collection[Step],
    pause: Callable[[], None] = lambda: None,
    again: Collection[bytes] = (),
) -> Round:
    """The round of `steps`. Flows whose key is in `again` are written even when their cookie is there already."""
    held = _Held(set(again))
    for step in steps:
        if step.old is not None:
            held.add(step.old)
        pause()
    wanted: set[bytes] = set()
    wanted_groups: set[int] = set()
    flows_in: dict[int, list[encode.EncodedFlow]] = {}  # by table
    groups_in: dict[int, encode.EncodedGroup] = {}
    for step in steps:
        if step.new is not None:
            wanted.update(step.new.flows)
            wanted_groups.update(step.new.groups)
            for flow in step.new.flows.values():
                if not held.has(flow):
                    flows_in.setdefault(flow.key[0], []).append(flow)
            groups_in |= {number: group for number, group in step.new.groups.items() if not held.has_group(group)}
        pause()
    flows_out: dict[int, list[InstalledFlow]] = {}
    for row in (*held.flows.values(), *held.losers):
        if row.key not in wanted:
            flows_out.setdefault(row.key[0], []).append(row)
    return Round(
        groups_in=tuple(groups_in.values()),
        flows_in=tuple(flow for table in sorted(flows_in, reverse=True) for flow in flows_in[table]),
        flows_out=tuple(row for table in sorted(flows_out) for row in flows_out[table]),
        groups_out=tuple(group for number, group in held.groups.items() if number not in wanted_groups),
        growth=len(wanted) - len(held.flows),
        group_growth=len(wanted_groups) - len(held.groups),
    )


def _of_no_feature(cookie: int) -> bool:
    found = split_cookie(cookie)
    return found is not None and found.feature not in _FEATURES


class _Held:
    """What the switch holds of all units. A key claimed twice with different cookies is doubtful: who won?"""

    def __init__(self, again: set[bytes]) -> None:
        self.flows: dict[bytes, InstalledFlow] = {}
        self.groups: dict[int, InstalledGroup] = {}
        self.losers: list[InstalledFlow] = []  # the other claims of doubtful keys
        self._doubtful = again
        self._doubtful_groups: set[int] = set()

    def add(self, old: Installed) -> None:
        for key, row in old.flows.items():
            other = self.flows.setdefault(key, row)
            if other is not row and other.cookie != row.cookie:
                self._doubtful.add(key)
                self.losers.append(row)
        for number, group in old.groups.items():
            if self.groups.setdefault(number, group).content != group.content:
                self._doubtful_groups.add(number)

    def has(self, flow: encode.EncodedFlow) -> bool:
        there = self.flows.get(flow.key)
        return there is not None and there.cookie == flow.cookie and flow.key not in self._doubtful

    def has_group(self, group: encode.EncodedGroup) -> bool:
        there = self.groups.get(group.id)
        return there is not None and there.content == group.content and group.id not in self._doubtful_groups


def pieces(whole: Round, limit: int) -> Iterator[Round]:
    """The round itself, or when it has more than `limit` messages, rounds in the order in which they may go alone."""
    if len(whole) <= limit:
        yield whole
        return
    for start in range(0, len(whole.groups_in), limit):
        yield Round(groups_in=whole.groups_in[start : start + limit])
    for start in range(0, len(whole.flows_in), limit):
        yield Round(flows_in=whole.flows_in[start : start + limit])
    for start in range(0, len(whole.flows_out), limit):
        yield Round(flows_out=whole.flows_out[start : start + limit])
    for start in range(0, len(whole.groups_out), limit):
        yield Round(groups_out=whole.groups_out[start : start + limit])


def owners(steps: Iterable[Step], xids: Collection[int]) -> dict[int, UnitKey]:
    """To which unit of the steps each failed message belongs; xids that belong to none are absent."""
    found: dict[int, UnitKey] = {}
    for step in steps:
        if step.unit is None:
            continue
        for unit in (step.old, step.new):
            if isinstance(unit, encode.EncodedUnit):
                sent = [flow.xid for flow in unit.flows.values()] + [group.xid for group in unit.groups.values()]
                found |= {xid: step.unit for xid in sent if xid in xids}
    return found
