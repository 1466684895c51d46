"""A breach, from the first kill signal to the rollback, and the recorder feed.

`BreachHandler` kills the targets, triggers the standby and writes breach.json. Each call does one
step and returns, so that sampling goes on. Files are written in a thread that is waited for only
briefly, because the disk may hang like the rest of the machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.common.clock import Clock
from console.common.files import write_atomically
from console.common.paths import module_argv, own_copy, sealed_argv
from console.common.text import one_line
from console.recovery.guard.config import ALLOCATION, BREACH, LEASE, GuardConfig
from console.recovery.guard.decide.limit_state import Metrics
from console.recovery.guard.decide.policy import Breach, Curves, Decision
from console.recovery.guard.kill.killer import Killer, KillOperation
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.snapshot import Load, Snapshot
from console.recovery.guard.record import status
from console.recovery.guard.record.recorder import Recorder
from console.recovery.guard.record.status import finite
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE, Follower, size_of
from console.recovery.rollback.trigger import Answer, StandbyFollower

PAGE_S, OK_PAGE_S = 0.5, 0.7
"""Seconds between two status pages: OK_PAGE_S at level ok, else PAGE_S. A page is also due when the
level changes."""
QUIET_S = 5.0
LEVEL_WORDS = {"ok": "calm", "warn": "a limit is near", "act": "a limit was passed"}


class RecorderFeed:
    """Gives the recorder its samples, the records of each second, the status page, and changes of
    level. `window` and `curves` keep the last samples; `own` is what the sentinel itself uses."""

    def __init__(self, ring: Recorder, clock: Clock) -> None:
        self.window: Window = deque(maxlen=WINDOW)
        self.curves = Curves()
        self.own: dict[str, Any] = {}
        self._ring, self._clock = ring, clock
        self._upkeep = status.Upkeep()
        self._level = ""
        self._said_at = self._page_at = float("-inf")

    def record(
        self, snapshot: Snapshot, decision: Decision, metrics: Metrics,
        shown: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        """Record one tick. `shown` makes the status page and is called only when one is due."""
        memory, full = snapshot.memory, metrics.full.share
        if memory is not None:
            self._ring.tick(memory, metrics.some.share, full, decision.level)
            self.window.append((self._clock.now(), memory.available, memory.swap_used, full))
        changed = decision.level != self._level
        if changed:
            self._level = decision.level
            self._say_level(decision, snapshot.at)
        due = OK_PAGE_S if decision.level == "ok" else PAGE_S
        if changed or snapshot.at - self._page_at >= due:
            self._page_at = snapshot.at
            self._ring.status(shown())

    def second(self, snapshot: Snapshot) -> None:
        self.own = self._upkeep.read()
        self.curves.add(snapshot)
        self._ring.second({**status.parts(snapshot), "own": self.own})

    def _say_level(self, decision: Decision, now: float) -> None:
        """Record a change of level, at most one every QUIET_S except to "act": a level that keeps
        changing must not push all other events out of the recorder."""
        if decision.level != "act" and now - self._said_at < QUIET_S:
            return
        self._said_at = now
        words = "; ".join(decision.reasons or decision.unknown) or LEVEL_WORDS[decision.level]
        self._ring.event(decision.level, one_line(words))


TRIGGER_S = 0.5
"""The rollback is triggered when all targets are dead, or this long after the first kill signal.
The rollback then fences the runner and waits itself until the memory is free."""
WRITE_S = 1.0
FIRST_LINE_S = 3.0
"""If the standby reports nothing for this long, it counts as dead, and the command is started."""
FOLLOW_S = 0.5
"""How often the triggered rollback is checked while it runs."""
WHY_COMMAND = {
    None: "no standby waits",
    Answer.SILENT: "the standby does not answer",
    Answer.GONE: "the standby died, or was stopped, during the rollback",
}
WINDOW = 1500
Say = Callable[[str, str], None]


@dataclass(slots=True)
class BreachRecord:
    """What breach.json says; see `BreachHandler.to_json`. `crossed` is the monotonic second from
    which the time to the kill is counted."""

    cause: str
    reason: str
    wall: float
    mono: float
    data: dict[str, Any]
    crossed: float = 0.0
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Maps the identity of each target to what it held before the kill: `ram` and `swap` in bytes
    without page cache, and `age_s`."""


Window = deque[tuple[float, int, int, float | None]]
"""The last samples for breach.json, as rows of [wall, available, swap used, full %]."""


class BreachHandler:
    """Handles one breach, or a lease that expired. Call `advance` at every tick until `over`."""

    def __init__(
        self, config: GuardConfig, record: BreachRecord, window: Window, clock: Clock, say: Say,
        spawn: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._config, self._record, self._window = config, record, window
        self._clock, self._say, self._spawn = clock, say, spawn
        self._operation: KillOperation | None = None
        self._begun = clock.monotonic()
        self._reported: set[tuple[str, str]] = set()
        self._standby: StandbyFollower | None = None
        self._lines = Follower(config.rollback_dir / PROGRESS_FILE, 0, None, emergency=False)
        self._triggered = self._under_way = self._settled = self._written = False
        self._next = self._retry_at = 0.0
        self._failed = False
        self.over = False

    def kill(self, killer: Killer, targets: Sequence[Target]) -> None:
        """Send the first kill signals, before anything else."""
        self._operation = killer.kill(targets, self._record.crossed)
        self._begun = self._clock.monotonic()

    def advance(self) -> None:
        """Advance as far as possible without waiting."""
        now, operation = self._clock.monotonic(), self._operation
        ended = operation is None or operation.over
        if operation is not None and not operation.over:
            ended = operation.advance()
            self._report_stages(operation)
            if ended:
                operation.close()
                self._say_end(operation)
        if not self._triggered and (ended or now - self._begun >= TRIGGER_S):
            self._write()
            self._trigger(now)
        if self._triggered and not self._settled:
            self._follow(now)
        if ended and self._under_way and not self._written:
            self._written = True
            self._write()
        self.over = self._written and self._settled

    def _report_stages(self, operation: KillOperation) -> None:
        for outcome in operation.killed:
            for stage in (*outcome.stages, *([f"stuck: {outcome.stuck}"] if outcome.stuck else [])):
                if (outcome.who, stage) not in self._reported:
                    self._reported.add((outcome.who, stage))
                    self._say("kill", one_line(f"{outcome.name}: {stage}"))

    def _say_end(self, operation: KillOperation) -> None:
        for outcome in operation.killed:
            words = (
                "still there" if outcome.empty_s is None else f"gone after {outcome.empty_s:.3f} s"
            )
            self._say("kill", one_line(f"{outcome.name}: {words}"))
        for refused in operation.refused:
            self._say("spared", one_line(refused))

    def _write(self) -> None:
        """Write breach.json in a thread. Nothing waits longer than WRITE_S for a disk."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        path = self._config.directory / BREACH

        def write() -> None:
            with contextlib.suppress(OSError):
                write_atomically(path, text, 0o600)

        thread = threading.Thread(target=write, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started
            write()
            return
        thread.join(WRITE_S)

    def to_json(self) -> dict[str, Any]:
        """Return the content of breach.json. `at` and `wall` are Unix seconds and `mono` is the
        same moment; `crossed` is when the limit was passed and `gap_s` for how long nothing had
        been read before (see `Breach`). `killed` is as in `Killed`, with `rung`, `write_s` and what
        each target `held`. For `curve` see `Curves`. `window` has rows of [wall, RAM available,
        swap used, full %]."""
        record = self._record
        report = self._operation.report() if self._operation is not None else {"killed": []}
        killed = [
            {
                **outcome,
                "held": record.held.get(outcome["who"]),
                "rung": (outcome["rungs"] or ["nothing"])[0],
                "write_s": outcome["written_s"],
                "why": "; ".join(
                    [*outcome["why"], *([outcome["stuck"]] if outcome["stuck"] else [])]
                ),
            }
            for outcome in report["killed"]
        ]
        return {
            "at": record.wall, "wall": record.wall, "mono": record.mono, "crossed": record.crossed,
            "cause": record.cause,
            "run_id": self._config.run_id, "reason": record.reason, **record.data, **report,
            "killed": killed, "window": {"fast": list(self._window)},
        }  # fmt: skip

    def _trigger(self, now: float) -> None:
        directory = self._config.rollback_dir
        progress_file = directory / PROGRESS_FILE
        self._lines = Follower(progress_file, size_of(progress_file), None, emergency=False)
        self._triggered = True
        if trigger.is_standing_by(directory) and trigger.trigger(directory, trigger.SENTINEL):
            self._standby = StandbyFollower(
                directory, self._lines, now, first_line_s=FIRST_LINE_S, quiet_s=lambda: math.inf
            )
            self._say("ladder", "the standby was triggered")

    def _follow(self, now: float) -> None:
        """Follow the standby's rollback, since the baseline would stay down if the standby died
        half way. Start the command if the standby does not answer."""
        if self._under_way and now < self._next:
            return
        self._next = now + FOLLOW_S
        answer = None if self._standby is None else self._standby.step(now)
        if self._lines.seen and not self._under_way:
            self._under_way = True
            self._say("ladder", "the rollback is under way")
        if answer is Answer.ENDED:
            self._settled = True
        elif answer is not Answer.WAITING:
            self._start(WHY_COMMAND[answer], now)

    def _start(self, why: str, now: float) -> None:
        """Start `omni-console rollback` once. If the standby's rollback runs after all, the command
        follows it. If no process can be started now, try again later."""
        if now < self._retry_at:
            return
        if self._spawn():
            self._under_way = self._settled = True
            self._say("ladder", f"{why}: omni-console rollback is started")
            return
        self._retry_at = now + FOLLOW_S
        if not self._failed:
            self._say("ladder", f"{why}, and omni-console rollback cannot be started yet")
        self._failed = True


def record_of(breach: Breach, wall: float) -> BreachRecord:
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
    """Return what each target held when it was last read. `loads` are the readings of the last
    second, and `read` returns a newer (time, bytes) of a target, or None."""
    memory_by_target = {}
    for target in targets:
        load = next((x for x in loads if (x.kind, x.name) == (target.kind, target.name)), None)
        at, ram = read(target) or ((load.at, load.ram) if load is not None else (now, None))
        memory_by_target[target.who] = {
            "ram": ram, "swap": load.swap if load is not None else None,
            "age_s": None if ram is None else round(max(0.0, now - at), 3),
        }  # fmt: skip
    return memory_by_target


def lease_record(length_s: float, now: float, wall: float) -> BreachRecord:
    """Return the record of an expired lease. The guard kills nothing: the rollback stops what
    runs."""
    words = f"nobody was attached for {length_s:.0f} s while the baseline was down"
    return BreachRecord(LEASE, words, wall, now, {"reasons": [words], "limit": {}}, now)


def allocation_record(now: float, wall: float) -> BreachRecord:
    """Return the record of an allocation that was lost. As with a lease, the rollback stops what
    runs."""
    words = "Slurm's job that held the cards has ended, or was stopped"
    return BreachRecord(ALLOCATION, words, wall, now, {"reasons": [words], "limit": {}}, now)


def start_rollback(run_dir: str, lower_priority: Callable[[int], None]) -> bool:
    """Start a rollback of a run in a session of its own, with an ordinary priority. Returns whether
    the process could be started."""
    copy = own_copy()
    argv = sealed_argv(copy, run_dir) if copy else (*module_argv("console.cli"), "rollback")
    environment = {k: v for k, v in os.environ.items() if k not in ("OMNI_RUN", "OMNI_STEP")}
    try:
        child = subprocess.Popen(
            argv, env=environment,
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
    """Reap the started commands that have ended; restart the child that frees memory if it died."""
    if killer.reaper is not None and (words := killer.reaper.tend()):
        say("reaper", one_line(words))
    _spawned[:] = [command for command in _spawned if command.poll() is None]


_spawned: list[subprocess.Popen[bytes]] = []
