"""The gateway address of every node answers pods and hosts of all nodes."""

import pytest

from tests.ovs.cluster import Cluster

pytestmark = pytest.mark.ovs


@pytest.mark.parametrize("client", ["a", "c", "d", "n1", "n3"])
def test_every_gateway_address_answers(cluster: Cluster, client: str) -> None:
    """From a peer it is asked by the uplink, which is also where the host's reverse path filter wants it."""
    gateways = [at.partition("/")[0] for node in cluster.lab.plan.nodes for at in node.gateway_addresses]
    pings = " & ".join(f"ping -c1 -W10 {address} >/dev/null || echo {address}" for address in gateways)
    assert cluster.lab.run(client, "sh", "-c", f"{pings} & wait").stdout.split() == []
