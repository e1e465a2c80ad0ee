"""Kubernetes objects as the API takes them, and where they go."""

from typing import Any

NODES = "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def node(name: str, *pod_cidrs: str, **annotations: str) -> dict[str, Any]:
    spec = {"podCIDR": pod_cidrs[0], "podCIDRs": list(pod_cidrs)} if pod_cidrs else {}
    notes = {f"signalbox.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports} | spec}


def endpoint_slice(name: str, of: str, *addresses: str, family: str = "IPv4") -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": of}},
        "addressType": family,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


def pod(name: str, on: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    spec = {"nodeName": on, "containers": containers, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
