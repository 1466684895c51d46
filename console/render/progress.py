"""How far a step, a run or a rollback is: a bar, what is done of what, and the time left.

Pure. A bar changes only with its figures, and says nothing that its words do not say. `now` is in
Unix seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.common.progress import (
    Figures,
    Progress,
    advanced,
    clock,
    count_words,
    far_words,
    left_s,
    left_words,
    share,
)
from console.common.text import clean
from console.common.units import number
from console.journal.run_view import RunView, StepView
from console.journal.state import ASKING, STANDING, StepState
from console.render.cells import Glyphs, Part, Row, cells, cut, glyphs

MIN_BAR, MAX_BAR = 8, 48
"""Cells: a shorter bar shows nothing, in a longer one nobody sees more."""
AT_ONCE = ASKING | {"gate", "note", "report"}
"""Kinds of step that take no time of their own: a person's is not known."""
BEFORE = (StepState.PENDING, StepState.RUNNING, StepState.RETRY_WAIT)
STAGES = ("fence", "stop", "memory", "start", "ready", "completion", "measure")
"""The stages of a rollback that are counted; see console.recovery.rollback.progress."""


def bar(done: float, width: int, signs: Glyphs) -> str:
    """A share in `width` cells. Its head stands where it is, and only all of it is full."""
    if width <= 0:
        return ""
    at = min(width, max(0, int(done * width)))
    return signs.done * at + (signs.head + signs.line * (width - at - 1) if at < width else "")


def gone_s(step: StepView, now: float) -> float:
    """Seconds since the running attempt began."""
    return max(0.0, now - step.started) if step.started else 0.0


def step_left_s(step: StepView, now: float) -> float | None:
    """Seconds that a running step still takes; None if nothing tells it."""
    if step.state is not StepState.RUNNING:
        return None
    return left_s(step.progress, gone_s(step, now), step.takes_s or None, now)


def _progress_parts(step: StepView, now: float) -> tuple[str, float | None, list[str]]:
    """A running step as words for what is done, the share for the bar, and what is left."""
    progress, gone, left = step.progress, gone_s(step, now), step_left_s(step, now)
    after = [left_words(left)] if left is not None else []
    if step.limit_s and step.kind not in AT_ONCE:
        after.append(f"limit {clock(step.limit_s)}")
    if progress is not None:
        return count_words(progress.figures), progress.share, after
    if not step.takes_s:
        return f"{clock(gone)} gone", None, after
    if gone > step.takes_s:
        return f"{clock(gone)}, usually {clock(step.takes_s)}", None, after
    return f"{clock(gone)}/{clock(step.takes_s)}", gone / step.takes_s, after


def step_progress(step: StepView, now: float, width: int) -> Row:
    """`run 4/9 ━━━━━━━╸───── ~5:10 left, limit 10:00`; () for a step that does not run, or that
    waits for a person."""
    if step.state is not StepState.RUNNING or step.kind in AT_ONCE:
        return ()
    words, done, after = _progress_parts(step, now)
    return _row([(words, "bold")], done, after, width)


def step_words(step: StepView, now: float) -> str:
    """The same for a line of a log: `run 4/9, 44 %, ~5:10 left`, without what the step has said
    itself; "" without figures."""
    progress = step.progress
    return far_words(progress, step_left_s(step, now), step.message) if progress is not None else ""


def said_words(step: StepView, now: float) -> str:
    """What a running step said last, and how far it is: `cand: run 4/9 21.3 tok/s  (44 %, …)`."""
    progress_words = step_words(step, now)
    return f"{clean(step.message, 200)}{f'  ({progress_words})' if progress_words else ''}"


def _row(lead: list[Part], done: float | None, after: list[str], width: int) -> Row:
    """Words, a bar in the room between, words; what does not fit goes from the end."""
    signs = glyphs()
    before = sum(cells(text) for text, _ in lead) + 1
    while after and width - before - len(", ".join(after)) - 1 < (MIN_BAR if done else 0):
        after = after[:-1]
    tail = ", ".join(after)
    room = min(MAX_BAR, width - before - (len(tail) + 1 if tail else 0))
    row, between = [*lead], ", "
    if done is not None and room >= MIN_BAR:
        row += [(" ", ""), (bar(done, room, signs), "accent")]
        between = " "
    if tail:
        row.append((between + tail, "dim"))
    return cut(tuple(row), width, signs)


# -- the whole run ---------------------------------------------------------------------------------


def worked_s(view: RunView, now: float) -> float:
    """Seconds that the steps of a run have worked so far, without what it waited for."""
    running = [step for step in view.steps if step.state is StepState.RUNNING]
    done = sum(step.duration_s or 0.0 for step in view.steps if step.state not in BEFORE)
    return done + sum(gone_s(step, now) for step in running if step.kind not in AT_ONCE)


def run_left_s(view: RunView, now: float) -> float | None:
    """Seconds of work that a run has left, without what it waits for; None while a step is to come
    of which nobody knows how long it takes."""
    left = 0.0
    for step in view.steps:
        if step.state not in BEFORE or step.kind in AT_ONCE:
            continue
        if step.state is StepState.RUNNING:
            known = step_left_s(step, now)
            if known is None and step.takes_s:
                known = 0.0  # longer than usual: it may end at any moment
        else:
            known = step.takes_s
        if known is None:
            return None
        left += known
    return left


def run_share(view: RunView, now: float) -> float | None:
    """The part of a run's work that is done, by time; None while that is not known. Never all of
    it before the last step has ended."""
    left = run_left_s(view, now)
    if left is None or all(step.state not in BEFORE for step in view.steps):
        return 1.0 if left is not None and view.steps else None
    part = share(worked_s(view, now), worked_s(view, now) + left)
    return min(0.99, part) if part is not None else None


def run_progress(view: RunView, now: float, width: int) -> Row:
    """`7/11 ━━━━━━╸──── 62 % 16:05 gone, ~9 min left`: steps, and the time if all of it is known;
    what is left is not said while the run waits for a person. () for a run that is over or has no
    steps."""
    if view.over or not view.steps:
        return ()
    ended = sum(step.state not in BEFORE for step in view.steps)
    after = [f"{clock(now - view.created)} gone"] if view.created else []
    by_time, left = run_share(view, now), run_left_s(view, now)
    if by_time is not None:
        after = [f"{int(100 * by_time)} % {words}" for words in after] or [
            f"{int(100 * by_time)} %"
        ]
    if left is not None and view.state not in STANDING:
        after.append(left_words(left))
    done = by_time if by_time is not None else ended / len(view.steps)
    return _row([(f"{ended}/{len(view.steps)}", "bold")], done, after, width)


# -- a rollback ------------------------------------------------------------------------------------


def rollback_progress(
    lines: Sequence[dict[str, Any]], usual_s: float | None, now: float, width: int
) -> Row:
    """`ready 5/7 ━━━━╸──── 0:23 gone, ~0:51 left` of a rollback's lines; while a model loads, how
    much of it has. `usual_s`: what a restore takes. () before the first line and at the end.
    """
    stage = str(lines[-1].get("rung", "")) if lines else ""
    begun = number(lines[0].get("at")) if lines else None
    if begun is None or stage not in STAGES:
        return ()
    gone, progress = max(0.0, now - begun), load_of(lines)
    after = [f"{clock(gone)} gone"]
    left = left_s(progress, gone, usual_s, now)
    if left is not None:
        after.append(left_words(left))
    elif usual_s:
        after.append(f"usually {clock(usual_s)}")
    at = STAGES.index(stage) + 1
    lead: list[Part] = [(f"{stage} {at}/{len(STAGES)}", "bold")]
    if progress is not None:
        lead.append((f" {count_words(progress.figures)}", ""))
    done = progress.share if progress is not None else None
    if done is None:
        done = min(0.99, gone / usual_s) if usual_s else (at - 1) / len(STAGES)
    return _row(lead, done, after, width)


def load_of(lines: Sequence[dict[str, Any]]) -> Progress | None:
    """How far the load is that a rollback waits for now; None if it waits for none."""
    progress: Progress | None = None
    for line in lines:
        done, at = number(line.get("done")), number(line.get("at"))
        if done is not None and at is not None:
            unit = clean(str(line.get("unit", "")), 20)
            progress = advanced(progress, Figures(done, number(line.get("total")), unit), at)
        elif line.get("state") != "note":
            progress = None  # another stage, or another start of the same
    return progress
