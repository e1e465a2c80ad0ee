"""Services of every kind, beside the cluster of tests/ovs/world.py and with its places as endpoints.

Each has a ClusterIP, a NodePort, an address of a load balancer and an external IP in both families, and TCP and UDP on
the same port number. A service differs from its neighbours in where its endpoints are and in its policies only, so that
every cell of the matrix names what it is about.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from tests.ovs import objects, world
from tests.ovs.objects import FAMILY_NAMES, Object, PortOf
from tests.ovs.world import FAMILIES, NODES, PLACES, PORTS, PROTOCOLS

Kind = Literal["ClusterIP", "NodePort", "LoadBalancer", "external IP"]
KINDS: tuple[Kind, ...] = ("ClusterIP", "NodePort", "LoadBalancer", "external IP")
FIRST_NODE_PORT = 30000
# Prefixes that the network beneath brings to a node, of clients outside: see ENTRIES.
ROUTED = ("10.96.0.0/16", "198.51.100.0/24", "198.51.101.0/24", "fd00:96::/112", "fd00:1b::/112", "fd00:e::/112")


class Door(NamedTuple):
    """By which of its addresses a service is asked. `node`: of a NodePort, whose address it is."""

    kind: Kind
    node: str = ""

    def __str__(self) -> str:
        return f"{self.kind} of {self.node}" if self.node else self.kind


DOORS = (*(Door(kind) for kind in KINDS if kind != "NodePort"), *(Door("NodePort", node) for node in NODES))


class End(NamedTuple):
    """An endpoint: a place that answers, and what its slice says of it."""

    place: str
    ready: bool = True
    terminating: bool = False  # and still serving, if it is not ready
    serving: bool = True


class Service(NamedTuple):
    """`affinity`: seconds; None: without."""

    name: str
    number: int
    ends: tuple[End, ...] = ()
    external_local: bool = False
    internal_local: bool = False
    families: tuple[int, ...] = FAMILIES
    type: str = "LoadBalancer"
    affinity: int | None = None

    @property
    def addresses(self) -> dict[int, str]:
        """Its ClusterIPs: for streams, which know only those."""
        return {family: self.address(Door("ClusterIP"), family) for family in self.families}

    def address(self, door: Door, family: int) -> str:
        number = self.number
        if door.kind == "NodePort":
            return NODES[door.node].addresses[family]
        return {
            "ClusterIP": {4: f"10.96.1.{number}", 6: f"fd00:96::1{number:02}"},
            "LoadBalancer": {4: f"198.51.100.{number}", 6: f"fd00:1b::{number}"},
            "external IP": {4: f"198.51.101.{number}", 6: f"fd00:e::{number}"},
        }[door.kind][family]

    def port(self, door: Door, protocol: str) -> int:
        return self.node_port if door.kind == "NodePort" else PORTS[protocol].port

    @property
    def node_port(self) -> int:
        """The same number for TCP and UDP (B15)."""
        return FIRST_NODE_PORT + self.number

    def objects(self) -> list[Object]:
        addresses = [self.address(Door("ClusterIP"), family) for family in self.families]
        found = objects.service(self.name, addresses, [PORTS[protocol] for protocol in PROTOCOLS])
        spec = found["spec"]
        spec["type"] = self.type
        spec["externalIPs"] = [self.address(Door("external IP"), family) for family in self.families]
        spec["externalTrafficPolicy"] = "Local" if self.external_local else "Cluster"
        spec["internalTrafficPolicy"] = "Local" if self.internal_local else "Cluster"
        if self.affinity is not None:
            spec["sessionAffinity"] = "ClientIP"
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": self.affinity}}
        if self.type != "ClusterIP":
            for port in spec["ports"]:
                port["nodePort"] = self.node_port
        if self.type == "LoadBalancer":
            at = [self.address(Door("LoadBalancer"), family) for family in self.families]
            found["status"] = {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"} for ip in at]}}
        return [found, *self.slices()]

    def slices(self) -> list[Object]:
        return [self._slice(PORTS[protocol], family) for protocol in PROTOCOLS for family in FAMILIES]

    def _slice(self, port: PortOf, family: int) -> Object:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": "default",
                "name": f"{self.name}-{port.protocol}-{family}",
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": FAMILY_NAMES[family],
            "ports": [{"name": port.protocol, "protocol": port.protocol.upper(), "port": port.target}],
            "endpoints": [_endpoint(end, family) for end in self.ends if family in PLACES[end.place].addresses],
        }


def _endpoint(end: End, family: int) -> dict[str, Any]:
    place = PLACES[end.place]
    return {
        "addresses": [place.addresses[family]],
        "conditions": {"ready": end.ready, "serving": end.serving, "terminating": end.terminating},
        **({"nodeName": place.node} if place.node else {}),
    }


def ready(*places: str) -> tuple[End, ...]:
    return tuple(map(End, places))


def leaving(*places: str) -> tuple[End, ...]:
    return tuple(End(place, ready=False, terminating=True) for place in places)


def _crossed() -> Iterable[Service]:
    """Where the endpoints are, with every policy."""
    places = {
        "pod-n1": ready("b"),
        "pod-n2": ready("e"),
        "pod-n3": ready("g"),
        "pods": ready("b", "e", "g"),
        "host-n1": ready("n1"),
        "host-n2": ready("n2"),
        "host-n3": ready("n3"),
        "near": ready("outside"),
        "far": ready("remote"),
        "mixed": ready("a", "n2", "remote"),
        "none": (),
        "unready": (End("b", ready=False), End("e", ready=False, terminating=True, serving=False)),
        "leaving": leaving("b", "g"),
        "leaving-n1": (*leaving("b"), *ready("e")),
    }
    number = 10
    for name, ends in places.items():
        yield Service(name, number, ends)
        yield Service(f"{name}-local", number + 1, ends, external_local=True, internal_local=True)
        number += 2
    # The two policies do not touch each other.
    yield Service("external-only", number, ready("e"), external_local=True)
    yield Service("internal-only", number + 1, ready("e"), internal_local=True)


SERVICES = {service.name: service for service in _crossed()}


def cluster() -> list[Object]:
    """Nodes, pods and ranges, without services."""
    return [
        *map(world.node_object, NODES),
        *map(world.pod_object, world.PODS),
        objects.service_cidr(list(world.SERVICE_RANGES)),
    ]


def everything() -> list[Object]:
    return [*cluster(), *(one for service in SERVICES.values() for one in service.objects())]
