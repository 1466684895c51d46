"""Old names of services: replaced where a playbook names them, told in its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.cli import main
from console.config.playbook.load import rename
from console.config.yaml import parse

ALIASES = "{old-engine: new-engine, deepseek-v32: deepseek-r1}"
SITE = f"""\
schema: omni.site/v1
name: ws
baseline: {{container: deepseek-r1, url: "http://127.0.0.1:8000"}}
gpus: [{{uuid: GPU-a}}, {{uuid: GPU-b}}]
services: {{new-engine: {{process: {{argv: [serve]}}, url: "http://127.0.0.1:8004"}}}}
aliases: {ALIASES}
"""
BOOK = """\
schema: omni.playbook/v1
name: older
title: An older plan
services:
  mine:
    compose: {file: stack.yaml, service: deepseek-v32}
    url: http://127.0.0.1:8005
guards: [{log: old-engine, matches: CUDA error}]
phases:
  - title: Trial
    steps:
      - {id: up, service: {start: old-engine}}
      - {id: bench, benchmark: {service: old-engine, runs: 3}}
      - {id: also, service: {start: mine}}
"""


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text(SITE)
    path = tmp_path / "older.yaml"
    path.write_text(BOOK)
    return path


def test_a_plan_goes_by_the_names_of_today(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(book), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [step["id"] for step in plan["steps"]][:3] == ["up", "bench", "also"]
    effects = ["\n".join(step["effects"]) for step in plan["steps"]]
    assert "serve" in effects[0]
    assert "new-engine" in effects[1]
    assert "--no-recreate deepseek-r1" in effects[2]
    assert not any("old-engine" in one for one in effects)


def test_lint_knows_the_old_name(book: Path) -> None:
    assert main(["lint", str(book)]) == 0


def test_a_name_that_the_playbook_declares_is_its_own() -> None:
    data = parse(BOOK.replace("  mine:", "  old-engine:"), "", "").data
    aliases = {"old-engine": "new-engine", "deepseek-v32": "deepseek-r1"}
    (note,) = rename(data, aliases, {"new-engine"})
    assert note.split()[0] == "deepseek-v32"
    assert data["phases"][0]["steps"][0]["service"] == {"start": "old-engine"}


@pytest.mark.parametrize("name", ["deepseek-v32", "deepseek-r1", "baseline"])
def test_the_baseline_goes_by_its_container_and_its_old_names(
    book: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    book.write_text(BOOK.replace("service: old-engine, runs", f"service: {name}, runs"))
    assert main(["lint", str(book)]) == 0
    capsys.readouterr()
    assert main(["plan", str(book)]) == 0
    assert "against baseline" in capsys.readouterr().out


def test_an_alias_may_lead_to_the_baseline_itself(book: Path) -> None:
    site = book.with_name("site.yaml")
    site.write_text(SITE.replace("deepseek-v32: deepseek-r1", "deepseek-v32: baseline"))
    book.write_text(BOOK.replace("service: old-engine, runs", "service: deepseek-v32, runs"))
    assert (main(["lint", str(book)]), main(["plan", str(book)])) == (0, 0)


@pytest.mark.parametrize("alias", ["old-engine: gone", "older-engine: new-engine"])
def test_a_name_that_leads_nowhere_is_refused_as_it_was_written(
    book: Path, capsys: pytest.CaptureFixture[str], alias: str
) -> None:
    book.with_name("site.yaml").write_text(SITE.replace("old-engine: new-engine", alias))
    for command in ("plan", "lint"):
        assert main([command, str(book)]) == {"plan": 2, "lint": 9}[command]
        said = "".join(capsys.readouterr())
        assert "'old-engine'" in said
        assert "gone" not in said


def test_a_document_that_is_none_is_left_to_the_model() -> None:
    for data in ({}, {"phases": 3}, {"phases": [{"steps": [None, {"run": 1}]}]}):
        assert rename(data, {"a": "b"}) == ()
