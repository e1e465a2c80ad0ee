"""No ServiceCIDR and nothing configured: the cluster says nothing about its service ranges, and services work."""

import pytest

from lab.traffic import Probe
from tests.ovs.cluster import Cluster
from tests.ovs.world import SERVICES

pytestmark = pytest.mark.ovs


@pytest.fixture(scope="module", autouse=True)
def without_ranges(cluster: Cluster) -> None:
    cluster.manifests.delete("ServiceCIDR", "kubernetes")
    cluster.wait(lambda: "10.96.0.0/16" not in "".join(cluster.flows("n1")), "the range to be forgotten")
    cluster.level()


@pytest.mark.parametrize("client", ["a", "d", "n1", "n3"])
def test_services_answer_pods_and_hosts_and_refuse_other_ports(cluster: Cluster, client: str) -> None:
    hosts = SERVICES["only-b"].addresses.values()
    served = [Probe(protocol, host, 80, timeout=10) for host in hosts for protocol in ("tcp", "udp")]
    unused = [Probe(protocol, host, 9999, timeout=10) for host in hosts for protocol in ("tcp", "udp")]
    answers = cluster.lab.probe(client, [*served, *unused])
    assert [answer.names or answer.error for answer in answers[: len(served)]] == [("b",)] * len(served)
    assert {answer.error for answer in answers[len(served) :]} == {"ECONNREFUSED"}
