"""The report: what happened, from the journal alone, whatever text the journal holds."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.store import Event
from console.run.directory import RunDir
from console.run.report import as_json, markdown, write_report
from console.run.view import RunView, fold
from tests.ground.harmful import harmful

BAD = "\x1b]52;c;eA==\x07\x1b[31m|\u202e\x9b1m\r\n## Injected\n| a | b |\x00\u2028\ud800\\|"


def view(text: str = "ok", state: str = "failed", **figures: Any) -> RunView:
    """A run in which every text of the journal is `text`."""
    steps = [
        {"id": "a", "title": text, "phase": text, "kind": "run", "takes_s": 5.0},
        {"id": "g", "title": text, "phase": text, "kind": "gate"},
    ]
    criteria = [{"metric": text, "verdict": "NO-GO", "why": text}]
    figures = {"value": 20.0, "unit": "tok/s", "n": 9, "median": 19.5, **figures}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("run.created", "", {
            "run_id": "r1", "title": text, "playbook": text, "site": text, "owner": text,
            "inputs": {"port": 8001, text: text}, "steps": steps,
        }),
        ("step.state", "a", {
            "state": "failed", "cause": "exit_code", "detail": text, "lines": [text, text],
            "duration_s": 2.0,
        }),
        ("metrics", "a", {
            "metrics": {"tok_s": figures, text: {"value": None}},
            "benchmark": {"model": text, "build": text, "flags": [text]},
        }),
        ("verdict", "g", {
            "verdict": "NO-GO", "outcome": text, "criteria": criteria, "overridden": text,
        }),
        ("verb", "a", {"verb": "skip", "who": text, "why": text}),
        ("serving", "", {"tok_s": 10.5, "degraded": True}),
        ("run.state", "", {"state": state, "reason": text}),
    ]  # fmt: skip
    return fold(
        Event(seq, 1000.0 + seq, kind, step, 1, data)
        for seq, (kind, step, data) in enumerate(rows, 1)
    )


def columns(row: str) -> int:
    """Cells of a table row, as a Markdown reader splits it."""
    return len(re.findall(r"(?:\\[\\|]|[^|])*\|", row)) - 1


def tables(text: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def check_harmless(text: str) -> None:
    assert [found for line in text.split("\n") for found in harmful(line)] == []
    for table in tables(text):
        assert len({columns(row) for row in table}) == 1, table


def test_hostile_text_neither_acts_on_a_terminal_nor_breaks_a_table() -> None:
    text = markdown(view(BAD))
    check_harmless(text)
    assert "\n## Injected" not in text
    assert "\n| a | b |" not in text
    assert len(tables(text)) == len(tables(markdown(view())))
    assert text.count("\n## ") == markdown(view()).count("\n## ")


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#")), max_size=40))
def test_any_text_keeps_the_report_in_shape(text: str) -> None:
    check_harmless(markdown(view(text)))


def test_what_a_reader_looks_for() -> None:
    text = markdown(view())
    for wanted in (
        "# ok", "| Decision | **NO-GO** (ok), **OVERRIDDEN** by ok |", "| State | failed (ok) |",
        "| Baseline after | DEGRADED at 10.5 tok/s |", "| Input port | `8001` |",
        "## Gate `g`: NO-GO", "**Overridden**: ok", "## What went wrong", "`a`: exit_code: ok",
        "    ok", "## Who did what",
    ):  # fmt: skip
        assert f"{wanted}\n" in text + "\n", wanted
    assert re.search(r"\| ✗ \| `a` \| failed \| 5\.00 s \| 2\.00 s \| ok \|", text)
    assert re.search(r"\| tok_s \| 20 tok/s \| – \| 19\.5 tok/s \| 9 \| 0 \|", text)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_is_printed(value: float) -> None:
    assert "| tok_s | unknown | unknown ± unknown |" in markdown(
        view(value=value, mean=value, std=value)
    )


def test_a_baseline_that_is_down_is_said_first() -> None:
    seen = view()
    seen.outage = True
    assert "| Baseline after | **NOT SERVING**: run `omni-console rollback` |" in markdown(seen)


def test_an_empty_run_has_a_report() -> None:
    assert "| Decision | **none** |" in markdown(RunView())
    check_harmless(markdown(RunView()))


@pytest.mark.parametrize(
    ("state", "code"),
    [("succeeded", 3), ("failed", 5), ("cancelled", 5), ("rolled_back", 6),
     ("rollback_failed", 7), ("paused", None), ("rolling_back", None)],
)  # fmt: skip
def test_the_exit_code_is_in_the_json(state: str, code: int | None) -> None:
    found = as_json(view(state=state))
    assert (found["state"], found["decision"], found["exit_code"]) == (state, "no_go", code)


def test_both_files_are_written_and_replaced_whole(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert write_report(run, view()) == run.report
    copy = tmp_path / "docs" / "deep" / "evaluation.md"
    assert write_report(run, view(BAD), copy) == copy
    assert copy.read_text("utf-8") == run.report.read_text("utf-8") == markdown(view(BAD))
    assert json.loads(run.report_json.read_text("utf-8"))["verdicts"][0]["overridden"] == BAD
    assert run.report_json.read_text("utf-8").isascii()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "report.json", "report.md"]
