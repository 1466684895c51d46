"""Blockers: a lesson that is named, still blocks, and bears on a step that acts. All three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.lint.finding import Severity
from console.run.blocker import blockers, findings
from console.run.plan import Plan
from console.run.plan_text import as_json, lines
from tests.run.unit.conftest import MakePlan

GRAPH = "{id: bench, timeout: 1h, run: [llama-bench, --split-mode, graph]}"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def naming(made: Plan, *lessons: str) -> Plan:
    """The plan as if the playbook named these."""
    book = made.playbook
    text = f"{book.text}lessons: [{', '.join(lessons)}]\n"
    model = book.model.model_copy(update={"lessons": list(lessons)})
    return replace(made, playbook=replace(book, model=model, text=text))


def found(made: Plan) -> list[str]:
    return [one.lesson.id for one in blockers(made)]


def test_named_blocking_and_gone_into(plan: MakePlan) -> None:
    made = naming(plan(GRAPH), "S-003", "F-024")
    assert found(made) == ["F-024"]
    (one,) = findings(made)
    assert (one.rule, one.severity, one.lessons) == ("known-blocker", Severity.ERROR, ("F-024",))
    assert made.playbook.text.splitlines()[one.line - 1][one.column - 1 :].startswith("F-024")
    assert "step bench" in one.what
    assert len([line for line in lines(made) if one.what in line]) == 1
    assert as_json(made)["blockers"] == [one.what]


def test_named_alone_is_no_fault(plan: MakePlan) -> None:
    assert found(naming(plan("{id: n, run: [llama-bench, -sm, layer]}"), "F-024")) == []


def test_what_only_bears_is_not_asked_about(plan: MakePlan) -> None:
    assert found(plan(GRAPH)) == []


def test_what_is_settled_is_not_asked_about(plan: MakePlan) -> None:
    made = naming(plan("{id: clone, run: [git, clone, --depth, 1, x]}"), "F-013")
    assert [step.lessons for step in made.steps if step.lessons]
    assert found(made) == []


def test_a_step_that_looks_is_what_a_lesson_asks_for(plan: MakePlan) -> None:
    made = naming(plan("{id: chain, imports: {image: x, modules: [a]}}"), "F-018")
    assert made.at("chain").lessons[0].startswith("F-018 ")
    assert found(made) == []


def test_a_lesson_of_ones_own_lifts_it(plan: MakePlan, tmp_path: Path) -> None:
    own = tmp_path / "config/omni-console/lessons"
    own.mkdir(parents=True)
    (own / "F-024.yaml").write_text(
        "schema: omni.lesson/v1\nid: F-024\ntitle: it does now\ndate: 2026-11-01\n"
        "status: resolved\nsymptom: x\ncause: y\n"
    )
    assert found(naming(plan(GRAPH), "F-024")) == []
    (own / "F-024.yaml").write_text("no lesson")
    assert found(naming(plan(GRAPH), "F-024")) == []


def test_one_that_has_gone_blocks_nothing(plan: MakePlan) -> None:
    assert found(naming(plan(GRAPH), "F-999")) == []
