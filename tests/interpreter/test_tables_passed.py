"""The interpreter against `ofproto/trace` of a real Open vSwitch: the same flows, one after the other, in every table.

Here connection tracking is told and not done, on both sides, so that every state of a connection is tried, and packets
may come out of a real tunnel, which no file can hold. A trace ends where a group chooses by hash.
"""

import re
import shutil
from collections.abc import Iterator
from random import Random

import pytest

from pipelines import fields as f
from pipelines.actions import Ct
from pipelines.addresses import parse_ip
from pipelines.flow import Group
from pipelines.interpreter import Packet, Switch, tell
from pipelines.interpreter.connections import EST, NEW, RPL, TRK, Tracked
from pipelines.interpreter.ends import Ends
from pipelines.interpreter.packet import written
from pipelines.interpreter.story import value_text
from pipelines.tables import SERVICE_LB
from pipelines.tables import TUNNEL as TUNNEL_TABLE
from tests.codec.openvswitch import OpenVSwitch
from tests.interpreter.dummy import BRIDGE, Dummy
from tests.interpreter.talk import Talk
from tests.ovs import world
from tests.ovs.states import STATES, State
from tests.simulation import cluster
from tests.simulation.cluster import TUNNEL

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")

PACKETS = 120  # in each state
TOLD = {"trk,new": NEW | TRK, "trk,est": EST | TRK, "trk,est,rpl": EST | RPL | TRK, "trk,inv": 16 | TRK}
PASSED = re.compile(r"^\s*(\d+)\. .*?priority (\d+)", re.MULTILINE)
UNSAID = ("icmp_id", "icmp_code", "ct_zone")  # what is no field of a flow
Path = list[tuple[int, int]]  # table and priority


@pytest.fixture
def openvswitch(tmp_path) -> Iterator[OpenVSwitch]:
    switch = OpenVSwitch(tmp_path)
    try:
        switch.start()
        yield switch
    finally:
        switch.stop()


def words(packet: Packet) -> str:
    """The packet as ovs-appctl takes it, what a field needs before the field."""
    said = {field.name: value_text(field, value) for field, value in packet.headers if field.name not in UNSAID}
    first = ("in_port", "dl_type", "nw_proto", "icmpv6_type")
    return ",".join(
        f"{name}={said[name]}" for name in (*first, *(name for name in said if name not in first)) if name in said
    )


def told(state: int) -> object:
    def track(bits: int, carried: Packet | None, ct: Ct, before: Ends | None) -> Tracked:
        del ct
        return Tracked(written(bits, f.CT_STATE, state), carried, before)

    return track


def real_path(dummy: Dummy, packet: Packet, state: str) -> Path:
    options = [word for _ in range(4) for word in ("--ct-next", state)]
    said = dummy.ask("ofproto/trace", BRIDGE, words(packet), *options)
    return until_size([(int(table), int(priority)) for table, priority in PASSED.findall(said)])


def until_size(path: Path) -> Path:
    """Where it depends on a packet's size, which is not told, the real one goes both ways."""
    return next((path[:at] for at, (table, _) in enumerate(path) if table == TUNNEL_TABLE.id), path)


def paths(switch: Switch, packet: Packet, state: int) -> Iterator[tuple[Path, str]]:
    """With every choice of a bucket."""
    for number in range(4):

        def choose(group: Group, packet: Packet, number: int = number) -> object:
            return group.buckets[number % len(group.buckets)]

        other = switch.copy()
        other.choose, other.track = choose, told(state)  # type: ignore[assignment]
        outcome = other.receive(packet)
        path = [(table, flow.priority) for table, flow in outcome.path if flow]
        yield until_size(path), "\n".join(tell(outcome))


def packets(talk: Talk, random: Random, tunnelled: bool) -> Iterator[Packet]:
    for number in range(PACKETS):
        packet = talk.fresh()
        if tunnelled and number % 3 == 0 and packet.family:
            node = random.choice([*world.NODES.values(), world.OUTSIDE["outside"]])
            family = random.choice(tuple(node.addresses))
            end = parse_ip(node.addresses[family]).value
            packet = packet.having({f.IN_PORT: TUNNEL, f.TUNNEL_SRC[family]: end})
        yield packet


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_packet_meets_the_same_flows_in_every_table(state: State, openvswitch: OpenVSwitch) -> None:
    found = cluster.in_state(state)
    tables, random = found.tables["n1"], Random(11)
    dummy, switch = Dummy(openvswitch, tables, tunnel=state.tunnel), tables.switch()
    passed = 0
    for packet in packets(Talk(found, "n1", random), random, state.mode != "noEncap"):
        for text, bits in TOLD.items():
            real = real_path(dummy, packet, text)
            possible = list(paths(switch, packet, bits))
            agree = any(path[: len(real)] == real if real[-1][0] == SERVICE_LB.id else path == real
                        for path, _ in possible)  # fmt: skip
            assert agree, f"{words(packet)} {text}: {real}, not\n{possible[0][1]}"
            passed += len(real)
    assert passed > PACKETS * len(TOLD) * 3
    dummy.close()
