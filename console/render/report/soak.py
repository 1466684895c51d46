"""A soak in words: a line while it runs, a line at its end, and its section of a report.

The section has its figures with their targets, and everything that went wrong in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.bench.metrics import SOAK_METRICS
from console.bench.sample import repeated
from console.bench.soak_stats import Tally
from console.bench.statistics import drift, median, rolling, spark
from console.common.text import clean
from console.common.units import format_bytes, format_duration, format_number, number, plural
from console.journal.run_view import RunView
from console.render.report.benchmarks import (
    answer_lines,
    count_cell,
    like_of,
    ordered,
    target_cell,
    targets,
    value_cell,
)
from console.render.report.markdown import block, code, prose, table

LINES = 20


def live_words(tally: Tally, t: float, duration_s: float, silent_s: float = 0.0) -> str:
    """`▆▇▇▆ 10.8 tok/s · 145 requests, 0 errors · RSS 12.3 GiB · 12 min 05 s, 47 min 55 s left`.

    `silent_s`: seconds without a token, if that is unusually long: then no rate is shown.
    """
    rates = tally.rates
    now = rolling(rates, t)
    if silent_s:
        speed = f"no token for {format_duration(silent_s)}"
    elif tally.hanging:
        speed = "nothing answered since it hung"
    elif now is not None:
        speed = format_number(now, "tok/s")
    else:
        speed = "no answer in the last minute" if tally.requests else "no answer yet"
    errors = sum(tally.errors.values())
    parts = [
        f"{spark(rates, t)} {speed}",
        f"{plural(len(tally.requests), 'request')}, {plural(errors, 'error')}{_garbled(tally)}",
        *_troubles(tally),
    ]
    if tally.transport_retries:
        parts.append(f"{tally.transport_retries} sent twice")
    if tally.rss:
        parts.append(f"RSS {format_bytes(tally.rss[-1][1])}")
    over = t >= duration_s and bool(silent_s)
    left = f"{format_duration(max(0.0, duration_s - t))} left"
    last = "over, one request is still out" if over else left
    return " · ".join([*parts, f"{format_duration(t)}, {last}"])


def _garbled(tally: Tally) -> str:
    return f" ({tally.garbage.count} garbled)" if tally.garbage is not None else ""


def summary(tally: Tally) -> str:
    slower, _ = drift(tally.rates, tally.observed)
    speed = median([rate for _, rate in tally.rates])
    parts = [
        f"{format_duration(tally.observed)}: {plural(len(tally.requests), 'request')}, "
        f"{plural(sum(tally.errors.values()), 'error')}{_garbled(tally)}",
        f"{format_number(speed, 'tok/s')}" if speed is not None else "no rate",
    ]
    if slower is not None:
        parts.append(f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'} at the end")
    grown = tally.figures()["rss_growth"]["value"]
    if grown is not None:
        sign = "−" if grown < 0 else "+"
        parts.append(f"RSS {sign}{format_bytes(abs(grown))}")
    parts.append(", ".join(_troubles(tally)) or "0 restarts, 0 hangs")
    if tally.critical_count:
        parts.append(plural(tally.critical_count, "critical log line"))
    if tally.gaps:
        parts.append(f"{plural(len(tally.gaps), 'gap')} in observation")
    return "; ".join([", ".join(parts), *flags(tally)])


def flags(tally: Tally) -> list[str]:
    """What a reader should know of how the figures were taken, a line each."""
    return repeated(tally.transport_retries, len(tally.requests))


def _troubles(tally: Tally) -> list[str]:
    """Crashes and restarts: a server that came back was restarted, else it crashed."""
    counts = (
        (len(tally.hangs), "hang"), (tally.restarted, "restart"), (int(bool(tally.gone)), "crash"),
    )  # fmt: skip
    troubles = [plural(count, name) for count, name in counts if count]
    return troubles + ([f"{plural(tally.missed, 'moment')} missed"] if tally.missed else [])


def soak_steps(view: RunView) -> list[str]:
    kinds = {step.id: step.kind for step in view.steps}
    return [
        name for name in view.metrics
        if view.measurement(name).soak or kinds.get(name) == "soak"
    ]  # fmt: skip


def soak_lines(view: RunView, step_id: str) -> Iterator[str]:
    step, soak = view.step(step_id), soak_of(view, step_id)
    yield from (f"## Soak {code(step_id, 60)}", "")
    if step is not None and step.effects:
        yield from (prose("; ".join(step.effects), 400) + ".", "")
    if soak.get("early"):
        why = prose(soak["early"], 300)
        yield from (
            f"**It ended early**: {why}. Its figures are shown, but no gate may judge by them.",
            "",
        )
    metrics = view.metrics.get(step_id, {})
    names = ordered(SOAK_METRICS, metrics)
    rows = []
    for name in names:
        wanted, figures = targets(view, f"{step_id}.{name}"), metrics[name]
        why = _own_reason(figures, soak)
        if figures.get("value") is None and not wanted and not why:
            continue
        about = "; ".join(
            filter(None, (SOAK_METRICS[name].text if name in SOAK_METRICS else "", prose(why, 120)))
        )
        rows.append([
            code(name, 60), value_cell(figures, like_of(wanted)), target_cell(wanted),
            count_cell(figures), about,
        ])  # fmt: skip
    yield from table(("metric", "measured", "target", "samples", "what it is"), rows, (1,))
    yield from answer_lines(view, step_id)
    yield from _findings(soak)


def _own_reason(figures: dict[str, Any], soak: dict[str, Any]) -> str:
    """Why a figure is missing or void, without what stands above the table already."""
    why = str(figures.get("why") or "")
    early = soak.get("early")
    return why.removeprefix(f"it ended early: {early}").lstrip("; ") if early else why


def soak_of(view: RunView, step_id: str) -> dict[str, Any]:
    return view.measurement(step_id).soak


def _findings(soak: dict[str, Any]) -> Iterator[str]:
    """What went wrong, and what did not: showing its absence is the purpose of a soak."""
    if not soak:
        yield from ("What happened in it was not recorded.", "")
        return
    lines, clear = [], []
    errors = soak.get("errors")
    for kind, count in sorted(errors.items()) if isinstance(errors, dict) else ():
        lines.append(f"- {plural(int(number(count) or 0), 'request')} failed: {prose(kind, 100)}")
    clear += [] if lines else ["errors"]
    last = clean(str(soak.get("last_error") or ""), 300)
    if lines and last and not any(last in words for _, words in happened(soak.get("hangs"))):
        lines.append(f"- the last one said: {prose(last)}")
    for key, words in (("restarts", "restart"), ("hangs", "hang")):
        moments = happened(soak.get(key))
        clear += [] if moments else [f"{words}s"]
        for count, (at, why) in enumerate(moments[:LINES], 1):
            died = key == "restarts" and soak.get("gone") and count == len(moments)
            tail = f": {prose(why, 300)}" if why else ""
            lines.append(f"- {'crash' if died else words} after {format_duration(at)}{tail}")
    gaps = intervals(soak.get("gaps"))
    clear += [] if gaps else ["gaps in observation"]
    lines += [f"- not observed from {format_duration(a)} to {format_duration(b)}"
              for a, b in gaps[:LINES]]  # fmt: skip
    lines += [f"- {words}" for words in _pace(soak)]
    critical = [clean(str(line), 300) for line in soak.get("critical") or []]
    clear += [] if critical else ["critical log lines"]
    lines += [f"- none: {', '.join(clear)}"] if clear else []
    yield from (*lines, "")
    if critical:
        yield from ("Critical lines of its log:", "", *block(critical[:LINES]), "")


def _pace(soak: dict[str, Any]) -> Iterator[str]:
    flags = soak.get("flags")
    yield from (prose(flag, 200) for flag in (flags if isinstance(flags, list) else [])[:LINES])
    late, missed = (int(number(soak.get(key)) or 0) for key in ("late", "missed"))
    if late or missed:
        yield f"{plural(late, 'request')} sent late, {missed} planned moments missed: slow replies"


def happened(events: object) -> list[tuple[float, str]]:
    """Events of a soak, seconds since it began, with what is known of each."""
    moments = []
    for event in events if isinstance(events, list) else []:
        row = event if isinstance(event, dict) else {"t": event}
        at, until = number(row.get("t")), number(row.get("until"))
        words = [clean(str(row.get("what") or ""), 300)]
        if count := number(row.get("requests")):
            words.append(f"it cost {plural(int(count), 'request')}")
        if until is not None and at is not None:
            words.append(f"answered again after {format_duration(until - at)}")
        if at is not None:
            moments.append((at, "; ".join(filter(None, words))))
    return moments


def intervals(entries: object) -> list[tuple[float, float]]:
    """[from, to] pairs in seconds."""
    pairs = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, list | tuple) and len(entry) == 2:
            begin, end = number(entry[0]), number(entry[1])
            if begin is not None and end is not None and end >= begin:
                pairs.append((begin, end))
    return pairs
