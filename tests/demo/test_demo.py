"""`make demo` as a new user runs it: it ends well, shows every step, and leaves nothing; broken, it says so."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import demo, netns
from lab.cluster import STATE, take_down

pytestmark = pytest.mark.ovs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def name() -> Iterator[str]:
    found = f"tdemo{os.getpid()}"
    yield found
    take_down(found, STATE / found)


def run(name: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lab.demo"],
        cwd=ROOT,
        env={**os.environ, "NAME": name, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def remains(name: str) -> list[str]:
    """Namespaces, processes and files of a lab."""
    found = [*netns.existing(name), *map(str, (STATE / name).glob("**"))]
    for path in Path("/proc").iterdir():
        line = netns.command_line(int(path.name)) if path.name.isdigit() else ""
        if f"/{name}/" in line:
            found.append(line)
    return found


def test_demo_shows_every_step_and_leaves_nothing(name: str) -> None:
    ran = run(name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for number, step in enumerate(demo.STEPS, 1):
        assert f"{number}. {step.__doc__}" in ran.stdout
    assert ran.stdout.count("  seen\n") == len(demo.STEPS)
    assert "every step was seen" in ran.stdout
    assert "hop limit 63" in ran.stdout
    assert ran.stderr == ""
    assert remains(name) == []


def test_demo_that_is_kept_can_be_used_and_taken_down(name: str) -> None:
    ran = run(name, KEEP="1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"lab exec --name {name} a -- ping" in ran.stdout
    lab = [sys.executable, "-m", "lab"]
    for words in (["a", "--", "ping", "-c1", "-W10", "10.10.2.10"], ["a", "--", "curl", "-s", "http://10.96.0.80/"]):
        done = subprocess.run(
            [*lab, "exec", "--name", name, *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert done.stdout.startswith("web-")
    for line in [line for line in ran.stdout.splitlines() if "-- signalbox " in line]:
        asked = shlex.split(line.strip().removeprefix(".venv/bin/signalbox lab "))
        bare = {"PATH": os.defpath}  # nobody has activated the environment
        subprocess.run([*lab, *asked], cwd=ROOT, env=bare, capture_output=True, check=True)
    subprocess.run([*lab, "down", "--name", name], cwd=ROOT, check=True)
    assert remains(name) == []


def test_demo_that_does_not_see_what_it_should_fails_and_cleans_up(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example whose service leads to a port where nobody listens."""
    wrong = Path(shutil.copytree(demo.EXAMPLE, tmp_path / "demo"))
    objects = list(yaml.safe_load_all((wrong / "web.yaml").read_text()))
    for one in objects:
        if one["kind"] == "EndpointSlice":
            one["ports"][0]["port"] = 9
    (wrong / "web.yaml").write_text(yaml.safe_dump_all(objects))
    monkeypatch.setattr(demo, "EXAMPLE", wrong)
    monkeypatch.setenv("NAME", name)
    assert demo.main() == 1
    said = capsys.readouterr().out
    assert "not seen: a → 10.96.0.80:80/tcp" in said
    assert "every step was seen" not in said
    assert remains(name) == []


def test_demo_without_open_vswitch_says_so_and_cleans_up(name: str, tmp_path: Path) -> None:
    for tool in os.environ["PATH"].split(os.pathsep):
        for program in Path(tool).iterdir() if Path(tool).is_dir() else ():
            if not program.name.startswith("ovs") and not (tmp_path / program.name).exists():
                (tmp_path / program.name).symlink_to(program)
    ran = run(name, PATH=str(tmp_path))
    assert ran.returncode == 1
    assert "ovsdb-tool" in ran.stdout
    assert "Traceback" not in ran.stderr
    assert remains(name) == []
