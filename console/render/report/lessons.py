"""What of a run may be worth a lesson: candidates for the report, and the facts of a draft.

A candidate says what was attempted, what came of it, the cause, the figure. Only what is on record;
a person judges and files it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from console.common.errors import UsageError
from console.common.units import plural
from console.config.lessons.use import DraftFacts
from console.journal import samples
from console.journal.run_dir import RunDir
from console.journal.run_files import view_of
from console.journal.run_view import RunView
from console.journal.samples import Gauge
from console.journal.state import Decision, RunState, StepState
from console.render.facts.gate import gates
from console.render.facts.run import baseline_after, decision
from console.render.facts.step import StepFacts
from console.render.facts.words import state_words
from console.render.report.benchmarks import drift_words, drifts, figures_line, voids
from console.render.report.decision import (
    decided,
    deciding,
    settled,
    with_baseline,
)
from console.render.report.guard import guard_lessons
from console.render.report.markdown import figure, given, plain, took
from console.render.report.memory import above, card_names, envelope_of, rise_of
from console.render.report.soak import happened, soak_of, soak_steps
from console.render.report.timeline import findings

MAX_FIGURES, MAX_LINES, MAX_WHY = 12, 8, 342
UNKNOWN = "Cause: to be found."


def candidates(view: RunView, gauges: Sequence[Gauge]) -> list[str]:
    """Plain sentences, one candidate each."""
    return [
        *guard_lessons(view), *_of_steps(view), *_of_decision(view), *_of_overrides(view),
        *_of_lint(view), *_of_voids(view), *_of_soaks(view), *_of_memory(view, gauges),
        *_of_baseline(view),
    ]  # fmt: skip


def trial(view: RunView) -> str:
    return plain(view.title, 120) + (f" ({given(view)})" if view.inputs else "")


def _of_steps(view: RunView) -> Iterator[str]:
    for step in view.steps:
        if step.state is not StepState.FAILED:
            continue
        facts = StepFacts(step)
        quote = f" It said: {plain(facts.last_words, 200)}" if facts.last_words else ""
        cause = plain(f"{facts.cause}: {facts.detail}", MAX_WHY)
        yield (
            f"Attempted: {plain(step.title, 120)} (step {plain(step.id, 60)}). Result: failed "
            f"after {took(step.duration_s)}. Cause: {cause}.{quote}"
        )


def _of_decision(view: RunView) -> Iterator[str]:
    verdict = decided(view)
    held = view.decision is Decision.HOLD or not settled(view)
    if verdict is None or verdict.overridden or held:
        return
    rows = deciding(verdict)
    why = "; ".join(
        plain(with_baseline(view, row) if at == 0 else row.get("why", ""), 300)
        for at, row in enumerate(rows[:3])
    )
    outcome = f" ({plain(verdict.outcome, 60)})" if verdict.outcome else ""
    cause = "" if view.decision is Decision.GO else f" {UNKNOWN}"
    result = f"{view.decision.word}{outcome}"
    yield f"Attempted: {trial(view)}. Result: {result}.{cause} Figure: {why}."


def _of_overrides(view: RunView) -> Iterator[str]:
    for gate in gates(view):
        for mark in gate.marks:
            yield (
                f"Attempted: going on past {plain(gate.step, 60)}, which held. Result: "
                f"{mark.label.lower()} {plain(mark.value, 203)}. To be added: whether that was "
                "right."
            )


def _of_lint(view: RunView) -> Iterator[str]:
    for finding in findings(view):
        if finding.get("override"):
            yield (
                f"Attempted: going on past lint's {plain(finding.get('rule'), 60)} "
                f"({plain(finding.get('override'), 200)}). Result: {trial(view)} ended "
                f"{plain(view.state)}. To be added: whether the rule is right here."
            )


def _of_voids(view: RunView) -> Iterator[str]:
    for scope, known in view.measured.items():
        for reason, count in voids(known.benchmark).items():
            yield (
                f"Attempted: measuring {plain(scope, 60)}. Result: {plural(count, 'run')} "
                f"discarded. Cause: {plain(reason)}."
            )


def _of_soaks(view: RunView) -> Iterator[str]:
    for name in soak_steps(view):
        soak = soak_of(view, name)
        errors = soak.get("errors")
        classes = sorted(errors.items()) if isinstance(errors, dict) else []
        counts = [f"{plain(kind, 60)} {count}" for kind, count in classes]
        troubles = [f"errors: {', '.join(counts)}"] if counts else []
        for key, word in (("restarts", "restart"), ("hangs", "hang")):
            moments = happened(soak.get(key))
            troubles += [plural(len(moments), word)] if moments else []
        lines = soak.get("critical") or []
        troubles += [plural(len(lines), "critical log line")] if lines else []
        if troubles:
            observed = view.metrics.get(name, {}).get("observed_s", {}).get("value")
            yield (
                f"Attempted: soak {plain(name, 60)}, {figure(observed, 's')} observed. Result: "
                f"{'; '.join(troubles)}. {UNKNOWN}"
            )


def _of_memory(view: RunView, gauges: Sequence[Gauge]) -> Iterator[str]:
    for step, known in view.measured.items():
        envelope, rise = envelope_of(known.envelope), rise_of(view, step, gauges)
        if envelope is None or rise is None:
            continue
        words = above(envelope, rise, card_names(view))
        if words:
            yield (
                f"Attempted: predicting memory ({plain(step, 60)}). Result: more was taken. "
                f"Figure: {plain(words)}."
            )


def _of_baseline(view: RunView) -> Iterator[str]:
    after = baseline_after(view)
    if after.key == "degraded":
        result = f"the baseline came back {after.label}"
        yield f"Attempted: {trial(view)}. Result: {result}. Figure: {plain(after.detail)}."
    for drift in drifts(view):
        if drift.large:
            yield (
                "Attempted: comparing with the baseline. Result: it drifted meanwhile. Figure: "
                f"{drift_words(drift)}."
            )


def found_in(run: RunDir) -> DraftFacts:
    """What a finished run leaves on record for a draft: candidates, figures, the last log lines.
    Raises UsageError while the run is not over."""
    view, word = view_of(run)
    if not view.over:
        raise UsageError(
            f"run {run.id} is not over ({word})", "a lesson is drawn from a run that is",
            f"omni-console show {run.id[-4:]}",
        )  # fmt: skip
    decided_as = _decision(view)
    outcome = state_words(view.state) + (f", {decided_as}" if decided_as else "")
    noted = tuple(candidates(view, samples.gauges(run)))
    ran_into = _failure(view)
    worked = view.state is RunState.SUCCEEDED and view.decision in (Decision.GO, Decision.NONE)
    return DraftFacts(
        run=run.id, day=time.strftime("%Y-%m-%d", time.localtime(view.ended or view.created)),
        title=f"{plain(view.title, 60)} – {ran_into or decided_as or outcome}",
        playbook=plain(view.playbook, 60),
        worked=worked, outcome=outcome, symptom=_symptom(view, outcome), candidates=noted,
        figures=tuple(_figures(view))[:MAX_FIGURES], lines=tuple(_lines(view))[-MAX_LINES:],
        lessons=tuple(view.header.lessons),
    )  # fmt: skip


def _decision(view: RunView) -> str:
    """`NO-GO (retain)`, or "" where nothing was decided."""
    known = plain(decision(view).value)
    return f"{known} {view.mark}".rstrip() if known else ""


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
            last = f" It said: {plain(step.lines[-1], 300)}" if step.lines else ""
            return f"Step {plain(step.id, 60)}: {plain(step.detail or step.cause, 300)}.{last}"
    for verdict in reversed(view.verdicts):
        reasons = [row.get("why", "") for row in deciding(verdict)]
        words = plain("; ".join(reasons), 400)
        return f"Gate {plain(verdict.step, 60)} said {verdict.verdict}: {words}."
    return f"The run ended: {outcome}."


def _figures(view: RunView) -> Iterator[str]:
    for scope, metrics in view.metrics.items():
        if line := figures_line(metrics):
            yield f"{plain(scope, 60)}: {plain(line, 400)}"


def _lines(view: RunView) -> Iterator[str]:
    for step in view.steps:
        if step.state is StepState.FAILED:
            yield from (plain(line, 300) for line in step.lines)
