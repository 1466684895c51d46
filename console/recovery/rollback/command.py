"""`omni-console rollback` selects the sealed plan and rolls back, from any shell.

A rollback in the foreground survives the loss of its terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.host.privileges import requester
from console.recovery.rollback.finder import Finder, SelectedPlan
from console.recovery.rollback.progress import (
    NOTHING,
    POLL_S,
    PROGRESS_FILE,
    Emit,
    Follower,
    Result,
    Trigger,
    new_trigger,
    quiet_limit,
    record_request,
    size_of,
    through_standby,
)
from console.recovery.rollback.sealed_plan import SealedPlan

AGAIN = "\nthe rollback goes on; {} again leaves it unfinished\n"
ENDINGS = {signal.SIGINT: "Ctrl-C", signal.SIGQUIT: "Ctrl-\\", signal.SIGTERM: "SIGTERM"}


@contextlib.contextmanager
def ignore_hangup(*endings: signal.Signals) -> Iterator[list[int]]:
    """Ignore hang-up, Ctrl-Z and the first of the `endings`, by default all of ENDINGS. The second
    one raises KeyboardInterrupt.

    The first one prints a warning and is added to the list. The signals get handlers instead of
    SIG_IGN, so that processes which a rollback starts have the default behaviour. Only the main
    thread may set handlers; in other threads nothing changes.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def interrupt(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        # os.write instead of print: the signal may have interrupted a print.
        with contextlib.suppress(OSError):
            os.write(2, AGAIN.format(ENDINGS[signal.Signals(number)]).encode())

    previous = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, _ignore),
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, _ignore),
        **{number: signal.signal(number, interrupt) for number in endings or ENDINGS},
    }
    try:
        yield pressed
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _ignore(number: int, _: object) -> None:
    pass


STANDBY_WORD_S = 0.5
"""Seconds without a first line after which the standby is no longer waited for."""
FIRST_LINE_S = 60.0
"""Seconds in which the sealed copy has to print a line; an interpreter may take that long to start
on a machine that thrashes."""
MAX_ROLLBACKS = 3
"""How many rollbacks one call makes at most; a run that begins during one is rolled back, too."""


def rollback(
    site_seal: Callable[[], SealedPlan] | None,
    explicit_site: bool,
    emit: Emit | None,
    *,
    clock: Clock | None = None,
    seal_at: Callable[[str], SealedPlan] | None = None,
    run_dir: str = "",
    site: str = "",
    left_down: Callable[[str], bool] | None = None,
    automatic: bool = False,
) -> Result:
    """Restore the baseline, now; `emit` gets each line. `Result.exit_code`: 0, 7, or 2 for nothing.

    `site_seal` makes a plan from the site file if no run has a fitting one; `seal_at` makes one
    from the site file of a run that has lost its plan or left the baseline down. `run_dir` names
    the run to roll back if the pointer names another or none. `site` is the site file that was
    asked for: a run in its outage at another site is rolled back first, and exit code 0 then covers
    both; `left_down` tells such a run from one that goes on. `automatic`: nobody asked for this
    rollback, and it ends no live run of another site. Raises only ConsoleError (no plan can be
    made, or nothing may be done) and KeyboardInterrupt (a second Ctrl-C).
    """
    clock = clock or SystemClock()
    trigger = new_trigger(clock, True, "command")

    def note(detail: str) -> None:
        _emit_line(emit, clock, trigger, "note", detail)

    who = requester()
    if os.getuid() == 0:  # before root becomes a user who may not read the interpreter's files
        from console.recovery.rollback.procedure import load
        from console.recovery.rollback.shell import sealed_copy  # noqa: F401

        load()
    finder = Finder(site_seal, explicit_site, note, seal_at, run_dir, site, left_down, automatic)
    failed: Result | None = None
    with ignore_hangup():
        for _ in range(MAX_ROLLBACKS):
            selected = finder.find()
            if selected is None:
                result = Result(False, nothing_to_do=True, detail=_nothing_to_do())
                _emit_line(emit, clock, trigger, "ok", result.detail, **result.fields())
            else:
                note(f"plan: {selected.source}, {selected.plan.run_id or selected.plan.site_name}")
                record_request(selected.plan.rollback_dir, who, clock.now())
                result = _run(selected, emit, clock, trigger)
            if selected is not None and selected.first:
                detail = f"site {selected.plan.site_name}: {result.detail}"
                failed = None if result.serving else replace(result, detail=detail)
                continue
            if not finder.has_begun(selected):
                break
            note("a run has begun meanwhile")
    return _combined_result(finder, failed, result)


def _nothing_to_do() -> str:
    """Say that nothing was done, and which places were searched: the user behind sudo may keep
    files in places that only that user's own environment names."""
    who = one_line(os.environ.get("SUDO_USER", ""), 40)
    more = f", nor one in the home of {who}" if who else ""
    return (
        f"{NOTHING}: there is no run here, and no site file {paths.default_site()} or "
        f"{paths.SYSTEM_SITE}{more}; name the site: omni-console rollback --site FILE"
    )


def _combined_result(finder: Finder, failed: Result | None, result: Result) -> Result:
    """Return the last result; or the failure of the site that was rolled back first; or a failure
    for other users' runs that were not rolled back, if there was nothing else to do. If a baseline
    serves, those runs are only named: anybody can forge an interrupted run that nothing ends."""
    others = finder.others
    if failed is None and others.failed and (others.count or result.nothing_to_do):
        words = f"not rolled back: {', '.join(others.failed)}"
        if result.serving and not others.count:
            return replace(result, detail=f"{result.detail}; {words}")
        failed = replace(result, serving=False, nothing_to_do=False, detail=words)
    return failed if failed and (result.serving or result.nothing_to_do) else result


def _run(selected: SelectedPlan, emit: Emit | None, clock: Clock, trigger: Trigger) -> Result:
    plan = selected.plan
    if plan.run_dir and not selected.anew:
        followed = through_standby(
            plan.rollback_dir, emit, clock,
            first_line_s=STANDBY_WORD_S, quiet_s=lambda: quiet_limit(plan),
        )  # fmt: skip
        if followed is None and _has_copy_of_another_version(plan):
            followed = _through_copy(plan, emit, clock)
        if followed is not None:
            return followed
    # Imported only here: to trigger the standby, which has it loaded already, must not take longer.
    from console.recovery.rollback.procedure import Procedure

    return Procedure(plan, clock=clock, trigger=trigger, emit=emit).run()


def _has_copy_of_another_version(plan: SealedPlan) -> bool:
    # imported only here, for its hash functions: a standby that answers needs none of this
    from console.recovery.rollback.shell import sealed_copy

    return sealed_copy.is_of_another_version(plan.copy)


def _through_copy(plan: SealedPlan, emit: Emit | None, clock: Clock) -> Result | None:
    """Roll back by the code that began the run, which an upgrade has replaced since; `emit` gets
    each line. Return None where the copy ends without a result, or is silent for too long: the
    caller then rolls back."""
    path = plan.rollback_dir / PROGRESS_FILE
    follower = Follower(path, size_of(path), emit)
    try:
        child = subprocess.Popen(
            paths.sealed_argv(plan.copy, plan.run_dir), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None
    lines, last = 0, clock.monotonic()
    try:
        while follower.poll() is None and child.poll() is None:
            if follower.seen > lines:
                lines, last = follower.seen, clock.monotonic()
            if clock.monotonic() - last > (quiet_limit(plan) if lines else FIRST_LINE_S):
                break
            clock.sleep(POLL_S)
        return follower.poll()
    finally:
        if follower.result is None:  # stuck, or left unfinished, as a second signal asks
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(FIRST_LINE_S)
        elif child.poll() is None:
            child.returncode = 0  # its result is there: nothing waits for what it tidies up


def _emit_line(
    emit: Emit | None, clock: Clock, trigger: Trigger, state: str, detail: str, **fields: object
) -> None:
    if emit is None:
        return
    with contextlib.suppress(Exception):  # a closed terminal must not stop the rollback
        emit({
            "trigger": trigger.id,
            "rung": "done" if fields else "plan",
            "state": state,
            "at": round(clock.now(), 3),
            "t": round(clock.monotonic() - trigger.begun, 4),
            "detail": detail,
            **fields,
        })  # fmt: skip
