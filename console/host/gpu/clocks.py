"""What the cards did during a measurement: clocks, power, heat, and what slowed them.

`python -m console.host.gpu.clocks SECONDS` looks every so many seconds until its stdin closes, then
prints one JSON line: {"cards": {UUID: {"name", "looks", "sm_mhz", "memory_mhz", "power_w",
"temperature_c", "power_limit_w", "slowed"}}, "words": ""}. It is a process of its own because NVML
can hang: what was seen until then is still reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

from console.common.paths import module_argv
from console.common.text import decode
from console.host.children import abandon
from console.host.gpu import nvml as known

EVERY_S = 2.0
ANSWER_S = 5.0
SLOWED = {0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
"""NVML's reasons that mean trouble; a power cap (0x04) is how a workstation card is run."""
FIGURES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c")


class Watch:
    """The child process, as the measuring process handles it; never raises or hangs."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [*module_argv("console.host.gpu.clocks"), str(EVERY_S)]
        try:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._child = None

    def stop(self, seconds: float = ANSWER_S) -> tuple[dict[str, Any], str]:
        """What each card did by UUID, or why nothing is known."""
        child, self._child = self._child, None
        if child is None:
            return {}, "NVML was not asked"
        try:
            out, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            abandon(child)
            return {}, f"NVML gave no answer within {seconds:g} s"
        except OSError:
            abandon(child)
            return {}, "NVML's answer cannot be read"
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            answer = json.loads(decode(out))
            return dict(answer["cards"]), str(answer["words"])
        return {}, "NVML's answer cannot be read"


class Looks:
    """Least, mean and most of each figure of each card; a figure that was never told is null."""

    def __init__(self) -> None:
        self.words = "NVML did not answer"
        self._cards: dict[str, dict[str, Any]] = {}

    def add(
        self, uuid: str, name: str, limit_w: float | None, slowed: int, figures: list[float | None]
    ) -> None:
        card = self._cards.setdefault(
            uuid, {"name": name, "looks": 0, "seen": {}, "slowed": {}, "power_limit_w": limit_w}
        )
        card["looks"] += 1
        for key, value in zip(FIGURES, figures, strict=True):
            if value is not None:
                least, total, count, most = card["seen"].get(key, (value, 0.0, 0, value))
                seen = (min(least, value), total + value, count + 1, max(most, value))
                card["seen"][key] = seen
        for word in {word for bit, word in SLOWED.items() if slowed & bit}:
            card["slowed"][word] = card["slowed"].get(word, 0) + 1

    def answer(self) -> dict[str, Any]:
        """The line to print, as plain values."""
        cards = {}
        for uuid, card in dict(self._cards).items():
            figures: dict[str, Any] = dict.fromkeys(FIGURES)
            for key, (least, total, count, most) in dict(card["seen"]).items():
                mean = round(total / count, 1)
                figures[key] = {"min": round(least, 1), "mean": mean, "max": round(most, 1)}
            cards[uuid] = {
                "name": card["name"], "looks": card["looks"], **figures,
                "power_limit_w": card["power_limit_w"], "slowed": dict(card["slowed"]),
            }  # fmt: skip
        return {"cards": cards, "words": "" if cards else self.words}


def look(nvml: Any, looks: Looks) -> None:
    """One look at every card; a card that does not answer is left out of it."""
    got = partial(known.got, nvml)
    for index in range(got("nvmlDeviceGetCount") or 0):
        handle = got("nvmlDeviceGetHandleByIndex", index)
        uuid = handle and got("nvmlDeviceGetUUID", handle)
        if not uuid:
            continue
        limit, power = (
            got(f"nvmlDeviceGet{k}", handle) for k in ("EnforcedPowerLimit", "PowerUsage")
        )
        slowed = got("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if slowed is None:
            slowed = got("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        figures = [
            got("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            got("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            None if power is None else power / 1000,
            got("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        ]
        name = known.text(got("nvmlDeviceGetName", handle) or "")
        watts = None if limit is None else limit / 1000
        looks.add(known.text(uuid), name, watts, int(slowed or 0), figures)


def _answer_at_the_end(looks: Looks) -> None:
    """Print the answer from its own thread, which a hanging NVML call cannot block."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(looks.answer()).encode() + b"\n")
    os._exit(0)


def main(every_s: float) -> None:
    """Look until stdin closes."""
    looks = Looks()
    threading.Thread(target=_answer_at_the_end, args=(looks,), daemon=True).start()
    nvml, why = known.opened()
    looks.words = why or looks.words
    while True:
        if nvml is not None:
            look(nvml, looks)
            looks.words = "no NVIDIA card: the driver lists none"
        time.sleep(every_s)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else EVERY_S)
