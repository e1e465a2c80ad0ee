"""What the lab's commands say when a name is wrong or somebody interrupts, without building anything."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab import cli, cluster, demo
from lab.cluster import Lab
from lab.netns import LabError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for name in ("two", "one"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").touch()
    (tmp_path / "remains").mkdir()
    return tmp_path


def test_labs_that_are_up_are_named_beside_a_wrong_name(state: Path) -> None:
    with pytest.raises(LabError, match=r"^no lab three is up; there are: one, two$"):
        Lab.attach("three", state)
    with pytest.raises(LabError, match=r"there are: none$"):
        Lab.attach("three", state / "one")


def test_the_list_names_each_lab(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "labs", lambda: cluster.labs(state))
    assert CliRunner().invoke(cli.lab, ["list"]).stdout == "one\ntwo\n"


def test_taking_down_what_is_not_there_says_what_is(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "labs", lambda: cluster.labs(state))
    monkeypatch.setattr(cli, "STATE", state)
    ran = CliRunner().invoke(cli.lab, ["down", "--name", "nowhere"])
    assert (ran.exit_code, ran.stderr) == (0, "there is nothing of a lab nowhere; up are: one, two\n")


def test_a_demo_that_is_interrupted_says_so_in_a_line_and_takes_its_lab_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    class Interrupted:
        def __init__(self, *_: Any) -> None:
            pass

        def up(self, replace: bool) -> None:
            del replace
            raise KeyboardInterrupt

        def down(self) -> None:
            done.append("down")

    monkeypatch.setattr(demo, "Lab", Interrupted)
    assert demo.main() == 130
    assert done == ["down"]
    assert capsys.readouterr().out.splitlines()[-1] == "interrupted"
