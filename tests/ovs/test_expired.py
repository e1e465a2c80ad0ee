"""The same addresses and ports again, when conntrack has given their connection up and not yet forgotten it.

A fixed source port does it (NTP asks every 64 s, a UDP connection is given up after 60 s), or a client with so many
connections that ports come round again.
"""

import time

import pytest

from lab import switch
from lab.traffic import Probe
from tests.ovs.cluster import Cluster
from tests.ovs.world import NODES, PODS, SERVICES, Place

pytestmark = pytest.mark.ovs

PATIENCE = 2  # seconds of conntrack with connections of UDP, instead of a minute


@pytest.fixture(scope="module", autouse=True)
def impatient(cluster: Cluster) -> None:
    """Of the service zone, on n1."""
    limits = [f"udp_{state}={PATIENCE}" for state in ("first", "single", "multiple")]
    cluster.lab.vsctl("n1", "--", "--id=@d", "create", "Datapath", "datapath_version=0", "ct_zones={}",
                      "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@d")  # fmt: skip
    cluster.lab.vsctl("n1", "add-zone-tp", "netdev", "zone=1", *limits)


def again_and_again(cluster: Cluster, client: str, source_port: int, *targets: tuple[str, int]) -> list[str]:
    """What comes of questions that are asked three times, each just after conntrack has given up the ones before."""
    pid = switch.pid(cluster.lab.switch_directory("n1"), "ovs-vswitchd")
    found = []
    for _ in range(3):
        for target in targets:
            (answer,) = cluster.lab.probe(client, [Probe("udp", *target, source_port=source_port, timeout=1, tries=3)])
            found.append(answer.error)
        time.sleep(PATIENCE + 0.2)
    assert switch.pid(cluster.lab.switch_directory("n1"), "ovs-vswitchd") == pid, "the switch has crashed"
    return found


def test_a_service_is_asked_from_the_same_port_again(cluster: Cluster) -> None:
    assert again_and_again(cluster, "a", 40001, (SERVICES["only-b"].addresses[4], 80)) == [""] * 3


@pytest.mark.parametrize("service_first", [True, False])
def test_a_service_and_its_endpoint_are_asked_from_the_same_port_again(cluster: Cluster, service_first: bool) -> None:
    targets = [(SERVICES["only-b"].addresses[4], 80), (PODS["b"].addresses[4], 5353)]
    order = targets if service_first else targets[::-1]
    assert again_and_again(cluster, "a", 40003 + service_first, *order) == [""] * 6


@pytest.mark.parametrize(("client", "server"), [("n1", NODES["n2"]), ("a", PODS["c"])], ids=["a host", "a pod"])
def test_a_place_is_asked_from_the_same_port_again(cluster: Cluster, client: str, server: Place) -> None:
    """Decision 8: if plain connections were translated to nothing, Open vSwitch 3.1.0 would end itself here."""
    assert again_and_again(cluster, client, 40002, (server.addresses[4], 5353)) == [""] * 3
