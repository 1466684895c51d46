"""Thresholds of gates and guards (`>= 20 tok/s`, `>= 1.15 x baseline`), and figures shown by them.

A figure is shown as an operator would write it: in the unit of its threshold.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from console.common.text import clean
from console.common.units import format_number, parse_bytes

THRESHOLD_FORM = (
    "a comparison, a number and a unit, like >= 20 tok/s, <= 117GB or >= 1.15 x baseline"
)

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_GRAMMAR = re.compile(
    r"(?P<op>>=|<=|==|>|<)\s*(?P<number>-?[0-9]+(?:\.[0-9]+)?)\s*"
    r"(?:(?P<relative>[x×]\s*baseline)|(?P<unit>[A-Za-z%][A-Za-z/]*))?"
)
_PARTS = {"%": (100.0, "ratio"), "ms": (1000.0, "s")}
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
NEVER_NEGATIVE = frozenset({"tok/s", "s", "ratio", "count", "%", "B", "B/s"})
"""Units of amounts. A bare number may be anything."""
_CHANGE = re.compile(r"(?:^|[._-])(?:growth|drift|slope|trend|change|delta)(?:$|[._-])")
_NAMES = {"s": "a duration", "B": "bytes", "B/s": "bytes per second", "ratio": "a ratio"}
_NEEDS_UNIT = {
    "s": "a duration with a unit, like 900ms, 2s or 1h",
    "B": "bytes with a unit, like 24GiB or 117GB",
    "B/s": "bytes per second with a unit, like 400MiB/s",
}

_DECIMAL = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, slots=True)
class Threshold:
    """One comparison; `value` is in the base unit (s, B, B/s, tok/s, ratio, or "" for bare).

    A relative one has no unit: `value` is then the factor on the baseline's figure.
    """

    op: str
    value: float
    unit: str = ""
    relative: bool = False
    written: str = field(default="", compare=False)
    """The text as the operator wrote it, clean."""

    def __str__(self) -> str:
        if self.written:
            return self.written
        tail = " x baseline" if self.relative else f" {self.unit}" if self.unit else ""
        return f"{self.op} {self.value:g}{tail}"

    def limit(self, baseline: float | None = None, unit: str = "") -> float | None:
        """The number that a value in `unit` is compared with; None without a usable baseline.

        A baseline of zero gives no ratio, and a factor on a negative figure would reverse the
        comparison, so neither can be met by accident.
        """
        if not self.relative:
            return self.value * 100 if self.unit == "ratio" and unit == "%" else self.value
        if baseline is None or not math.isfinite(baseline) or baseline < 0:
            return None
        if baseline == 0 and self.op in (">=", ">"):
            return None
        limit = self.value * baseline
        return limit if math.isfinite(limit) else None

    def satisfied(self, value: float | None, baseline: float | None = None, unit: str = "") -> bool:
        """Whether `value` (in the metric's `unit`) meets it; missing, NaN and Inf never do."""
        limit = self.limit(baseline, unit)
        if value is None or limit is None or not math.isfinite(value):
            return False
        return _COMPARE[self.op](value, limit)


def parse_threshold(text: str) -> Threshold:
    """`<= 900 ms` → Threshold("<=", 0.9, "s").

    Units: tok/s, ms, s, m (or min), h, %, B kB MB GB TB KiB MiB GiB TiB, these per second,
    or none. Raises ValueError with the expected form.
    """
    match = _GRAMMAR.fullmatch(text.strip())
    if match is None:
        raise ValueError(THRESHOLD_FORM)
    value = float(match["number"])
    if not math.isfinite(value):
        raise ValueError(THRESHOLD_FORM)
    written = clean(" ".join(text.split()), 80)
    if match["relative"]:
        if value <= 0:
            raise ValueError("a factor above zero, like >= 1.15 x baseline")
        return Threshold(match["op"], value, "", True, written)
    scaled, unit = in_base_unit(value, match["unit"] or "")
    if not math.isfinite(scaled):
        raise ValueError(THRESHOLD_FORM)
    return Threshold(match["op"], scaled, unit, False, written)


def in_base_unit(value: float, unit: str) -> tuple[float, str]:
    """The number in the base unit, and that unit. Raises ValueError.

    Divides instead of multiplying by a fraction: 7 % is then exactly the float 0.07.
    """
    if unit in ("", "tok/s"):
        return value, unit
    if unit in _PARTS:
        divisor, base = _PARTS[unit]
        return value / divisor, base
    if unit in _SECONDS:
        return value * _SECONDS[unit], "s"
    try:
        factor = parse_bytes(f"1{unit.removesuffix('/s')}")
    except ValueError:
        raise ValueError(THRESHOLD_FORM) from None
    return value * factor, "B/s" if unit.endswith("/s") else "B"


def signed(metric: str) -> bool:
    """Whether a figure of this name may be negative, because it is a change and not an amount."""
    return _CHANGE.search(metric) is not None


def impossible(metric: str, value: float, unit: str) -> bool:
    """Whether no machine can have this value: no time, size or count is negative."""
    return value < 0 and unit in NEVER_NEGATIVE and not signed(metric)


def compatible(threshold: Threshold, metric_unit: str) -> str | None:
    """What is wrong with comparing a metric in `metric_unit` with it, or None.

    A bare number is taken in the metric's own unit, but never for bytes and durations, where it
    could mean too many things. A relative threshold fits every metric.
    """
    if threshold.relative:
        return None
    wanted = "ratio" if metric_unit == "%" else metric_unit
    if threshold.unit == "":
        if wanted in _NEEDS_UNIT:
            return f"{threshold} has no unit; expected {_NEEDS_UNIT[wanted]}"
        return None
    if threshold.unit == wanted:
        return None
    have = _NAMES.get(threshold.unit, threshold.unit)
    metric = _NAMES.get(wanted, wanted) if wanted else "a plain number"
    return f"{threshold} is {have}, but the metric is {metric}"


@dataclass(frozen=True, slots=True)
class Phrases:
    """Words between a figure and a threshold."""

    no_go: str
    clear: str
    meets: str
    misses: str


MEASURED = Phrases(" is NO-GO by", " stays clear of NO-GO", " meets", " misses")
COUNTED = Phrases(", NO-GO by", ", clear of NO-GO", ", as asked for:", ", asked for")


def format_figure(value: float, unit: str, like: str = "") -> str:
    """A measured value as gates and reports print it; bytes in the unit of `like`, the text of a
    threshold."""
    decimal = re.search(r"[0-9]\s*([kKMGT])B", like)
    if unit == "B" and decimal:
        return f"{value / _DECIMAL[decimal[1].lower()]:.4g} {decimal[1]}B"
    if unit == "s" and abs(value) < 1:
        return f"{value * 1000:.4g} ms"
    return format_number(value, unit)


def noun(metric: str, value: float) -> str:
    """` restart`, ` critical lines`: what is counted, if the metric's name says it."""
    name = metric.rpartition(".")[2].replace("_", " ")
    if name.endswith("temperature"):
        return " °C"
    if not name.endswith("s"):
        return ""
    return f" {name[:-1] if value == 1 else name}"
