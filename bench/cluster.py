"""A cluster to measure with: nodes, services and their endpoints, as the JSON that an API server sends.

Service `i` has address 10.96.0.0 + i + 1 and `endpoints` endpoints on TCP port 8080, spread over the nodes' podCIDRs;
no two services share an endpoint. Of which kind it is, `kinds` says; node ports are 30000 + i, addresses of load
balancers 172.20.0.0 + i + 1. The first node is the one with a real switch.
"""

from collections.abc import Iterator

import msgspec

from bench.kinds import Kinds, ServiceKind, Vip, spec
from k8s_bridge.translate import from_json
from pipelines.addresses import Ip, parse_ip
from pipelines.model import Change, Kind

SERVICE_PORT, ENDPOINT_PORT, FIRST_NODE_PORT = 80, 8080, 30000
FIRST_DATAPATH = 0x5B00
PODS_A_NODE = 250
_SERVICES = parse_ip("10.96.0.0")
_PODS = parse_ip("10.128.0.0")
_NODES = parse_ip("10.0.0.0")
_BALANCERS = parse_ip("172.20.0.0")
_CREATED = "2026-01-01T00:00:00Z"

Object = tuple[Kind, bytes]


class Cluster(msgspec.Struct, frozen=True):
    """How large it is; its objects follow from that."""

    services: int = 1000
    endpoints: int = 10
    nodes: int = 50
    kinds: Kinds = Kinds.CLUSTER_IP

    @property
    def all_nodes(self) -> int:
        """There are more when the endpoints do not fit on `nodes`; only the first `nodes` have a switch."""
        return max(self.nodes, -(-self.services * self.endpoints // PODS_A_NODE))

    def service_address(self, service: int) -> Ip:
        return Ip(4, _SERVICES.value + service + 1)

    def balancer_address(self, service: int) -> Ip:
        return Ip(4, _BALANCERS.value + service + 1)

    def vips(self, service: int, endpoints: list[Ip]) -> Iterator[Vip]:
        """All that clients of the first node may ask for, and who answers there."""
        kind = self.kinds.of(service)
        every = tuple(f"{address}:{ENDPOINT_PORT}" for address in endpoints)
        here = tuple(f"{address}:{ENDPOINT_PORT}" for address in endpoints if _node_of(address) == 0)
        yield Vip(f"{self.service_address(service)}:{SERVICE_PORT}", every)
        outer = here if kind is ServiceKind.LOCAL else every
        if kind.has_node_port:
            yield Vip(f"{node_address(0)}:{FIRST_NODE_PORT + service}", outer)
        if kind.has_load_balancer:
            yield Vip(f"{self.balancer_address(service)}:{SERVICE_PORT}", outer)

    def endpoint_addresses(self, service: int) -> list[Ip]:
        numbers = range(service * self.endpoints, (service + 1) * self.endpoints)
        return [self._pod(number % self.all_nodes, number // self.all_nodes) for number in numbers]

    def spare_address(self, number: int) -> Ip:
        """An address that no endpoint has; there are four."""
        return self._pod(number % self.all_nodes, PODS_A_NODE)

    def _pod(self, node: int, index: int) -> Ip:
        return Ip(4, _PODS.value + (node << 8) + index + 3)

    # --- objects ------------------------------------------------------------------------------------------

    def objects(self) -> list[Object]:
        """All of them, as JSON, in the order in which a source lists kinds."""
        found = [_object(Kind.SERVICE_CIDR, {"name": "kubernetes"}, spec={"cidrs": ["10.96.0.0/16"]})]
        found += [self._node(number) for number in range(self.all_nodes)]
        for service in range(self.services):
            found.append(self._service(service))
            found.append(self.slice(service, self.endpoint_addresses(service)))
        return found

    def _node(self, number: int) -> Object:
        notes = {
            "signalbox.dev/node-addresses": f"{node_address(number)}/16",
            "signalbox.dev/gateways": "10.0.0.1",
            "signalbox.dev/uplink": "uplink",
            "signalbox.dev/mac-address": f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}",
        }
        if number < self.nodes:
            notes["signalbox.dev/datapath-id"] = f"{FIRST_DATAPATH + number:016x}"
        cidr = f"{Ip(4, _PODS.value + (number << 8))}/24"
        return _object(Kind.NODE, {"name": node_name(number), "annotations": notes}, spec={"podCIDRs": [cidr]})

    def _service(self, service: int) -> Object:
        kind, address = self.kinds.of(service), str(self.service_address(service))
        found = spec(kind, address, SERVICE_PORT, ENDPOINT_PORT, FIRST_NODE_PORT + service)
        meta: dict[str, object] = {"name": service_name(service), "namespace": "bench"}
        if kind.has_load_balancer:
            ingress = [{"ip": str(self.balancer_address(service))}]
            return _object(Kind.SERVICE, meta, spec=found, status={"loadBalancer": {"ingress": ingress}})
        return _object(Kind.SERVICE, meta, spec=found)

    def slice(self, service: int, addresses: list[Ip]) -> Object:
        """The EndpointSlice of a service."""
        ready = {"ready": True, "serving": True, "terminating": False}
        name = service_name(service)
        return _object(
            Kind.ENDPOINT_SLICE,
            {"name": f"{name}-x", "namespace": "bench", "labels": {"kubernetes.io/service-name": name}},
            addressType="IPv4",
            ports=[{"port": ENDPOINT_PORT, "protocol": "TCP"}],
            endpoints=[
                {"addresses": [str(address)], "conditions": ready, "nodeName": node_name(_node_of(address))}
                for address in addresses
            ],
        )


def node_name(number: int) -> str:
    return f"node-{number}"


def node_address(number: int) -> Ip:
    return Ip(4, _NODES.value + 2 + number)


def _node_of(pod: Ip) -> int:
    return (pod.value - _PODS.value) >> 8


def service_name(service: int) -> str:
    return f"service-{service}"


def changes(objects: list[Object]) -> Iterator[Change]:
    """What a source makes of them."""
    for kind, raw in objects:
        found = from_json(kind, raw)
        if found.problems:
            raise ValueError(f"{found.problems[0]}")
        yield Change(kind, found.key, found.value)


def _object(kind: Kind, meta: dict[str, object], **rest: object) -> Object:
    meta["uid"] = f"{kind}-{meta['name']}"
    meta["creationTimestamp"] = _CREATED
    return kind, msgspec.json.encode({"metadata": meta, **rest})
