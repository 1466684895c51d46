"""A soak: one request after another for a long time, paced, watched for silence.

Only observed time counts. Everything that happens becomes a line first (see `soak_stats`), so that
a soak whose runner died goes on from its lines.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from console.bench.client import PROMPTS
from console.bench.sample import Sample
from console.bench.soak_requests import Answer, Out
from console.bench.soak_stats import Line, Normal, Patience, Tally
from console.common.clock import Clock
from console.common.text import one_line
from console.common.units import format_duration, format_number

HANG = "hang"
UNFINISHED = "not finished"
"""Error class: it brought tokens, but went on for too long after the end of the soak."""
POLL_S = 0.25
TICK_S = 1.0
BLIND_S = 5.0
"""Seconds between two looks at the clock after which the runner itself must have stood still
(stopped, a suspended machine), so that nothing was observed."""
CUT_S = 7.0
"""Seconds for a cut request to end: connecting cannot be cut, and has 5 s."""
MIN_PAUSE_S = 0.05
"""Least seconds between two requests, so that a port that refuses is not hammered."""
LATE_S = 0.5
INSTANT_S = 1e-6
"""Waits shorter than this count as none, because sums of seconds are not exact."""
CRITICAL_SHOWN = 20
MIN_GARBLED = 5
"""Garbled answers, and no other, after which a soak is over: hours of them say no more."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """What to ask, for how long, how often.

    `fixed`: at moments planned ahead, `every_s` apart. If moments have passed, one request is sent
    at once and counted late, the rest are counted missed: never a burst. One request is out at a
    time, so 720 an hour at 5 s are only possible if each takes less than 5 s. `after_reply`:
    `every_s` after the last reply (a loop with `sleep 5`): with replies of 10 s that is 240 an
    hour.
    """

    duration_s: float
    every_s: float = 5.0
    arrivals: Literal["fixed", "after_reply"] = "after_reply"
    prompts: tuple[str, ...] = PROMPTS
    max_errors: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """The server at one moment, in bytes; None if unknown.

    `start`: source → when the server started, as a text to compare. `gone`: how it ended.
    `critical`: log lines that matched since the last look. `log`: whether there is one to read.
    """

    rss: int | None = None
    anon: int | None = None
    vram: int | None = None
    start: dict[str, str] = field(default_factory=dict)
    gone: str = ""
    log: bool = False
    critical: tuple[str, ...] = ()


class Watch(Protocol):
    """Looks at the server while requests are out."""

    def drain(self) -> list[Look]:
        """The looks since the last call."""

    def gone(self) -> str:
        """How the server ended, asked now; "" while it lives or if unknown."""

    def state(self) -> str:
        """What its process does now, in words, for the record of a hang."""


class End(StrEnum):
    """Why a soak is over."""

    DONE = "done"
    ERRORS = "too many errors"
    GONE = "the server is gone"
    GARBLED = "every answer is garbled"


@dataclass
class Soak:
    """One soak, continued from `tally` to its end. `keep` makes a line durable. `beat` is called
    about once a second with the observed time and the seconds without a token (0 if normal); an
    exception from it ends the soak."""

    plan: SoakPlan
    clock: Clock
    ask: Callable[[str], Out]
    watch: Watch
    keep: Callable[[Line], None]
    beat: Callable[[float, float], None]
    tally: Tally
    patience: Patience

    def __post_init__(self) -> None:
        plan = self.plan
        self._normal = Normal(self.patience)
        self._heard = 0
        self._since: float | None = None
        """When the current request brought its last token, or was sent."""
        self._prompts = itertools.cycle(plan.prompts)
        self._every = max(MIN_PAUSE_S, plan.every_s)
        self._never = threading.Event()
        self._last = self.clock.monotonic()
        begun = self.tally.observed
        self._zero = self._last - begun
        self._slot = math.ceil(begun / self._every)
        self._due = self._slot * self._every if plan.arrivals == "fixed" else begun

    @property
    def t(self) -> float:
        """Observed seconds so far."""
        return self._last - self._zero

    def run(self) -> End:
        """Send requests to the end. Exceptions from `beat` pass through and cut the request."""
        if not self.tally.began:
            self._event("began", at=self.clock.now())
        try:
            self._tick()
            while (end := self._over()) is None:
                wait = min(self._due, self.plan.duration_s) - self.t
                if wait > INSTANT_S:
                    self._pass(min(wait, TICK_S))
                else:
                    self._run_request()
            self._never_sent()
        finally:  # what was observed since the last line counts as well
            self.tally.t = max(self.tally.t, round(self.t + self.tally.gap_s, 3))
        return end

    def _over(self) -> End | None:
        if self.tally.gone:
            return End.GONE
        garbage = self.tally.garbage
        if garbage is not None and garbage.count == garbage.of >= MIN_GARBLED:
            return End.GARBLED
        most = self.plan.max_errors
        if most is not None and sum(self.tally.errors.values()) > most:
            return End.ERRORS
        return End.DONE if self.t >= self.plan.duration_s - INSTANT_S else None

    def _pass(self, seconds: float, event: threading.Event | None = None) -> None:
        self.clock.wait(event or self._never, seconds)
        self._tick()

    def _tick(self) -> None:
        """Take in what has happened since the last tick, however long ago that was."""
        now = self.clock.monotonic()
        took, self._last = now - self._last, now
        if took > BLIND_S:
            self._zero += took
            start = self.t + self.tally.gap_s
            self._event("gap", **{"t": start + took, "from": start, "to": start + took})
        self.take_looks()
        self.beat(self.t, self._silent())

    def _silent(self) -> float:
        silent = 0.0 if self._since is None else self.t - self._since
        return silent if silent > self._normal.noticed(self._heard) else 0.0

    def take_looks(self) -> None:
        """Count what the watch has seen; the caller repeats it once the watch is over."""
        for look in self.watch.drain():
            self._look(look)

    def _line(self, line: Line) -> None:
        line = {"t": round(self.t + self.tally.gap_s, 3), **line}
        self.keep(line)
        self.tally.take(line)

    def _event(self, name: str, **data: Any) -> None:
        self._line({"event": name, **data})

    def _run_request(self) -> None:
        """Send a request and follow it to its end, a hang, or too long after the soak's end."""
        arrival = self._arrive()
        prompt = next(self._prompts)
        pending = self.ask(prompt)
        try:
            given_up = self._follow(pending, prompt)
        finally:
            if not pending.ended.is_set():
                pending.cut()
        if given_up is not None:
            self._settle(pending)
        self._since = None
        self._keep(given_up or pending.answer(), arrival)
        if self.plan.arrivals == "after_reply":
            self._due = self.t + self._every

    def _follow(self, pending: Out, prompt: str) -> Answer | None:
        """Wait for the request's end; return an answer of its own if it gives up waiting."""
        self._heard, since = 0, self.t
        self._since = since
        while not pending.ended.is_set():
            self._pass(POLL_S, pending.ended)
            if pending.heard != self._heard:
                self._heard, since = pending.heard, self.t
                self._since = since
            if pending.ended.is_set():
                break
            if self.t - since > self._normal.limit(self._heard):
                return Answer(Sample(), HANG, self._hang(prompt, self._heard, self.t - since))
            over = self.t - self.plan.duration_s
            if over > self._normal.rest(self._heard):
                words = f"still bringing tokens {format_duration(over)} after the soak's end: cut"
                return Answer(Sample(), UNFINISHED, words)
        return None

    def _never_sent(self) -> None:
        """Count fixed moments that passed during the last request as missed, too."""
        if self.plan.arrivals == "fixed":
            until = min(self.t, self.plan.duration_s) - INSTANT_S
            missed = math.ceil(until / self._every) - self._slot
            if missed > 0:
                self._slot += missed
                self._event("missed", n=missed)

    def _arrive(self) -> Line:
        """Take the moment that is due; other moments that have passed are left out."""
        if self.plan.arrivals != "fixed":
            return {}
        late = self.t - self._due > min(LATE_S, self._every / 10)
        newest = max(self._slot, math.floor(self.t / self._every + 1e-9))
        missed, self._slot = newest - self._slot, newest + 1
        self._due = self._slot * self._every
        return ({"late": True} if late else {}) | ({"missed": missed} if missed else {})

    def _keep(self, answer: Answer, arrival: Line) -> None:
        sample, good = answer.sample, not answer.error
        figures: Line = {"ok": good, "error": answer.error}
        if good:
            figures |= {"tok_s": None if answer.void else sample.tok_s, "ttft_s": sample.ttft_s}
            self._normal.learn(sample)
        if sample.e2e_s is not None:
            figures["e2e_s"] = sample.e2e_s
        if good and sample.prompt_tokens is not None:
            figures["context"] = sample.prompt_tokens + (sample.completion_tokens or 0)
        if sample.transport_retries:
            figures["retries"] = sample.transport_retries
        for name, text in (("words", answer.words), ("void", answer.void)):
            if text:
                figures[name] = one_line(text, 300)
        self._line(figures | arrival)
        if not good and answer.error != HANG:
            self._ended(self.watch.gone())

    def _hang(self, prompt: str, heard: int, silent_s: float) -> str:
        normal, number = self._normal.silence(heard), len(self.tally.requests) + 1
        out = f"request {number} ({one_line(prompt, 60)})"
        out += f", after {heard} chunks" if heard else ", before its first token"
        usual = f", normal is {format_number(normal, 's')}" if normal is not None else ""
        state = self.watch.state()
        words = f"no token for {format_duration(silent_s)}{usual}; out: {out}"
        words += f"; its process: {state}" if state else ""
        self._event("hang", at=self.clock.now(), what=words)
        return words

    def _settle(self, pending: Out) -> None:
        """Wait for a cut request to end: the next one must not run beside it."""
        until = self.t + CUT_S
        while not pending.ended.is_set() and self.t < until:
            self._pass(POLL_S, pending.ended)

    def _look(self, look: Look) -> None:
        known, start = self.tally.start, look.start
        changed = [name for name in start if name in known and known[name] != start[name]]
        if changed:
            self._restarted(f"the server's process is a new one, by {', '.join(sorted(changed))}")
        # Of what cannot tell now the old answer goes: the next one is of the new process, too.
        if changed or not start.keys() <= known.keys():
            self._event("server", start=start if changed else known | start)
        if look.critical:
            shown = [one_line(line, 400) for line in look.critical[:CRITICAL_SHOWN]]
            self._event("critical", n=len(look.critical), lines=shown)
        sizes = {"rss": look.rss, "anon": look.anon, "vram": look.vram}
        self._line({**sizes, "up": bool(start), "log": look.log})
        self._ended(look.gone)

    def _restarted(self, what: str) -> None:
        self._event("restart", at=self.clock.now(), what=what)
        self._normal.forget()  # a model that is paged in anew is no hang

    def _ended(self, how: str) -> None:
        if how and not self.tally.gone:
            self._event("gone", at=self.clock.now(), what=one_line(how, 300))
