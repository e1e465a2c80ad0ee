"""What Kubernetes and docs/architecture.md promise, as a page of rules that know nothing about flows.

Who may answer, as whom a server sees the client, and how many hops an answer has passed.
"""

from tests.ovs.world import PLACES, VIRTUAL, Place, Service, gateway, snat


def answering(service: Service, protocol: str, family: int) -> frozenset[str]:
    """Names; empty: refused at once."""
    return frozenset(service.backends(protocol, family))


def straight(client: Place, server: Place, macs_known: bool) -> bool:
    """Whether a node sends right to the other node's MAC."""
    return macs_known and client.segment == server.segment


def seen_through_service(client: Place, server: Place, family: int, macs_known: bool) -> str:
    """The client's address as the server sees it, behind a service address."""
    own = client.addresses[family]
    if client.name == server.name:
        return VIRTUAL[family]
    if client.kind == "pod":
        return PLACES[client.node].addresses[family] if server.kind == "outside" else own
    if server.kind == "outside" or server.node == client.node or straight(client, server, macs_known):
        return own
    return snat(client.node, family)


def seen_directly(client: Place, server: Place, family: int) -> str:
    """The same without a service: its own address, but for pods that leave the cluster."""
    if client.kind == "pod" and server.kind == "outside":
        return PLACES[client.node].addresses[family]
    if client.kind == "node" and server.kind == "pod" and server.node == client.node:
        return gateway(client.node, family)  # the kernel's choice: the address of the device it leaves by
    return client.addresses[family]


def hop_limit_of_reply(client: Place, server: Place) -> int:
    """What is left of 64 when the client has the server's answer.

    Each node is a router for its pods, whether Open vSwitch or the host's kernel forwards; nothing is for the node.
    """
    same_node = client.node == server.node != ""
    hops = 0
    if server.kind == "pod" and not same_node:
        hops += 1
    if client.kind == "pod" and not same_node:
        hops += 1
    # A pod's answer to a client outside goes the way that its question came: by the router.
    by_router = server.kind == "pod" and client.kind == "outside"
    return 64 - hops - (by_router or client.segment != server.segment)
