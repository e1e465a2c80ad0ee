"""Packets too big for the tunnel, of pods that do not know: everybody who sends is told, and then everything fits."""

import sys
from collections.abc import Iterator

import pytest

from pipelines.features import NUMBERS
from pipelines.features.egress import TOO_BIG
from pipelines.ids import OWN_COOKIE
from tests.ovs.cluster import Cluster
from tests.ovs.world import FAMILIES, PLACES, PODS, SERVICES, gateway

pytestmark = pytest.mark.ovs

SETTINGS = {"traffic_mode": "encap"}
PORT, BYTES = 9999, 20_000
LARGE = 1440  # bytes of an echo: with headers more than the 1450 of the tunnel, less than the 1500 of the pod

SERVER = f"""
import socket
listening = socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    connection.sendall(bytes({BYTES}))
    connection.close()
"""
ASK = """
import socket, sys
host, port, send = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = socket.create_connection((host, port), timeout=10)
connection.sendall(b"x" * send + b"\\n" * (send > 0))
received = 0
while data := connection.recv(65536):
    received += len(data)
    if send:
        break
print(received)
"""


@pytest.fixture(autouse=True)
def server(cluster: Cluster) -> Iterator[None]:
    """Sends much to whoever connects to pod c."""
    process = cluster.lab.popen("c", sys.executable, "-IS", "-c", SERVER)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
    process.kill()
    process.communicate()


def forget(cluster: Cluster) -> None:
    """What senders have learned about sizes."""
    for place in ("a", "c", "n1"):
        for family in FAMILIES:
            cluster.lab.run(place, "ip", f"-{family}", "route", "flush", "cache", check=False)


def ask(cluster: Cluster, place: str, host: str, port: int, send: int = 0) -> int:
    result = cluster.lab.run(place, sys.executable, "-IS", "-c", ASK, host, str(port), str(send))
    return int(result.stdout)


def told(cluster: Cluster) -> int:
    """Packets that were too big so far."""
    match = f"table=102,cookie={OWN_COOKIE | NUMBERS[TOO_BIG] << 49:#x}/{0xFFFE << 48:#x}"
    return cluster.packets("n1", match) + cluster.packets("n2", match)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("peer", ["c", "d"])
def test_the_first_packet_of_a_pod_that_may_not_be_cut_is_answered(cluster: Cluster, peer: str, family: int) -> None:
    forget(cluster)
    words = "ping", "-c2", "-i0.3", "-W2", f"-s{LARGE}", "-Mdo", PODS[peer].addresses[family]
    output = cluster.lab.run("a", *words, check=False).stdout
    assert f"From {gateway('n1', family)}" in output, output
    assert "1450" in output


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_sends_much_to_a_service_behind_a_tunnel(cluster: Cluster, family: int) -> None:
    forget(cluster)
    before = told(cluster)
    assert ask(cluster, "a", SERVICES["only-e"].addresses[family], 80, BYTES) > 0
    assert told(cluster) > before, "nothing was too big: this proves nothing"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", ["a", "n1"])
def test_a_pod_answers_with_much_through_a_tunnel(cluster: Cluster, client: str, family: int) -> None:
    forget(cluster)
    before = told(cluster)
    assert ask(cluster, client, PODS["c"].addresses[family], PORT) == BYTES
    assert told(cluster) > before or client == "n1", "nothing was too big: this proves nothing"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", ["e", "only-e"])
def test_a_node_sends_much_to_a_pod_behind_a_tunnel(cluster: Cluster, target: str, family: int) -> None:
    forget(cluster)
    if target in PLACES:
        assert ask(cluster, "n1", PLACES[target].addresses[family], 8080, BYTES) > 0
    else:
        assert ask(cluster, "n1", SERVICES[target].addresses[family], 80, BYTES) > 0
