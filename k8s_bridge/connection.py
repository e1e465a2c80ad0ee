"""Requests to the API servers: whom to ask, with which credentials, and what an answer means.

Configuration, credentials and connections are those of the `kubernetes` client; bodies stay raw bytes. Where
several server addresses are configured one is in use until it fails; then all kinds move on to the next.
"""

import copy
import http.client
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import urllib3
from msgspec import Struct

from k8s_bridge import shapes

LARGEST_ERROR = 64 * 1024  # bytes of an error's body that are read


class KubernetesSettings(Struct, frozen=True):
    """How to reach a cluster. All times are seconds."""

    kubeconfig: str | None = None  # a file; None: the pod's own service account (in-cluster)
    context: str | None = None  # of the kubeconfig; None: its current one
    servers: tuple[str, ...] = ()  # URLs in order of preference, in place of the configured one
    page_size: int = 500
    connect_seconds: float = 5.0
    list_seconds: float = 60.0  # for one page, as the API server's own limit
    silence_seconds: float = 30.0  # a watch that says nothing for so long has a dead server
    second_list_after: float = 30.0  # see guard
    longest_wait: float = 30.0  # between two attempts


class ApiError(Exception):
    """An answer that is not a success. `retry_after` seconds, when the server asks for that."""

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code
        self.retry_after = retry_after

    @property
    def gone(self) -> bool:
        """Whether the resource version, or the rest of a list, has expired (410)."""
        return self.code == 410

    @property
    def servers_fault(self) -> bool:
        """Whether another server may answer better. What one forbids or lacks, the others do too."""
        return not 400 <= self.code < 500 or self.code == 429


FAILURES = (ApiError, OSError, urllib3.exceptions.HTTPError, http.client.HTTPException, msgspec.DecodeError)
"""What asking a server may raise, in the ordinary course of things."""


class Response(Protocol):
    """The part of urllib3's response that is used."""

    status: int
    headers: Mapping[str, str]

    def read(self, amt: int | None = None) -> bytes: ...
    def read1(self, amt: int | None = None) -> bytes: ...
    def release_conn(self) -> None: ...
    def shutdown(self) -> None: ...
    def close(self) -> None: ...


class Connection:
    """One API server. `url` is its origin."""

    def __init__(self, client: Any, connect_seconds: float) -> None:
        self._client = client
        self._connect_seconds = connect_seconds
        self.url: str = client.configuration.host

    def get(self, path: str, query: Mapping[str, str | int], silence: float) -> Response:
        """A successful answer, its body not yet read; raises FAILURES.

        `silence` is the longest time in seconds between two pieces of the answer.
        """
        from kubernetes.client.exceptions import ApiException

        request = self._client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=(self._connect_seconds, silence))
        except ApiException as error:  # TLS: the client knows no status then
            raise ApiError(0, str(error.reason)) from error
        response: Response = answer.response
        if response.status == 200:
            return response
        try:
            raise _error(response)
        finally:
            response.close()


class Servers:
    """Several addresses of one cluster, one of them in use."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self._current = 0

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def current(self) -> Connection:
        return self._connections[self._current]

    def leave(self, connection: Connection) -> None:
        """Move on, unless somebody has already done so since `connection` was in use."""
        if self.current is connection:
            self._current = (self._current + 1) % len(self._connections)

    def addresses(self) -> tuple[str, ...]:
        """The one in use first."""
        order = self._connections[self._current :] + self._connections[: self._current]
        return tuple(connection.url for connection in order)


def connect(settings: KubernetesSettings) -> Servers:
    """Connections for the settings, nothing sent yet; raises ValueError when the configuration cannot be used."""
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        if settings.kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(
                config_file=settings.kubeconfig,
                context=settings.context,
                client_configuration=configuration,
                persist_config=False,
            )
    except Exception as error:  # the client raises anything, depending on what is wrong with a file
        where = settings.kubeconfig or "in-cluster configuration"
        raise ValueError(f"{where}: cannot be used: {error}") from error
    configuration.retries = False  # trying again, elsewhere and later, is our own business
    connections = []
    for url in settings.servers or (configuration.host,):
        one = copy.deepcopy(configuration)
        one.host = url.rstrip("/")
        connections.append(Connection(client.ApiClient(one), settings.connect_seconds))
    return Servers(connections)


def _error(response: Response) -> ApiError:
    body = response.read(LARGEST_ERROR)
    try:
        message = msgspec.json.decode(body, type=shapes.Status).message or ""
    except msgspec.DecodeError:
        message = body[:200].decode("utf-8", "replace")
    after = response.headers.get("Retry-After", "")
    return ApiError(response.status, message.strip(), float(after) if after.isdigit() else 0.0)
