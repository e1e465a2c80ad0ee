"""A port that somebody else has is said in one line that names the setting."""

import os
import socket
import subprocess
import sysconfig
from pathlib import Path

import pytest

SIGNALBOX = Path(sysconfig.get_path("scripts"), "signalbox")


@pytest.mark.parametrize("setting", ["ofp_listen", "rest_listen"])
def test_a_taken_port_is_named_with_its_setting(setting: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = {"ofp_listen": free.getsockname()[1], "rest_listen": free.getsockname()[1] + 1}
        ports[setting] = taken.getsockname()[1]
        free.close()
        options = [f"--{name.replace('_', '-')}=127.0.0.1:{port}" for name, port in ports.items()]
        ended = subprocess.run(
            [SIGNALBOX, "run", f"--source={tmp_path}", *options],
            env={**os.environ, "SIGNALBOX_CONFIG": ""},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 1
    assert f"{setting}: cannot listen on 127.0.0.1:{ports[setting]}: Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
