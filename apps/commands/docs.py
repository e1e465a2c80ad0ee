"""`signalbox docs`: the pages of docs/ that are made from the code, so that they cannot lie."""

from pathlib import Path

import click

from apps import configuration_page, pipeline_page

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo"
NODE = "n1"


@click.group()
def docs() -> None:
    """Print generated pages of the documentation."""


@docs.command()
@click.option("--example", default=EXAMPLE, type=click.Path(exists=True, path_type=Path), help="Manifests to show.")
@click.option("--node", default=NODE, show_default=True, help="Whose flows to show.")
def pipeline(example: Path, node: str) -> None:
    """Print docs/pipeline.md: tables, fields, features, and the flows of an example."""
    click.echo(pipeline_page.page(example, node), nl=False)


@docs.command()
def configuration() -> None:
    """Print docs/configuration.md: every setting."""
    click.echo(configuration_page.page(), nl=False)
