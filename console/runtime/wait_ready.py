"""Waits until a service serves, with words for everything that can happen meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from console.common.clock import Clock
from console.common.errors import EngineError, ServiceError
from console.common.progress import Figures
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.host.children import Cancelled
from console.runtime import probe
from console.runtime.probe import Health
from console.runtime.spec import ServiceSpec, Status

FIRST_POLL_S = 0.05
LONGEST_POLL_S = 0.5
PROBE_S = 5.0
RESTARTS = 3
"""This many restarts while waiting are a crash loop."""
LAST_LINES = 10

Probe = Callable[[str, str, float], tuple[Health, str]]


@dataclass(slots=True)
class ReadyWait:
    """One wait, with what it last saw for the error message. `progress` gets at each look a clean
    line, and how far it is; whoever tells a person leaves out what has not changed."""

    spec: ServiceSpec
    status: Callable[[], Status]
    last_lines: Callable[[int], list[str]]
    clock: Clock
    cancelled: threading.Event
    progress: Callable[[str, Figures | None], None]
    load_progress: Callable[[], Figures | None] = lambda: None
    """How far the load is; asked while it does not serve."""
    health: Probe = probe.health
    begin: float = 0.0
    serving_since: float | None = None
    restarts: int | None = None
    last: str = "it was never asked"

    def run(self) -> float:
        """Wait; return the seconds until the service serves, `stable_for_s` included.

        Raises ServiceError with the last lines of the log when the service dies, restarts again and
        again or runs out of time, and Cancelled when the event is set.
        """
        self.begin, pause = self.clock.monotonic(), FIRST_POLL_S
        while True:
            if self.cancelled.is_set():
                raise Cancelled(f"waiting for {self.spec.name}")
            if self._ready():
                return self.clock.monotonic() - self.begin
            left = self.spec.ready.timeout_s - (self.clock.monotonic() - self.begin)
            if left <= 0:
                waited = format_duration(self.clock.monotonic() - self.begin)
                self._fail(f"{self.spec.name} was not ready after {waited}", f"last: {self.last}")
            self.clock.wait(self.cancelled, min(pause, left))
            pause = min(pause * 1.5, LONGEST_POLL_S)

    def _ready(self) -> bool:
        self._check_alive()
        left = self.spec.ready.timeout_s - (self.clock.monotonic() - self.begin)
        within_s = max(0.1, min(PROBE_S, left))
        answer, detail = self.health(self.spec.url, self.spec.ready.path, within_s)
        detail = one_line(detail)
        if answer is not Health.SERVING:
            self.serving_since = None
            self._say(_WORDS[answer], detail, self.load_progress())
            return False
        # A server that dies while another one answers on its port must not pass for ready.
        self._check_alive()
        now = self.clock.monotonic()
        if self.serving_since is None:
            self.serving_since = now
        wanted = self.spec.ready.stable_for_s
        progress = Figures(min(wanted, now - self.serving_since), wanted, "s") if wanted else None
        self._say(
            "serving", f"to stay so for {format_duration(wanted)}" if wanted else "", progress
        )
        return now - self.serving_since >= wanted

    def _check_alive(self) -> None:
        try:
            seen = self.status()
        except EngineError as error:
            # The health path is the proof; a silent engine neither proves nor disproves anything.
            self._say("the engine does not answer", one_line(str(error)))
            return
        if not seen.alive:
            self._fail(f"{self.spec.name} ended before it was ready", one_line(seen.detail))
        before = self.restarts
        self.restarts = seen.restarts if before is None else before
        again = seen.restarts - self.restarts
        if again >= RESTARTS:
            self._fail(f"{self.spec.name} is crash-looping", f"{again} restarts; {seen.detail}")

    def _say(self, what: str, detail: str, progress: Figures | None = None) -> None:
        words = f"{what} ({detail})" if detail else what
        self.last = words
        self.progress(words, progress)

    def _fail(self, title: str, cause: str) -> NoReturn:
        try:
            lines = [clean(line) for line in self.last_lines(LAST_LINES)]
        except EngineError as error:
            lines = [f"(no log: {one_line(str(error))})"]
        detail = "\n".join([cause, *(["last lines of its log:", *lines] if lines else [])])
        raise ServiceError(title, detail, f"`ready:` of {self.spec.name} asks {self.spec.url}")


_WORDS = {
    Health.LOADING: "loading the model",
    Health.REFUSED: "starting, not listening yet",
    Health.REFUSING: "refusing",
    Health.SLOW: "answering slowly",
    Health.UNHEALTHY: "not healthy yet",
}
