"""What a Service object says: addresses, ports, policies, affinity.

A wrong value is left out and reported, the rest is kept.
"""

from collections.abc import Sequence

from k8s_bridge import shapes
from k8s_bridge.findings import Findings
from pipelines.addresses import BITS, Cidr, Interface, Ip, parse_interface, prefix_mask
from pipelines.model import Policy, ServicePort

DEFAULT_AFFINITY, LONGEST_AFFINITY = 10_800, 86_400  # seconds: Kubernetes' default and bound
NOBODY = (Cidr(4, 0, BITS[4]), Cidr(6, 0, BITS[6]))  # clients of whom there is none: the unspecified addresses
TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
NO_CLUSTER_IP = "it has no ClusterIP (yet)"


def left_alone(labels: shapes.Labels | None, spec: shapes.ServiceSpec, cluster_ips: Sequence[str]) -> str:
    """Why a service is none of our business, for people; "" where it is to be served."""
    if labels is not None and labels.proxy is not None:  # KEP-2447: whatever the label's value
        return f"another proxy serves it (label {shapes.LABEL_PROXY})"
    if spec.type == "ExternalName":
        return "ExternalName: a name in DNS, it has no addresses"
    if "None" in cluster_ips:
        return "headless: clients ask DNS for its endpoints"
    return "" if any(cluster_ips) else NO_CLUSTER_IP


def check_type(findings: Findings, text: str | None) -> None:
    if text and text not in TYPES:
        findings.add("spec.type", f"{text!r} is not {', '.join(TYPES[:-1])} or {TYPES[-1]}; {TYPES[0]} counts")


def ports(findings: Findings, raw: Sequence[shapes.ServicePort], node_ports: bool) -> tuple[ServicePort, ...]:
    found: dict[tuple[str, int], ServicePort] = {}
    names: set[str] = set()
    on_nodes: set[tuple[str, int]] = set()
    for index, item in enumerate(raw):
        field = f"spec.ports[{index}]"
        number = findings.port(f"{field}.port", item.port)
        protocol = findings.protocol(f"{field}.protocol", item.protocol)
        if number is None or protocol is None:
            continue
        name = item.name or ""
        if (protocol, number) in found:
            findings.add(field, f"{protocol} port {number} is listed twice; the first counts")
        elif name in names:
            findings.add(f"{field}.name", f"{name!r} is the name of an earlier port; that one counts")
        else:
            names.add(name)
            node_port = _node_port(findings, f"{field}.nodePort", item) if node_ports else 0
            if node_port and (protocol, node_port) in on_nodes:
                findings.add(f"{field}.nodePort", f"{node_port} is that of an earlier port; that one counts")
                node_port = 0
            on_nodes.add((protocol, node_port))
            found[protocol, number] = ServicePort(name, protocol, number, node_port)
    if not raw:
        findings.add("spec.ports", "required: at least one port")
    return tuple(found.values())


def _node_port(findings: Findings, field: str, item: shapes.ServicePort) -> int:
    """0: none (yet)."""
    return (findings.port(field, item.node_port) or 0) if item.node_port else 0


def external_ips(findings: Findings, spec: shapes.ServiceSpec) -> tuple[Ip, ...]:
    texts = [(f"spec.externalIPs[{i}]", text) for i, text in enumerate(spec.external_ips or ())]
    return _ips(findings, texts)


def load_balancer_ips(findings: Findings, status: shapes.ServiceStatus | None) -> tuple[Ip, ...]:
    """The addresses that the switches stand for; a host name, and `ipMode: Proxy` (KEP-1860), are the cloud's."""
    balancer = status.load_balancer if status else None
    texts = [
        (f"status.loadBalancer.ingress[{i}].ip", item.ip)
        for i, item in enumerate((balancer.ingress if balancer else None) or ())
        if item.ip and item.ip_mode != "Proxy"
    ]
    return _ips(findings, texts)


def _ips(findings: Findings, texts: Sequence[tuple[str, str]]) -> tuple[Ip, ...]:
    found = (findings.ip(field, text) for field, text in texts)
    return tuple(dict.fromkeys(ip for ip in found if ip is not None))


def policy(findings: Findings, field: str, text: str | None) -> Policy:
    try:
        return Policy(text or "Cluster")
    except ValueError:
        findings.add(field, f"{text!r} is not Cluster or Local; Cluster counts")
        return Policy.CLUSTER


def affinity(findings: Findings, spec: shapes.ServiceSpec) -> int:
    """Seconds; 0 without affinity."""
    if spec.session_affinity in (None, "", "None"):
        return 0
    if spec.session_affinity != "ClientIP":
        findings.add("spec.sessionAffinity", f"{spec.session_affinity!r} is not None or ClientIP; None counts")
        return 0
    config = spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
    field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    if seconds is None:
        return DEFAULT_AFFINITY
    if not 0 < seconds <= LONGEST_AFFINITY:
        findings.add(field, f"{seconds} is not between 1 and {LONGEST_AFFINITY}; {DEFAULT_AFFINITY} counts")
        return DEFAULT_AFFINITY
    return seconds


def health_check_port(findings: Findings, spec: shapes.ServiceSpec) -> int:
    """0: none."""
    asked = spec.health_check_node_port
    return (findings.port("spec.healthCheckNodePort", asked) or 0) if asked else 0


def source_ranges(findings: Findings, spec: shapes.ServiceSpec) -> tuple[Cidr, ...]:
    """Whoever wrote ranges, and none that can be used, did not mean everybody."""
    found: dict[Cidr, None] = {}
    for index, text in enumerate(spec.load_balancer_source_ranges or ()):
        try:
            found[_prefix(parse_interface(text.strip()))] = None
        except ValueError as error:
            findings.add(f"spec.loadBalancerSourceRanges[{index}]", str(error))
    field = "spec.loadBalancerSourceRanges"
    if not found and (spec.load_balancer_source_ranges or findings.refused(field)):
        findings.add(field, "no range can be used, so its addresses serve no client", consequence=True)
        return NOBODY
    return tuple(found)


def _prefix(at: Interface) -> Cidr:
    """Host bits are allowed here, and so is every address."""
    length = at.length or 0
    return Cidr(at.ip.family, at.ip.value & prefix_mask(at.ip.family, length), length)
