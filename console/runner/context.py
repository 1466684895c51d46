"""What an executor is given: the run, its services, and one attempt with its deadline and log."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common.clock import Clock
from console.common.errors import ConsoleError
from console.common.progress import Figures, Printed
from console.common.redact import Known
from console.common.spans import Spans
from console.common.text import clean, decode
from console.config.playbook.inputs import Secret
from console.config.site.notify import NotifyModel
from console.host import cgroup, matching
from console.host.children import Cancelled
from console.journal import events
from console.journal.fold import fold
from console.journal.run_dir import RunDir, RunMeta
from console.journal.run_view import RunView
from console.journal.state import Cause, RunState, StepState, check_transition
from console.journal.store import Journal, event_of, read_events
from console.notify import event as news
from console.notify import outbox
from console.recovery.rollback import evidence, live, observe
from console.recovery.rollback.baseline_state import BY, Kind, Witness, Word
from console.recovery.rollback.sealed_plan import SealedPlan, of_run
from console.recovery.rollback.stages import drain
from console.runner.control import Control
from console.runner.fault import point
from console.runner.prepare.plan import Plan
from console.runtime.spec import Handle

if TYPE_CHECKING:
    from console.bench.benchmark import BenchmarkResult
    from console.runner.guard.client import Guard
    from console.runner.peaks import Peaks
    from console.runner.services import RunServices

LOG_LIMIT = 64 * 1024 * 1024
"""Bytes of output kept of one attempt; what comes after is counted and dropped."""
KEPT, KEPT_LINES = 8 * 1024 * 1024, 20_000
"""Characters and lines of output kept in memory, for patterns: the last ones."""
SAY_INTERVAL_S = 1.0
VRAM_S = 5.0
"""The longest that one reading of the GPUs' memory takes, seconds."""


class StepFailed(Exception):
    """A step failed: the cause as a word, the detail for the operator."""

    def __init__(
        self,
        cause: Cause,
        detail: str,
        *,
        exit_code: int | None = None,
        lines: list[str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.exit_code = exit_code
        self.lines = lines or []


@dataclass(frozen=True, slots=True)
class Done:
    """A step that succeeded, or was skipped with a reason. `warned`: not all of it went well."""

    detail: str = ""
    skipped: bool = False
    exit_code: int | None = None
    warned: bool = False


@dataclass
class Context:
    """The parts of one run. `record` makes an event durable before anything else happens."""

    run: RunDir
    meta: RunMeta
    plan: Plan
    journal: Journal
    clock: Clock
    control: Control
    view: RunView
    services: RunServices = field(init=False)
    peaks: Peaks | None = None
    guard: Guard | None = None
    rehearsal: dict[str, Any] = field(default_factory=dict)
    """What a rehearsal put in the place of what; empty for a real run."""
    sealed: SealedPlan | None = None
    """What this process has sealed: the way back, should its file be lost."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def way_back(self) -> SealedPlan:
        """The sealed plan of this run. Raises ConsoleError if it cannot be found."""
        return self.sealed or of_run(self.run.path)

    def record(self, body: events.Body, step: str = "", attempt: int = 0) -> None:
        """Append to the journal and to this process's own view. Raises JournalError."""
        data, message = self.plan.known.data(body.data()), None
        with self._lock:
            at = self.clock.now()
            seq = self.journal.append(at, body.kind, step, attempt, data)
            written = event_of(seq, at, body.kind, step, attempt, data)
            fold([written], self.view)
            if self.channels:
                with contextlib.suppress(Exception):  # what cannot be told stops no run
                    message = news.happened(written, self.view)
        if self.guard is not None and isinstance(body, events.Outage):
            self.guard.outage(self.view.outage)
        if message is not None:
            outbox.post(self.channels, message)

    @property
    def channels(self) -> list[NotifyModel]:
        """Who is told of this run."""
        return self.plan.site.model.notify

    def tell_missed(self) -> None:
        """Post what a runner of this run that died has recorded and may not have posted. Only the
        run's own user knows what was: root, who may close it, has another outbox."""
        if self.channels and self.run.path.stat().st_uid == os.getuid():
            for message in news.missed(read_events(self.run.journal), self.clock.now()):
                outbox.post(self.channels, message)

    def note(self, step: str, attempt: int, state: StepState, **data: Any) -> None:
        """Record what has become of a step."""
        self.record(events.StepStateChange(state=state, **data), step, attempt)

    def enter(self, state: RunState, reason: str = "", detail: str = "", offer: str = "") -> None:
        """Go to a state of the run: first for the judgement of verbs, then in the journal.

        In this order, because whoever reads the new state in the journal may answer it at once.
        """
        if self.view.state is not state:
            check_transition(self.view.state, state)
        self.control.set(state=state, reason=reason)
        offered: dict[str, Any] = {"offer": offer} if offer else {}
        self.record(events.RunStateChange(state=state, reason=reason, detail=detail, **offered))

    def alive(self, handle: Handle, *, kind: str = "", expendable: bool = False) -> None:
        """Write an effect to live.jsonl as soon as it has a name: a rollback reads it there."""
        group = cgroup.of_process(handle.pid, handle.start) if handle.pid else ""
        entry = live.of_handle(handle, group, expendable=expendable)
        if kind:
            entry = replace(entry, kind=kind)
        live.append(self.run.live, entry)
        if self.guard is not None:
            self.guard.tell(do="arm")
        point("effect_recorded", handle.service)

    def secret(self, secret: Secret) -> str:
        try:
            return secret.read()
        except ValueError as error:
            raise StepFailed(Cause.PRECONDITION, f"secret '{secret.name}': {error}") from error

    def path(self, text: str) -> Path:
        """Resolve a path of the playbook against the playbook's directory."""
        return self.plan.playbook.base / Path(text).expanduser()


class Attempt:
    """One attempt at a step: its number, deadline, cancellation, and where its output goes."""

    def __init__(self, context: Context, step: str, number: int, limit_s: float) -> None:
        self.context = context
        self.step = step
        self.number = number
        self.limit_s = limit_s
        self.begun = context.clock.monotonic()
        self.cancelled = context.control.cancelled
        self.path = context.run.attempt_log(step, number)
        self.known = context.plan.known
        self.searching = False
        """Whether the step tries what may not fit, so that an OOM kill is a result."""
        self._said_at = float("-inf")
        self._last: tuple[str, Figures | None] = ("", None)
        self._counted: Figures | None = None
        self._printed = Printed()
        self._fd = -1
        self._written = 0
        self._dropped = 0
        self._rest = b""
        self._tail: deque[str] = deque()
        self._kept = 0

    def remaining(self) -> float:
        """Seconds left before the step's timeout; raises on cancel and timeout."""
        if self.cancelled.is_set():
            raise Cancelled(self.step)
        left = self.limit_s - (self.context.clock.monotonic() - self.begun)
        if left <= 0:
            raise StepFailed(Cause.TIMEOUT, f"not done within {self.limit_s:.0f} s")
        return left

    def pause(self, seconds: float) -> None:
        """Wait, but not past the deadline or a cancel."""
        self.context.clock.wait(self.cancelled, min(seconds, self.remaining()))
        self.remaining()

    def find(self, pattern: str, texts: list[str], *, lines: bool = False) -> list[Spans | None]:
        """Search a playbook's pattern, with a time limit. Raises StepFailed (output_invalid)."""
        try:
            return matching.find(pattern, texts, lines=lines, within_s=self.remaining())
        except matching.TooSlow as error:
            self.remaining()
            log_lines = self.last_lines()
            raise StepFailed(Cause.OUTPUT_INVALID, str(error), lines=log_lines) from error

    def say(
        self, text: str, progress: Figures | None = None, *, always: bool = False,
        run: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Report progress to viewers if it has changed, at most once a second, as each event is
        synced to disk. `progress`: how far the step is, unless it counts something larger itself;
        `run`: the figures of a benchmark's run, which are never left out."""
        now = self.context.clock.monotonic()
        news = clean(text, 300), self._counted or progress
        if always or run or (now - self._said_at >= SAY_INTERVAL_S and news != self._last):
            self._said_at, self._last = now, news
            figures = news[1]._asdict() if news[1] is not None else {}
            figures |= {"run": run} if run else {}
            self.context.record(events.StepSay(text=news[0], **figures), self.step, self.number)

    def count(self, progress: Figures) -> None:
        """How far the step is, for all that is said from now on: its parts, like the load of one
        of many servers, have figures of their own, which do not count then."""
        self._counted = progress

    def hide(self, secret: str) -> None:
        """Keep a secret out of the log from now on. Output is filtered line by line, so each line
        of the secret is hidden; lines under 4 characters are not, as they occur in normal text."""
        parts = (p for p in (secret, *secret.splitlines()) if len(p) >= 4)
        self.known |= Known(tuple(parts))

    def sink(self, data: bytes) -> None:
        """Write whole lines of the step's output, secrets replaced, to the capped attempt log."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-LOG_LIMIT:]
        if len(self._rest) > 1_000_000:  # a line without an end is cut, or it would fill memory
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._line(line)

    def hear(self, data: bytes) -> None:
        """Take output of a command: keep it, and say its last line and how far that tells it is. A
        bar that is drawn over itself has no line yet."""
        self.sink(data)
        if b"\r" in self._rest:
            self._printed.take(decode(self._rest[-400:]).split("\r")[-2:])
        if last := self.last_lines(1):
            self.say(last[0], self._printed.figures)

    def last_lines(self, count: int = 20) -> list[str]:
        """The last lines of output so far, clean."""
        return [clean(line) for line in [*self._tail][-count:]]

    def output(self) -> list[str]:
        """The last lines of output as one text, for patterns."""
        return list(self._tail)

    def close(self) -> None:
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        if self._dropped:
            self._write(f"--- {self._dropped} bytes of output dropped at the cap ---\n".encode())
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _line(self, raw: bytes) -> None:
        raw = self.known.raw(raw)
        self._tail.append(decode(raw[:100_000]).rstrip("\r"))
        self._printed.take(self._tail[-1].split("\r"))
        self._kept += len(self._tail[-1])
        while len(self._tail) > KEPT_LINES or self._kept > KEPT:
            self._kept -= len(self._tail.popleft())
        if self._written > LOG_LIMIT:
            self._dropped += len(raw)
            return
        self._write(raw + b"\n")

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        self._written += os.write(self._fd, data)


Executor = Callable[[Context, Any, Attempt], Done]
"""(context, planned step, attempt) → Done; raises StepFailed, Cancelled, ConsoleError."""


def outage(context: Context, step: str, attempt: int) -> None:
    """Record that this baseline is down from now on, and the last proof that it served before."""
    site = context.plan.site
    url = site.model.baseline.url
    before = evidence.last_proof(site.name, url)
    proof = before.at if before else 0.0
    context.record(events.Outage(down=True, url=url, proof=proof), step, attempt)


def baseline_measured(context: Context, attempt: Attempt, result: BenchmarkResult) -> None:
    """Keep what a benchmark of the baseline shows: how fast it is, or that it answers garbage. From
    then on that is its state, in the journal and on every face of the console."""
    from console.bench.answers import failure_of  # the measurement has loaded what that needs

    known = context.plan.site.model.baseline.reference
    reference, tolerance = (known.tok_s, known.tolerance) if known is not None else (None, 0.0)
    garbage = result.garbled if result.garbled is not None and result.garbled.mostly else ""
    # a reference is a rate after the first token, and so is what a rollback measures
    decode = result.metrics.get("decode_tok_s")
    rate = decode.median if decode is not None and decode.n else result.metrics["tok_s"].mean
    some = str(result.garbled) if result.garbled is not None and not garbage else ""
    seen = evidence.of_benchmark(
        rate, str(garbage), context.clock.now(), reference, tolerance, some,
        failure_of(result.url, result.runs),
    )  # fmt: skip
    if seen is None:
        return
    facts: dict[str, Any] = {"tok_s": seen.tok_s, "degraded": seen.degraded}
    facts |= {"notes": [some]} if some else {}
    if seen.word is Word.GARBLED:
        facts = {"garbled": seen.detail}
    if seen.kind is Kind.MEASURED or garbage:
        context.record(
            events.Serving(**facts, reference=reference, by=BY[Witness.BENCHMARK]),
            attempt.step, attempt.number,
        )  # fmt: skip
    with contextlib.suppress(ConsoleError, OSError):  # without the plan nobody knows whose it is
        plan = context.way_back()
        if observe.answers(plan, known=False):  # another server's answers say nothing of it
            evidence.record(plan, observe.known_start(plan, seen))


def wait_released(context: Context, attempt: Attempt) -> str:
    """Wait until the GPUs' used memory stops falling; return in words what was seen."""
    uuids = [gpu.uuid for gpu in context.plan.site.model.gpus]
    if not uuids:
        return "no GPUs in the site file"
    return drain.wait_for_vram(
        uuids, context.clock, lambda: attempt.pause(1.0), VRAM_S, attempt.say
    )
