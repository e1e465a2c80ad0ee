"""Which kinds of Kubernetes objects there are, so that a misspelt one is told from one that does not concern us."""

from pipelines.model import Kind

API_VERSIONS: dict[Kind, tuple[str, ...]] = {
    Kind.NODE: ("v1",),
    Kind.POD: ("v1",),
    Kind.SERVICE: ("v1",),
    Kind.ENDPOINT_SLICE: ("discovery.k8s.io/v1",),
    Kind.SERVICE_CIDR: ("networking.k8s.io/v1", "networking.k8s.io/v1beta1"),
}
"""The kinds that are translated, and the versions whose fields `shapes` knows."""

OTHERS: dict[str, frozenset[str]] = {
    group: frozenset(kinds.split())
    for group, kinds in {
        "": "Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace PersistentVolume "
        "PersistentVolumeClaim PodTemplate ReplicationController ResourceQuota Secret ServiceAccount",
        "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
        "batch": "CronJob Job",
        "autoscaling": "HorizontalPodAutoscaler",
        "policy": "PodDisruptionBudget",
        "networking.k8s.io": "IPAddress Ingress IngressClass NetworkPolicy",
        "events.k8s.io": "Event",
    }.items()
}
"""Built-in kinds by group that are passed over without a word."""

OTHER_GROUPS = frozenset(
    (
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "gateway.networking.k8s.io",
        "kustomize.config.k8s.io",
        "metrics.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    )
)
"""Whole groups of which nothing concerns packets."""


def ours(api_version: str, kind: str) -> Kind | None:
    """The model's kind of an object; None when it is not translated."""
    found = next((known for known in API_VERSIONS if known.value == kind), None)
    return found if found is not None and api_version in API_VERSIONS[found] else None


def passed_over(api_version: str, kind: str) -> bool:
    """Whether this is a known kind that does not concern us."""
    group = api_version.rpartition("/")[0]
    return group in OTHER_GROUPS or kind in OTHERS.get(group, ())
