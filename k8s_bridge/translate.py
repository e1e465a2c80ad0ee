"""Raw Kubernetes objects to `pipelines.model` values, one at a time; pure.

An object that cannot be used becomes `Invalid`; one of which a part cannot be used, by its type or by what it says,
keeps the rest and lists its problems; one that is none of our business becomes None, as if it did not exist. Nothing
here raises for anything that an object can contain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from k8s_bridge import annotations, field_names, node_facts, service_facts, shapes, wrong_types
from k8s_bridge.findings import NAME_RULE, Findings, Misspelt, shortened, valid_name
from k8s_bridge.wrong_types import Refused
from pipelines.addresses import Cidr, Ip
from pipelines.model import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Invalid,
    Kind,
    Node,
    Pod,
    Problem,
    Service,
    ServiceCidr,
    Value,
)

Shaped = shapes.Node | shapes.Pod | shapes.Service | shapes.EndpointSlice | shapes.ServiceCidr
_SHAPES: dict[Kind, type[Shaped]] = {
    Kind.NODE: shapes.Node,
    Kind.POD: shapes.Pod,
    Kind.SERVICE: shapes.Service,
    Kind.ENDPOINT_SLICE: shapes.EndpointSlice,
    Kind.SERVICE_CIDR: shapes.ServiceCidr,
}
_DECODERS = {kind: msgspec.json.Decoder(shape) for kind, shape in _SHAPES.items()}
_IDENTITY = msgspec.json.Decoder(shapes.Identity)
_CLUSTER_SCOPED = (Kind.NODE, Kind.SERVICE_CIDR)
_ANNOTATED = (Kind.NODE, Kind.POD, Kind.SERVICE)  # by people
_NAMES = ("metadata.name", "metadata.namespace")
_NEEDED: dict[Kind, tuple[str, ...]] = {
    Kind.NODE: ("spec",),
    Kind.POD: ("spec", "status"),
    Kind.SERVICE: ("spec", "spec.ports"),
    Kind.ENDPOINT_SLICE: ("addressType", "ports", "endpoints"),
    Kind.SERVICE_CIDR: ("spec", "spec.cidrs"),
}
"""Fields without which there is nothing to work with. Where one was lost, nobody meant the object to be without."""
_FINISHED = ("Succeeded", "Failed")
_FAMILIES = {"IPv4": 4, "IPv6": 6}


class Translated(NamedTuple):
    """`key` "" only when the object has no usable name: then it can only be reported, by `problems`."""

    kind: Kind
    key: str
    value: Value | None  # None: not for us
    resource_version: str = ""
    problems: tuple[Problem, ...] = ()


def from_json(kind: Kind, raw: bytes | msgspec.Raw) -> Translated:
    """One object as JSON."""
    try:
        return _translated(kind, _DECODERS[kind].decode(raw))
    except msgspec.ValidationError as error:
        failure = error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _nameless(kind, "object", str(error))
    try:
        return _in_part(kind, msgspec.json.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # in what was passed over so far
        return _unusable(identify(kind, raw), failure)


def from_object(kind: Kind, data: object, *, by_hand: bool = False) -> Translated:
    """One object as Python values (out of YAML). `by_hand`: names of fields may be misspelt, which is told."""
    misspelt = field_names.misspelt(_SHAPES[kind], data) if by_hand else ()
    try:
        return _translated(kind, msgspec.convert(data, _SHAPES[kind]), (), misspelt)
    except msgspec.ValidationError:
        return _in_part(kind, data, misspelt)


def identify(kind: Kind, raw: bytes | msgspec.Raw) -> Translated:
    """Only which object it is (for a deletion): `value` is None."""
    try:
        identity = _IDENTITY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _nameless(kind, "object", str(error))
    return _identified(kind, identity)


def object_key(kind: Kind, namespace: str | None, name: str) -> str:
    """The model's key. A manifest without a namespace means "default", as for kubectl."""
    return name if kind in _CLUSTER_SCOPED else f"{namespace or 'default'}/{name}"


def _identified(kind: Kind, identity: shapes.Identity) -> Translated:
    name, namespace = identity.metadata.name, identity.metadata.namespace
    if not name:
        return _nameless(kind, "metadata.name", "required")
    for field, text in (("metadata.name", name), ("metadata.namespace", namespace or "default")):
        if not valid_name(text):
            return _nameless(kind, field, f"{shortened(text)!r} {NAME_RULE}")
    return Translated(kind, object_key(kind, namespace, name), None, identity.metadata.resource_version or "")


def _nameless(kind: Kind, field: str, reason: str) -> Translated:
    return Translated(kind, "", None, problems=(Problem(kind, "(no name)", field, reason),))


def _unusable(which: Translated, error: Exception) -> Translated:
    if not which.key:
        return which
    problems = (Problem(which.kind, which.key, "object", str(error)),)
    return which._replace(value=Invalid(problems), problems=problems)


def _in_part(kind: Kind, data: object, misspelt: Sequence[Misspelt] = ()) -> Translated:
    """Of an object in which values have wrong types: what can be used without them."""
    shape, refused = wrong_types.usable(_SHAPES[kind], data)
    unnamed = next((one for one in refused if shape is None or one.field in _NAMES), None)
    if shape is None or unnamed is not None:
        return _nameless(kind, *(unnamed or refused[0]))
    return _translated(kind, shape, refused, misspelt)


def _translated(
    kind: Kind, shape: Shaped, refused: Sequence[Refused] = (), misspelt: Sequence[Misspelt] = ()
) -> Translated:
    meta = shape.metadata
    identity = shapes.Identity(
        metadata=shapes.IdentityMeta(name=meta.name, namespace=meta.namespace, resource_version=meta.resource_version)
    )
    which = _identified(kind, identity)
    if not which.key:
        return which
    findings = Findings(kind, which.key, refused, misspelt)
    if kind in _ANNOTATED and meta.annotations:
        annotations.check(findings, kind, meta.annotations)
    value: Value | None
    match shape:
        case shapes.Node():
            value = _node(findings, shape)
        case shapes.Pod():
            value = _pod(findings, shape)
        case shapes.Service():
            value = _service(findings, shape)
        case shapes.EndpointSlice():
            value = _endpoint_slice(findings, shape)
        case shapes.ServiceCidr():
            value = _service_cidr(findings, shape)
    if not _none_of_ours(value) and any(findings.lost(field) for field in _NEEDED[kind]):
        value = Invalid(findings.problems)
    return which._replace(value=value, problems=findings.problems)


def _none_of_ours(value: Value | None) -> bool:
    return value is None or (isinstance(value, Service) and bool(value.left_alone))


def _node(findings: Findings, raw: shapes.Node) -> Node | Invalid:
    meta = raw.metadata
    notes = shapes.notes(meta)
    zone = meta.labels.zone if meta.labels is not None else None
    pod_cidrs = node_facts.pod_cidrs(findings, raw.spec or shapes.NodeSpec())
    addresses = node_facts.addresses(findings, notes, raw.status or shapes.NodeStatus())
    if not addresses and findings.lost("status"):
        return Invalid(findings.problems)
    families = {cidr.family for cidr in pod_cidrs} | {at.ip.family for at in addresses}
    datapath_id = node_facts.datapath_id(findings, notes)
    return Node(
        name=meta.name or "",
        uid=meta.uid or "",
        created=meta.creation_timestamp or "",
        pod_cidrs=pod_cidrs,
        addresses=addresses,
        mac=node_facts.mac(findings, notes),
        datapath_id=datapath_id,
        uplink=node_facts.uplink(findings, notes, required=datapath_id is not None),
        gateways=node_facts.gateways(findings, notes, addresses, pod_cidrs),
        mtu=node_facts.mtu(findings, notes, families),
        zone=findings.text(f"metadata.labels[{shapes.LABEL_ZONE}]", zone) or "",
        problems=findings.problems,
    )


def _pod(findings: Findings, raw: shapes.Pod) -> Pod:
    """A pod that is being deleted still answers: only its phase or its absence takes its addresses away."""
    meta, spec, status = raw.metadata, raw.spec or shapes.PodSpec(), raw.status or shapes.PodStatus()
    ips: tuple[Ip, ...] = ()
    own = not spec.host_network and not findings.refused("spec.hostNetwork")
    if own and status.phase not in _FINISHED:
        texts = [(f"status.podIPs[{i}].ip", item.ip) for i, item in enumerate(status.pod_ips or ())]
        ips = _one_per_family(findings, texts or [("status.podIP", status.pod_ip)])
    notes = shapes.notes(meta)
    return Pod(
        *_name(meta),
        node=spec.node_name or "",
        ips=ips,
        mtu=findings.mtu(annotations.field(shapes.ANNOTATION_MTU), notes.mtu, {ip.family for ip in ips}),
        problems=findings.problems,
    )


def _name(meta: shapes.Meta) -> tuple[str, str, str, str]:
    """Namespace, name, UID, and when it was created, as values of objects in a namespace begin."""
    return meta.namespace or "default", meta.name or "", meta.uid or "", meta.creation_timestamp or ""


def _service(findings: Findings, raw: shapes.Service) -> Service | Invalid:
    meta, spec = raw.metadata, raw.spec or shapes.ServiceSpec()
    service_facts.check_type(findings, spec.type)
    texts = [(f"spec.clusterIPs[{i}]", text) for i, text in enumerate(spec.cluster_ips or ())]
    texts = texts or [("spec.clusterIP", spec.cluster_ip or "")]
    if reason := service_facts.left_alone(meta.labels, spec, [text for _, text in texts]):
        asked = ("spec", "spec.clusterIP", "spec.clusterIPs", *(field for field, _ in texts))
        if reason == service_facts.NO_CLUSTER_IP and any(map(findings.lost, asked)):
            return Invalid(findings.problems)
        return Service(*_name(meta), left_alone=reason, problems=findings.problems)
    cluster_ips = _one_per_family(findings, texts)
    if not cluster_ips:
        return Invalid(findings.problems)
    balanced = spec.type == "LoadBalancer"
    return Service(
        *_name(meta),
        cluster_ips=cluster_ips,
        external_ips=service_facts.external_ips(findings, spec),
        load_balancer_ips=service_facts.load_balancer_ips(findings, raw.status) if balanced else (),
        ports=service_facts.ports(findings, spec.ports or (), node_ports=spec.type in ("NodePort", "LoadBalancer")),
        internal_policy=service_facts.policy(findings, "spec.internalTrafficPolicy", spec.internal_traffic_policy),
        external_policy=service_facts.policy(findings, "spec.externalTrafficPolicy", spec.external_traffic_policy),
        affinity=service_facts.affinity(findings, spec),
        source_ranges=service_facts.source_ranges(findings, spec) if balanced else (),
        health_check_port=service_facts.health_check_port(findings, spec) if balanced else 0,
        problems=findings.problems,
    )


def _endpoint_slice(findings: Findings, raw: shapes.EndpointSlice) -> EndpointSlice | Invalid | None:
    meta = raw.metadata
    label = meta.labels.service if meta.labels is not None else None
    field = f"metadata.labels[{shapes.LABEL_SERVICE}]"
    service = findings.text(field, label)
    if service is None and (label is None or isinstance(label, str)) and not findings.refused(field):
        return None  # belongs to no service: somebody's own use of slices
    if raw.address_type == "FQDN":
        return None
    family = _FAMILIES.get(raw.address_type or "")
    if family is None:
        findings.add("addressType", f"{raw.address_type!r} is not IPv4, IPv6 or FQDN")
    if service is None or family is None:
        return Invalid(findings.problems)
    namespace = meta.namespace or "default"
    return EndpointSlice(
        namespace=namespace,
        name=meta.name or "",
        service=f"{namespace}/{service}",
        ports=_endpoint_ports(findings, raw.ports or ()),
        endpoints=_endpoints(findings, raw.endpoints or (), family),
        problems=findings.problems,
    )


def _endpoint_ports(findings: Findings, raw: Sequence[shapes.EndpointPort]) -> tuple[EndpointPort, ...]:
    ports: dict[str, EndpointPort] = {}
    for index, item in enumerate(raw):
        number = findings.port(f"ports[{index}].port", item.port)
        protocol = findings.protocol(f"ports[{index}].protocol", item.protocol)
        if number is None or protocol is None:
            continue
        port = EndpointPort(item.name or "", protocol, number)
        if ports.setdefault(port.name, port) != port:
            findings.add(f"ports[{index}].name", f"{port.name!r} is the name of an earlier port; that one counts")
    return tuple(ports.values())


def _endpoints(findings: Findings, raw: Sequence[shapes.Endpoint], family: int) -> tuple[Endpoint, ...]:
    """One per address, ordered by it, so that a list in another order is no change.

    The addresses of one endpoint are interchangeable (KEP-0752): the first one is used. Of two endpoints with
    one address the more useful one counts, whichever comes first.
    """
    found: dict[Ip, Endpoint] = {}
    for index, item in enumerate(raw):
        field = f"endpoints[{index}].addresses"
        if not item.addresses:
            findings.add(field, "required: one address")
            continue
        ip = findings.ip(f"{field}[0]", item.addresses[0], family)
        if ip is None or not _conditions_known(findings, f"endpoints[{index}]"):
            continue
        said = item.conditions or shapes.Conditions()
        endpoint = Endpoint(
            ip=ip,
            ready=said.ready is not False,
            serving=said.serving is not False,
            terminating=said.terminating is True,
            node=item.node_name or "",
            for_zones=_hints(item.hints.for_zones if item.hints else None),
            for_nodes=_hints(item.hints.for_nodes if item.hints else None),
        )
        known = found.get(ip)
        if known is None or _usefulness(endpoint) > _usefulness(known):
            found[ip] = endpoint
    return tuple(found[ip] for ip in sorted(found))


def _conditions_known(findings: Findings, field: str) -> bool:
    """What is absent has a meaning; what has a wrong type has none."""
    if any(findings.refused(f"{field}.conditions.{name}") for name in ("ready", "serving", "terminating")):
        findings.add(field, "is not used: nobody can tell whether it is ready")
        return False
    return True


def _hints(raw: Sequence[shapes.Hint] | None) -> tuple[str, ...]:
    return tuple(sorted({hint.name for hint in raw or () if hint.name}))


def _usefulness(endpoint: Endpoint) -> tuple[bool, bool, bool, str]:
    return endpoint.ready, endpoint.serving, not endpoint.terminating, endpoint.node


def _service_cidr(findings: Findings, raw: shapes.ServiceCidr) -> ServiceCidr | Invalid:
    texts = (raw.spec.cidrs if raw.spec is not None else None) or ()
    if not texts:
        findings.add("spec.cidrs", "required: one or two prefixes")
    found: list[Cidr] = []
    for index, text in enumerate(texts):
        cidr = findings.cidr(f"spec.cidrs[{index}]", text)
        if cidr is not None and cidr not in found:
            found.append(cidr)
    if not found:
        return Invalid(findings.problems)
    return ServiceCidr(
        name=raw.metadata.name or "",
        created=raw.metadata.creation_timestamp or "",
        cidrs=tuple(found),
        problems=findings.problems,
    )


def _one_per_family(findings: Findings, texts: Sequence[tuple[str, str | None]]) -> tuple[Ip, ...]:
    """The first address of each family, in the order given: Kubernetes allows one each."""
    found: dict[int, Ip] = {}
    for field, text in texts:
        ip = findings.ip(field, text) if text else None
        if ip is not None and found.setdefault(ip.family, ip) != ip:
            findings.add(field, f"{ip} is a second IPv{ip.family} address; only the first is used")
    return tuple(found.values())
