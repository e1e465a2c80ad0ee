"""How tables look to people."""

import pytest

from apps.commands import output

LONG = "aa:00:00:00:00:01"


@pytest.mark.parametrize("columns", [200, 30])
def test_what_is_wider_than_the_terminal_is_not_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.table(("NODE", "MAC", "MAC OF ITS ROUTER"), [("n1", LONG, LONG)])
    said = capsys.readouterr().out
    assert said.splitlines()[1].split() == ["n1", LONG, LONG]
    assert "…" not in said
