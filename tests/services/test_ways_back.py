"""Replies of services to clients outside, while the way to them moves (B60)."""

import time
from functools import partial

import pytest

from lab.switch import BRIDGE
from lab.traffic import Probe
from tests.ovs.cluster import LEARNED, Cluster
from tests.ovs.world import FAMILIES, OUTSIDE, PROTOCOLS
from tests.services.asking import AT_N1, AT_N2, Running, gone
from tests.services.conftest import route_services
from tests.services.world import Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

CASE = Service("case", 90, ready("b", "e", "n1"))


def learned(cluster: Cluster) -> list[str]:
    lines = cluster.lab.ofctl("n1", "dump-flows", BRIDGE, "table=75").splitlines()
    of_remote = [f"={address} " for address in OUTSIDE["remote"].addresses.values()]
    return [line for line in lines if LEARNED.search(line) and any(one in line for one in of_remote)]


def _all_to(cluster: Cluster, mac: str) -> bool:
    return all(mac in flow for flow in learned(cluster))


def test_b60_connections_to_a_node_port_follow_a_router_that_fails_over(cluster: Cluster) -> None:
    """There and back, in the middle of connections; new ones are answered all the time."""
    cluster.put(*CASE.objects())
    wishes = [
        Probe(
            protocol,
            CASE.address(door, family),
            CASE.node_port,
            requests=160,
            pause=0.05,
            timeout=8 if protocol == "tcp" else 0.5,
            tries=1 if protocol == "tcp" else 12,
        )
        for door in (AT_N1, AT_N2)
        for family in FAMILIES
        for protocol in PROTOCOLS
        for _ in range(3)
    ]
    running = Running(cluster, "remote", wishes)
    cluster.wait(lambda: len(learned(cluster)) == len(FAMILIES), "ways back to be learned")
    for _ in range(2):
        old, new = cluster.lab.router_macs()
        cluster.lab.fail_over()
        turned = partial(_all_to, cluster, new)
        cluster.wait(turned, "replies to go to the other router")
        assert not [flow for flow in learned(cluster) if old in flow]
        time.sleep(0.5)
    route_services(cluster)  # with its addresses a router loses the routes by them
    answers = running.answers()
    assert {answer.error for answer in answers} == {""}
    assert max(answer.longest for answer in answers) < 6000
    assert {name for answer in answers for name in answer.names} == {"b", "e", "n1"}
    assert all(len(set(answer.names)) == 1 for answer in answers)
    gone(cluster, CASE)
