"""A switch that runs in the head: flows, groups and ports in, and what becomes of packets out.

Each action does here what Open vSwitch does: a resubmit comes back with what was set, a bucket works on a copy, a
packet never leaves by the port that it came by unless it is told to, ct() with a table goes on there with what
tracking found while the rest of the list sees the packet as it was.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from pipelines import fields as f
from pipelines.actions import (
    IN_PORT_ACTION,
    LOCAL_IN_REGISTER,
    LOCAL_PORT,
    Action,
    CheckPktLarger,
    Controller,
    Ct,
    DecTtl,
    Goto,
    Learn,
    Meter,
    Move,
    Output,
    OutputPart,
    Resubmit,
    SetField,
    ToGroup,
)
from pipelines.flow import Bucket, Flow, Group
from pipelines.interpreter.classifier import Classifier
from pipelines.interpreter.connections import Connections, Tracked
from pipelines.interpreter.ends import Ends
from pipelines.interpreter.learned import Learned
from pipelines.interpreter.packet import Packet, read, written

MOST_STEPS = 4096  # look-ups and actions for one packet
MOST_NESTED = 100  # tables that one after the other have led to a table
_LEADS_ON = (Goto, Resubmit, Ct, ToGroup)
Choose = Callable[[Group, Packet], Bucket]
Tracker = Callable[[int, Packet | None, Ct, Ends | None], Tracked]


class Looping(RuntimeError):
    """Flows send a packet round and round."""


class Sent(NamedTuple):
    port: int
    packet: Packet


class ToController(NamedTuple):
    """`reason`: "action", or "ttl" for a packet whose hop limit is used up."""

    packet: Packet
    in_port: int
    flow: Flow
    reason: str


class Step(NamedTuple):
    """A look-up (`action` None; `flow` None when there was no flow), or an action that the flow made.

    `before` and `after` are the packet's values, see `packet.read`. `depth`: within how many resubmits.
    """

    depth: int
    table: int
    flow: Flow | None
    action: Action | None
    before: int
    after: int


class Outcome(NamedTuple):
    """`held`: a fragment that has to wait for the rest of its datagram before it can be tracked."""

    sent: list[Sent]
    to_controller: list[ToController]
    trace: list[Step]
    held: bool = False

    @property
    def path(self) -> list[tuple[int, Flow | None]]:
        """The tables that the packet passed, in order, with the flow that matched in each."""
        return [(step.table, step.flow) for step in self.trace if step.action is None]


def first_bucket(group: Group, packet: Packet) -> Bucket:
    del packet
    return group.buckets[0]


class Switch:
    """`ports`: the numbers that exist. Connections and learned flows are what changes with every packet."""

    def __init__(
        self, flows: Iterable[Flow], groups: Iterable[Group], ports: Iterable[int], choose: Choose = first_bucket
    ) -> None:
        """`choose`: which bucket of a group a packet gets."""
        self.ports = frozenset(ports)
        self.choose = choose
        self.connections = Connections()
        self.track: Tracker | None = None  # None: by `connections`; or told by a test
        self._learned = Learned()
        self.hold(flows, groups)

    def hold(self, flows: Iterable[Flow], groups: Iterable[Group]) -> None:
        """These flows and groups from now on. What was learned goes with the last flow that says so."""
        self._groups = {group.id: group for group in groups}
        tables: dict[int, list[Flow]] = {}
        for flow in flows:
            tables.setdefault(flow.table, []).append(flow)
        self._tables = {number: Classifier(own) for number, own in tables.items()}
        learns = [action for own in tables.values() for flow in own for action in flow.actions]
        self._learned.keep({action for action in learns if isinstance(action, Learn)})

    def copy(self) -> "Switch":
        """A switch with the same flows that has seen the same packets, and goes its own way from here."""
        other = Switch((), (), self.ports, self.choose)
        other._tables, other._groups, other.track = self._tables, self._groups, self.track
        other.connections, other._learned = self.connections.copy(), self._learned.copy()
        return other

    @property
    def learned(self) -> list[Flow]:
        return self._learned.flows

    def receive(self, packet: Packet, now: float = 0.0) -> Outcome:
        """A packet by the port in its `in_port`. `now`: seconds, for learned flows. Raises ValueError, Looping."""
        port = packet[f.IN_PORT]
        if port not in self.ports:
            raise ValueError(f"the switch has no port {port}")
        run = _Run(self, packet.entering(), now)
        run.table(0)
        return run.outcome

    def execute(self, packet: Packet, actions: Iterable[Action], now: float = 0.0) -> Outcome:
        """A packet-out: these actions, with the packet's `in_port`, which need not exist."""
        run = _Run(self, packet.entering(), now)
        run.actions(Flow(0, 0, (), tuple(actions)))
        return run.outcome

    def lookup(self, table: int, bits: int, now: float) -> Flow | None:
        known = self._tables.get(table)
        flow = None if known is None else known.lookup(bits)
        learned = self._learned.lookup(table, bits, now)
        return learned if learned is not None and (flow is None or learned.priority > flow.priority) else flow

    def group(self, number: int) -> Group | None:
        return self._groups.get(number)

    def learn(self, action: Learn, bits: int, now: float) -> bool:
        return self._learned.learn(action, bits, now)


class _Run:
    """One packet on its way."""

    def __init__(self, switch: Switch, packet: Packet, now: float) -> None:
        self.outcome = Outcome([], [], [])
        self._switch = switch
        self._packet = packet
        self._bits = packet.bits
        self._carried = packet.carried
        self._original: Ends | None = None
        self._now = now
        self._depth = 0  # of resubmits
        self._nested = 0

    @property
    def packet(self) -> Packet:
        return msgspec.structs.replace(self._packet, bits=self._bits, carried=self._carried)

    def table(self, number: int) -> None:
        flow = self._switch.lookup(number, self._bits, self._now)
        trace = self.outcome.trace
        trace.append(Step(self._depth, number, flow, None, self._bits, self._bits))
        if len(trace) > MOST_STEPS or self._nested > MOST_NESTED:
            raise Looping(f"at table {number}, after {len(trace)} steps")
        if flow is not None:
            self._nested += 1
            self.actions(flow)
            self._nested -= 1

    def actions(self, flow: Flow, actions: Iterable[Action] | None = None) -> None:
        trace = self.outcome.trace
        for action in flow.actions if actions is None else actions:
            before = self._bits
            if isinstance(action, _LEADS_ON):
                trace.append(Step(self._depth, flow.table, flow, action, before, before))
                self._lead_on(action, flow)
                continue
            goes_on = self._act(action, flow)
            trace.append(Step(self._depth, flow.table, flow, action, before, self._bits))
            if not goes_on:
                return

    def _lead_on(self, action: Action, flow: Flow) -> None:
        """By actions whose own steps follow."""
        match action:
            case Goto():
                self.table(action.table)
            case Resubmit():
                self._depth += 1
                self.table(action.table)
                self._depth -= 1
            case Ct():
                self._ct(action)
            case ToGroup():
                self._group(action.group, flow)

    def _act(self, action: Action, flow: Flow) -> bool:
        """Whether the next one of the list has its turn."""
        match action:
            case SetField():
                self._bits = written(self._bits, action.field, action.value)
            case Move():
                self._bits = written(self._bits, action.target, read(self._bits, action.source))
            case DecTtl():
                return self._hop(flow)
            case _:
                self._rest(action, flow)
        return True

    def _rest(self, action: Action, flow: Flow) -> None:
        match action:
            case Output():
                self._output(action.port)
            case OutputPart():
                port = read(self._bits, action.part)
                self._output(LOCAL_PORT if port == LOCAL_IN_REGISTER else port)
            case Controller():
                self._to_controller(flow, "action")
            case CheckPktLarger():
                self._bits = written(self._bits, action.target, int(self._packet.length > action.length))
            case Learn():
                done = self._switch.learn(action, self._bits, self._now)
                if action.result is not None:
                    self._bits = written(self._bits, action.result, int(done))
            case Meter():
                pass  # lets everything through
            case _:
                raise TypeError(f"{action} is none of our actions")

    def _output(self, port: int) -> None:
        entered = read(self._bits, f.IN_PORT)
        if port == IN_PORT_ACTION:
            port = entered
        elif port == entered:
            return  # never back, unless that is said
        if port in self._switch.ports:
            self.outcome.sent.append(Sent(port, self.packet.leaving()))

    def _to_controller(self, flow: Flow, reason: str) -> None:
        self.outcome.to_controller.append(
            ToController(self.packet.leaving(), read(self._bits, f.IN_PORT), flow, reason)
        )

    def _hop(self, flow: Flow) -> bool:
        left = read(self._bits, f.IP_TTL)
        if left <= 1:
            self._to_controller(flow, "ttl")
            return False
        self._bits = written(self._bits, f.IP_TTL, left - 1)
        return True

    def _group(self, number: int, flow: Flow) -> None:
        group = self._switch.group(number)
        if group is None or not group.buckets:
            return
        before = self._bits, self._carried
        self._depth += 1
        self.actions(flow, self._switch.choose(group, self.packet).actions)
        self._depth -= 1
        self._bits, self._carried = before

    def _ct(self, action: Ct) -> None:
        if read(self._bits, f.IP_FRAG):
            self.outcome = self.outcome._replace(held=True)
            return
        if action.nat is not None and action.table is None:
            raise TypeError("ct() that translates has to name a table")
        before = self._bits, self._carried, self._original
        track = self._switch.track or self._switch.connections.track
        self._bits, self._carried, self._original = track(*before[:2], action, self._original)
        self.outcome.trace[-1] = self.outcome.trace[-1]._replace(after=self._bits)
        if action.table is not None:
            self.table(action.table)
        self._bits, self._carried, self._original = before
