"""What a rollback reports: one JSON line for each step of a stage, to a file and to a callback.

The file is rollback/ladder.jsonl. On a full disk or in a read-only directory the file lacks lines,
but the rollback goes on and the callback still gets every line.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from console.common import record, redact
from console.common.clock import Clock
from console.common.errors import Exit
from console.common.files import open_untrusted, private_mode, read_end
from console.common.text import one_line
from console.recovery.rollback import trigger as standby
from console.recovery.rollback.sealed_plan import SealedPlan

PROGRESS_FILE = "ladder.jsonl"
REQUESTS_FILE = "asked.jsonl"
StageName = Literal[
    "fence", "stop", "memory", "start", "ready", "completion", "serving", "measure", "done"
]
"""The stages in their order; `make check` refuses a line with any other name."""
DETAIL_LIMIT = 800
REPEAT_S = 10.0
"""Seconds before a note that repeats the previous one is written again."""
Line = dict[str, Any]
Emit = Callable[[Line], None]


AGAIN, BY_HAND = "asking again for up to", "by hand: "
"""How a note says that a rollback waits, and what a person may type meanwhile."""
RUNNER = "runner"
"""The first word of the id of a rollback that the runner asked for."""
SCRIPT = "script"
"""The first word of the id in the final line, the only one that rollback.sh writes."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Who asked, and when. An `emergency` fences the runner; `begun` is in monotonic seconds."""

    id: str
    emergency: bool
    begun: float


def new_trigger(clock: Clock, emergency: bool = True, who: str = "") -> Trigger:
    """A trigger that begins now, with a unique id whose first word is `who`."""
    word = who or ("emergency" if emergency else RUNNER)
    unique = f"{int(clock.now() * 1000)}-{os.getpid()}-{os.urandom(2).hex()}"
    return Trigger(f"{word}-{unique}", emergency, clock.monotonic())


def is_of_runner(trigger: object) -> bool:
    """Whether this is the id of a rollback that the runner asked for."""
    return str(trigger).startswith(f"{RUNNER}-")


NOTHING = "nothing was rolled back"
"""How the words begin of a rollback that found neither a run nor a site file."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a rollback ended. Rates are in tokens a second; `restore_s` is in seconds, None if the
    baseline was not started. `beside`: who was answered while it was measured; `remark`: what else
    is to be known of its answers; `left`: what should be gone and still runs beside it, so that one
    of two loaded engines may end at any moment. All three are clean."""

    serving: bool
    degraded: bool = False
    tok_s: float | None = None
    reference: float | None = None
    restore_s: float | None = None
    nothing_to_do: bool = False
    manual: tuple[str, ...] = ()
    detail: str = ""
    beside: str = ""
    remark: str = ""
    left: str = ""

    @property
    def notes(self) -> list[str]:
        """What is to be said of a baseline that serves, beside its rate."""
        beside = f"measured beside others ({self.beside})" if self.beside else ""
        left = f"{self.left} still runs beside it" if self.left else ""
        return [note for note in (beside, self.remark, left) if note]

    @property
    def is_sound(self) -> bool:
        """Whether the baseline serves as it should, and alone."""
        return self.serving and not self.degraded and not self.left

    @property
    def headline(self) -> str:
        """How the rollback ended, in a few words."""
        if not self.serving:
            return "Nothing to roll back" if self.nothing_to_do else "ROLLBACK FAILED"
        words = "Nothing to roll back: the baseline serves" if self.nothing_to_do else ""
        slow = "DEGRADED" if self.degraded else ""
        words = ", ".join(filter(None, (words, slow))) or "THE BASELINE SERVES"
        return f"{words}, NOT ALONE" if self.left else words

    @property
    def exit_code(self) -> Exit:
        """0 only for a baseline that serves, and alone where its candidate may not run beside
        it. 2 where nothing says which one: nothing was tried, so
        nothing has failed, and somebody has to name the site."""
        if self.serving:
            return Exit.ROLLBACK_FAILED if self.left else Exit.OK
        return Exit.USAGE if self.nothing_to_do else Exit.ROLLBACK_FAILED

    def fields(self) -> Line:
        """The keys that only the final line has."""
        return {
            "serving": self.serving,
            "degraded": self.degraded,
            "tok_s": self.tok_s,
            "reference": self.reference,
            "restore_s": self.restore_s,
            "nothing_to_do": self.nothing_to_do,
            **({"beside": self.beside} if self.beside else {}),
            **({"remark": self.remark} if self.remark else {}),
            **({"left": self.left} if self.left else {}),
            **({"manual": list(self.manual)} if self.manual else {}),
        }


def result_of(line: Line) -> Result:
    """The result in a final line; a value of a wrong type counts as absent."""

    def number(key: str) -> float | None:
        value = line.get(key)
        return float(value) if isinstance(value, int | float) else None

    manual = line.get("manual")
    return Result(
        serving=line.get("serving") is True,
        degraded=line.get("degraded") is True,
        tok_s=number("tok_s"),
        reference=number("reference"),
        restore_s=number("restore_s"),
        nothing_to_do=line.get("nothing_to_do") is True,
        manual=tuple(str(m) for m in manual) if isinstance(manual, list) else (),
        detail=str(line.get("detail", "")),
        beside=one_line(str(line.get("beside") or ""), DETAIL_LIMIT),
        remark=one_line(str(line.get("remark") or ""), DETAIL_LIMIT),
        left=one_line(str(line.get("left") or ""), DETAIL_LIMIT),
    )


class Report:
    """Writes the lines of one rollback; several threads may call it. Never raises."""

    def __init__(
        self, path: Path, trigger: Trigger, clock: Clock, emit: Emit | None,
        secrets: redact.Known = redact.NONE,
    ) -> None:  # fmt: skip
        """`secrets` are the plan's own, which are in no line, whatever stands around them."""
        self.trigger = trigger
        self._secrets = secrets
        self._path = path
        self._clock = clock
        self._emit = emit
        self._lock = threading.Lock()
        self._descriptor = -1
        self._wanted = threading.Event()
        self._closing = False
        self._noted = ("", 0.0)
        self._syncer: threading.Thread | None = None

    def begin(self, stage: StageName, detail: str = "") -> None:
        self.say(stage, "begin", detail)

    def ok(self, stage: StageName, detail: str = "") -> None:
        self.say(stage, "ok", detail)

    def skipped(self, stage: StageName, detail: str) -> None:
        self.say(stage, "skipped", detail)

    def failed(self, stage: StageName, detail: str) -> None:
        self.say(stage, "failed", detail)

    def note(self, stage: StageName, detail: str) -> None:
        """Write a note; repeat the same one only every REPEAT_S, so that a wait stays readable."""
        now = self.elapsed_s()
        with self._lock:
            if detail == self._noted[0] and now - self._noted[1] < REPEAT_S:
                return
            self._noted = (detail, now)
        self.say(stage, "note", detail)

    def elapsed_s(self) -> float:
        """Seconds since the trigger."""
        return self._clock.monotonic() - self.trigger.begun

    def say(
        self, stage: StageName, state: str, detail: str = "", fields: Line | None = None
    ) -> None:
        """Write one line to the file and to the callback; `detail` is cleaned here."""
        line: Line = {
            "trigger": self.trigger.id,
            "rung": stage,
            "state": state,
            "at": round(self._clock.now(), 3),
            "t": round(self.elapsed_s(), 4),
            "detail": one_line(self._secrets.text(detail), DETAIL_LIMIT),
            **self._secrets.data(fields or {}),
        }
        with self._lock:
            with contextlib.suppress(OSError):
                self._write(line)
            if self._emit is not None:
                # A callback that raises (because a terminal or a screen was closed) must not stop
                # the rollback.
                with contextlib.suppress(Exception):
                    self._emit(line)

    def done(self, result: Result) -> None:
        """Write the final line, sync the file and close it."""
        self.say("done", "ok" if result.serving else "failed", result.detail, result.fields())
        self.close()

    def close(self) -> None:
        """Sync and close the file, within a second at most, because a disk may hang."""
        self._closing = True
        self._wanted.set()
        if self._syncer is not None:
            self._syncer.join(1.0)
        elif self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def _write(self, line: Line) -> None:
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            mode = private_mode(self._path.parent)
            self._descriptor = os.open(self._path, flags, mode)
            info = os.fstat(self._descriptor)
            if mode == 0o600 and info.st_uid == os.getuid() and stat.S_ISREG(info.st_mode):
                os.fchmod(self._descriptor, mode)  # an earlier version let everybody read it
            size = info.st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")
            # fsync can take seconds under memory pressure, so a thread of its own does it.
            syncer = threading.Thread(target=self._sync, name="rollback-sync", daemon=True)
            with contextlib.suppress(RuntimeError):  # without a thread, the kernel writes it later
                syncer.start()
                self._syncer = syncer
        os.write(self._descriptor, (json.dumps(line) + "\n").encode())
        self._wanted.set()

    def _sync(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            last = self._closing
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
            if last:
                os.close(self._descriptor)
                return


def read_lines(path: Path, offset: int = 0) -> tuple[list[Line], int]:
    """Return the whole lines from a byte offset on (of a long file, those at its end), and the
    offset after them. There are none if the file cannot be read."""
    try:
        data, offset = read_end(path, offset)
    except OSError:
        return [], offset
    end = data.rfind(b"\n") + 1
    lines: list[Line] = []
    for raw in data[:end].split(b"\n"):
        if (line := record.table(raw)) is not None:
            lines.append(line)
    return lines, offset + end


def record_request(directory: Path, who: str, at: float) -> None:
    """Record for the run's journal who asked for a rollback at which Unix time. Never raises."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = open_untrusted(directory / REQUESTS_FILE, flags, 0o644)
        try:
            os.write(descriptor, json.dumps({"who": who, "at": at}).encode() + b"\n")
        finally:
            os.close(descriptor)


def who_asked(directory: Path) -> str:
    """Who was the last to ask, as `record_request` recorded it; empty if nobody did."""
    lines, _ = read_lines(directory / REQUESTS_FILE)
    return one_line(str(lines[-1].get("who", "")), 80) if lines else ""


def quiet_limit(plan: SealedPlan) -> float:
    """Seconds of silence after which a rollback counts as stuck.

    A baseline loads in silence until its ready timeout, and an engine may be away for minutes.
    """
    return 360.0 + plan.baseline.ready_timeout_s + 2 * plan.baseline.completion.timeout_s


def size_of(path: Path) -> int:
    """The file's size in bytes, 0 if there is none: the offset at which following begins."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Follower:
    """Reads another rollback's lines as they come, passes them on, and notices the final one."""

    def __init__(
        self, path: Path, offset: int, emit: Emit | None, *, emergency: bool = True
    ) -> None:
        """With `emergency`, the final line of a rollback that the runner asked for is passed on but
        is not the result, because that rollback has not ended the runner."""
        self._path = path
        self._offset = offset
        self._emit = emit
        self._emergency = emergency
        self.seen = 0
        self.result: Result | None = None

    def poll(self) -> Result | None:
        """Pass on the new lines; return the result, and keep it, once the final line is there."""
        lines, self._offset = read_lines(self._path, self._offset)
        for line in lines:
            self.seen += 1
            if self._emit is not None:
                with contextlib.suppress(Exception):
                    self._emit(line)
            ignored = self._emergency and is_of_runner(line.get("trigger"))
            if line.get("rung") == "done" and line.get("state") != "begin" and not ignored:
                self.result = result_of(line)
                break
        return self.result


POLL_S = 0.01


def through_standby(
    rollback_dir: Path,
    emit: Emit | None,
    clock: Clock,
    *,
    first_line_s: float,
    quiet_s: Callable[[], float],
    emergency: bool = True,
) -> Result | None:
    """Trigger the standby and follow its rollback to the end; `emit` gets each line.

    Return None if there is no standby, or if it died, was stopped or is stuck: the caller then
    rolls back itself. For the seconds see StandbyFollower, for `emergency` see Follower.
    """
    path = rollback_dir / PROGRESS_FILE
    lines = Follower(path, size_of(path), emit, emergency=emergency)
    byte = standby.EMERGENCY if emergency else standby.REQUEST
    if not standby.is_standing_by(rollback_dir) or not standby.trigger(rollback_dir, byte):
        return None
    follower = standby.StandbyFollower(
        rollback_dir, lines, clock.monotonic(), first_line_s=first_line_s, quiet_s=quiet_s
    )
    while follower.step(clock.monotonic()) is standby.Answer.WAITING:
        clock.sleep(POLL_S)
    if lines.result is None:
        standby.end_stopped(rollback_dir)
    return lines.result


def unfinished(path: Path) -> int:
    """The offset where the newest rollback begins that has no final line; else the file's end."""
    try:
        data, at = read_end(path)
    except OSError:
        return 0
    begin = at
    trigger: object = None
    for raw in data.splitlines(keepends=True):
        if (line := record.table(raw)) is not None:
            if line.get("trigger") != trigger:
                trigger, begin = line.get("trigger"), at
            if line.get("rung") == "done":
                begin = at + len(raw)
        at += len(raw)
    return begin
