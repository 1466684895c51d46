"""The report of a run: Markdown for people, JSON for programs, both from the journal alone."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

from console.run.directory import RunDir
from console.run.state import ENDS, exit_code
from console.run.view import RunView, StepView
from console.text import clean
from console.units import format_duration, format_number

GLYPH = {
    "succeeded": "✓", "failed": "✗", "skipped": "–", "cancelled": "✗", "running": "▶",
    "pending": "·", "in_doubt": "?", "retry_wait": "↻",
}  # fmt: skip


def write_report(run: RunDir, view: RunView, copy: Path | None = None) -> Path:
    """Write report.md and report.json into the run's directory and `copy`. Raises OSError."""
    text = markdown(view)
    _write(run.report, text)
    _write(run.report_json, json.dumps(as_json(view), indent=1) + "\n")
    if copy is None:
        return Path(run.report)
    copy.parent.mkdir(parents=True, exist_ok=True)
    _write(copy, text)
    return copy


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)


def as_json(view: RunView) -> dict[str, Any]:
    """One object: state and decision apart, every step, metric and verdict."""
    return {
        "run": view.run_id,
        "playbook": view.playbook,
        "title": view.title,
        "site": view.site,
        "owner": view.owner,
        "created": view.created,
        "ended": view.ended or None,
        "state": str(view.state),
        "reason": view.reason,
        "decision": str(view.decision) or None,
        "outcome": view.outcome or None,
        "overridden": view.overridden or None,
        "exit_code": int(exit_code(view.state, view.decision)) if view.state in ENDS else None,
        "inputs": view.inputs,
        "restore_s": view.restored_s,
        "baseline": view.serving or None,
        "steps": [
            {
                "id": s.id, "title": s.title, "phase": s.phase, "kind": s.kind,
                "state": str(s.state), "attempts": s.attempt, "cause": s.cause or None,
                "detail": s.detail, "duration_s": s.duration_s, "planned_s": s.takes_s,
                "lines": s.lines,
            }
            for s in view.steps
        ],
        "metrics": view.metrics,
        "benchmarks": view.benchmarks,
        "verdicts": [
            {"step": v.step, "verdict": v.verdict, "outcome": v.outcome or None,
             "overridden": v.overridden or None, "criteria": v.criteria}
            for v in view.verdicts
        ],
        "envelopes": view.envelopes,
        "verbs": view.verbs,
    }  # fmt: skip


def markdown(view: RunView) -> str:
    """The report as an operator files it."""
    lines = [f"# {clean(view.title)}", ""]
    lines += _summary(view)
    lines += _decision(view)
    lines += _figures(view)
    lines += _envelopes(view)
    lines += _steps(view)
    lines += _failures(view)
    lines += _verbs(view)
    return "\n".join(lines) + "\n"


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def _cell(text: str) -> str:
    # a backslash in front of a pipe would escape the escape and open another column
    return re.sub(r"(\\*)\|", r"\1\1\\|", clean(text))


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "–"


def _summary(view: RunView) -> list[str]:
    decision = str(view.decision).upper().replace("_", "-") or "none"
    named = f" ({view.outcome})" if view.outcome else ""
    over = f", **OVERRIDDEN** by {clean(view.overridden)}" if view.overridden else ""
    took = format_duration(view.ended - view.created) if view.ended else "–"
    rows = [
        ("Decision", f"**{decision}**{named}{over}"),
        ("State", f"{view.state}" + (f" ({view.reason})" if view.reason else "")),
        ("Run", f"`{view.run_id}` of playbook `{view.playbook}`, site `{view.site}`"),
        ("Started", f"{_when(view.created)} by {view.owner}"),
        ("Took", took),
        ("Baseline after", _baseline(view)),
    ]
    rows += [("Baseline drift", text) for text in drift(view)]
    rows += [(f"Input {k}", f"`{v}`") for k, v in view.inputs.items()]
    return ["| | |", "|---|---|", *(f"| {_cell(k)} | {_cell(v)} |" for k, v in rows), ""]


def drift(view: RunView) -> list[str]:
    """How far the baseline's tok/s moved from before the trial to after it, a line a benchmark."""
    lines = []
    for scope, metrics in view.metrics.items():
        after = view.metrics.get(f"{scope}-after", {}).get("tok_s", {}).get("value")
        before = metrics.get("tok_s", {}).get("value")
        if before and after:
            change = (after - before) / before * 100
            lines.append(f"{change:+.1f} % ({before:.4g} → {after:.4g} tok/s)")
    return lines


def _baseline(view: RunView) -> str:
    if view.outage:
        return "**NOT SERVING**: run `omni-console rollback`"
    if not view.serving:
        return "not touched"
    rate = view.serving.get("tok_s")
    words = "DEGRADED" if view.serving.get("degraded") else "serving"
    words += f" at {rate:.1f} tok/s" if rate else ""
    back = f", back after {format_duration(view.restored_s)}" if view.restored_s else ""
    return words + back


def _decision(view: RunView) -> list[str]:
    lines: list[str] = []
    for verdict in view.verdicts:
        lines += [f"## Gate `{verdict.step}`: {verdict.verdict}", ""]
        if verdict.overridden:
            lines += [f"**Overridden**: {clean(verdict.overridden)}", ""]
        lines += _head("criterion", "verdict", "why")
        lines += [
            f"| `{_cell(c['metric'])}` | {c['verdict']} | {_cell(c['why'])} |"
            for c in verdict.criteria
        ]
        lines.append("")
    return lines


def _figures(view: RunView) -> list[str]:
    lines: list[str] = []
    for scope, metrics in view.metrics.items():
        if not metrics:
            continue
        lines += [f"## Figures `{clean(scope)}`", ""]
        bench = view.benchmarks.get(scope)
        if bench:
            lines += [f"{_cell(bench.get('model', ''))} {_cell(bench.get('build', ''))}".strip()]
            lines += [f"- flag: {clean(str(flag))}" for flag in bench.get("flags", [])]
            lines.append("")
        lines += [
            "| metric | value | mean ± std | median | n | void |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_figure(name, figures) for name, figures in metrics.items()]
        lines.append("")
    return lines


def _envelopes(view: RunView) -> list[str]:
    """What a load was predicted to take, to hold what happened against."""
    from console.fit.envelope import Envelope

    lines: list[str] = []
    for step, data in view.envelopes.items():
        try:
            predicted = Envelope.from_json(data).lines()
        except ValueError:
            continue
        if predicted:
            lines += [f"## Memory predicted by `{clean(step)}`", ""]
            lines += [*(f"- {clean(line)}" for line in predicted), ""]
    return lines


def _figure(name: str, figures: dict[str, Any]) -> str:
    unit = figures.get("unit", "")

    def shown(key: str) -> str:
        value = figures.get(key)
        return format_number(value, unit) if value is not None else "–"

    spread = f"{shown('mean')} ± {shown('std')}" if figures.get("std") is not None else "–"
    return (
        f"| {_cell(name)} | {shown('value')} | {spread} | {shown('median')} "
        f"| {figures.get('n', 0)} | {figures.get('void', 0)} |"
    )


def _steps(view: RunView) -> list[str]:
    lines = [
        "## Steps",
        "",
        "| | step | state | planned | took | what |",
        "|---|---|---|---|---|---|",
    ]
    for step in view.steps:
        took = format_duration(step.duration_s) if step.duration_s is not None else "–"
        planned = format_duration(step.takes_s) if step.takes_s is not None else "–"
        again = f" (attempt {step.attempt})" if step.attempt > 1 else ""
        lines.append(
            f"| {GLYPH.get(step.state, ' ')} | `{step.id}` | {step.state}{again} | {planned} "
            f"| {took} | {_cell(step.detail or step.title)} |"
        )
    return [*lines, ""]


def _failures(view: RunView) -> list[str]:
    lines: list[str] = []
    for step in view.steps:
        if step.state == "failed":
            lines += failure_lines(step)
    return ["## What went wrong", "", *lines, ""] if lines else []


def failure_lines(step: StepView) -> list[str]:
    """A failed step: cause, detail and its last log lines, as an indented block."""
    lines = [f"`{step.id}`: {step.cause}: {clean(step.detail)}", ""]
    lines += [f"    {clean(line)}" for line in step.lines[-20:]]
    return [*lines, ""]


def _verbs(view: RunView) -> list[str]:
    if not view.verbs:
        return []
    lines = ["## Who did what", "", *_head("when", "who", "verb", "step", "why")]
    lines += [
        f"| {_when(v['at'])} | {_cell(v.get('who', ''))} | {_cell(v.get('verb', ''))} "
        f"| {_cell(v.get('step', ''))} | {_cell(v.get('why', ''))} |"
        for v in view.verbs
    ]
    return [*lines, ""]
