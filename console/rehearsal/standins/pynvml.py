"""Stands in for `pynvml` in a rehearsal: the site's cards, and the memory that stand-ins hold.

This directory precedes the real module on PYTHONPATH; cards and the holds' directory come from the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from console.rehearsal.inside.settings import HOLDS_VARIABLE, held, settings

NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0
NVML_CLOCK_MEM = 2
NVML_ERROR_NOT_SUPPORTED = 3
DRIVER, CUDA = "580.126.09", 13010
IDLE_W, LOADED_W, LIMIT_W = 20_000, 320_000, 600_000
nvmlMemory_v2 = 2


class NVMLError(Exception):
    """Like NVML's error: a number, and words."""

    def __init__(self, value: int) -> None:
        super().__init__(f"stand-in: error {value}")
        self.value = value


def nvmlInit() -> None:
    """Nothing to open."""


def nvmlShutdown() -> None:
    """Nothing to close."""


def nvmlSystemGetDriverVersion() -> str:
    return DRIVER


def nvmlSystemGetCudaDriverVersion() -> int:
    return CUDA


def nvmlDeviceGetCount() -> int:
    return len(settings().cards)


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return settings().cards[index]


def nvmlDeviceGetUUID(card: dict[str, Any]) -> str:
    return str(card["uuid"])


def nvmlDeviceGetName(card: dict[str, Any]) -> str:
    return str(card["name"])


def nvmlDeviceGetCudaComputeCapability(card: dict[str, Any]) -> tuple[int, int]:
    return settings().capability


def _used(card: dict[str, Any]) -> int:
    place = os.environ.get(HOLDS_VARIABLE, "")
    used = held(Path(place)).get(str(card["uuid"]), 0) if place else 0
    return min(used, int(card["total"]))


def nvmlDeviceGetMemoryInfo(card: dict[str, Any], version: int = 1) -> SimpleNamespace:
    total, used = int(card["total"]), _used(card)
    return SimpleNamespace(total=total, used=used, free=total - used, reserved=0)


def nvmlDeviceGetUtilizationRates(card: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(gpu=50 if _used(card) else 0, memory=0)


def nvmlDeviceGetTemperature(card: dict[str, Any], sensor: int) -> int:
    return 60 if _used(card) else 35


def nvmlDeviceGetPowerUsage(card: dict[str, Any]) -> int:
    return LOADED_W if _used(card) else IDLE_W


def nvmlDeviceGetEnforcedPowerLimit(card: dict[str, Any]) -> int:
    return LIMIT_W


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Any other NVML call: not supported by this card."""
    if not name.startswith("nvml"):
        raise AttributeError(name)

    def unknown(*_: object) -> NoReturn:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)

    return unknown
