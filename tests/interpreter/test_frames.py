"""The interpreter against a real Open vSwitch, frame by frame, with its connection tracking and translations.

Both get the same flows and then the same packets, hundreds of them, each with what follows from it. What differs
by chance (the choice of a bucket, the first port that is tried) is taken over from the switch.
"""

import re
import shutil
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from pipelines import fields as f
from pipelines.actions import ToGroup
from pipelines.addresses import Ip
from pipelines.interpreter import Outcome, Packet, Switch, tell
from pipelines.interpreter.connections import FIN_WAIT_2
from pipelines.interpreter.ends import Ends
from pipelines.interpreter.story import packet_text
from tests.codec.openvswitch import OpenVSwitch
from tests.interpreter.dummy import Dummy, mapping
from tests.interpreter.frames import frame, packet
from tests.interpreter.talk import Talk
from tests.ovs.states import STATES, State
from tests.simulation import cluster
from tests.simulation.cluster import Tables

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")


PACKETS = 200  # in each state; thousands agreed, with other seeds
SEED = 7
Seen = tuple[list[tuple[str, str]], int]  # port and packet, and how many went to the controller


@pytest.fixture
def openvswitch(tmp_path) -> Iterator[OpenVSwitch]:
    switch = OpenVSwitch(tmp_path)
    try:
        switch.start()
        yield switch
    finally:
        switch.stop()


class Both:
    """A real switch and an interpreted one that have seen the same."""

    def __init__(self, real: Dummy, tables: Tables) -> None:
        self.real = real
        self.switch = tables.switch()
        self._names = mapping(tables)

    def give(self, asked: Packet) -> Outcome:
        """Raises AssertionError with the way through the tables when they do not agree."""
        sent, to_controller = self.real.give(self._names[asked[f.IN_PORT]], frame(asked))
        real = sorted((port, _text(packet(one))) for port, one in sent), to_controller
        asked = msgspec.structs.replace(asked, length=len(frame(asked)))
        tried: Outcome | None = None
        agreeing: list[tuple[Switch, Outcome]] = []
        for switch in self._ways(sent):
            outcome = switch.receive(asked)
            tried = tried or outcome
            if self._seen(outcome) == real:
                agreeing.append((switch, outcome))
                if sent or not any(isinstance(step.action, ToGroup) for step in outcome.trace):
                    break
        if len(agreeing) > 1:  # a choice was made, and nothing came out: what is remembered tells
            known = dumped(self.real.connections())
            agreeing = [(switch, outcome) for switch, outcome in agreeing if remembered(switch) == known]
        for switch, outcome in agreeing:
            if switch.learned != self.switch.learned:
                self.real.revalidate()
            self.switch = switch
            return outcome
        assert tried is not None
        raise AssertionError(f"given: {packet_text(asked)}\nthe switch: {real}\nbut:\n" + "\n".join(tell(tried)))

    def forget_closed(self) -> None:
        """TCP connections that are over, lest their ports are used again.

        Open vSwitch 3.1.0 keeps a closed connection's translation for a while, so that the next one gets another
        port; see test_ports_reused.
        """
        for one in list(self.switch.connections):
            if one.original.protocol == f.TCP and min(one.states) >= FIN_WAIT_2:
                self.switch.connections.forget(one)
                self.real.forget(one.original)

    def _seen(self, outcome: Outcome) -> Seen:
        sent = sorted((self._names[port], _text(packet(frame(one)))) for port, one in outcome.sent)
        return sent, sum(message.reason == "action" for message in outcome.to_controller)

    def _ways(self, sent: list[tuple[str, bytes]]) -> Iterator[Switch]:
        """The interpreted switch with every choice of a bucket, and the port that the real one took."""
        ports = [port for _, one in sent if (port := packet(one)[f.TCP_SRC] or packet(one)[f.UDP_SRC])]
        for number in range(8):
            switch = self.switch.copy()
            switch.choose = lambda group, packet: group.buckets[number % len(group.buckets)]  # noqa: B023
            if ports:
                switch.connections.first_try = lambda original, first, last: ports[0]
            yield switch


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_switch_does_with_every_packet_what_the_interpreter_says(state: State, openvswitch: OpenVSwitch) -> None:
    found = cluster.in_state(state)
    tables, random = found.tables["n1"], Random(SEED)
    talk, real = Talk(found, "n1", random), Dummy(openvswitch, tables)
    both = Both(real, tables)
    past: list[Packet] = []
    left: list[tuple[int, Packet]] = []
    passed = 0
    for _ in range(PACKETS):
        asked = following(talk, past, left, random) or talk.fresh()
        outcome = both.give(asked)
        past.append(asked)
        left += outcome.sent
        both.forget_closed()
        passed += bool(outcome.sent)
    assert passed > PACKETS / 4, f"only {passed} came out anywhere"
    assert dumped(real.connections()) == remembered(both.switch)
    real.close()


def _text(packet: Packet) -> str:
    """Without what IPv6 errors quote: Open vSwitch 3.1 damages it when it translates (a fault of its own)."""
    if packet[f.ETH_TYPE] == 0x86DD and packet.carried is not None:
        packet = msgspec.structs.replace(packet, carried=None)
    return packet_text(packet)


def following(talk: Talk, past: list[Packet], left: list[tuple[int, Packet]], random: Random) -> Packet | None:
    chance = random.random()
    if past and chance < 0.15:
        return random.choice(past[-20:])
    return talk.answer(*random.choice(left[-20:])) if left and chance < 0.6 else None


Remembered = tuple[tuple[str, ...], str, str, str]  # ends both ways, zone, mark, label


def dumped(lines: list[str]) -> set[Remembered]:
    """What a switch remembers, by the words of dpctl."""
    found = set()
    for line in lines:
        words = dict(re.findall(r"(zone|mark|labels)=(\w+)", line))
        ends = tuple(re.findall(r"(?:src|dst|sport|dport|id)=([^,)]+)", line))
        found.add((ends, words["zone"], words.get("mark", "0"), words.get("labels", "0")))
    return found


def remembered(switch: Switch) -> set[Remembered]:
    """The same of an interpreted one."""
    return {
        (
            (*_ends(one.original), *_ends(one.reply)),
            str(one.original.zone),
            str(one.mark),
            f"{one.label:#x}" if one.label else "0",
        )
        for one in switch.connections
    }


def _ends(ends: Ends) -> tuple[str, ...]:
    addresses = str(Ip(ends.family, ends.source)), str(Ip(ends.family, ends.destination))
    if ends.protocol in (f.ICMP, f.ICMP6):
        return (*addresses, str(ends.source_port >> 8))
    return (*addresses, str(ends.source_port), str(ends.destination_port))
