"""Old names of services: replaced where a playbook names them, told in its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.cli import main
from console.document.reader import parse
from console.errors import InvalidFile
from console.playbook.alias import rename
from console.site.load import load_site

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
NOTES = [
    "old-engine is called new-engine on this site",
    "deepseek-v32 is called deepseek-r1 on this site",
]


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text(SITE)
    path = tmp_path / "older.yaml"
    path.write_text(BOOK)
    return path


def test_a_plan_says_which_names_are_old(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(book)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("note ")[1].strip() for line in lines if "  note  " in line] == NOTES
    assert any("starts a host process: serve" in line for line in lines)
    assert any(line.endswith("--no-recreate deepseek-r1") for line in lines)
    assert any("a line of new-engine's log" in line for line in lines)


def test_lint_knows_the_old_name(book: Path) -> None:
    assert main(["lint", str(book)]) == 0


def test_without_the_alias_the_old_name_is_unknown(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = book.with_name("site.yaml")
    site.write_text(SITE.replace("old-engine: new-engine, ", ""))
    assert main(["plan", str(book)]) == 2
    assert "unknown service 'old-engine'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("aliases", "said"),
    [
        ("{a: b, b: c}", "alias a leads to b, which is an old name itself"),
        ("{a: a}", "alias a leads to a, which is an old name itself"),
        ("{new-engine: other}", "alias new-engine is a service of this site"),
    ],
)
def test_an_alias_leads_to_a_name_of_today(book: Path, aliases: str, said: str) -> None:
    site = book.with_name("site.yaml")
    site.write_text(SITE.replace("{old-engine: new-engine, deepseek-v32: deepseek-r1}", aliases))
    with pytest.raises(InvalidFile) as caught:
        load_site(site)
    assert said in str(caught.value.problems[0])


def test_a_name_that_the_playbook_declares_is_its_own() -> None:
    data = parse(BOOK.replace("  mine:", "  old-engine:"), "", "").data
    aliases = {"old-engine": "new-engine", "deepseek-v32": "deepseek-r1"}
    assert rename(data, aliases, {"new-engine"}) == (NOTES[1],)
    assert data["phases"][0]["steps"][0]["service"] == {"start": "old-engine"}


@pytest.mark.parametrize("name", ["deepseek-v32", "deepseek-r1", "baseline"])
def test_the_baseline_goes_by_its_container_and_its_old_names(
    book: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    book.write_text(BOOK.replace("service: old-engine, runs", f"service: {name}, runs"))
    assert main(["lint", str(book)]) == 0
    capsys.readouterr()
    assert main(["plan", str(book)]) == 0
    assert "3 runs of 256 tokens against baseline" in capsys.readouterr().out


def test_an_alias_may_lead_to_the_baseline_itself(book: Path) -> None:
    site = book.with_name("site.yaml")
    site.write_text(SITE.replace("deepseek-v32: deepseek-r1", "deepseek-v32: baseline"))
    book.write_text(BOOK.replace("service: old-engine, runs", "service: deepseek-v32, runs"))
    assert (main(["lint", str(book)]), main(["plan", str(book)])) == (0, 0)


def test_a_name_that_leads_nowhere_is_refused_as_it_was_written(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = book.with_name("site.yaml")
    site.write_text(SITE.replace("old-engine: new-engine", "old-engine: gone"))
    for command in ("plan", "lint"):
        assert main([command, str(book)]) != 0
        said = "".join(capsys.readouterr())
        assert "unknown service 'old-engine'" in said
        assert "gone" not in said


@pytest.mark.parametrize("data", [{}, {"phases": 3}, {"phases": [{"steps": [None, {"run": 1}]}]}])
def test_a_document_that_is_none_is_left_to_the_model(data: dict[str, object]) -> None:
    assert rename(data, {"a": "b"}) == ()
