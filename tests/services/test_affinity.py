"""Session affinity: a client that comes again gets the endpoint that it had, from its second connection on."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.switch import BRIDGE
from lab.traffic import Probe
from tests.ovs import wire
from tests.ovs.cluster import LEARNED, Cluster
from tests.ovs.world import FAMILIES, NODES, PROTOCOLS
from tests.services import asking
from tests.services.asking import (
    AT_N1,
    AT_N2,
    BALANCER,
    CLUSTER,
    EXTERNAL,
    by_door,
    gone,
    object_of,
    probes,
    who,
)
from tests.services.world import Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

STICKY = Service("case", 90, ready("a", "b", "c", "d", "e", "g", "h"), affinity=600)
GAPS = (0.2, 1, 5, 20, 50)  # milliseconds
PAIRS = 200


def learned(cluster: Cluster, node: str = "n1") -> list[str]:
    lines = cluster.lab.ofctl(node, "dump-flows", BRIDGE, "table=40").splitlines()
    return [line for line in lines if LEARNED.search(line)]


@contextmanager
def clients(cluster: Cluster, count: int) -> Iterator[dict[int, list[str]]]:
    """More addresses for the client outside, each a client of its own."""
    found = {4: [f"192.168.77.{130 + n}" for n in range(count)], 6: [f"fd00:77::3{n:02}" for n in range(count)]}
    for family, length in ((4, 24), (6, 64)):
        for address in found[family]:
            cluster.lab.run("outside", "ip", "addr", "add", f"{address}/{length}", "dev", "eth0", "nodad")
    try:
        yield found
    finally:
        for family, length in ((4, 24), (6, 64)):
            for address in found[family]:
                cluster.lab.run("outside", "ip", "addr", "del", f"{address}/{length}", "dev", "eth0")


def pairs(cluster: Cluster, protocol: str, family: int, gap: float, count: int, sources: list[str]) -> list[list[str]]:
    script = str(Path(__file__).with_name("burst.py"))
    words = (protocol, STICKY.address(AT_N1, family), str(STICKY.node_port), str(gap), str(count), *sources)
    found: list[list[str]] = wire.decode_json(
        cluster.lab.run("outside", sys.executable, "-IS", script, *words, timeout=120).stdout
    )
    return found


def test_b45_each_protocol_family_and_address_has_a_choice_of_its_own(cluster: Cluster) -> None:
    cluster.put(*STICKY.objects())
    for client in ("a", "n2", "outside", "remote"):
        for protocol in PROTOCOLS:
            for family in FAMILIES:
                doors = (CLUSTER, BALANCER, AT_N1)
                chosen = by_door(cluster, client, STICKY, *doors, times=8, protocols=[protocol], families=[family])
                assert all(len(names) == 1 and names <= {end.place for end in STICKY.ends} for names in chosen.values())
    flows = learned(cluster)
    assert flows
    for flow in flows:  # the protocol, the client, the address, and the port
        match = flow.partition(" actions")[0].rpartition(" ")[2]
        assert {"tcp", "udp", "tcp6", "udp6"} & set(match.split(",")), match
        assert "_src=" in match
        assert "_dst=" in match
        assert "tp_dst=" in match
    gone(cluster, STICKY)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_b48_a_second_connection_goes_nowhere_else_however_soon_it_comes(cluster: Cluster, protocol: str) -> None:
    """No window: 200 pairs at each gap, each pair from a client that nobody has seen before it, as far as they last."""
    with clients(cluster, 40) as sources:
        apart: Counter[tuple[int, float]] = Counter()
        total = 0
        for family in FAMILIES:
            for gap in GAPS:
                for _ in range(PAIRS // 40 // 2):
                    cluster.put(*STICKY.objects())
                    found = pairs(cluster, protocol, family, gap, 40, sources[family])
                    total += len(found)
                    assert {name for pair in found for name in pair} <= {end.place for end in STICKY.ends}, found
                    assert len({first for first, _ in found}) >= 3, "one endpoint for all clients is no test"
                    apart[family, gap] += sum(first != second for first, second in found)
                    gone(cluster, STICKY)
    assert total >= PAIRS * len(GAPS) * 0.8
    assert not +apart, apart


def test_an_endpoint_that_goes_ends_only_its_own_clients_choices(cluster: Cluster) -> None:
    cluster.put(*STICKY.objects())
    with clients(cluster, 30) as sources:
        wishes = [
            Probe("tcp", STICKY.address(AT_N1, family), STICKY.node_port, source=source, timeout=8)
            for family in FAMILIES
            for source in sources[family]
        ]

        def chosen() -> list[str]:
            return [asking.result(answer) for answer in cluster.lab.probe("outside", wishes)]

        first = chosen()
        assert chosen() == first
        assert len(set(first)) >= 5, first
        left = STICKY._replace(ends=tuple(end for end in STICKY.ends if end.place != "e"))
        cluster.put(*left.objects())
        second = chosen()
        assert "e" in first
        assert "e" not in second
        kept = [(before, after) for before, after in zip(first, second, strict=True) if before != "e"]
        assert all(before == after for before, after in kept)
        cluster.put(*STICKY.objects())
        assert chosen() == second  # what was chosen instead stays, although the endpoint is back
    gone(cluster, STICKY)


def test_affinity_that_is_switched_off_ends_at_once(cluster: Cluster) -> None:
    cluster.put(*STICKY.objects())
    for client in ("a", "outside"):
        assert len(who(cluster, client, STICKY, CLUSTER, times=10, protocols=["tcp"], families=[4])) == 1
    cluster.put(object_of(STICKY._replace(affinity=None)))
    for client in ("a", "outside"):
        assert len(who(cluster, client, STICKY, CLUSTER, times=30, protocols=["tcp"], families=[4])) >= 4
    assert not [flow for node in NODES for flow in learned(cluster, node)]
    gone(cluster, STICKY)


def test_a_policy_that_becomes_local_ends_choices_of_other_nodes_endpoints(cluster: Cluster) -> None:
    cluster.put(*STICKY.objects())
    with clients(cluster, 12) as sources:
        wishes = [
            Probe("tcp", STICKY.address(AT_N2, 4), STICKY.node_port, source=source, timeout=8) for source in sources[4]
        ]
        assert len({asking.result(answer) for answer in cluster.lab.probe("outside", wishes)}) > 2
        cluster.put(object_of(STICKY._replace(external_local=True)))
        assert {asking.result(answer) for answer in cluster.lab.probe("outside", wishes * 2)} <= {"c", "e"}
    gone(cluster, STICKY)


def test_b44_a_switch_tells_when_a_choice_was_forgotten_that_is_wanted_for_longer(cluster: Cluster) -> None:
    """65536 s must not become 0: what is asked of a switch is what it can say (the rest: ovs/test_long_affinity)."""
    for asked, due in ((65536, 65535), (1, 1), (86400, 65535), (3600, 3600), (65535, 65535)):
        cluster.put(*STICKY._replace(affinity=asked).objects())
        dump = cluster.lab.ofctl("n1", "dump-flows", BRIDGE, "table=45").splitlines()
        learning = [flow for flow in dump if "learn(" in flow]
        assert len(learning) == len(STICKY.ends) * 4
        assert {flow.partition("idle_timeout=")[2].partition(",")[0] for flow in learning} == {str(due)}
        assert {"send_flow_rem" in flow for flow in learning} == {asked > due}
        assert "timeoutSeconds" not in cluster.product.text("/v1/problems")
    gone(cluster, STICKY)


def test_a_choice_ends_when_the_client_has_not_come_for_as_long_as_the_time_out(cluster: Cluster) -> None:
    cluster.put(*STICKY._replace(affinity=1).objects())
    for door in (CLUSTER, EXTERNAL, AT_N1):
        assert len(who(cluster, "outside", STICKY, door, times=5, protocols=["tcp"], families=[4])) == 1
    names = set()
    for _ in range(8):
        cluster.wait(lambda: not learned(cluster), "the choices to be forgotten")
        names |= who(cluster, "outside", STICKY, AT_N1, protocols=["tcp"], families=[4])
        assert learned(cluster)
    assert len(names) >= 2, names
    gone(cluster, STICKY)


def test_a_client_that_comes_all_the_time_keeps_its_endpoint_beyond_the_time_out(cluster: Cluster) -> None:
    cluster.put(*STICKY._replace(affinity=2).objects())
    end, names = time.monotonic() + 6, set()
    while time.monotonic() < end:
        names |= {asking.result(one) for one in cluster.lab.probe("a", probes("a", STICKY, BALANCER, families=[6])[:1])}
        time.sleep(0.1)
    assert len(names) == 1, names
    gone(cluster, STICKY)
