"""The step kinds a playbook can use, `cutover` among them, as an operator writes them.

A step is the common keys plus exactly one kind key; with `cutover`, clients of the baseline reach a
candidate. Adding a kind: a record in `console.config.playbook.kinds`, a model and a key of `Step`
here, an executor.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.bench.metrics import OUTPUT_METRICS
from console.config.playbook.captured import OutputUnit
from console.config.playbook.inputs import Secret
from console.config.playbook.kinds import JUDGES, KINDS, WRITTEN
from console.config.playbook.measuring_steps import (
    BenchmarkStep,
    CheckpointStep,
    ContractStep,
    DownloadStep,
    GgufStep,
    HostStep,
    ImportsStep,
    QualityStep,
    SoakStep,
)
from console.config.playbook.threshold import Threshold, parse_threshold
from console.config.playbook.tuning_step import TuneStep
from console.config.site.service import EnvironmentModel, EnvName, MountText, Url
from console.config.validation import (
    Arg,
    ByteCount,
    Duration,
    Name,
    OneOf,
    Pattern,
    Strict,
    Text,
    argument,
)


class CutoverStep(Strict):
    """`port`: the baseline's port; another one is refused. `listen`: the address clients use, if it
    is not the one in the baseline's URL. `watch`: how long it is watched, with a completion at each
    `every`. `then`: the way back, or nothing until promote or rollback."""

    to: str
    port: int | None = Field(None, ge=1, le=65535)
    listen: Text = Field("", pattern=r"^[0-9A-Fa-f.:]*$")
    watch: Annotated[Duration, Field(gt=0)] = 300.0
    every: Annotated[Duration, Field(gt=0)] = 10.0
    max_errors: int = Field(0, ge=0)
    then: Literal["back", "stay"] = "back"

    @model_validator(mode="after")
    def _often(self) -> CutoverStep:
        if self.every > self.watch:
            raise ValueError("!watch is shorter than every: no completion would be asked for")
        return self

    @property
    def stays(self) -> bool:
        return self.then == "stay"


def _threshold(value: Any) -> Threshold:
    if not isinstance(value, str):
        raise ValueError('a comparison in quotes, like ">= 20 tok/s"')
    return parse_threshold(value)


def _env_value(value: Any) -> str | Secret:
    return value if isinstance(value, Secret) else argument(value)


ThresholdText = Annotated[
    Threshold, BeforeValidator(_threshold), WithJsonSchema({"type": "string"})
]
EnvValue = Annotated[
    str | Secret, BeforeValidator(_env_value), WithJsonSchema({"type": ["string", "number"]})
]


class Where(OneOf):
    """Where a command runs: in a running service's container, or in a one-off container."""

    ONE_OF = ("service", "image")
    REFUSED = "where is exactly one of service or image"

    service: str | None = None
    image: Text | None = None
    gpus: Literal["all"] | list[str] = []
    mounts: list[MountText] = []
    memory: ByteCount | None = None
    network: Text = ""

    @model_validator(mode="after")
    def _options_need_image(self) -> Where:
        if self.service is not None and (self.gpus or self.mounts or self.memory or self.network):
            raise ValueError("!gpus, mounts, memory and network need an image, not a service")
        return self


class Build(Strict):
    """`source`: a checkout of what the Dockerfile clones, which is read before the build starts.
    `preflight: tell` says what is found in it, context and Dockerfile, and builds nevertheless."""

    context: Text
    dockerfile: Text = ""
    tag: Text
    target: Text = ""
    args: dict[str, Text] = {}
    platform: Text = ""
    source: Text = ""
    preflight: Literal["stop", "tell"] = "stop"


class HttpCheck(Strict):
    url: Url
    status: int = Field(200, ge=100, le=599)
    matches: Pattern | None = None
    timeout: Duration = 5.0


class Check(OneOf):
    """One question about the machine or a service; the step fails if the answer is no."""

    ONE_OF = ("http", "output", "file", "port_free", "image", "cpu")
    REFUSED = "a check is exactly one of http, output, file, port_free, image, cpu"

    http: HttpCheck | None = None
    output: list[Arg] | None = Field(None, min_length=1)
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    file: Text | None = None
    min_bytes: ByteCount | None = None
    port_free: int | None = Field(None, ge=1, le=65535)
    image: Text | None = None
    platform: Text | None = None
    cpu: str | None = None

    @model_validator(mode="after")
    def _keys_belong_together(self) -> Check:
        if self.output is not None and self.matches is None and self.not_matches is None:
            raise ValueError("!output needs matches or not_matches: a check that cannot fail")
        if self.output is None and (self.matches or self.not_matches):
            raise ValueError("!matches and not_matches belong to output")
        if self.min_bytes is not None and self.file is None:
            raise ValueError("!min_bytes belongs to file")
        if self.platform is not None and self.image is None:
            raise ValueError("!platform belongs to image")
        return self


class ServiceStep(OneOf):
    ONE_OF = ("start", "stop", "wait")
    REFUSED = "a service step is exactly one of start, stop or wait"

    start: str | None = None
    stop: str | None = None
    wait: str | None = None

    @property
    def verb(self) -> str:
        return "start" if self.start is not None else "stop" if self.stop is not None else "wait"

    @property
    def target(self) -> str:
        return self.start or self.stop or self.wait or ""


class CriterionModel(Strict):
    metric: str = Field(pattern=r"^[a-z][\w-]*(\.[a-z][\w-]*)+$")
    go: ThresholdText | None = None
    no_go: ThresholdText | None = None
    min_samples: int | None = Field(None, ge=1)
    of: Literal["sum", "max"] | None = None

    @model_validator(mode="after")
    def _any(self) -> CriterionModel:
        if self.go is None and self.no_go is None:
            raise ValueError("!a criterion needs go or no_go: without one it decides nothing")
        return self


class Outcomes(Strict):
    go: str = ""
    no_go: str = ""
    hold: str = ""


class Approval(Strict):
    """`confirm`: a word the operator has to type. An expiry in an outage rolls back."""

    prompt: Text
    expires: Duration = 1800.0
    confirm: Text = ""


class Manual(Strict):
    """Something the operator does elsewhere (sudo included); `verify` then proves it."""

    do: Text
    verify: Check | None = None
    expires: Duration = 86400.0


class Report(Strict):
    """`to` ends in .md: a report never overwrites a playbook or a configuration."""

    to: Text = Field("", pattern=r"^$|\.md$")


class Unless(OneOf):
    """If true, the step is skipped, because its result is there already."""

    ONE_OF = ("file", "run")
    REFUSED = "unless is exactly one of file or run"

    file: Text | None = None
    min_bytes: ByteCount | None = None
    run: list[Arg] | None = Field(None, min_length=1)


class Retry(Strict):
    attempts: int = Field(2, ge=1, le=20)
    backoff: Duration = 5.0


class Output(Strict):
    """A number captured from the step's output: the last match of a pattern with one group. `unit`
    is the unit it is printed in; the figure is in the base unit (bytes, seconds, ratio)."""

    pattern: Pattern
    unit: OutputUnit = ""

    @model_validator(mode="after")
    def _group(self) -> Output:
        if re.compile(self.pattern).groups < 1:
            raise ValueError("!an output pattern needs one group, like 'tg: ([0-9.]+)'")
        return self


class Step(Strict):
    """One step: an `id`, exactly one kind (`run` to `cutover`), and what goes with it."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    title: str = ""
    why: str = ""
    # kinds
    run: list[Arg] | None = Field(None, min_length=1)
    script: Text | None = None
    build: Build | None = None
    check: Check | None = None
    service: ServiceStep | None = None
    benchmark: BenchmarkStep | None = None
    gate: list[CriterionModel] | None = Field(None, min_length=1)
    approval: Approval | None = None
    manual: Manual | None = None
    note: Text | None = None
    report: Report | None = None
    checkpoint: CheckpointStep | None = None
    gguf: GgufStep | None = None
    host: HostStep | None = None
    imports: ImportsStep | None = None
    download: DownloadStep | None = None
    soak: SoakStep | None = None
    contract: ContractStep | None = None
    tune: TuneStep | None = None
    quality: QualityStep | None = None
    cutover: CutoverStep | None = None
    # common
    where: Where | None = None
    env: dict[EnvName, EnvValue] = {}
    cwd: Text = ""
    environment: EnvironmentModel = EnvironmentModel()
    when: bool = True
    requires: list[Check] = []
    unless: Unless | None = None
    timeout: Annotated[Duration, Field(gt=0)] | None = None
    takes: Duration | None = None
    retry: Retry | None = None
    idempotent: bool = False
    on_failure: Literal["stop", "rollback", "continue"] = "stop"
    on_no_go: Literal["stop", "rollback", "continue"] = "stop"
    on_hold: Literal["pause", "rollback"] = "pause"
    outcomes: Outcomes = Outcomes()
    outputs: dict[Name, Output] = {}
    figures: Literal["llama-bench", "sweep-bench"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        keys = [k for k in WRITTEN if getattr(self, k) is not None]
        if len(keys) != 1:
            what = " and ".join(keys) if keys else "none"
            raise ValueError(f"!a step has exactly one of {', '.join(WRITTEN)}; found {what}")
        command = keys[0] in ("run", "script")
        suite = self.contract is not None and bool(self.contract.suite)
        runs = command or suite or (self.tune is not None and bool(self.tune.bench))
        if (self.where or self.env or self.cwd) and not runs:
            raise ValueError(
                "!where, env and cwd belong to run, script, a tune with bench and a suite"
            )
        if self.environment != EnvironmentModel() and not self._commands_host:
            kinds = "run, script, check output, bench, suite, and tools and headers of host"
            raise ValueError(f"!environment belongs to {kinds}, on this machine")
        if self.outputs and not (command or suite or (self.check and self.check.output)):
            raise ValueError("!outputs belong to run, script, check output and a suite")
        if self.figures and not command:
            raise ValueError("!figures belongs to run and script: the output of a benchmark")
        if self.figures and (twice := sorted(set(self.outputs) & OUTPUT_METRICS.keys())):
            raise ValueError(f"!{twice[0]} is what figures reads already: another name in outputs")
        if self.soak and self.timeout is not None and self.timeout < self.soak.duration:
            raise ValueError("!timeout ends the soak before its duration: leave it out, or longer")
        if self.cutover and self.timeout is not None and self.timeout < self.cutover.watch:
            raise ValueError("!timeout ends the watch before its time: leave it out, or longer")
        if self.cutover and (self.retry or self.on_failure == "continue" or self.unless):
            raise ValueError("!a cutover that fails goes back: no retry, unless or continue")
        if keys[0] not in JUDGES and self.model_fields_set & {"on_no_go", "on_hold", "outcomes"}:
            raise ValueError(f"!on_no_go, on_hold and outcomes belong to {', '.join(JUDGES)}")
        return self

    @property
    def _commands_host(self) -> bool:
        """Whether it runs a command on this machine, or looks for what one would need."""
        looked = self.host is not None and bool(self.host.tools or self.host.headers)
        has_check_output = self.check is not None and self.check.output is not None
        command = self.run is not None or self.script is not None
        command = command or (self.tune is not None and bool(self.tune.bench))
        command = command or (self.contract is not None and bool(self.contract.suite))
        return self.where is None and (command or has_check_output or looked)

    @property
    def kind(self) -> str:
        return next(k for k in WRITTEN if getattr(self, k) is not None)

    @property
    def limit_s(self) -> float:
        """The step's timeout in seconds; every step has one."""
        if self.soak is not None and self.timeout is None:
            return self.soak.duration * 1.25 + 1200.0
        if self.cutover is not None and self.timeout is None:
            return self.cutover.watch * 1.25 + 1200.0
        return self.timeout if self.timeout is not None else KINDS[self.kind].timeout_s


if missing := set(WRITTEN) - Step.model_fields.keys():
    raise TypeError(f"Step has no field for {', '.join(sorted(missing))}")
