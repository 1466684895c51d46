"""`omni-console rollback`: find the sealed plan that counts, then climb, from any shell.

A rollback in the foreground goes on when its terminal goes away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.recovery.rollback import trigger as wake
from console.recovery.rollback.finder import Finder, SelectedPlan, name_of
from console.recovery.rollback.progress import (
    PROGRESS_FILE,
    Emit,
    Follower,
    Result,
    Trigger,
    asked,
    new_trigger,
    quiet_limit,
    size_of,
)
from console.recovery.rollback.sealed_plan import SealedPlan
from console.recovery.rollback.trigger import is_held

AGAIN = b"\nthe rollback goes on; Ctrl-C again leaves it unfinished\n"


@contextlib.contextmanager
def ignore_hangup() -> Iterator[None]:
    """Hang-up and Ctrl-Z do nothing, the first Ctrl-C says so, the second one raises.

    Handlers and not SIG_IGN: what the ladder starts gets the usual behaviour back. Only the main
    thread may set them; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def interrupt(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        # Not print: this may have come in the middle of one.
        with contextlib.suppress(OSError):
            os.write(2, AGAIN)

    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, _nothing),
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, _nothing),
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _nothing(number: int, _: object) -> None:
    pass


STANDBY_WORD_S = 0.5
"""A warm ladder that says nothing for this long is not waited for."""
POLL_S = 0.005
MOST_ROLLBACKS = 3
"""How often a run that began during the climb is rolled back, too."""
LOOK_S = 0.25
"""How often it is looked whether the ladder that is followed still lives."""


def rollback(
    site_seal: Callable[[], SealedPlan] | None,
    explicit_site: bool,
    emit: Emit | None,
    *,
    clock: Clock | None = None,
    seal_at: Callable[[str], SealedPlan] | None = None,
    run_dir: str = "",
    site: str = "",
) -> Result:
    """Restore the baseline, now. Exit code 0 or 7 by `Result.exit_code`; every line to `emit`.

    `site_seal` makes a plan from the site file where no run has a fitting one, `seal_at` from the
    site file of a run whose plan is lost or whose end left the baseline down. `run_dir` is the run
    to roll back where another one or none is pointed at, `site` the file that is asked for: a run
    that is on at another site is rolled back first, and 0 is for both. Raises ConsoleError when
    that fails, KeyboardInterrupt when Ctrl-C is pressed twice; nothing else.
    """
    clock = clock or SystemClock()
    trigger = new_trigger(clock, True, "command")

    def note(detail: str) -> None:
        _say(emit, clock, trigger, "note", detail)

    who = _asker()
    if os.getuid() == 0:
        # before root is dropped: the interpreter's own files may be readable by root alone
        from console.recovery.rollback.procedure import load

        load()
    finder = Finder(site_seal, explicit_site, note, seal_at, run_dir, site)
    failed: Result | None = None
    with ignore_hangup():
        for _ in range(MOST_ROLLBACKS):
            selected = finder.find()
            if selected is None:
                result = Result(False, nothing_to_do=True, detail="nothing to do: no run, no site")
                _say(emit, clock, trigger, "ok", result.detail, **result.fields())
            else:
                note(f"plan: {selected.source}, {selected.plan.run_id or selected.plan.site_name}")
                asked(selected.plan.rollback_dir, who, clock.now())
                result = _run(selected, emit, clock, trigger)
            if selected is not None and selected.first:
                words = f"site {selected.plan.site_name}: {result.detail}"
                failed = None if result.serving else replace(result, detail=words)
                continue
            if not finder.has_begun(selected):
                break
            note("a run has begun meanwhile")
    return failed if failed is not None and result.serving else result


def _run(selected: SelectedPlan, emit: Emit | None, clock: Clock, trigger: Trigger) -> Result:
    followed = None if selected.anew else _through_standby(selected.plan, emit, clock)
    if followed is not None:
        return followed
    # Only now: a warm ladder has all of this loaded, and waking it should not wait for it.
    from console.recovery.rollback.procedure import Procedure

    return Procedure(selected.plan, clock=clock, trigger=trigger, emit=emit).run()


def _say(
    emit: Emit | None, clock: Clock, trigger: Trigger, state: str, detail: str, **fields: object
) -> None:
    if emit is None:
        return
    with contextlib.suppress(Exception):  # a terminal that is gone stops nothing
        emit({
            "trigger": trigger.id,
            "rung": "done" if fields else "plan",
            "state": state,
            "at": round(clock.now(), 3),
            "t": round(clock.monotonic() - trigger.begun, 4),
            "detail": detail,
            **fields,
        })  # fmt: skip


def _through_standby(plan: SealedPlan, emit: Emit | None, clock: Clock) -> Result | None:
    """Wake the warm ladder and follow it; None when there is none, or it does not answer."""
    directory = plan.rollback_dir
    if not plan.run_dir or not wake.is_standing_by(directory):
        return None
    follower = Follower(directory / PROGRESS_FILE, size_of(directory / PROGRESS_FILE), emit)
    if not wake.trigger(directory):
        return None
    looked = heard = clock.monotonic()
    seen = 0
    while True:
        result = follower.poll()
        if result is not None:
            return result
        now = clock.monotonic()
        if follower.seen != seen:
            seen, heard = follower.seen, now
        if now - heard >= (quiet_limit(plan) if seen else STANDBY_WORD_S):
            return None
        if seen and now - looked >= LOOK_S:
            looked = now
            # gone, or through without its last line, which a full disk did not take
            if not wake.is_standing_by(directory, running=True) or not is_held(directory):
                return follower.poll()
        clock.sleep(POLL_S)


def _asker() -> str:
    """Who is at this shell, sudo looked through; before root is dropped."""
    sudo = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    name = name_of(os.getuid())
    return one_line(f"{sudo} (as {name})" if sudo else name, 80)
