"""The controller behind the nodes' own uplinks: whoever starts, dies or is cut off, the switches find it again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Lab
from lab.netns import LabError
from lab.product import Product
from tests.lab.waiting import reaches, unique

pytestmark = pytest.mark.ovs

DEMO = Path(__file__).parents[2] / "examples" / "demo"
WAYS = ("10.10.2.10", "10.10.3.10", "fd00:10:2::10", "fd00:10:3::10")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(DEMO, tmp_path_factory.mktemp("inband") / "manifests")


@pytest.fixture(scope="module")
def product(manifests: Path) -> Iterator[Product]:
    with (
        Lab(unique("inband"), manifests, in_band=True) as lab,
        Product(lab, manifests, {"echo_interval": 1, "echo_timeout": 4}) as running,
    ):
        running.wait_ready(40)
        yield running


def switches(product: Product) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in product.get("/v1/switches")}


def anew(product: Product, before: dict[str, dict[str, Any]], *nodes: str) -> None:
    """Until these have another connection than they had, and all are what they should be."""

    def connected() -> bool:
        now = switches(product)
        return all(node in now and now[node]["peer"] != before[node]["peer"] for node in nodes)

    product.wait(connected, f"{nodes} to connect anew", 40)
    product.wait_ready(40)
    reaches(product.lab, "a", *WAYS)


def test_switches_connect_from_their_own_addresses(product: Product) -> None:
    peers = {node: row["peer"].rpartition(":")[0] for node, row in switches(product).items()}
    assert peers == {"n1": "192.168.77.101", "n2": "192.168.77.102", "n3": "192.168.88.103"}
    assert product.lab.plan.controller == "tcp:192.168.77.250:6653"
    assert "mgmt" not in product.lab.run("n1", "ip", "link", "show").stdout
    reaches(product.lab, "a", *WAYS)


def test_controller_restarts(product: Product) -> None:
    before = switches(product)
    product.kill()
    reaches(product.lab, "a", *WAYS)  # as they were told
    product.start()
    product.wait(lambda: product.status("/readyz?switches") == 200, "the controller", 40)
    anew(product, before, "n1", "n2", "n3")


def test_no_service_takes_the_controllers_address(product: Product, manifests: Path) -> None:
    """Else its next restart would be the last thing that the switches hear of it."""
    spec = {"clusterIP": "10.96.0.250", "clusterIPs": ["10.96.0.250"], "externalIPs": ["192.168.77.250"]}
    thief = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "thief"}}
    file = manifests / "thief.yaml"
    file.write_text(json.dumps({**thief, "spec": {**spec, "ports": [{"port": 6653, "protocol": "TCP"}]}}))
    reason = "192.168.77.250 is where switches find this controller; ignored here"
    product.wait(lambda: reason in [row["reason"] for row in product.get("/v1/problems")], "the service to be told")
    product.wait_ready(40)
    before = switches(product)
    product.kill()
    product.start()
    product.wait(lambda: product.status("/readyz?switches") == 200, "the controller", 40)
    anew(product, before, "n1", "n2", "n3")
    file.unlink()


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_vswitchd_restarts(product: Product, node: str) -> None:
    before = switches(product)
    product.lab.kill_vswitchd(node)
    product.lab.start_vswitchd(node)
    anew(product, before, node)


def test_cable_is_cut_and_mended(product: Product) -> None:
    product.lab.set_link("n2", up=False)
    product.wait(lambda: "n2" not in switches(product), "n2 to be missed", 40)
    product.lab.set_link("n2", up=True)
    product.wait(lambda: "n2" in switches(product), "n2 to be back", 40)
    product.wait_ready(40)
    reaches(product.lab, "a", *WAYS)


def test_router_on_the_way_fails(product: Product) -> None:
    assert product.lab.fail_over() == "router2"
    product.wait_ready(40)
    reaches(product.lab, "controller", "192.168.88.103")
    reaches(product.lab, "a", *WAYS)


def test_there_is_no_other_cable_to_cut(product: Product) -> None:
    with pytest.raises(LabError, match="no cable to the controller"):
        product.lab.set_link("n1", up=False, management=True)
