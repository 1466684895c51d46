"""A run's outcome in the first lines of its report: the decision and the one reason for it."""

from __future__ import annotations

from console.common.text import clean
from console.journal.run_view import GateVerdict, RunView, StepView
from console.journal.state import JUDGING, Decision, Mark, RunState, StepState
from console.render.facts.gate import doubts, gate_name, gates
from console.render.facts.run import NOT_SERVING, baseline_after, decision
from console.render.facts.step import StepFacts
from console.render.facts.words import state_words, when
from console.render.report.benchmarks import drift_words, drifts
from console.render.report.markdown import code, figure, prose, table

BAD = (StepState.FAILED, StepState.IN_DOUBT)
MISSING = {"cutover": "`omni-console rollback` goes back", "garbled": ""}
"""What to do where clients do not reach the baseline, or get nothing of use from it."""
UNWELL = (RunState.FAILED, RunState.CANCELLED, RunState.ROLLED_BACK, RunState.ROLLBACK_FAILED)


def decided(view: RunView) -> GateVerdict | None:
    """The verdict behind the run's decision: among the worst, the last that names its outcome."""
    verdicts = [v for v in view.verdicts if v.verdict == view.worst]
    return next((v for v in reversed(verdicts) if v.outcome), verdicts[-1] if verdicts else None)


def deciding(verdict: GateVerdict) -> list[dict[str, str]]:
    """The criteria with the same answer as the whole verdict."""
    return [row for row in verdict.criteria if row.get("verdict") == verdict.verdict]


def settled(view: RunView) -> bool:
    """Whether the run's decision is final."""
    return bool(view.decision) and not (view.decision is Decision.GO and view.open_gates)


def decision_words(view: RunView) -> str:
    """`NO-GO (retain)`, `GO so far`, `HOLD DOUBTFUL`, or `none`."""
    if not view.decision:
        return "none"
    rehearsed = f"{Mark.REHEARSAL} " if view.rehearsal else ""
    if not settled(view):
        return f"{rehearsed}{view.decision.word} so far"
    known, doubtful = decision(view), f" {Mark.DOUBTFUL}" if view.doubts else ""
    named = f" ({known.detail})" if known.detail else ""
    return f"{rehearsed}{known.brief}{doubtful}{named}"


def because(view: RunView) -> str:
    """The reason in one plain sentence without a full stop: criterion, figure, threshold,
    baseline."""
    verdict = decided(view)
    if view.doubts and verdict is None:
        return doubts(view)[0].value
    if verdict is None or not settled(view):
        stop = stopped_by(view)
        tail = f"; before that, {_verdict_words(view, verdict)}" if verdict is not None else ""
        if open_gates := view.open_gates or [step.id for step in _judges(view)]:
            what = f"{gate_name(view, open_gates[0])} was not reached"
            return f"{what}: {stop}{tail}" if stop else what + tail
        return f"no gate is in this playbook{f'; {stop}' if stop else ''}"
    return _verdict_words(view, verdict)


def _verdict_words(view: RunView, verdict: GateVerdict) -> str:
    """A verdict's first criterion that decided, and how many more there are."""
    lead = gate_name(view, verdict.step)
    rows = deciding(verdict)
    missed = [c for c in verdict.criteria if c.get("verdict") != "GO"]
    if verdict.overridden and missed:
        rows = missed
        lead += " was overridden; it had found"
    if not rows:
        return f"{lead} said {verdict.verdict}"
    text = f"{lead}: {with_baseline(view, rows[0])}"
    more = len(rows) - 1
    met = " met" if verdict.verdict == "GO" and not verdict.overridden else ""
    others = f"; and {more} more {'criterion' if more == 1 else 'criteria'}{met}"
    return text + (others if more else "")


def stopped_by(view: RunView) -> str:
    """What ended or stopped the run early; empty if it went through."""
    bad = [s for s in view.steps if s.state in BAD]
    stop_requests = [v for v in view.verbs if v.verb in ("abort", "rollback")]
    if bad:
        facts = StepFacts(bad[-1])
        cause = f" ({facts.cause})" if facts.cause else ""
        detail = f": {clean(facts.detail, 300)}" if facts.detail else ""
        word = "failed" if bad[-1].state is StepState.FAILED else "is in doubt"
        quote = f"; it said: {facts.last_words}" if facts.last_words else ""
        return f"step {clean(bad[-1].id, 60)} {word}{cause}{detail}{quote}"
    if stop_requests:
        request = stop_requests[-1]
        why = f": {clean(request.why, 200)}" if request.why else ""
        return f"{clean(request.verb, 20)} by {clean(request.who, 60)}{why}"
    if view.state in UNWELL or (view.reason and not view.over):
        return f"the run is {view.state}" + (f" ({clean(view.reason, 100)})" if view.reason else "")
    return ""


def headline(view: RunView, *, interrupted: bool = False) -> list[str]:
    """Decision and reason, then whatever a reader must not miss: each a line of its own."""
    word = prose(decision_words(view)) if settled(view) else "No decision"
    why = because(view)
    lines = [f"**{word}.** {prose(why[:1].upper() + why[1:], 900)}."]
    for gate in gates(view):
        name = prose(gate_name(view, gate.step))
        lines += [f"**{mark.label}**: {name}, {prose(mark.value)}." for mark in gate.marks]
    if judged := decided(view):  # else the reason is a doubt already
        lines += [
            f"**{doubt.label}**: {prose(doubt.value)}." for doubt in doubts(view, judged.step)
        ]
    for drift in drifts(view):
        if drift.moved:
            spare = ""
            if view.decision is Decision.GO:
                spare = " What was decided has more to spare than that."
            lines.append(
                f"**The baseline itself moved by {drift_words(drift)}** while this was measured: "
                f"find out why before anything else is compared with it.{spare}"
            )
    # its end is more than what its decision led to
    more = view.decision is Decision.GO or any(step.state in BAD for step in view.steps)
    if settled(view) and view.state in UNWELL and more:
        state = state_words(view.state).upper()
        lines.append(f"**The run itself is {state}**: {prose(stopped_by(view))}.")
    after = baseline_after(view)
    if after.key == "down":
        lines.append(f"**The baseline is {down_words(view, interrupted=interrupted)}.")
    elif after.tone not in ("", "good"):
        words = prose(after.brief[:1].upper() + after.brief[1:])
        lines.append(f"**{words}**: {MISSING.get(after.key) or prose(after.detail)}.")
    if interrupted:
        lines.append("**Provisional report**: the run is interrupted, and nothing executes it.")
    elif not view.over:
        lines.append("**Provisional report**: the run goes on, and this is not its final state.")
    return [text for line in lines for text in (line, "")]


def down_words(view: RunView, *, interrupted: bool) -> str:
    """What is known of a baseline that a run has stopped; a bold word ends in the first `**`. While
    the run goes on nobody has looked: it has it stopped on purpose."""
    if view.over or interrupted:
        since = f" since {when(view.down_since)}" if view.down_since and not view.over else ""
        return f"{NOT_SERVING}**{since}: run `omni-console rollback`"
    since = f" since {when(view.down_since)}" if view.down_since else ""
    return f"down**{since}: this run has stopped it, and brings it back when it ends"


def baseline_words(view: RunView, *, interrupted: bool = False) -> str:
    after = baseline_after(view)
    if after.key == "down":
        return f"**{down_words(view, interrupted=interrupted)}"
    words = prose(after.value, 3000)
    if after.key in MISSING:
        words = words.replace(prose(after.label), f"**{prose(after.label)}**", 1)
    return f"stopped, {words}" if after.key == "cutover" else words


def _judges(view: RunView) -> list[StepView]:
    """Gates and preflight steps without a verdict: not reached, failed or cancelled."""
    judged = {v.step for v in view.verdicts}
    return [
        s for s in view.steps
        if s.kind in JUDGING and s.id not in judged and s.state is not StepState.SKIPPED
    ]  # fmt: skip


def with_baseline(view: RunView, row: dict[str, str]) -> str:
    """A criterion's words, plus the baseline's figure if they do not name it."""
    why = clean(row.get("why", ""), 400)
    owner, _, name = row.get("metric", "").partition(".")
    base = view.metrics.get(f"{owner}.baseline", {}).get(name, {})
    value = base.get("value")
    if value is None or "baseline" in why:
        return why
    return f"{why}; the baseline: {figure(value, base.get('unit', ''))}"


def gate_lines(view: RunView) -> list[str]:
    """Every criterion that was judged: thresholds, verdict and words."""
    rows = []
    for gate in gates(view):
        planned = [t for t in view.header.targets if t.get("gate") == gate.step]
        in_order = len(planned) == len(gate.criteria)
        by_name = {str(gate_target.get("metric")): gate_target for gate_target in planned}
        for at, row in enumerate(gate.criteria):
            target = planned[at] if in_order else by_name.get(row.key, {})
            named = f" → {prose(gate.outcome, 60)}" if gate.outcome and at == 0 else ""
            of = f" ({target['of']})" if target.get("of") else ""
            rows.append([
                (code(gate.step, 60) if at == 0 else "") + named,
                code(f"{row.key}{of}"),
                prose(target.get("go") or "–", 80), prose(target.get("no_go") or "–", 80),
                f"**{prose(row.label)}**", prose(row.value),
            ])  # fmt: skip
        rows += [
            [code(gate.step, 60), f"**{mark.label}**", "", "",
             f"**{mark.brief}**" if mark.brief else "", prose(mark.detail or mark.value)]
            for mark in [*gate.marks, *doubts(view, gate.step)]
        ]  # fmt: skip
    if not rows:
        return []
    head = ("gate", "criterion", "GO", "NO-GO", "verdict", "why")
    return ["## Gates", "", *table(head, rows)]
