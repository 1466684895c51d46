"""A rehearsal says so wherever its decision stands."""

from __future__ import annotations

from typing import Any

from console.journal.store import Event
from console.run.compare import compare
from console.run.report import as_json, markdown
from console.run.view import RunView, fold


def run(rehearsal: dict[str, Any] | None) -> RunView:
    created = {
        "run_id": "r1", "title": "A trial", "playbook": "trial", "site": "ws",
        "rehearsal": rehearsal,
        "steps": [{"id": "go", "title": "Gate", "phase": "P", "kind": "gate"}],
    }  # fmt: skip
    verdict = {"verdict": "GO", "outcome": "switch",
               "criteria": [{"metric": "a.b", "verdict": "GO", "why": "a.b is good"}]}  # fmt: skip
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("run.created", "", created),
        ("run.state", "", {"state": "running"}),
        ("verdict", "go", verdict),
        ("step.state", "go", {"state": "succeeded"}),
        ("run.state", "", {"state": "succeeded"}),
    ]
    return fold(
        Event(n, 100.0 + n, kind, step, 1, data)
        for n, (kind, step, data) in enumerate(rows, start=1)
    )


def test_a_real_run_is_not_marked() -> None:
    view = run(None)
    assert (view.mark, view.rehearsal, as_json(view)["rehearsal"]) == ("", {}, False)
    assert "REHEARSAL" not in markdown(view)


def test_a_rehearsal_is_marked_in_report_json_and_comparison() -> None:
    view = run({"fault": "slow", "speed": 7.0, "notes": ["image a → omni-rehearsal/a:1"]})
    assert view.mark == "REHEARSAL"
    found = as_json(view)
    assert (found["rehearsal"], found["fault"], found["decision"]) == (True, "slow", "go")
    text = markdown(view)
    assert text.index("**REHEARSAL with the fault `slow`") < text.index(
        "**REHEARSAL GO (switch).**"
    )
    assert "- image a → omni-rehearsal/a:1" in text
    assert "this run switched nothing" not in text
    [attempt] = compare([(view, "succeeded")]).attempts
    assert attempt.decision.startswith("REHEARSAL GO")
