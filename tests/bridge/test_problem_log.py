"""What the log says about problems: each once, when it appears and when it is no more."""

import logging

import pytest

from k8s_bridge.directory import DirectorySource
from k8s_bridge.source import MOST_LINES, ProblemLog, log_difference
from pipelines.model import Change, Invalid, Kind, Node, Problem
from tests.bridge.recording import Recording

ONE, TWO = (Problem(Kind.NODE, "n1", field, "is wrong") for field in ("spec.podCIDRs[0]", "spec.podCIDRs[1]"))
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDRs: [%s]}\n"


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "signalbox.source")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of what was logged since the last call."""
    records = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return records


def node(*problems: Problem) -> Change:
    return Change(Kind.NODE, "n1", Node("n1", problems=problems))


def test_a_problem_is_said_once_and_when_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    log = ProblemLog()
    log.note([node(ONE)])
    assert said(caplog) == [("WARNING", "Node n1: spec.podCIDRs[0]: is wrong")]
    log.note([node(ONE, TWO)])
    assert said(caplog) == [("WARNING", "Node n1: spec.podCIDRs[1]: is wrong")]
    log.note([node(TWO)])
    assert said(caplog) == [("INFO", "mended: Node n1: spec.podCIDRs[0]: is wrong")]
    log.note([Change(Kind.NODE, "n1", Invalid((TWO,)))])
    assert said(caplog) == []
    log.note([Change(Kind.NODE, "n1", None)])
    assert said(caplog) == [("INFO", "mended: Node n1: spec.podCIDRs[1]: is wrong")]


def test_thousands_of_problems_are_some_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    many = [Problem(Kind.POD, f"default/p{number}", "status.podIP", "is wrong") for number in range(1000)]
    log_difference((), many)
    lines = said(caplog)
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == ("WARNING", f"{1000 - MOST_LINES} problems more, see /v1/problems")


def test_a_directory_says_when_a_manifest_is_mended(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    source = DirectorySource(tmp_path, Recording())
    path = tmp_path / "node.yaml"

    def settled(text: str) -> list[tuple[str, str]]:
        path.write_text(text)
        while not source.look():
            pass
        source.look()
        return said(caplog)

    (first,) = settled(NODE % "10.0.0.0")
    assert first == ("WARNING", "Node n1: spec.podCIDRs[0]: '10.0.0.0' has no prefix length")
    assert settled(NODE % "10.0.0.0/24") == [("INFO", f"mended: {first[1]}")]


def test_a_directory_says_when_it_is_there_again(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    source = DirectorySource(tmp_path / "manifests", Recording())
    source.look()
    source.look()
    ((level, text),) = said(caplog)
    assert (level, "cannot be read" in text) == ("WARNING", True)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "node.yaml").write_text(NODE % "10.0.0.0/24")
    while not source.look():
        pass
    assert said(caplog) == [("INFO", f"mended: {text}")]
