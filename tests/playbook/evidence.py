"""Criteria and evidence for tests of verdicts, from their parts."""

from __future__ import annotations

import statistics as stats
from typing import Any

from console.config.playbook.threshold import parse_threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict

RANK = {Verdict.NO_GO: 0, Verdict.HOLD: 1, Verdict.GO: 2}
SPREAD = (19.2, 19.6, 19.9, 20.1, 20.3, 20.5, 20.6)


def criterion(
    go: str = "", no_go: str = "", min_samples: int = 1, metric: str = "bench.tok_s", **more: Any
) -> Criterion:
    parsed = [parse_threshold(text) if text else None for text in (go, no_go)]
    return Criterion(metric, *parsed, min_samples, **more)


def tok_s(value: float | None, n: int = 9, **values: Any) -> Evidence:
    return Evidence(value, "tok/s", n, **values)


def of(samples: tuple[float, ...], before: tuple[float, ...] = (), **more: Any) -> Evidence:
    """Evidence whose figures are the means of their samples."""
    base: dict[str, Any] = {}
    if before:
        base = {"baseline": stats.fmean(before), "baseline_n": len(before)}
    values = {"samples": samples, "baseline_samples": before, **base, **more}
    return tok_s(stats.fmean(samples), len(samples), **values)


def moved(by: float, samples: tuple[float, ...] = SPREAD) -> tuple[float, ...]:
    return tuple(one + by for one in samples)
