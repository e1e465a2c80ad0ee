"""How large packets may be: what pods with the right MTU send fits everywhere, and who sends too much is told so often.

What those are told who send too much, and that they recover, is in test_too_big.
"""

import sys
from collections.abc import Iterator

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from pipelines.ids import TOO_BIG_METER
from tests.ovs.cluster import Cluster
from tests.ovs.conftest import unique
from tests.ovs.test_too_big import BYTES, PORT, SERVER, ask
from tests.ovs.world import FAMILIES, NODES, PODS, SERVICES

pytestmark = pytest.mark.ovs

RIGHT = {"noEncap": 1500, "hybrid": 1450, "encap": 1450}
HEADERS = {4: 28, 6: 48}  # of an echo request


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("sizes") / "manifests"
    with Cluster(unique("tsizes"), directory, {"traffic_mode": "noEncap"}) as cluster:
        server = cluster.lab.popen("c", sys.executable, "-IS", "-c", SERVER)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield cluster.ready()


@pytest.fixture(scope="module", params=RIGHT)
def mode(request: pytest.FixtureRequest, running: Cluster) -> str:
    """With pods as large as they may be."""
    wanted: str = request.param
    if running.product.settings["traffic_mode"] != wanted:
        running.product.restart({"traffic_mode": wanted})
        running.ready()
    for pod in PODS:
        running.lab.set_pod_mtu(pod, RIGHT[wanted])
    return wanted


def told(cluster: Cluster) -> int:
    """Packets that were found to be too big: by the meter, because their flow's counter has those that fit as well."""
    return sum(meter(cluster, node, "packet_in_count") for node in NODES)


def echo(cluster: Cluster, client: str, address: str, size: int) -> str:
    """Of a packet of this size, not to be cut; the first one may be lost while a switch asks for its next hop's MAC."""
    bytes_ = size - HEADERS[6 if ":" in address else 4]
    words = "ping", "-c3", "-i0.2", "-W2", "-Mdo", f"-s{bytes_}", address
    return cluster.lab.run(client, *words, check=False).stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_packet_of_a_pod_arrives_everywhere(running: Cluster, mode: str, family: int) -> None:
    """One byte more its own kernel does not send."""
    before = told(running)
    for target in (PODS["b"], PODS["c"], PODS["d"], NODES["n1"], NODES["n2"], NODES["n3"]):
        said = echo(running, "a", target.addresses[family], RIGHT[mode])
        assert " 3 received" in said or " 2 received" in said, (target.name, said)
    assert " 0 received" in echo(running, "a", PODS["c"].addresses[family], RIGHT[mode] + 1)
    assert told(running) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_much_of_pods_with_the_right_mtu_needs_no_one_to_be_told(running: Cluster, mode: str, family: int) -> None:
    before = told(running)
    assert ask(running, "a", PODS["c"].addresses[family], PORT) == BYTES
    assert ask(running, "a", SERVICES["only-e"].addresses[family], 80, BYTES) > 0
    assert ask(running, "d", PODS["c"].addresses[family], PORT) == BYTES
    assert told(running) == before


def test_a_pod_that_floods_what_is_too_big_costs_the_controller_a_bounded_part_of_it(
    running: Cluster, mode: str
) -> None:
    """Between two nodes that no tunnel joins nobody is told anything."""
    dropped, before = meter(running, "n1", "packet_count"), told(running)
    source, gateway = running.lab.pod("a").station.mac, running.lab.node("n1").gateway_mac
    packet = IP(src=PODS["a"].addresses[4], dst=PODS["c"].addresses[4], flags="DF") / UDP(sport=9, dport=9)
    running.lab.set_pod_mtu("a", 1500)
    running.send("a", [Ether(src=source, dst=gateway) / packet / (b"x" * 1472)] * 2000)
    if mode != "encap":
        assert told(running) == before
        return
    assert told(running) - before > 500, "too little arrived to prove anything"
    assert meter(running, "n1", "packet_count") - dropped > (told(running) - before) / 2
    assert running.product.status("/readyz?switches") == 200


def meter(cluster: Cluster, node: str, what: str) -> int:
    """What the meter has counted: packets that came to it (packet_in_count), or that it dropped (packet_count)."""
    text = cluster.lab.ofctl(node, "meter-stats", "br0", f"meter={TOO_BIG_METER}")
    return int(text.partition(f" {what}:")[2].split()[0]) if what in text else 0
