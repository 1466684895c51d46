"""A breach as a page: its cause, what was killed and how fast, the curve, what followed, what to
do.

Made from RUN/guard/breach.json, the recording and the rollback's own lines, so it also works for an
old run after a reboot. Reads files: do not call it on the UI loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.common.units import format_bytes, format_duration, number
from console.journal.breach import Crossed, crossed, each, limit_in, read_breach
from console.journal.events import Breach
from console.journal.guard_status import GuardView
from console.journal.recording import LAST_S, Recorded, ending, load, stage_at
from console.journal.run_dir import RunDir
from console.recovery.guard.config import Limit
from console.recovery.guard.metrics import RAM, SWAP
from console.recovery.guard.record.read import utc
from console.render.guard import EXPIRED, deeds, limit_words, wall_of
from console.render.text_chart import Curve, curve_of

AFTER_S = 20.0
"""Seconds of the curve after the kill, out of LAST_S in all."""
Words = tuple[str, str]
"""A paragraph and its tone."""


@dataclass(frozen=True, slots=True)
class BreachPage:
    """What the page shows: paragraphs above and below the curves, which go from `begin` to `end`
    (monotonic seconds of that boot), with the kill at `moment`."""

    above: tuple[Words, ...]
    below: tuple[Words, ...] = ()
    curves: tuple[Curve, ...] = ()
    begin: float = 0.0
    end: float = 0.0
    moment: float | None = None
    spans: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class BreachFacts:
    """Everything read of one run for its page."""

    run: RunDir
    breach: Breach = field(default_factory=Breach)
    recorded: Recorded | None = None
    memory_at: float | None = None
    serving_at: float | None = None


def read(run: RunDir) -> BreachFacts:
    """Read what a run has; a breach without a recording works, and a recording without a breach."""
    recorded = load(run, LAST_S)
    breach = recorded.breach if recorded is not None else read_breach(run)
    at = wall_of(breach) or 0.0
    stages = (stage_at(run, "memory", at), stage_at(run, "serving", at)) if breach else (None, None)
    return BreachFacts(run, breach, recorded, *stages)


def page(facts: BreachFacts | None, view: GuardView) -> BreachPage:
    """The page of a run; without a breach, what the guard watches for and what it sees."""
    if facts is None:
        return BreachPage((("No breach: no run yet, nothing was ever guarded here.", "bold"),))
    if not facts.breach:
        return _empty(facts, view)
    moment = _moment(facts)
    curves, begin, end = _curves(facts, moment, view)
    begun = wall_of(facts.breach)
    spans = ("", "")
    if begun is not None and moment is not None and curves:
        spans = (utc(begun + begin - moment), utc(begun + end - moment))
    return BreachPage(
        tuple(_above(facts)), tuple(_below(facts, view)), curves, begin, end, moment, spans
    )


def title(facts: BreachFacts) -> str:
    """When the breach was, and in which run."""
    at = wall_of(facts.breach)
    when = "at a time that is not known" if at is None else utc(at, "%Y-%m-%d %H:%M:%S")
    return f"{when}  {facts.run.id}"


def cause_of(breach: Breach, events: Iterable[dict[str, Any]] = ()) -> str:
    """The cause in one sentence: from the breach itself, else from the recorder's notes."""
    if breach.reason or breach.reasons:
        return breach.reason or breach.reasons[0]
    texts = [
        str(event.get("text", "")) for event in events if event.get("what") in ("breach", "act")
    ]
    return texts[-1] if texts else ""


def _above(facts: BreachFacts) -> Iterable[Words]:
    events = facts.recorded.events if facts.recorded is not None else ()
    yield cause_of(facts.breach, events) or "A limit was passed; which one was not recorded.", "bad"
    at = wall_of(facts.breach)
    killed = deeds(facts.breach)
    yield from ((text, "bold") for text in killed)
    yield from ((f"spared: {text}", "dim") for text in facts.breach.refused)
    ended = EXPIRED.get(facts.breach.cause)
    if not killed and ended:
        yield f"the {ended}: the rollback stops what runs and brings the baseline back", "bold"
    elif not killed:
        yield "what was killed was not recorded", "warn"
    yield from _since(facts, at)


def _since(facts: BreachFacts, at: float | None) -> Iterable[Words]:
    """When memory was free again and the baseline served, as the rollback recorded it."""
    if at is None:
        return
    back = ""
    if facts.memory_at is not None:
        back = f"memory was back after {format_duration(facts.memory_at - at)}; "
    if facts.serving_at is not None:
        took = format_duration(facts.serving_at - at)
        yield f"{back}the baseline served again after {took}", "good"
    else:
        yield f"{back}no rollback has said yet that the baseline serves: F12", "warn"


def _below(facts: BreachFacts, view: GuardView) -> Iterable[Words]:
    tail = facts.run.id[-4:]
    limit = limit_in(facts.breach)
    if limit is not None:
        yield f"the limit: {limit_words(limit)}", "dim"
    yield "What next", "bold"
    yield "Esc, then o: the report, with this breach in it", ""
    yield f"omni-console recorder {tail} prints the last two minutes as a table", ""
    yield from ((text, "") for text in _advice(limit))
    if facts.recorded is not None:
        yield from ((text, "dim") for text in ending(facts.recorded))
    yield from _lacks(view)


def _lacks(view: GuardView) -> Iterable[Words]:
    """What the guard must not kill, cannot watch, and which protections it did not get."""
    missing = (f"not obtained: {protection}" for protection in view.missing)
    return [(text, "warn") for text in (*view.spared, *view.trouble, *missing)]


def _advice(limit: Limit | None) -> Iterable[str]:
    """What to change before the next try, by the resource that was short."""
    metric = limit.metric if limit is not None else ""
    if metric.startswith("gpu."):
        yield "shorten the context, offload fewer layers or take a smaller quantization (an input)"
    elif metric == "disk.free":
        yield "free the disk, or download to another one (an input)"
    elif metric in ("service.restarts", "service.oom_kills") or (limit is not None and limit.log):
        yield "the log of the service says more: l, then ["
    elif metric == "runner.silent":
        yield "the runner had stopped: runner.log in the run's directory says more"
    else:
        yield "take a smaller quantization, a shorter context, or map the file (mmap)"
        yield "5 asks preflight what the checkpoint needs before the next try"


def _moment(facts: BreachFacts) -> float | None:
    """The kill on the monotonic clock of its boot."""
    if facts.breach.mono is not None:
        return facts.breach.mono
    at = facts.breach.at
    wall = wall_of(facts.breach)
    if at is not None and wall != at:
        return at
    samples = facts.recorded.fast if facts.recorded is not None else ()
    if wall is None or not samples:
        return None
    near = min(samples, key=lambda sample: abs(sample.wall - wall))
    return near.mono + wall - near.wall


def _curves(
    facts: BreachFacts, moment: float | None, view: GuardView
) -> tuple[tuple[Curve, ...], float, float]:
    """The curve that crossed its limit, then RAM available, and swap if it was used."""
    rows = _samples(facts)
    if not rows:
        return (), 0.0, 0.0
    newest = rows[-1][0]
    middle = moment if moment is not None else newest
    end = min(newest, middle + AFTER_S) if newest > middle else middle
    begin = max(rows[0][0], end - LAST_S)
    inside = [row for row in rows if begin <= row[0] <= end]
    limit = limit_in(facts.breach)
    total = max((row[3] or 0 for row in rows), default=0) or max(row[1] for row in inside)
    floor = _level(limit, "host.ram_available") or view.marks.ram_available
    ram = Curve("RAM available", tuple((row[0], float(row[1])) for row in inside), total, floor)
    first = crossed(facts.breach)
    swap = _swap(inside, first, view)
    if first is None or first.column == RAM:
        return ((ram, *swap), begin, end)
    if first.column == SWAP and swap:
        return ((*swap, ram), begin, end)
    shift = middle - (facts.breach.at or middle)
    return ((curve_of(first, shift), ram, *swap), begin, end)


Sample = tuple[float, int, int, int]
"""Monotonic time, RAM available, swap used, total RAM (0: unknown)."""


def _samples(facts: BreachFacts) -> list[Sample]:
    """Samples kept with the breach, then those still in the recording, in order."""
    rows: dict[float, Sample] = {}
    wall, mono = wall_of(facts.breach), facts.breach.mono
    known = wall is not None and mono is not None
    for row in each(facts.breach.window.get("fast")) if known else ():
        values = [number(cell) for cell in each(row)[:3]]
        if len(values) == 3 and None not in values:
            at, available, swap = (figure or 0.0 for figure in values)
            at += (mono or 0.0) - (wall or 0.0)
            rows[at] = (at, int(available), int(swap), 0)
    for sample in facts.recorded.fast if facts.recorded is not None else ():
        rows[sample.mono] = (sample.mono, sample.available, sample.swap_used, sample.total)
    return [rows[at] for at in sorted(rows)]


def _swap(inside: Sequence[Sample], first: Crossed | None, view: GuardView) -> tuple[Curve, ...]:
    """The swap curve, if any was used."""
    used = tuple((row[0], float(row[2])) for row in inside)
    most = max(value for _, value in used)
    crossed_it = first is not None and first.column == SWAP
    level = first.level if first is not None and crossed_it else view.marks.swap_used
    top = max(most, level or 0) * 1.1
    return (Curve("swap used", used, top, level, below=False),) if most > 0 else ()


def _level(limit: Limit | None, metric: str) -> float | None:
    if limit is None or limit.metric != metric:
        return None
    return limit.below if limit.below is not None else limit.above


def _empty(facts: BreachFacts, view: GuardView) -> BreachPage:
    """The page without a breach: what would be one, and which protections the sentinel lacks."""
    above: list[Words] = [("No breach in this run: the guard has stopped nothing.", "bold")]
    below: list[Words] = []
    if view.limits:
        below.append(("It acts, or warns, on", "bold"))
        below += [
            (limit_words(limit), "" if limit.act == "kill" else "dim") for limit in view.limits
        ]
    below += _lacks(view)
    recorded = facts.recorded
    if recorded is None:
        above.append(("There is no recording of it: no sentinel has watched this run.", "dim"))
        return BreachPage(tuple(above), tuple(below))
    above += [(text, "dim") for text in ending(recorded)]
    curves, begin, end = _curves(facts, None, view)
    if recorded.fast:
        left = min(sample.available for sample in recorded.fast)
        above.append((f"least RAM available in what is recorded: {format_bytes(left)}", ""))
    walls = [sample.wall for sample in recorded.fast]
    spans = (utc(walls[-1] - (end - begin)), utc(walls[-1])) if walls else ("", "")
    return BreachPage(tuple(above), tuple(below), curves, begin, end, None, spans)
