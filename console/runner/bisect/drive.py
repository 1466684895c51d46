"""Runs a playbook with one version after the other until the first bad one is known.

Each run stands in the record before it begins and again when its verdict is known, so a bisect that
was killed at any moment goes on with the run that was under way. A run lives on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from console.common.clock import Clock
from console.common.errors import ConsoleError, Exit, InvalidFile
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import view_of
from console.journal.run_view import RunView
from console.journal.state import Decision, Mark, RunState, StepState
from console.render.report.decision import baseline_words, because, decided, deciding
from console.render.report.markdown import figure
from console.runner.bisect.candidates import shown
from console.runner.bisect.record import Pending, Record, Try
from console.runner.bisect.search import Word, unproven

WORDS = {Decision.GO: Word.GOOD, Decision.NO_GO: Word.BAD}
POLL_S = 0.1
ENDED_BY_HAND = ("abort", "rollback")


class Stopped(ConsoleError):
    """The bisect goes no further for now; the same command goes on later."""

    def __init__(self, title: str, detail: str, hint: str, code: Exit) -> None:
        super().__init__(title, detail, hint)
        self.exit_code = code


class Driver:
    """`start` begins a run with a version and returns it; `follow` waits until it is over; `resume`
    goes on with a run whose runner died. `say` gets clean lines."""

    def __init__(
        self, record: Record, clock: Clock, *, start: Callable[[str], RunDir],
        follow: Callable[[RunDir], None], resume: Callable[[RunDir], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.record, self.clock = record, clock
        self._start, self._follow, self._resume, self._say = start, follow, resume, say
        self._again: set[int] = set()
        """Versions that are tried once more because something else failed before they began."""

    def go(self, *, verify: bool) -> None:
        """Try versions until the first bad one is known, or nothing more can be tried.

        Raises Stopped, or what kept a run from starting.
        """
        record = self.record
        # what could not even begin cost nothing, and may have been mended
        record.tries = [trial for trial in record.tries if trial.run]
        if record.pending is not None:
            self._go_on(record.pending)
        while record.contradiction is None:
            ends = unproven(len(record.query.candidates), record.words) if verify else []
            at = ends[0] if ends else record.standing.following
            if at is None:
                return
            self._try(at)

    def _go_on(self, pending: Pending) -> None:
        """The run that was under way when an earlier call ended: its verdict counts."""
        run = self._named(pending) if pending.run else self._unnamed(pending)
        if run is None:
            self._settle(None)
            return
        self._say(f"run {run.id} tried {self._shown(pending.at)} when this bisect ended before")
        self._finish(replace(pending, run=run.id), run)

    def _named(self, pending: Pending) -> RunDir | None:
        return next((run for run in all_runs() if run.id == pending.run), None)

    def _unnamed(self, pending: Pending) -> RunDir | None:
        """A run that had just been started: it begins, or it vanishes without its launcher."""
        query = self.record.query
        inputs = {**query.inputs, query.over: query.candidates[pending.at]}
        for run in all_runs():
            if not run.readable:
                continue
            meta = run.meta()
            if meta.created < pending.since:
                return None  # newest first
            if (meta.digest, meta.inputs) != (query.digest, inputs):
                continue
            while run.readable and runner_alive(run) and not _begun(run):
                self.clock.sleep(POLL_S)
            return run if run.readable and _begun(run) else None
        return None

    def _try(self, at: int) -> None:
        record = self.record
        here = record.standing
        between = f"good {self._shown(here.good)}, bad {self._shown(here.bad)}"
        left = f"at most {here.max_runs} more" if here.max_runs else "none left to try"
        self._say(f"\n== {self._shown(at)} ({between}; {left})")
        pending = Pending(at, self.clock.now())
        self._settle(pending)
        try:
            run = self._start(record.query.candidates[at])
        except InvalidFile as error:
            why = one_line(f"no run can begin: {error}", 400)
            self._keep(Try(at, Word.SKIP, why))
            return
        except BaseException:
            self._settle(None)
            raise
        pending = replace(pending, run=run.id)
        self._settle(pending)
        self._finish(pending, run)

    def _finish(self, pending: Pending, run: RunDir) -> None:
        """Wait for the run's end and keep its verdict. Raises Stopped."""
        self._follow(run)
        view, word = view_of(run)
        if not view.over and not runner_alive(run):
            self._say(f"the runner of {run.id} is gone: resuming it")
            self._resume(run)
            self._follow(run)
            view, word = view_of(run)
        if not view.over:
            raise Stopped(
                f"run {run.id} is {word}", "its verdict is not known",
                f"omni-console resume {run.id[-4:]}, or omni-console rollback; "
                "then the same command",
                Exit.HOLD,
            )  # fmt: skip
        self._refuse_to_go_on(pending, run, view)
        trial = judged(pending.at, run, view)
        if trial.word is Word.SKIP and _failed_before(view) and pending.at not in self._again:
            self._again.add(pending.at)
            name = self._shown(pending.at)
            self._say(f"== the run failed before {name} began, so it is repeated once: {trial.why}")
            self._settle(None)
            return
        self._keep(trial)

    def _refuse_to_go_on(self, pending: Pending, run: RunDir, view: RunView) -> None:
        """Raise Stopped if no further run may follow this one; a verdict that it has is kept."""
        down = view.state is RunState.ROLLBACK_FAILED or view.outage
        if down or view.cutover:
            self._keep(judged(pending.at, run, view))
            what = "the baseline does not serve" if down else "clients are at the candidate"
            raise Stopped(
                f"the bisect stops: {what} after run {run.id}", clean(view.detail, 400),
                "omni-console rollback; once the baseline serves, the same command goes on",
                Exit.ROLLBACK_FAILED if down else Exit.FAILED,
            )  # fmt: skip
        verbs = [verb for verb in view.verbs if verb.verb in ENDED_BY_HAND]
        if verbs and not view.decision:
            self._settle(None)
            who = clean(verbs[-1].who, 60)
            raise Stopped(
                f"the bisect stops: run {run.id} was ended by {who}",
                f"{self._shown(pending.at)} is as unknown as before",
                "the same command tries it again", Exit.FAILED,
            )  # fmt: skip

    def _keep(self, trial: Try) -> None:
        self.record.tries.append(trial)
        self._settle(None)
        took = f" ({format_duration(trial.took_s)})" if trial.took_s is not None else ""
        word = "skipped" if trial.word is Word.SKIP else trial.word
        self._say(f"== {self._shown(trial.at)} is {word}{took}: {trial.why}")

    def _settle(self, pending: Pending | None) -> None:
        """Make what is known durable, with the run that is under way, if one is."""
        self.record.pending = pending
        self.record.save()

    def _shown(self, at: int) -> str:
        query = self.record.query
        return shown(query.candidates[at], git=bool(query.repo))


def _failed_before(view: RunView) -> bool:
    """Whether a run failed at a row about the baseline: that says nothing of any version."""
    failed = (step for step in view.steps if step.state is StepState.FAILED)
    return any(step.id.startswith("baseline:") for step in failed)


def judged(at: int, run: RunDir, view: RunView) -> Try:
    """What a finished run says of its version: GO is good, NO-GO is bad, the rest is skipped."""
    word = WORDS.get(view.decision, Word.SKIP)
    if word is Word.GOOD and view.state is not RunState.SUCCEEDED:
        word = Word.SKIP
    lead = f"{view.decision.word or view.state}: " if word is Word.SKIP else ""
    if view.doubts:
        moved = any(doubt.moved for doubt in view.doubts)
        why = "the baseline moved meanwhile" if moved else Mark.DOUBTFUL.lower()
        word, lead = Word.SKIP, f"{why}: "
    if view.overridden:  # a person's word is no measurement
        word, lead = Word.SKIP, f"{Mark.OVERRIDDEN.lower()} by a person: "
    verdict = decided(view)
    rows = deciding(verdict) if verdict is not None else []
    gates = {step.id for step in view.steps if step.kind == "gate"}
    if word is Word.BAD and (verdict is None or verdict.step not in gates):
        word, lead = Word.SKIP, "no gate decided: "  # a port that is taken says nothing of a build
    criteria = [
        row
        for gate_verdict in view.verdicts
        if gate_verdict.step in gates
        for row in gate_verdict.criteria
    ]
    figures = {clean(row.get("metric", ""), 80): _figure(view, row) for row in criteria}
    return Try(
        at, word, clean(lead + because(view), 600), run.id,
        clean(rows[0].get("metric", ""), 80) if rows else "", figures,
        view.ended - view.created if view.ended else None, clean(baseline_words(view), 300),
    )  # fmt: skip


def _figure(view: RunView, row: dict[str, str]) -> str:
    """A criterion's figure; its words where it has none of its own."""
    scope, _, name = row.get("metric", "").partition(".")
    metric = view.metrics.get(scope, {}).get(name, {})
    value = metric.get("value") if isinstance(metric, dict) else None
    if value is None:
        return clean(row.get("why", ""), 200)
    return figure(value, str(metric.get("unit", "")))


def _begun(run: RunDir) -> bool:
    """Whether a run has gone beyond its preparations."""
    try:
        return view_of(run)[0].state is not RunState.PENDING
    except ConsoleError:
        return False
