"""What actions do, one by one. `test_frames` holds the sum of them against a real Open vSwitch."""

import pytest

from pipelines import fields as f
from pipelines.actions import (
    IN_PORT_ACTION,
    LOCAL_IN_REGISTER,
    LOCAL_PORT,
    CheckPktLarger,
    Controller,
    Ct,
    DecTtl,
    Goto,
    Learn,
    LearnLoad,
    LearnMatch,
    Meter,
    Nat,
    Output,
    OutputPart,
    Resubmit,
    ToGroup,
    load,
    move,
)
from pipelines.addresses import Ip, parse_ip
from pipelines.fields import Item
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.interpreter import Outcome, Packet, Switch, tell
from pipelines.interpreter.switch import Looping

A, B, V = (parse_ip(text).value for text in ("10.0.0.1", "10.0.0.2", "10.9.9.9"))
PORTS = (1, 2, 3, LOCAL_PORT)


def flow(table: int, *actions: object, when: tuple[Item, ...] = (), priority: int = 100) -> Flow:
    return Flow(table, priority, match(*when), actions)  # type: ignore[arg-type]


def tcp(source: int, destination: int, ports: tuple[int, int], flags: int, entered: int = 1) -> Packet:
    ends = {f.IP4_SRC: source, f.IP4_DST: destination, f.TCP_SRC: ports[0], f.TCP_DST: ports[1], f.TCP_FLAGS: flags}
    return Packet.of({f.IN_PORT: entered, f.ETH_TYPE: 0x0800, f.IP_PROTO: f.TCP, f.IP_TTL: 64, **ends}, 60)


def given(packet: Packet, *flows: Flow, groups: tuple[Group, ...] = ()) -> Outcome:
    return Switch(flows, groups, PORTS).receive(packet)


PACKET = tcp(A, B, (1000, 80), 2)


def ports(outcome: Outcome) -> list[int]:
    return [port for port, _ in outcome.sent]


def test_the_highest_priority_wins_whatever_the_masks() -> None:
    exact = flow(0, Output(2), when=(f.IP4, f.IP4_DST.eq(B)), priority=10)
    wide = flow(0, Output(3), when=(f.IP4,), priority=20)
    assert ports(given(PACKET, exact, wide)) == [3]
    assert ports(given(PACKET, exact, flow(0, Output(3), priority=5))) == [2]


def test_without_a_flow_a_packet_is_dropped() -> None:
    outcome = given(PACKET, flow(0, Goto(7)))
    assert outcome.path == [(0, flow(0, Goto(7))), (7, None)]
    assert list(tell(outcome))[-1] == "dropped"


def test_nothing_leaves_by_the_port_that_it_came_by_unless_that_is_said() -> None:
    assert ports(given(PACKET, flow(0, Output(1), Output(2)))) == [2]
    assert ports(given(PACKET, flow(0, Output(IN_PORT_ACTION)))) == [1]
    assert ports(given(PACKET, flow(0, load(f.OUT_PORT, 1), OutputPart(f.OUT_PORT)))) == []


def test_the_hosts_port_has_another_number_in_a_register() -> None:
    assert ports(given(PACKET, flow(0, load(f.OUT_PORT, LOCAL_IN_REGISTER), OutputPart(f.OUT_PORT)))) == [LOCAL_PORT]


def test_a_port_that_is_not_there_takes_nothing_and_sends_nothing() -> None:
    assert ports(given(PACKET, flow(0, Output(99)))) == []
    with pytest.raises(ValueError, match="no port 99"):
        given(PACKET.having({f.IN_PORT: 99}), flow(0, Output(2)))


def test_a_resubmit_comes_back_with_what_was_set() -> None:
    called = flow(9, load(f.ETH_SRC, 5), Goto(10)), flow(10, load(f.ETH_DST, 6))
    outcome = given(PACKET, flow(0, Resubmit(9), Output(2)), *called)
    assert (outcome.sent[0].packet[f.ETH_SRC], outcome.sent[0].packet[f.ETH_DST]) == (5, 6)


def test_a_bucket_works_on_a_copy() -> None:
    group = Group(1, (Bucket(1, (load(f.ETH_SRC, 5), Resubmit(9))), Bucket(2, (load(f.ETH_SRC, 6), Resubmit(9)))))
    switch = Switch([flow(0, ToGroup(1), Output(2)), flow(9, Output(3))], [group], PORTS, lambda g, p: g.buckets[1])
    assert [(port, packet[f.ETH_SRC]) for port, packet in switch.receive(PACKET).sent] == [(3, 6), (2, 0)]


def test_wide_registers_are_made_of_narrow_ones() -> None:
    flows = flow(0, load(f.ENDPOINT4, 8080 << 32 | B), Goto(1)), flow(1, Output(2), when=(f.ENDPOINT_IP4.eq(B),))
    assert ports(given(PACKET, *flows)) == [2]
    six = flow(0, load(f.ENDPOINT_IP6, 7 << 96 | 9), Goto(1)), flow(1, Output(3), when=(f.REGS[4].eq(7),))
    assert ports(given(PACKET, *six)) == [3]


def test_a_hop_limit_that_is_used_up_ends_the_list() -> None:
    flows = flow(0, DecTtl(), Output(2))
    assert given(PACKET, flows).sent[0].packet[f.IP_TTL] == 63
    last = given(PACKET.having({f.IP_TTL: 1}), flows)
    assert (ports(last), [message.reason for message in last.to_controller]) == ([], ["ttl"])


def test_length_is_that_of_the_frame() -> None:
    flows = flow(0, CheckPktLarger(60, f.TOO_BIG), Goto(1)), flow(1, Output(2), when=(f.TOO_BIG.eq(1),))
    assert ports(given(PACKET, *flows)) == []
    assert ports(given(Packet(PACKET.bits, 61), *flows)) == [2]


def test_the_controller_gets_the_packet_as_it_is_then() -> None:
    outcome = given(PACKET, flow(0, load(f.ETH_SRC, 5), Meter(7), Controller(128), load(f.ETH_SRC, 6), Output(2)))
    assert [message.packet[f.ETH_SRC] for message in outcome.to_controller] == [5]
    assert outcome.sent[0].packet[f.ETH_SRC] == 6


def test_a_packet_out_runs_its_actions_with_any_port_as_origin() -> None:
    switch = Switch([flow(24, Output(2), when=(f.ENTERED_BY.eq(5),))], [], PORTS)
    outcome = switch.execute(PACKET.having({f.IN_PORT: 0xFFFFFFFD}), (load(f.ENTERED_BY, 5), Resubmit(24)))
    assert ports(outcome) == [2]


@pytest.mark.parametrize("back", [Resubmit(0), Ct(1, table=0), Goto(0)])
def test_going_round_and_round_is_an_error(back: Resubmit | Ct | Goto) -> None:
    with pytest.raises(Looping):
        given(PACKET, flow(0, Resubmit(1), Resubmit(1)), flow(1, back))


def test_what_follows_a_ct_sees_the_packet_as_it_was() -> None:
    dnat = Ct(1, 5, commit=True, nat=Nat("dst", Ip(4, V)))
    outcome = given(PACKET, flow(0, dnat, Output(3)), flow(5, Output(2)))
    assert [(port, packet[f.IP4_DST]) for port, packet in outcome.sent] == [(2, V), (3, B)]


def test_a_fragment_waits_for_the_rest_of_its_datagram() -> None:
    outcome = given(PACKET.having({f.IP_FRAG: 1}), flow(0, Ct(1, table=5)), flow(5, Output(2)))
    assert (ports(outcome), outcome.held) == ([], True)


# --- connections -------------------------------------------------------------------------------------------


def tracking(ct: Ct) -> Switch:
    """Port 1 is the client's, 2 the server's. New connections are committed by `ct`."""
    new = f.ct_state("+new-dnat+trk")
    back = flow(5, Output(1), when=(f.IN_PORT.eq(2),), priority=50)
    return Switch([flow(0, Ct(1, 5, nat=Nat())), flow(5, ct, when=(new,)), back, flow(5, Output(2), priority=10),
                   flow(6, Output(2))], [], PORTS)  # fmt: skip


def state(outcome: Outcome, table: int = 5) -> str:
    step = next(step for step in outcome.trace if step.table == table and step.action is None)
    bits = Packet(step.before)[f.CT_STATE]
    return "".join(f"+{word}" for word, bit in f.CT_STATE_BITS.items() if bits & bit)


def test_a_service_connection_from_its_first_packet_to_its_answer() -> None:
    switch = tracking(Ct(1, 6, commit=True, nat=Nat("dst", Ip(4, V), 8080), exec=(load(f.CT_SERVICE, 1),)))
    first = switch.receive(PACKET)
    assert state(first) == "+new+trk"
    assert (first.sent[0].packet[f.IP4_DST], first.sent[0].packet[f.TCP_DST]) == (V, 8080)
    assert state(switch.receive(PACKET)) == "+new+trk+dnat", "a second one before the answer"
    answer = switch.receive(tcp(V, A, (8080, 1000), 0x12, entered=2))
    assert state(answer) == "+est+rpl+trk+snat"
    assert (answer.sent[0].packet[f.IP4_SRC], answer.sent[0].packet[f.TCP_SRC]) == (B, 80)
    assert state(switch.receive(tcp(A, B, (1000, 80), 0x10))) == "+est+trk+dnat"
    assert [one.mark for one in switch.connections] == [1 << f.CT_SERVICE.low]


def test_an_error_about_a_translated_packet_is_translated_with_what_it_quotes() -> None:
    switch = tracking(Ct(1, 6, commit=True, nat=Nat("dst", Ip(4, V), 8080)))
    sent = switch.receive(PACKET).sent[0].packet
    ends = {f.IP4_SRC: V, f.IP4_DST: A, f.IN_PORT: 2, f.ETH_TYPE: 0x0800, f.IP_PROTO: f.ICMP, f.ICMP_TYPE: 3}
    error = switch.receive(Packet.of(ends, 60, carried=sent))
    assert state(error) == "+rel+rpl+trk+snat"
    packet = error.sent[0].packet
    assert packet[f.IP4_SRC] == B
    assert packet.carried is not None
    assert (packet.carried[f.IP4_DST], packet.carried[f.TCP_DST]) == (B, 80)
    assert state(switch.receive(Packet.of(ends, 60, carried=tcp(A, B, (1, 2), 2)))) == "+inv+trk", "about nothing known"


def test_a_plain_connection_yields_to_a_translated_one_with_the_same_answers() -> None:
    switch = tracking(Ct(1, 6, commit=True, nat=Nat("dst", Ip(4, V), 8080)))
    switch.receive(PACKET)
    plain = Switch([flow(0, Ct(1, 6, commit=True, nat=Nat("src", Ip(4, 0)))), flow(6, Output(2))], [], PORTS)
    plain.connections = switch.connections
    moved = plain.receive(tcp(A, V, (1000, 8080), 2)).sent[0].packet
    assert (moved[f.IP4_SRC], moved[f.TCP_SRC] != 1000) == (A, True)
    assert plain.receive(tcp(A, V, (2000, 8080), 2)).sent[0].packet[f.TCP_SRC] == 2000


def test_an_exhausted_range_leaves_a_packet_as_it_is_and_remembers_nothing() -> None:
    switch = tracking(Ct(2, 6, commit=True, nat=Nat("src", Ip(4, V), 61440, 61441)))
    for port in (1, 2, 3):
        last = switch.receive(tcp(A, B, (port, 80), 2))
    assert state(last, 6) == "+new+trk"
    assert last.sent[0].packet[f.IP4_SRC] == A
    assert sorted(one.reply.destination_port for one in switch.connections) == [61440, 61441]


@pytest.mark.parametrize(
    ("flags", "expected"), [(2, "+new+trk"), (0x10, "+new+trk"), (0x12, "+inv+trk"), (3, "+inv+trk")]
)
def test_how_a_tcp_connection_may_begin(flags: int, expected: str) -> None:
    assert state(tracking(Ct(1, 6)).receive(tcp(A, B, (1, 2), flags))) == expected


def test_a_closed_connections_ports_may_be_used_again() -> None:
    switch = tracking(Ct(1, 6, commit=True))
    switch.receive(PACKET)
    switch.receive(tcp(B, A, (80, 1000), 0x14, entered=2))
    assert state(switch.receive(PACKET)) == "+new+trk"
    assert len(switch.connections) == 1


def test_a_copy_remembers_and_forgets_for_itself() -> None:
    switch = tracking(Ct(1, 6, commit=True))
    switch.receive(PACKET)
    other = switch.copy()
    other.connections.forget(next(iter(other.connections)))
    assert (len(switch.connections), len(other.connections)) == (1, 0)


# --- learning ----------------------------------------------------------------------------------------------

LEARN = Learn(
    9, 1, (LearnMatch(f.ETH_TYPE, 0x0800), LearnMatch(f.IP4_DST, f.IP4_SRC), LearnLoad(f.ETH_DST, f.ETH_SRC)),
    idle_timeout=10, limit=1, result=f.LEARNED,
)  # fmt: skip


def learning() -> Switch:
    full = flow(5, Output(3), when=(f.LEARNED.eq(0),))
    return Switch(
        [flow(0, LEARN, Goto(5), when=(f.IN_PORT.eq(1),)), flow(0, Resubmit(9), Output(1), priority=1), full], [], PORTS
    )


def test_a_learned_flow_is_made_of_the_packet_and_goes_when_nobody_uses_it() -> None:
    switch = learning()
    switch.receive(PACKET.having({f.ETH_SRC: 77}), now=0)
    back = tcp(B, A, (80, 1000), 0x12, entered=2)
    assert switch.receive(back, now=9).sent[0].packet[f.ETH_DST] == 77
    assert switch.receive(back, now=18).sent[0].packet[f.ETH_DST] == 77, "it was used"
    assert switch.receive(back, now=28).sent[0].packet[f.ETH_DST] == 0
    assert switch.learned == []


def test_at_the_limit_nothing_is_learned_and_the_packet_knows() -> None:
    switch = learning()
    assert ports(switch.receive(PACKET)) == []
    assert ports(switch.receive(tcp(V, B, (1000, 80), 2))) == [3]
    assert len(switch.learned) == 1


def test_a_move_copies_bits() -> None:
    outcome = given(
        PACKET.having({f.ETH_SRC: 9}), flow(0, move(f.ETH_SRC, f.CLIENT_MAC), move(f.CLIENT_MAC, f.ETH_DST), Output(2))
    )
    assert outcome.sent[0].packet[f.ETH_DST] == 9
