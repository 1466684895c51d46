"""Blockers: a lesson that is named, still blocks, and bears on a step that acts. All three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.checks.lint.unit import Severity
from console.runner.prepare.admission import blocker_findings, blockers
from console.runner.prepare.plan import Plan
from console.runner.prepare.plan_text import as_json, lines
from tests.run.unit.conftest import MakePlan

GRAPH = "{id: bench, timeout: 1h, run: [llama-bench, --split-mode, graph]}"
CLONE = "{id: clone, run: [git, clone, --depth, 1, x]}"
LOOK = "{id: chain, imports: {image: x, modules: [a]}}"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def naming(made: Plan, *lessons: str) -> Plan:
    """The plan as if the playbook named these."""
    book = made.playbook
    text = f"{book.text}lessons: [{', '.join(lessons)}]\n"
    model = book.model.model_copy(update={"lessons": list(lessons)})
    return replace(made, playbook=replace(book, model=model, text=text))


def test_named_blocking_and_gone_into(plan: MakePlan) -> None:
    made = naming(plan(GRAPH), "S-003", "F-024")
    assert [one.lesson.id for one in blockers(made)] == ["F-024"]
    (one,) = blocker_findings(made)
    assert (one.rule, one.severity, one.lessons) == ("known-blocker", Severity.ERROR, ("F-024",))
    assert made.playbook.text.splitlines()[one.line - 1][one.column - 1 :].startswith("F-024")
    assert "step bench" in one.what
    assert len([line for line in lines(made) if one.what in line]) == 1
    assert as_json(made)["blockers"] == [one.what]


@pytest.mark.parametrize(
    ("step", "lessons", "borne"),
    [
        ("{id: n, run: [llama-bench, -sm, layer]}", ["F-024"], False),
        (GRAPH, [], True),
        (CLONE, ["F-013"], True),  # settled
        (LOOK, ["F-018"], True),  # a step that looks is what a lesson asks for
        (GRAPH, ["F-999"], True),  # it has gone
    ],
)
def test_what_is_not_asked_about(
    plan: MakePlan, step: str, lessons: list[str], borne: bool
) -> None:
    made = naming(plan(step), *lessons)
    assert bool(made.steps[0].lessons) is borne
    assert list(blockers(made)) == []


@pytest.mark.parametrize("rest", ["symptom: x\ncause: y\n", "no lesson"])
def test_a_lesson_of_ones_own_lifts_it(plan: MakePlan, tmp_path: Path, rest: str) -> None:
    own = tmp_path / "config/omni-console/lessons"
    own.mkdir(parents=True)
    (own / "F-024.yaml").write_text(
        "schema: omni.lesson/v1\nid: F-024\ntitle: it does now\ndate: 2026-11-01\n"
        f"status: resolved\n{rest}"
    )
    assert list(blockers(naming(plan(GRAPH), "F-024"))) == []
