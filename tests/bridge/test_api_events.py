"""What the API source makes of single events, without a server."""

import json
from typing import Any

import pytest

from k8s_bridge import translate
from k8s_bridge.connection import KubernetesSettings, Servers
from k8s_bridge.kubernetes_api import KubernetesSource
from k8s_bridge.listing import Event
from k8s_bridge.mirror import KEPT
from pipelines.model import Kind, Service
from tests.bridge.recording import Recording


class _Unasked:
    url = "https://nobody"


def event(spec: Any) -> Event:
    raw = json.dumps({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}).encode()
    return Event("1", translate.from_json(Kind.SERVICE, raw))


def test_an_object_that_becomes_unusable_keeps_its_last_good_version(caplog: pytest.LogCaptureFixture) -> None:
    """No real server lets this through; what is asked of both sources is the same."""
    caplog.set_level("INFO")
    sink = Recording()
    unasked: Any = [_Unasked()]
    source = KubernetesSource(KubernetesSettings(), sink, lambda run: None, servers=Servers(unasked))
    good = {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}
    source.heard(Kind.SERVICE, event(good))
    before = sink.values[Kind.SERVICE, "shop/web"]
    source.heard(Kind.SERVICE, event([]))
    kept = sink.values[Kind.SERVICE, "shop/web"]
    assert isinstance(kept, Service)
    assert isinstance(before, Service)
    assert (kept.cluster_ips, kept.ports) == (before.cluster_ips, before.ports)
    said = [str(problem) for problem in source.status().problems]
    assert said == ["Service shop/web: spec: must be a mapping, not a list", f"Service shop/web: object: {KEPT}"]
    assert said[1] in caplog.text
    source.heard(Kind.SERVICE, event(good))
    assert sink.values[Kind.SERVICE, "shop/web"] == before
    assert source.status().problems == ()
    assert f"mended: {said[1]}" in caplog.text
