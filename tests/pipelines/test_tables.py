"""A flow outside its table's contract cannot be built, and the contracts fit each other."""

import pytest

from pipelines import fields as f
from pipelines.actions import Ct, Goto, Learn, LearnLoad, LearnMatch, Nat, Resubmit, SetField, ToGroup, load, move
from pipelines.features import BY_NUMBER, FEATURES, NUMBERS
from pipelines.fields import Part
from pipelines.flow import match
from pipelines.table import ContractError
from pipelines.tables import (
    BY_ID,
    CONNTRACK,
    CT_COMMIT,
    EGRESS,
    ENDPOINT_DNAT,
    LEARN_REPLY,
    OUTPUT,
    RESERVED,
    ROUTE,
    SERVICE_LB,
    SNAT,
    TABLES,
    check_tables,
    goto,
    resubmit,
)
from tests.pipelines.objects import compiled, small_cluster


def test_a_condition_that_the_table_does_not_match_is_refused() -> None:
    with pytest.raises(ContractError, match="route does not match in_port"):
        ROUTE.flow(100, (f.IN_PORT.eq(1),))
    with pytest.raises(ContractError, match="ct_commit does not match ENTERED_BY"):
        CT_COMMIT.flow(100, (f.IP4, f.ENTERED_BY.eq(1)))


def test_a_field_that_the_table_does_not_set_is_refused() -> None:
    with pytest.raises(ContractError, match="route does not set dl_src"):
        ROUTE.flow(100, (), load(f.ETH_SRC, 1))
    with pytest.raises(ContractError, match="route does not set dl_src"):
        ROUTE.flow(100, (), move(f.ETH_DST, f.ETH_SRC))


def test_a_table_that_may_not_be_reached_is_refused() -> None:
    with pytest.raises(ContractError, match="egress does not go to table 70"):
        EGRESS.flow(100, (), goto(ROUTE))
    with pytest.raises(ContractError, match="egress does not go to table 99"):
        EGRESS.flow(100, (), Goto(99))


def test_connection_tracking_that_goes_on_elsewhere_or_writes_elsewhere_is_refused() -> None:
    with pytest.raises(ContractError, match="conntrack does not go to table 110"):
        CONNTRACK.flow(100, (), Ct(zone=1, table=OUTPUT.id))
    with pytest.raises(ContractError, match="ct_commit does not set CT_SERVICE"):
        CT_COMMIT.flow(100, (), Ct(zone=1, table=SNAT.id, commit=True, exec=(load(f.CT_SERVICE, 1),)))
    CT_COMMIT.flow(100, (), Ct(zone=1, table=SNAT.id, commit=True, nat=Nat()))


def test_a_resubmit_that_the_table_does_not_call_is_refused() -> None:
    with pytest.raises(ContractError, match="service_lb does not go to table 43"):
        SERVICE_LB.flow(100, (), Resubmit(43))
    with pytest.raises(ContractError, match="service_lb does not go to table 43"):
        SERVICE_LB.bucket(1, Resubmit(43))


def test_going_where_one_may_only_call_is_refused() -> None:
    with pytest.raises(ContractError, match="endpoint_dnat does not go to table 68"):
        ENDPOINT_DNAT.flow(100, (), Goto(68))


def test_a_table_without_calls_sends_to_no_group() -> None:
    with pytest.raises(ContractError, match="ct_commit sends to no group"):
        CT_COMMIT.flow(100, (), ToGroup(1))
    assert SERVICE_LB.flow(100, (), ToGroup(1)).actions == (ToGroup(1),)


def test_a_flow_may_be_learned_only_where_the_table_says_so_and_only_within_the_contract_of_both() -> None:
    def learn(*specs: LearnMatch | LearnLoad, table: int = 75, result: Part | None = None) -> None:
        LEARN_REPLY.flow(100, (), Learn(table, 1, specs, result=result))

    learn(LearnMatch(f.IP4_DST, f.IP4_SRC), LearnLoad(f.ETH_DST, f.ETH_SRC), result=f.LEARNED)
    with pytest.raises(ContractError, match="learn_reply does not go to table 70"):
        learn(table=70)
    with pytest.raises(ContractError, match="learn_reply does not set OUTSIDE"):
        learn(result=f.OUTSIDE)
    with pytest.raises(ContractError, match="reply_path does not match nw_src"):
        learn(LearnMatch(f.IP4_SRC, f.IP4_SRC))
    with pytest.raises(ContractError, match="reply_path does not set OUT_PORT"):
        learn(LearnLoad(f.OUT_PORT, 5))


def test_a_bucket_is_held_to_its_tables_contract() -> None:
    with pytest.raises(ContractError, match="service_lb does not set dl_dst"):
        SERVICE_LB.bucket(1, SetField(f.ETH_DST, 1))
    assert SERVICE_LB.bucket(1, load(f.ENDPOINT_PORT, 80), resubmit(ENDPOINT_DNAT)).id == 1


def test_conditions_that_contradict_each_other_make_no_flow() -> None:
    with pytest.raises(ValueError, match="dl_type contradicts"):
        ROUTE.flow(100, (f.IP4, f.IP6))


def test_declarations_are_sound_and_no_table_has_a_reserved_id() -> None:
    assert check_tables() == []
    reserved = {number for numbers in RESERVED.values() for number in numbers}
    assert reserved.isdisjoint(BY_ID)
    assert len(BY_ID) == len(TABLES)


def test_a_wrong_declaration_is_found() -> None:
    wrong = {
        "backwards": type(ROUTE)(77, "backwards", ROUTE.stage, "", goes=(70,)),
        "nowhere": type(ROUTE)(77, "nowhere", ROUTE.stage, "", goes=(78,)),
        "dead": type(ROUTE)(77, "dead", ROUTE.stage, "", matches=frozenset({f.PLACE})),
        "reserved": type(ROUTE)(55, "reserved", ROUTE.stage, ""),
    }
    for name, table in wrong.items():
        TABLES[name] = table
        try:
            (found,) = check_tables()
            assert name in found
        finally:
            del TABLES[name]


def test_every_table_has_a_miss_flow_of_priority_zero() -> None:
    flows = [flow for unit in compiled().units.values() for flow in unit.flows]
    for table in TABLES.values():
        (miss,) = [flow for flow in flows if flow.table == table.id and flow.priority == 0]
        assert miss.match == ()
        assert miss.actions == (() if table.miss is None else (Goto(table.miss),))


def test_goto_is_the_last_action_of_every_flow_and_packets_are_never_sent_on_twice() -> None:
    """After connection tracking has sent a packet on to a table, this pass may do nothing more with it."""
    for unit in compiled(*small_cluster()).units.values():
        for flow in unit.flows:
            onward = [at for at, action in enumerate(flow.actions) if isinstance(action, Goto | Ct | ToGroup)]
            assert onward in ([], [len(flow.actions) - 1]), str(flow)


def test_features_have_numbers_that_fit_a_cookie_and_names_that_are_theirs_alone() -> None:
    assert len(NUMBERS) == len(BY_NUMBER) == len(FEATURES)
    assert all(1 <= feature.number <= 127 for feature in FEATURES)


def test_matches_are_kept_merged_and_in_order() -> None:
    for unit in compiled(*small_cluster()).units.values():
        for flow in unit.flows:
            assert match(*flow.match) == flow.match
