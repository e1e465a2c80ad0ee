"""A fault of Signalbox's own: what is said about it, and that no switch loses by it what it holds.

The whole product in this process, with a switch that is not there and a feature that fails.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import eventlet.wsgi
import pytest

from apps import answers, metrics
from controller.fake import Fake, FakePort
from controller.session import State
from k8s_bridge import manifests
from k8s_bridge.source import SourceStatus
from pipelines.addresses import pod_port_name
from pipelines.compiler import Compiler
from pipelines.features import FEATURES
from pipelines.ids import split_cookie
from pipelines.model import Change, Kind
from pipelines.unit import FLEET, ScopeKind, UnitKey
from tests.apps.stub import DEMO, StubFabric, session_row
from tests.controller.world import until

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    eventlet.wsgi.ALREADY_HANDLED = ()  # as `apps.ryu_manager` does, without patching this process

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ryu's dependencies import what is deprecated
    from apps import fabric as product

FEATURE = {feature.name: feature for feature in FEATURES}
WHOLE = next(one for one in FEATURES if one.subject is Kind.SETTINGS and one.scope is ScopeKind.FLEET)


class Source:
    """The demo's objects, at once."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def run(self) -> None:
        self._sink.apply([Change(*key, value) for key, value in manifests.read(DEMO).values.items()])
        self._sink.synced()

    def status(self) -> SourceStatus:
        return SourceStatus("demo", synced=True, complete=True)


class Deaf:
    """In place of the listener: switches are handed over here."""

    address = ("127.0.0.1", 0)

    def __init__(self, *args: object) -> None:
        pass

    def start(self) -> None:
        pass


def broken(name: str, at: str = "") -> Compiler:
    """Its feature of that name fails, for the object `at` if one is named."""

    def compile_(value: Any, view: Any) -> Any:
        if not at or getattr(value, "key", "") == at:
            raise KeyError("of no use")
        return FEATURE[name].compile(value, view)

    return Compiler(features=tuple(one._replace(compile=compile_) if one.name == name else one for one in FEATURES))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Starts products, one after the other."""
    threads: list[Any] = []
    spawn = eventlet.spawn

    def spawned(*args: Any, **kwargs: Any) -> Any:
        threads.append(spawn(*args, **kwargs))
        return threads[-1]

    monkeypatch.setattr("apps.fabric.hub.spawn", spawned)
    config = tmp_path / "signalbox.yaml"
    config.write_text(f"source: {DEMO}\n")
    monkeypatch.setenv("SIGNALBOX_CONFIG", str(config))
    monkeypatch.delenv("SIGNALBOX_OPTIONS", raising=False)
    monkeypatch.setattr("apps.fabric.gc.freeze", lambda: None)
    monkeypatch.setattr("apps.fabric.gc.set_threshold", lambda *numbers: None)
    monkeypatch.setattr(product, "Listener", Deaf)
    monkeypatch.setattr("apps.fabric.assembly.source", lambda config, sink, spawn: Source(sink))

    def start(compiler: Compiler | None = None) -> Any:
        monkeypatch.setattr(product, "Compiler", lambda: compiler or Compiler())
        made = product.Fabric()
        made.start()
        until(lambda: made.compilations)
        return made

    yield start
    for thread in threads:
        thread.kill()


def switch() -> Fake:
    pod = FakePort(10, pod_port_name("default", "a"), 0x0A580A0A010A)
    uplink, local = FakePort(1, "eth1", 0xAA0000000001), FakePort(0xFFFFFFFE, "br0", 0xAA0000000001)
    return Fake(1, (uplink, FakePort(2, "gw0", 0x0A580A0A0101), local, pod))


def plug(made: Any, fake: Fake) -> None:
    eventlet.spawn_n(made.switches.serve, fake.pair(), "fake")
    until(made.switches.sessions)


def state(made: Any) -> State:
    (row,) = made.switches.sessions()
    found: State = row.state
    return found


def filled(start: Any) -> Fake:
    """A switch that a sound product has served."""
    fake, made = switch(), start()
    plug(made, fake)
    until(lambda: state(made) is State.READY and made.changes_pending == 0 and fake.tables.flows)
    fake.unplug()
    until(lambda: not made.switches.sessions())
    return fake


def test_what_concerns_every_switch_and_fails_lets_no_switch_be_written_to(started: Any) -> None:
    fake = filled(started)
    held, commits = dict(fake.tables.flows), fake.commits
    made = started(broken(WHOLE.name))
    plug(made, fake)
    eventlet.sleep(0.3)
    assert (fake.tables.flows, fake.commits) == (held, commits)
    assert answers.not_ready(made, switches_too=False) == [
        "no switch is written to",
        f"a fault of Signalbox concerns every switch: {WHOLE.name}: KeyError: 'of no use'",
    ]
    assert not answers.status(made)["ready"]
    (problem,) = [one for one in made.problems() if one.field == "compile"]
    assert (problem.kind, problem.key) == ("Settings", "")
    text = metrics.FabricCollector(made).text().decode()
    assert "signalbox_ready 0.0" in text
    assert 'signalbox_problems{kind="Settings"} 1.0' in text


def test_an_object_that_fails_keeps_its_flows_on_a_switch_that_comes_back(started: Any) -> None:
    fake = filled(started)
    number = FEATURE["classify.pod"].number
    cookies = {key: split_cookie(flow.cookie) for key, flow in fake.tables.flows.items()}
    before = {key for key, found in cookies.items() if found and found.feature == number}
    made = started(broken("classify.pod", "default/a"))
    plug(made, fake)
    until(lambda: state(made) is State.READY)
    assert before
    assert before <= fake.tables.flows.keys()
    assert answers.not_ready(made, switches_too=False) == []
    (reason,) = answers.not_ready(made, switches_too=True)
    assert reason == "a fault of Signalbox leaves objects out: classify.pod default/a: KeyError: 'of no use'"


def test_a_compilation_that_fails_as_a_whole_is_never_ready(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = started()
    until(lambda: made.fleet.ready)
    assert answers.not_ready(made, switches_too=False) == []
    monkeypatch.setattr(made.compiler, "_assign_groups", partial(int, "none"))
    made.apply([Change(Kind.POD, "default/a", None)])
    until(lambda: answers.not_ready(made, switches_too=False))
    (reason,) = answers.not_ready(made, switches_too=False)
    assert reason.startswith("compiling failed")
    assert not made.fleet.in_sync()


# --- what is said, with a stub -------------------------------------------------------------------------------


def test_units_that_cannot_be_encoded_are_not_passed_over_in_silence() -> None:
    fabric = StubFabric()
    fabric.connect({1: ("n1", State.READY)})
    fabric.fleet.errors[UnitKey("services.group", FLEET, "default/web")] = "too long"
    assert answers.not_ready(fabric, switches_too=False) == []
    (reason,) = answers.not_ready(fabric, switches_too=True)
    assert reason.endswith("services.group [fleet] default/web: too long")
    fabric.fleet.errors[UnitKey("misses", FLEET, "")] = "too long"
    (reason,) = answers.not_ready(fabric, switches_too=False)
    assert reason.endswith("concerns every switch: misses [fleet]: too long")


def test_switches_that_no_node_names_are_not_called_ready() -> None:
    fabric = StubFabric()
    fabric.connect({7: ("", State.UNCLAIMED), 8: ("", State.UNCLAIMED)})
    (reason,) = answers.not_ready(fabric, switches_too=True)
    assert reason.startswith("all 2 switches are UNCLAIMED: no Node names it by the annotation")
    assert answers.not_ready(fabric, switches_too=False) == []


def test_a_switch_that_gets_no_flows_is_a_problem_that_says_what_to_do() -> None:
    rows = [session_row(1, "n1", State.READY), session_row(2, "n2", State.SLAVE), session_row(9, "", State.UNCLAIMED)]
    slave, unclaimed = answers.switch_problems(rows)
    assert (slave.key, slave.field) == ("0000000000000002", "role")
    assert "`signalbox claim` takes it back" in slave.reason
    assert (unclaimed.key, unclaimed.field) == ("0000000000000009", "datapath id")
    assert "annotate its Node with signalbox.dev/datapath-id=0000000000000009" in unclaimed.reason
    assert "`signalbox release 0000000000000009`" in unclaimed.reason


def test_the_switch_of_another_master_is_taken_back_by_claim() -> None:
    fabric = StubFabric()
    fabric.connect({1: ("n1", State.SLAVE)})
    assert answers.not_ready(fabric, switches_too=True) == [
        "the switch of n1 is SLAVE; `signalbox claim` takes it back"
    ]


def test_status_names_the_nodes_whose_switch_is_not_there() -> None:
    fabric = StubFabric()
    fabric.connect({1: ("n1", State.READY)})
    assert answers.status(fabric)["nodes_without_switch"] == ["n2", "n3"]
