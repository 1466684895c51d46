"""The emergency key: one byte to the warm ladder, and a spawned rollback where that says nothing.

`press()` runs in the thread that reads the keyboard and does next to nothing. Everything else is
done by a thread that waits from the start: on a machine that thrashes nothing may be loaded then.
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
from console.common.text import one_line
from console.frontends.tui.watch.progress import RollbackProgress
from console.host import process
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback import trigger
from console.recovery.rollback.finder import name_of
from console.recovery.rollback.progress import PROGRESS_FILE, Result, asked, quiet_limit, size_of
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK
from console.recovery.rollback.trigger import is_held

STANDBY_WORD_S = 0.7
"""A warm ladder that says nothing for this long is stopped or gone."""
ALIVE_S = 0.25
QUIET_S = 1800.0
POLL_S = 0.02
STUCK_S = 10.0
"""An answer that shows no sign of life for this long hangs."""
SCAN_S = 2.0
"""How long the end of the command waits for the look at the ladders there are."""
WARM, SPAWNED, ALREADY = "warm", "spawned", "already"


@dataclass(frozen=True, slots=True)
class Press:
    """What a press did: `at` Unix time; `how`: `warm` (the byte is written), `spawned` (a command
    is on its way) or `already` (a climb was on).

    `ladder` is the file to follow from `offset` on, None where only the command knows it.
    """

    at: float
    how: str
    ladder: Path | None
    offset: int


class Emergency:
    """One console's emergency key. A press never raises; a climb outlives the console."""

    def __init__(self, spawn_argv: tuple[str, ...], log: Path, clock: Clock | None = None) -> None:
        """`spawn_argv`: the rollback command of last resort; its output is appended to `log`."""
        self._argv = spawn_argv
        self._log = log
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._progress: RollbackProgress | None = None
        self._press: Press | None = None
        self._begun: list[RollbackProgress] = []
        self._presses: SimpleQueue[RollbackProgress | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stand_by()

    def press(self) -> Press:
        """Roll back, now. While an earlier press is being answered, only a warm ladder that did
        not get that one is woken."""
        with self._lock:
            progress, before = self._progress, self._press
            if progress is None or before is None or progress.over:
                return self._begin()
            if self._clock.monotonic() - progress.beat >= STUCK_S:
                # whoever answers it hangs in a read: no second one may wait behind the same disk
                return self._begin(at_once=True)
            again = self._once_more(progress)
            return again or Press(self._clock.now(), ALREADY, before.ladder, before.offset)

    def _begin(self, *, at_once: bool = False) -> Press:
        """`at_once`: the command is started whatever becomes of the byte."""
        directory: Path | None = None
        ladder, offset, woken = None, 0, False
        try:
            directory = _target()
            if directory is not None:
                ladder = directory / PROGRESS_FILE
                offset = size_of(ladder)
                # Only a warm ladder holds the FIFO open, so that the write itself is the question.
                woken = trigger.trigger(directory)
        except Exception:  # whatever it was, the command finds its own way
            woken = False
        return self._hand_over(directory, ladder, offset, woken and not at_once)

    def _once_more(self, progress: RollbackProgress) -> Press | None:
        """The byte for a warm ladder that is there by now; None: the earlier press answers."""
        try:
            directory = _target()
            if directory is None:
                return None
            ladder = directory / PROGRESS_FILE
            offset = size_of(ladder)
            if directory != progress.directory:
                woken = trigger.trigger(directory)
            elif not progress.by_standby or progress.spawned:
                # not one that stands still: the command was started because it does
                woken = trigger.is_standing_by(directory, running=True) and trigger.trigger(
                    directory
                )
            else:
                # the same ladder again: at work already it would climb a second time, but one
                # that was started anew never got the first byte
                if not progress.lines and offset <= progress.began_at and not is_held(directory):
                    trigger.trigger(directory)
                return None
        except Exception:  # the earlier press is still being answered
            return None
        return self._hand_over(directory, ladder, offset, True) if woken else None

    def _hand_over(
        self, directory: Path | None, ladder: Path | None, offset: int, woken: bool
    ) -> Press:
        press = Press(self._clock.now(), WARM if woken else SPAWNED, ladder, offset)
        progress = RollbackProgress(directory, ladder, offset, woken, self._clock)
        self._progress, self._press = progress, press
        self._begun = [c for c in self._begun if not c.over] + [progress]
        self._presses.put(progress)
        return press

    def follow(self, press: Press) -> RollbackFollower:
        """What came and comes of a press; an `already` one follows the climb that was on."""
        progress = self._progress
        assert progress is not None, "a press comes first"
        return RollbackFollower(progress)

    def close(self) -> None:
        """End the threads; a command that was spawned goes on, and one is spawned for a press
        that nobody answered yet. Waits at most two seconds."""
        for progress in self._begun:
            progress.leave()
        self._presses.put(None)
        limit = self._clock.monotonic() + 2.0
        for thread in self._threads:  # a thread that begins another one does so before it ends
            thread.join(max(0.0, limit - self._clock.monotonic()))

    # -- the waiting threads -----------------------------------------------------------------

    def _stand_by(self) -> bool:
        """Begin a thread that waits for a press; False when there are no more."""
        thread = threading.Thread(target=self._run, name="emergency", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _run(self) -> None:
        while (progress := self._presses.get()) is not None:
            # another one waits while this one answers: a disk that hangs costs one press
            relieved = self._stand_by()
            try:
                self._answer(progress)
            except Exception as error:  # the thread's last line of defence: the next press counts
                progress.end(f"{type(error).__name__}: {error}")
            if relieved:
                return

    def _answer(self, progress: RollbackProgress) -> None:
        if progress.by_standby and progress.directory is not None:
            # beside the climb: a disk that hangs must not keep it waiting
            _beside(asked, progress.directory, _who(), self._clock.now())
            if self._standby_does_it(progress, progress.directory):
                return
        self._spawn(progress)

    def _standby_does_it(self, progress: RollbackProgress, directory: Path) -> bool:
        """Follow the warm ladder to its end; False when it says nothing, or ends without one."""
        begun = looked = spoke = self._clock.monotonic()
        count, quiet_s = 0, QUIET_S
        while not progress.left:
            if progress.poll():
                return True
            now = self._clock.monotonic()
            if len(progress.lines) != count:
                if not count:
                    quiet_s = _quiet_s(directory)
                count, spoke = len(progress.lines), now
            if now - spoke >= quiet_s:
                return False
            if now - looked >= ALIVE_S and (count or now - begun >= STANDBY_WORD_S):
                looked = now
                if not trigger.is_standing_by(directory, running=True):
                    return progress.poll()
                # silent, but at it for the runner or behind another ladder: it answers after that.
                # Lines and no lock: it is through, and its last line did not go on a full disk
                if not is_held(directory):
                    return progress.poll()
            self._clock.sleep(POLL_S)
        return progress.poll() or bool(
            progress.lines
        )  # nobody is left to notice that it stays silent

    def _spawn(self, progress: RollbackProgress) -> None:
        """The command, detached; its ladder is found by which file grows."""
        with contextlib.suppress(OSError):
            paths.make(self._log.parent)
        log, begin = self._opened()
        at = self._clock.now()
        try:
            child = subprocess.Popen(
                list(self._argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            progress.end(f"the rollback command cannot be started: {one_line(str(error))}")
            return
        finally:
            os.close(log)
        progress.search()
        progress.spawned = True
        # only now, and beside: with many runs, or on a slow disk, the look takes its time
        scan = None if progress.left else _beside(lambda: progress.among(_ladders(), at))
        while not progress.left:
            code = child.poll()
            if code is not None and scan is not None:
                scan.join(SCAN_S)
            progress.poll()
            if code is not None:
                progress.command_ended(code, self._log, begin)
                return
            self._clock.sleep(POLL_S)
        child.returncode = 0  # the console goes, the command stays: nobody waits for it any more

    def _opened(self) -> tuple[int, int]:
        """The log, and its size now; /dev/null where it cannot be written."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            log = os.open(self._log, flags, 0o600)
            return log, os.fstat(log).st_size
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 0


class RollbackFollower:
    """One reader of a climb; cheap enough for the UI loop: it reads no file."""

    def __init__(self, progress: RollbackProgress) -> None:
        self._progress = progress
        self._seen = 0

    def lines(self) -> list[dict[str, object]]:
        """Rungs that came since the last call, as the ladder wrote them."""
        new = self._progress.lines[self._seen :]
        self._seen += len(new)
        return new

    def result(self) -> Result | None:
        """How it ended; None while it goes on, or when there is only trouble to tell."""
        return self._progress.result

    def trouble(self) -> str:
        """Why nothing comes of it, in clean words; "" while something may, or did."""
        return self._progress.trouble

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self._progress.over

    @property
    def spawned(self) -> bool:
        """Whether the command had to be started: no warm ladder, or none that answers."""
        return self._progress.spawned

    def elapsed_s(self) -> float:
        """Seconds since the press; stands still at the end."""
        return self._progress.elapsed_s()


def _beside(work: Callable[..., object], *args: object) -> threading.Thread | None:
    """Work in a thread that may hang for good; without any thread left, here."""
    thread = threading.Thread(target=work, args=args, name="emergency-beside", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work(*args)
        return None
    return thread


def _quiet_s(directory: Path) -> float:
    """After how many seconds without a line a ladder that climbs is not waited for."""
    try:
        return quiet_limit(sealed.read(directory / PLAN))
    except ConsoleError:
        return QUIET_S


def _target() -> Path | None:
    """The rollback directory of the run that a press means; None: the command has to find it.

    For root that is its own live run, or its own last where no other user's is known: another
    user's plan is acted on as that user, by the command.
    """
    mine = pointers.read(os.getuid())
    if mine is None:
        return None
    if os.getuid() == 0 and not process.alive(mine.pid, mine.start) and _others(mine):
        return None
    return Path(mine.run_dir) / ROLLBACK


def _others(mine: Pointer) -> bool:
    """Whether a pointer of another user comes before root's own, whose runner is dead."""
    return any(p.uid != mine.uid and process.alive(p.pid, p.start) for p in pointers.find_all())


def _ladders() -> list[Path]:
    """Every file the command's ladder may write: of runs, of a plan without one."""
    found = [paths.state_dir() / ROLLBACK / PROGRESS_FILE]
    found += [Path(p.run_dir) / ROLLBACK / PROGRESS_FILE for p in pointers.find_all()]
    with contextlib.suppress(OSError):
        found += [path / ROLLBACK / PROGRESS_FILE for path in paths.runs_dir().iterdir()]
    return list(dict.fromkeys(found))


def _who() -> str:
    """Who sits here, sudo looked through, for the journal."""
    sudo = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    name = name_of(os.getuid())
    return one_line(f"{sudo} (as {name})" if sudo else name, 60) + ", with the emergency key"
