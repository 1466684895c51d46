"""Gates and figures of a report: what is measured, and what it is held against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from console.bench.metrics import METRICS
from console.common.text import clean
from console.config.playbook.threshold import parse_threshold
from console.journal.report_data import number
from console.journal.run_view import RunView
from console.render.report.markdown import change, code, figure, prose, table

BEFORE, AFTER = ".baseline", ".baseline-after"
DRIFT, MOVED = 0.05, 0.25
"""A baseline that moved by more makes a comparison with it doubtful."""
Figures = dict[str, Any]


def targets(view: RunView, metric: str, of: object = None) -> list[dict[str, Any]]:
    """The criteria that judge a metric, as the playbook has them."""
    rows = view.header.get("targets") or []
    return [
        row for row in rows
        if isinstance(row, dict) and row.get("metric") == metric
        and (of is None or row.get("of") == of)
    ]  # fmt: skip


def target_words(row: dict[str, Any], base: Figures | None = None) -> str:
    """`GO >= 1.5 x baseline (16.1 tok/s)`, plain text."""
    parts = []
    for word, key in (("GO", "go"), ("NO-GO", "no_go")):
        text = str(row.get(key) or "")
        if text:
            parts.append(f"{word} {clean(text, 80)}{_comes_to(text, base)}")
    return "; ".join(parts)


def _comes_to(text: str, base: Figures | None) -> str:
    """What a threshold relative to the baseline comes to, in the figure's unit."""
    if base is None:
        return ""
    try:
        threshold = parse_threshold(text)
    except ValueError:
        return ""
    unit = str(base.get("unit") or "")
    limit = threshold.limit(number(base.get("value")), unit) if threshold.relative else None
    return f" ({figure(limit, unit)})" if limit is not None else ""


def gate_lines(view: RunView) -> list[str]:
    """Every criterion that was judged: thresholds, verdict and words."""
    rows = []
    for verdict in view.verdicts:
        planned = [t for t in view.header.get("targets") or [] if t.get("gate") == verdict.step]
        in_order = len(planned) == len(verdict.criteria)
        by_name = {str(one.get("metric")): one for one in planned}
        for at, row in enumerate(verdict.criteria):
            aim = planned[at] if in_order else by_name.get(row.get("metric", ""), {})
            named = f" → {prose(verdict.outcome, 60)}" if verdict.outcome and at == 0 else ""
            rows.append([
                (code(verdict.step, 60) if at == 0 else "") + named,
                code(f"{row.get('metric', '')}" + (f" ({aim['of']})" if aim.get("of") else "")),
                prose(aim.get("go") or "–", 80), prose(aim.get("no_go") or "–", 80),
                f"**{prose(row.get('verdict', ''), 10)}**", prose(row.get("why", "")),
            ])  # fmt: skip
        if verdict.overridden:
            word = f"**{prose(verdict.verdict, 10)}**"
            who = f"by {prose(verdict.overridden)}"
            rows.append([code(verdict.step, 60), "**OVERRIDDEN**", "", "", word, who])
    if not rows:
        return []
    head = ("gate", "criterion", "GO", "NO-GO", "verdict", "why")
    return ["## Gates", "", *table(head, rows)]


def scopes(view: RunView) -> list[str]:
    """Steps that measured something, in order, the baseline's measurements under their step."""
    names = [name.removesuffix(AFTER).removesuffix(BEFORE) for name in view.metrics]
    return [name for name in dict.fromkeys(names) if any(measured(view, name))]


def is_benchmark(view: RunView, scope: str) -> bool:
    return any(scope + tail in view.benchmarks for tail in ("", BEFORE, AFTER))


@dataclass(frozen=True, slots=True)
class Drift:
    """The baseline's tok/s before and after a trial."""

    scope: str
    before: float
    after: float

    @property
    def moved(self) -> bool:
        """Whether it is another baseline altogether: that belongs into the first lines."""
        return abs(self.after / self.before - 1) > MOVED

    @property
    def large(self) -> bool:
        """Whether a comparison with it is doubtful."""
        return abs(self.after / self.before - 1) > DRIFT


def drifts(view: RunView) -> list[Drift]:
    """One a benchmark whose baseline was measured before and after."""
    found = []
    for scope in scopes(view):
        _, before, after = (one.get("tok_s", {}) for one in measured(view, scope))
        one, two = number(before.get("value")), number(after.get("value"))
        if one and two:
            found.append(Drift(scope, one, two))
    return found


def drift_words(drift: Drift) -> str:
    """`+0.8 % (10.75 tok/s before, 10.84 tok/s after; bench)`, plain."""
    digits = f"{figure(drift.before, 'tok/s')} before, {figure(drift.after, 'tok/s')} after"
    return f"{change(drift.after, drift.before)} ({digits}; {clean(drift.scope, 60)})"


def measured(view: RunView, scope: str) -> tuple[Figures, Figures, Figures]:
    """Figures by name: of the step, of the baseline before and after it."""
    empty: Figures = {}
    here, before, after = (view.metrics.get(scope + tail, empty) for tail in ("", BEFORE, AFTER))
    return here, before, after


def of_metric(view: RunView, metric: str) -> Figures:
    """What a gate calls `STEP.NAME` or `STEP.baseline.NAME`; empty where there is none."""
    owner, _, name = metric.partition(".")
    if name.startswith("baseline."):
        owner, name = owner + BEFORE, name.removeprefix("baseline.")
    found = view.metrics.get(owner, {}).get(name)
    return found if isinstance(found, dict) else {}


def ordered(*groups: Figures) -> list[str]:
    """Names of metrics: the known ones in the order of the one table, then the others."""
    names = dict.fromkeys(name for group in groups for name in group)
    return [n for n in METRICS if n in names] + [n for n in names if n not in METRICS]


def value_cell(found: Figures, like: str = "") -> str:
    """The headline of a figure; `like`: the thresholds it is held against."""
    return prose(figure(found.get("value"), str(found.get("unit") or ""), like))


def like_of(aims: list[dict[str, Any]]) -> str:
    """The thresholds in one text, for the unit they are written in."""
    return " ".join(f"{aim.get('go')} {aim.get('no_go')}" for aim in aims)


def aim_cell(aims: list[dict[str, Any]], base: Figures | None = None) -> str:
    return prose("; ".join(target_words(aim, base) for aim in aims)) or "–"


def count_cell(found: Figures) -> str:
    """`9 (2 void)`: samples that count, and those left out."""
    if not found:
        return "–"
    void = f" ({found['void']} void)" if found.get("void") else ""
    return f"{found.get('n', 1)}{void}"


def voids(bench: Figures) -> dict[str, int]:
    """Reasons for which runs were left out, and how often."""
    found: dict[str, int] = {}
    for one in bench.get("voids") or []:
        reason = clean(str(one.get("reason", "") if isinstance(one, dict) else one), 300)
        found[reason] = found.get(reason, 0) + 1
    return found


def captured_lines(view: RunView, scope: str) -> Iterator[str]:
    """Numbers that a step's output held."""
    rows = []
    for name, found in view.metrics.get(scope, {}).items():
        aims = targets(view, f"{scope}.{name}")
        rows.append([
            code(name, 60), value_cell(found, like_of(aims)), aim_cell(aims), count_cell(found),
        ])  # fmt: skip
    if rows:
        yield from (f"## Figures of {code(scope, 60)}", "")
        yield from table(("metric", "measured", "target", "samples"), rows, (1, 3))
