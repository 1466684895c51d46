"""Starts a run or resumes one: a run directory, then a runner that outlives its terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.files import write_atomically
from console.common.paths import module_argv
from console.common.text import clean, clean_lines, one_line
from console.host import children
from console.host.privileges import operator
from console.host.systemd import Detachment, detachment
from console.journal.lock import runner_alive
from console.journal.run_dir import ALLOCATION, RunDir, RunMeta, create
from console.journal.run_files import NEVER_BEGAN, NO_RESUME, read_view, word_of
from console.journal.run_view import RunView
from console.journal.store import NewerJournal, check_version
from console.rehearsal.workspace import MAPPING
from console.runner.prepare.catalog import digest
from console.runner.slurm.ticket import allocation_of

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site

REQUEST = "request"
"""In a run's directory: the request of an operator far away that started it."""

HANDSHAKE_S = 300.0
"""Wait for the runner's word; a big baseline is slow to answer its one completion."""

UNIT_S = 30.0
"""How long systemd may take to start or end the unit."""

GONE_S = 5.0
"""How long a runner that refused may take to end."""


class NotStarted(ConsoleError):
    """The runner refused before any effect; carries its own exit code."""

    def __init__(self, title: str, detail: str, hint: str, code: int) -> None:
        super().__init__(title, detail, hint)
        self.exit_code = Exit(code)


def launch(run: RunDir, *options: str, timeout_s: float = HANDSHAKE_S) -> Detachment:
    """Start the runner and wait until it says that it has begun. Raises NotStarted if it
    refuses."""
    if lost := paths.lost_file():
        raise NotStarted(
            "nothing was started: files of omni-console itself are gone", lost,
            "install it again, then start the run again", int(Exit.FAILED),
        )  # fmt: skip
    how = detachment()
    argv = [*module_argv("console.cli"), "runner", str(run.path), *options]
    if how.unit:
        _launch_unit(run, argv, timeout_s)
    else:
        _launch_child(run, argv, timeout_s)
    return how


def _launch_unit(run: RunDir, argv: list[str], timeout_s: float) -> None:
    # a unit inherits no descriptors: it says its word in a file that this side polls
    word_file = run.path / "runner.word"
    word_file.unlink(missing_ok=True)
    try:
        _start_unit(unit_of(run), argv)
        word = _poll_word(word_file, timeout_s)
    except BaseException:  # Ctrl-C, too: what nobody waits for must not begin
        _stop_unit(run)
        raise
    if not word:
        _stop_unit(run)
    _judge(word, run)


def _launch_child(run: RunDir, argv: list[str], timeout_s: float) -> None:
    read_end, write_end = os.pipe()
    log = os.open(run.runner_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [*argv, f"--ready-fd={write_end}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=(write_end,),
        )  # fmt: skip
    finally:
        os.close(write_end)
        os.close(log)
    word = _read_word(read_end, timeout_s)
    try:
        _judge(word, run)
    except NotStarted:
        # what refused holds the host lock until it is gone; the next try must not meet it
        if child.poll() is None and not word:
            child.kill()  # it never said a word: nothing of it may go on behind our back
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GONE_S)
        raise
    _reaped(child)


def _reaped(child: subprocess.Popen[bytes]) -> None:
    """Have it waited for, so that it never stays a zombie of a long-lived caller."""
    with contextlib.suppress(RuntimeError):  # no thread left: a zombie at worst
        threading.Thread(target=child.wait, name="runner-reaper", daemon=True).start()


def detach(name: str, argv: list[str], log: Path) -> None:
    """Start a process that outlives this one and its terminal, as a runner does: a user unit of
    this name where linger is on, else a session of its own. Raises ConsoleError."""
    if detachment().unit:
        words = shlex.join(argv)
        _start_unit(f"{name}.service", ["sh", "-c", f"exec {words} >>{shlex.quote(str(log))} 2>&1"])
        return
    try:
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        _reaped(child)
    except OSError as error:
        raise ConsoleError("a process cannot be started", _words(error)) from error


def _start_unit(name: str, argv: list[str]) -> None:
    """Have systemd start this as a unit. Raises NotStarted."""
    argv = [
        "systemd-run", "--user", "--collect", "--quiet", f"--unit={name}",
        # the standby and the baseline are children of the runner and have to outlive it
        "--property=KillMode=process",
        # a candidate that the kernel's OOM killer ends must not take the runner along
        "--property=OOMPolicy=continue",
        # a unit starts without this shell's variables, and secrets may come from any. Names only:
        # values in an argv could be read by everybody
        *(f"--setenv={name}" for name in os.environ if re.fullmatch(r"[A-Za-z_]\w*", name, re.A)),
        *argv,
    ]  # fmt: skip
    try:
        code, _, message = children.run(argv, UNIT_S, env=os.environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        code, message = 1, str(error).encode()
    if code != 0:
        detail = one_line(message.decode("utf-8", "replace"))
        raise NotStarted("systemd-run could not start the runner", detail, "", int(Exit.INTERNAL))


def _stop_unit(run: RunDir) -> None:
    """Stop the unit, best effort; a runner that begins all the same shows up in `runs`."""
    argv = ["systemctl", "--user", "kill", "--kill-who=main", "--signal=KILL", unit_of(run)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        children.run(argv, UNIT_S, env=os.environ)


def unit_of(run: RunDir) -> str:
    return f"omni-console-{run.id}.service"


def _read_word(read_end: int, timeout_s: float) -> bytes:
    data = b""
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], timeout_s)[0]:
            chunk = pipe.read(65536)
            if not chunk:
                break
            data += chunk
            if data.endswith(b"\n"):
                break
    return data


def _poll_word(path: Path, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists():
            return path.read_bytes()
        time.sleep(0.05)
    return b""


def _judge(word: bytes, run: RunDir) -> None:
    try:
        answer = json.loads(word)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        log = run.runner_log.read_text("utf-8", "replace") if run.runner_log.exists() else ""
        tail = "\n".join(clean_lines(log)[-8:])
        raise NotStarted("the runner died before it began", tail, str(run.runner_log), 1)
    if not answer.get("ok"):
        raise NotStarted(
            str(answer.get("title", "the runner refused")), str(answer.get("detail", "")),
            str(answer.get("hint", "")), int(answer.get("exit", 1)),
        )  # fmt: skip


def check_resume(run: RunDir, from_step: str = "") -> None:
    """Raise UsageError if this run cannot be resumed, NewerJournal if a newer program began it."""
    alive, word = runner_alive(run), ""
    try:
        view = read_view(run)
        word = word_of(run, view, alive)
        check_version(run.journal)
    except NewerJournal:
        raise
    except ConsoleError:
        view = RunView()
    if alive:
        raise UsageError(f"run {run.id} is alive", hint="omni-console attach joins it")
    if word == NEVER_BEGAN:
        raise UsageError(f"run {run.id} never began", NO_RESUME)
    if view.finished:
        raise UsageError(f"run {run.id} has ended: {view.state}", hint="start a new run")
    if (held := allocation_of(run)) is not None and not held.lives:
        words = f"Slurm's job {held.job}, which held its cards, is over"
        raise UsageError(f"run {run.id} has no allocation any more", words, "start a new run")
    if from_step and view.step(from_step) is None:
        raise UsageError(f"run {run.id} has no step '{clean(from_step, 40)}'")


def resume(run: RunDir, from_step: str = "") -> Detachment:
    """Resume a run whose runner died, from `from_step` if given: a new runner reads the journal.
    Raises UsageError if there is nothing to resume, NotStarted if the runner refused."""
    check_resume(run, from_step)
    return launch(run, "--resume", *([f"--from={from_step}"] if from_step else []))


def begin(
    site: Site,
    playbook: Playbook,
    inputs: dict[str, str],
    *,
    step: bool,
    say: Callable[[str], None],
    yes: bool = False,
    headless: bool = False,
    expect: str = "",
    lease_s: float | None = None,
    overrides: Mapping[str, str] | None = None,
    rehearsal: str = "",
    request: str = "",
    allocation: str = "",
    asked_at: float | None = None,
) -> RunDir:
    """Start a new run and return it once its runner has begun; `say` gets clean progress sentences.

    `expect`: digest of the plan that was shown; a playbook or site changed since is refused.
    `lease_s`: replaces the playbook's lease. `overrides`: lint rules to override, each with a
    reason. `rehearsal`: a rehearsal's mapping, as JSON. `request`: who far away asked for it; a run
    that exists has it in its directory. `allocation`: of Slurm's, as `console.runner.slurm.ticket`
    writes it. `asked_at`: when it was asked for, in Unix seconds, if not now: a rollback that has
    ended since keeps it from beginning. Blocks until the baseline has answered one
    completion. Raises NotStarted (the runner refused), LintRefused, InvalidFile (a service could
    not start) or another ConsoleError; no trace is left.
    """
    created_at = time.time() if asked_at is None else asked_at
    _same(playbook, site, expect)
    lint_records = admit(playbook, site, overrides or {}, say, lease_s, rehearsal=bool(rehearsal))
    meta = RunMeta(
        run_id="", playbook=str(playbook.path.resolve()), base=str(playbook.base),
        digest=playbook.digest, site=str(site.path.resolve()), site_base=str(site.base),
        inputs=inputs, yes=yes, step=step, headless=headless, owner=operator(), created=created_at,
        lease_s=lease_s, lint=lint_records,
    )  # fmt: skip
    more = {MAPPING: rehearsal, REQUEST: request, ALLOCATION: allocation}
    made = _directory(meta, playbook, site, more)
    say(f"run {made.id}: {clean(playbook.model.title)} (site {site.name})")
    say("checking that the baseline serves …")
    try:
        how = launch(made)
    except (ConsoleError, OSError) as error:
        shutil.rmtree(made.path, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConsoleError("the runner cannot be started", _words(error)) from error
        raise
    if how.warning:
        say(f"WARNING: {how.warning}")
    return made


def _same(playbook: Playbook, site: Site, expect: str) -> None:
    """Raise ConsoleError if the playbook can only be planned, or differs from the one shown."""
    if playbook.missing:
        words = ", ".join(one_line(x) for x in playbook.missing)
        raise ConsoleError("this playbook was loaded for its plan only", words)
    if expect and expect != digest(playbook, site):
        raise ConsoleError(
            "the playbook or site file has changed since its plan was shown",
            hint="read the plan again",
        )


def admit(
    playbook: Playbook, site: Site, overrides: Mapping[str, str], say: Callable[[str], None],
    lease_s: float | None, *, rehearsal: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """Check that services can start, run lint, tell the operator, and return what to record; tell
    also of a lease that is too short. A rehearsal costs nothing, and has stand-ins for programs and
    models, at ports of its own. Raises InvalidFile, LintRefused, UsageError."""
    from console.checks.lint.rule import facts_of
    from console.journal.history import usual
    from console.runner.prepare import admission, namesakes, startable
    from console.runner.prepare.plan import make_plan
    from console.runner.prepare.plan_text import short_lease

    if not rehearsal:
        namesakes.refuse(site)
        startable.refuse(playbook, site)
    plan = make_plan(playbook, site, history=usual(playbook.name, site.name))
    more = admission.blocker_findings(plan) if not rehearsal else []
    findings = admission.check(playbook, facts_of(site), overrides, more)
    for words in short_lease(plan, lease_s) if not rehearsal else ():
        say(f"WARNING: {words}")
    for finding in findings:
        say(f"lint: {finding.text}" + (f" ({finding.suppressed})" if finding.suppressed else ""))
    return admission.records(findings)


def _directory(meta: RunMeta, playbook: Playbook, site: Site, more: Mapping[str, str]) -> RunDir:
    """The run's directory, durable with everything that it needs. `more`: files, by their names."""
    name = f"rehearsal-{playbook.name}" if more[MAPPING] else playbook.name
    try:
        made = create(name, meta, playbook.text, site.text)
        for file, text in more.items():
            if text:
                write_atomically(made.path / file, text, 0o600)
    except OSError as error:
        raise ConsoleError("the run's directory cannot be made", _words(error)) from error
    return made


def _words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return one_line(f"{where}{error.strerror or error}")
