"""The whole product on a real API server: what is written there is seen by packets in the lab."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cluster import Lab
from lab.product import Product
from lab.traffic import Probe
from tests.api.objects import CIDRS, NODES, PODS, SERVICES, SLICES
from tests.cluster.apiserver import Cluster, Refused

pytestmark = [pytest.mark.ovs, pytest.mark.api]

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo"
COLLECTIONS = {"Node": NODES, "Pod": PODS, "Service": SERVICES, "EndpointSlice": SLICES, "ServiceCIDR": CIDRS}
LINK = ("198.19.255.1", "198.19.255.2")  # controller and API servers


def objects() -> list[dict[str, Any]]:
    found = [one for path in sorted(EXAMPLE.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    order = list(COLLECTIONS)
    return sorted(found, key=lambda one: order.index(one["kind"]))


def write(cluster: Cluster, content: dict[str, Any]) -> None:
    """As an operator and a kubelet would: the object, then its status."""
    collection = COLLECTIONS[content["kind"]]
    try:
        cluster.request("POST", collection, {key: value for key, value in content.items() if key != "status"})
    except Refused as error:
        if content["kind"] != "ServiceCIDR" or error.code != 409:  # the API server makes its own
            raise
    if content["kind"] in ("Node", "Pod"):
        path = f"{collection}/{content['metadata']['name']}/status"
        cluster.request("PATCH", path, {"status": content["status"]}, patch=True)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"apiproduct{os.getpid()}", EXAMPLE) as running:
        for name in ("web-1", "web-2", "web-3"):
            running.echo(name, tcp=[8080], udp=[5353])
        yield running


@pytest.fixture(scope="module")
def product(lab: Lab, cluster: Cluster) -> Iterator[Product]:
    connect(lab, cluster)
    for content in objects():
        write(cluster, content)
    settings = {"api_servers": list(cluster.urls)}
    with Product(lab, f"kubeconfig:{cluster.kubeconfig()}", settings) as running:
        running.wait_ready()
        yield running


def connect(lab: Lab, cluster: Cluster) -> None:
    """A cable from the controller's namespace to that of the API servers."""
    controller = lab.namespace("controller")
    commands = [
        f"ip -n {controller} link add api0 type veth peer name ctl0 netns {cluster.namespace}",
        f"ip -n {controller} addr add {LINK[0]}/30 dev api0",
        f"ip -n {controller} link set api0 up",
        f"ip -n {cluster.namespace} addr add {LINK[1]}/30 dev ctl0",
        f"ip -n {cluster.namespace} link set ctl0 up",
        *(f"ip -n {controller} route add {server.address} via {LINK[1]}" for server in cluster.servers),
    ]
    for command in commands:
        subprocess.run(command.split(), check=True)


def answered(lab: Lab, host: str, protocol: Any = "tcp", port: int = 80) -> set[str]:
    """Who answers, of forty connections; errors are among the names."""
    answers = lab.probe("a", [Probe(protocol, host, port, timeout=10)] * 40)
    return {answer.names[0] if answer.ok else answer.error for answer in answers}


BACKENDS = {"web-1", "web-2", "web-3"}


@pytest.mark.parametrize("host", ["10.96.0.80", "fd00:96::50"])
def test_services_of_the_api_are_served(lab: Lab, product: Product, host: str) -> None:
    assert product.get("/v1/status")["source"]["synced"]
    assert answered(lab, host) == BACKENDS
    assert answered(lab, host, "udp", 53) == BACKENDS


def test_an_endpoint_that_leaves_its_slice_gets_no_new_connection(lab: Lab, product: Product, cluster: Cluster) -> None:
    path = f"{SLICES}/web-ipv4"
    before = cluster.request("GET", path)
    without = [one for one in before["endpoints"] if one["targetRef"]["name"] != "web-3"]
    cluster.request("PATCH", path, {"endpoints": without}, patch=True)
    product.wait(lambda: answered(lab, "10.96.0.80") == {"web-1", "web-2"}, "two endpoints")
    cluster.request("PATCH", path, {"endpoints": before["endpoints"]}, patch=True)
    product.wait(lambda: answered(lab, "10.96.0.80") == BACKENDS, "three endpoints")


def test_a_deleted_service_is_refused_and_a_new_one_served(lab: Lab, product: Product, cluster: Cluster) -> None:
    web = next(one for one in objects() if one["kind"] == "Service" and one["metadata"]["name"] == "web-v4")
    host = web["spec"]["clusterIP"]
    assert answered(lab, host, port=8000) == BACKENDS
    cluster.request("DELETE", f"{SERVICES}/web-v4")
    product.wait(lambda: answered(lab, host, port=8000) == {"ECONNREFUSED"}, "refusals")
    write(cluster, web)
    product.wait(lambda: answered(lab, host, port=8000) == BACKENDS, "the service again")


def test_when_an_api_server_dies_the_next_one_is_followed(lab: Lab, product: Product, cluster: Cluster) -> None:
    first, second = cluster.servers
    first.kill()
    try:
        assert answered(lab, "10.96.0.80") == BACKENDS, "packets do not wait for an API server"
        path = f"{SLICES}/web-ipv4"
        before = second.request("GET", path)
        only = [one for one in before["endpoints"] if one["targetRef"]["name"] == "web-2"]
        second.request("PATCH", path, {"endpoints": only}, patch=True)
        product.wait(lambda: answered(lab, "10.96.0.80") == {"web-2"}, "one endpoint", 60)
        second.request("PATCH", path, {"endpoints": before["endpoints"]}, patch=True)
        product.wait(lambda: answered(lab, "10.96.0.80") == BACKENDS, "three endpoints", 60)
    finally:
        first.start()
        first.wait_ready()


def api_servers(product: Product) -> set[str]:
    """The endpoints of default/kubernetes, which API servers announce themselves."""
    service = next(row for row in product.get("/v1/services") if row["name"] == "default/kubernetes")
    return {endpoint["address"] for front in service["frontends"] for endpoint in front["endpoints"]}


def test_a_restart_on_an_unchanged_cluster_writes_nothing(lab: Lab, product: Product, cluster: Cluster) -> None:
    both = {server.address for server in cluster.servers}
    product.wait(lambda: api_servers(product) == both, "the server that was restarted to announce itself", 60)
    product.restart()
    product.wait_ready()
    assert [row["flow_mods_sent"] for row in product.get("/v1/switches")] == [0, 0, 0]
    assert answered(lab, "10.96.0.80") == BACKENDS
