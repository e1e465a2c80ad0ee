"""What follows from Pods: addresses and ports."""

from pipelines.addresses import Ip, pod_mac, pod_port_name
from pipelines.claims import Claim, Outcome
from pipelines.derived import Derived, LocalPod
from pipelines.model import Kind, Pod, Problem
from pipelines.view import Facts


def pod_addresses(key: str, pod: Pod, facts: Facts) -> Outcome:
    if not pod.node:
        return Outcome()
    claims, problems = [], []
    for ip in pod.ips:
        if whose := stands_for(ip, facts):
            problems.append(Problem(Kind.POD, key, "status.podIPs", f"{ip} is {whose}; ignored here"))
        else:
            claims.append(Claim(Derived.POD_ADDRESS, str(ip), key, (pod.created, key)))
    return Outcome(claims, problems)


def stands_for(ip: Ip, facts: Facts) -> str:
    """What an address stands for that therefore cannot be a pod's or a service's; "" when it is free."""
    settings = facts.settings()
    if ip in (settings.virtual_ip4, settings.virtual_ip6):
        return "the virtual address"
    node = facts.get(Derived.NODE_ADDRESS, str(ip))
    if node is not None:
        return f"an address of Node {node}"
    behind = facts.get(Derived.ROUTER_ADDRESS, str(ip))
    if behind is not None:
        return f"a router of Node {behind}"
    home = facts.pod_cidr(ip)
    if home is not None and ip in (home[0].address(1), home[0].address(2)):
        return f"the {'gateway' if ip == home[0].address(1) else 'SNAT address'} of podCIDR {home[0]}"
    return ""


def local_pods(key: str, pod: Pod, facts: Facts) -> Outcome:
    """A pod that did not get the address its MAC follows from would share the MAC with the one that did."""
    ips = tuple(ip for ip in pod.ips if facts.get(Derived.POD_ADDRESS, str(ip)) == key)
    if not ips or pod_mac(ips) != pod_mac(pod.ips):
        return Outcome()
    local = LocalPod(key, pod.node, pod_port_name(pod.namespace, pod.name), pod_mac(ips), ips)
    return Outcome([Claim(Derived.LOCAL_POD, key, local)])
