"""What tests of changing objects say over and over: ask a service, be refused, make one and take it away."""

from collections.abc import Mapping

from lab.traffic import Answer, Probe
from tests.ovs.cluster import Cluster, spread
from tests.ovs.world import FAMILIES, PROTOCOLS, Service

VIP = "10.96.0.200", "fd00:96::200"  # of `service`


def probes(addresses: tuple[str, ...] | list[str], port: int = 80, times: int = 1, **how: float) -> list[Probe]:
    """TCP and UDP to a port of some addresses."""
    return [
        Probe(protocol, address, port, **{"timeout": 10, **how})  # type: ignore[arg-type]
        for protocol in PROTOCOLS
        for address in addresses
        for _ in range(times)
    ]


def names(
    cluster: Cluster, client: str, addresses: tuple[str, ...] | list[str], port: int = 80, times: int = 12
) -> set[str]:
    return spread(cluster.lab.probe(client, probes(addresses, port, times)))


def refused(answers: list[Answer]) -> bool:
    return {answer.error for answer in answers} == {"ECONNREFUSED"}


def service(name: str, endpoints: Mapping[str, tuple[str, ...]], families: tuple[int, ...] = FAMILIES) -> Service:
    return Service(name, 200, endpoints, families)


def gone(cluster: Cluster, name: str) -> None:
    """Deletes a service and its slices."""
    slices = [f"{name}-{protocol}-{family}" for protocol in PROTOCOLS for family in FAMILIES]
    for one in slices:
        cluster.manifests.path("EndpointSlice", one).unlink(missing_ok=True)
    cluster.delete("Service", name)
