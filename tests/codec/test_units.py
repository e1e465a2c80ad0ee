"""Units as bytes: what is used again, what is refused, and which transaction ids belong to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.encode import (
    FIRST_XID,
    LAST_CONNECTION_XID,
    EncodeError,
    Xids,
    delete_flow,
    delete_group,
    encode_unit,
    release_unit,
)
from controller.readback import row_of
from pipelines import fields, ids
from pipelines.actions import (
    CheckPktLarger,
    Ct,
    Goto,
    Learn,
    LearnLoad,
    LearnMatch,
    Nat,
    Output,
    Resubmit,
    SetField,
    ToGroup,
    load,
)
from pipelines.addresses import parse_ip
from pipelines.fields import Item
from pipelines.flow import Bucket, Flow, Group, match
from pipelines.unit import FLEET, Unit, UnitKey
from tests.codec import samples

KEY = UnitKey("service", FLEET, "default/web")
OTHER = UnitKey("service", FLEET, "default/other")


def flow(table: int, port: int = 1) -> Flow:
    return Flow(table, 100, match(fields.IP4), (Output(port),))


def group(number: int, endpoint: int = 1) -> Group:
    return Group(number, (Bucket(endpoint, (load(fields.ENDPOINT_IP4, endpoint),)),))


def test_cookie_names_feature_and_owner_and_digests_the_bytes():
    unit = encode_unit(KEY, 5, Unit((flow(1), flow(2))), None, Xids())
    cookies = [ids.split_cookie(each.cookie) for each in unit.flows.values()]
    assert {cookie and (cookie.feature, cookie.learned, cookie.owner) for cookie in cookies} == {
        (5, False, ids.owner_hash(KEY.key))
    }
    assert len({cookie.digest for cookie in cookies if cookie}) == 2


def test_digest_changes_with_everything_that_a_flow_says():
    base = Flow(42, 100, match(fields.IP4), (Output(1),), 10, 20)
    others = [
        Flow(43, 100, base.match, base.actions, 10, 20),
        Flow(42, 101, base.match, base.actions, 10, 20),
        Flow(42, 100, match(fields.IP6), base.actions, 10, 20),
        Flow(42, 100, base.match, (Output(2),), 10, 20),
        Flow(42, 100, base.match, base.actions, 11, 20),
        Flow(42, 100, base.match, base.actions, 10, 21),
        Flow(42, 100, base.match, (*base.actions, Goto(50)), 10, 20),
    ]
    cookies = {
        next(iter(encode_unit(KEY, 5, Unit((each,)), None, Xids()).flows.values())).cookie for each in [base, *others]
    }
    assert len(cookies) == len(others) + 1


def test_what_did_not_change_is_the_same_object_with_the_same_xid():
    xids = Xids()
    before = encode_unit(KEY, 5, Unit((flow(1), flow(2)), (group(7), group(8))), None, xids)
    after = encode_unit(KEY, 5, Unit((flow(1), flow(2, port=9)), (group(7), group(8, endpoint=3))), before, xids)
    same = [key for key in after.flows if after.flows[key] is before.flows[key]]
    assert [key[0] for key in same] == [1]
    assert after.groups[7] is before.groups[7]
    assert after.groups[8].xid != before.groups[8].xid
    assert len(xids) == 4


def test_xids_lead_to_their_unit_and_for_a_while_also_after_it_was_replaced():
    xids = Xids()
    before = encode_unit(KEY, 5, Unit((flow(1),)), None, xids)
    old = next(iter(before.flows.values()))
    after = encode_unit(KEY, 5, Unit((flow(1, port=2),)), before, xids)
    new = next(iter(after.flows.values()))
    assert FIRST_XID <= old.xid < new.xid
    assert FIRST_XID > LAST_CONNECTION_XID
    assert (xids.owner(old.xid), xids.owner(new.xid)) == (KEY, KEY)
    release_unit(after, xids)
    assert len(xids) == 0


def test_xids_wrap_around_and_skip_those_in_use():
    xids = Xids(first=10, last=13)
    taken = [xids.take(KEY) for _ in range(4)]
    assert taken == [10, 11, 12, 13]
    with pytest.raises(OverflowError):
        xids.take(OTHER)
    xids.release([12])
    assert xids.take(OTHER) == 12
    assert [xids.owner(xid) for xid in taken] == [KEY, KEY, OTHER, KEY]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_no_xid_is_given_to_two_units_at_once(steps):
    xids = Xids(first=1, last=6)
    held: list[int] = []
    for take, index in steps:
        if take and len(held) < 6:
            xid = xids.take(OTHER)
            assert xid not in held
            held.append(xid)
        elif held:
            xids.release([held.pop(index % len(held))])
        assert len(xids) == len(held)


def learning(spec: LearnMatch | LearnLoad) -> Flow:
    return Flow(1, 1, match(fields.IP4), (Learn(75, 0, (spec,)),))


REFUSED = {
    "value too wide": Flow(1, 1, (Item(fields.IP4_DST, 1 << 32, None),), ()),
    "value outside its mask": Flow(1, 1, (Item(fields.IP4_DST, 3, 1),), ()),
    "bits of a field that has none": Flow(1, 1, (Item(fields.IN_PORT, 0, 1),), ()),
    "condition on a part": Flow(1, 1, (fields.ENTERED_BY.eq(1),), ()),
    "table": Flow(256, 1, (), ()),
    "priority": Flow(1, 65536, (), ()),
    "timeout": Flow(1, 1, (), (), idle_timeout=65536),
    "port": Flow(1, 1, (), (Output(1 << 32),)),
    "negative": Flow(1, 1, (), (SetField(fields.CT_MARK, -1),)),
    "learn of different widths": learning(LearnMatch(fields.IP4_DST, fields.ETH_SRC)),
    "learn of a number too wide": learning(LearnLoad(fields.EGRESS, 16)),
    "learn of a port number": learning(LearnLoad(fields.OUT_PORT, fields.IN_PORT)),
    "learn into no table": Flow(1, 1, (), (Learn(255, 0, ()),)),
    "learn with a result of several bits": Flow(1, 1, (), (Learn(2, 0, (), result=fields.EGRESS),)),
    "longer than any packet": Flow(1, 1, (), (CheckPktLarger(65536, fields.TOO_BIG),)),
    "check of several bits": Flow(1, 1, (), (CheckPktLarger(1500, fields.ENTERED_BY),)),
    "goto in the middle": Flow(1, 1, (), (Goto(2), Output(1))),
    "zone": Flow(1, 1, match(fields.IP4), (Ct(65536),)),
    "nat without an address": Flow(1, 1, match(fields.IP4), (Ct(1, commit=True, nat=Nat("dst", None, 80)),)),
    "nat ports that fall": Flow(
        1, 1, match(fields.IP4), (Ct(1, commit=True, nat=Nat("src", parse_ip("10.0.0.1"), 9, 8)),)
    ),
    "priority bits of no VLAN": Flow(1, 1, match(fields.VLAN_TCI.masked(0x2000, 0x2000)), ()),
    "not an action": Flow(1, 1, (), ("drop",)),  # type: ignore[arg-type]
    "too long": Flow(1, 1, (), (Output(1),) * 4100),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_an_encode_error_and_takes_no_xid(name):
    xids = Xids()
    before = encode_unit(KEY, 5, Unit((flow(1),)), None, xids)
    with pytest.raises(EncodeError) as caught:
        encode_unit(KEY, 5, Unit((flow(1), flow(2), REFUSED[name])), before, xids)
    assert caught.value.unit == KEY
    assert caught.value.reason
    assert len(xids) == 1


@pytest.mark.parametrize(
    "unit",
    [
        Unit((flow(1), flow(1, port=2))),
        Unit(groups=(group(7), group(7, endpoint=2))),
        Unit(groups=(Group(7, tuple(Bucket(n, (SetField(fields.ENDPOINT_IP6, n),)) for n in range(2000))),)),
        Unit(groups=(Group(1 << 32, ()),)),
    ],
    ids=["one key twice", "one group twice", "group beyond a message", "group id"],
)
def test_unit_that_contradicts_itself_or_is_too_large_is_an_encode_error(unit):
    with pytest.raises(EncodeError):
        encode_unit(KEY, 5, unit, None, Xids())


def test_largest_group_of_thousand_endpoints_fits():
    buckets = tuple(Bucket(n, (load(fields.ENDPOINT4, n), Resubmit(42))) for n in range(1000))
    unit = encode_unit(KEY, 5, Unit(groups=(Group(7, buckets),)), None, Xids())
    assert len(unit.groups[7].message) <= 0xFFFF


@given(samples.flows())
def test_lengths_in_every_message_are_true(sample):
    message = next(iter(encode_unit(KEY, 5, Unit((sample,)), None, Xids()).flows.values())).message
    assert int.from_bytes(message[2:4], "big") == len(message)
    assert int.from_bytes(message[18:20], "big") == len(message) - 16
    assert message[4:8] == message[20:24]
    assert len(message) % 8 == 0


@given(samples.flows())
def test_row_of_a_flow_says_what_the_flow_says(sample):
    encoded = next(iter(encode_unit(KEY, 5, Unit((sample,)), None, Xids()).flows.values()))
    row = row_of(encoded)
    assert (row.table, row.priority, row.idle_timeout, row.hard_timeout) == (
        sample.table,
        sample.priority,
        sample.idle_timeout,
        sample.hard_timeout,
    )


def test_deletions_carry_equal_xids_that_are_not_a_connections():
    unit = encode_unit(KEY, 5, Unit((Flow(1, 1, (), (ToGroup(7),)),), (group(7),)), None, Xids())
    encoded = next(iter(unit.flows.values()))
    for message in (delete_flow(encoded), delete_flow(row_of(encoded)), delete_group(7)):
        assert message[4:8] == message[20:24]
        assert int.from_bytes(message[4:8], "big") > LAST_CONNECTION_XID
