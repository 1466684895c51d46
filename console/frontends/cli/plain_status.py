"""How things stand, in a few lines of text: for a pipe, or a terminal that cannot draw."""

from __future__ import annotations

import time

from console.common.text import clean
from console.common.units import format_duration
from console.frontends.tui.watch.baseline import BaselineView, BaselineWatch
from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.journal.run_read import NEVER_BEGAN, NO_RESUME
from console.recovery.guard.record.aftermath import crash_words
from console.render.cutover import BACK, cut_over

RUN_S = 2.0
BASELINE_S = 4.0


def lines(site: str | None = None) -> list[str]:
    """The baseline, the run on show, and what can be done next."""
    watch = RunWatch(lambda snapshot: None)
    baseline = BaselineWatch(lambda view: None, site=site)
    watch.start()
    try:
        snapshot = watch.first(RUN_S) or Snapshot()
        baseline.aim(snapshot.sealed)
        baseline.start()
        view = baseline.first(BASELINE_S)
    finally:
        watch.close()
        baseline.close()
    return [_baseline(view), *_run(snapshot)]


def _baseline(view: BaselineView | None) -> str:
    if view is None:
        return f"baseline: no answer within {BASELINE_S:.0f} s"
    if view.word == "none":
        return "baseline: none known (no site file, no run); omni-console doctor says more"
    facts = [view.word, view.detail]
    if view.tok_s is not None:
        facts.append(f"{view.tok_s:.4g} tok/s")
    if view.proven_at:
        facts.append(f"proven {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(view.proven_at))}")
    return f"baseline {clean(view.name)}: {', '.join(clean(fact) for fact in facts if fact)}"


def _run(snapshot: Snapshot) -> list[str]:
    if snapshot.run is None:
        return ["no run yet: omni-console demo shows one, omni-console run PLAYBOOK starts one"]
    view, word = snapshot.view, snapshot.word.replace("_", " ")
    reason = f" ({clean(view.reason.replace('_', ' '))})" if view.reason else ""
    at = f", step {clean(view.current.id)}" if view.current and not view.over else ""
    decision = str(view.decision).upper().replace("_", "-")
    said = f", decision {decision} {clean(view.outcome)}".rstrip() if decision else ""
    found = [f"run {snapshot.run.id}: {word}{reason}{at}{said}"]
    if view.cutover:
        found.append(f"{cut_over(view)}: {BACK}")
    elif view.outage and snapshot.word == "interrupted":
        found.append("the baseline was down when its runner died; how it is now stands above")
    elif view.outage:
        back = f", back in {format_duration(snapshot.restore_s)}" if snapshot.restore_s else ""
        found.append(f"THE BASELINE IS DOWN: omni-console rollback restores it{back}")
    short = snapshot.run.id[-4:]
    if snapshot.word == "interrupted":
        found.append(f"its runner is gone: omni-console resume {short}, or omni-console rollback")
        left = crash_words(snapshot.run.path)
        found += [f"{left}: omni-console recorder {short} shows it"] if left else []
    elif snapshot.word == NEVER_BEGAN:
        found.append(NO_RESUME)
    elif not view.over:
        found.append(f"omni-console attach {short} follows it")
    return found
