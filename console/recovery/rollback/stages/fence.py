"""Stage fence ends the runner and its steps, so that nothing new starts during a rollback."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from console.common.errors import ServiceError
from console.common.text import one_line
from console.host import licence, memory, process
from console.host.licence import Reason, Refused
from console.host.memory import kill_wait_s
from console.host.privileges import name_of
from console.recovery.rollback import records
from console.recovery.rollback.context import RollbackContext, run_all

TERM_S = 3.0
"""Seconds between SIGTERM and SIGKILL for steps; they need no time to finish their work."""
RUNNER_S = 3.0
"""Seconds that a killed runner may take to disappear."""
Find = Callable[[], list[tuple[int, int]]]
"""Finds processes: (pid, start time) of each."""


def fence(context: RollbackContext) -> None:
    """Kill the runner, then end the groups of steps and everything else with the run's cookie."""
    report = context.report
    report.begin("fence")
    runners = _kill_runners(context)
    ended = stray_steps(context)
    words = [f"runner {'killed' if runners else 'was not running'}"]
    words += _of_others(context)
    if ended:
        words.append(f"{ended} step process{'es' if ended > 1 else ''} ended")
    if any(stage == "fence" for stage, _ in context.failures):
        report.note("fence", ", ".join(words))
    else:
        report.ok("fence", ", ".join(words))


def _of_others(context: RollbackContext) -> list[str]:
    """That other users' runs on this site go on, which may stop the baseline again, in words."""
    return [
        f"run {one_line(pointer.run_id, 60)} of {name_of(pointer.uid)} goes on, and may stop the "
        "baseline again"
        for pointer in records.find_all()
        if pointer.uid != os.getuid()
        and pointer.site == context.plan.site_name
        and process.alive(pointer.pid, pointer.start)
    ]


def _kill_runners(context: RollbackContext) -> int:
    """Kill every recorded runner but this very process; return how many were killed."""
    killed = list[tuple[int, int]]()
    for pid, start in _recorded(context):
        try:
            if not licence.send(context.licence(Reason.RUNNER), pid, start, signal.SIGKILL):
                continue
        except PermissionError:
            context.fail("fence", f"not permitted to kill the runner, pid {pid}")
            continue
        except Refused as error:
            context.fail("fence", str(error))
            continue
        killed.append((pid, start))
        if not _await_gone(context, pid, start, RUNNER_S):
            context.fail("fence", f"the runner, pid {pid}, outlived SIGKILL")
    context.count_ended(killed)
    return len(killed)


def _recorded(context: RollbackContext) -> list[tuple[int, int]]:
    """(pid, start time) of the runners in live.jsonl and of the one that the pointer names, since
    live.jsonl may be lost. This process itself is left out."""
    runners = {(entry.pid, entry.start): None for entry in context.live if entry.kind == "runner"}
    pointer = records.read(os.getuid())
    if pointer is not None and pointer.run_id and pointer.run_id == context.plan.run_id:
        runners[pointer.pid, pointer.start] = None
    return [runner for runner in runners if runner[0] != os.getpid()]


def _await_gone(context: RollbackContext, pid: int, start: int, limit_s: float) -> bool:
    deadline = context.clock.monotonic() + limit_s
    while process.alive(pid, start):
        if context.clock.monotonic() >= deadline:
            return False
        context.clock.sleep(0.005)
    return True


def stray_steps(context: RollbackContext) -> int:
    """End the groups of steps in live.jsonl, then strays, which the run's cookie identifies.
    Return how many were alive."""
    spared = context.spared()
    entries = context.live
    steps = [
        (e.pid, e.start)
        for e in entries
        if e.kind == "step" and e.pid and e.pid not in spared and context.members(e.pid, e.start)
    ]
    limit_s = TERM_S + kill_wait_s(memory.resident(pid for pid, _ in steps)) + 5
    run_all([_group_task(context, step) for step in steps], limit_s)
    for e in entries:
        if e.kind == "step" and e.group:
            licence.end_cgroup(context.licence(Reason.STEP), e.group, e.pid, e.start, spared)
    # Candidate processes have the cookie too, but the stop stage ends them with a grace period.
    candidates = {
        s.pid
        for e in entries
        if e.kind == "process" and e.pid
        for s in context.members(e.pid, e.start)
    }
    ended = [*steps, *_end_all(lambda: _strays(context, spared | candidates), context, TERM_S)]
    context.count_ended(ended)
    return len(ended)


def end_contained(context: RollbackContext) -> tuple[int, set[str]]:
    """End the run's processes inside containers because the engine does not. Return how many were
    alive, and the ids of these containers. Only root can see them."""
    spared, inside = context.spared(), dict[tuple[int, int], str]()

    def find() -> list[tuple[int, int]]:
        strays = _strays(context, spared, inside=True)
        inside.update(
            (stray, memory.container_of(stray[0])) for stray in strays if stray not in inside
        )
        return strays

    victims = _end_all(find, context, context.grace_s)
    return len(victims), {inside[victim] for victim in victims}


def _group_task(context: RollbackContext, step: tuple[int, int]) -> Callable[[], None]:
    def task() -> None:
        try:
            context.stop_group(context.licence(Reason.STEP), *step, TERM_S)
        except ServiceError as error:
            context.fail("fence", str(error))

    return task


def _strays(
    context: RollbackContext, spared: set[int], inside: bool = False
) -> list[tuple[int, int]]:
    return [stray for stray in marked(context.plan.run_id, inside=inside) if stray[0] not in spared]


def marked(run: str, *, inside: bool = False) -> list[tuple[int, int]]:
    """(pid, start time) of processes with the run's cookie, outside containers or `inside` them.

    The fence leaves those inside to the stop stage, which gives them a grace period: a container is
    recorded before it starts, so none is missed.
    """
    mine = memory.container_of(os.getpid())
    carriers = process.by_cookie(run) if run else []
    return [carrier for carrier in carriers if (memory.container_of(carrier[0]) != mine) is inside]


def _end_all(find: Find, context: RollbackContext, grace_s: float) -> list[tuple[int, int]]:
    """Send SIGTERM, then SIGKILL to what `find` returns. Return what it found at first."""
    strays = find()
    kill_s = kill_wait_s(memory.resident(pid for pid, _ in strays))
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_s)):
        if not _signal(find, context, number, limit_s):
            break
    return strays


def _signal(find: Find, context: RollbackContext, number: int, limit_s: float) -> bool:
    """Signal what `find` returns until it returns nothing. Return whether `limit_s` ended first."""
    deadline = context.clock.monotonic() + limit_s
    signalled: set[tuple[int, int]] = set()
    why = context.licence(Reason.COOKIE)
    denied: set[tuple[int, int]] = set()
    while left := [target for target in find() if target not in denied]:
        for stray in left:
            if stray in signalled and number != signal.SIGKILL:
                continue
            signalled.add(stray)
            try:
                licence.send(why, *stray, number)
            except PermissionError:
                context.fail("fence", f"not permitted to end pid {stray[0]}")
                denied.add(stray)
            except Refused as error:
                context.report.note("fence", str(error))
                denied.add(stray)
        if context.clock.monotonic() >= deadline:
            if number == signal.SIGKILL:
                context.fail("fence", f"pid {left[0][0]} outlived SIGKILL")
            return True
        context.clock.sleep(0.01)
    return False
