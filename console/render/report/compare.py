"""Several runs side by side: what was attempted, with what, what it measured, what went wrong.

Makes the "what was attempted" tables of the registry of lessons from the journals.
"""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from console.bench.metrics import METRICS, OUTPUT_METRICS, SOAK_METRICS, Metric
from console.common.text import clean
from console.common.units import number
from console.journal.run_view import RunView
from console.render.facts.gate import doubts, marks
from console.render.facts.run import baseline_after
from console.render.report.benchmarks import AFTER, BEFORE, drifts, targets
from console.render.report.decision import (
    BAD,
    decided,
    deciding,
    decision_words,
    stopped_by,
)
from console.render.report.markdown import change, code, figure, prose, table
from console.render.report.soak import soak_steps


def _columns(metrics: Mapping[str, Metric]) -> list[str]:
    """The metrics that are compared between runs, in their order."""
    compared = [name for name, metric in metrics.items() if metric.compared]
    return sorted(compared, key=lambda name: metrics[name].compared)


BENCH, SOAK = _columns({**METRICS, **OUTPUT_METRICS}), _columns(SOAK_METRICS)
MAX_METRICS = 6
MAX_MARK = 134
VRAM = "VRAM at most"
INPUTS = "inputs"
HELD = "\xa0"
BRACKETS = "in brackets: against the baseline measured beside it"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run; texts are clean. `metrics`: label → figure in words, `values` the same as numbers
    in base units."""

    run: str
    created: float
    playbook: str
    title: str
    state: str
    decision: str
    inputs: dict[str, str]
    metrics: dict[str, str]
    values: dict[str, float]
    wrong: str

    @property
    def short(self) -> str:
        """The end of the id, as verbs take it."""
        return self.run[-4:]

    @property
    def day(self) -> str:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created)) if self.created else ""

    @property
    def outcome(self) -> str:
        """`NO-GO (retain), rolled_back`: the decision, then the state."""
        return self.decision if self.state == "succeeded" else f"{self.decision}, {self.state}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Attempts, oldest first. `inputs` are those that differ, `same` those that do not; runs of
    different playbooks have their inputs in one column, `INPUTS`."""

    attempts: tuple[Attempt, ...]
    inputs: tuple[str, ...] = ()
    same: dict[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()


def compare(runs: Sequence[tuple[RunView, str]]) -> Comparison:
    """Runs, each with its state in one word, side by side."""
    # whether a metric's name alone would be two things in one of the runs
    named = ([name for _, name, _ in _headline(view)] for view, _ in runs)
    whole = any(len(names) != len(set(names)) for names in named)
    attempts = [attempt(view, state, whole) for view, state in runs]
    attempts.sort(key=lambda run_attempt: (run_attempt.created, run_attempt.run))
    names = list(dict.fromkeys(name for run_attempt in attempts for name in run_attempt.inputs))
    same = {
        name: attempts[0].inputs[name]
        for name in names
        if all(
            run_attempt.inputs.get(name) == attempts[0].inputs.get(name) for run_attempt in attempts
        )
    }
    # what most runs have comes first; among equals the order of the runs
    labels = [
        label
        for label, _ in Counter(
            chain(*(run_attempt.metrics for run_attempt in attempts))
        ).most_common()
    ]
    differ = tuple(name for name in names if name not in same)
    if differ and len({run_attempt.playbook for run_attempt in attempts}) > 1:
        for row in attempts:
            given = {name: value for name, value in row.inputs.items() if name not in same}
            row.inputs[INPUTS] = ", ".join(f"{name}={value}" for name, value in given.items())
        differ = (INPUTS,)
    return Comparison(tuple(attempts), differ, same, tuple(labels[:MAX_METRICS]))


def attempt(view: RunView, state: str, whole: bool) -> Attempt:
    """One run as a row; `whole`: label metrics with their step."""
    metrics, values = {}, {}
    for step, name, figures in _headline(view):
        label = clean(f"{step}.{name}" if whole and step else name, 60)
        value, unit = number(figures.get("value")), str(figures.get("unit") or "")
        base = number(view.metrics.get(step + BEFORE, {}).get(name, {}).get("value"))
        against = f" ({change(value, base)})" if value is not None and base else ""
        if value is not None:
            metrics[label], values[label] = clean(figure(value, unit)) + against, value
    return Attempt(
        clean(view.run_id, 120), view.created, clean(view.playbook, 60), clean(view.title, 120),
        clean(state, 30), decision_words(view) if view.decision else "no decision",
        {clean(str(k), 40): clean(str(v), 60) for k, v in view.inputs.items()},
        metrics, values, wrong(view),
    )  # fmt: skip


def _headline(view: RunView) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(step, metric, figures) worth a column."""
    soaks = soak_steps(view)
    for scope, metrics in view.metrics.items():
        if scope.endswith((BEFORE, AFTER)):
            continue
        names = SOAK if scope in soaks else BENCH if view.measurement(scope).benchmark else ()
        gate_metrics = [
            name for name in metrics if name not in names and targets(view, f"{scope}.{name}")
        ]
        for name in (*names, *gate_metrics):
            if name in metrics:
                yield scope, name, metrics[name]
    cards = [number(card.get("used")) for card in view.peaks.gpu.values()]
    known = [used for used in cards if used is not None]
    if known and len(known) == len(cards):
        yield "", VRAM, {"value": sum(known), "unit": "B"}


def wrong(view: RunView) -> str:
    """What went wrong, in a few words; empty if nothing did."""
    troubles = []
    verdict = decided(view)
    if any(step.state in BAD for step in view.steps):
        troubles.append(stopped_by(view))
    elif verdict is not None and verdict.verdict != "GO":
        troubles += [clean(row.get("why", ""), 200) for row in deciding(verdict)[:2]]
    elif stopped_by(view):
        troubles.append(stopped_by(view))
    troubles += [doubt.line for doubt in doubts(view)]
    troubles += [clean(mark.line, MAX_MARK) for mark in marks(view)]
    after = baseline_after(view)
    if after.tone not in ("", "good"):
        back = f"the baseline came back {after.label}"
        troubles.append(back if after.key == "degraded" else after.brief)
    troubles += [f"the baseline moved by {change(drift.after, drift.before)}"
              for drift in drifts(view) if drift.large]  # fmt: skip
    return "; ".join(troubles)


def as_json(made: Comparison) -> dict[str, Any]:
    """The table as values: seconds, bytes, tok/s."""
    return {
        "inputs_that_differ": list(made.inputs),
        "inputs_alike": made.same,
        "metrics": list(made.metrics),
        "attempts": [
            {
                "run": run_attempt.run,
                "created": run_attempt.created,
                "playbook": run_attempt.playbook,
                "title": run_attempt.title,
                "state": run_attempt.state,
                "decision": run_attempt.decision,
                "inputs": {name: run_attempt.inputs.get(name) for name in made.inputs},
                "metrics": {label: run_attempt.values.get(label) for label in made.metrics},
                "wrong": run_attempt.wrong or None,
            }
            for run_attempt in made.attempts
        ],
    }


def markdown(made: Comparison) -> str:
    """The table in the form that a registry of lessons uses."""
    head = ["run", "date", "playbook", *(code(name, 40) for name in made.inputs)]
    head += [*(code(label, 60) for label in made.metrics), "decision", "what went wrong"]
    rows = [
        [
            code(run_attempt.run, 120), run_attempt.day, prose(run_attempt.playbook),
            *(code(run_attempt.inputs.get(name) or "–", 200) for name in made.inputs),
            *(prose(run_attempt.metrics.get(label, "–")) for label in made.metrics),
            f"**{prose(run_attempt.outcome)}**", prose(run_attempt.wrong) or "–",
        ]
        for run_attempt in made.attempts
    ]  # fmt: skip
    lines = [f"# {len(made.attempts)} attempts", "", *table(head, rows)]
    if made.same:
        pairs = ", ".join(f"{code(k, 40)} {code(v, 60)}" for k, v in made.same.items())
        lines += [f"The same in all: {pairs}.", ""]
    if _compared(made):
        lines += [f"{BRACKETS.capitalize()}.", ""]
    return "\n".join(lines)


def lines(made: Comparison, width: int) -> list[str]:
    """The same for a terminal: a table if it fits, else a block for each attempt."""
    head = ["run", "date", "playbook", *made.inputs, *made.metrics, "decision"]
    rows = [
        [
            run_attempt.short,
            run_attempt.day,
            run_attempt.playbook,
            *(run_attempt.inputs.get(n) or "–" for n in made.inputs),
            *(run_attempt.metrics.get(label, "–") for label in made.metrics),
            run_attempt.outcome,
        ]
        for run_attempt in made.attempts
    ]
    sizes = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    same = _pairs(made.same)
    tail = _wrapped(f"the same in all: {same}", width, "") if same else []
    tail += _wrapped(BRACKETS, width, "") if _compared(made) else []
    if sum(sizes) + 2 * (len(sizes) - 1) > width:
        return [*_blocks(made, width), *tail]
    table_lines = [_row(head, sizes)]
    for row, entry in zip(rows, made.attempts, strict=True):
        table_lines += [_row(row, sizes), *_wrapped(entry.wrong, width, "      ")]
    return [*table_lines, *tail]


def _blocks(made: Comparison, width: int) -> Iterator[str]:
    for run_attempt in made.attempts:
        yield from _wrapped(
            f"{run_attempt.short}  {run_attempt.day}  {run_attempt.playbook}  "
            f"{run_attempt.outcome}",
            width,
            "",
        )
        yield from _wrapped(_with(run_attempt, made.inputs), width, "  ")
        metric_texts = [
            f"{label} {run_attempt.metrics[label]}"
            for label in made.metrics
            if label in run_attempt.metrics
        ]
        yield from _wrapped(
            "   ".join(text.replace(" ", HELD) for text in metric_texts), width, "  "
        )
        yield from _wrapped(run_attempt.wrong, width, "  ")
        yield ""


def _with(run_attempt: Attempt, names: Sequence[str]) -> str:
    if names == (INPUTS,):
        return run_attempt.inputs.get(INPUTS, "")
    return _pairs({name: run_attempt.inputs.get(name) or "–" for name in names})


def _compared(made: Comparison) -> bool:
    return any(
        " (" in cell for run_attempt in made.attempts for cell in run_attempt.metrics.values()
    )


def _pairs(values: Mapping[str, str]) -> str:
    return "  ".join(f"{name}={value}" for name, value in values.items())


def _row(cells: Sequence[str], sizes: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{size}}" for cell, size in zip(cells, sizes, strict=True)).rstrip()


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Lines of a text; a figure is not separated from its unit."""
    wrapped_lines = textwrap.wrap(
        text, max(20, width), initial_indent=indent, subsequent_indent=indent or "  "
    )
    return [line.replace(HELD, " ") for line in wrapped_lines]
