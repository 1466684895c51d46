"""Benchmarks in a report: figures with their targets, spread, and the machine's state.

Figures are compared with the baseline and the targets.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from console.bench.metrics import METRICS, SPEEDS
from console.common.text import clean, command, without_parentheses
from console.common.units import format_bytes, format_number, number, plural
from console.config.playbook.threshold import parse_threshold
from console.journal.run_view import RunView
from console.render.measuring import Kept, answer_pairs, answer_words
from console.render.report.markdown import change, code, figure, prose, spread, table, took

BEFORE, AFTER = ".baseline", ".baseline-after"
DRIFT, MOVED = 0.05, 0.25
"""If the baseline moved by more, comparisons with it are doubtful."""
Figures = dict[str, Any]

MAX_WRONG = 30
"""Main metrics of a benchmark: a server's rate, or what llama-bench printed."""


def targets(view: RunView, metric: str) -> list[dict[str, Any]]:
    rows = view.header.targets
    return [row for row in rows if row.get("metric") == metric]


def target_words(row: dict[str, Any], base: Figures | None) -> str:
    """`GO >= 1.5 x baseline (16.1 tok/s)`, plain text."""
    parts = []
    for word, key in (("GO", "go"), ("NO-GO", "no_go")):
        text = str(row.get(key) or "")
        if text:
            parts.append(f"{word} {clean(text, 80)}{_relative_value(text, base)}")
    return "; ".join(parts)


def _relative_value(text: str, base: Figures | None) -> str:
    """The value of a threshold relative to the baseline, in the figure's unit."""
    if base is None:
        return ""
    try:
        threshold = parse_threshold(text)
    except ValueError:
        return ""
    unit = str(base.get("unit") or "")
    limit = threshold.limit(number(base.get("value")), unit) if threshold.relative else None
    return f" ({figure(limit, unit)})" if limit is not None else ""


def scopes(view: RunView) -> list[str]:
    """Steps that measured something, in order, the baseline's measurements under their step."""
    names = [name.removesuffix(AFTER).removesuffix(BEFORE) for name in view.metrics]
    return [name for name in dict.fromkeys(names) if any(measured(view, name))]


def is_benchmark(view: RunView, scope: str) -> bool:
    return any(view.measurement(scope + tail).benchmark for tail in ("", BEFORE, AFTER))


def benches(view: RunView) -> list[str]:
    return [scope for scope in scopes(view) if is_benchmark(view, scope)]


@dataclass(frozen=True, slots=True)
class Drift:
    """The baseline's tok/s before and after a trial."""

    scope: str
    before: float
    after: float

    @property
    def moved(self) -> bool:
        """Whether the baseline changed so much that the first lines must say so."""
        return abs(self.after / self.before - 1) > MOVED

    @property
    def large(self) -> bool:
        """Whether the change makes a comparison doubtful."""
        return abs(self.after / self.before - 1) > DRIFT


def drifts(view: RunView) -> list[Drift]:
    """One per benchmark whose baseline was measured before and after."""
    benchmark_drifts = []
    for scope in scopes(view):
        _, before, after = (group.get("tok_s", {}) for group in measured(view, scope))
        before_tok_s, after_tok_s = number(before.get("value")), number(after.get("value"))
        if before_tok_s and after_tok_s:
            benchmark_drifts.append(Drift(scope, before_tok_s, after_tok_s))
    return benchmark_drifts


def drift_words(drift: Drift) -> str:
    """`+0.8 % (10.75 tok/s before, 10.84 tok/s after; bench)`, plain."""
    digits = f"{figure(drift.before, 'tok/s')} before, {figure(drift.after, 'tok/s')} after"
    return f"{change(drift.after, drift.before)} ({digits}; {clean(drift.scope, 60)})"


def measured(view: RunView, scope: str) -> tuple[Figures, Figures, Figures]:
    """Figures by name: of the step, and of the baseline before and after it."""
    empty: Figures = {}
    here, before, after = (view.metrics.get(scope + tail, empty) for tail in ("", BEFORE, AFTER))
    return here, before, after


def of_metric(view: RunView, metric: str) -> Figures:
    """The figure that a gate calls `STEP.NAME` or `STEP.baseline.NAME`; empty if missing."""
    owner, _, name = metric.partition(".")
    if name.startswith("baseline."):
        owner, name = owner + BEFORE, name.removeprefix("baseline.")
    figures = view.metrics.get(owner, {}).get(name)
    return figures if isinstance(figures, dict) else {}


def ordered(table: Iterable[str], *groups: Figures) -> list[str]:
    """Names of metrics: known ones in the order of their table, then the others."""
    names = dict.fromkeys(name for group in groups for name in group)
    known = [name for name in table if name in names]
    return known + [name for name in names if name not in known]


def value_cell(figures: Figures, like: str) -> str:
    """The main value of a figure; `like`: the thresholds it is compared with."""
    mark = " (estimated)" if figures.get("estimated") is True else ""
    return prose(figure(figures.get("value"), str(figures.get("unit") or ""), like)) + mark


def like_of(wanted: list[dict[str, Any]]) -> str:
    """The thresholds in one text, for the unit they are written in."""
    return " ".join(f"{target.get('go')} {target.get('no_go')}" for target in wanted)


def target_cell(wanted: list[dict[str, Any]], base: Figures | None = None) -> str:
    return prose("; ".join(target_words(target, base) for target in wanted)) or "–"


def count_cell(figures: Figures) -> str:
    """`9 (2 discarded)`: samples that count, and those left out."""
    if not figures:
        return "–"
    void = f" ({figures['void']} discarded)" if figures.get("void") else ""
    return f"{figures.get('n', 1)}{void}"


def figures_line(metrics: Figures) -> str:
    """`tok_s 10.8 tok/s, ttft_s 412 ms`: all figures of one step."""
    return ", ".join(
        f"{name} {format_number(figures['value'], figures.get('unit', ''))}"
        for name, figures in metrics.items()
        if isinstance(figures, dict) and figures.get("value") is not None
    )


def voids(bench: Figures) -> dict[str, int]:
    """Why runs were left out, with the number of runs for each reason."""
    return Counter(
        clean(
            without_parentheses(str(void.get("reason", "") if isinstance(void, dict) else void)),
            300,
        )
        for void in bench.get("voids") or []
    )


def captured_lines(view: RunView, scope: str) -> Iterator[str]:
    rows = []
    for name, figures in view.metrics.get(scope, {}).items():
        wanted = targets(view, f"{scope}.{name}")
        rows.append([
            code(name, 60), value_cell(figures, like_of(wanted)), target_cell(wanted),
            count_cell(figures),
        ])  # fmt: skip
    if rows:
        yield from (f"## Figures of {code(scope, 60)}", "")
        yield from table(("metric", "measured", "target", "samples"), rows, (1, 3))


def quality_lines(view: RunView, scope: str) -> Iterator[str]:
    """The section of a quality step: what was compared, its figures with their intervals, and the
    tasks whose answer was wrong."""
    quality = view.measurement(scope).quality
    yield from (f"## Quality of {prose(quality.get('of') or '', 60)} ({code(scope, 60)})", "")
    if model := quality.get("model"):
        text = code(quality.get("text"), 200)
        parts = f"{quality.get('chunks')} x {quality.get('ctx')} tokens of {text}"
        requested_count = quality.get("asked")
        few = (
            f"; {requested_count} were asked for"
            if requested_count != quality.get("chunks")
            else ""
        )
        other = (
            "the same by the baseline's own build"
            if quality.get("builds")
            else (code(quality.get("base"), 200))
        )
        yield f"{code(model, 200)} against {other}, on {parts}{few}."
        yield ""
    rows = []
    for name, figures in view.metrics.get(scope, {}).items():
        unit, wanted = str(figures.get("unit") or ""), targets(view, f"{scope}.{name}")
        error = figure(number(figures.get("error")), unit)
        low, high = (figure(number(figures.get(end)), unit) for end in ("low", "high"))
        cells = [code(name, 60), value_cell(figures, like_of(wanted)), error, f"{low} to {high}"]
        rows.append([*cells, target_cell(wanted), count_cell(figures)])
    head = ("metric", "measured", "standard error", "95 % interval", "target", "samples")
    yield from table(head, rows, (1, 2, 3, 5))
    tasks = quality.get("tasks")
    wrong = [
        task for task in (tasks if isinstance(tasks, list) else ())
        if isinstance(task, dict) and not task.get("right")
    ]  # fmt: skip
    if wrong:
        shown = [
            [code(task.get(key), 200) for key in ("ask", "said")] for task in wrong[:MAX_WRONG]
        ]
        yield from table(("wrong answers", "said"), shown)


def names_of(view: RunView, scope: str) -> list[tuple[str, str]]:
    """(ending of the scope, its name for readers) of those that measured something."""
    compared = bool(view.metrics.get(scope + BEFORE) or view.metrics.get(scope + AFTER))
    names = (("", "candidate" if compared else "measured"), (BEFORE, "baseline before"),
             (AFTER, "baseline after"))  # fmt: skip
    return [(tail, name) for tail, name in names if view.metrics.get(scope + tail)]


def bench_lines(view: RunView, scope: str) -> Iterator[str]:
    """One section: figures with their targets, spread, remarks, surroundings."""
    groups = dict(zip(("", BEFORE, AFTER), measured(view, scope), strict=True))
    names, before = names_of(view, scope), groups[BEFORE]
    yield from (f"## Figures of {code(scope, 60)}", "")
    yield from _servers(view, scope)
    head = ["metric", *(name for _, name in names), *(["against baseline"] if before else [])]
    rows, shown = [], []
    for name in ordered(METRICS, *groups.values()):
        wanted = targets(view, f"{scope}.{name}")
        of_base = targets(view, f"{scope}.baseline.{name}")
        values = {tail: group.get(name, {}).get("value") for tail, group in groups.items()}
        if name == "runs" or (not wanted and all(value is None for value in values.values())):
            continue
        shown.append(name)
        like = like_of([*wanted, *of_base])
        cells = [value_cell(groups[tail].get(name, {}), like) for tail, _ in names]
        cells += [change(number(values[""]), number(values[BEFORE]))] if before else []
        target_text = target_cell(wanted, before.get(name)) if wanted or not of_base else ""
        target_text += f" baseline: {target_cell(of_base)}" if of_base else ""
        count = count_cell(groups[""].get(name, {}))
        rows.append([code(name, 60), *cells, target_text.strip(), count])
    yield from table([*head, "target", "valid runs"], rows, tuple(range(1, len(head))))
    known = [f"{code(name)}: {METRICS[name].text}." for name in shown if name in METRICS]
    if known:
        yield from (" ".join(known), "")
    yield from answer_lines(view, scope)
    yield from _spreads(view, scope, groups, names)
    yield from _levels(view, scope, names)
    yield from _remarks(view, scope, names)
    yield from _cards(view, scope, names)


def _servers(view: RunView, scope: str) -> Iterator[str]:
    """What was measured: model, build, image, address, and the actual command line."""
    lines = []
    for tail, name in names_of(view, scope):
        bench = view.measurement(scope + tail).benchmark
        if not bench or tail == AFTER:
            continue
        server = (bench.get("context") or {}).get("server") or {}
        parts = [prose(bench.get("model") or "a model without a name", 120)]
        parts += [f"build {prose(bench['build'], 80)}"] if bench.get("build") else []
        image = " ".join(str(server.get(key) or "") for key in ("image", "image_id")).strip()
        parts += [f"image {code(image)}"] if image else []
        parts += [f"at {prose(bench['url'], 120)}"] if bench.get("url") else []
        spent = number(bench.get("duration_s"))
        parts += [f"in {took(spent)}"] if spent else []
        lines.append(f"- {name.removesuffix(' before').capitalize()}: {', '.join(parts)}")
        argv = server.get("argv")
        if isinstance(argv, list) and any(argv):
            lines.append(f"  - {code(command(map(str, argv)), 1500)}")
    if lines:
        yield from (*lines, *_taken(view, scope), *_protocol(view.measurement(scope).benchmark), "")


def _taken(view: RunView, scope: str) -> list[str]:
    """`- Taken: candidate at 14:02:11, baseline before at 13:55:40, …`: a figure is of its time."""
    times = [
        f"{name} at {time.strftime('%H:%M:%S', time.localtime(at))}"
        for tail, name in names_of(view, scope)
        if (at := taken_at(view, scope + tail))
    ]
    return [f"- Taken: {', '.join(times)}"] if times else []


def taken_at(view: RunView, scope: str) -> float:
    """When a benchmark began, Unix seconds; 0.0 for an old journal, and for other figures."""
    return number(view.measurement(scope).benchmark.get("started_at")) or 0.0


def _protocol(bench: dict[str, Any]) -> list[str]:
    protocol = bench.get("protocol") or {}
    runs, tokens = number(protocol.get("runs")), number(protocol.get("max_tokens"))
    if not runs or not tokens:
        return []
    most = number(protocol.get("max_runs")) or runs
    more = f" (to {most:.0f} until they agree)" if most > runs else ""
    warm = plural(int(number(protocol.get("warmup")) or 0), "warm-up")
    return [
        f"- Asked: {runs:.0f} runs{more} of {tokens:.0f} tokens, {warm}, one request at a time, "
        "temperature 0, every prompt new to the server's cache, answers kept from ending before "
        "their limit (`ignore_eos`, where the server knows it)"
    ]


def answer_lines(view: RunView, scope: str) -> list[str]:
    """The section of a report; nothing where no answer was kept."""
    pairs = answer_pairs(view, scope)
    compared = any(pair.baseline for pair in pairs)
    rows = []
    for pair in pairs:
        cells = [pair.here, pair.baseline] if compared else [pair.here]
        rows.append([prose(pair.prompt, 120), *(_answer_cell(row) for row in cells)])
    head = ("prompt", "candidate", "baseline") if compared else ("prompt", "answer")
    return table(head, rows)


def _answer_cell(row: Kept) -> str:
    text = prose(answer_words(row))
    text = f"**{text}**" if row.get("garbled") else text
    finish, tokens = str(row.get("finish") or ""), row.get("tokens")
    end = ", ".join(filter(None, (f"{tokens} tokens" if tokens else "", finish)))
    return f"{text} ({prose(end, 60)})" if end and row else text


def _spreads(
    view: RunView, scope: str, groups: dict[str, Figures], names: list[tuple[str, str]]
) -> list[str]:
    """Mean ± std as plans print it, and the median, which shows whether one run is an outlier."""
    rows = []
    for name in ordered(METRICS, *groups.values()):
        if name not in SPEEDS and not targets(view, f"{scope}.{name}"):
            continue
        for tail, who in names:
            figures = groups[tail].get(name, {})
            unit = str(figures.get("unit") or "")
            if figures.get("std") is None or figures.get("mean") is None or unit == "ratio":
                continue
            ends = [figure(figures.get(key), unit) for key in ("min", "max")]
            rows.append([
                code(name), who, prose(spread(figures["mean"], figures["std"], unit)),
                prose(figure(figures.get("median"), unit)), prose(" – ".join(ends)),
            ])  # fmt: skip
    return table(("spread of", "", "mean ± std", "median", "least – most"), rows, (2, 3, 4))


def _levels(view: RunView, scope: str, names: list[tuple[str, str]]) -> list[str]:
    """Several streams at once: reported, not judged."""
    rows = []
    for tail, who in names:
        for level in view.measurement(scope + tail).benchmark.get("levels") or []:
            seconds = [figure(number(level.get(key)), "s") for key in ("ttft_s", "ttft_max_s")]
            rates = [figure(number(level.get(key)), "tok/s") for key in ("tok_s", "decode_tok_s")]
            rows.append([
                f"{prose(level.get('streams'), 10)} streams", who, *rates, *seconds,
                f"{prose(level.get('valid'), 10)} of {prose(level.get('requests'), 10)}",
            ])  # fmt: skip
    head = ("at once", "", "together", "each, decode", "first token", "longest wait", "valid")
    return table(head, rows, (2, 3, 4, 5))


def _remarks(view: RunView, scope: str, names: list[tuple[str, str]]) -> Iterator[str]:
    """The cold run, discarded runs with their reasons, and the benchmark's own warnings."""
    lines = []
    for tail, name in names:
        bench = view.measurement(scope + tail).benchmark
        cold, words = bench.get("cold") or {}, []
        if number(cold.get("tok_s")) or number(cold.get("ttft_s")):
            first = figure(number(cold.get("ttft_s")), "s")
            rate = figure(number(cold.get("tok_s")), "tok/s")
            words.append(f"the very first request, not counted: {rate}, first token after {first}")
        words += [prose(flag, 300) for flag in bench.get("flags") or []]
        for reason, count in voids(bench).items():
            words.append(f"**{plural(count, 'run')} discarded**: {prose(reason, 300)}")
        words += _machine(bench)
        if words:
            lines.append(f"- {name[0].upper()}{name[1:]}: {'; '.join(words)}")
    if lines:
        yield from (*lines, "")


def _machine(bench: dict[str, Any]) -> Iterator[str]:
    """The machine's load meanwhile, if there was any."""
    context = bench.get("context") or {}
    if swapped := number(context.get("swapped_in")):
        yield f"{format_bytes(swapped)} swapped in while measuring"
    if faults := number(context.get("server_major_faults")):
        yield f"{faults:.0f} pages read from the disk by the server while measuring"


def _cards(view: RunView, scope: str, names: list[tuple[str, str]]) -> list[str]:
    """Clocks, power and heat of the cards during the measurements: was it the same machine?"""
    rows = []
    for tail, who in names:
        cards = (view.measurement(scope + tail).benchmark.get("context") or {}).get("cards") or {}
        for uuid, card in cards.items():
            by = card.get("slowed")
            slowed = ", ".join(map(str, by)) if isinstance(by, dict | list) and by else "–"
            limit = number(card.get("power_limit_w"))
            power = _range(card.get("power_w")) + (f" (limit {limit:.0f})" if limit else "")
            rows.append([
                prose(card.get("name") or uuid, 60), who, _range(card.get("sm_mhz")),
                _range(card.get("memory_mhz")), power, _range(card.get("temperature_c")),
                prose(slowed, 80),
            ])  # fmt: skip
    head = ("card", "while", "SM clock, MHz", "memory clock, MHz", "power, W", "°C", "slowed by")
    return table(head, rows, (2, 3, 4, 5))


def _range(figures: object) -> str:
    if not isinstance(figures, dict):
        return "–"
    low, high = number(figures.get("min")), number(figures.get("max"))
    if low is None or high is None:
        return "–"
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} – {high:.0f}"
