"""The `signalbox` command. Every subcommand is a module of `commands`, imported when it is called or listed."""

import logging
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Any

import click

PACKAGE = "signalbox-sdn"
COMMANDS = {
    "run": "apps.commands.run:run",
    "check": "apps.commands.check:check",
    "compile": "apps.commands.compile:compile_",
    "trace": "apps.commands.trace:trace",
    "status": "apps.commands.live:status",
    "nodes": "apps.commands.nodes:nodes",
    "pods": "apps.commands.nodes:pods",
    "services": "apps.commands.services:services",
    "flows": "apps.commands.live:flows",
    "diff": "apps.commands.live:diff",
    "drops": "apps.commands.live:drops",
    "confirm": "apps.commands.orders:confirm",
    "audit": "apps.commands.orders:audit",
    "release": "apps.commands.orders:release",
    "claim": "apps.commands.orders:claim",
    "lab": "lab.cli:lab",
    "docs": "apps.commands.docs:docs",
    "version": "apps.cli:version",
}


class Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(None, "--version", "-V", package_name=PACKAGE, message="signalbox %(version)s")
def signalbox() -> None:
    """One central OpenFlow controller for the Open vSwitch bridges of a Kubernetes cluster."""
    # Commands say what is wrong themselves; what the controller would log is not said a second time.
    logging.getLogger().addHandler(logging.NullHandler())


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"signalbox {version_of(PACKAGE)}")


def main(arguments: Sequence[str] | None = None) -> Any:
    return signalbox.main(args=arguments, prog_name="signalbox")


if __name__ == "__main__":
    main()
