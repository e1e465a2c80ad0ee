"""What a person should know though no flow follows from it: objects and settings that say what cannot work."""

from collections.abc import Iterator

from pipelines import node_rules
from pipelines.addresses import BITS, Cidr, Ip, parse_ip
from pipelines.claims import Outcome
from pipelines.derived import Derived, Target, around, known_segment, node_port_key, subnet
from pipelines.model import EndpointSlice, Kind, Node, Pod, Problem, Settings
from pipelines.mtu import mtu_of_pods
from pipelines.several import several
from pipelines.view import Facts

LEAST_IPV6_MTU = 1280  # bytes (RFC 8200)


def about_node(key: str, node: Node, facts: Facts) -> Outcome:
    network = facts.get(Derived.NODE_NETWORK, key)
    mtu = mtu_of_pods(node, network.addresses if network else (), facts.settings())
    if mtu >= LEAST_IPV6_MTU or all(cidr.family == 4 for cidr in node.pod_cidrs):
        return Outcome()
    reason = f"its pods can have an MTU of {mtu} only; IPv6 needs {LEAST_IPV6_MTU}"
    return Outcome((), [Problem(Kind.NODE, key, "metadata.annotations[signalbox.dev/uplink-mtu]", reason)])


# --- pods ---------------------------------------------------------------------------------------------------


def about_pod(key: str, pod: Pod, facts: Facts) -> Outcome:
    if not pod.node or not pod.ips:
        return Outcome()
    node = facts.get(Kind.NODE, pod.node)
    if node is None:
        reason = f"there is no usable Node {pod.node}; nothing reaches this pod"
        return Outcome((), [Problem(Kind.POD, key, "spec.nodeName", reason)])
    problems = list(_astray(key, pod, node, facts))
    network = facts.get(Derived.NODE_NETWORK, pod.node)
    most = mtu_of_pods(node, network.addresses if network else (), facts.settings())
    if pod.mtu is not None and pod.mtu > most:
        reason = f"{pod.mtu} is more than the {most} bytes that pods on Node {pod.node} should have"
        problems.append(Problem(Kind.POD, key, "metadata.annotations[signalbox.dev/mtu]", reason))
    return Outcome((), problems)


def _astray(key: str, pod: Pod, node: Node, facts: Facts) -> Iterator[Problem]:
    """Addresses that other nodes send elsewhere. Of those that the pod did not get others tell."""
    for ip in pod.ips:
        if any(cidr.__contains__(ip) for cidr in node.pod_cidrs) or facts.get(Derived.POD_ADDRESS, str(ip)) != key:
            continue
        own = (
            several(str(cidr) for cidr in node.pod_cidrs if cidr.family == ip.family) or f"it has no IPv{ip.family} one"
        )
        home = facts.pod_cidr(ip)
        elsewhere = f", but in {home.cidr} of Node {home.node}" if home else ""
        reason = f"{ip} lies in no podCIDR of its Node {pod.node} ({own}){elsewhere}; only pods of that node reach it"
        yield Problem(Kind.POD, key, "status.podIPs", reason)


# --- services -----------------------------------------------------------------------------------------------


def about_endpoints(key: str, slice_: EndpointSlice, facts: Facts) -> Outcome:
    """Addresses at which nothing can listen. A packet is translated once, so what is a service's is no endpoint."""
    ranges = node_rules.service_ranges(facts)
    problems = []
    for ip in sorted({endpoint.ip for endpoint in slice_.endpoints}):
        whose = next((f"in the service range {cidr}" for cidr in ranges if cidr.__contains__(ip)), "")
        if whose := whose or _own_of_pods(ip, facts):
            problems.append(
                Problem(Kind.ENDPOINT_SLICE, key, "endpoints", f"{ip} is {whose}; no connection gets there")
            )
    return Outcome((), problems)


def _own_of_pods(ip: Ip, facts: Facts) -> str:
    home = facts.pod_cidr(ip)
    return f"the SNAT address of podCIDR {home.cidr}" if home and ip == home.cidr.address(2) else ""


def about_host_endpoint(key: str, target: Target, facts: Facts) -> Outcome:
    """A NodePort takes what is for a process of a node that listens at its number, as it does with kube-proxy."""
    del key
    ip, port, protocol = target
    wanted = facts.settings().node_port_addresses
    front = facts.get(Derived.FRONTEND, node_port_key(ip.family, protocol, port))
    if front is None or (wanted and not any(cidr.__contains__(ip) for cidr in wanted)):
        return Outcome()
    if Target(ip, port, protocol) in facts.get(Derived.SERVICE_PORT, front.backends).targets:
        return Outcome()  # one of its own
    node = facts.get(Derived.NODE_ADDRESS, str(ip))
    reason = f"{front.said} takes what is for {ip} port {port}/{protocol}, where an endpoint on Node {node} listens"
    return Outcome((), [Problem(Kind.SERVICE, front.service, "spec.ports[].nodePort", reason)])


# --- settings -----------------------------------------------------------------------------------------------


def about_settings(key: str, settings: Settings, facts: Facts) -> Outcome:
    """Prefixes and addresses of the configuration against those of the cluster."""
    found = (*_pools(settings, facts), *_node_ports(settings, facts), *_virtual(settings, facts))
    return Outcome((), [Problem(Kind.SETTINGS, key, field, reason) for field, reason in found])


def _pools(settings: Settings, facts: Facts) -> Iterator[tuple[str, str]]:
    if not settings.announce:
        return
    names = facts.all(Derived.SEGMENT)
    for pool in settings.announce:
        subnets = [name for name in sorted(names) if known_segment(name) and subnet(name).family == pool.family]
        if whose := _around(pool, facts):
            yield "announce", f"{pool} lies in {whose}; name addresses of the nodes' subnet that nobody else hands out"
        elif names and not any(subnet(name).overlaps(pool) for name in subnets):
            known = several(subnets) or "none is known: do Nodes say their addresses with prefix lengths?"
            yield "announce", f"{pool} lies in no subnet of nodes ({known}); nothing in it is announced"


def _node_ports(settings: Settings, facts: Facts) -> Iterator[tuple[str, str]]:
    addresses = facts.all(Derived.NODE_ADDRESS) if settings.node_port_addresses else {}
    ips = [parse_ip(text) for text in addresses]
    for cidr in settings.node_port_addresses if ips else ():
        if not any(cidr.__contains__(ip) for ip in ips):
            there = several(str(ip) for ip in sorted(ips))
            yield (
                "node_port_addresses",
                f"no Node has an address in {cidr}, so it serves no NodePort; they have {there}",
            )


def _virtual(settings: Settings, facts: Facts) -> Iterator[tuple[str, str]]:
    for field, ip in (("virtual_ip4", settings.virtual_ip4), ("virtual_ip6", settings.virtual_ip6)):
        if whose := _taken(ip, facts):
            default = getattr(Settings(), field)
            other = "name one that nothing has" + (f", as the default {default}" if ip != default else "")
            yield field, f"{ip} {whose}; {other}"


def _taken(ip: Ip, facts: Facts) -> str:
    node = facts.get(Derived.NODE_ADDRESS, str(ip))
    if node is not None:
        return f"is an address of Node {node}"
    if whose := _around(Cidr(ip.family, ip.value, BITS[ip.family]), facts):
        return f"lies in {whose}"
    subnets = around(ip, facts.all(Derived.SEGMENT))
    return f"lies in {min(subnets)}, a subnet of nodes" if subnets else ""


def _around(cidr: Cidr, facts: Facts) -> str:
    """The service range or podCIDR that a prefix is a part of, "" when there is none."""
    for one in node_rules.service_ranges(facts):
        if one.length <= cidr.length and one.overlaps(cidr):
            return f"the service range {one}"
    home = facts.pod_cidr(cidr.address(0))
    return f"podCIDR {home.cidr} of Node {home.node}" if home and home.cidr.length <= cidr.length else ""
