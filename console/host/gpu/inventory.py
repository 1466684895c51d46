"""The cards with their compute capability, and the driver, queried in a process of its own.

`python -m console.host.gpu.inventory` prints one JSON line; NVML can hang, so callers wait with a
limit. An unknown figure is null, never zero.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from console.common.paths import module_argv
from console.common.text import decode, one_line
from console.common.units import format_duration
from console.host import children
from console.host.gpu import nvml as known
from console.host.sample import Card

ASK_S = 8.0
"""Seconds for NVML, which takes some to wake several cards."""


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
    argv = module_argv("console.host.gpu.inventory")
    try:
        _, out, error = children.run(argv, seconds, env=os.environ if env is None else env)
    except subprocess.TimeoutExpired:
        return Cards(words=f"NVML gave no answer within {format_duration(seconds)}")
    except OSError as error_:
        return Cards(words=f"NVML cannot be asked: {error_.strerror or error_}")
    try:
        found = json.loads(decode(out))
        return Cards(
            tuple(_card(one) for one in found["cards"]),
            one_line(found["driver"]),
            _pair(found["cuda"]),
            one_line(found["words"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        last = one_line(decode(error)[-200:]) or "no words"
        return Cards(words=f"NVML's answer cannot be read: {last}")


def _card(found: Mapping[str, Any]) -> Card:
    total, free = (None if found[key] is None else int(found[key]) for key in ("total", "free"))
    name, uuid = one_line(found["name"]), one_line(found["uuid"])
    return Card(name, uuid, total, free, _pair(found["compute"]))


def _pair(value: Any) -> tuple[int, int] | None:
    return None if value is None else (int(value[0]), int(value[1]))


def read() -> dict[str, Any]:
    """Query NVML in this process; for the child."""
    nvml, why = known.opened()
    answer: dict[str, Any] = {"cards": [], "driver": "", "cuda": None, "words": why}
    if nvml is None:
        return answer
    answer["driver"] = known.text(known.got(nvml, "nvmlSystemGetDriverVersion") or "")
    version = known.got(nvml, "nvmlSystemGetCudaDriverVersion")
    answer["cuda"] = None if version is None else (version // 1000, version % 1000 // 10)
    try:
        answer["cards"] = [_one(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        answer["words"] = known.words(error)
    return answer


def _one(nvml: Any, index: int) -> dict[str, Any]:
    got = partial(known.got, nvml)
    card: dict[str, Any] = {"uuid": f"index:{index}", "name": ""}
    card |= {"total": None, "free": None, "compute": None}
    handle = got("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return card
    card["uuid"] = known.text(got("nvmlDeviceGetUUID", handle) or card["uuid"])
    card["name"] = known.text(got("nvmlDeviceGetName", handle) or "")
    card["compute"] = got("nvmlDeviceGetCudaComputeCapability", handle)
    if any((got("nvmlDeviceGetMigMode", handle) or ())[:1]):
        return card  # memory belongs to the instances
    memory = got("nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
    memory = memory or got("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        card |= {"total": int(memory.total), "free": int(memory.free)}
    return card


if __name__ == "__main__":
    print(json.dumps(read()), flush=True)
    sys.stdout.flush()
    os._exit(0)  # not through NVML's own ending, which a lost card can hold up
