"""Steps that measure a server, as they are written, and every metric a gate can name."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from console.bench.sse import SILENCE_S
from console.config.validation import Duration, Pattern, Strict, Text

Count = Annotated[int, Field(ge=0)]

BENCHMARK_METRICS = {
    "tok_s": "tok/s", "decode_tok_s": "tok/s", "prompt_tok_s": "tok/s", "ttft_s": "s",
    "ttfo_s": "s", "tpot_s": "s", "e2e_s": "s", "stall_s": "s", "error_rate": "ratio",
}  # fmt: skip
"""Metrics of a benchmark step, with the unit a threshold has to be written in."""

FIGURES = {
    "llama-bench": {"tg_tok_s": "tok/s", "pp_tok_s": "tok/s"},
    "sweep-bench": {"tg_tok_s": "tok/s", "pp_tok_s": "tok/s"},
}
"""What a command's output holds where `figures:` names its form; `tg` generates, `pp` reads."""

SOAK_METRICS = {
    "requests": "count", "errors": "count", "error_rate": "ratio", "stability": "ratio",
    "tok_s": "tok/s", "tok_s_drift": "ratio", "ttft_s": "s", "observed_s": "s",
    "restarts": "count", "hangs": "count", "critical_lines": "count", "rss_growth": "B",
    "rss_peak": "B", "vram_growth": "B", "vram_peak": "B",
}  # fmt: skip
"""Metrics of a soak. `stability`: answered well over all; `tok_s_drift`: the last part's median
against the first's (0.05: 5 % slower); growth over the soak, peaks in it."""

GAUGE_METRICS = {
    "gpu.peak_used": "B", "gpu.peak_temperature": "count", "host.peak_ram_used": "B",
    "host.peak_swap_used": "B", "host.swap_in_rate": "B/s", "host.pressure": "%",
}  # fmt: skip
"""Peaks of the whole run so far, over every card (`of: sum` or `of: max`) and of the host."""


FROM_ZERO = (0.0, math.inf)
BOUNDS: dict[str, tuple[float, float]] = {
    "error_rate": (0.0, 1.0), "stability": (0.0, 1.0), "tok_s_drift": (-math.inf, 1.0),
    "rss_growth": (-math.inf, math.inf), "vram_growth": (-math.inf, math.inf),
    "host.pressure": (0.0, 100.0),
}  # fmt: skip
"""What a metric can be at least and at most; the others begin at zero and have no end."""


LEAST = {"benchmark": 3, "llama-bench": 3, "soak": 10}
"""Samples that a criterion needs where it does not say `min_samples`, by what measures it: runs, or
requests of a soak. What is captured, and a peak, is a single figure by nature: 1."""
BY_LOOKS = frozenset({
    "restarts", "critical_lines", "rss_growth", "rss_peak", "vram_growth", "vram_peak",
})  # fmt: skip
"""Metrics of a soak whose samples are looks at the server; it is the requests that load it."""
DRIFT_PART, DRIFT_SAMPLES = 6, 5
"""`tok_s_drift` needs so many rates in the first sixth and in the last."""


class BenchmarkStep(Strict):
    """`against: baseline` measures the baseline too: before its outage and after its restore.

    `concurrency`: levels at which the same prompts are sent once more, reported beside the figures
    of one stream; a gate judges one stream. `silence`: an engine that says nothing for longer
    hangs, and ends the benchmark.
    """

    service: str
    prompts: list[Text] = []
    max_tokens: int = Field(256, ge=2, le=32768)
    runs: int = Field(9, ge=1, le=200)
    max_runs: int | None = Field(None, ge=1, le=400)
    cv: float = Field(0.05, gt=0, le=1)
    warmup: int = Field(1, ge=0, le=20)
    model: Text = ""
    endpoint: Literal["chat", "completions"] = "chat"
    concurrency: list[Annotated[int, Field(ge=2, le=64)]] = Field([], max_length=6)
    silence: Annotated[Duration, Field(gt=0)] = SILENCE_S
    against: Literal["baseline"] | None = None

    @model_validator(mode="after")
    def _most(self) -> BenchmarkStep:
        if self.max_runs is not None and self.max_runs < self.runs:
            raise ValueError("!max_runs is below runs")
        return self

    @property
    def most_runs(self) -> int:
        """How far it goes on while the runs disagree: a third more unless it is said."""
        return self.max_runs or self.runs + max(1, self.runs // 3)


class SoakStep(Strict):
    """Requests for a long time. `every` with `arrivals: fixed` sends at fixed moments whatever the
    server does (a late one is sent at once and counted), with `after_reply` that long after the
    last answer. More than `max_errors` end it early, and the step fails. `critical`: a line of the
    service's log that matches is counted and shown."""

    service: str
    duration: Annotated[Duration, Field(gt=0)]
    every: Duration = 5.0
    arrivals: Literal["fixed", "after_reply"] = "after_reply"
    prompts: list[Text] = []
    max_tokens: int = Field(128, ge=2, le=32768)
    model: Text = ""
    max_errors: Count | None = None
    critical: Pattern = r"CUDA error|out of memory|segfault|SIGSEGV|ggml_abort|assert.* failed"

    @property
    def most_requests(self) -> int | None:
        """How many fit at most; None where nothing but the server slows them down."""
        return self._fit(self.duration)

    @property
    def most_rates(self) -> int | None:
        """How many requests `tok_s_drift` can compare at most."""
        one = self._fit(self.duration / DRIFT_PART)
        return None if one is None else 2 * one

    @property
    def most_looks(self) -> int:
        """Sixty looks at the server over the soak, but one a second at most and one each five
        seconds at least; and one at either end."""
        return int(self.duration / min(5.0, max(1.0, self.duration / 60))) + 2

    def _fit(self, seconds: float) -> int | None:
        return int(seconds / self.every + 1e-9) + 1 if self.every > 0 else None
