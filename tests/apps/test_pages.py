"""The generated pages of docs/: stable, complete, and those that are committed."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from apps import settings
from apps.cli import signalbox
from apps.commands.docs import EXAMPLE, NODE
from pipelines.features import FEATURES
from pipelines.fields import PARTS
from pipelines.tables import TABLES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("pipeline", "configuration")


def page(name: str) -> str:
    ran = CliRunner().invoke(signalbox, ["docs", name], catch_exceptions=False)
    assert ran.exit_code == 0
    return ran.stdout


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_one_that_the_code_makes(name: str) -> None:
    assert (DOCS / f"{name}.md").read_text() == page(name), "run `make docs` and look at the difference"


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_pipelines_page_does_not_depend_on_the_order_of_hashes(seed: str) -> None:
    program = "from apps.cli import main; main(['docs', 'pipeline'])"
    words = [sys.executable, "-c", program]
    ran = subprocess.run(
        words, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}, cwd=DOCS.parent
    )
    assert ran.stdout == page("pipeline")


def test_the_pipelines_page_tells_of_every_table_field_and_feature() -> None:
    text = page("pipeline")
    assert NODE == "n1"
    assert EXAMPLE.name in text
    for table in TABLES.values():
        assert f"\n## {table.id} {table.name}\n\n{table.purpose}\n" in text
    for part in PARTS:
        assert f"| `{part.name}` |" in text
    for feature in FEATURES:
        assert f"| {feature.number} | {feature.name} |" in text


def test_every_feature_says_which_packets_it_is_about() -> None:
    assert not [feature.name for feature in FEATURES if not (feature.compile.__doc__ or "").strip()]


def test_the_configuration_page_has_every_key() -> None:
    text = page("configuration")
    for key in settings.Config.__struct_fields__:
        assert f"| `{key}` |" in text
    for name, struct in settings.NESTED.items():
        for key in struct.__struct_fields__:
            assert f"| `{name}.{key}` |" in text
