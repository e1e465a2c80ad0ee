"""A fleet with fake switches, and units that are quick to make."""

from collections.abc import Callable, Iterable, Mapping

import eventlet

from controller.connection import Patience
from controller.fake import Fake, FakePort
from controller.fleet import Fleet
from controller.guard import GuardRule
from controller.session import Hooks, Session, State
from controller.settings import SwitchSettings
from controller.switches import SessionRow, Switches
from pipelines.actions import Ct, Goto, Nat, Resubmit, ToGroup, load
from pipelines.addresses import parse_ip
from pipelines.fields import ENDPOINT_IP4, IP4, IP4_DST, IP4_SRC, IP_PROTO, UDP, UDP_DST
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.ids import FIRST_GROUP
from pipelines.unit import EMPTY, FLEET, Member, Revision, Scope, ScopeKind, Tuple, Unit, UnitChange, UnitKey

Units = Mapping[UnitKey, Unit | None] | Mapping[UnitKey, Unit]

NUMBERS = {"service": 3, "endpoint": 4, "route": 5}
QUICK = SwitchSettings(
    patience=Patience(echo_interval=0.2, echo_timeout=1, reply_timeout=0.6),
    guard=GuardRule(delay=0.2),
    audit_interval=0,
    bundle_timeout=0.3,
    probe_timeout=0.2,
    flush_again=(0.05,),
)
SEGMENT = Scope(ScopeKind.SEGMENT, "4:192.168.77.0/24")


def node(name: str) -> Scope:
    return Scope(ScopeKind.NODE, name)


def member(name: str, *scopes: Scope) -> Member:
    return Member(name, frozenset({FLEET, node(name), *scopes}))


def key(feature: str, name: str, scope: Scope = FLEET) -> UnitKey:
    return UnitKey(feature, scope, name)


def route(address: str, table: int = 110) -> Unit:
    """One flow whose content depends on the table it goes to."""
    return Unit(flows=(Flow(70, 100, match(IP4, IP4_DST.eq(parse_ip(address).value)), (Goto(table),)),))


def service(number: int, endpoints: Iterable[int], flushed: bool = False) -> Unit:
    """A service 10.96.0.N:53 whose group has the given endpoints 10.10.1.E."""
    addresses = [parse_ip(f"10.10.{e >> 8}.{e & 255}") for e in endpoints]
    frontend = parse_ip(f"10.96.{number >> 8}.{number & 255}")
    group = Group(
        FIRST_GROUP + number,
        tuple(Bucket(a.value & 0xFFFF, (load(ENDPOINT_IP4, a.value), Resubmit(42))) for a in addresses),
    )
    where = match(IP4, IP_PROTO.eq(UDP), IP4_DST.eq(frontend.value), UDP_DST.eq(53))
    flow = Flow(41, 200, where, (ToGroup(group.id),))
    allowed = frozenset(Tuple(UDP, frontend, 53, a, 5353) for a in addresses)
    return Unit((flow,), (group,), allowed if flushed else frozenset())


def endpoint(number: int) -> Unit:
    ip = parse_ip(f"10.10.{number >> 8}.{number & 255}")
    nat = Ct(zone=1, table=43, commit=True, nat=Nat("dst", ip, 5353))
    return Unit(flows=(Flow(42, 200, match(IP4, IP_PROTO.eq(UDP), ENDPOINT_IP4.eq(ip.value)), (nat,)),))


def guard_flow(source: str) -> Unit:
    return Unit(flows=(Flow(5, 100, match(IP4, IP4_SRC.eq(parse_ip(source).value)), (Goto(20),)),))


def until(true: Callable[[], object], seconds: float = 30) -> None:
    """Let the others run until it is true."""
    with eventlet.Timeout(seconds):
        while not true():
            eventlet.sleep(0.002)


class World:
    """One fleet; `publish` changes units (None deletes) and members."""

    def __init__(self, settings: SwitchSettings = QUICK, hooks: Hooks | None = None, log_steps: int = 20_000) -> None:
        self.fleet = Fleet(log_steps=log_steps)
        self.switches = Switches(self.fleet, settings, hooks)
        self.number = 0

    def publish(
        self,
        units: Units | None = None,
        members: dict[int, Member | None] | None = None,
    ) -> None:
        self.number += 1
        changes = tuple(UnitChange(k, EMPTY, unit or EMPTY) for k, unit in (units or {}).items())
        self.fleet.publish(Revision(self.number, changes, members or {}), NUMBERS)

    def start(self, units: Units, *dpids: int) -> None:
        """Publish, with node nD for each datapath id D, and be ready."""
        self.publish(units, {dpid: member(f"n{dpid}") for dpid in dpids})
        self.fleet.declare_ready()

    def plug(self, fake: Fake) -> None:
        """Connect it, whatever comes of that."""
        eventlet.spawn_n(self.switches.serve, fake.pair(), f"fake-{fake.dpid}")

    def connect(self, fake: Fake, state: State = State.READY) -> None:
        """Connect it and wait for a state."""
        self.plug(fake)
        self.await_state(fake, state)

    def connected(self, fake: Fake) -> bool:
        return self.switches.session(fake.dpid) is not None

    def row(self, fake: Fake) -> SessionRow:
        """Of the session, which has to be there."""
        return next(row for row in self.switches.sessions() if row.dpid == fake.dpid)

    def session(self, fake: Fake) -> Session:
        session = self.switches.session(fake.dpid)
        assert session is not None
        return session

    def gone(self, fake: Fake) -> None:
        """Wait until its connection has ended."""
        until(lambda: not self.connected(fake))

    def unplug(self, fake: Fake) -> None:
        fake.unplug()
        self.gone(fake)

    def await_state(self, fake: Fake, state: State = State.READY) -> None:
        until(lambda: self.connected(fake) and self.row(fake).state is state)

    def ready(self, fake: Fake) -> bool:
        """Whether it is READY with the newest revision."""
        return self.connected(fake) and self.row(fake).state is State.READY and self.row(fake).revision == self.number

    def settle(self, *fakes: Fake) -> None:
        """Until every switch has the newest revision."""
        until(lambda: all(self.ready(fake) for fake in fakes))

    def agrees(self, fake: Fake) -> bool:
        """Whether the fake holds exactly what its scopes want, bytes and all."""
        return self.held(fake) == self.wanted(fake)

    def wanted(self, fake: Fake) -> tuple[object, object]:
        units = [step.new for step in self.fleet.desired(self.fleet.members[fake.dpid].scopes).steps if step.new]
        flows = {flow.message[24:32] + flow.message[64:] for unit in units for flow in unit.flows.values()}
        groups = {group.id: group.message[40:] for unit in units for group in unit.groups.values()}
        return flows, groups

    def held(self, fake: Fake) -> tuple[object, object]:
        flows = {
            flow.cookie.to_bytes(8, "big") + key.match + bytes(-len(key.match) % 8) + flow.instructions
            for key, flow in fake.tables.flows.items()
        }
        groups = {number: group.buckets + group.properties for number, group in fake.tables.groups.items()}
        return flows, groups


def switch(dpid: int = 1) -> Fake:
    return Fake(dpid, (FakePort(1, "eth1", 0xAA0000000001), FakePort(2, "gw0", 0x0A0000000001)))
