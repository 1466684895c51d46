"""What a sentinel puts into the recorder: samples, seconds, the page, a level that changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from console.common.clock import Clock
from console.common.text import one_line
from console.recovery.guard.breach import Window
from console.recovery.guard.decide.curve import Curves
from console.recovery.guard.decide.policy import Judgement
from console.recovery.guard.observe.pressure import Pressure
from console.recovery.guard.observe.snapshot import Look, Memory
from console.recovery.guard.record import status
from console.recovery.guard.record.recorder import Recorder

PAGE_S, CALM_PAGE_S = 0.5, 0.7
"""Less than the second in which everything is judged: a look that came a moment short of it would
write no page, and the next one is a second away."""
QUIET_S = 5.0
LEVEL_WORDS = {"ok": "calm", "warn": "a limit is near", "act": "a limit was passed"}


class Scribe:
    """`window` and `curves` are the last samples, `own` what the sentinel itself takes."""

    def __init__(self, ring: Recorder, clock: Clock) -> None:
        self.window, self.curves = Window(), Curves()
        self.own: dict[str, Any] = {}
        self._ring, self._clock = ring, clock
        self._pressure, self._upkeep = Pressure(), status.Upkeep()
        self._level = ""
        self._said_at = self._page_at = float("-inf")

    def record(self, look: Look, judged: Judgement, shown: Callable[[], dict[str, Any]]) -> None:
        """One tick; the page is asked for when it is due."""
        self.sample(look.memory, judged.level)
        changed = judged.level != self._level
        if changed:
            self._level = judged.level
            self._say_level(judged, look.at)
        due = CALM_PAGE_S if judged.level == "ok" else PAGE_S
        if changed or look.at - self._page_at >= due:
            self._page_at = look.at
            self._ring.status(shown())

    def sample(self, memory: Memory | None, level: str = "") -> None:
        """One sample of the recorder; without a level that of before."""
        if memory is not None:
            some, full = self._pressure.look(memory)
            self._ring.tick(memory, some, full, level or self._level)
            self.window.add(self._clock.now(), memory.available, memory.swap_used, full)

    def second(self, look: Look) -> None:
        """The record of a second."""
        self.own = self._upkeep.look()
        self.curves.add(look)
        self._ring.second({**status.parts(look), "own": self.own})

    def close(self) -> None:
        self._upkeep.close()

    def _say_level(self, judged: Judgement, now: float) -> None:
        """A level that comes and goes must not push everything else out of the recorder."""
        if judged.level != "act" and now - self._said_at < QUIET_S:
            return
        self._said_at = now
        words = "; ".join(judged.reasons or judged.unknown) or LEVEL_WORDS[judged.level]
        self._ring.event(judged.level, one_line(words))
