"""Services with more endpoints than a group, or a message, can hold (B32): each is chosen, and they share the load."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovs.cluster import Cluster
from tests.ovs.objects import FAMILY_NAMES, Object
from tests.ovs.world import PLACES, PORTS
from tests.services.asking import AT_N1, BALANCER, CLUSTER, gone, object_of, who
from tests.services.world import Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

MANY = Service("many", 92, type="LoadBalancer")
OTHER = Service("other", 93, ready("b", "e"))
PREFIXES = {4: "198.19.0.0/16", 6: "fd00:19::/64"}
IN_SLICE = 1000
CONNECTIONS = 2500
SCRIPT = str(Path(__file__).with_name("crowd.py"))


def address(family: int, number: int) -> str:
    return f"198.19.{number // 250}.{number % 250 + 1}" if family == 4 else f"fd00:19::{number + 1:x}"


def slices(count: int) -> list[Object]:
    """Endpoints beyond the router, all of them one host; of UDP, as Open vSwitch hashes that less willingly."""
    made = []
    for family in MANY.families:
        for part, first in enumerate(range(0, count, IN_SLICE)):
            made.append(
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "namespace": "default",
                        "name": f"many-{part}-{family}",
                        "labels": {"kubernetes.io/service-name": "many"},
                    },
                    "addressType": FAMILY_NAMES[family],
                    "ports": [{"name": "udp", "protocol": "UDP", "port": PORTS["udp"].target}],
                    "endpoints": [
                        {"addresses": [address(family, number)], "conditions": {"ready": True}}
                        for number in range(first, min(first + IN_SLICE, count))
                    ],
                }
            )
    return made


@pytest.fixture
def crowded(cluster: Cluster) -> Iterator[Cluster]:
    """The host beyond the router has all these addresses."""
    for family, prefix in PREFIXES.items():
        cluster.lab.run("remote", "ip", "route", "replace", "local", prefix, "dev", "lo")
        via = PLACES["remote"].addresses[family]
        cluster.lab.run(cluster.lab.plan.active, "ip", "route", "replace", prefix, "via", via)
    yield cluster
    for prefix in PREFIXES.values():
        cluster.lab.run("remote", "ip", "route", "del", "local", prefix, "dev", "lo")
        cluster.lab.run(cluster.lab.plan.active, "ip", "route", "del", prefix)


@pytest.mark.parametrize("count", [1, 511, 900, 901, 5000])
def test_b32_every_number_of_endpoints_is_served_and_shared_among(crowded: Cluster, count: int) -> None:
    """As even as chance: of n endpoints and c connections some n(1 - e^(-c/n)) are met, and other services live on."""
    crowded.put(object_of(MANY), *slices(count), *OTHER.objects())
    for family in (4, 6):
        met = _met(crowded, family)
        of = {address(family, number) for number in range(count)}
        assert met.keys() <= of
        total = sum(met.values())
        assert total > CONNECTIONS * 0.9
        expected = count * (1 - (1 - 1 / count) ** total) if count > 1 else 1
        assert len(met) > expected * 0.85, (family, len(met), expected)
        assert max(met.values()) <= 4 * total / count + 6, met.most_common(3)
    # In IPv6 its kernel sends no datagram from an address that it only has by a route.
    assert who(crowded, "a", MANY, CLUSTER, BALANCER, AT_N1, protocols=["udp"], families=[4]) == {"remote"}
    assert who(crowded, "outside", MANY, AT_N1, BALANCER, protocols=["udp"], families=[4]) == {"remote"}
    assert who(crowded, "a", OTHER, CLUSTER, AT_N1, times=8) == {"b", "e"}
    gone(crowded, MANY, OTHER)


def _met(cluster: Cluster, family: int) -> Counter[str]:
    """By endpoint: datagrams of as many connections of one pod."""
    with cluster.watched("remote", "eth0", "udp dst port 5353") as seen:
        words = (sys.executable, "-IS", SCRIPT, MANY.address(CLUSTER, family), "80", str(CONNECTIONS))
        cluster.lab.run("a", *words, timeout=60)
        cluster.wait(lambda: len(seen.now) > CONNECTIONS * 0.9, "the datagrams to arrive")
    return Counter(frame.destination for frame in seen)
