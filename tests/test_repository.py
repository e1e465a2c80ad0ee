"""What must hold for the repository as a whole, whatever the product does."""

import configparser
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("apps", "controller", "k8s_bridge", "lab", "node", "pipelines")
TARGETS = ("help", "setup", "demo", "test", "lint", "types", "docs", "golden", "bench", "matrix", "cluster", "clean")
RYU_MANAGER = Path(sys.prefix, "bin", "ryu-manager")


def committed() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(map(str.strip, line.split("==")) for line in lines if line and not line.startswith("#"))  # type: ignore[misc]


def test_versions_are_pinned_in_one_place() -> None:
    config = configparser.RawConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = "\n".join([config["options"]["install_requires"], *config["options.extras_require"].values()])
    requirements = [line for line in wanted.splitlines() if line.strip() and not line.startswith("%")]
    pinned = {name_of(name) for name in pins()}
    assert len(requirements) > 10
    for requirement in requirements:
        assert not re.search(r"[<>=~!]", requirement.partition(";")[0]), f"setup.cfg holds a version: {requirement}"
        assert name_of(requirement) in pinned, f"constraints.txt lacks {requirement}"


def test_what_is_installed_is_what_is_pinned() -> None:
    pinned = {name_of(name): version for name, version in pins().items()}
    for distribution in distributions():
        name = name_of(distribution.metadata["Name"])
        if name != "signalbox-sdn":
            assert pinned.get(name) == distribution.version, f"{name} {distribution.version} is not what is pinned"


@pytest.mark.parametrize("package", PACKAGES)
def test_files_stay_short(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    too_long = [f"{file}: {lines}" for file in files if (lines := len(file.read_text().splitlines())) >= 400]
    assert not too_long


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_tells_its_story(package: str) -> None:
    files = [file for file in (ROOT / package).rglob("*.py") if file.read_text().strip()]
    assert not [str(file) for file in files if not re.match(r'(#!.*\n)?r?"""\S', file.read_text())]


def test_changelog_has_unreleased_changes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "\n## Unreleased\n" in text
    assert "\n- " in text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]


def test_no_committed_file_names_a_place_of_one_machine() -> None:
    forbidden = ["/work/", "/root/", "/home/user/", ".pythonhosted.org", "pypi.org/simple", "proxy.golang.org"]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in committed()
        if path != Path(__file__)  # which has to name them
        for word in forbidden
        if re.search(rf"(?<![\w.{{}}$*-]){re.escape(word)}", path.read_bytes().decode(errors="replace"))
    ]
    assert not found


def test_make_help_is_the_default_and_prints_every_target() -> None:
    printed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert tuple(line.split()[0] for line in printed.stdout.splitlines()) == TARGETS
    assert all(len(line.split()) > 2 for line in printed.stdout.splitlines())


def test_a_make_target_is_at_most_five_lines() -> None:
    for block in (ROOT / "Makefile").read_text().split("\n\n"):
        if re.match(r"[a-z./]+:", block):
            assert len(block.strip().splitlines()) <= 5, block


def test_ryu_manager_is_ours_and_says_ryus_version(tmp_path: Path) -> None:
    ran = subprocess.run([RYU_MANAGER, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "ryu-manager " + pins()["ryu"]
    assert ran.stderr == ""
    assert "apps.ryu_manager" in RYU_MANAGER.read_text()


def free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("app", ["ryu.app.ofctl_rest", "apps.one", "one.py"])
def test_ryu_manager_serves_an_app_from_any_directory(app: str, tmp_path: Path) -> None:
    """By module and by file, with REST, everything green, and quiet on stderr about eventlet."""
    (tmp_path / "one.py").write_text(
        "from eventlet.patcher import is_monkey_patched\n"
        "from ryu.app import ofctl_rest\n"
        "import apps\n"
        "assert all(map(is_monkey_patched, ('os', 'select', 'socket', 'thread', 'time', 'subprocess')))\n"
    )
    # "apps.one" stands for a module of the product: `apps` is found through the environment, not the directory.
    if app == "apps.one":
        app = "apps.ryu_manager"
    openflow, rest = free_ports()
    options = ["--ofp-tcp-listen-port", str(openflow), "--wsapi-host", "127.0.0.1", "--wsapi-port", str(rest)]
    command = [str(RYU_MANAGER), *options, app, "ryu.app.ofctl_rest"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = ""
        while "wsgi starting up" not in said:
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        with urllib.request.urlopen(f"http://127.0.0.1:{rest}/stats/switches", timeout=5) as answer:
            assert answer.read() == b"[]"
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=10)[1]
    assert f"loading app {app}" in said
    assert "not greened" not in said
    assert "Eventlet is deprecated" not in said
