"""What the cases say over and over: ask a service by its addresses, and who answered."""

from collections.abc import Collection, Iterable

from lab.traffic import Answer, Probe
from tests.ovs.cluster import Cluster
from tests.ovs.objects import Object
from tests.ovs.world import FAMILIES, NODES, PLACES, PROTOCOLS
from tests.services.world import Door, Service

CLUSTER, BALANCER, EXTERNAL = Door("ClusterIP"), Door("LoadBalancer"), Door("external IP")
AT_N1, AT_N2, AT_N3 = (Door("NodePort", node) for node in ("n1", "n2", "n3"))
ALL = (CLUSTER, BALANCER, EXTERNAL, AT_N1, AT_N2, AT_N3)
OUTER = (BALANCER, EXTERNAL, AT_N1, AT_N2, AT_N3)

PATIENCE = 8.0  # seconds
SILENCE = 1.0  # seconds without an answer
REFUSED, DROPPED = {"ECONNREFUSED"}, {"timeout"}


def probes(
    client: str,
    service: Service,
    door: Door,
    times: int = 1,
    *,
    protocols: Iterable[str] = PROTOCOLS,
    families: Collection[int] = FAMILIES,
    dropped: bool = False,
) -> list[Probe]:
    """In every family that the client, the service and the address have. `dropped`: nothing should come."""
    return [
        Probe(
            protocol,  # type: ignore[arg-type]
            service.address(door, family),
            service.port(door, protocol),
            timeout=SILENCE if dropped else PATIENCE / 4 if protocol == "udp" else PATIENCE,
            tries=1 if dropped else 4,
        )
        for protocol in protocols
        for family in families
        if family in PLACES[client].addresses and (not door.node or family in NODES[door.node].addresses)
        for _ in range(times)
    ]


def result(answer: Answer) -> str:
    """The name of who answered, else the error."""
    return answer.names[0] if answer.ok else answer.error


def who(cluster: Cluster, client: str, service: Service, *doors: Door, times: int = 1, **how: object) -> set[str]:
    """Who answered by any of these addresses; errors are among them."""
    wishes = [probe for door in doors for probe in probes(client, service, door, times, **how)]  # type: ignore[arg-type]
    return {result(answer) for answer in cluster.lab.probe(client, wishes)}


def by_door(
    cluster: Cluster, client: str, service: Service, *doors: Door, times: int = 1, **how: object
) -> dict[str, set[str]]:
    """The same for each address by itself, all asked at once."""
    wishes = [(door, one) for door in doors for one in probes(client, service, door, times, **how)]  # type: ignore[arg-type]
    answers = cluster.lab.probe(client, [one for _, one in wishes])
    found: dict[str, set[str]] = {}
    for (door, _), answer in zip(wishes, answers, strict=True):
        found.setdefault(str(door), set()).add(result(answer))
    return found


AT_ONCE = 10  # what one client process has under way


class Running:
    """Long probes, all of them at once."""

    def __init__(self, cluster: Cluster, client: str, wishes: list[Probe]) -> None:
        parts = [wishes[first : first + AT_ONCE] for first in range(0, len(wishes), AT_ONCE)]
        self._started = [cluster.lab.start_probes(client, part) for part in parts]

    def answers(self, timeout: float = 90) -> list[Answer]:
        """In their order."""
        return [answer for started in self._started for answer in started.answers(timeout)]


def remains(cluster: Cluster, *addresses: str) -> list[str]:
    """Flows of any node that name one of these addresses."""
    return [
        flow
        for node in NODES
        for flow in cluster.flows(node)
        if any(f"={address}" in flow.replace("/", ",").split(",") or f"={address}," in flow for address in addresses)
    ]


def gone(cluster: Cluster, *services: Service) -> None:
    """Deletes services and their slices."""
    with cluster.taken():
        for service in services:
            paths = cluster.manifests.directory.glob(f"endpointslice-{service.name}-*-[46].yaml")
            for path in (*paths, cluster.manifests.path("Service", service.name)):
                path.unlink(missing_ok=True)


def object_of(service: Service) -> Object:
    """The Service without its slices."""
    return service.objects()[0]
