"""What the status page shows: plain values made of what the watchers saw. Pure.

All text is clean. A state is a word before it is anything else, and a rate has its unit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.common.logs.tail import read_last
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.frontends.tui.watch.actions import BINDS, question_lines, why_not
from console.frontends.tui.watch.baseline import BaselineView
from console.frontends.tui.watch.emergency import Press
from console.frontends.tui.watch.run import UNREADABLE, Snapshot
from console.host.sample import Sample, gpu_levels
from console.journal.guard_status import NONE, GuardView
from console.journal.run_files import INTERRUPTED
from console.journal.run_view import RunView, StepView
from console.journal.state import RunState, stands
from console.recovery.rollback.baseline_state import BY_KEY
from console.render.cells import Row, age_words, glyphs
from console.render.cutover import BACK, cut_over
from console.render.facts.run import decision
from console.render.facts.step import facts_of
from console.render.facts.words import state_words
from console.render.gauges import (
    figures,
    host_fields,
    memory_of,
    short_name,
)
from console.render.guard import lease_words, line
from console.render.progress import rollback_progress, run_progress, run_share, step_progress
from console.render.upcoming import NOTHING, ShownBaseline, fact, of_site, on_site

LOG_LINES = 12
STAGE_LINES = 14
NAMES = {"in": "SWAP in"}
"""Gauges that have the name of their neighbour in a row."""
ROLL_BACK = "Roll back brings the baseline back"
MAX_TYPED = 300
"""Characters of a typed answer; the words to type are shown whole."""
WIDE = 200
"""Cells for rows whose bars are left out."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything. `now` in Unix seconds, `tick` in monotonic ones."""

    snapshot: Snapshot
    baseline: BaselineView | None
    sample: Sample | None
    guard: GuardView
    press: Press | None
    now: float
    tick: float


def facts(seen: Seen, *, write: bool) -> dict[str, Any]:
    """Everything that the page shows, and what an answer from it is bound to."""
    shot = seen.snapshot
    question = _question(shot, write)
    base = seen.baseline
    site = on_site(shot.view, ShownBaseline(base.site, base.url) if base is not None else NOTHING)
    return {
        "write": write,
        "at": time.strftime("%H:%M:%S", time.localtime(seen.now)),
        "baseline": _baseline(seen.baseline, seen.now),
        "run": _run(shot, seen.now, write, site) if shot.run is not None else None,
        "next": of_site(site, _next(shot, question, seen.now, write)),
        "seen": bound_to(shot),
        "question": question,
        "rollback": _rollback(seen),
        "gauges": _gauges(seen.sample, seen.tick) if seen.sample is not None else [],
        "guard": plain(line(seen.guard, seen.tick, key="")) if seen.guard.word != NONE else "",
        "lease": lease_words(seen.guard.lease),
        "log": _log(shot),
    }


def bound_to(shot: Snapshot) -> dict[str, Any]:
    """The run, step, attempt and evidence that an answer is for; null where they are not known."""
    run = shot.run.id if shot.run is not None else None
    return {"run": run, **{name: shot.control.get(name) for name in BINDS}}


def plain(row: Row) -> str:
    """A row as text, without its bar; what stands apart in it is set off by a comma."""
    text = "".join(text for text, tone in row if tone != "accent")
    return re.sub(" {2,}", ", ", text.strip())


def _mode(shot: Snapshot) -> str:
    return str(shot.control.get("mode", ""))


def _baseline(view: BaselineView | None, now: float) -> dict[str, str]:
    if view is None:
        return {"word": "unknown", "words": "no answer yet"}
    if view.state is None:
        return {"word": view.word, "words": "no site file and no run: no baseline is known"}
    phrases = [view.name, *(phrase.removesuffix(BY_KEY) for phrase in view.state.facts(now))]
    return {"word": view.word, "words": ", ".join(clean(phrase) for phrase in phrases if phrase)}


def _run(shot: Snapshot, now: float, write: bool, site: str) -> dict[str, Any]:
    """`site`: on which site it is, in words; "" on the one whose baseline is on show."""
    view = shot.view
    assert shot.run is not None
    step = view.step(shot.at) or view.current
    word, known = state_words(shot.word), decision(view)
    standing = stands(view.state, view.reason, clean(step.id) if step else "the first step")
    rolling = shot.word == "rolling_back"
    if rolling:  # nobody is asked any more, and the rollback has a progress of its own
        standing = ""
    progress = "" if rolling else plain(run_progress(view, now, WIDE))
    return {
        "id": shot.run.id,
        "title": clean(view.title or view.playbook, 120),
        "word": word,
        "site": site,
        "words": of_site(site, standing or state_words(view.reason)) or site,
        "mark": view.mark,
        "decision": f"{known.brief} {known.detail}".strip(),
        "trouble": clean(shot.trouble, 300),
        "step": _step(view, step, now) if step else None,
        "progress": f"steps {progress}" if progress else "",
        "share": run_share(view, now) if not (rolling or view.over) and view.steps else None,
        "baseline": of_site(site, _outage(shot, now, write)),
    }


def _step(view: RunView, step: StepView, now: float) -> dict[str, Any]:
    progress = step.progress
    return {
        "name": f"{view.steps.index(step) + 1}/{len(view.steps)} {clean(step.id, 60)}",
        "title": clean(step.title, 200),
        "state": facts_of(view, step).state,
        "said": clean(step.message or step.detail, 300),
        "progress": plain(step_progress(step, now, WIDE)),
        "share": progress.share if progress is not None else None,
    }


def _outage(shot: Snapshot, now: float, write: bool) -> str:
    """What the run has done to the baseline, where that has not ended."""
    view = shot.view
    if view.cutover:
        return f"{cut_over(view)}: {ROLL_BACK if write else BACK}"
    if not view.outage:
        return ""
    down = format_duration(now - view.down_since) if view.down_since else "some time"
    back = f", back in about {format_duration(shot.restore_s)}" if shot.restore_s else ""
    return f"the baseline has been down for {down}{back}"


def _next(shot: Snapshot, question: dict[str, Any] | None, now: float, write: bool) -> str:
    """What is next, and which of the page's buttons does something about it: a page has no keys,
    and one that only shows has no buttons either."""
    view = shot.view
    words = fact(view, shot.word, shot.at, _mode(shot), now)
    if not write:
        return words
    if question is not None and question["reason"]:
        return f"{words}: Approve overrides the gate, the terminal can do more"
    if question is not None:
        return f"{words}: Approve{' or Reject' if question['reject'] else ''}"
    if shot.word == INTERRUPTED:
        return f"{words}: {ROLL_BACK}, the terminal can resume the run"
    if shot.word == UNREADABLE or (view.over and (view.outage or view.cutover)):
        return f"{words}: {ROLL_BACK}"
    if shot.word == "none":
        return f"{words}: a playbook is picked in the terminal"
    if view.state is RunState.PAUSED and not shot.is_rolling_back:
        return f"{words}: the terminal takes the decision"
    return words


def _question(shot: Snapshot, write: bool) -> dict[str, Any] | None:
    """What a person is asked; None where nothing can be approved now."""
    if why_not(shot, "approve"):
        return None
    gate = shot.view.state is RunState.PAUSED
    return {
        "title": ("Override the gate?" if gate else "Approve?") if write else "Waits for an answer",
        "lines": [question_line for question_line in question_lines(shot) if question_line],
        "confirm": "" if gate else clean(str(shot.control.get("confirm") or ""), MAX_TYPED),
        "reason": gate,
        "reject": not why_not(shot, "reject"),
        "until": time.strftime("%H:%M", time.localtime(shot.view.until)) if shot.view.until else "",
    }


def _rollback(seen: Seen) -> dict[str, Any] | None:
    """The rollback that goes on, or that this page has asked for; None without one."""
    shot, press = seen.snapshot, seen.press
    progress = press.progress if press is not None else None
    lines: Sequence[dict[str, Any]] = shot.stages
    result, trouble, over = None, "", not shot.is_rolling_back
    if progress is not None:
        lines = tuple(progress.lines)
        result, trouble, over = progress.result, progress.trouble, progress.over
    elif over:
        return None
    words = shot.rollback or "rolling back"
    if result is not None:
        words = result.headline
        trouble = clean("; ".join(result.notes) if result.serving else result.detail, 300)
    stages = [text for stage_line in lines if (text := _stage(stage_line))]
    return {
        "over": over,
        "words": words,
        "trouble": trouble,
        "progress": "" if over else plain(rollback_progress(lines, shot.restore_s, seen.now, WIDE)),
        "stages": stages[-STAGE_LINES:],
    }


def _stage(stage_line: dict[str, Any]) -> str:
    if "done" in stage_line or stage_line.get("state") == "begin":
        return ""
    return one_line(
        " ".join(str(stage_line.get(name, "")) for name in ("rung", "state", "detail")), 200
    )


def _gauges(sample: Sample, tick: float) -> list[dict[str, str]]:
    """Each figure, with its age where that is more than it should be."""
    gauges: list[dict[str, str]] = []
    report = sample.gpu
    old = age_words(report.at, tick) if report is not None else ""
    if report is not None and not report.gpus:
        gauges.append(_gauge("GPU", report.trouble or "no NVIDIA card", old))
    for gpu in report.gpus if report is not None else ():
        memory = f"{memory_of(gpu).strip()}{gpu_levels(gpu)['vram'].mark}"
        first, *others = (f"{words}{level.mark}" for _, words, level in figures(gpu, glyphs()))
        name = f"GPU{gpu.index} {short_name(gpu.name, 16).strip()}"
        gauges.append(_gauge(name, first, memory, *others, old))
    old = age_words(sample.at, tick)
    for field in host_fields(sample, glyphs()):
        (name, _), *rest = field.brief
        name = NAMES.get(name.strip(), name.strip())
        gauges.append(_gauge(name, plain(tuple(rest)), old))
    return gauges


def _gauge(name: str, *words: str) -> dict[str, str]:
    return {"name": clean(name, 40), "words": clean(", ".join(filter(None, words)), 120)}


def _log(shot: Snapshot) -> dict[str, Any] | None:
    """The end of the log that matters most now."""
    file = next((log for log in shot.logs if log.filled), None)
    if file is None:
        return None
    return {"name": file.name, "lines": read_last(file.path, LOG_LINES)}
