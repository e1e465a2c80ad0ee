"""The product itself, without any switch: what its log says about what objects say together."""

import os
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SIGNALBOX = Path(sysconfig.get_path("scripts"), "signalbox")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec: {nodeName: n9, containers: []}
status: {podIP: 10.10.9.10}
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n9}\nspec: {podCIDR: 10.10.9.0/24}\n"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "pod.yaml").write_text(POD)
    return folder


@pytest.fixture
def log(manifests: Path, tmp_path: Path) -> Iterator[Path]:
    """The log of a controller that follows the manifests."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = one.getsockname()[1], two.getsockname()[1]
    path = tmp_path / "log"
    options = [f"--source={manifests}", f"--ofp-listen=127.0.0.1:{ports[0]}", f"--rest-listen=127.0.0.1:{ports[1]}"]
    with path.open("wb") as file:
        environment = {**os.environ, "SIGNALBOX_CONFIG": ""}
        process = subprocess.Popen([SIGNALBOX, "run", *options], env=environment, stdout=file, stderr=file)
    yield path
    process.send_signal(signal.SIGKILL)
    process.wait()


def says(log: Path, words: str) -> None:
    deadline = time.monotonic() + 20
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_the_log_says_what_objects_say_together_and_when_it_is_mended(log: Path, manifests: Path) -> None:
    problem = "Pod default/lost: spec.nodeName: there is no usable Node n9; nothing reaches this pod"
    says(log, f"{problem}\n")
    assert "mended" not in log.read_text()
    (manifests / "node.yaml").write_text(NODE)
    says(log, f"mended: {problem}\n")
    assert log.read_text().count(problem) == 2
