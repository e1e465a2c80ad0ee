"""Names of fields that are nearly those that are read: a slip would otherwise be silent, and mean the default.

Kubernetes' own server tells such names or drops them, so only manifests are looked at. A name is told when no version
of Kubernetes has it there (`OTHERS`, beside what `shapes` read) and it looks like one that is read: so what a later
version adds is passed over without a word. Metadata is left out; `annotations` looks after our own there.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import NamedTuple

from msgspec import Struct, inspect

from k8s_bridge import shapes
from k8s_bridge.findings import Misspelt, shortened

ALIKE = 0.8  # from which on one name is a slip for another, as `difflib` counts
MOST_COMPARED = 50  # unknown names of one mapping; nobody writes more, and comparing takes time
LONGEST = 100  # characters of a name that are looked at, or repeated

_OTHERS: dict[type[Struct], str] = {
    shapes.Node: "apiVersion kind",
    shapes.NodeSpec: "configSource externalID podPreemptionPolicy providerID taints unschedulable",
    shapes.NodeStatus: (
        "allocatable capacity conditions config daemonEndpoints declaredFeatures features images nodeInfo "
        "phase runtimeHandlers volumesAttached volumesInUse"
    ),
    shapes.Pod: "apiVersion kind",
    shapes.PodSpec: (
        "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy "
        "enableServiceLinks ephemeralContainers evictionResponders hostAliases hostIPC hostPID hostUsers "
        "hostname hostnameOverride imagePullSecrets initContainers nodeSelector os overhead preemptionPolicy "
        "priority priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName "
        "schedulerName schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName "
        "setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations "
        "topologySpreadConstraints volumes workloadRef"
    ),
    shapes.PodStatus: (
        "allocatedResources conditions containerStatuses ephemeralContainerStatuses "
        "extendedResourceClaimStatus hostIP hostIPs initContainerStatuses message "
        "nodeAllocatableResourceClaimStatuses nominatedNodeName observedGeneration qosClass reason resize "
        "resourceClaimStatuses resources startTime volumeHealth"
    ),
    shapes.Service: "apiVersion kind",
    shapes.ServiceSpec: (
        "allocateLoadBalancerNodePorts externalName ipFamilies ipFamily ipFamilyPolicy loadBalancerClass "
        "loadBalancerIP publishNotReadyAddresses selector topologyKeys trafficDistribution"
    ),
    shapes.ServicePort: "appProtocol targetPort",
    shapes.ServiceStatus: "conditions",
    shapes.Ingress: "hostname ports",
    shapes.EndpointSlice: "apiVersion kind",
    shapes.EndpointPort: "appProtocol",
    shapes.Endpoint: "deprecatedTopology hostname targetRef topology zone",
    shapes.ServiceCidr: "apiVersion kind status",
}
OTHERS = {shape: frozenset(names.split()) for shape, names in _OTHERS.items()}
"""What Kubernetes has there besides, in any version."""


class _Part(NamedTuple):
    """A mapping that is read: its names, those that may stand beside them, and the mappings within."""

    read: tuple[str, ...]
    known: frozenset[str]
    within: dict[str, "_Part"]


def misspelt(shape: type[Struct], data: object) -> tuple[Misspelt, ...]:
    """In an object as plain Python values, whatever they are."""
    return tuple(_misspelt(_part(shape), data, ""))


@cache
def _part(shape: type[Struct]) -> _Part:
    fields = {one.encode_name: one.type for one in _struct(inspect.type_info(shape)).fields}
    within = {name: _part(kind.cls) for name, type_ in fields.items() for kind in _mappings(type_)}
    return _Part(tuple(fields), frozenset(fields) | OTHERS.get(shape, frozenset()), within)


def _struct(kind: inspect.Type) -> inspect.StructType:
    assert isinstance(kind, inspect.StructType)
    return kind


def _mappings(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """The mapping that a field holds, by itself or in a list."""
    if isinstance(kind, inspect.UnionType):
        kind = kind.types[0]
    if isinstance(kind, inspect.ListType):
        kind = kind.item_type
    if isinstance(kind, inspect.StructType) and kind.cls is not shapes.Meta:
        yield kind


def _misspelt(part: _Part, data: object, field: str) -> Iterator[Misspelt]:
    if not isinstance(data, dict):
        return
    unknown = [name for name in data if name not in part.known and isinstance(name, str)]
    for name in unknown[:MOST_COMPARED]:
        meant = max(part.read, key=lambda read: _alike(name[:LONGEST], read))
        if _alike(name[:LONGEST], meant) >= ALIKE:
            yield Misspelt(_within(field, shortened(name, LONGEST)), _within(field, meant), meant in data)
    for name, inner in part.within.items():
        value = data.get(name)
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _misspelt(inner, item, f"{_within(field, name)}[{index}]")
        else:
            yield from _misspelt(inner, value, _within(field, name))


def _within(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _alike(name: str, read: str) -> float:
    """0 … 1 for a letter or more that is wrong; other case counts little, and letters that changed places not much."""
    one, other = name.lower(), read.lower()
    ratio = SequenceMatcher(None, one, other).ratio()
    return max(ratio, ALIKE) if sorted(one) == sorted(other) else ratio
