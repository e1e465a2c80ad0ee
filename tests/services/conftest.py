"""One cluster for all cases of services; each test leaves it as it was."""

from collections.abc import Iterator

import pytest

from tests.ovs.cluster import Cluster, Held
from tests.ovs.conftest import unique
from tests.ovs.world import ENTRIES, NODES, PLACES
from tests.services import world


def route_services(cluster: Cluster) -> None:
    """The network beneath brings addresses of services from clients outside to one of the nodes."""
    for client, entry in ENTRIES.items():
        where = client if PLACES[client].segment is not None else cluster.lab.plan.active
        for prefix in world.ROUTED:
            via = NODES[entry].addresses[6 if ":" in prefix else 4]
            cluster.lab.run(where, "ip", "route", "replace", prefix, "via", via)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """In noEncap, with all MACs known. No services at first but those of the cluster."""
    directory = tmp_path_factory.mktemp("services") / "manifests"
    with Cluster(unique("tsvc"), directory, objects=world.everything()) as running:
        route_services(running)
        yield running.ready()


@pytest.fixture(scope="session")
def at_first(cluster: Cluster) -> Held:
    return cluster.held()


@pytest.fixture
def there_and_back(cluster: Cluster, at_first: Held) -> Iterator[None]:
    """What a test has changed is undone, and then the switches hold what they held at first."""
    with cluster.there_and_back(at_first):
        yield
