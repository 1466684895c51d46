"""The example of the format's description: what `plan` says about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import Exit

EXAMPLE = Path(__file__).parent / "data" / "example.yaml"
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: omni-baseline, url: "http://127.0.0.1:8000"}
"""
ROWS = [
    "build", "kernels", "baseline:measure", "baseline:stop", "up", "bench", "go", "soak",
    "stable", "cutover", "baseline:restore-1", "restore", "baseline:measure-again", "report",
]  # fmt: skip
DOWN = ["baseline:stop", "up", "bench", "go", "soak", "stable", "cutover"]


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return str(path)


@pytest.fixture
def shown(site: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["plan", str(EXAMPLE), "--site", site]) == Exit.OK
    return capsys.readouterr().out.splitlines()


def marked(shown: list[str], mark: str) -> list[str]:
    rows = (re.match(rf"{re.escape(mark)} *\d+\. ([\w:-]+): ", line) for line in shown)
    return [row[1] for row in rows if row]


def test_every_row_is_there_in_order_with_the_outage_marked(shown: list[str]) -> None:
    assert marked(shown, "!") == ["baseline:stop"]
    assert marked(shown, "│") == DOWN[1:]
    assert marked(shown, "") == [row for row in ROWS if row not in DOWN]
    assert [line[0] for line in shown if "THE BASELINE STOPS HERE" in line] == ["!"]
    assert [line[0] for line in shown if "CLIENTS REACH" in line] == ["│"]


def test_secrets_are_named_and_never_read(
    site: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2-hunter2")
    main(["plan", str(EXAMPLE), "--site", site])
    out = capsys.readouterr().out
    assert "<secret hf_token>" in out
    assert "hunter2" not in out


def test_the_same_as_json(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLE), "--site", site, "--json"]) == Exit.OK
    plan = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in plan["steps"]] == ROWS
    assert [row["id"] for row in plan["steps"] if row["baseline_down"]] == DOWN
    assert [row["id"] for row in plan["steps"] if row["implicit"]] == [
        "baseline:measure", "baseline:stop", "baseline:restore-1", "restore",
        "baseline:measure-again",
    ]  # fmt: skip
    assert plan["takes_baseline_down"] is True


def test_lint_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(EXAMPLE)]) == Exit.OK


def test_inputs_are_checked_and_reach_the_url(
    site: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for port in ("80", "http", "65536"):
        assert main(["plan", str(EXAMPLE), "--site", site, "--input", f"port={port}"]) == Exit.USAGE
        assert "'port'" in capsys.readouterr().err
    assert main(["plan", str(EXAMPLE), "--site", site, "--input", "port=9001"]) == Exit.OK
    assert "http://127.0.0.1:9001/health" in capsys.readouterr().out


def test_lint_of_what_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["lint", str(tmp_path / "nope.yaml"), str(EXAMPLE)]) == Exit.USAGE
    assert "nope.yaml" in capsys.readouterr().out
