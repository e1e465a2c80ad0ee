"""A cluster for each module of tests, made anew, with the real product on it."""

import os
from collections.abc import Iterator

import pytest

from tests.ovs.cluster import Cluster, Held


def unique(word: str) -> str:
    """A lab's name that no other run on this machine has."""
    return f"{word}{os.getpid()}"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`SETTINGS` of the module, if it has any, are the product's."""
    module = request.module
    name = module.__name__.rpartition("test_")[2].replace("_", "")
    directory = tmp_path_factory.mktemp(name) / "manifests"
    with Cluster(unique(f"t{name}"), directory, getattr(module, "SETTINGS", None)) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def at_first(cluster: Cluster) -> Held:
    return cluster.held()


@pytest.fixture
def there_and_back(cluster: Cluster, at_first: Held) -> Iterator[None]:
    """When a test has undone its changes, the switches hold what they held at first. Else they are undone now."""
    with cluster.there_and_back(at_first):
        yield
