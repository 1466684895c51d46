"""A soak in a report: its figures with their targets, and everything that went wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.common.text import clean
from console.common.units import format_duration
from console.journal.report_data import number
from console.journal.run_view import RunView
from console.render.report.markdown import block, code, plural, prose, table
from console.render.report.report_figures import aim_cell, count_cell, like_of, targets, value_cell

ORDER = {
    "observed_s": "time that was observed", "requests": "requests sent",
    "errors": "requests that failed", "error_rate": "failed over all",
    "stability": "answered well over all", "tok_s": "tokens a second of a request, median",
    "tok_s_drift": "the last sixth's median below the first's", "ttft_s": "time to the first token",
    "restarts": "the server ended, or was started anew", "hangs": "no token for far too long",
    "critical_lines": "log lines that match `critical`",
    "rss_growth": "memory of the server, last tenth over first", "rss_peak": "its most",
    "vram_growth": "the same of its VRAM", "vram_peak": "its most",
}  # fmt: skip
LINES = 20


def soak_steps(view: RunView) -> list[str]:
    """Soaks that measured something."""
    soaks = getattr(view, "soaks", {}) or {}
    kinds = {step.id: step.kind for step in view.steps}
    return [name for name in view.metrics if name in soaks or kinds.get(name) == "soak"]


def soak_lines(view: RunView, step_id: str) -> Iterator[str]:
    """Figures and findings of one soak."""
    step, soak = view.step(step_id), soak_of(view, step_id)
    yield from (f"## Soak {code(step_id, 60)}", "")
    if step is not None and step.effects:
        yield from (prose("; ".join(step.effects), 400) + ".", "")
    if soak.get("early"):
        why = prose(soak["early"], 300)
        yield from (f"**It ended early**: {why}. Its figures are to be read, not judged by.", "")
    found = view.metrics.get(step_id, {})
    names = [n for n in ORDER if n in found] + [n for n in found if n not in ORDER]
    rows = []
    for name in names:
        aims, one = targets(view, f"{step_id}.{name}"), found[name]
        why = _own_reason(one, soak)
        if one.get("value") is None and not aims and not why:
            continue
        about = "; ".join(filter(None, (ORDER.get(name, ""), prose(why, 120))))
        rows.append([
            code(name, 60), value_cell(one, like_of(aims)), aim_cell(aims), count_cell(one), about,
        ])  # fmt: skip
    yield from table(("metric", "measured", "target", "samples", "what it is"), rows, (1,))
    yield from _findings(soak)


def _own_reason(one: dict[str, Any], soak: dict[str, Any]) -> str:
    """Why a figure is missing or void, less what already stands above the table."""
    why = str(one.get("why") or "")
    early = soak.get("early")
    return why.removeprefix(f"it ended early: {early}").lstrip("; ") if early else why


def soak_of(view: RunView, step_id: str) -> dict[str, Any]:
    found = (getattr(view, "soaks", {}) or {}).get(step_id)
    return found if isinstance(found, dict) else {}


def _findings(soak: dict[str, Any]) -> Iterator[str]:
    """What went wrong; what did not is said too, since its absence is what a soak is for."""
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


def happened(found: object) -> list[tuple[float, str]]:
    """Moments of a soak, seconds since it began, with what is known of each."""
    moments = []
    for one in found if isinstance(found, list) else []:
        row = one if isinstance(one, dict) else {"t": one}
        at, until = number(row.get("t")), number(row.get("until"))
        words = [clean(str(row.get("what") or ""), 300)]
        if count := number(row.get("requests")):
            words.append(f"it cost {plural(int(count), 'request')}")
        if until is not None and at is not None:
            words.append(f"answered again after {format_duration(until - at)}")
        if at is not None:
            moments.append((at, "; ".join(filter(None, words))))
    return moments


def intervals(found: object) -> list[tuple[float, float]]:
    """[from, to] pairs in seconds."""
    pairs = []
    for one in found if isinstance(found, list) else []:
        if isinstance(one, list | tuple) and len(one) == 2:
            begin, end = number(one[0]), number(one[1])
            if begin is not None and end is not None and end >= begin:
                pairs.append((begin, end))
    return pairs
