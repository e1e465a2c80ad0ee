"""External addresses of services on a segment: who answers for them, and what its switch then says."""

from collections import Counter
from typing import Any

import pytest

from pipelines import tables
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.compiler import Compiler
from pipelines.derived import Announced, Derived, OnLink
from pipelines.features.announce import ANSWER, WATCH
from pipelines.model import Change, Claimed, Down, Endpoint, Kind, Policy
from pipelines.unit import ScopeKind
from tests.pipelines.objects import (
    compiled,
    flows_of,
    gone,
    in_table,
    ips,
    node,
    node_ports,
    operator,
    service,
    slice_,
)

LINK = "192.168.77.0/24"
POOLS = (parse_cidr("192.168.77.128/25"), parse_cidr("fd00:77::1:0/112"), parse_cidr("203.0.113.0/24"))
VIP4, VIP6 = "192.168.77.150", "fd00:77::1:150"


def station(number: int, **more: Any) -> list[Change]:
    name, mac = f"n{number}", f"aa:00:00:00:00:{number:02x}"
    addresses = f"192.168.77.{100 + number}/24", f"fd00:77::{100 + number}/64"
    more = {"datapath_id": number, **more}
    return [node(name, (f"10.10.{number}.0/24",), addresses, mac, **more), *node_ports(name, mac, "0a:00:00:00:00:01")]


def balanced(*addresses: str, name: str = "web", **more: Any) -> Change:
    cluster_ips = ("10.96.0.80", "fd00:96::80") if any(":" in one for one in addresses) else ("10.96.0.80",)
    return service(name, cluster_ips, ("http", "TCP", 80), load_balancer_ips=ips(*addresses), **more)


def ends(*nodes: str, name: str = "web", ready: bool = True) -> Change:
    listed = [
        Endpoint(parse_ip(f"10.10.{at[1:]}.10"), ready=ready, serving=True, terminating=not ready, node=at)
        for at in nodes
    ]
    return slice_(f"{name}-4", name, listed, ("http", "TCP", 8080))


def claimed(address: str = VIP4, by: str = "n1", segment: str = LINK) -> Change:
    return Change(Kind.CLAIM, address, Claimed(by, segment))


def down(name: str) -> Change:
    return Change(Kind.DOWN, name, Down())


def segment_of(count: int = 3, *more: Change) -> Compiler:
    stations = [change for number in range(1, count + 1) for change in station(number)]
    return compiled(operator(announce=POOLS), *stations, ends("n1", "n2"), *more)


def winner(compiler: Compiler, address: str = VIP4) -> str | None:
    found: Announced | None = compiler.facts.peek(Derived.ANNOUNCED).get(address)
    return found.node if found else None


def answering(compiler: Compiler, address: str = VIP4) -> set[str]:
    return {key.scope.name for key in compiler.units if key.feature == ANSWER and key.key == address}


def test_nobody_announces_anything_by_default() -> None:
    compiler = segment_of(2, balanced(VIP4), claimed())
    assert winner(compiler)
    compiler.run([operator()])
    assert not compiler.facts.peek(Derived.STATIONS)
    assert not compiler.facts.peek(Derived.ON_LINK)
    assert not [key for key in compiler.units if key.feature.startswith("announce")]


def test_an_address_is_announced_by_one_node_of_the_segment_it_lies_in() -> None:
    other = node("far", ("10.10.9.0/24",), ("192.168.88.109/24",), "aa:00:00:00:00:09", datapath_id=9)
    compiler = segment_of(3, balanced(VIP4, VIP6), other)
    assert winner(compiler) in {"n1", "n2", "n3"}
    assert winner(compiler, VIP6) in {"n1", "n2", "n3"}
    assert compiler.facts.peek(Derived.ON_LINK)[VIP6] == OnLink(parse_ip(VIP6), "fd00:77::/64")


@pytest.mark.parametrize(
    "address", ["192.168.77.100", "203.0.113.7", "192.168.77.255", "192.168.77.201"], ids=lambda text: text
)
def test_no_address_outside_pools_or_subnets_and_none_that_a_host_has(address: str) -> None:
    compiler = segment_of(2, balanced(address), node("n9", ("10.10.9.0/24",), ("192.168.77.201/24",)))
    assert winner(compiler, address) is None
    assert address not in compiler.facts.peek(Derived.ON_LINK)


def test_an_address_of_no_load_balancer_is_not_announced() -> None:
    compiler = segment_of(2, service("web", (VIP4,), ("http", "TCP", 80)))
    assert winner(compiler) is None
    compiler.run([service("web", ("10.96.0.80",), ("http", "TCP", 80), external_ips=ips(VIP4))])
    assert winner(compiler) is not None


def test_the_narrowest_of_overlapping_subnets_is_the_segment() -> None:
    wide = node("wide", ("10.10.8.0/24",), ("192.168.5.8/16",), "aa:00:00:00:00:08", datapath_id=8)
    compiler = segment_of(1, balanced(VIP4), wide)
    assert compiler.facts.peek(Derived.ON_LINK)[VIP4].segment == LINK


def test_addresses_are_spread_and_a_node_that_goes_moves_only_its_own() -> None:
    addresses = [f"192.168.77.{last}" for last in range(130, 230)]
    compiler = segment_of(4, *(balanced(at, name=f"s{number}") for number, at in enumerate(addresses)))
    before = {at: winner(compiler, at) for at in addresses}
    counts = Counter(before.values())
    assert len(counts) == 4
    assert min(counts.values()) > 10
    compiler.run([down("n3")])
    after = {at: winner(compiler, at) for at in addresses}
    assert {at for at in addresses if before[at] != after[at]} == {at for at in addresses if before[at] == "n3"}
    assert "n3" not in after.values()
    compiler.run([gone(down("n3"))])
    assert {at: winner(compiler, at) for at in addresses} == before


def test_when_all_nodes_are_down_nothing_moves() -> None:
    compiler = segment_of(3, balanced(VIP4))
    before = winner(compiler)
    compiler.run([down(f"n{number}") for number in (1, 2, 3)])
    assert winner(compiler) == before


def test_a_deleted_node_is_forgotten_as_down_too() -> None:
    compiler = segment_of(2, down("n1"))
    compiler.run([gone(station(1)[0])])
    assert not compiler.facts.peek(Kind.DOWN)


def test_with_a_local_policy_only_a_node_with_a_ready_endpoint_announces() -> None:
    compiler = segment_of(3, balanced(VIP4, external_policy=Policy.LOCAL), ends("n2"))
    assert winner(compiler) == "n2"
    compiler.run([ends("n3")])
    assert winner(compiler) == "n3"
    compiler.run([ends("n3", ready=False)])
    assert winner(compiler) is None
    assert VIP4 in compiler.facts.peek(Derived.ON_LINK), "hosts of the segment still reach it"
    compiler.run([ends("n1"), down("n1")])
    assert winner(compiler) is None, "others are alive, and have no endpoint"


def test_a_node_with_endpoints_of_all_services_of_an_address_is_preferred() -> None:
    other = service(
        "two", ("10.96.0.81",), ("http", "TCP", 81), load_balancer_ips=ips(VIP4), external_policy=Policy.LOCAL
    )
    first = balanced(VIP4, external_policy=Policy.LOCAL)
    for both in ("n1", "n2", "n3"):
        compiler = segment_of(3, first, other, ends("n1", "n2", "n3"), ends(both, name="two"))
        assert winner(compiler) == both
    cluster_wide = service("two", ("10.96.0.81",), ("http", "TCP", 81), load_balancer_ips=ips(VIP4))
    compiler = segment_of(3, first, cluster_wide, ends())
    assert winner(compiler) is not None, "one of the two is served everywhere"


def test_only_the_node_that_is_elected_answers_and_only_once_it_is_claimed() -> None:
    compiler = segment_of(3, balanced(VIP4))
    before = winner(compiler)
    assert before is not None
    assert answering(compiler) == set()
    assert [key.scope.name for key in compiler.units if key.feature == WATCH] == [before]
    compiler.run([claimed(by=before)])
    assert answering(compiler) == {before}
    revision = compiler.run([down(before)])
    assert answering(compiler) == {winner(compiler)} != {before}
    assert {change.key.scope.name for change in revision.changes if change.key.feature == ANSWER} == {
        before,
        winner(compiler),
    }, "one revision takes it from one and gives it to the other"


def test_a_claim_on_another_segment_does_not_count() -> None:
    compiler = segment_of(3, balanced(VIP4), claimed(segment="192.168.0.0/16"))
    assert answering(compiler) == set()


def test_who_answered_before_a_restart_goes_on_until_the_one_elected_was_heard_of() -> None:
    before = winner(segment_of(3, balanced(VIP4)))
    holder = "n1" if before != "n1" else "n2"
    silent = [gone(change) for change in station(int(str(before)[1:])) if change.kind is Kind.PORT]
    compiler = segment_of(3, balanced(VIP4), *silent, claimed(by=holder))
    assert answering(compiler) == {holder}
    compiler.run(station(int(str(before)[1:])))
    assert answering(compiler) == {before}


def test_the_hosts_of_the_segment_are_answered_with_their_own_mac() -> None:
    compiler = segment_of(2, balanced(VIP4, VIP6), claimed())
    units = {key: unit for key, unit in compiler.units.items() if key.feature == "announce.host"}
    assert {(key.scope.kind, key.scope.name) for key in units} == {
        (ScopeKind.SEGMENT, LINK),
        (ScopeKind.SEGMENT, "fd00:77::/64"),
    }
    texts = [str(flow) for unit in units.values() for flow in unit.flows]
    assert not any("->eth_src" in text or "->arp_sha" in text for text in texts), "it stays as it is: the host's"
    assert any("move:NXM_OF_ETH_SRC[]->NXM_NX_ND_TLL[]" in text for text in texts), texts


def test_a_new_uplink_mac_is_in_the_answer() -> None:
    compiler = segment_of(1, balanced(VIP4), claimed())
    compiler.run(node_ports("n1", "aa:00:00:00:00:77", "0a:00:00:00:00:01"))
    arp = [str(flow) for flow in in_table(flows_of(compiler, "n1"), tables.ARP) if VIP4 in str(flow)]
    assert any("set_field:aa:00:00:00:00:77->arp_sha" in text for text in arp), arp
