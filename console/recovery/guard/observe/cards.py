"""VRAM of every GPU, read by a process of its own, because a call to NVML may hang forever."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from console.common.clock import Clock
from console.common.paths import module_argv
from console.common.text import one_line
from console.host.children import Child
from console.recovery.guard.observe.snapshot import GpuMemory

EVERY_S = 1.0
SILENT_S = 5.0
"""After this many seconds without output the GPU reader is reported as silent. NVML takes a second
or two to wake a GPU."""
KEPT_S = 3.0
"""A GPU that has not answered for longer keeps its last reading, with the time of that reading."""


class GpuCollector:
    """Starts the GPU reader. Call `tend()` every tick; `cards` and `trouble` are what is known."""

    def __init__(self, clock: Clock, argv: Sequence[str] = ()) -> None:
        reader = (*module_argv("console.host.gpu.child"), "--every", f"{EVERY_S:g}")
        self.child = Child(argv or reader, clock)
        self._clock = clock
        self._known: dict[str, GpuMemory] = {}
        self._heard_at = clock.monotonic()
        self._trouble = ""

    @property
    def cards(self) -> tuple[GpuMemory, ...]:
        return tuple(self._known.values())

    @property
    def trouble(self) -> str:
        """Why no GPU is known, or why the readings grow old; "" if all is well."""
        now = self._clock.monotonic()
        if now - self._heard_at <= SILENT_S:
            return self._trouble
        how = f" ({self.child.how}, {self.child.died} times)" if self.child.died else ""
        return f"the GPU reader has been silent for {now - self._heard_at:.0f} s{how}"

    def tend(self) -> None:
        """Take the output of the reader."""
        for line in self.child.tend():
            self.take(line, self._clock.monotonic())

    def take(self, line: bytes, now: float) -> None:
        """Take one line of the reader. An incomplete line changes nothing."""
        try:
            found = json.loads(line)
            ages = found.get("ages", {})
            cards = [_card(one, now - float(ages.get(one["uuid"], 0))) for one in found["gpus"]]
            trouble = one_line(str(found["trouble"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._heard_at, self._trouble = now, trouble
        self._known = {card.uuid: self._kept(card, now) for card in cards}

    def _kept(self, card: GpuMemory, now: float) -> GpuMemory:
        before = self._known.get(card.uuid)
        if before is None or card.used is not None or now - card.at <= KEPT_S:
            return card
        return replace(before, why=card.why)

    def close(self) -> None:
        self.child.close()


def _card(fields: dict[str, object], at: float) -> GpuMemory:
    uuid, why = str(fields["uuid"]), str(fields.get("why", ""))
    sizes = [fields.get(name) for name in ("used_bytes", "total_bytes")]
    used, total = (one if isinstance(one, int) and one >= 0 else None for one in sizes)
    return GpuMemory(one_line(uuid, 80), at, used, total, one_line(why))
