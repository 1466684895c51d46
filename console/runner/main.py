"""The runner process: lock, journal, seal, standby, pointer; then the steps; then the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from console.common import crash
from console.common.clock import SystemClock
from console.common.errors import BaselineNotReady, ConsoleError, Exit, HostBusy, UsageError
from console.common.paths import module_argv
from console.common.text import one_line
from console.config.site.site import load_site
from console.host.ports import listener
from console.host.privileges import operator, take_orphans
from console.journal import events
from console.journal.fold import fold
from console.journal.history import usual
from console.journal.lock import HostLock
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.journal.store import Journal, read_events
from console.recovery.rollback import live, standby
from console.recovery.rollback import records as pointer
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import BY, Witness
from console.recovery.rollback.procedure import Procedure
from console.rehearsal.rewrite import of_run
from console.runner import cutover as switch
from console.runner.attempt import input_error
from console.runner.claim import (
    announce,
    host_lock,
    leave,
    refuse_after_rollback,
    this_process,
    withdraw,
)
from console.runner.context import Context
from console.runner.control import Control, Server, Verb
from console.runner.fault import point
from console.runner.guard import limits
from console.runner.guard.client import Guard
from console.runner.guard.limits import misfits
from console.runner.guard.process import dismiss
from console.runner.loop import Runner
from console.runner.peaks import Peaks
from console.runner.prepare import baseline
from console.runner.prepare.plan import make_plan, own_playbook
from console.runner.prepare.seal import created, seal
from console.runner.recover import (
    adopt_services,
    close_after_rollback,
    end_unrecorded,
    is_unguarded,
    refuse_resume,
    settle_intents,
)
from console.runner.services import RunServices
from console.runtime.discovery.adoption import advice

WARM_READY_S = 10.0
FENCED_S = 5.0
"""Seconds that a triggered standby may take to end its runner."""
UNGUARDED = "no sentinel guards the load: the baseline is brought back now"


def main(run: RunDir, *, ready_fd: int, resume: bool, close: bool, from_step: str) -> int:
    """Entry of `omni-console runner RUN`: write one JSON line to `ready_fd`, then run."""
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    take_orphans()
    word = _Word(run, ready_fd)
    lock: HostLock | None = None
    context: Context | None = None
    announced, replaced = False, None
    try:
        lock = host_lock(patient=close)
        if resume:
            refuse_resume(run)
        if not close:
            announced, replaced = True, pointer.read(os.getuid())
            announce(run)
        context = _context(run, closing=close)
        if not (resume or close):
            model = context.plan.site.model
            refuse_after_rollback(run, model.name, model.baseline.url)
        server = _begin(context, resume=resume, close=close, from_step=from_step)
    except Exception as error:  # whatever it was: what is up is not left without a guard
        if not resume and not close:
            withdraw(run)
        at_stake = resume and announced and not isinstance(error, HostBusy)
        mine = lock if at_stake and is_unguarded(run) else None
        if resume and announced and mine is None and replaced and replaced.run_id != run.id:
            pointer.put_back([replaced])
        try:
            return int(word.refuse(error, UNGUARDED if mine else ""))
        finally:
            if mine is not None:
                _emergency(run, mine, context)
    if not word.say({"ok": True}) and not resume and not close:
        # whoever asked for this run went away before it began: it never was
        _end(context, server)
        withdraw(run)
        shutil.rmtree(run.path, ignore_errors=True)
        return int(Exit.INTERRUPTED)
    return _walk(context, server, lock, resumed=resume, closing=close)


def _walk(context: Context, server: Server, lock: HostLock, *, resumed: bool, closing: bool) -> int:
    """Go from the first step to the end of the process; return the exit code."""
    code = Exit.OK
    try:
        if not closing:
            # in a thread: the main one may hold the very lock that stopping the run takes
            end = partial(threading.Thread, target=_on_sigterm, args=(context,), daemon=True)
            signal.signal(signal.SIGTERM, lambda *_: end().start())
            _watch_machine(context, resumed=resumed)
        Runner(context).run()
    except Exception:  # the runner's last line of defence: the baseline must not pay for a bug
        code = Exit.INTERNAL
        _trace()
    up = code is not Exit.OK and bool(context.view.outage or context.view.services)
    if not up:
        lock.release()
    try:
        _end(context, server)
    except Exception:
        _trace()
    if up:  # no other run begins before this one's way back is under way
        _emergency(context.run, lock, context)
    if context.peaks is not None:
        context.peaks.close()
    return int(code)


def _trace() -> None:
    with contextlib.suppress(OSError):  # on a full disk there is no log either
        crash.print_exception()


def _on_sigterm(context: Context) -> None:
    """Handle SIGTERM from systemd or `kill` without leaving the baseline down: the standby ends
    this process, or else the run rolls itself back."""
    if standby.trigger(context.run.rollback, standby.EMERGENCY):
        time.sleep(FENCED_S)
    context.control.halt(Verb("rollback", operator(), "the runner got SIGTERM"))


def _emergency(run: RunDir, lock: HostLock, context: Context | None) -> None:
    """Bring the baseline back when this runner cannot go on: by the standby, or by this process,
    which then releases the host for the closer that it starts."""
    waits = standby.is_standing_by(run.rollback, running=True)
    if not (waits and standby.trigger(run.rollback, standby.EMERGENCY)):
        plan = context.way_back() if context is not None else sealed.of_run(run.path)
        Procedure(plan, settle=lock.release).run()


class _Word:
    """The one line that the launcher waits for: on a pipe, or in a file for a systemd unit."""

    def __init__(self, run: RunDir, fd: int) -> None:
        self.run = run
        self.fd = fd

    def refuse(self, error: Exception, more: str = "") -> Exit:
        """Say why no run starts, with `more`; return the matching exit code."""
        if not isinstance(error, ConsoleError):
            _trace()
            words = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            error = ConsoleError("the run cannot be set up", one_line(words))
        detail = "\n".join(filter(None, (error.detail, more)))
        self.say(
            {"ok": False, "title": error.title, "detail": detail, "hint": error.hint,
             "exit": int(error.exit_code)}
        )  # fmt: skip
        return error.exit_code

    def say(self, word: dict[str, Any]) -> bool:
        """Write the line; False if nobody listens any more."""
        data = json.dumps(word).encode() + b"\n"
        if self.fd >= 0:
            try:
                return os.write(self.fd, data) == len(data)
            except BrokenPipeError:
                return False
            finally:
                os.close(self.fd)
        beside = self.run.path / ".runner.word"
        beside.write_bytes(data)
        beside.rename(self.run.path / "runner.word")
        return True


def _context(run: RunDir, *, closing: bool = False) -> Context:
    """Build the context from the run's own copies, never from the files that the operator edits.

    `closing`: tolerate paths that have vanished, so that the end can still be recorded.
    """
    meta = run.meta()
    site = load_site(run.site)
    site.base = Path(meta.site_base)
    site.path = Path(meta.site)
    rewrite = of_run(run.path, site.model.engine.host)
    playbook = own_playbook(
        run.playbook, site, meta.inputs, Path(meta.base), rewrite, planning=closing
    )
    restore_s = baseline.restore_time(site.name)
    name = f"rehearsal-{playbook.name}" if rewrite is not None else playbook.name
    plan = make_plan(playbook, site, restore_s, history=usual(name, site.name, but=run.id))
    control = Control()
    control.mode = "step" if meta.step else "all"
    context = Context(run, meta, plan, Journal(run.journal), SystemClock(), control, RunView())
    context.rehearsal = rewrite.record() if rewrite is not None else {}
    context.services = RunServices(context)
    control.check_inputs = lambda changes, why: input_error(context, changes, why)
    control.on_verb = lambda verb, step, attempt: context.record(
        events.Verb(
            verb=verb.verb, who=verb.who, why=verb.why,
            args={k: v for k, v in verb.args.items() if k != "confirm"},
        ), step, attempt,
    )  # fmt: skip
    return context


def _begin(context: Context, *, resume: bool, close: bool, from_step: str) -> Server:
    """Do everything before the first step; nothing starts unsealed. Raises ConsoleError."""
    run = context.run
    if resume or close:
        fold(read_events(context.run.journal), context.view)
        context.tell_missed()
    if resume and not context.view.run_id:
        raise ConsoleError(
            "the journal of this run is missing", str(run.journal),
            "without it nothing tells what was done; omni-console rollback still works",
        )  # fmt: skip
    if close:
        live.append(run.live, live.closer(*this_process()))
        if not context.view.run_id:  # the journal was deleted: a new one says whose it is
            created(context)
        close_after_rollback(context)
        return Server(run.socket, context.control)
    facts = baseline.facts(context.plan.site, lambda: context.services.client)
    if resume:
        _answers_itself(context)
        words = f"run again from {from_step}" if from_step else "the runner was gone"
        context.record(events.Verb(verb="resume", who=operator(), why=words), from_step)
        end_unrecorded(context)
        settle_intents(context, from_step)
        adopt_services(context)
    else:
        _fits(context)
        proven = baseline.prove(context.plan.site, Witness.RUN_START)
        if context.plan.takes_down:
            _can_be_stopped(context)
        created(context)
        by = BY[Witness.RUN_START]
        context.record(events.Serving(tok_s=proven.decode_tok_s, degraded=False, by=by))
    sealed = seal(context, facts)
    if not resume:
        baseline.remember(sealed, proven, Witness.RUN_START)
    point("sealed")
    _warm_up(context)
    _guard(context)
    return Server(run.socket, context.control)


def _answers_itself(context: Context) -> None:
    """Refuse to go on where another server has taken the baseline's address since: what it answers
    would be measured as the baseline's. Not where the run has taken the baseline down, as its own
    candidate may be there. Raises BaselineNotReady."""
    view = context.view
    if not (view.outage or view.cutover or view.over):
        baseline.require_ours(context.plan.site)


def _fits(context: Context) -> None:
    """Refuse a run whose guard is breached already or has nothing to watch, before it costs an
    outage. Raises UsageError."""
    from console.host.gpu.inventory import Cards
    from console.host.machine import look
    from console.runner.executors.benchmark import engine

    wrong = switch.misfits(context.plan)
    if wrong:
        raise UsageError("no run starts: a cutover does not fit this site", "\n".join(wrong))
    words = misfits(context.plan, look(cards=Cards()), always=True)
    if not words:
        pid = engine(context, "baseline").pid if context.plan.takes_down else 0
        back = limits.held_by(pid) if pid else None
        findings = limits.findings(context.plan, given_back=back, clock=context.clock)
        words = [finding.words for finding in findings if finding.stops]
    if words:
        raise UsageError(
            "no run starts: a guard does not fit this machine", "\n".join(words),
            "omni-console plan shows every guard",
        )  # fmt: skip


def _can_be_stopped(context: Context) -> None:
    """Refuse a plan whose outage would fail to stop the baseline. Raises BaselineNotReady."""
    if context.services.find("baseline") is None:
        url = context.plan.site.model.baseline.url
        who = listener(url)
        what = f"process {who.pid} ({who.words})" if who else "something"
        raise BaselineNotReady(
            "no run starts: the baseline could not be stopped",
            f"{what} answers at {url}; the console did not start it as the site file has it now",
            advice(context.plan.site.baseline_spec().runs, url),
        )


def _warm_up(context: Context) -> None:
    """Start the standby before the first effect; without it no step starts."""
    directory, copy = context.run.rollback, context.way_back().copy
    if standby.is_standing_by(directory):
        return
    log = os.open(directory / "warm.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            [*module_argv("console.recovery.rollback.standby", copy), str(directory)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log)
    clock = context.clock
    deadline = clock.monotonic() + WARM_READY_S
    while not standby.is_standing_by(directory):
        if child.poll() is not None or clock.monotonic() > deadline:
            raise ConsoleError(
                "the standby for the rollback did not start", f"see {directory / 'warm.log'}",
                "no run starts without a standby",
            )  # fmt: skip
        clock.sleep(0.01)


def _guard(context: Context) -> None:
    """Start the sentinel before the first effect; without it no step starts."""
    guard = Guard(context)
    guard.begin()
    context.guard = guard


def _watch_machine(context: Context, *, resumed: bool) -> None:
    """Sample the machine's peaks once a second from here on."""
    before = context.view.peaks.data() if resumed else None
    context.peaks = Peaks(context.run, lambda: context.control.step, context.clock, before)
    context.peaks.start()


def _end(context: Context, server: Server) -> None:
    """Release everything; the standby stays only when the run is not over."""
    server.close()
    context.services.close()
    over = context.view.over
    if context.guard is not None:
        context.guard.close(over=over)
        context.guard = None
    elif over:
        dismiss(context.run)
    failed = context.view.state is RunState.ROLLBACK_FAILED
    if context.view.over and (failed or context.view.outage):
        pointer.mark_over(context.run.id)  # the next rollback is of this run's baseline
    elif context.view.over:
        leave(context.run)
    if context.view.over and not failed:
        standby.trigger(context.run.rollback, standby.QUIT)
    context.journal.close()
