"""Amounts of bytes as people compare them, and how long a line takes for them."""

from __future__ import annotations

from console.common.units import format_duration


def seconds_for(count: int | None, rate_bps: float | None) -> float | None:
    """Seconds for `count` bytes at `rate_bps` bytes per second; None where either is unknown."""
    if count is None or not rate_bps or rate_bps <= 0:
        return None
    return count / rate_bps


def download_time(count: int | None, rate_bps: float | None, origin: str = "") -> str:
    """`3 h 11 min at 60.0 MB/s (measured)`; says so where it cannot be told."""
    if count == 0:
        return "nothing to download"
    seconds = seconds_for(count, rate_bps)
    if count is None:
        return "unknown: sizes are missing"
    if seconds is None:
        return "unknown: the line's rate is neither measured nor given"
    return f"{format_duration(seconds)} at {rate(rate_bps)}{f' ({origin})' if origin else ''}"


def rate(bps: float | None) -> str:
    """Bytes per second as download tools print them: `57.3 MB/s`."""
    return "unknown" if bps is None else f"{bps / 1e6:.1f} MB/s"
