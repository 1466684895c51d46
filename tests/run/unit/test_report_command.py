"""`omni-console report`: one run as Markdown, several as a table that fits where it goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from console.cli import main
from console.journal.run_dir import RunDir
from tests.run.unit import reported

Caught = pytest.CaptureFixture[str]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return [
        reported.kept(reported.no_go_rows()),
        reported.kept(reported.soaked_rows(), inputs={"split": "layer", "port": 8001}),
    ]


def test_at_a_terminal_the_table_fits_it(
    two: list[RunDir], capsys: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ids = [run.id for run in two]
    assert main(["report", *ids]) == 0
    drawn = capsys.readouterr().out
    assert max(map(len, drawn.splitlines())) <= 80
    assert "  split=graph\n" in drawn
    assert "|" not in drawn
    assert main(["report", "--markdown", *ids]) == 0
    assert capsys.readouterr().out.startswith("# 2 attempts\n")


def test_a_copy_is_written_with_its_charts(two: list[RunDir], capsys: Caught) -> None:
    assert main(["report", two[1].id, "--to", "docs/phase2-evaluation.md", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": "docs/phase2-evaluation.md"}
    text = Path("docs/phase2-evaluation.md").read_text()
    assert "](phase2-evaluation/soak-soak.svg)" in text
    assert Path("docs/phase2-evaluation/soak-soak.svg").exists()
    assert not two[1].report.exists(), "the run's own directory is not touched"
    assert main(["report", two[0].id, two[1].id, "--to", "x.md"]) == 2
    Path("file").write_text("")
    assert main(["report", two[0].id, "--to", "file/x.md"]) == 2
