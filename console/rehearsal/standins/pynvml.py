"""Stands in for `pynvml` in a rehearsal: the site's cards, and the memory that stand-ins hold.

This directory precedes the real module on PYTHONPATH; cards and the holds' directory come from the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from console.host.gpu.figures import FIGURES, Query
from console.rehearsal.inside.settings import HOLDS_VARIABLE, held, settings

NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0
NVML_CLOCK_MEM = 2
NVML_ERROR_NOT_SUPPORTED = 3
DRIVER, CUDA = "580.126.09", 13010
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


def _rehearsed(query: Query, card: dict[str, Any], *_: object) -> Any:
    answer = query.rehearsed[bool(_used(card))]
    return SimpleNamespace(**{query.part: answer}) if query.part else answer


def nvmlDeviceGetMemoryInfo(card: dict[str, Any], version: int = 1) -> SimpleNamespace:
    total, used = int(card["total"]), _used(card)
    return SimpleNamespace(total=total, used=used, free=total - used, reserved=0)


def __getattr__(name: str) -> Callable[..., Any]:
    """The query of a figure; any other NVML call is not supported by this card."""
    if not name.startswith("nvml"):
        raise AttributeError(name)
    for query in (figure.query for figure in FIGURES):
        if query is not None and query.call == name:
            return partial(_rehearsed, query)

    def unknown(*_: object) -> NoReturn:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)

    return unknown
