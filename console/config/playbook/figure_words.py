"""A figure, and what is said between it and a threshold, as an operator would write it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from console.common.units import format_number
from console.config.playbook.threshold import Threshold

_DECIMAL = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, slots=True)
class Phrases:
    """What stands between a figure and a threshold."""

    no_go: str
    clear: str
    meets: str
    misses: str


MEASURED = Phrases(" is NO-GO by", " stays clear of NO-GO", " meets", " misses")
COUNTED = Phrases(", NO-GO by", ", clear of NO-GO", ", as asked for:", ", asked for")


def figure(value: float, unit: str, threshold: Threshold) -> str:
    """The figure in the unit the threshold was written in, where they could differ."""
    decimal = re.search(r"[0-9]\s*([kKMGT])B", threshold.written)
    if unit == "B" and decimal:
        return f"{value / _DECIMAL[decimal[1].lower()]:.4g} {decimal[1]}B"
    if unit == "s" and abs(value) < 1:
        return f"{value * 1000:.4g} ms"
    return format_number(value, unit)


def noun(metric: str, value: float) -> str:
    """` restart`, ` critical lines`: what is counted, where the metric's name says it."""
    name = metric.rpartition(".")[2].replace("_", " ")
    if name.endswith("temperature"):
        return " °C"
    if not name.endswith("s"):
        return ""
    return f" {name[:-1] if value == 1 else name}"


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
