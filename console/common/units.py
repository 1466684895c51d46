"""Bytes, durations and rates: parsed strictly, printed with their unit."""

from __future__ import annotations

import math
import re

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_BYTE_UNITS = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(rf"{_NUMBER}\s*(ms|s|m|h|d)")
_DURATION = re.compile(rf"{_PART.pattern}(?:\s*{_PART.pattern})*")

MAX_DIGITS = 1e12
"""From this number on only a power of ten is readable."""
BYTES_FORM = "bytes with a unit, like 24GiB or 117GB"
DURATION_FORM = "a duration with a unit, like 90s, 15m or 1h30m"
DRIVER_FORM = "a driver's version like 580.126.09"
RATE_FORM = "a rate with a unit, like 500Mbit/s or 6GB/s"


def parse_bytes(text: str) -> int:
    """`24GiB` → 25769803776. GB is 10^9, GiB is 2^30; a bare number is refused.

    Raises ValueError with the expected form.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([kKMGT]?i?B)", text.strip())
    if not match or match[2] not in _BYTE_UNITS:
        raise ValueError(BYTES_FORM)
    count = float(match[1]) * _BYTE_UNITS[match[2]]
    if not math.isfinite(count):
        raise ValueError(BYTES_FORM)
    return int(count)


def parse_rate(text: str) -> float:
    """Bytes a second: `500Mbit/s` → 62500000.0, `6GB/s` → 6e9. Raises ValueError."""
    amount = text.strip().removesuffix("/s")
    if amount == text.strip():
        raise ValueError(RATE_FORM)
    bits = re.fullmatch(rf"{_NUMBER}\s*([kMGT]?)bit", amount)
    try:
        size = parse_bytes(f"{bits[1]}{bits[2]}B") / 8 if bits else float(parse_bytes(amount))
    except ValueError:
        raise ValueError(RATE_FORM) from None
    if size <= 0:
        raise ValueError(RATE_FORM)
    return size


def parse_duration(text: str) -> float:
    """`1h30m` → 5400.0 seconds; a bare number is refused. Raises ValueError."""
    text = text.strip()
    if not _DURATION.fullmatch(text):
        raise ValueError(DURATION_FORM)
    seconds = sum(float(number) * _TIME_UNITS[unit] for number, unit in _PART.findall(text))
    if not math.isfinite(seconds):
        raise ValueError(DURATION_FORM)
    return seconds


def format_bytes(count: float) -> str:
    """Binary units with one decimal: `641.7 GiB`."""
    value = float(count)
    if not math.isfinite(value):
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


_DECIMAL = ("B", "kB", "MB", "GB", "TB")


def both_units(count: int | None) -> str:
    """`641.6 GiB (688.9 GB)`: one number in two units that are easily confused."""
    if count is None:
        return "unknown"
    if abs(count) < 1000:
        return f"{count} B"
    value, unit = float(count), 0
    while abs(value) >= 999.95 and unit < len(_DECIMAL) - 1:
        value, unit = value / 1000, unit + 1
    return f"{format_bytes(count)} ({value:.1f} {_DECIMAL[unit]})"


def format_duration(seconds: float) -> str:
    """A duration as people say it: `0.48 s`, `12.3 s`, `1 min 14 s`, `2 h 05 min`."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_number(value: float, unit: str = "") -> str:
    """Three or four significant digits, then the unit; bytes, times and ratios in their own
    forms, a count without a unit."""
    if not math.isfinite(value):
        return "unknown"
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return format_duration(value) if abs(value) >= 0.1 else f"{value * 1000:.3g} ms"
    if unit == "ratio":
        return f"{value * 100:.3g} %"
    unit = "" if unit == "count" else unit
    if abs(value) >= MAX_DIGITS:  # a broken model's perplexity
        return f"{value:.3g} {unit}".replace("e+", "e").rstrip()
    digits = f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{digits} {unit}".rstrip()


def is_driver(text: str) -> bool:
    """Whether a text is a driver's version and nothing else."""
    return re.fullmatch(r"\d{1,6}(\.\d{1,6}){0,3}", text, re.ASCII) is not None


def number(value: object) -> float | None:
    """A number from foreign JSON; None if it is not finite, or beyond any real figure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


def plural(count: int, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
