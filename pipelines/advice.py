"""What a person should know though no flow follows from it: objects that say what cannot work."""

from collections.abc import Iterator

from pipelines.derived import Derived
from pipelines.model import Kind, Node, Pod, Problem
from pipelines.mtu import mtu_of_pods
from pipelines.view import Facts

LEAST_IPV6_MTU = 1280  # bytes (RFC 8200)


def about_node(key: str, node: Node, facts: Facts) -> Iterator[Problem]:
    network = facts.get(Derived.NODE_NETWORK, key)
    mtu = mtu_of_pods(node, network.addresses if network else (), facts.settings())
    if mtu < LEAST_IPV6_MTU and any(cidr.family == 6 for cidr in node.pod_cidrs):
        reason = f"its pods can have an MTU of {mtu} only; IPv6 needs {LEAST_IPV6_MTU}"
        yield Problem(Kind.NODE, key, "metadata.annotations[signalbox.dev/uplink-mtu]", reason)


def about_pod(key: str, pod: Pod, facts: Facts) -> Iterator[Problem]:
    if not pod.node or not pod.ips:
        return
    node = facts.get(Kind.NODE, pod.node)
    if node is None:
        yield Problem(Kind.POD, key, "spec.nodeName", f"there is no usable Node {pod.node}; nothing reaches this pod")
    elif pod.mtu is not None:
        network = facts.get(Derived.NODE_NETWORK, pod.node)
        most = mtu_of_pods(node, network.addresses if network else (), facts.settings())
        if pod.mtu > most:
            reason = f"{pod.mtu} is more than the {most} bytes that pods on Node {pod.node} should have"
            yield Problem(Kind.POD, key, "metadata.annotations[signalbox.dev/mtu]", reason)
