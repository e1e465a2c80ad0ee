"""Two API servers over one etcd, started once; and sources that follow them in threads of this process."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from k8s_bridge.connection import KubernetesSettings
from k8s_bridge.kubernetes_api import KubernetesSource
from tests.bridge.recording import Recording
from tests.cluster.apiserver import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as running:
        yield running


class Following:
    """A source that runs, and what it said."""

    def __init__(self, source: KubernetesSource, sink: Recording) -> None:
        self.source, self.sink = source, sink
        self._thread = threading.Thread(target=source.run)
        self._thread.start()

    def wait_synced(self) -> "Following":
        assert self.sink.synced_event.wait(60), self.source.status()
        return self

    def stop(self) -> None:
        self.source.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def follow(cluster: Cluster) -> Iterator[Callable[..., Following]]:
    """Start a source: `follow(setting=value, …)`, on the first server unless `servers` says otherwise."""
    started: list[Following] = []

    def spawn(run: Callable[[], None]) -> None:
        threading.Thread(target=run).start()

    def start(**settings: Any) -> Following:
        sink = Recording()
        wanted: dict[str, Any] = {
            "kubeconfig": str(cluster.kubeconfig()),
            "silence_seconds": 5.0,
            "connect_seconds": 2.0,
        } | settings
        following = Following(KubernetesSource(KubernetesSettings(**wanted), sink, spawn), sink)
        started.append(following)
        return following

    yield start
    for following in started:
        following.stop()
