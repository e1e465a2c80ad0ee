"""The running product on real switches, attacked: what happens around an attack is seen by packets."""

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import switch
from lab.cluster import Lab
from lab.product import Product
from lab.traffic import Probe
from tests.attack.faults import Faults

pytestmark = pytest.mark.ovs

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo"
CLIENTS = ("a", "c", "d", "n1", "n2", "n3")
WEB = ("10.96.0.80", "fd00:96::50")
BACKENDS = ("10.10.1.20", "10.10.2.20", "10.10.3.20", "fd00:10:1::20", "fd00:10:2::20", "fd00:10:3::20")
SEED, CHAOS = 5, 20.0


class Attacked:
    """A lab with the product on the manifests of the demo, each object in a file of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lab = Lab(f"attacked{os.getpid()}", EXAMPLE)
        self.product = Product(
            self.lab, directory, {"audit_interval": 2, "echo_interval": 1, "echo_timeout": 4, "reject_rate": 2000}
        )
        self.files: dict[str, str] = {}
        for path in EXAMPLE.glob("*.yaml"):
            for one in yaml.safe_load_all(path.read_text()):
                self.files[f"{one['kind']}-{one['metadata']['name']}.yaml".lower()] = yaml.safe_dump(one)
        directory.mkdir()
        for name in self.files:
            self.put(name)

    def put(self, name: str, *objects: dict[str, Any]) -> None:
        """An object of the demo by its file, or others."""
        text = yaml.safe_dump_all(objects) if objects else self.files[name]
        (self.directory / ".new").write_text(text)
        (self.directory / ".new").rename(self.directory / name)

    def drop(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    def of_kind(self, kind: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{kind}-")]

    def vswitchd(self, node: str) -> int:
        pid = switch.pid(self.lab.switch_directory(node), "ovs-vswitchd")
        assert pid is not None
        return pid

    def broken(self, clients: tuple[str, ...] = CLIENTS) -> list[str]:
        """What does not answer: the service, and each of its endpoints directly, in both families."""
        wrong = []
        for client in clients:
            probes = [Probe("tcp", host, 80, timeout=5) for host in WEB for _ in range(4)]
            probes += [Probe("udp", host, 53, timeout=5) for host in WEB]
            probes += [Probe("tcp", host, 8080, timeout=5) for host in BACKENDS]
            answers = self.lab.probe(client, probes)
            wrong += [
                f"{client} to {probe.host}: {answer.error}"
                for probe, answer in zip(probes, answers, strict=True)
                if not answer.ok
            ]
        return wrong

    def well(self) -> None:
        """Soon everything answers, and switches hold exactly what they should."""
        self.product.wait_ready()
        self.product.wait(lambda: not self.broken(), "every client to be served", 60)
        rows = self.product.get("/v1/switches")
        assert [row["exceptions"] for row in rows] == [[], [], []]
        self.product.wait(self.equal, "no difference", 60)
        assert "Traceback" not in self.product.log.read_text()

    def equal(self) -> bool:
        paths = [f"/v1/switches/{row['dpid']}/diff" for row in self.product.get("/v1/switches")]
        return len(paths) == 3 and all(self.product.get(path)["equal"] for path in paths)

    def problems(self) -> str:
        return " ".join(f"{one['kind']} {one['object']}" for one in self.product.get("/v1/problems"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    running = Attacked(tmp_path_factory.mktemp("attacked") / "manifests")
    with running.lab as lab:
        for name in ("web-1", "web-2", "web-3"):
            lab.echo(name, tcp=[8080], udp=[5353])
        with running.product:
            running.well()
            yield running


def test_node_that_is_made_anew_while_its_switch_is_stuck_keeps_its_ports(attacked: Attacked) -> None:
    os.kill(attacked.vswitchd("n1"), signal.SIGSTOP)
    try:
        attacked.put("service-more.yaml", service("more", "10.96.3.1"))  # so that its session waits
        time.sleep(0.5)
        attacked.drop("node-n1.yaml")
        attacked.product.wait(lambda: len(attacked.product.get("/v1/nodes")) == 2, "n1 to be gone")
        attacked.put("node-n1.yaml")
        attacked.product.wait(lambda: len(attacked.product.get("/v1/nodes")) == 3, "n1 to be back")
    finally:
        os.kill(attacked.vswitchd("n1"), signal.SIGCONT)
    attacked.product.wait(
        lambda: not any(row["ports_missing"] for row in attacked.product.get("/v1/nodes")), "its ports"
    )
    attacked.drop("service-more.yaml")
    attacked.well()


def service(name: str, address: str) -> dict[str, Any]:
    spec = {"clusterIP": address, "ports": [{"name": "p", "port": 8080}, {"name": "q", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def service_range(name: str, *cidrs: str) -> dict[str, Any]:
    spec = {"cidrs": list(cidrs)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": spec}


def stranger(name: str, address: str, cidr: str) -> dict[str, Any]:
    notes = {"signalbox.dev/node-addresses": address, "signalbox.dev/datapath-id": "0000000000000001"}
    meta = {"name": name, "creationTimestamp": "2030-01-01T00:00:00Z", "annotations": notes}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"podCIDRs": [cidr]}}


BAD = [
    service_range("pods", "10.0.0.0/8", "fd00::/8"),
    service_range("nodes", "192.168.0.0/16"),
    service_range("one-pod", "10.10.2.20/32"),
    service("pods-address", "10.10.2.20"),
    service("nodes-address", "192.168.77.102"),
    service("gateways-address", "10.10.1.1"),
    stranger("x1", "10.10.2.20/24", "10.96.0.0/16"),
    stranger("x2", "192.168.77.102/24", "10.10.0.0/16"),
    stranger("x3", "10.96.0.80/16", "192.168.77.0/24"),
]


def test_objects_that_want_what_others_have_harm_nobody(attacked: Attacked) -> None:
    attacked.put("bad.yaml", *BAD)
    named = [f"{one['kind']} {'default/' * (one['kind'] == 'Service')}{one['metadata']['name']}" for one in BAD]
    attacked.product.wait(lambda: all(name in attacked.problems() for name in named), "all of them to be told")
    attacked.well()
    attacked.drop("bad.yaml")
    attacked.product.wait(lambda: not attacked.problems(), "no problem")
    attacked.well()


def test_node_without_gw0_is_still_reached_by_the_others(attacked: Attacked) -> None:
    first, second = switch.renumber(attacked.lab.node("n1"), "gw0", 44)
    attacked.lab.run("n1", *first)
    attacked.product.wait(lambda: attacked.product.get("/v1/nodes")[0]["ports_missing"] == ["gw0"], "gw0 to be missed")
    for place, host in (("n2", "192.168.77.101"), ("n2", "fd00:77::101"), ("outside", "192.168.77.101")):
        attacked.lab.run(place, "ping", "-c1", "-W10", host)
    attacked.lab.run("n1", *second)
    attacked.lab.renumber_port("n1", "gw0", 45)
    attacked.well()


STEPS = ("node", "pod", "service", "endpointslice", "switch", "ports")


def test_the_order_in_which_things_appear_does_not_matter(attacked: Attacked) -> None:
    chosen = random.Random(SEED)
    for order in chosen.sample(list(permutations(STEPS)), 4):
        for kind in ("node", "pod", "service", "endpointslice"):
            for name in attacked.of_kind(kind):
                attacked.drop(name)
        attacked.product.wait(lambda: attacked.product.get("/v1/nodes") == [], "no node to be left")
        for step in order:
            if step == "switch":
                attacked.lab.restart_vswitchd("n2")
            elif step == "ports":
                pod = attacked.lab.pod("web-1").port
                attacked.lab.renumber_port("n1", pod, chosen.randint(50, 99))
            else:
                for name in attacked.of_kind(step):
                    attacked.put(name)
            time.sleep(chosen.choice((0, 0.1, 0.4)))
        attacked.well()


def test_a_loop_of_faults_ends_with_everything_in_place(attacked: Attacked) -> None:
    """Controller, switches, databases, cables, tables, ports: whatever fails, at whatever moment."""
    chosen = random.Random(SEED)

    def change() -> None:
        attacked.put("service-more.yaml", service("more", f"10.96.3.{chosen.randint(1, 250)}"))

    Faults(attacked.lab, attacked.product, chosen).loop(CHAOS, change)
    attacked.drop("service-more.yaml")
    attacked.product.wait_ready(40)
    attacked.well()
