"""`hf download` as a watched child; progress is read from the disk, not from its output.

An interruption loses only files in progress, which the library starts again. The child is stopped
before the disk runs out of space, and at the end every size is compared.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.text import clean, decode
from console.common.units import both_units
from console.host import cgroup
from console.host.machine import Space, space
from console.models.hub import local_files, settings
from console.models.hub.checkpoint import Contents
from console.models.hub.errors import DiskShort, DownloadBusy, DownloadFailed
from console.models.hub.listing import child_env, some
from console.models.hub.progress import Meter, explain

WORKERS = 16
"""S-010: 16 files at a time filled a line of 500 Mbit/s, the default of 8 did not."""
CHILD_GRACE_S = 5.0
AHEAD_S = 3.0
"""Seconds ahead for which the floor must hold at the current rate: looks come once a second."""
FREE_SHARE = 0.05
MIN_FREE = 20 * 10**9
_KEPT_LINES = 50
_LONGEST_LINE = 1 << 16


def floor(total: int) -> int:
    """The larger of 5 % and 20 GB: logs, a journal and page-out need room beside a model."""
    return max(int(total * FREE_SHARE), MIN_FREE)


def require(path: Path, disk: Space, need: int, least: int) -> None:
    """Raise DiskShort if `need` more bytes would bring the free space under `least`."""
    short = need + least - disk.free
    if short > 0:
        raise DiskShort(
            f"{clean(str(path))}: {both_units(short)} too little room",
            f"{both_units(need)} to write and {both_units(least)} to keep free, "
            f"{both_units(disk.free)} free",
            f"du -xsh {clean(str(path.parent))}/* shows what is large; a smaller quantization "
            "needs less",
        )


class Phase(StrEnum):
    READY = "ready"
    FETCHING = "fetching"
    STALLED = "no bytes for a minute"
    CUT = "cut"
    CANCELLED = "cancelled"
    DISK = "stopped: the disk is short"
    CHECKING = "comparing with the listing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is fetched where. `hash_up_to`: bytes up to which a file's SHA-256 is compared at the
    end (0: sizes only)."""

    contents: Contents
    target: Path
    workers: int = WORKERS
    hash_up_to: int = 0

    def argv(self) -> list[str]:
        """The command; the token is in the environment, never here."""
        listing = self.contents.listing
        command = [*paths.module_argv("huggingface_hub.cli.hf"), "download", listing.repo]
        command += ["--revision", listing.commit, "--local-dir", str(self.target)]
        command += [f"--include={pattern}" for pattern in self.contents.include]
        command += [f"--exclude={pattern}" for pattern in self.contents.exclude]
        return [*command, "--max-workers", str(self.workers)]


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of the wanted files on the disk, unfinished ones too; the rate in bytes a second."""

    bytes_done: int
    bytes_total: int | None
    rate_bps: float | None
    eta_s: float | None
    files_done: int
    files_total: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Result:
    """How it ended; `cuts` are children that ended early, `wrong` files and why they are."""

    phase: Phase
    seconds: float
    fetched: int
    cuts: int = 0
    wrong: Mapping[str, str] = field(default_factory=dict)
    error: ConsoleError | None = None
    output: tuple[str, ...] = ()

    @property
    def rate_bps(self) -> float | None:
        return self.fetched / self.seconds if self.seconds > 0 and self.fetched > 0 else None


class Download:
    """One download in one directory. For one thread; `stop` may come from any.

    `start`, then `look` about once a second while `running`, then `finish`. After a cut `start` may
    be called again. `space` and `floor` measure the disk; `grace_s` is how long a child has after
    SIGINT, and again after SIGTERM. `env` is added to the child's; `born` gets each child's pid.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Clock | None = None,
        space: Callable[[Path], Space] = space,
        floor: Callable[[int], int] = floor,
        grace_s: float = CHILD_GRACE_S,
        env: Mapping[str, str] | None = None,
        born: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self.plan = plan
        self._listing, self._files = plan.contents.listing, plan.contents.files
        self.cuts = 0
        self.phase = Phase.READY
        self.error: ConsoleError | None = None
        self._clock, self._space, self._floor = clock or SystemClock(), space, floor
        self._grace_s = grace_s
        self._env, self._born = dict(env or {}), born
        self._meter = Meter()
        self._token = settings.token()
        self._where = clean(str(plan.target))
        self._output: deque[str] = deque(maxlen=_KEPT_LINES)
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._ending = threading.Lock()
        self._begun: tuple[float, int] | None = None
        self._spoiled = False  # whole by size, but not by its digest

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> local_files.Here:
        """Check the disk and start the child, unless every file is here; return what was here
        before. Raises RepositoryGated, DiskShort, DownloadBusy or DownloadFailed."""
        plan = self.plan
        self._listing.require_access()
        try:
            plan.target.mkdir(parents=True, exist_ok=True)
            if lock := local_files.busy(plan.target):
                name, hint = clean(lock.stem), f"wait for it, or end it: fuser -v {lock} names it"
                raise DownloadBusy(f"{self._where} is being downloaded to", name, clean(hint))
            local_files.sweep_unfinished(plan.target)
            local_state = local_files.look(self._listing, self._files, plan.target)
            for path in local_state.wrong:
                local_files.forget_unfinished(plan.target, path)
            space, whole = self._space(plan.target), frozenset(local_state.whole)
            need = sum(file.size or 0 for file in self._files if file.path not in whole)
            require(plan.target, space, need, self._floor(space.total))
            if self._begun is None:
                self._begun = (self._clock.monotonic(), local_state.have)
            self.phase = Phase.FETCHING
            if local_state.to_write != 0 or self._spoiled:
                self._spawn()
        except OSError as error:
            title = f"the download to {self._where} cannot start"
            raise DownloadFailed(
                title, error.strerror or str(error), f"ls -ld {self._where}"
            ) from None
        return local_state

    def look(self) -> Progress:
        """Measure progress. Stops the child before the disk's free space falls under its floor."""
        done, files = self._on_disk()
        now = self._clock.monotonic()
        self._meter.add(now, done)
        if self.running:
            self._watch_disk()
        phase = self.phase
        if phase is Phase.FETCHING and self._meter.stalled(now):
            phase = Phase.STALLED
        total = self.plan.contents.size
        rate, eta = self._meter.rate, self._meter.eta(total)
        return Progress(done, total, rate, eta, files, len(self._files), phase)

    def stop(self, phase: Phase = Phase.CANCELLED) -> None:
        """End the child: SIGINT, then SIGTERM, then SIGKILL, each to its whole session."""
        with self._ending:
            if self._child is None or self._child.poll() is not None:
                return
            self.phase = phase
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                # What was begun is lost at any rate: only a full disk is worth no courtesy.
                if phase is Phase.DISK and number != signal.SIGKILL:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._child.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(self._grace_s)
                    return

    def finish(self, cancelled: threading.Event | None = None) -> Result:
        """Wait for the child, compare the files with the listing, and return how it ended.

        A child that ended early leaves phase CUT: `start` again continues with the next file.
        """
        code = self._wait()
        wrong: dict[str, str] = {}
        if self.phase is Phase.FETCHING:
            self.phase = Phase.CHECKING
            wrong = local_files.verify(
                self._files, self.plan.target, self.plan.hash_up_to, cancelled
            )
            if cancelled is not None and cancelled.is_set():
                self.phase = Phase.CANCELLED
            else:
                self._conclude(code, wrong)
        if self.phase in (Phase.CANCELLED, Phase.DISK) and not local_files.busy(self.plan.target):
            local_files.sweep_unfinished(self.plan.target)
        began, had = self._begun or (self._clock.monotonic(), 0)
        seconds, fetched = self._clock.monotonic() - began, max(0, self._on_disk()[0] - had)
        output_lines = tuple(self._output)
        return Result(self.phase, seconds, fetched, self.cuts, wrong, self.error, output_lines)

    def _wait(self) -> int:
        if self._child is None:
            return 0
        code = self._child.wait()
        if self._reader is not None:
            self._reader.join(2.0)
        return code

    def _conclude(self, code: int, wrong: dict[str, str]) -> None:
        """DONE only where all is as listed, whatever the child says about itself."""
        self._spoiled = bool(wrong)
        if not wrong:
            self.phase, self.error = Phase.DONE, None
            return
        for path in wrong:
            local_files.forget_unfinished(self.plan.target, path)
        names = some(tuple(f"{path}: {why}" for path, why in wrong.items()))
        error = explain(self._listing, tuple(self._output), bool(self._token))
        self.phase = Phase.FAILED if error is not None else Phase.CUT
        self.cuts += self.phase is Phase.CUT
        if error is None:
            how = "was cut" if code else "left files that are not as listed"
            title = f"the download of {self._listing.repo} {how}"
            last = f"; hf said: {self._output[-1]}" if self._output else ""
            hint = "start it again: whole files are kept, the others fetched anew"
            error = DownloadFailed(title, f"{len(wrong)} files: {names}{last}", hint)
        self.error = error

    def _watch_disk(self) -> None:
        """End the child if the floor is near, or the disk is gone."""
        try:
            space = self._space(self.plan.target)
        except OSError as error:
            self.stop(Phase.FAILED)
            title = f"{self._where} cannot be read any more"
            hint = "is the disk still mounted? `findmnt` shows"
            self.error = DownloadFailed(title, error.strerror or "", hint)
            return
        least = self._floor(space.total)
        if space.free - least <= (self._meter.rate or 0.0) * AHEAD_S:
            self.stop(Phase.DISK)
            title = f"{self._where}: the disk is nearly full"
            detail = f"{both_units(space.free)} free, {both_units(least)} are kept free"
            hint = "make room, then start the download again: whole files are kept"
            self.error = DiskShort(title, detail, hint)

    def _on_disk(self) -> tuple[int, int]:
        """(bytes of wanted files, complete files). Unfinished files are read first, so that one
        moved into place meanwhile is not missed."""
        under_way = local_files.unfinished_sizes(self.plan.target)
        done = whole = 0
        for file in self._files:
            size = local_files.size_of(self.plan.target / file.path)
            if size is not None and file.size in (None, size):
                whole += 1
                done += size
            elif file.sha256:
                done += min(under_way.get(file.sha256, 0), file.size or 0)
        return done, whole

    def _spawn(self) -> None:
        env = child_env(self._listing.endpoint, self._token) | {"PYTHONUNBUFFERED": "1"} | self._env
        self._output.clear()
        child = self._child = cgroup.popen(
            self.plan.argv(),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(child,), daemon=True)
        self._reader.start()
        self._born(child.pid)

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        """Keep the child's last lines: clean, bounded, and without the token."""
        assert child.stdout is not None
        with child.stdout as stream, contextlib.suppress(OSError, ValueError):
            while line := stream.readline(_LONGEST_LINE):
                text = decode(line)
                if self._token:
                    text = text.replace(self._token, "(token)")
                if (text := clean(text).strip()) and "HF_DEBUG" not in text:
                    self._output.append(text)
