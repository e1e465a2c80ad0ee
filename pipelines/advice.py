"""What a person should know though no flow follows from it: objects that say what cannot work."""

from pipelines.claims import Outcome
from pipelines.derived import Derived
from pipelines.model import Kind, Node, Pod, Problem
from pipelines.mtu import mtu_of_pods
from pipelines.view import Facts

LEAST_IPV6_MTU = 1280  # bytes (RFC 8200)


def about_node(key: str, node: Node, facts: Facts) -> Outcome:
    network = facts.get(Derived.NODE_NETWORK, key)
    mtu = mtu_of_pods(node, network.addresses if network else (), facts.settings())
    if mtu >= LEAST_IPV6_MTU or all(cidr.family == 4 for cidr in node.pod_cidrs):
        return Outcome()
    reason = f"its pods can have an MTU of {mtu} only; IPv6 needs {LEAST_IPV6_MTU}"
    return Outcome((), [Problem(Kind.NODE, key, "metadata.annotations[signalbox.dev/uplink-mtu]", reason)])


def about_pod(key: str, pod: Pod, facts: Facts) -> Outcome:
    if not pod.node or not pod.ips:
        return Outcome()
    node = facts.get(Kind.NODE, pod.node)
    if node is None:
        reason = f"there is no usable Node {pod.node}; nothing reaches this pod"
        return Outcome((), [Problem(Kind.POD, key, "spec.nodeName", reason)])
    network = facts.get(Derived.NODE_NETWORK, pod.node)
    most = mtu_of_pods(node, network.addresses if network else (), facts.settings())
    if pod.mtu is None or pod.mtu <= most:
        return Outcome()
    reason = f"{pod.mtu} is more than the {most} bytes that pods on Node {pod.node} should have"
    return Outcome((), [Problem(Kind.POD, key, "metadata.annotations[signalbox.dev/mtu]", reason)])
