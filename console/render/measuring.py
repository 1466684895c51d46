"""A benchmark while it runs: each run's figures, the baseline's, the gate's rule and how it stands;
and what candidate and baseline answered to the same prompts.

Pure. What is shown is no verdict: the gate judges all valid runs with their spread, at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from console.bench.metrics import METRICS
from console.common.text import clean
from console.common.units import format_number, number
from console.config.playbook.threshold import Threshold, parse_threshold
from console.journal.run_view import RunView, StepView
from console.render.cells import Glyphs, Part, Row, bar, curve_line, cut, width_of
from console.render.facts.gate import GateFacts
from console.render.facts.words import VERDICT_TONE

SHARE_OF_TOP = 1.15
MIN_RUNS = 3
"""Runs below which bars show nothing, where there are as many."""
LABEL, FIGURE, MIN_WIDTH, LONGEST = 9, 13, 36, 60
"""Cells of a bar's label and figure, of the narrowest row, and of the longest bar."""
BASELINE = ".baseline"
MAX_ANSWER, MAX_BRIEF = 300, 160
"""Characters of an answer in a table, and in a row of a panel."""
Kept = dict[str, Any]
"""An answer as a journal has it: console.bench.answers.Kept."""


def runs_of(step: StepView, metric: str) -> list[float]:
    """A figure of the valid runs so far."""
    values = (number(run.get(metric)) for run in step.runs if not run.get("void"))
    return [value for value in values if value is not None]


def measuring(view: RunView, step: StepView, width: int, signs: Glyphs) -> list[Row]:
    """The runs so far as a row for each figure; () before the first run."""
    if not step.runs:
        return []
    rows: list[Row] = []
    for metric, record in METRICS.items():
        values = runs_of(step, metric) if record.label else []
        if not values:
            continue
        mean, base = sum(values) / len(values), _baseline(view, step, metric)
        curve = curve_line(values, max(values) * SHARE_OF_TOP, signs)
        lead: Row = ((f"{record.label:<6}", "dim"), (curve, "accent"))
        rule, word = _rule(view, step, metric, mean, base)
        endings: list[Row] = []
        if rule:
            endings = [((f"  {rule}", ""), ("  so far ", "dim"), (word, VERDICT_TONE[word]))]
            endings.append(((f"  {rule}: ", ""), (word, VERDICT_TONE[word])))
            endings.append(((f" {rule.partition(' if ')[2]}: ", ""), (word, VERDICT_TONE[word])))
        rows.append(_fitting(lead, mean, base, record.unit, endings, width, signs))
    void = [clean(str(run["void"]), 80) for run in step.runs if run.get("void")]
    words = f"void  {len(void)} of {len(step.runs)}" + (f": {void[-1]}" if void else "")
    rows.append(cut(((words, "warn" if void else "dim"),), width, signs))
    return rows


def run_bars(view: RunView, step: StepView, width: int, height: int, signs: Glyphs) -> list[Row]:
    """The rate of each of the last runs as a bar beside the baseline's; a mark in the bars is the
    gate's limit. None for fewer than two runs, or where there is no room."""
    values = list(enumerate(runs_of(step, "tok_s"), 1))
    base = _baseline(view, step, "tok_s")
    least = min(len(values), MIN_RUNS) + (base is not None) + 1
    if len(values) < 2 or height < least or width < MIN_WIDTH:
        return []
    rule = next(iter(_thresholds(view, step, "tok_s", "go")), None)
    limit = rule.limit(base, "tok/s") if rule is not None else None
    top = SHARE_OF_TOP * max([*(value for _, value in values), limit or 0.0, base or 0.0])
    mark = limit / top if limit is not None and top > 0 else None
    long = min(LONGEST, width - LABEL - FIGURE)
    rows: list[Row] = []
    if base is not None:
        rows.append(_bar_row("baseline", base, base / top, long, signs, None, "dim"))
    for at, value in values[-(height - len(rows) - 1) :]:
        rows.append(_bar_row(f"run {at}", value, value / top, long, signs, mark, "accent"))
    if rule is not None and mark is not None:
        rows[-1:] = [
            rows[-1],
            ((" " * LABEL + f"{signs.mark} GO if {clean(str(rule), 40)}", "dim"),),
        ]
    return rows


def _bar_row(
    label: str, value: float, share: float, long: int, signs: Glyphs, mark: float | None, tone: str
) -> Row:
    drawn = bar(share, long, signs, mark)
    return ((f"{label:<{LABEL}}", "dim"), (drawn, tone), (f" {format_number(value, 'tok/s')}", ""))


def _baseline(view: RunView, step: StepView, metric: str) -> float | None:
    """The baseline's figure beside this step's, or the one that was measured before all others."""
    for scope in (f"{step.id}.baseline", "baseline:measure"):
        figure = number(view.metrics.get(scope, {}).get(metric, {}).get("value"))
        if figure is not None:
            return figure
    return None


def _targets(view: RunView, step: StepView, metric: str) -> list[dict[str, Any]]:
    rows = view.header.targets
    return [r for r in rows if r.get("metric") == f"{step.id}.{metric}"]


def _thresholds(view: RunView, step: StepView, metric: str, key: str) -> list[Threshold]:
    """The rules of all gates on this figure: of `go`, or of `no_go`."""
    thresholds = []
    for row in _targets(view, step, metric):
        try:
            thresholds.append(parse_threshold(str(row.get(key) or "")))
        except ValueError:
            continue
    return thresholds


def _rule(
    view: RunView, step: StepView, metric: str, mean: float, base: float | None
) -> tuple[str, str]:
    """What the gates want of this figure, and what they would say of the mean so far; "" for
    neither."""
    wanted = _thresholds(view, step, metric, "go")
    refused = _thresholds(view, step, metric, "no_go")
    if not wanted and not refused:
        return "", ""
    first = wanted or refused
    rule = f"{'GO' if wanted else 'NO-GO'} if {clean(str(first[0]), 40)}"
    if any(threshold.satisfied(mean, base) for threshold in refused):
        return rule, "NO-GO"
    if wanted and all(threshold.satisfied(mean, base) for threshold in wanted):
        return rule, "GO"
    return rule, "NO-GO" if wanted and not refused else "open"


def _fitting(
    lead: Row, mean: float, base: float | None, unit: str, endings: Sequence[Row], width: int,
    signs: Glyphs,
) -> Row:  # fmt: skip
    """The longest form of a row that fits: the verdict so far goes last."""
    value: Part = (f" {format_number(mean, unit)}", "bold")
    beside: Row = ((f"  baseline {format_number(base, unit)}", ""),) if base is not None else ()
    forms: list[Row] = [(*lead, value, *beside, *ending) for ending in endings]
    forms += [(*lead, value, *ending) for ending in endings] or [(*lead, value, *beside)]
    return next((form for form in forms if width_of(form) <= width), cut(forms[-1], width, signs))


@dataclass(frozen=True, slots=True)
class Pair:
    """The answers to one prompt; {} where there is none."""

    prompt: str
    here: Kept
    baseline: Kept


def answer_pairs(view: RunView, scope: str) -> list[Pair]:
    """The kept answers of a benchmark or a soak, each beside the baseline's to the same prompt."""
    here, before = (_by_prompt(view, name) for name in (scope, scope + BASELINE))
    return [Pair(name, here.get(name, {}), before.get(name, {})) for name in here | before]


def _by_prompt(view: RunView, scope: str) -> dict[str, Kept]:
    record = view.measurement(scope).benchmark or view.measurement(scope).soak
    rows = record.get("answers")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("prompt") or ""): row for row in rows}


def answer_words(row: Kept, limit: int = MAX_ANSWER) -> str:
    """`GARBLED, nothing but white space: “\\n\\n…”`, or the answer and how it ended; plain text."""
    if garbled := str(row.get("garbled") or ""):
        return clean(f"GARBLED, {garbled}", limit)
    text = str(row.get("answer") or "")
    if not text and row.get("reasoning"):
        text = f"only reasoning: {row['reasoning']}"
    return clean(text, limit) or ("–" if not row else "no text")


def brief_answers(view: RunView, scope: str) -> Iterator[tuple[str, str, bool]]:
    """(who, its answer, whether it is garbled) for one prompt: a garbled one before others."""
    pairs = answer_pairs(view, scope)
    for pair in sorted(pairs, key=lambda pair: not (_bad(pair.here) or _bad(pair.baseline)))[:1]:
        for who, row in ((_whose(view, scope), pair.here), ("baseline", pair.baseline)):
            if row:
                yield who, answer_words(row, MAX_BRIEF), _bad(row)


def _whose(view: RunView, scope: str) -> str:
    """Whose answers a measurement has: the baseline's, where its scope or its record names it."""
    record = view.measurement(scope).benchmark or view.measurement(scope).soak
    named = record.get("service") == "baseline" or BASELINE in scope
    return "baseline" if named else "candidate"


def answer_lines(view: RunView, scope: str) -> list[str]:
    """`candidate said  …` and `baseline said  …` for one prompt of a measurement; clean text."""
    return [f"{who + ' said':<15}  {words}" for who, words, _ in brief_answers(view, scope)]


def judged_answers(view: RunView, gate: GateFacts) -> list[str]:
    """The same for the measurements whose figures a gate has judged."""
    scopes = dict.fromkeys(row.key.partition(".")[0] for row in gate.criteria)
    return [line for scope in scopes for line in answer_lines(view, scope)]


def _bad(row: Kept) -> bool:
    return bool(row.get("garbled"))
