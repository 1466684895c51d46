"""The emergency key: it sends one byte to the standby, or starts the command if that is silent.

`press()` runs in the thread that reads the keyboard and does almost nothing. A thread that has
waited since the start does the rest, because nothing can be loaded while the machine thrashes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.files import open_untrusted
from console.common.text import one_line
from console.frontends.tui.watch.progress import RollbackProgress
from console.host import process
from console.host.privileges import requester
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE, quiet_limit, record_request, size_of
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.sealed_plan import (
    PLAN,
    ROLLBACK,
    SCRIPT,
    site_dirs,
)
from console.recovery.rollback.shell.program_gone import newest_script, or_script
from console.recovery.rollback.trigger import Answer, StandbyFollower, is_held

STANDBY_WORD_S = 0.7
"""Seconds without a line after which the standby counts as stopped or gone."""
QUIET_S = 1800.0
"""Seconds of silence after which a rollback counts as stuck, where its plan cannot be read."""
POLL_S = 0.02
STUCK_S = 10.0
"""Seconds without a sign of life after which the thread that answers a press counts as hung."""
SCAN_S = 2.0
"""Seconds that the end of the command waits for the scan of the progress files."""
SCAN_EVERY_S = 0.25
"""Seconds from one scan to the next, until one has met the file that the command writes."""
STANDBY, SPAWNED, ALREADY = "warm", "spawned", "already"


@dataclass(frozen=True, slots=True)
class Press:
    """What a press did, at a Unix time; `how` is `warm` (the byte is written), `spawned` (a command
    is being started) or `already` (a rollback was under way). `progress` is what comes of it; after
    an `already`, that of the rollback which was under way."""

    at: float
    how: str
    progress: RollbackProgress


class Emergency:
    """The emergency key of one console. A press never raises; a rollback outlives the console."""

    def __init__(
        self, spawn_argv: tuple[str, ...], log: Path, clock: Clock | None = None,
        site: str | None = None,
    ) -> None:  # fmt: skip
        """`spawn_argv` is the rollback command of last resort, of a site file where that is named;
        its output is appended to `log`."""
        self._argv, self._site = spawn_argv, site
        self._log = log
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._press: Press | None = None
        self._begun: list[RollbackProgress] = []
        self._presses: SimpleQueue[RollbackProgress | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._start_thread()

    def press(self) -> Press:
        """Roll back, now. While an earlier press is being answered, only a standby that did not get
        the earlier byte is triggered."""
        with self._lock:
            if self._press is None or self._press.progress.over:
                return self._begin()
            progress = self._press.progress
            if self._clock.monotonic() - progress.beat >= STUCK_S:
                # The answering thread hangs in a read: another one must not wait for that disk.
                return self._begin(at_once=True)
            again = self._once_more(progress)
            return again or Press(self._clock.now(), ALREADY, progress)

    def _begin(self, *, at_once: bool = False) -> Press:
        """Trigger the standby; with `at_once` the command is started whatever the standby does."""
        directory: Path | None = None
        progress_file, offset, triggered = None, 0, False
        try:
            directory = _target()
            if directory is not None:
                progress_file = directory / PROGRESS_FILE
                offset = size_of(progress_file)
                # Only a standby holds the FIFO open, so the write itself shows whether one lives.
                triggered = trigger.trigger(directory)
        except Exception:  # whatever failed, the command looks for the plan itself
            triggered = False
        return self._hand_over(directory, progress_file, offset, triggered and not at_once)

    def _once_more(self, progress: RollbackProgress) -> Press | None:
        """Trigger a standby that has appeared meanwhile; None where the earlier press suffices."""
        try:
            directory = _target()
            if directory is None:
                return None
            progress_file = directory / PROGRESS_FILE
            offset = size_of(progress_file)
            if directory != progress.directory:
                triggered = trigger.trigger(directory)
            elif not progress.by_standby or progress.spawned:
                # Not a stopped standby: the command was started because that one is stopped.
                triggered = trigger.is_standing_by(directory, running=True) and trigger.trigger(
                    directory
                )
            else:
                # The same standby: another byte would make a busy one roll back twice, but one
                # that was started anew has never got the first byte.
                if not progress.lines and offset <= progress.began_at and not is_held(directory):
                    trigger.trigger(directory)
                return None
        except Exception:  # the earlier press is still being answered
            return None
        return self._hand_over(directory, progress_file, offset, True) if triggered else None

    def _hand_over(
        self, directory: Path | None, progress_file: Path | None, offset: int, triggered: bool
    ) -> Press:
        progress = RollbackProgress(directory, progress_file, offset, triggered, self._clock)
        self._press = Press(self._clock.now(), STANDBY if triggered else SPAWNED, progress)
        self._begun = [c for c in self._begun if not c.over] + [progress]
        self._presses.put(progress)
        return self._press

    def close(self) -> None:
        """End the threads, within two seconds. A spawned command goes on, and one is spawned for a
        press that has no answer yet."""
        for progress in self._begun:
            progress.leave()
        self._presses.put(None)
        limit = self._clock.monotonic() + 2.0
        for thread in self._threads:  # a thread that starts another does so before it ends
            thread.join(max(0.0, limit - self._clock.monotonic()))

    # -- the waiting threads -----------------------------------------------------------------

    def _start_thread(self) -> bool:
        """Start a thread that waits for a press; False when the system has none to spare."""
        thread = threading.Thread(target=self._run, name="emergency", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _run(self) -> None:
        while (progress := self._presses.get()) is not None:
            # Another thread waits while this one answers, so that a hung disk costs one press.
            replaced = self._start_thread()
            try:
                self._answer(progress)
            except Exception as error:  # the last line of defence: a later press needs this thread
                progress.end(f"{type(error).__name__}: {error}")
            if replaced:
                return

    def _answer(self, progress: RollbackProgress) -> None:
        if progress.by_standby and progress.directory is not None:
            # In a thread of its own: a hung disk must not delay the rollback.
            who = f"{requester()}, with the emergency key"
            _in_thread(record_request, progress.directory, who, self._clock.now())
            _in_thread(progress.identify, progress.directory)
            if self._follow_standby(progress, progress.directory):
                return
        self._spawn(progress)

    def _follow_standby(self, progress: RollbackProgress, directory: Path) -> bool:
        """Follow the standby to its last line; False when it is silent or ends without it."""
        follower = StandbyFollower(
            directory, progress, self._clock.monotonic(), lock_counts=True,
            first_line_s=STANDBY_WORD_S, quiet_s=lambda: _quiet_s(directory),
        )  # fmt: skip
        while not progress.left:
            answer = follower.step(self._clock.monotonic())
            if answer is not Answer.WAITING:
                return answer is Answer.ENDED
            self._clock.sleep(POLL_S)
        # The console closes and cannot wait: a standby without any line gets the command, too.
        return progress.poll() or bool(progress.lines)

    def _spawn(self, progress: RollbackProgress) -> None:
        """Start the rollback command, detached; the file that grows is its progress file."""
        with contextlib.suppress(OSError):
            paths.make(self._log.parent)
        log, begin = self._open_log()
        at = self._clock.now()
        try:
            child = subprocess.Popen(
                or_script(self._argv, self._script(progress.directory)), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, close_fds=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            progress.end(f"the rollback command cannot be started: {one_line(str(error))}")
            return
        finally:
            os.close(log)
        progress.search()
        progress.spawned = True
        scan: threading.Thread | None = None
        due = self._clock.monotonic()
        while not progress.left:
            code, now = child.poll(), self._clock.monotonic()
            scanning = scan is not None and scan.is_alive()
            if progress.progress_file is None and not scanning and (now >= due or code is not None):
                # In a thread: with many runs or on a slow disk the scan takes time. And again:
                # the first rollback of a site makes its directory itself, after the start.
                scan = _in_thread(lambda: progress.among(_progress_files(), at))
                due = now + SCAN_EVERY_S
            if code is not None and scan is not None:
                scan.join(SCAN_S)
            progress.poll()
            if code is not None:
                progress.command_ended(code, self._log, begin)
                return
            self._clock.sleep(POLL_S)
        child.returncode = 0  # the command outlives the console, so Popen must not wait for it

    def _script(self, directory: Path | None) -> Path | None:
        """The script of the run that a press means, else the newest of the site."""
        own = directory / SCRIPT if directory is not None else None
        return own if own is not None and own.is_file() else newest_script(self._site)

    def _open_log(self) -> tuple[int, int]:
        """A descriptor of the log, and the log's size; of /dev/null where it cannot be written."""
        try:
            log = open_untrusted(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            return log, os.fstat(log).st_size
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 0


def _in_thread(work: Callable[..., object], *args: object) -> threading.Thread | None:
    """Do work that may hang in a thread, and return that; without a thread to spare, do it here."""
    thread = threading.Thread(target=work, args=args, name="emergency-beside", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work(*args)
        return None
    return thread


def _quiet_s(directory: Path) -> float:
    """Seconds without a line after which a rollback counts as stuck."""
    try:
        return quiet_limit(sealed.read(directory / PLAN))
    except ConsoleError:
        return QUIET_S


def _target() -> Path | None:
    """The rollback directory of the run that a press means; None where the command must find it.

    Root's own run counts if it lives, or if no other user has a live run. On another user's plan
    only the command acts, as that user.
    """
    mine = pointers.read(os.getuid())
    if mine is None:
        return None
    if os.getuid() == 0 and not process.alive(mine.pid, mine.start) and _others_live(mine):
        return None
    return Path(mine.run_dir) / ROLLBACK


def _others_live(mine: Pointer) -> bool:
    """Whether another user has a live run."""
    return any(p.uid != mine.uid and process.alive(p.pid, p.start) for p in pointers.find_all())


def _progress_files() -> list[Path]:
    """Every file that the command may write its lines to: each run's, and that without a run."""
    files = [directory / PROGRESS_FILE for directory in site_dirs()]
    files += [Path(p.run_dir) / ROLLBACK / PROGRESS_FILE for p in pointers.find_all()]
    with contextlib.suppress(OSError):
        files += [path / ROLLBACK / PROGRESS_FILE for path in paths.runs_dir().iterdir()]
    return list(dict.fromkeys(files))
