"""`download`: fetch a checkpoint; one judged NO-GO only with a typed override."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from console.checks.preflight.readings import contents_of, listing_of
from console.common.clock import Clock, SystemClock
from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import both_units, format_duration
from console.config.playbook.preflight_steps import CheckpointStep, DownloadStep
from console.host.children import Cancelled
from console.host.process import COOKIE, STEP_COOKIE, start_time
from console.journal.state import Cause
from console.models.hub import local_files
from console.models.hub.checkpoint import Contents
from console.models.hub.download import Download, Phase, Plan, Progress, Result
from console.models.hub.progress import rate
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.person import wait
from console.runner.executors.preflight import waited
from console.runner.prepare.plan import PlannedStep
from console.runtime.spec import Handle

TRIES = 5
EVERY_S = 1.0
LONGEST_PAUSE_S = 60.0

ANYWAY = "download anyway"
ANSWER_S = 1800.0


def fetch(
    download: Download,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    cancelled: threading.Event | None = None,
    clock: Clock | None = None,
    every_s: float = EVERY_S,
    tries: int = TRIES,
) -> Result:
    """Bring every file of the plan, or say why not; runs in its own thread and calls `on_progress`
    every `every_s` seconds.

    A broken connection is retried after a pause that doubles; `tries` failures in a row without new
    bytes end the download, and so do permanent errors and `cancelled`. Raises what `Download.start`
    raises.
    """
    clock, cancelled = clock or SystemClock(), cancelled or threading.Event()
    in_vain, fetched = 0, 0
    while True:
        download.start()
        while download.running:
            on_progress(download.look())
            if clock.wait(cancelled, every_s):
                download.stop()
        result = download.finish(cancelled)
        on_progress(download.look())
        if result.phase is not Phase.CUT:
            return result
        in_vain = 1 if result.fetched > fetched else in_vain + 1
        fetched = max(fetched, result.fetched)
        if in_vain >= tries:
            return replace(result, phase=Phase.FAILED)
        if clock.wait(cancelled, min(LONGEST_PAUSE_S, 2.0**in_vain)):
            return replace(result, phase=Phase.CANCELLED)


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Fetch every file, verify the sizes. Raises StepFailed with what is missing or wrong."""
    step = planned.section(DownloadStep)
    overridden = _allowed(context, attempt, step)
    contents = waited(attempt, lambda: _contents(context, step))
    target = context.path(step.to)
    download = Download(
        Plan(contents, target, step.workers, step.verify_up_to),
        clock=context.clock,
        env={COOKIE: context.run.id, STEP_COOKIE: attempt.step},
        # named where a rollback looks, before it has done much
        born=lambda pid: context.alive(
            Handle(attempt.step, "process", pid=pid, start=start_time(pid) or 0), kind="step"
        ),
    )
    local_files.note_taken(target, contents.listing.repo, contents.files, context.run.id)
    attempt.say(f"{len(contents.files)} files, {both_units(contents.size)}", always=True)
    try:
        result = fetch(
            download, on_progress=lambda at: _report_progress(attempt, at),
            cancelled=attempt.cancelled, clock=context.clock,
        )  # fmt: skip
    except BaseException:
        download.stop()
        raise
    return _concluded(attempt, result, str(target), overridden)


def _allowed(context: Context, attempt: Attempt, step: DownloadStep) -> str:
    """Refuse what the checkpoint step judged NO-GO, unless the operator types an override."""
    stands = next((v for v in reversed(context.view.verdicts) if v.step == step.of), None)
    if not step.of or (stands is not None and stands.verdict == "GO"):
        return ""
    if stands is None:
        raise StepFailed(Cause.PRECONDITION, f"step {step.of} has given no verdict yet")
    why = "; ".join(row["why"] for row in stands.criteria)
    words = f"{step.of} says {stands.verdict}: {one_line(why, 200)}"
    if context.meta.headless or context.meta.yes:
        raise StepFailed(Cause.PRECONDITION, f"{words}; nobody is attached to type an override")
    prompt = f"{words}. Type '{ANYWAY}' to download it anyway, or reject"
    done = wait(context, attempt, prompt, ANSWER_S, ANYWAY)
    return f"override of {step.of}'s {stands.verdict}, {done.detail}; "


def _contents(context: Context, step: DownloadStep) -> Contents:
    repo, include, exclude = step.repo, step.include, step.exclude
    if step.of:
        of = context.plan.at(step.of).section(CheckpointStep)
        repo, include, exclude = of.repo, of.include, of.exclude
    listing = listing_of(repo)
    listing.require_access()
    contents = contents_of(listing, include, exclude)
    contents.choose()  # nothing to fetch, or several checkpoints at once: said before it begins
    return contents


def _report_progress(attempt: Attempt, at: Progress) -> None:
    attempt.remaining()
    progress = Figures(at.bytes_done, at.bytes_total or None, "B")
    attempt.say(progress_words(at), progress)


def progress_words(at: Progress) -> str:
    """`12.4 of 642.0 GiB, 1 of 163 files, 58.1 MB/s, 3 h 01 min left`."""
    parts = [f"{both_units(at.bytes_done)} of {both_units(at.bytes_total)}"]
    if at.bytes_total:
        parts.insert(0, f"{100 * at.bytes_done // at.bytes_total} %")
    parts.append(f"{at.files_done} of {at.files_total} files")
    if at.phase is not Phase.FETCHING:
        parts.append(str(at.phase))
    elif at.rate_bps:
        parts.append(rate(at.rate_bps))
    if at.eta_s is not None and at.phase is Phase.FETCHING:
        parts.append(f"{format_duration(at.eta_s)} left")
    return ", ".join(parts)


def _concluded(attempt: Attempt, result: Result, target: str, overridden: str) -> Done:
    attempt.sink("".join(f"{line}\n" for line in result.output).encode())
    if attempt.cancelled.is_set():
        raise Cancelled(attempt.step)
    if result.error is not None:
        cause = Cause.OUTPUT_INVALID if result.wrong else Cause.EXIT_CODE
        lines = [*result.output, result.error.hint]
        raise StepFailed(cause, one_line(str(result.error), 400), lines=[x for x in lines if x])
    speed = f" at {rate(result.rate_bps)}" if result.rate_bps else ""
    cuts = f", {result.cuts} cuts" if result.cuts else ""
    return Done(
        f"{overridden}{both_units(result.fetched)} fetched{speed}{cuts}, sizes verified, "
        f"in {one_line(target)}"
    )
