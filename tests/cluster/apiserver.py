"""Real API servers and their etcd, in a network namespace of their own, for as long as a test needs them.

Each server has an address of its own on a link that the tests share, so that one can be stopped, killed or
frozen while the other goes on. Everything dies with the process that started it.
"""

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.cluster.pki import Authority, Pair

SERVICE_RANGES = "10.96.0.0/16,fd00:96::/112"
PREFIX = "sbapi"
READY_SECONDS = 60.0


def program() -> Path:
    """The kube-apiserver that go.mod pins, built when it is not there yet (minutes, once)."""
    built = subprocess.run([Path(__file__).with_name("build")], check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.strip()) / "kube-apiserver"


class Refused(Exception):
    """The API server answered with an error. `code` is the HTTP status."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body}")
        self.code = code


class Process:
    """A program in the namespace. Its output goes to a log file."""

    def __init__(self, namespace: str, log: Path, command: list[str]) -> None:
        self._command = ["setpriv", "--pdeathsig", "KILL", "--", "ip", "netns", "exec", namespace, *command]
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """At once, without a goodbye to its clients."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would."""
        self._end(signal.SIGTERM)

    def check(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self._command[-1]} ended:\n{self.log.read_text()[-3000:]}")

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return
        process.kill()
        process.wait()


class Server(Process):
    """One kube-apiserver."""

    def __init__(self, cluster: "Cluster", address: str, index: int) -> None:
        self.address = address
        self.url = f"https://{address}:6443"
        self._cluster = cluster
        pair = cluster.authority.issue(f"server{index}", "/CN=kube-apiserver", (address, "10.96.0.1"))
        command = [
            str(program()),
            f"--etcd-servers={cluster.etcd_url}",
            "--etcd-compaction-interval=0",  # only tests compact
            f"--bind-address={address}",
            f"--advertise-address={address}",
            "--secure-port=6443",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--client-ca-file={cluster.authority.pair.certificate}",
            f"--service-account-key-file={cluster.accounts.certificate}",
            f"--service-account-signing-key-file={cluster.accounts.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_RANGES}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",  # nobody here makes accounts or taints
            "--feature-gates=ListFromCacheSnapshot=false",  # so that a compaction is felt by lists in pages
            "--shutdown-delay-duration=0s",
        ]
        super().__init__(cluster.namespace, cluster.folder / f"server{index}.log", command)

    def freeze(self) -> None:
        """It keeps its connections but answers nothing any more."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            self.check()
            try:
                self.request("GET", "/readyz")
            except (OSError, Refused, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def request(self, method: str, path: str, body: Any = None, patch: bool = False) -> Any:
        """One request as cluster-admin; the decoded answer; raises Refused."""
        connection = http.client.HTTPSConnection(self.address, 6443, timeout=20, context=self._cluster.tls_context())
        try:
            kind = "application/merge-patch+json" if patch else "application/json"
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise Refused(answer.status, text)
        return json.loads(text) if text.startswith(("{", "[")) else text


class Cluster:
    """etcd and `count` API servers. Use as a context; raises RuntimeError with the log when one does not start."""

    def __init__(self, count: int = 1) -> None:
        number = os.getpid() % 250
        self.namespace = f"{PREFIX}{os.getpid()}"
        self.folder = Path(tempfile.mkdtemp(prefix="signalbox-api-"))
        self._net = f"198.18.{number}"
        self.etcd_url = f"http://{self._net}.1:2379"
        self.authority = Authority(self.folder)
        self.admin = self.authority.issue("admin", "/O=system:masters/CN=admin")
        self.accounts = self.authority.issue("accounts", "/CN=service-accounts")
        self.etcd = Process(self.namespace, self.folder / "etcd.log", self._etcd_command())
        self.servers = [Server(self, f"{self._net}.{10 + index}", index) for index in range(count)]

    def __enter__(self) -> Self:
        try:
            self._add_namespace()
            self.etcd.start()
            self._wait_etcd()
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            server.thaw()
            server.kill()
        self.etcd.kill()
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)

    def request(self, method: str, path: str, body: Any = None, patch: bool = False) -> Any:
        return self.servers[0].request(method, path, body, patch)

    def kubeconfig(self, who: Pair | None = None) -> Path:
        """A kubeconfig file for the first server, as cluster-admin unless told otherwise."""
        pair = who or self.admin
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.servers[0].url,
                        "certificate-authority-data": _embedded(self.authority.pair.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": "test",
                    "user": {
                        "client-certificate-data": _embedded(pair.certificate),
                        "client-key-data": _embedded(pair.key),
                    },
                }
            ],
        }
        path = self.folder / f"{pair.key.stem}.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def compact(self) -> None:
        """Make etcd forget every revision but the newest."""
        revision = self._etcd("range", {"key": "AA=="})["header"]["revision"]
        self._etcd("compaction", {"revision": revision, "physical": True})

    def tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        return context

    def _etcd_command(self) -> list[str]:
        peer = f"http://{self._net}.1:2380"
        return [
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _etcd(self, what: str, body: Any) -> Any:
        connection = http.client.HTTPConnection(f"{self._net}.1", 2379, timeout=5)
        try:
            connection.request("POST", f"/v3/kv/{what}", json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _wait_etcd(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            self.etcd.check()
            with contextlib.suppress(OSError), socket.create_connection((f"{self._net}.1", 2379), timeout=1):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"etcd does not answer:\n{self.etcd.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _add_namespace(self) -> None:
        _remove_stale_namespaces()
        inside, outside = f"{self.namespace}i", f"{self.namespace}o"
        _ip("netns", "add", self.namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.namespace)
        _ip("addr", "add", f"{self._net}.254/24", "dev", outside)
        _ip("link", "set", outside, "up")
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        for address in (f"{self._net}.1", *(server.address for server in self.servers)):
            _ip("-n", self.namespace, "addr", "add", f"{address}/24", "dev", inside)
        _ip("-n", self.namespace, "link", "set", inside, "up")


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _remove_stale_namespaces() -> None:
    """Those whose process is gone: it was killed before it could clean up, and its servers died with it."""
    for path in Path("/run/netns").glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)
