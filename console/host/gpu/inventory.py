"""The cards with their compute capability, and the driver, queried in a process of its own.

NVML can hang, so callers wait with a limit. An unknown figure is None, never zero.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.common.clock import Clock
from console.common.paths import module_argv
from console.common.text import decode, ending, one_line
from console.common.units import format_duration
from console.host import children
from console.host.gpu.nvml import NO_LIBRARY
from console.host.sample import Card

ASK_S = 8.0
"""Seconds for NVML, which takes some to wake several cards."""
LISTING = "console.host.gpu.listing"


@dataclass(frozen=True, slots=True)
class Cards:
    """NVML's answer. `words` is why there are no cards, empty if it answered.

    `driver` is its version as text, `cuda` the newest CUDA it serves.
    """

    cards: tuple[Card, ...] = ()
    driver: str = ""
    cuda: tuple[int, int] | None = None
    words: str = ""


def ask(seconds: float = ASK_S, env: Mapping[str, str] | None = None) -> Cards:
    """The cards of this machine, within `seconds`; never raises what NVML raises."""
    argv = module_argv(LISTING)
    try:
        _, out, error = children.run(argv, seconds, env=os.environ if env is None else env)
    except subprocess.TimeoutExpired:
        return _silent(seconds)
    except OSError as error_:
        return Cards(words=f"NVML cannot be asked: {error_.strerror or error_}")
    return _read(out, error)


class GpuInventory:
    """The same, over and over: one process keeps NVML open, and ends with this one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._child = self._new()
        self._waits = False

    def _new(self) -> children.Child:
        return children.Child((*module_argv(LISTING), "--each"), self._clock)

    def begin(self) -> None:
        """Ask; at once, also where it still waits for an earlier answer."""
        if self._child.tend():
            self._waits = False  # it came after its caller had given up
        self._waits = self._waits or self._child.send(b"")

    def answer(self, seconds: float) -> Cards:
        """What was asked, within `seconds`. A process that hangs is left alone: a second one would
        hang, too."""
        until = self._clock.monotonic() + seconds
        while self._waits:
            if lines := self._child.tend():
                self._waits = False
                cards = _read(lines[-1])
                if cards.words not in ("", NO_LIBRARY):
                    # a library that does not fit its driver stays loaded in a process
                    self._child.close()
                    self._child = self._new()
                return cards
            left, out = until - self._clock.monotonic(), self._child.descriptor
            if left <= 0:
                return _silent(seconds)
            if out < 0:
                self._waits = False  # it has ended
            else:
                select.select([out], [], [], left)
        return Cards(words=f"NVML cannot be asked: {self._child.how or 'its process has ended'}")

    def close(self) -> None:
        self._child.close()


def _silent(seconds: float) -> Cards:
    return Cards(words=f"NVML gave no answer within {format_duration(seconds)}")


def _read(out: bytes, error: bytes = b"") -> Cards:
    try:
        answer = json.loads(decode(out))
        return Cards(
            tuple(_card(card) for card in answer["cards"]),
            one_line(answer["driver"]),
            _pair(answer["cuda"]),
            one_line(answer["words"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        last = ending(decode(error)) or "no words"
        return Cards(words=f"NVML's answer cannot be read: {last}")


def _card(fields: Mapping[str, Any]) -> Card:
    total, free = (None if fields[key] is None else int(fields[key]) for key in ("total", "free"))
    name, uuid = one_line(fields["name"]), one_line(fields["uuid"])
    return Card(name, uuid, total, free, _pair(fields["compute"]), bool(fields.get("unified")))


def _pair(value: Any) -> tuple[int, int] | None:
    return None if value is None else (int(value[0]), int(value[1]))
