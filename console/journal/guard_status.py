"""The guard of a run: its status page, read once a second by a thread for the run on show.

What is missing, old or invalid becomes a word and never a number. The files may be on a slow disk:
do not read them on the UI loop.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from console.common.text import cleaned, one_line
from console.common.units import number
from console.host import process
from console.host.sample import NO_MARKS, Marks
from console.journal.breach import read_breach
from console.journal.events import Breach
from console.journal.recording import struck, table
from console.journal.run_dir import RunDir
from console.journal.run_files import stamp
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import GuardConfig, Limit
from console.recovery.guard.record.read import Recording, crash_words, open_newest

EVERY_S = 1.0
OLD_S = 2.0
"""Data older than this many seconds is shown with its age."""
SILENT_S = 5.0
"""A sentinel that has been silent for this long does not count as watching."""
NONE, LOOKING, STARTING, OK, WARN, ACTED, SILENT, GONE, UNREADABLE, ENDED = (
    "none", "looking", "starting", "ok", "warn", "acted", "silent", "gone", "unreadable", "ended",
)  # fmt: skip
ALARMING = frozenset({WARN, ACTED, SILENT, GONE, UNREADABLE})
"""Words that a person has to know of wherever they look."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Seconds that the baseline may still be down with nobody attached; None if none are
    counted."""

    left_s: float | None
    attended: bool = False


@dataclass(frozen=True, slots=True)
class GuardView:
    """What is known of one run's guard; all text is clean. `word` is one of the words above.

    `at`: when the newest page was written, in monotonic seconds of this boot; None if not known.
    `reasons`: what it warns of, or why it killed. `tte_s`: seconds until `filling` is full. `rate`:
    bytes a second by which RAM fills. `missing`: protections that it did not get. `spared`: what of
    the run it must not kill, and why. `trouble`: what it cannot watch. `after`: how the recording
    of an interrupted run ends.
    """

    run: RunDir | None = None
    word: str = NONE
    at: float | None = None
    detail: str = ""
    reasons: tuple[str, ...] = ()
    tte_s: float | None = None
    filling: str = "RAM"
    rate: float | None = None
    advisory: bool = False
    limits: tuple[Limit, ...] = ()
    marks: Marks = NO_MARKS
    missing: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    lease: Lease | None = None
    breach: Breach = field(default_factory=Breach)
    after: str = ""
    alone: bool = False
    """The sentinel watches although its run's runner is gone."""

    def word_at(self, now: float) -> str:
        """Return `word`, or `silent` if the page behind it is too old."""
        fresh = self.at is None or now - self.at <= SILENT_S
        return self.word if fresh or self.word not in (OK, WARN) else SILENT


NOBODY = GuardView()


class GuardWatch:
    """Reads the guard in a daemon thread into `latest`. What `follow` changes is read at once."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every = every_s
        self._followed: tuple[RunDir | None, bool, bool] = (None, False, False)
        self._wake = threading.Event()
        self._closed = False
        self._read: dict[str, tuple[object, Any]] = {}
        self._thread = threading.Thread(target=self._run, name="guard-watch", daemon=True)
        self.latest = NOBODY

    def start(self) -> None:
        self._thread.start()

    def follow(self, run: RunDir | None, alive: bool, over: bool) -> None:
        """Set the run to read. `alive`: its runner lives; `over`: the run has ended."""
        before, self._followed = self._followed, (run, alive, over)
        if self._followed != before:
            self._wake.set()

    def close(self) -> None:
        """End the thread, waiting at most a second for a reading in progress."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            self.look_now()
            self._wake.wait(self._every)

    def look_now(self) -> GuardView:
        """Read the run that is aimed at, in the caller's thread, and store the view as `latest`."""
        run, alive, over = self._followed
        try:
            self.latest = self.look(run, alive, over)
        except Exception as error:  # the thread must survive any error and read again
            words = one_line(f"{type(error).__name__}: {error}", 120)
            self.latest = GuardView(run, UNREADABLE, detail=words)
        return self.latest

    def look(self, run: RunDir | None, alive: bool, over: bool) -> GuardView:
        """Read the guard of a run once."""
        if run is None:
            return NOBODY
        breach: Breach = self._kept("breach", run.breach, read_breach, run)
        recording = open_newest(run.path)
        if not alive:
            return self._without_runner(run, recording, over, breach)
        return self._watched(run, recording, breach)

    def _watched(self, run: RunDir, recording: Recording | None, breach: Breach) -> GuardView:
        file = run.guard / guard_config.CONFIG_FILE
        config: GuardConfig | None = self._kept("config", file, config_of, run)
        if recording is None:
            word = UNREADABLE if (run.guard / guard_config.READY).exists() else STARTING
            words = "its recording cannot be read" if word is UNREADABLE else ""
            limits = config.limits if config is not None else ()
            return GuardView(run, word, detail=words, limits=limits, breach=breach)
        page = table(cleaned(recording.status()))
        breach = breach or struck(recording)
        this_boot = recording.boot == process.boot_id()
        view = replace(view_of(run, page, config, this_boot), breach=breach)
        if not recording.alive:
            return replace(view, word=GONE, tte_s=None, lease=None)
        if not page:
            return replace(view, word=UNREADABLE, detail="its page is incomplete")
        acted = page.get("acted")
        return replace(view, word=ACTED) if (acted if acted is not None else breach) else view

    def _without_runner(
        self, run: RunDir, recording: Recording | None, over: bool, breach: Breach
    ) -> GuardView:
        if over:
            return GuardView(run, ACTED if breach else ENDED, breach=breach)
        if recording is not None and recording.alive:
            return replace(self._watched(run, recording, breach), alone=True)
        breach = breach or (struck(recording) if recording is not None else breach)
        ring = recording.path if recording is not None else run.guard / guard_config.RING
        after = self._kept("after", ring, lambda run: crash_words(run.path), run)
        return GuardView(run, ACTED if breach else ENDED, breach=breach, after=after)

    def _kept(self, what: str, path: Path, read: Callable[[RunDir], Any], run: RunDir) -> Any:
        """Return what is read of a run; read it again only if this file of it has changed."""
        key = (path, stamp(path))
        if self._read.get(what, (None, None))[0] != key:
            self._read[what] = (key, read(run))
        return self._read[what][1]


def view_of(
    run: RunDir, page: dict[str, Any], config: GuardConfig | None, this_boot: bool
) -> GuardView:
    """Return a status page as a view. What the page lacks, or has in a wrong form, is not known."""
    limits = _page_limits(page) or (config.limits if config is not None else ())
    level = page.get("level")
    return GuardView(
        run=run,
        word=WARN if level in ("warn", "act") else OK if level == "ok" else UNREADABLE,
        at=number(page.get("mono")) if this_boot else None,
        detail="" if level in ("ok", "warn", "act") else "its page says no level",
        reasons=(*_texts(page.get("reasons")), *_texts(page.get("unknown"))),
        tte_s=number(page.get("tte_s")),
        filling=one_line(str(page.get("filling") or "RAM"), 12),
        rate=number(page.get("rate")),
        advisory=page.get("advisory") is True,
        limits=limits,
        marks=marks_of(limits),
        missing=_texts(page.get("missing")),
        spared=_texts(page.get("spared")),
        trouble=_texts(page.get("trouble")),
        lease=_lease(page.get("lease")),
    )


def marks_of(limits: tuple[Limit, ...]) -> Marks:
    """Return the nearest limit that kills, for each gauge."""
    kills = [limit for limit in limits if limit.act == "kill" and limit.metric and not limit.scarce]

    def nearest(metric: str, side: str, pick: Callable[[list[float]], float]) -> int | None:
        bounds = [getattr(limit, side) for limit in kills if limit.metric == metric]
        known = [value for value in bounds if value is not None]
        return int(pick(known)) if known else None

    def by_name(metric: str, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        return tuple(
            ("" if limit.of in names else limit.of, int(value))
            for limit in kills
            if limit.metric == metric and limit.of != "sum"
            and (value := limit.below if limit.below is not None else limit.above) is not None
        )  # fmt: skip

    return Marks(
        ram_available=nearest("host.ram_available", "below", max),
        swap_used=nearest("host.swap_used", "above", min),
        swap_free=nearest("host.swap_free", "below", max), swap_growth=_growth(limits),
        vram_free=by_name("gpu.memory_free", ("min", "max")),
        vram_used=by_name("gpu.memory_used", ("min", "max")), disk_free=by_name("disk.free", ()),
    )  # fmt: skip


def _growth(limits: tuple[Limit, ...]) -> int | None:
    """Return the limit on swap growth: worth showing though it counts only while RAM is short."""
    grown = [limit.above for limit in limits if limit.metric == "host.swap_growth" and limit.above]
    return int(min(grown)) if grown else None


def _page_limits(page: dict[str, Any]) -> tuple[Limit, ...]:
    limits = []
    for row in page.get("limits") or ():
        with contextlib.suppress(ValueError, TypeError):
            limits.append(Limit.from_json(row))
    return tuple(limits)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(text) for text in value) if isinstance(value, list) else ()


def _lease(value: object) -> Lease | None:
    lease = table(value)
    left, attended = number(lease.get("left_s")), lease.get("attended") is True
    return Lease(left, attended) if left is not None or attended else None


def config_of(run: RunDir) -> GuardConfig | None:
    """Return the guard config of a run; None if there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return guard_config.read(run.guard / guard_config.CONFIG_FILE)
    return None
