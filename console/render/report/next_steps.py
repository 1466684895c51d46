"""What to do next after a run, and what it does not show. Only what is on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.bench.metrics import metric_of
from console.common.units import format_duration, number, plural
from console.config.playbook.threshold import parse_threshold
from console.journal.run_view import GateVerdict, RunView, StepView
from console.journal.state import LOST_AFTER_LAST, Decision, RunState, StepState
from console.render.cutover import next_words, service
from console.render.facts.run import baseline_after
from console.render.report.benchmarks import (
    benches,
    drifts,
    measured,
    of_metric,
    targets,
    voids,
)
from console.render.report.decision import (
    UNWELL,
    decided,
    settled,
)
from console.render.report.guard import guard_next
from console.render.report.markdown import change, given, plain

CAUSES = {
    "timeout": "raise `timeout` if it was still making progress, else look at its log",
    "not_ready": "the service's log says why it did not come up",
    "signal": "something killed it: memory limits, `dmesg`, whoever else is on this machine",
    "exit_code": "its last lines say why it ended",
    "oom_kill": "it ran out of memory: compare the prediction with what was there",
    "precondition": "what it asks for was not there; nothing was done",
    "start_error": "the service's definition, its image and its ports",
    "output_invalid": "the output, or the runs that were discarded, with their reasons",
    "expired": "nobody answered in time; a longer `expires`, or somebody who waits",
    "guard": "a limit of the machine was passed",
    "internal": "not the trial's fault: `runner.log` in the run's directory has the trace",
}


def next_steps(view: RunView, *, interrupted: bool = False) -> list[str]:
    """Plain sentences, the most urgent first."""
    sentences = [*_urgent(view, interrupted=interrupted), *guard_next(view)]
    if view.rehearsal and view.over:
        return [
            *sentences,
            "It was a rehearsal: the procedure is known to work. Run it for real."
            if view.decision is Decision.GO and not view.rehearsal.get("fault")
            else "It was a rehearsal: see whether it ended where you wanted it to end.",
        ]
    if interrupted:
        run = view.run_id[-4:]
        return [
            *sentences, f"The run is interrupted: `omni-console resume {run}` goes on with it, and "
            "`omni-console rollback` ends it.",
        ]  # fmt: skip
    if not view.over:
        return sentences + list(_open_run(view))
    broken = view.state in UNWELL
    verdict = decided(view)
    failed = [s for s in view.steps if s.state is StepState.FAILED]
    if broken and (failed or view.decision in (Decision.NONE, Decision.GO)):
        sentences += _after_failure(view, failed)
    if verdict is not None and view.decision is Decision.NO_GO:
        sentences += _after_no_go(view, verdict)
    elif verdict is not None and view.decision is Decision.HOLD:
        sentences += _after_hold(view, verdict)
    elif verdict is not None and not broken and settled(view):
        sentences += _after_go(view, verdict)
    elif view.doubts and not broken:
        sentences.append(
            "HOLD: nothing is to be switched over. Run it again when the baseline is steady: "
            "the same clocks, nothing else busy, its model read once before it is measured."
        )
    elif verdict is None and not broken and not _tunings(view):
        sentences.append(
            "No gate was in this playbook: the figures below are for a person to judge."
        )
    return sentences if broken else [*sentences, *_after_tuning(view)]


def _tunings(view: RunView) -> list[dict[str, Any]]:
    return [known.tune for known in view.measured.values() if known.tune]


def _after_tuning(view: RunView) -> Iterator[str]:
    """What to do with the flags that won."""
    for tuning in _tunings(view):
        if tuning.get("early"):
            continue
        of, rows = plain(tuning.get("of") or "", 60), tuning.get("points")
        best = [row for row in rows if isinstance(row, dict) and row.get("best")] if rows else []
        if best and best[0].get("today"):
            yield f"Keep the flags of {of} as they are: nothing that was measured is surely faster."
        elif best:
            flags = plain(best[0].get("changes") or "", 300)
            verify = ", then `omni-console run baseline-verify`" if of == "baseline" else ""
            yield f"Put `{flags}` into the command line of {of}{verify}: it was the fastest."


def _urgent(view: RunView, *, interrupted: bool) -> Iterator[str]:
    if view.cutover:
        yield next_words(view)
    elif view.state is RunState.ROLLBACK_FAILED:
        why = f": {plain(view.detail, 400)}" if view.detail else ""
        yield (
            f"First: the baseline does not serve, and the rollback failed{why}. Mend that, then "
            "`omni-console rollback` tries it again."
        )
    elif view.outage and not (view.over or interrupted):
        yield (
            "The baseline is down because this run has stopped it. The run brings it back when it "
            "ends; `omni-console rollback` ends the run and does so now."
        )
    elif view.outage:
        yield "First: the baseline does not serve. `omni-console rollback` brings it back."
    elif survivor := view.serving.left:
        yield (
            f"First: {plain(survivor, 300)} still runs beside the baseline. End it if it is "
            "yours, then `omni-console rollback` proves the baseline alone."
        )
    elif view.serving.garbled:
        yield (
            "First: the baseline answers garbage. `omni-console rollback` restarts it once and "
            "proves it."
        )
    elif (after := baseline_after(view)).key == "degraded":
        yield (
            f"First: {after.brief}, {plain(after.detail)}. Look at `omni-console gauges` "
            "(clocks, power, what else is busy) before anything is measured again."
        )


def _open_run(view: RunView) -> Iterator[str]:
    run = view.run_id[-4:]
    if view.state is RunState.PAUSED and view.offer:
        yield (
            f"{plain(view.detail, 400)}. `omni-console tell {run} measure` (in the console `r`) "
            f"goes on with: {plain(view.offer, 80)}, then judge again."
        )
    elif view.state is RunState.PAUSED:
        yield (
            f"The run is paused ({plain(view.reason, 40)}): `omni-console attach {run}`, or "
            f"`omni-console tell {run} retry`, `skip`, `abort` or `rollback`."
        )
    else:
        yield (
            f"The run is going on: `omni-console attach {run}`. If its runner died: "
            f"`omni-console resume {run}`."
        )


def _after_failure(view: RunView, failed: list[StepView]) -> Iterator[str]:
    run = view.run_id[-4:]
    for step in failed:
        hint = CAUSES.get(step.cause, "")
        log = f"`omni-console logs {plain(step.id, 60)} --run {run}` shows its output"
        cause = plain(step.cause, 40) or "no cause is known"
        yield f"Step {plain(step.id, 60)} failed ({cause}): {hint + '; ' if hint else ''}{log}."
    if view.breach is not None and not failed:
        return  # what its guard stopped is told already
    if view.reason == LOST_AFTER_LAST and not failed:
        final = ", ".join(plain(step.id, 60) for step in view.steps if step.final and step.started)
        named = f" ({final})" if final else ""
        yield (
            f"The baseline served until the steps of `finally`{named} had run, and was lost then: "
            "see what they stop before the playbook runs again."
        )
        return
    yield (
        "The run has ended and cannot go on: correct the cause and run the playbook again. Started "
        "with --detach, or in the console, a failed step pauses instead and can be tried again."
        if failed else "Nothing failed by itself: run the playbook again when the reason is gone."
    )  # fmt: skip


def _after_go(view: RunView, verdict: GateVerdict) -> Iterator[str]:
    name = f": the playbook calls this `{plain(verdict.outcome, 60)}`" if verdict.outcome else ""
    kept = [plain(n, 60) for n in view.services]
    still = f"{', '.join(kept)} is still up" if kept else "nothing of the trial is up any more"
    if view.cutover:
        yield f"GO{name}: clients reach {plain(service(view), 60)} since this run."
    else:
        switched = "this run switched nothing over"
        if was := view.was_cut_over:
            reached = f"clients reached {plain(was.service, 60)}"
            took = format_duration(was.back_s)
            switched = f"{reached} for {took}, then the baseline again"
        yield f"GO{name}. That step is the operator's: {switched}, and {still}."
    if verdict.overridden:
        yield "The GO is an override: treat it as HOLD until the missing evidence is there."
    if not_shown(view):
        yield "Before anything is switched over: mind what this run does not show, below."


def _after_no_go(view: RunView, verdict: GateVerdict) -> Iterator[str]:
    outcome = f" (`{plain(verdict.outcome, 60)}`)" if verdict.outcome else ""
    yield f"NO-GO: stay with the baseline{outcome}."
    tried: list[str] = []
    for row in verdict.criteria:
        if row.get("verdict") != "NO-GO":
            continue
        metric = row.get("metric", "")
        yield f"{plain(row.get('why', ''), 400)}{_share(view, verdict.step, metric)}."
        known = metric_of(metric)
        hint = known.cure if known is not None else ""
        if hint and hint not in tried:
            tried.append(hint)
            yield f"To try for {plain(metric, 80)}: {hint}."
    if view.inputs and tried:
        yield (
            f"A new attempt needs something else than {given(view)}; `omni-console report RUN RUN` "
            "compares the attempts."
        )


def _after_hold(view: RunView, verdict: GateVerdict) -> Iterator[str]:
    outcome = f" (`{plain(verdict.outcome, 60)}`)" if verdict.outcome else ""
    yield f"HOLD{outcome}: the data does not decide. Nothing is to be switched over on it."
    step = view.step(verdict.step)
    looked = step is not None and step.kind != "gate"
    for row in verdict.criteria:
        if row.get("verdict") == "HOLD":
            how = _how_to_get(view, verdict.step, row.get("metric", ""))
            if looked:
                log = f"`omni-console logs {plain(verdict.step, 60)} --run {view.run_id[-4:]}`"
                how = f"the whole of it is in {log}"
            yield f"{plain(row.get('why', ''), 400)}: {how}."


def _targets(view: RunView, gate: str, metric: str) -> list[dict[str, Any]]:
    return [target for target in targets(view, metric) if target.get("gate") == gate]


def _share(view: RunView, gate: str, metric: str) -> str:
    """`: 69.5 % below what is asked`, or empty if that says nothing."""
    owner, _, name = metric.partition(".")
    figures, base = of_metric(view, metric), of_metric(view, f"{owner}.baseline.{name}")
    for target in _targets(view, gate, metric):
        try:
            threshold = parse_threshold(str(target.get("go") or target.get("no_go") or ""))
        except ValueError:
            continue
        limit = threshold.limit(number(base.get("value")), str(figures.get("unit") or ""))
        away = change(number(figures.get("value")), limit)
        if away.endswith(" x"):
            return f": {away.removesuffix(' x')} times what is asked"
        if away != "–" and away[1:] != "0.0 %":
            return f": {away[1:]} {'below' if away[0] == '-' else 'above'} what is asked"
    return ""


def _how_to_get(view: RunView, gate: str, metric: str) -> str:
    """What is missing for a criterion on HOLD, and how to get it."""
    owner, _, name = metric.partition(".")
    if owner in ("gpu", "host"):
        return "the machine has to be sampled throughout the run: see the memory section"
    figures, step = of_metric(view, metric), view.step(owner)
    wanted = _targets(view, gate, metric)
    if number(figures.get("value")) is None or not figures.get("n"):
        reasons = ", ".join(voids(view.measurement(owner).benchmark))
        if step is not None and step.state is not StepState.SUCCEEDED:
            return f"step {plain(owner, 60)} is {step.state}; it has to succeed"
        if reasons:
            return f"remove what spoilt the runs ({plain(reasons, 200)}), then measure again"
        return f"see the output of step {plain(owner, 60)} for why there is none"
    least = max((int(number(target.get("min_samples")) or 1) for target in wanted), default=1)
    if (number(figures.get("n")) or 0) < least:
        if step is not None and step.kind == "soak":
            return f"a longer soak, or a shorter `every` in {plain(owner, 60)}"
        return f"raise `runs` of {plain(owner, 60)}, or remove {_spoilt(view, owner)}"
    relative = any("baseline" in f"{target.get('go')}{target.get('no_go')}" for target in wanted)
    base = of_metric(view, f"{owner}.baseline.{name}")
    if relative and number(base.get("value")) is None:
        return "the baseline has to be measured too: `against: baseline`, and it must serve"
    if relative and (number(base.get("n")) or 0) < least:
        return f"remove {_spoilt(view, f'{owner}.baseline')}, then measure the baseline again"
    return "more runs narrow it down, or a person decides with the figures below"


def _spoilt(view: RunView, scope: str) -> str:
    """`what spoils its runs (another engine was busy)`."""
    reasons = plain(", ".join(voids(view.measurement(scope).benchmark)), 200)
    return "what spoils its runs" + (f" ({reasons})" if reasons else "")


def not_shown(view: RunView) -> list[str]:
    """What a reader might assume but this run has not examined."""
    sentences = []
    ran = [s for s in view.steps if s.state is StepState.SUCCEEDED]
    soaks = [s for s in view.steps if s.kind == "soak" and view.measurement(s.id).soak]
    if not soaks:
        sentences.append("Stability over time was not tested: no soak ran.")
    elif not any(s in ran for s in soaks):
        name = plain(soaks[0].id, 60)
        sentences.append(f"Stability over its whole time was not shown: {name} ended early.")
    scopes = benches(view)
    if _tunings(view):
        sentences.append(
            "The answers with other flags were not compared with today's: a quantized cache, for "
            "one, changes them."
        )
    elif not scopes:
        beside = ": a soak's rates are of its own prompts" if soaks else ""
        sentences.append(f"Speed was not benchmarked{beside}.")
    for scope in scopes:
        rates = [group.get("tok_s", {}) for group in measured(view, scope)]
        if number(rates[1].get("value")) is None:
            sentences.append(
                f"The baseline was not measured beside {scope}: nothing is compared with it."
            )
        elif number(rates[2].get("value")) is None:
            sentences.append(
                f"The baseline was not measured again after {scope}: drift is unknown."
            )
        void = int(number(rates[0].get("void")) or 0)
        if void:
            sentences.append(f"{plural(void, 'run')} of {scope} had to be discarded.")
    for drift in drifts(view):
        if drift.large and not drift.moved:
            moved = change(drift.after, drift.before)
            sentences.append(f"The baseline itself moved by {moved} meanwhile: compare with care.")
    return sentences
