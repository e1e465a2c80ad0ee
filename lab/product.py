"""The product in a lab: `ryu-manager apps.fabric apps.inspection` in the controller's namespace, and its REST.

with Product(lab, manifests) as product:
    product.wait_ready()
    product.get("/v1/nodes")
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.cluster import Lab
from lab.netns import LabError

REST = "127.0.0.1:8080"
PATIENCE = 40.0


class Product:
    """`source`: what `signalbox run --source` takes, or a directory; `settings`: further keys of its settings file.

    A second one in the same lab needs a `name` and ports of its own.
    """

    def __init__(
        self, lab: Lab, source: Path | str, settings: Mapping[str, Any] | None = None, name: str = "controller"
    ) -> None:
        self.lab = lab
        self.name = name
        self.settings: dict[str, Any] = {
            "source": str(source),
            "ofp_listen": "0.0.0.0:6653",
            "rest_listen": REST,
            **(settings or {}),
        }
        self.log = lab.state / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def command(self) -> list[str]:
        """What a person would type in the controller's namespace."""
        manager = Path(sys.executable).with_name("ryu-manager")
        return ["env", f"SIGNALBOX_CONFIG={self._file}", str(manager), "apps.fabric", "apps.inspection"]

    @property
    def _file(self) -> Path:
        return self.lab.state / ("signalbox.yaml" if self.name == "controller" else f"{self.name}.yaml")

    def start(self) -> Self:
        self._file.write_text(json.dumps(self.settings, indent=1))  # JSON is YAML
        words = " ".join(f"'{word}'" for word in self.command)
        self._process = self.lab.popen("controller", "sh", "-c", f"exec {words} >>'{self.log}' 2>&1")
        return self

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.lab.stop(self._process)
        self._process = None

    def kill(self) -> None:
        """Without asking: as after a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def restart(self, settings: Mapping[str, Any] | None = None) -> None:
        self.stop()
        self.settings.update(settings or {})
        self.start()

    def get(self, path: str) -> Any:
        """JSON of a REST resource; raises LabError, also when the answer says that there is none."""
        found = json.loads(self.text(path))
        if isinstance(found, dict) and "error" in found:
            raise LabError(f"{path}: {found['error']}\n{self._log_end()}")
        return found

    def text(self, path: str, *options: str) -> str:
        return self.lab.run("controller", "curl", "-gsS", "--max-time", "10", *options, self._url(path)).stdout

    def status(self, path: str) -> int:
        """The HTTP status; 0 when nobody answers."""
        words = ("curl", "-gs", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5", self._url(path))
        return int(self.lab.run("controller", *words, check=False).stdout or 0)

    def _url(self, path: str) -> str:
        return f"http://{self.settings['rest_listen']}{path}"

    def wait_ready(self, seconds: float = PATIENCE) -> None:
        """Until every known switch carries what it should; raises LabError with the end of the log."""
        self.wait(lambda: self.status("/readyz?switches") == 200 and self._all_connected(), "readiness", seconds)

    def wait(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Until `holds()`; raises LabError, at once when the controller has ended."""
        end = time.monotonic() + seconds
        while not holds():
            if self._process is not None and self._process.poll() is not None:
                raise LabError(f"the controller ended with status {self._process.returncode}:\n{self._log_end()}")
            if time.monotonic() > end:
                raise LabError(f"waited {seconds:.0f} s for {what} in vain:\n{self._log_end()}")
            time.sleep(0.05)

    def _all_connected(self) -> bool:
        ready = {row["node"] for row in self.get("/v1/switches") if row["state"] == "READY"}
        return ready == {node.name for node in self.lab.plan.nodes}

    def _log_end(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-20:]) if self.log.exists() else "(no log)"
