"""The report of a run, from its records: Markdown and charts for people, JSON for programs.

Another engineer can decide from it alone: the decision and its reason come first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common import redact
from console.common.files import write_atomically
from console.common.text import clean
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_files import INTERRUPTED, word_of
from console.journal.run_view import MAX_TROUBLE, RunView
from console.journal.samples import Gauge, gauges
from console.journal.state import ENDS
from console.render.facts.words import when
from console.render.report import benchmarks, timeline
from console.render.report.charts import Chart, charts, file_name
from console.render.report.contract import contract_lines, contract_steps
from console.render.report.decision import because, gate_lines, headline
from console.render.report.guard import guard_chart, guard_json, guard_lines
from console.render.report.lessons import candidates
from console.render.report.markdown import marked, plain, prose
from console.render.report.memory import memory_lines
from console.render.report.next_steps import next_steps, not_shown
from console.render.report.soak import soak_lines, soak_steps
from console.render.report.tune import tune_chart, tune_lines, tune_steps


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is on record beside the journal: machine figures over the run, and all charts.
    `interrupted`: the run is not over, and its runner has ended."""

    gauges: Sequence[Gauge] = ()
    charts: Sequence[Chart] = ()
    interrupted: bool = False


def evidence(run: RunDir, view: RunView) -> Evidence:
    """Read a run's files and draw its charts; missing files are left out."""
    seen = gauges(run)
    drawn: list[Chart | None] = [*charts(run, view, seen)]
    drawn += [tune_chart(view, step) for step in tune_steps(view)]
    drawn.append(guard_chart(view))
    interrupted = word_of(run, view, runner_alive(run)) == INTERRUPTED
    return Evidence(seen, [chart for chart in drawn if chart is not None], interrupted)


def write_report(run: RunDir, view: RunView, copy: Path | None = None) -> Path:
    """Write report.md, report.json and the charts into the run's directory, and the Markdown with
    its charts to `copy`. Charts lie in a folder named after the file, and are linked from it.
    Raises OSError."""
    run_evidence = evidence(run, view)
    write_copy(view, run_evidence, run.report)
    _write(run.report_json, json.dumps(as_json(view, run_evidence), indent=1) + "\n")
    if copy is not None:
        write_copy(view, run_evidence, copy)
    return copy or Path(run.report)


def write_copy(view: RunView, run_evidence: Evidence, path: Path) -> None:
    """Write the Markdown with its charts to `path` alone. Raises OSError."""
    folder = path.with_name(path.stem)
    if folder == path:  # a file without an ending
        folder = path.with_name(f"{path.name}-charts")
    for chart in run_evidence.charts:
        _write(folder / f"{chart.name}.svg", chart.svg)
    _write(path, markdown(view, run_evidence, folder.name))


def _write(path: Path, text: str) -> None:
    """Write a file, but never replace a device, FIFO or other special file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def markdown(view: RunView, run_evidence: Evidence | None = None, folder: str = "") -> str:
    """The report as an operator files it. `folder`: where the charts are, relative to the text."""
    run_evidence = run_evidence or Evidence()
    drawn = {chart.name: chart.link(folder) for chart in run_evidence.charts} if folder else {}
    lines = [f"# {prose(clean(view.title))}", "", *_rehearsed(view),
             *headline(view, interrupted=run_evidence.interrupted)]  # fmt: skip
    lines += timeline.summary(view, interrupted=run_evidence.interrupted)
    lines += _bullets("What to do next", next_steps(view, interrupted=run_evidence.interrupted))
    if view.over:
        lines += _bullets("What this run does not show", not_shown(view))
    lines += _bullets(
        "Started again by others",
        [f"seen at {when(at)}: {plain(words, 300)}" for at, words in view.by_others],
    )
    lines += guard_lines(view, drawn)
    lines += [*gate_lines(view), *timeline.lint_lines(view)]
    lines += _measured(view, drawn, has_folder=bool(folder))
    lines += memory_lines(view, run_evidence.gauges)
    lines += drawn.get("memory", [])
    if view.peaks and folder and not run_evidence.gauges:
        lines += ["The gauges over the run are no longer there, so there is no chart.", ""]
    for part in (timeline.host_lines, timeline.step_lines, timeline.failures, timeline.ran_lines,
                 timeline.verb_lines):  # fmt: skip
        lines += part(view)
    lines += _bullets("Parts of the journal that make no sense", view.trouble[:MAX_TROUBLE])
    lines += _bullets("What stood in for what", view.rehearsal.get("notes") or [])
    lines += _bullets("Lesson candidates", candidates(view, run_evidence.gauges))
    return "\n".join(lines).rstrip("\n") + "\n"


def _measured(view: RunView, drawn: dict[str, list[str]], *, has_folder: bool) -> Iterator[str]:
    """Benchmarks, captured figures and soaks in the order of the run, each with its charts."""
    soaks = soak_steps(view)
    tunings, contracts = tune_steps(view), contract_steps(view)
    for scope in benchmarks.scopes(view):
        kinds: tuple[str, ...] = ()
        if scope in tunings:
            yield from tune_lines(view, scope)
            kinds = ("tune",)
        elif scope in contracts:
            yield from contract_lines(view, scope)
        elif view.measurement(scope).quality:
            yield from benchmarks.quality_lines(view, scope)
        elif scope in soaks:
            yield from soak_lines(view, scope)
            kinds = ("soak", "soak-memory")
        elif benchmarks.is_benchmark(view, scope):
            yield from benchmarks.bench_lines(view, scope)
            kinds = ("samples",)
        else:
            yield from benchmarks.captured_lines(view, scope)
        for kind in kinds:
            yield from drawn.get(file_name(kind, scope), [])
        if (
            scope in soaks
            and has_folder
            and not any(file_name(kind, scope) in drawn for kind in kinds)
        ):
            yield from ("Its samples are no longer there, so there is no chart.", "")


def _rehearsed(view: RunView) -> list[str]:
    """A first line for rehearsals: nothing below is about a real engine."""
    if not view.rehearsal:
        return []
    fault = clean(str(view.rehearsal.get("fault") or ""), 40)
    words = f" with the fault `{fault}`" if fault else ""
    return [
        f"**REHEARSAL{words}: stand-ins served, GPUs were scripted. The procedure is real, every "
        "figure is a stand-in's, and the decision counts for nothing.**", "",
    ]  # fmt: skip


def _bullets(title: str, sentences: Sequence[str]) -> list[str]:
    return (
        [f"## {title}", "", *(f"- {marked(sentence)}" for sentence in sentences), ""]
        if sentences
        else []
    )


def as_json(view: RunView, run_evidence: Evidence | None = None) -> dict[str, Any]:
    """One object: state and decision apart, every step with its argv, every metric and verdict."""
    planned, actual, _ = timeline.planned_s(view)
    run_evidence, begun = run_evidence or Evidence(), view.header.data()
    return {
        "run": view.run_id,
        "playbook": view.playbook,
        "digest": begun.get("digest"),
        "title": view.title,
        "rehearsal": bool(view.rehearsal),
        "fault": view.rehearsal.get("fault") or None,
        "objective": begun.get("objective"),
        "site": view.site,
        "owner": view.owner,
        "created": view.created,
        "ended": view.ended or None,
        "took_s": view.ended - view.created if view.ended else None,
        "planned_s": planned or None,
        "planned_took_s": actual or None,
        "state": INTERRUPTED if run_evidence.interrupted else str(view.state),
        "reason": view.reason,
        "detail": view.detail,
        "offer": view.offer or None,
        "decision": str(view.decision) or None,
        "because": because(view),
        "outcome": view.outcome or None,
        "mark": view.mark or None,
        **_beside(view),
        "overridden": view.overridden or None,
        "exit_code": int(view.exit_code) if view.state in ENDS else None,
        "inputs": view.inputs,
        "machine": begun.get("machine"),
        "restore_s": view.restored_s,
        "outage_s": view.down_s or None,
        "cutover": view.cutover.data() or None,
        "baseline": view.serving.data() or None,
        "drift": [
            {"step": drift.scope, "before": drift.before, "after": drift.after}
            for drift in benchmarks.drifts(view)
        ],
        "steps": [_step(s) for s in view.steps],
        "targets": view.header.targets,
        "metrics": view.metrics,
        "benchmarks": _parts(view, "benchmark"),
        "soaks": _parts(view, "soak"),
        "tunings": _parts(view, "tune"),
        "contracts": _parts(view, "contract"),
        "qualities": _parts(view, "quality"),
        "verdicts": [_verdict(verdict) for verdict in view.verdicts],
        "envelopes": _parts(view, "envelope"),
        "peaks": view.peaks.data(),
        "verbs": [verb.data() for verb in view.verbs],
        "guards": guard_json(view),
        "lint": timeline.findings(view),
        "next": next_steps(view, interrupted=run_evidence.interrupted),
        "not_shown": not_shown(view),
        "lessons": candidates(view, run_evidence.gauges),
        "charts": [chart.name for chart in run_evidence.charts],
        "trouble": view.trouble[:MAX_TROUBLE],
    }


def _parts(view: RunView, part: str) -> dict[str, dict[str, Any]]:
    """One part of what was measured, by step: a field of StepMeasurement."""
    known = {scope: getattr(measured, part) for scope, measured in view.measured.items()}
    return {scope: table for scope, table in known.items() if table}


def _beside(view: RunView) -> dict[str, Any]:
    """What speaks against the figures, and what others did to the baseline meanwhile."""
    seen = [{"seen_at": at, "words": words} for at, words in view.by_others]
    return {"started_by_others": seen, "doubts": [doubt.data() for doubt in view.doubts]}


def _verdict(verdict: Any) -> dict[str, Any]:
    return {
        "step": verdict.step, "verdict": verdict.verdict, "outcome": verdict.outcome or None,
        "overridden": verdict.overridden or None, "criteria": verdict.criteria,
    }  # fmt: skip


def _step(step: Any) -> dict[str, Any]:
    return {
        "id": step.id, "title": step.title, "phase": step.phase, "kind": step.kind,
        "state": str(step.state), "attempts": step.attempt, "cause": step.cause or None,
        "detail": step.detail, "warned": step.warned,
        "duration_s": step.duration_s, "planned_s": step.takes_s,
        "effects": [redact.text(line) for line in step.effects], "lines": step.lines,
    }  # fmt: skip
