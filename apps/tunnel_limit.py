"""What a node tells senders whose packets do not fit in its tunnels."""

from controller.too_big import Limit
from pipelines.derived import Derived, NodeNetwork
from pipelines.model import Kind, Node, Settings
from pipelines.mtu import mtu_of_pods
from pipelines.view import Facts


def tunnel_limit(facts: Facts, name: str, family: int) -> Limit | None:
    """From the gateway address of its first podCIDR of a family; None when it has none."""
    node: Node | None = facts.peek(Kind.NODE).get(name)
    network: NodeNetwork | None = facts.peek(Derived.NODE_NETWORK).get(name)
    cidr = next((cidr for cidr in network.cidrs if cidr.family == family), None) if network else None
    if node is None or network is None or cidr is None:
        return None
    settings: Settings = facts.peek(Kind.SETTINGS).get("") or Settings()
    return Limit(cidr.address(1), mtu_of_pods(node, network.addresses, settings))
