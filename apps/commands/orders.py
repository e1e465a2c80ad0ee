"""What a running controller is told to do: `signalbox confirm`, `claim`, `audit`, `release`."""

import click

from apps.commands import output as out
from apps.commands.client import ask, url_option


@click.command()
@url_option
@out.output_option
def confirm(url: str, output: str) -> None:
    """Let removals go that are held back."""
    released = ask(url, "/v1/confirm", "POST")
    if output == "json":
        out.as_json(released)
        return
    objects = released["released_objects"]
    click.echo(f"released: {released['released_removals']} flows and groups, {len(objects)} objects")
    for name in objects:
        click.echo(f"  {name}")


@click.command()
@url_option
@out.output_option
def claim(url: str, output: str) -> None:
    """Become the master of switches that another controller took.

    A controller that has lost a switch does not fight for it. When the other one is gone, this takes it back.
    """
    claimed = ask(url, "/v1/claim", "POST")
    if output == "json":
        out.as_json(claimed)
        return
    click.echo(f"claimed: {', '.join(claimed['claimed']) or 'nothing; no other controller is master here'}")
