"""Credentials: which rights are enough, and how a pod's own service account is used."""

import json

import pytest

from k8s_bridge.connection import KubernetesSettings, connect
from pipelines.model import Kind
from tests.bridge.recording import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "pods", "services"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["servicecidrs"], "verbs": ["list", "watch"]},
]


@pytest.fixture
def account(cluster):
    """A service account with just these rights, and a way to get tokens for it."""
    cluster.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "signalbox"}})
    cluster.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "signalbox"}, "rules": RULES})
    binding = {
        "metadata": {"name": "signalbox"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "signalbox"},
        "subjects": [{"kind": "ServiceAccount", "name": "signalbox", "namespace": "default"}],
    }
    cluster.request("POST", f"{RBAC}/clusterrolebindings", binding)

    def token() -> str:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/signalbox/token"
        return str(cluster.request("POST", path, asked)["status"]["token"])

    yield token
    for path in (f"{RBAC}/clusterrolebindings", f"{RBAC}/clusterroles", "/api/v1/namespaces/default/serviceaccounts"):
        cluster.request("DELETE", f"{path}/signalbox")


def test_list_and_watch_of_five_kinds_are_all_the_rights_it_needs(cluster, follow, account):
    content = json.loads(cluster.kubeconfig().read_text())
    content["users"][0]["user"] = {"token": account()}
    path = cluster.folder / "token.kubeconfig"
    path.write_text(json.dumps(content))
    following = follow(kubeconfig=str(path)).wait_synced()
    until(lambda: following.source.status().last_error == "")
    assert "kubernetes" in following.sink.keys(Kind.SERVICE_CIDR)


def test_in_a_pod_the_service_account_is_used(cluster, follow, account, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text(account())
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(
        "kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(cluster.authority.pair.certificate)
    )
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", cluster.servers[0].address)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    following = follow(kubeconfig=None).wait_synced()
    assert following.source.status().servers == (cluster.servers[0].url,)


def test_outside_of_a_pod_in_cluster_is_refused(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ValueError, match="in-cluster configuration: cannot be used"):
        connect(KubernetesSettings())


def test_a_kubeconfig_without_its_context_is_refused(cluster, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(cluster.kubeconfig().read_text())
    with pytest.raises(ValueError, match="nowhere"):
        connect(KubernetesSettings(kubeconfig=str(path), context="nowhere"))
    path.write_text("{[")
    with pytest.raises(ValueError, match=str(path)):
        connect(KubernetesSettings(kubeconfig=str(path)))
