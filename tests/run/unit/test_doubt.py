"""A GO is held against the baseline as it is after its restore."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from console.journal.run_view import RunView, fold
from console.journal.state import Decision
from console.journal.store import Event
from console.runner.executors.gate import doubt
from tests.run.unit.conftest import MakePlan
from tests.run.unit.figures import agreeing, picture

BENCH = "{id: bench, benchmark: {service: cand, against: baseline}}"


def judged(plan: MakePlan, go: str, before: float, after: float | None) -> RunView:
    """A run whose candidate does 20 tok/s and whose gate said GO, after the doubt was thought."""
    figures = {
        "bench.tok_s": agreeing(20.0, "tok/s"),
        "bench.baseline.tok_s": agreeing(before, "tok/s"),
    }
    view = picture(figures)
    if after is not None:
        view.metrics["bench.baseline-after"] = {"tok_s": agreeing(after, "tok/s")}
    gate = f"{{id: g, gate: [{{metric: bench.tok_s, go: '{go}'}}], outcomes: {{go: migrate}}}}"

    def record(kind: str, step: str = "", attempt: int = 0, **data: Any) -> None:
        fold([Event(1, 0.0, kind, step, attempt, data)], view)

    record("verdict", "g", verdict="GO", outcome="migrate", criteria=[])
    doubt(SimpleNamespace(view=view, plan=plan(BENCH, gate), record=record))  # type: ignore[arg-type]
    return view


@pytest.mark.parametrize(
    ("go", "before", "after", "decision"),
    [
        (">= 1.5 x baseline", 10.0, 10.2, Decision.GO),
        (">= 1.5 x baseline", 10.0, 12.0, Decision.GO),  # moved, and still met
        (">= 1.5 x baseline", 10.0, 40.0, Decision.HOLD),
        (">= 1.5 x baseline", 10.0, None, Decision.GO),  # not measured again: said elsewhere
        (">= 15 tok/s", 10.0, 40.0, Decision.GO),  # asks for nothing of the baseline
        ("<= 2.5 x baseline", 10.0, 5.0, Decision.HOLD),
    ],
)
def test_only_what_the_baseline_now_contradicts_is_doubtful(
    plan: MakePlan, go: str, before: float, after: float | None, decision: Decision
) -> None:
    view = judged(plan, go, before, after)
    assert view.decision is decision
    assert view.mark == ("DOUBTFUL" if decision is Decision.HOLD else "")
    assert [one["verdict"] for one in view.doubts] == ["NO-GO"] * (decision is Decision.HOLD)
