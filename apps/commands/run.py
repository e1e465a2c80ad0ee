"""`signalbox run`: the controller, as `ryu-manager apps.fabric apps.inspection` with settings by option.

Settings are checked here, then this process becomes ryu-manager: patching has to come before any other import,
and what an operator sees in the list of processes is what the documentation says.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

import click
import msgspec

from apps import settings
from apps.forms import SourceAddress

APPS = ("apps.fabric", "apps.inspection")


@click.command()
@click.option("--source", metavar="DIR|kubeconfig:FILE|in-cluster", help="Where the cluster's objects come from.")
@click.option("--ofp-listen", metavar="ADDRESS:PORT", help="Where switches connect.")
@click.option("--rest-listen", metavar="ADDRESS:PORT", help="Where REST, health checks and metrics are.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="The settings; options win over it.")
@click.option("--mode", metavar="program|observe", help="observe: look at switches and write nothing.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
def run(config: str | None, **options: str | None) -> None:
    """Run the controller.

    The file named in SIGNALBOX_CONFIG is used when there is no --config. docs/configuration.md has every setting.
    """
    config = config or os.environ.get(settings.VARIABLE) or None
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    try:
        chosen = settings.load(config, given)
    except settings.ConfigError as error:
        raise click.ClickException(str(error)) from error
    _check_directory(chosen.source_address)
    manager = Path(sysconfig.get_path("scripts"), "ryu-manager")
    if not manager.exists():
        raise click.ClickException(f"{manager} is missing: install Signalbox into this Python environment")
    environment = {**os.environ, settings.OPTIONS: msgspec.json.encode(given).decode()}
    environment.pop(settings.VARIABLE, None)
    if config:
        environment[settings.VARIABLE] = config
    os.execve(manager, [str(manager), *APPS], environment)  # noqa: S606  (no shell is wanted)


def _check_directory(source: SourceAddress) -> None:
    """One that vanishes later keeps everything; one that is not there to begin with is a slip in its name."""
    if source.kind != "directory":
        return
    try:
        Path(source.place).stat()
    except OSError as error:
        raise _NoDirectory(f"source: the directory {source.place} cannot be read: {error.strerror}") from error


class _NoDirectory(click.ClickException):
    exit_code = 2
