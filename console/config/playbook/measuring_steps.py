"""Steps that measure, run preflights or download, as written, and every metric a gate can name.

Preflight steps cost nothing.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.bench.metrics import DRIFT_PART, MAX_PROMPT, MIN_PROMPT
from console.bench.perplexity import MIN_SCORED, scored
from console.bench.sse import SILENCE_S
from console.common.units import DRIVER_FORM, is_driver
from console.config.site.service import Url
from console.config.site.site import Compute, Rate
from console.config.validation import Arg, ByteCount, Duration, Pattern, Strict, Text

Count = Annotated[int, Field(ge=0)]

FIGURES = ("llama-bench", "sweep-bench")
"""The forms of a command's output that `figures:` names."""

LEAST = {"benchmark": 3, "llama-bench": 3, "soak": 10}
"""Samples that a criterion needs by default (`min_samples`), by what measures it: runs, or requests
of a soak. A captured figure and a peak are single by nature: 1."""
Loader = Literal["mmap", "resident", "convert"]
Engine = Literal["llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"]
Port = Annotated[int, Field(ge=1, le=65535)]


class BenchmarkStep(Strict):
    """`against: baseline` measures the baseline too: before its outage and after its restore.
    `concurrency`: levels at which the same prompts are sent once more, reported beside the figures
    of one stream; a gate judges one stream. `prompt_lengths`: tokens of the prompts that measure
    the prompt rate, five of each; the longest one's is `prompt_tok_s`. `silence`: seconds without
    output after which an engine counts as hung, which ends the benchmark. `expect`: a pattern that
    every answer has to match somewhere; a run whose answer does not is garbled, and void."""

    service: str
    prompts: list[Text] = []
    max_tokens: int = Field(256, ge=2, le=32768)
    runs: int = Field(9, ge=1, le=200)
    max_runs: int | None = Field(None, ge=1, le=400)
    cv: float = Field(0.05, gt=0, le=1)
    warmup: int = Field(1, ge=0, le=20)
    model: Text = ""
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


class SoakStep(Strict):
    """Sends requests for a long time. `every` with `arrivals: fixed` sends at fixed moments
    whatever the server does (a late one is sent at once and counted), with `after_reply` that long
    after the last answer. More than `max_errors` end it early, and the step fails. `critical`:
    lines of the service's log that match are counted and shown. `context`: the requests are a
    conversation that grows until so much of the server's context is filled, then another one."""

    service: str
    duration: Annotated[Duration, Field(gt=0)]
    every: Duration = 5.0
    arrivals: Literal["fixed", "after_reply"] = "after_reply"
    prompts: list[Text] = []
    max_tokens: int = Field(128, ge=2, le=32768)
    context: Filling | None = None
    model: Text = ""
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


def _texts(value: object) -> object:
    """Accept one text for a list of one."""
    return [value] if isinstance(value, str) else value


def _driver(value: object) -> str:
    if not isinstance(value, str) or not is_driver(value):
        raise ValueError(f"{DRIVER_FORM}, in quotes")
    return value


DriverVersion = Annotated[str, BeforeValidator(_driver), WithJsonSchema({"type": "string"})]
Texts = Annotated[
    list[Text], BeforeValidator(_texts), WithJsonSchema({"type": ["array", "string"]})
]


class ContractStep(Strict):
    """Does a server answer as the baseline did before the trial, or as the fingerprint in the file
    `against`? `cases`: a file of your own cases, asked with ours. `repeat`: how often each is
    asked, to see what varies by itself. `suite`: a command that judges the server at $OMNI_URL by
    its exit code, instead of our cases, or beside them if `cases` are named."""

    service: str = ""
    url: Url | None = None
    cases: Text = ""
    against: Text = "baseline"
    repeat: int = Field(2, ge=1, le=9)
    model: Text = ""
    suite: list[Arg] = []

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


class CheckpointStep(Strict):
    """Does it fit? `repo`: org/name[@revision], an address or a path. The loader takes its
    arguments from `service`, or from `args`. `beside`: the baseline goes on serving."""

    repo: Text
    include: Texts = []
    exclude: Texts = []
    loader: Loader | None = None
    engine: Engine | None = None
    service: str = ""
    args: list[Arg] = []
    ctx: int | None = Field(None, ge=1)
    to: Text = ""
    beside: bool = False

    @model_validator(mode="after")
    def _one_source_of_args(self) -> CheckpointStep:
        if self.service and self.args:
            raise ValueError("!arguments come from service or from args, not from both")
        return self


class GgufStep(Strict):
    """Does the build of `service`, `image` or `binary` accept the file's architecture?"""

    file: Text
    include: Texts = []
    service: str = ""
    image: Text = ""
    binary: Text = ""

    @model_validator(mode="after")
    def _at_most_one_build(self) -> GgufStep:
        if sum(bool(x) for x in (self.service, self.image, self.binary)) > 1:
            raise ValueError("!the build is one of service, image or binary")
        return self


class DiskAsk(Strict):
    path: Text
    free: ByteCount


class HostStep(Strict):
    """What this machine must have. `gpus`: every card that the site names is here. `tools` and
    `headers`: what a build on the host has to find, within the step's `environment` if it has one;
    among the tools, `nvcc` has to be of the version `cuda`, which is else a matter of a table.
    `builds`: build steps of this playbook, whose context, Dockerfile and source are read now;
    `source`: a tree that is built on this machine."""

    method: Text = ""
    ports: list[Port] = []
    images: Texts = []
    torch: Texts = []
    compose: Texts = []
    disk: DiskAsk | None = None
    sched_ext: bool = False
    gpus: bool = False
    compute: Compute | None = None
    cuda: Compute | None = None
    driver: DriverVersion | None = None
    tools: Texts = []
    headers: list[Annotated[str, Field(pattern=r"^[\w./+-]+$")]] = []
    builds: list[str] = []
    source: Text = ""


class ImportsStep(Strict):
    """Can these modules be imported in the image, with everything that they import?"""

    image: Text = ""
    service: str = ""
    modules: Texts = Field(min_length=1)
    python: Text = ""

    @model_validator(mode="after")
    def _image_or_service(self) -> ImportsStep:
        if bool(self.image) == bool(self.service):
            raise ValueError("!imports needs exactly one of image or service")
        return self


class QualityStep(Strict):
    """How good are the answers of a model? llama-perplexity of the build of `service` compares
    `model` with `base`, the baseline's, on `chunks` parts of `text`, `ctx` tokens each; both models
    are by default those of the command lines. Where both are one file, the baseline's build is
    compared with that of `service`. `program`: llama-perplexity for both, if it is not beside the
    service's program; `args`: its flags in place of those that it has in common with the service.
    `beside`: the baseline goes on serving. With `tasks` the service, which has to run, is asked the
    questions of that file instead."""

    service: str
    model: Text = ""
    base: Text = ""
    text: Text = ""
    chunks: int = Field(8, ge=1, le=1000)
    ctx: int = Field(512, ge=64, le=8192)
    program: list[Arg] = []
    args: list[Arg] | None = None
    beside: bool = False
    tasks: Text = ""

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


class DownloadStep(Strict):
    """`of` names the checkpoint step that judged it; a NO-GO there needs a typed override."""

    repo: Text = ""
    of: str = ""
    include: Texts = []
    exclude: Texts = []
    to: Text
    workers: int = Field(16, ge=1, le=64)
    verify_up_to: ByteCount = 0
    line: Rate | None = None

    @model_validator(mode="after")
    def _exactly_one_source(self) -> DownloadStep:
        if bool(self.repo) == bool(self.of):
            raise ValueError("!a download is of a checkpoint step, or of a repo")
        if self.of and (self.include or self.exclude):
            raise ValueError("!include and exclude come from the checkpoint step")
        return self
