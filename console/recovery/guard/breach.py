"""A breach from the first blow to the ladder: kill, say it, wake, and write what became of it.

Each call goes a step and returns: samples go on meanwhile. Files are written in a thread that is
waited for a moment at most, since a disk may be as stuck as the rest.

What a sentinel puts into the recorder: samples, seconds, the page, a level that changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.common.clock import Clock
from console.common.files import write_atomically
from console.common.paths import module_argv
from console.common.text import one_line
from console.recovery.guard.config import BREACH, GuardConfig
from console.recovery.guard.decide.policy import Breach, Curves, Decision
from console.recovery.guard.kill.killer import Killer, KillOperation
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.memory import Pressure
from console.recovery.guard.observe.snapshot import Load, Memory, Snapshot
from console.recovery.guard.record import status
from console.recovery.guard.record.recorder import Recorder
from console.recovery.guard.record.status import finite
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines

PAGE_S, CALM_PAGE_S = 0.5, 0.7
"""Less than the second in which everything is judged: a look that came a moment short of it would
write no page, and the next one is a second away."""
QUIET_S = 5.0
LEVEL_WORDS = {"ok": "calm", "warn": "a limit is near", "act": "a limit was passed"}


class RecorderFeed:
    """`window` and `curves` are the last samples, `own` what the sentinel itself takes."""

    def __init__(self, ring: Recorder, clock: Clock) -> None:
        self.window, self.curves = Window(), Curves()
        self.own: dict[str, Any] = {}
        self._ring, self._clock = ring, clock
        self._pressure, self._upkeep = Pressure(), status.Upkeep()
        self._level = ""
        self._said_at = self._page_at = float("-inf")

    def record(
        self, snapshot: Snapshot, decision: Decision, shown: Callable[[], dict[str, Any]]
    ) -> None:
        """One tick; the page is asked for when it is due."""
        self.sample(snapshot.memory, decision.level)
        changed = decision.level != self._level
        if changed:
            self._level = decision.level
            self._say_level(decision, snapshot.at)
        due = CALM_PAGE_S if decision.level == "ok" else PAGE_S
        if changed or snapshot.at - self._page_at >= due:
            self._page_at = snapshot.at
            self._ring.status(shown())

    def sample(self, memory: Memory | None, level: str = "") -> None:
        """One sample of the recorder; without a level that of before."""
        if memory is not None:
            some, full = self._pressure.update(memory)
            self._ring.tick(memory, some, full, level or self._level)
            self.window.add(self._clock.now(), memory.available, memory.swap_used, full)

    def second(self, snapshot: Snapshot) -> None:
        """The record of a second."""
        self.own = self._upkeep.read()
        self.curves.add(snapshot)
        self._ring.second({**status.parts(snapshot), "own": self.own})

    def close(self) -> None:
        self._upkeep.close()

    def _say_level(self, decision: Decision, now: float) -> None:
        """A level that comes and goes must not push everything else out of the recorder."""
        if decision.level != "act" and now - self._said_at < QUIET_S:
            return
        self._said_at = now
        words = "; ".join(decision.reasons or decision.unknown) or LEVEL_WORDS[decision.level]
        self._ring.event(decision.level, one_line(words))


WAKE_S = 0.5
"""The ladder is woken when all are dead, or this long after the first blow: it fences the runner,
and waits itself until the memory is back."""
WRITE_S = 1.0
WORD_S = 3.0
"""A ladder that has said nothing for this long is not there: the command climbs instead."""
FOLLOW_S = 0.5
"""How often the ladder that was woken is looked after while it climbs."""
WINDOW = 1500
Say = Callable[[str, str], None]


@dataclass(slots=True)
class BreachRecord:
    """breach.json: see `BreachHandler`. `crossed`: monotonic seconds, where a kill counts from."""

    cause: str
    reason: str
    wall: float
    mono: float
    data: dict[str, Any]
    crossed: float = 0.0
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Identity of a target → `ram`, `swap` (bytes without page cache) and `age_s` before the
    blow."""


class Window:
    """The last samples, for the file: [wall, available, swap used, full %]."""

    def __init__(self) -> None:
        self.rows: deque[tuple[float, int, int, float | None]] = deque(maxlen=WINDOW)

    def add(self, wall: float, available: int, swap: int, full: float | None) -> None:
        self.rows.append((wall, available, swap, full))

    def to_json(self) -> dict[str, Any]:
        return {"fast": [list(row) for row in self.rows]}


class BreachHandler:
    """One breach, or a lease that ran out. `look()` at every tick until `over`."""

    def __init__(
        self, config: GuardConfig, page: BreachRecord, window: Window, clock: Clock, say: Say,
        spawn: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._config, self._page, self._window = config, page, window
        self._clock, self._say, self._spawn = clock, say, spawn
        self._operation: KillOperation | None = None
        self._begun = clock.monotonic()
        self._told: set[tuple[str, str]] = set()
        self._woken_at: float | None = None
        self._ladder = 0
        self._under_way = self._alone = self._written = False
        self._next = self._retry_at = 0.0
        self._failed = ""
        self.over = False

    def kill(self, killer: Killer, targets: Sequence[Target]) -> None:
        """The first blow, before anything else."""
        self._operation = killer.kill(targets, self._page.crossed)
        self._begun = self._clock.monotonic()

    def advance(self) -> None:
        """Go on as far as it goes without waiting."""
        now, operation = self._clock.monotonic(), self._operation
        ended = operation is None or operation.over
        if operation is not None and not operation.over:
            ended = operation.advance()
            self._stages(operation)
            if ended:
                operation.close()
                self._end_words(operation)
        if self._woken_at is None and (ended or now - self._begun >= WAKE_S):
            self._write()
            self._wake(now)
        if self._woken_at is not None and not self._under_way:
            self._heard(now)
        if ended and self._under_way and not self._written:
            self._written = True
            self._write()
        self.over = self._written and self._settled(now)

    def _stages(self, operation: KillOperation) -> None:
        for one in operation.killed:
            for stage in (*one.stages, *([f"stuck: {one.stuck}"] if one.stuck else [])):
                if (one.who, stage) not in self._told:
                    self._told.add((one.who, stage))
                    self._say("kill", one_line(f"{one.name}: {stage}"))

    def _end_words(self, operation: KillOperation) -> None:
        for one in operation.killed:
            words = "still there" if one.empty_s is None else f"gone after {one.empty_s:.3f} s"
            self._say("kill", one_line(f"{one.name}: {words}"))
        for refused in operation.refused:
            self._say("spared", one_line(refused))

    def _write(self) -> None:
        """breach.json, within WRITE_S or later: nothing waits longer for a disk."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        path = self._config.directory / BREACH

        def write() -> None:
            with contextlib.suppress(OSError):
                write_atomically(path, text, 0o600)

        thread = threading.Thread(target=write, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread left
            write()
            return
        thread.join(WRITE_S)

    def to_json(self) -> dict[str, Any]:
        """`at` and `wall`: Unix seconds, `mono` the same moment, `crossed` when the limit was
        passed (see `Breach`), `gap_s`; `killed` as in `Killed`, with `rung`, `write_s` and what it
        `held`; `curve`: see `Curves`; `window`: rows of [wall, RAM available, swap used, full %].
        """
        page = self._page
        report = self._operation.report() if self._operation is not None else {"killed": []}
        killed = [
            {
                **one, "held": page.held.get(one["who"]),
                "rung": (one["rungs"] or ["nothing"])[0], "write_s": one["written_s"],
                "why": "; ".join([*one["why"], *([one["stuck"]] if one["stuck"] else [])]),
            }
            for one in report["killed"]
        ]  # fmt: skip
        return {
            "at": page.wall, "wall": page.wall, "mono": page.mono, "crossed": page.crossed,
            "cause": page.cause,
            "run_id": self._config.run_id, "reason": page.reason, **page.data, **report,
            "killed": killed, "window": self._window.to_json(),
        }  # fmt: skip

    def _wake(self, now: float) -> None:
        directory = self._config.rollback_dir
        self._ladder = _size(directory / PROGRESS_FILE)
        self._woken_at = now
        if trigger.is_standing_by(directory) and trigger.trigger(directory, trigger.SENTINEL):
            self._say("ladder", "the standby was triggered")
            return
        self._start("no standby waits", now)

    def _heard(self, now: float) -> None:
        if _size(self._config.rollback_dir / PROGRESS_FILE) != self._ladder:
            self._under_way = True
            self._say("ladder", "the rollback is under way")
        elif self._failed or (self._woken_at is not None and now - self._woken_at >= WORD_S):
            self._start(self._failed or "it says nothing", now)

    def _start(self, why: str, now: float) -> None:
        """`omni-console rollback`, once: it follows a ladder that climbs after all. Where no
        process can be had now it is tried again."""
        if now < self._retry_at:
            return
        if self._spawn():
            self._under_way = self._alone = True
            self._say("ladder", f"{why}: omni-console rollback is started")
            return
        self._retry_at = now + FOLLOW_S
        if not self._failed:
            self._say("ladder", f"{why}, and omni-console rollback cannot be started yet")
        self._failed = why

    def _settled(self, now: float) -> bool:
        """Whether nobody has to be watched any more: the ladder that was woken said how it ended,
        or another one was started. One that dies half way would leave the baseline down."""
        if self._alone or self.over:
            return True
        if now < self._next:
            return False
        self._next = now + FOLLOW_S
        directory = self._config.rollback_dir
        lines, _ = read_lines(directory / PROGRESS_FILE, self._ladder)
        if any(line.get("rung") == "done" for line in lines):
            return True
        if not trigger.is_standing_by(directory, running=True):
            self._start("the standby died, or was stopped, during the rollback", now)
        return self._alone


def record_of(breach: Breach, wall: float) -> BreachRecord:
    """What the judge found, as a page."""
    return BreachRecord("guard", breach.reason, wall, breach.at, {
        "reasons": list(breach.reasons), "limit": breach.limit.to_json(), "value": breach.value,
        "of": breach.of, "tte_s": finite(breach.tte_s), "rate": breach.rate,
    }, breach.crossed_at)  # fmt: skip


def held(
    targets: Sequence[Target],
    loads: Sequence[Load],
    now: float,
    read: Callable[[Target], tuple[float, int] | None] = lambda target: None,
) -> dict[str, dict[str, Any]]:
    """What each target held when it was read last; `read`: what is known of it since the loads."""
    found = {}
    for target in targets:
        load = next((x for x in loads if (x.kind, x.name) == (target.kind, target.name)), None)
        at, ram = read(target) or ((load.at, load.ram) if load is not None else (now, None))
        found[target.who] = {
            "ram": ram, "swap": load.swap if load is not None else None,
            "age_s": None if ram is None else round(max(0.0, now - at), 3),
        }  # fmt: skip
    return found


def lease_record(length_s: float, now: float, wall: float) -> BreachRecord:
    """A lease that ran out: nobody is killed here, the ladder stops what runs."""
    words = f"nobody was attached for {length_s:.0f} s while the baseline was down"
    return BreachRecord("lease", words, wall, now, {"reasons": [words], "limit": {}}, now)


def start_rollback(lower_priority: Callable[[int], None]) -> bool:
    """`omni-console rollback` in a session of its own, with an ordinary priority; whether there was
    room for it."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMNI_RUN", "OMNI_STEP")}
    try:
        child = subprocess.Popen(
            [*module_argv("console.cli"), "rollback"], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        return False
    _spawned.append(child)
    with contextlib.suppress(OSError):
        lower_priority(child.pid)
    return True


def reap(killer: Killer, say: Callable[[str, str], None]) -> None:
    """Take note of started commands that have ended, and of the child that frees memory."""
    if killer.reaper is not None and (words := killer.reaper.tend()):
        say("reaper", one_line(words))
    _spawned[:] = [one for one in _spawned if one.poll() is None]


_spawned: list[subprocess.Popen[bytes]] = []


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
