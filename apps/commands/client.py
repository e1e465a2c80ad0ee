"""Asks a running controller over REST."""

import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from apps.commands.output import Command

SECONDS = 30
ELSEWHERE = (
    "--url (or SIGNALBOX_URL) says where it is; that of a lab is asked by "
    "`signalbox lab exec --name NAME controller -- signalbox …`, and `signalbox lab list` names the labs"
)


def url_option(command: Command) -> Command:
    return click.option(
        "--url", default="http://127.0.0.1:8080", show_default=True, envvar="SIGNALBOX_URL", show_envvar=True,
        help="Where the controller's REST is.",
    )(command)  # fmt: skip


def ask(url: str, path: str, method: str = "GET", **query: str | None) -> Any:
    """The decoded answer. Raises ClickException with the controller's own words when it refuses."""
    given = {key: value for key, value in query.items() if value is not None}
    full = url.rstrip("/") + path + (f"?{urlencode(given)}" if given else "")
    if not full.startswith(("http://", "https://")):
        raise click.ClickException(f"{url} is not an http(s) URL")
    request = urllib.request.Request(full, method=method)  # noqa: S310  (the scheme was looked at)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the controller is near, no proxy knows it
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        raise click.ClickException(f"{path}: {_reason(error)}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise click.ClickException(f"no controller answers at {url}: {reason}. {ELSEWHERE}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        content = msgspec.json.decode(error.read())
        return str(content["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"HTTP status {error.code}"
