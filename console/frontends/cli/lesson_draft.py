"""What a finished run leaves on record for a lesson: candidates, figures, the last log lines."""

from __future__ import annotations

import time
from collections.abc import Iterator

from console.common import redact
from console.common.errors import UsageError
from console.common.units import format_number
from console.config.lessons.draft import Found
from console.journal.report_data import gauges
from console.journal.run_dir import RunDir
from console.journal.run_read import view_of
from console.journal.run_view import RunView
from console.journal.state import Decision, RunState, StepState
from console.render.report.decision import WORD
from console.render.report.lessons import lessons
from console.render.report.markdown import plain

MOST_FIGURES, MOST_LINES = 12, 8


def found_in(run: RunDir) -> Found:
    """Everything a draft is filled with. Raises UsageError while the run is not over."""
    view, word = view_of(run)
    if not view.over:
        raise UsageError(
            f"run {run.id} is not over ({word})", "a lesson is drawn from a run that is",
            f"omni-console show {run.id[-4:]}",
        )  # fmt: skip
    decision = _decision(view)
    outcome = str(view.state).replace("_", " ") + (f", {decision}" if decision else "")
    candidates = tuple(lessons(view, gauges(run)))
    asked = view.header.get("lessons")
    ran_into = _failure(view)
    worked = view.state is RunState.SUCCEEDED and view.decision in (Decision.GO, Decision.NONE)
    return Found(
        run=run.id, day=time.strftime("%Y-%m-%d", time.localtime(view.ended or view.created)),
        title=f"{plain(view.title, 60)} – {ran_into or decision or outcome}",
        playbook=plain(view.playbook, 60),
        worked=worked, outcome=outcome, symptom=_symptom(view, outcome), candidates=candidates,
        figures=tuple(_figures(view))[:MOST_FIGURES], lines=tuple(_lines(view))[-MOST_LINES:],
        lessons=tuple(map(str, asked)) if isinstance(asked, list) else (),
    )  # fmt: skip


def _decision(view: RunView) -> str:
    """`NO-GO (retain)`, or "" where nothing was decided."""
    if view.decision is Decision.NONE:
        return ""
    outcome = f" ({plain(view.outcome, 60)})" if view.outcome else ""
    return f"{WORD[view.decision]}{outcome}{f' {view.mark}' if view.mark else ''}"


def _failure(view: RunView) -> str:
    breach = view.breach
    if breach is not None:
        return "stopped by the guard"
    failed = [s for s in view.steps if s.state is StepState.FAILED]
    return f"{plain(failed[-1].id, 40)} failed" if failed else ""


def _symptom(view: RunView, outcome: str) -> str:
    """What was seen first of all: a breach, the last words of a failed step, a gate's reason."""
    if view.breach is not None:
        return plain(view.breach.words, 400)
    for step in reversed(view.steps):
        if step.state is StepState.FAILED:
            last = f" It said: {redact.text(plain(step.lines[-1], 300))}" if step.lines else ""
            return f"Step {plain(step.id, 60)}: {plain(step.detail or step.cause, 300)}.{last}"
    for one in reversed(view.verdicts):
        reasons = [row.get("why", "") for row in one.criteria if row.get("verdict") == one.verdict]
        return f"Gate {plain(one.step, 60)} said {one.verdict}: {plain('; '.join(reasons), 400)}."
    return f"The run ended: {outcome}."


def _figures(view: RunView) -> Iterator[str]:
    for scope, metrics in view.metrics.items():
        found = ", ".join(
            f"{name} {format_number(one['value'], one.get('unit', ''))}"
            for name, one in metrics.items()
            if isinstance(one, dict) and one.get("value") is not None
        )
        if found:
            yield f"{plain(scope, 60)}: {plain(found, 400)}"


def _lines(view: RunView) -> Iterator[str]:
    for step in view.steps:
        if step.state is StepState.FAILED:
            yield from (redact.text(plain(line, 300)) for line in step.lines)
