"""Session affinity that is longer than a flow can have it: here a flow can have four seconds, and seven are wanted.

The switch forgets after four, the controller puts back what was forgotten for the other three, and when that was used
for four again.
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.product import Product
from lab.switch import BRIDGE
from tests.ovs import world
from tests.ovs.cluster import LEARNED, SETTINGS, Cluster
from tests.ovs.conftest import unique
from tests.services import asking
from tests.services.asking import CLUSTER, gone, object_of, probes
from tests.services.world import Service, ready

pytestmark = [pytest.mark.ovs, pytest.mark.usefixtures("there_and_back")]

STEP, WHOLE = 4, 7  # seconds
STICKY = Service("case", 90, ready("a", "b", "c", "d", "e", "g", "h"), affinity=WHOLE)
PATIENCE = 30


class ShortSteps(Product):
    @property
    def command(self) -> list[str]:
        script = str(Path(__file__).with_name("short_steps.py"))
        return ["env", f"SIGNALBOX_CONFIG={self._file}", sys.executable, script, str(STEP), *super().command[-2:]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("longaffinity") / "manifests"
    made = Cluster(unique("tlongaff"), directory, objects=world.everything())
    made.product = ShortSteps(made.lab, directory, SETTINGS)
    with made as running:
        yield running.ready()


class Choices:
    """What n1 knows of the clients on it: by match, the idle time, whether it was put back, and what the flow does."""

    def __init__(self, cluster: Cluster) -> None:
        dump = cluster.lab.ofctl("n1", "dump-flows", BRIDGE, "table=40").splitlines()
        self.lines = [line.strip() for line in dump if LEARNED.search(line)]
        self.put_back = {self._match(line): self._does(line) for line in self.lines if "priority=32767" in line}
        self.learned = {self._match(line): self._does(line) for line in self.lines if "priority=32767" not in line}

    @staticmethod
    def _match(line: str) -> str:
        head = line.partition(" actions=")[0].rpartition(" ")[2]
        return re.sub(r"priority=\d+,", "", head)

    @staticmethod
    def _does(line: str) -> tuple[str, str]:
        """Cookie and actions."""
        cookie = re.search(r"cookie=(0x[0-9a-f]+)", line)
        assert cookie is not None
        return cookie[1], line.partition(" actions=")[2]


def ask(cluster: Cluster) -> list[str]:
    """Who answers a pod of n1, for each protocol and family."""
    return [asking.result(answer) for answer in cluster.lab.probe("a", probes("a", STICKY, CLUSTER))]


def until_put_back(cluster: Cluster, count: int = 4) -> Choices:
    cluster.wait(lambda: len(Choices(cluster).put_back) == count, "what was forgotten to be put back", PATIENCE)
    return Choices(cluster)


def test_b44_a_client_keeps_its_endpoint_beyond_the_longest_time_of_a_flow_and_is_let_go_in_the_end(
    cluster: Cluster,
) -> None:
    cluster.put(*STICKY.objects())
    for again in range(3):
        first = ask(cluster)
        learned = Choices(cluster).learned
        assert len(learned) == 4, "each protocol and family has a choice of its own"
        assert all("idle_timeout=4," in line for line in Choices(cluster).lines)
        kept = until_put_back(cluster)
        assert kept.put_back == learned, "the same cookie and actions"
        assert all(f"idle_timeout={WHOLE - STEP}," in line for line in kept.lines)
        assert ask(cluster) == first
        last = time.monotonic()
        if not again:
            assert len(set(first)) >= 2, "one endpoint for all is no test"
        assert not Choices(cluster).learned, "what is put back is used as it is"
        cluster.wait(lambda: not Choices(cluster).lines, "all to be forgotten", PATIENCE)
        assert time.monotonic() - last >= WHOLE - 0.5
    gone(cluster, STICKY)


def test_b44_a_client_that_comes_in_time_keeps_its_endpoint_for_any_number_of_times(cluster: Cluster) -> None:
    """Every six seconds: each time the switch has forgotten it, and the time begins anew."""
    cluster.put(*STICKY.objects())
    first = ask(cluster)
    for _ in range(4):
        until_put_back(cluster)
        assert ask(cluster) == first
        cluster.wait(lambda: all("n_packets=0," in line for line in Choices(cluster).lines), "the next step", PATIENCE)
        assert len(Choices(cluster).put_back) == 4
        assert ask(cluster) == first
    gone(cluster, STICKY)


def test_b44_a_client_that_comes_all_the_time_is_never_forgotten(cluster: Cluster) -> None:
    """Its flows are those that were learned: renewed by use, and neither told nor shortened."""
    cluster.put(*STICKY.objects())
    first = ask(cluster)
    end = time.monotonic() + 2 * WHOLE
    while time.monotonic() < end:
        assert ask(cluster) == first
        choices = Choices(cluster)
        assert len(choices.learned) == 4
        assert not choices.put_back
        time.sleep(0.3)
    gone(cluster, STICKY)


def test_what_was_put_back_goes_with_its_endpoint_and_with_the_affinity(cluster: Cluster) -> None:
    cluster.put(*STICKY._replace(affinity=2 * STEP).objects())
    first = ask(cluster)
    until_put_back(cluster)
    left = STICKY._replace(ends=tuple(end for end in STICKY.ends if end.place != first[0]), affinity=2 * STEP)
    cluster.put(*left.objects())
    assert len(Choices(cluster).lines) == sum(name != first[0] for name in first)
    assert first[0] not in ask(cluster)
    until_put_back(cluster)
    cluster.put(object_of(left._replace(affinity=None)))
    assert Choices(cluster).lines == []
    gone(cluster, STICKY)
