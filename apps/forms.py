"""What the text of a setting has to look like: each check raises ValueError with the reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pipelines.addresses import parse_ip
from pipelines.model import MacSource

KUBECONFIG = "kubeconfig:"
FEWEST_PORTS = 256  # of a node's address, for all its pods' connections to one place outside at a time
PRIVILEGED = 1024
NODE_PORTS = (30000, 32767)  # Kubernetes' default --service-node-port-range, first and last


class Listen(NamedTuple):
    """Where to listen. `host` without the brackets of an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SourceAddress(NamedTuple):
    """`place`: the directory or kubeconfig file; "" in a cluster."""

    kind: Literal["directory", "kubeconfig", "in-cluster"]
    place: str = ""


def parse_listen(text: str) -> Listen:
    """`ADDRESS:PORT` or `[ADDRESS]:PORT`; raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, as in [::]:6653")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is not of the form ADDRESS:PORT, as in 0.0.0.0:6653")
    parse_ip(host)
    return Listen(host, int(port))


def parse_source(text: str) -> SourceAddress:
    """Raises ValueError."""
    if text == "in-cluster":
        return SourceAddress("in-cluster")
    if text.startswith(KUBECONFIG):
        file = text.removeprefix(KUBECONFIG)
        if not file:
            raise ValueError("kubeconfig: names no file")
        return SourceAddress("kubeconfig", file)
    return SourceAddress("directory", text)


def url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is not a URL, as in https://192.0.2.1:6443")
    _ = parts.port  # raises ValueError when it is none


def mac_sources(sources: tuple[MacSource, ...]) -> None:
    if len(set(sources)) < len(sources):
        raise ValueError("a source is named twice")


def parse_ports(text: str) -> tuple[int, int]:
    """`FIRST-LAST`, both included, of ports that a host can spare; raises ValueError."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    numbers = [int(part) for part in (first, last) if part.isascii() and part.isdigit() and len(part) <= 5]
    if not dash or len(numbers) != 2 or max(numbers) >= 1 << 16:
        raise ValueError(f"{text!r} is not of the form FIRST-LAST, as in 61440-65535")
    lowest, highest = numbers
    if highest - lowest + 1 < FEWEST_PORTS:
        raise ValueError(f"{text} holds fewer than {FEWEST_PORTS} ports")
    if lowest < PRIVILEGED:
        raise ValueError(f"{text} holds ports below {PRIVILEGED}, which belong to the host's own services")
    if lowest <= NODE_PORTS[1] and highest >= NODE_PORTS[0]:
        raise ValueError(f"{text} holds some of {NODE_PORTS[0]}-{NODE_PORTS[1]}, the node ports of Kubernetes")
    return lowest, highest


def address(family: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        if parse_ip(text).family != family:
            raise ValueError(f"{text} is not an IPv{family} address")

    return check


def each(check: Callable[[str], Any]) -> Callable[[tuple[str, ...]], None]:
    def check_all(texts: tuple[str, ...]) -> None:
        for text in texts:
            check(text)

    return check_all


def readable(name: str) -> None:
    try:
        Path(name).open("rb").close()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error
