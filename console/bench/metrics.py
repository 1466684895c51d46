"""Every metric that a gate can name: one record for each, with all that the program knows of it.

Gates and their bounds, reports, panels, rehearsals and advice read these records. A unit is a base
unit: s, B, B/s, tok/s, ratio, count, %, or "" for a plain number; `ms` is only a way to write a
threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

MAX_SAMPLES = 400
"""Most samples of a metric in the journal, for a gate to resample; files have them all."""
MIN_PROMPT, MAX_PROMPT = 256, 131_072
"""Tokens of a prompt that measures the prompt rate: a shorter one measures the request."""
PROMPT_ROUNDS = 5
"""How often each length is sent."""
DRIFT_PART = 6
"""Drift compares the last sixth with the first: of one hour the last ten minutes."""
DRIFT_SAMPLES = 5
"""Rates in each of the two parts, at least."""
SOAK_REQUEST_S = 600.0
"""Seconds for one request of a soak: a stream that drips for longer has failed, though it was never
silent."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `text` says in the report what it is.

    `headline` is the statistic that stands for many samples, and `low` and `high` are the least and
    the greatest value that a threshold can name. `looks`: it is sampled by looking at the server,
    though it is requests that load it. `generates`: a rate of tokens that are generated: a
    rehearsal sets it by the speed of its stand-ins. `compared` is its place among the columns where
    runs are compared, 0 where it is none; `evidence`: shown beside a question for approval. `label`
    is its name in the panel of a running step, "" where it has none there. `cure` is what to try
    where it misses its target.
    """

    unit: str
    text: str = ""
    headline: Literal["mean", "median"] = "median"
    low: float = 0.0
    high: float = math.inf
    looks: bool = False
    generates: bool = False
    compared: int = 0
    evidence: bool = False
    label: str = ""
    cure: str = ""


SLOW = (
    "generation is bound by how fast weights are read: fewer layers or experts on the CPU, a "
    "smaller quantisation; `omni-console check checkpoint` shows where the weights lie"
)
SLOW_PROMPT = "larger batch and ubatch, flash attention, more of the model on the cards"
LATE = "larger batch and ubatch; on a cold server the weights are still being read"
FAILS = "errors by class and the reasons of discarded runs, then the server's log"
TOO_LARGE = "less context, a smaller quantisation, fewer layers or experts on the cards"
GROWS = "a longer soak shows whether it levels off: prompt cache, context checkpoints"
ENDS = "the server's log before the restart; memory limit of its container"
HANGS = "whether it hangs when the KV cache is full: a smaller context, context shift"

METRICS: dict[str, Metric] = {
    "tok_s": Metric(
        "tok/s", "completion tokens over the whole request's time", "mean",
        generates=True, compared=1, evidence=True, label="tok/s", cure=SLOW,
    ),
    "decode_tok_s": Metric(
        "tok/s", "generation rate after the first token", generates=True, cure=SLOW
    ),
    "prompt_tok_s": Metric(
        "tok/s", "prompt processing rate, nothing cached", compared=3, cure=SLOW_PROMPT
    ),
    "ttft_s": Metric(
        "s", "time to the first token, reasoning included",
        compared=5, evidence=True, label="ttft", cure=LATE,
    ),
    "ttfo_s": Metric("s", "time to the first token of the answer proper", cure=LATE),
    "tpot_s": Metric("s", "time per token after the first"),
    "e2e_s": Metric("s", "time of the whole request"),
    "stall_s": Metric("s", "longest pause between two chunks of text"),
    "error_rate": Metric(
        "ratio", "failed runs over all measured runs", "mean", high=1.0, evidence=True, cure=FAILS
    ),
    "runs": Metric("count", "valid measured runs", "mean"),
}  # fmt: skip
"""Metrics of a benchmark, in the order of a report. The number of runs is none for a gate, which
has `min_samples`."""
GATED = {name: metric for name, metric in METRICS.items() if name != "runs"}
PER_SAMPLE = tuple(name for name in METRICS if name not in ("error_rate", "runs"))
"""The metrics that a single request has; the others are of the whole benchmark."""

OUTPUT_METRICS = {
    "tg_tok_s": Metric("tok/s", generates=True, compared=2, cure=SLOW),
    "pp_tok_s": Metric("tok/s", compared=4, cure=SLOW_PROMPT),
}
"""Figures in the output of llama-bench or llama-sweep-bench; `tg` generates, `pp` reads."""

SOAK_METRICS = {
    "observed_s": Metric("s", "time that was observed"),
    "requests": Metric("count", "requests sent"),
    "errors": Metric("count", "requests that failed", cure=FAILS),
    "garbled": Metric("count", "answers whose text is none"),
    "error_rate": Metric("ratio", "failed over all", high=1.0, evidence=True, cure=FAILS),
    "stability": Metric("ratio", "answered well over all", high=1.0, compared=1, cure=FAILS),
    "tok_s": Metric(
        "tok/s", "tokens a second of a request, median", generates=True, evidence=True, cure=SLOW
    ),
    "tok_s_drift": Metric(
        "ratio", "the last sixth's median below the first's", low=-math.inf, high=1.0,
        compared=2, evidence=True,
    ),
    "ttft_s": Metric("s", "time to the first token", evidence=True, cure=LATE),
    "restarts": Metric(
        "count", "the server ended, or was started anew",
        looks=True, compared=4, evidence=True, cure=ENDS,
    ),
    "hangs": Metric("count", "no token for far too long", cure=HANGS),
    "critical_lines": Metric("count", "log lines that match `critical`", looks=True),
    "rss_growth": Metric(
        "B", "memory of the server, last tenth over first", low=-math.inf,
        looks=True, compared=3, cure=GROWS,
    ),
    "rss_peak": Metric("B", "its most", looks=True, cure=TOO_LARGE),
    "vram_growth": Metric(
        "B", "the same of its VRAM", low=-math.inf, looks=True, cure=GROWS
    ),
    "vram_peak": Metric("B", "its most", looks=True, cure=TOO_LARGE),
    "context_peak": Metric("count", "most tokens of a prompt and its answer"),
}  # fmt: skip
"""Metrics of a soak, in the order of a report. `garbled` answers are errors as well; a drift of
0.05 is 5 % slower."""
QUALITY_METRICS = {
    "mean_kld": Metric(""), "top1_agreement": Metric("ratio", high=1.0), "ppl": Metric(""),
    "ppl_ratio": Metric(""),
}  # fmt: skip
"""Metrics of a quality step, against the baseline's model on one text: mean Kullback-Leibler
divergence per token in nats, the share of tokens at which both expect the same next one, the
perplexity, and its ratio to the baseline's."""
TASK_METRICS = {"correct": Metric("ratio", high=1.0)}
"""Metrics of one that asks tasks instead: the share of right answers."""
CONTRACT_METRICS = {
    "changed": Metric("count"), "answers_differ": Metric("ratio", high=1.0),
    "tools_changed": Metric("count"), "schema_changed": Metric("count"),
    "protocol_changed": Metric("count"),
}  # fmt: skip
"""Metrics of a contract step: cases that changed beyond noise, the share of answers with other
words, and the cases of a kind in which more than words changed."""
TUNE_METRICS = {
    "best.tok_s": Metric("tok/s", generates=True, cure=SLOW),
    "best.prompt_tok_s": Metric("tok/s", cure=SLOW_PROMPT),
    "best.gain": Metric("ratio"), "points": Metric("count"),
}  # fmt: skip
"""Metrics of a tuning step. `best.gain`: how much faster the best flags are than today's (0.2: a
fifth), by what `prefer` names; `points`: how many were measured, now or before."""
GAUGE_METRICS = {
    "gpu.peak_used": Metric("B", cure=TOO_LARGE), "gpu.peak_temperature": Metric("count"),
    "host.peak_ram_used": Metric("B"), "host.peak_swap_used": Metric("B"),
    "host.swap_in_rate": Metric("B/s"), "host.pressure": Metric("%", high=100.0),
}  # fmt: skip
"""Peaks of the whole run so far, over every card (`of: sum` or `of: max`) and of the host."""

SPEEDS = tuple(
    name for name, metric in {**METRICS, **OUTPUT_METRICS}.items()
    if metric.generates and metric.compared
)  # fmt: skip
"""The rate of generation, as each way to measure it names it."""

_STEPS = (
    METRICS, OUTPUT_METRICS, SOAK_METRICS, QUALITY_METRICS, TASK_METRICS, CONTRACT_METRICS,
    TUNE_METRICS,
)  # fmt: skip


def metric_of(metric: str) -> Metric | None:
    """The record of `STEP.NAME`, `STEP.baseline.NAME` or a peak as a gate names it; None for the
    output of a command, which a playbook defines itself. A name has one meaning in every step."""
    if metric in GAUGE_METRICS:
        return GAUGE_METRICS[metric]
    name = metric.partition(".")[2].removeprefix("baseline.")
    return next((metrics[name] for metrics in _STEPS if name in metrics), None)
