"""Steps that measure a server or a model, as written, and every metric a gate can name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.bench.metrics import (
    CONTRACT_METRICS,
    DRIFT_PART,
    DRIFT_SAMPLES,
    GATED,
    MAX_PROMPT,
    MIN_PROMPT,
    PROMPT_ROUNDS,
    QUALITY_METRICS,
    SOAK_METRICS,
    SOAK_REQUEST_S,
    TASK_METRICS,
)
from console.bench.perplexity import MIN_SCORED, TOOL, scored
from console.bench.sse import SILENCE_S
from console.common.text import one_line
from console.common.units import format_duration
from console.config.playbook.kinds import (
    AtMost,
    Content,
    Dropped,
    Figure,
    KeptText,
    Moved,
    Named,
    StepKind,
    measured,
)
from console.config.site.service import Url
from console.config.validation import Arg, Duration, Pattern, Strict, Text

Count = Annotated[int, Field(ge=0)]

FIGURES = ("llama-bench", "sweep-bench")
"""The forms of a command's output that `figures:` names."""

MIN_SAMPLES = {"benchmark": 3, "llama-bench": 3, "soak": 10}
"""Samples that a criterion needs by default (`min_samples`), by what measures it: runs, or requests
of a soak. A captured figure and a peak are single by nature: 1."""


class BenchmarkStep(Strict, Content):
    """`against: baseline` measures the baseline too: before its outage and after its restore.
    `concurrency`: levels at which the same prompts are sent once more, reported beside the figures
    of one stream; a gate judges one stream. `prompt_lengths`: tokens of the prompts that measure
    the prompt rate, five of each; the longest one's is `prompt_tok_s`. `silence`: seconds without
    output after which an engine counts as hung, which ends the benchmark. `expect`: a pattern that
    every answer has to match somewhere; a run whose answer does not is garbled, and void."""

    KIND: ClassVar = StepKind("benchmark", "benchmark:execute", 3600.0, "Benchmark", ("service",))

    service: Named
    prompts: list[KeptText] = []
    max_tokens: Annotated[int, AtMost(32)] = Field(256, ge=2, le=32768)
    runs: Annotated[int, AtMost(5)] = Field(9, ge=1, le=200)
    max_runs: Annotated[int | None, Dropped()] = Field(None, ge=1, le=400)
    cv: float = Field(0.05, gt=0, le=1)
    warmup: int = Field(1, ge=0, le=20)
    model: KeptText = ""
    endpoint: Literal["chat", "completions"] = "chat"
    prompt_lengths: list[Annotated[int, Field(ge=MIN_PROMPT, le=MAX_PROMPT)]] = Field(
        [], max_length=4
    )
    concurrency: list[Annotated[int, Field(ge=2, le=64)]] = Field([], max_length=6)
    silence: Annotated[Duration, Field(gt=0)] = SILENCE_S
    expect: Pattern | None = None
    against: Literal["baseline"] | None = None

    @model_validator(mode="after")
    def _most(self) -> BenchmarkStep:
        if self.max_runs is not None and self.max_runs < self.runs:
            raise ValueError("!max_runs is below runs")
        return self

    @property
    def runs_at_most(self) -> int:
        """Most runs while they disagree: a third more than `runs` by default."""
        return self.max_runs or self.runs + max(1, self.runs // 3)

    @property
    def compares(self) -> bool:
        return self.against == "baseline"

    @property
    def uses(self) -> str:
        return self.service

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        own = measured(GATED, "benchmark", None if guessed else self.runs_at_most)
        if not guessed:
            more = f"runs: {MIN_SAMPLES['benchmark']} or more, or min_samples: {self.runs}"
            for figure in own.values():
                figure.usual = (self.runs, f"runs: {self.runs} gives {self.runs}", more)
        if not guessed and self.prompt_lengths:  # so many rates the prompts of a length give
            sent = f"each length of prompt_lengths is sent {PROMPT_ROUNDS} times"
            prompts = own["prompt_tok_s"]
            prompts.most, prompts.usual = PROMPT_ROUNDS, (
                PROMPT_ROUNDS, sent, "a lower min_samples",
            )  # fmt: skip
        if not self.against:
            return own
        return own | {f"baseline.{name}": figure for name, figure in own.items()}

    def effects(self) -> Iterator[str]:
        yield (
            f"{self.runs} runs of {self.max_tokens} tokens against {self.service}, "
            f"{self.warmup} warm-up, {len(self.prompts) or 3} prompt(s), temperature 0"
        )
        if self.endpoint == "completions":
            yield "asked at /v1/completions, without the model's chat template"
        if self.prompt_lengths:
            lengths = ", ".join(map(str, self.prompt_lengths))
            yield f"then the prompt rate, with {PROMPT_ROUNDS} prompts each of {lengths} tokens"
        if self.concurrency:
            levels = ", ".join(map(str, self.concurrency))
            yield f"then {levels} streams at once, reported beside the figures of one"
        if self.against:
            yield "compared with the baseline, measured the same way"


FILLING_FORM = "a share of the server's context from 10 % to 95 %, like 90 %, or a number of tokens"
MIN_CONTEXT, MAX_CONTEXT = 256, 10_000_000
"""Tokens that a soak may be asked to fill."""


def _filling(value: object) -> float:
    """A share up to 1, or tokens."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not MIN_CONTEXT <= value <= MAX_CONTEXT:
            raise ValueError(f"{MIN_CONTEXT} to {MAX_CONTEXT:,} tokens, or a share like 90 %")
        return float(value)
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%", value) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match else 0.0
    if not 0.1 <= share <= 0.95:
        raise ValueError(FILLING_FORM)
    return share


Filling = Annotated[
    float, BeforeValidator(_filling),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["90 %"]}),
]  # fmt: skip
"""How much of a context is filled: a share up to 1, or tokens above it."""


SHORT_TOKENS = 2
"""Tokens of an answer in a rehearsal's soak."""


class SoakStep(Strict, Content):
    """Sends requests for a long time. `every` with `arrivals: fixed` sends at fixed moments
    whatever the server does (a late one is sent at once and counted), with `after_reply` that long
    after the last answer. More than `max_errors` end it early, and the step fails. `critical`:
    lines of the service's log that match are counted and shown. `context`: the requests are a
    conversation that grows until so much of the server's context is filled, then another one."""

    KIND: ClassVar = StepKind("soak", "soak:execute", 14400.0, "Soak", ("service",))
    LASTING: ClassVar = "soak before its duration"

    service: Named
    duration: Annotated[Duration, Field(gt=0)]
    every: Annotated[Duration, AtMost(0.05)] = 5.0
    arrivals: Annotated[Literal["fixed", "after_reply"], Dropped()] = "after_reply"
    prompts: list[KeptText] = []
    max_tokens: Annotated[int, AtMost(SHORT_TOKENS)] = Field(128, ge=2, le=32768)
    context: Filling | None = None
    model: KeptText = ""
    max_errors: Count | None = None
    critical: Pattern = r"CUDA error|out of memory|segfault|SIGSEGV|ggml_abort|assert.* failed"

    def limit(self, size: int | None) -> int | None:
        """Tokens to fill of a context of that size; None if that cannot be told."""
        if self.context is None or self.context > 1:
            return int(self.context) if self.context else None
        return None if size is None else int(self.context * size)

    @property
    def max_requests(self) -> int | None:
        """How many requests fit at most; None if only the server limits them."""
        return self._fit(self.duration)

    @property
    def max_rates(self) -> int | None:
        """How many requests `tok_s_drift` can compare at most."""
        requests_per_part = self._fit(self.duration / DRIFT_PART)
        return None if requests_per_part is None else 2 * requests_per_part

    @property
    def max_looks(self) -> int:
        """Sixty looks at the server over the soak, but at most one a second, at least one every
        five seconds, and one at either end."""
        return int(self.duration / min(5.0, max(1.0, self.duration / 60))) + 2

    def _fit(self, seconds: float) -> int | None:
        return int(seconds / self.every + 1e-9) + 1 if self.every > 0 else None

    @property
    def lasts_s(self) -> float:
        return self.duration

    @property
    def uses(self) -> str:
        return self.service

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        of = measured(SOAK_METRICS, "soak")
        if not guessed:
            self._bound(of)
        return of

    def _bound(self, of: dict[str, Figure]) -> None:
        """The limits that duration, interval and `max_errors` set for its metrics."""
        lasts = f"the soak lasts {format_duration(self.duration)}"
        # the last request may begin just before the end
        of["observed_s"].bound(self.duration + SOAK_REQUEST_S, lasts)
        fit = self.max_requests
        if fit is not None:
            at_most = f"{fit} fit in {format_duration(self.duration)}"
            more = f"a longer soak, a shorter every, or min_samples: {fit}"
            for name, figure in of.items():
                figure.most, figure.usual = fit, (fit, at_most, more)
                if name in ("requests", "errors", "hangs"):
                    figure.bound(fit, at_most)
        rates = self.max_rates
        if rates is not None:
            of["tok_s_drift"].most = rates if rates >= 2 * DRIFT_SAMPLES else 0
            sixths = f"its first and its last sixth hold {rates}"
            of["tok_s_drift"].usual = (rates, sixths, "a longer soak, or a shorter every")
        for name, metric in SOAK_METRICS.items():
            if metric.looks:
                of[name].most = self.max_looks
        if self.max_errors is not None:  # more of them fail the step, and no gate sees its figures
            why = f"above max_errors: {self.max_errors} the soak itself fails"
            of["errors"].bound(self.max_errors, why)
            if self.max_errors == 0:
                of["error_rate"].bound(0.0, why)
                if self.arrivals == "after_reply":  # fixed moments can be missed without an error
                    of["stability"].bounds, of["stability"].why = (1.0, 1.0), why

    def effects(self) -> Iterator[str]:
        pace = f"one every {format_duration(self.every)}"
        if self.arrivals == "after_reply":
            pace = f"the next {format_duration(self.every)} after each reply"
        yield f"{format_duration(self.duration)} of requests to {self.service}, {pace}"
        if self.context is not None:
            share = f"{self.context:.0%} of its context" if self.context <= 1 else ""
            filled = share or f"{self.context:.0f} tokens of its context"
            yield f"as conversations, each of which grows until {filled} are filled"
        if self.max_errors is not None:
            yield f"ends early, as failed, above {self.max_errors} errors"


class ContractStep(Strict, Content):
    """Does a server answer as the baseline did before the trial, or as the fingerprint in the file
    `against`? `cases`: a file of your own cases, asked with ours. `repeat`: how often each is
    asked, to see what varies by itself. `suite`: a command that judges the server at $OMNI_URL by
    its exit code, instead of our cases, or beside them if `cases` are named."""

    KIND: ClassVar = StepKind("contract", "contract:execute", 3600.0, "Same answers?", ("service",))

    service: Named = ""
    url: Annotated[Url | None, Moved.TEXT] = None
    cases: KeptText = ""
    against: Annotated[Text, Moved.OWN] = "baseline"
    repeat: Annotated[int, AtMost(1)] = Field(2, ge=1, le=9)
    model: KeptText = ""
    suite: Annotated[list[Arg], Moved.ARGV] = []

    @model_validator(mode="after")
    def _exactly_one_target(self) -> ContractStep:
        if bool(self.service) == bool(self.url):
            raise ValueError("!a contract is of exactly one of service or url")
        if not self.asks and self.model_fields_set & {"against", "repeat", "model"}:
            raise ValueError("!against, repeat and model belong to cases, and a suite has none")
        return self

    @property
    def asks(self) -> bool:
        """Whether cases are asked at all."""
        return not self.suite or bool(self.cases)

    @property
    def of_baseline(self) -> bool:
        """Whether it needs the baseline's fingerprint."""
        return self.asks and self.against == "baseline"

    @property
    def runs_command(self) -> bool:
        return bool(self.suite)

    @property
    def prints(self) -> bool:
        return bool(self.suite)

    @property
    def server(self) -> str:
        """The server that is asked, in words."""
        return one_line(self.service or self.url or "")

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        return measured(CONTRACT_METRICS) if self.asks else {}

    def effects(self) -> Iterator[str]:
        if self.asks:
            own = f" and those of {one_line(self.cases)}" if self.cases else ""
            against = "the baseline's sealed ones" if self.of_baseline else one_line(self.against)
            times = f"each {self.repeat} times, at temperature 0"
            yield f"asks {self.server} the shipped cases{own}, {times}"
            yield f"compares tools, schemas, protocol and words with {against}"


class QualityStep(Strict, Content):
    """How good are the answers of a model? llama-perplexity of the build of `service` compares
    `model` with `base`, the baseline's, on `chunks` parts of `text`, `ctx` tokens each; both models
    are by default those of the command lines. Where both are one file, the baseline's build is
    compared with that of `service`. `program`: llama-perplexity for both, if it is not beside the
    service's program; `args`: its flags in place of those that it has in common with the service.
    `beside`: the baseline goes on serving. With `tasks` the service, which has to run, is asked the
    questions of that file instead."""

    KIND: ClassVar = StepKind(
        "quality", "quality:execute", 14400.0, "How good are its answers?", ("service",)
    )
    MEMORY: ClassVar = "loads models itself"

    service: Named
    model: KeptText = ""
    base: KeptText = ""
    text: KeptText = ""
    chunks: int = Field(8, ge=1, le=1000)
    ctx: int = Field(512, ge=64, le=8192)
    program: Annotated[list[Arg], Moved.KEPT] = []
    args: Annotated[list[Arg] | None, Moved.KEPT] = None
    beside: bool = False
    tasks: KeptText = ""

    @model_validator(mode="after")
    def _tasks_or_perplexity(self) -> QualityStep:
        given = sorted(self.model_fields_set - {"service", "tasks"})
        if self.tasks and given:
            raise ValueError(f"!{given[0]} belongs to llama-perplexity, which tasks do without")
        if not self.tasks and scored(self.chunks, self.ctx) < MIN_SCORED:
            raise ValueError(
                f"!{self.chunks} x {self.ctx} tokens are too few: llama-perplexity judges half of "
                f"them, and says nothing below {MIN_SCORED}"
            )
        return self

    @property
    def loads(self) -> bool:
        """Whether llama-perplexity loads the models."""
        return not self.tasks

    @property
    def loaded(self) -> str | None:
        return TOOL if self.loads else None

    @property
    def uses(self) -> str:
        return "" if self.loads else self.service

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        return measured(QUALITY_METRICS if self.loads else TASK_METRICS)

    def effects(self) -> Iterator[str]:
        """Which models is a question of the site: console.runner.prepare.quality."""
        return iter(())
