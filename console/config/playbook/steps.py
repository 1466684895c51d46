"""The step kinds a playbook can use, `cutover` among them, as an operator writes them.

A step is the common keys plus exactly one kind key; with `cutover`, clients of the baseline reach a
candidate. Adding a kind: a model that inherits `Content`, with the record of the kind in it, and a
key of `Step` here; an executor in `console.runner.executors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.bench.metrics import OUTPUT_METRICS, metric_of
from console.common.text import clean_lines, one_line, shown
from console.common.units import format_duration
from console.config.playbook.captured import OutputUnit
from console.config.playbook.inputs import Secret
from console.config.playbook.kinds import (
    IMPLICIT,
    TITLE_COLUMNS,
    AtMost,
    Content,
    Dropped,
    Image,
    KeptText,
    Moved,
    Named,
    Prose,
    StepKind,
)
from console.config.playbook.measuring_steps import (
    MIN_SAMPLES,
    BenchmarkStep,
    ContractStep,
    QualityStep,
    SoakStep,
)
from console.config.playbook.preflight_steps import (
    CheckpointStep,
    DownloadStep,
    GgufStep,
    HostStep,
    ImportsStep,
)
from console.config.playbook.threshold import Threshold, parse_threshold
from console.config.playbook.tuning_step import TuneStep
from console.config.playbook.verdict import Criterion
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


class CutoverStep(Strict, Content):
    """`port`: the baseline's port; another one is refused. `listen`: the address clients use, if it
    is not the one in the baseline's URL. `watch`: how long it is watched, with a completion at each
    `every`. `then`: the way back, or nothing until promote or rollback."""

    KIND: ClassVar = StepKind(
        "cutover", "service:cut_over", title="Cut over", services=("to",), acts=True
    )
    LASTING: ClassVar = "watch before its time"

    to: Named
    port: Annotated[int | None, Moved.PORT] = Field(None, ge=1, le=65535)
    listen: KeptText = Field("", pattern=r"^[0-9A-Fa-f.:]*$")
    watch: Annotated[Duration, Field(gt=0), AtMost(10.0)] = 300.0
    every: Annotated[Duration, Field(gt=0), AtMost(10.0)] = 10.0
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

    @property
    def lasts_s(self) -> float:
        return self.watch

    def unfit(self, step: Step) -> str:
        if step.retry or step.on_failure == "continue" or step.unless:
            return "a cutover that fails goes back: no retry, unless or continue"
        return ""

    def named_services(self) -> Iterator[tuple[str, str]]:
        """Its service has to be up by then, too: `cutover_problems` judges both."""
        return iter(())

    def effects(self) -> Iterator[str]:
        """What it does is a question of the site: console.runner.cutover."""
        return iter(())


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

    service: Named | None = None
    image: Image | None = None
    gpus: Annotated[Literal["all"] | list[str], Dropped()] = []
    mounts: Annotated[list[MountText], Moved.MOUNT] = []
    memory: ByteCount | None = None
    network: Annotated[Text, Dropped()] = ""

    @model_validator(mode="after")
    def _options_need_image(self) -> Where:
        if self.service is not None and (self.gpus or self.mounts or self.memory or self.network):
            raise ValueError("!gpus, mounts, memory and network need an image, not a service")
        return self


class Build(Strict, Content):
    """`source`: a checkout of what the Dockerfile clones, which is read before the build starts.
    `preflight: tell` says what is found in it, context and Dockerfile, and builds nevertheless."""

    KIND: ClassVar = StepKind("build", "preflight:build", 7200.0, "Build an image", acts=True)

    context: Text
    dockerfile: Text = ""
    tag: Text
    target: Text = ""
    args: dict[str, Text] = {}
    platform: Text = ""
    source: Text = ""
    preflight: Literal["stop", "tell"] = "stop"

    @property
    def runs_program(self) -> bool:
        return True


class HttpCheck(Strict):
    url: Annotated[Url, Moved.TEXT]
    status: int = Field(200, ge=100, le=599)
    matches: Pattern | None = None
    timeout: Duration = 5.0


class Check(OneOf, Content):
    """One question about the machine or a service; the step fails if the answer is no."""

    KIND: ClassVar = StepKind("check", "check:execute", 60.0, "Check", loads=False, at_end=True)

    ONE_OF = ("http", "output", "file", "port_free", "image", "cpu")
    REFUSED = "a check is exactly one of http, output, file, port_free, image, cpu"

    http: HttpCheck | None = None
    output: Annotated[list[Arg] | None, Moved.ARGV] = Field(None, min_length=1)
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    file: Annotated[Text | None, Moved.OWN] = None
    min_bytes: ByteCount | None = None
    port_free: Annotated[int | None, Moved.PORT] = Field(None, ge=1, le=65535)
    image: Image | None = None
    platform: KeptText | None = None
    cpu: Named | None = None

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

    @property
    def uses_environment(self) -> bool:
        return self.output is not None

    @property
    def prints(self) -> bool:
        return self.output is not None


class ServiceStep(OneOf, Content):
    KIND: ClassVar = StepKind(
        "service", "service:execute", 1200.0, services=("start", "stop", "wait"), acts=True
    )
    BASELINE_TOO: ClassVar = False
    ONE_OF = ("start", "stop", "wait")
    REFUSED = "a service step is exactly one of start, stop or wait"

    start: Named | None = None
    stop: Named | None = None
    wait: Named | None = None

    @property
    def verb(self) -> str:
        return "start" if self.start is not None else "stop" if self.stop is not None else "wait"

    @property
    def target(self) -> str:
        return self.start or self.stop or self.wait or ""

    def default_title(self) -> str:
        return f"{self.verb} {self.target}"

    @property
    def subject(self) -> str:
        return self.target

    @property
    def starts(self) -> str:
        return self.start or ""

    @property
    def stops(self) -> str:
        return self.stop or ""

    @property
    def loaded(self) -> str | None:
        return self.start

    @property
    def uses(self) -> str:
        return self.wait or ""


class CriterionModel(Strict):
    metric: Named = Field(pattern=r"^[a-z][\w-]*(\.[a-z][\w-]*)+$")
    go: ThresholdText | None = None
    no_go: ThresholdText | None = None
    min_samples: int | None = Field(None, ge=1)
    of: Literal["sum", "max"] | None = None

    @model_validator(mode="after")
    def _any(self) -> CriterionModel:
        if self.go is None and self.no_go is None:
            raise ValueError("!a criterion needs go or no_go: without one it decides nothing")
        return self

    def criterion(self, source: str = "") -> Criterion:
        """The criterion to be judged. `source`: the kind of samples of its metric. An explicit
        `min_samples` wins, 1 included."""
        least, requests = self.min_samples, 0
        if least is None:
            least = MIN_SAMPLES.get(source, 1)
            metric = metric_of(self.metric) if source == "soak" else None
            if metric is not None and metric.looks:
                least, requests = 1, least
        return Criterion(self.metric, self.go, self.no_go, least, self.of, requests)

    def words(self) -> str:
        """`bench.tok_s: GO >= 20 tok/s, else NO-GO`"""
        no_go = f"NO-GO {self.no_go}" if self.no_go else "else NO-GO"
        of = f" ({self.of})" if self.of else ""
        return f"{self.metric}{of}: {f'GO {self.go}, ' if self.go else ''}{no_go}"


@dataclass(frozen=True)
class Gate(Content):
    """The criteria of a gate."""

    KIND: ClassVar = StepKind("gate", "gate:execute", 60.0, "Gate", judges=True, loads=False)

    criteria: list[CriterionModel]

    def effects(self) -> Iterator[str]:
        yield from (criterion.words() for criterion in self.criteria)


class Outcomes(Strict):
    go: Named = ""
    no_go: Named = ""
    hold: Named = ""


class Approval(Strict, Content):
    """`confirm`: a word the operator has to type. An expiry in an outage rolls back."""

    KIND: ClassVar = StepKind("approval", "person:approve", 86400.0, asks=True, loads=False)

    prompt: Prose
    expires: Duration = 1800.0
    confirm: Prose = ""

    def default_title(self) -> str:
        return _first_line(self.prompt)

    @property
    def limit_s(self) -> float:
        return self.expires + 60

    def effects(self) -> Iterator[str]:
        yield f"asks: {one_line(self.prompt, 300)}"
        if self.confirm:
            yield f"the operator types: {one_line(self.confirm)}"
        yield f"expires after {format_duration(self.expires)}"


class Manual(Strict, Content):
    """Something the operator does elsewhere (sudo included); `verify` then proves it."""

    KIND: ClassVar = StepKind(
        "manual", "person:manual", 172800.0, asks=True, acts=True, loads=False
    )

    do: Prose
    verify: Check | None = None
    expires: Duration = 86400.0

    def default_title(self) -> str:
        return _first_line(self.do)

    @property
    def limit_s(self) -> float:
        return self.expires + 60

    @property
    def makes(self) -> str:
        return ""


class Report(Strict, Content):
    """`to` ends in .md: a report never overwrites a playbook or a configuration."""

    KIND: ClassVar = StepKind(
        "report", "person:report", 120.0, "Write the report", loads=False, at_end=True
    )  # fmt: skip

    to: Annotated[Text, Moved.OWN] = Field("", pattern=r"^$|\.md$")

    def effects(self) -> Iterator[str]:
        yield "writes the report" + (f" to {one_line(self.to)}" if self.to else "")


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:TITLE_COLUMNS]


@dataclass(frozen=True)
class Note(Content):
    KIND: ClassVar = StepKind("note", "person:note", 60.0, loads=False, at_end=True)

    text: str

    def default_title(self) -> str:
        return _first_line(self.text)

    def effects(self) -> Iterator[str]:
        yield from clean_lines(self.text.rstrip())


class Command(Content):
    """What `run` and `script` have in common."""

    @property
    def runs_command(self) -> bool:
        return True

    @property
    def prints(self) -> bool:
        return True

    @property
    def makes(self) -> str:
        return ""


@dataclass(frozen=True)
class Run(Command):
    KIND: ClassVar = StepKind("run", "command:execute", acts=True, repeatable=False, at_end=True)

    argv: list[str]

    def default_title(self) -> str:
        return shown(self.argv)[:TITLE_COLUMNS]


@dataclass(frozen=True)
class Script(Command):
    KIND: ClassVar = StepKind(
        "script", "command:execute", title="Script", acts=True, repeatable=False, at_end=True
    )

    text: str


WRAPPED: dict[str, type[Content]] = {
    "run": Run, "script": Script, "gate": Gate, "note": Note
}  # fmt: skip
"""The content of the keys that hold a text or a list."""


class Unless(OneOf):
    """If true, the step is skipped, because its result is there already."""

    ONE_OF = ("file", "run")
    REFUSED = "unless is exactly one of file or run"

    file: Annotated[Text | None, Moved.OWN] = None
    min_bytes: ByteCount | None = None
    run: Annotated[list[Arg] | None, Moved.ARGV] = Field(None, min_length=1)


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

    id: Annotated[str, Moved.PROSE] = Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    title: Annotated[str, Moved.PROSE] = ""
    why: Annotated[str, Moved.PROSE] = ""
    # kinds
    run: Annotated[list[Arg] | None, Moved.ARGV] = Field(None, min_length=1)
    script: Annotated[Text | None, Moved.TEXT] = None
    build: Annotated[Build | None, Moved.OWN] = None
    check: Check | None = None
    service: ServiceStep | None = None
    benchmark: BenchmarkStep | None = None
    gate: list[CriterionModel] | None = Field(None, min_length=1)
    approval: Approval | None = None
    manual: Manual | None = None
    note: Prose | None = None
    report: Report | None = None
    checkpoint: CheckpointStep | None = None
    gguf: GgufStep | None = None
    host: HostStep | None = None
    imports: ImportsStep | None = None
    download: Annotated[DownloadStep | None, Moved.OWN] = None
    soak: SoakStep | None = None
    contract: ContractStep | None = None
    tune: TuneStep | None = None
    quality: Annotated[QualityStep | None, Moved.OWN] = None
    cutover: CutoverStep | None = None
    # common
    where: Where | None = None
    env: Annotated[dict[EnvName, EnvValue], Moved.KEPT] = {}
    cwd: KeptText = ""
    environment: Annotated[EnvironmentModel, Moved.OWN] = EnvironmentModel()
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
        content = self.content
        if (self.where or self.env or self.cwd) and not content.runs_command:
            raise ValueError(
                "!where, env and cwd belong to run, script, a tune with bench and a suite"
            )
        on_host = self.where is None and content.uses_environment
        if self.environment != EnvironmentModel() and not on_host:
            kinds = "run, script, check output, bench, suite, and tools and headers of host"
            raise ValueError(f"!environment belongs to {kinds}, on this machine")
        if self.outputs and not content.prints:
            raise ValueError("!outputs belong to run, script, check output and a suite")
        if self.figures and not isinstance(content, Command):
            raise ValueError("!figures belongs to run and script: the output of a benchmark")
        if self.figures and (twice := sorted(set(self.outputs) & OUTPUT_METRICS.keys())):
            raise ValueError(f"!figures reads {twice[0]} already: use another name in outputs")
        lasts_s = content.lasts_s
        if lasts_s is not None and self.timeout is not None and self.timeout < lasts_s:
            raise ValueError(f"!timeout ends the {content.LASTING}: leave it out or make it longer")
        if problem := content.unfit(self):
            raise ValueError(f"!{problem}")
        if not content.KIND.judges and self.model_fields_set & {
            "on_no_go", "on_hold", "outcomes",
        }:  # fmt: skip
            judges = ", ".join(name for name in WRITTEN if KINDS[name].judges)
            raise ValueError(f"!on_no_go, on_hold and outcomes belong to {judges}")
        return self

    @property
    def kind(self) -> str:
        return next(k for k in WRITTEN if getattr(self, k) is not None)

    @property
    def content(self) -> Content:
        """What the step holds under the key of its kind."""
        kind = self.kind
        value: Any = getattr(self, kind)
        wrapped: Any = WRAPPED.get(kind)
        content: Content = value if wrapped is None else wrapped(value)
        return content

    @property
    def limit_s(self) -> float:
        """The step's timeout in seconds; every step has one."""
        return self.timeout if self.timeout is not None else self.content.limit_s


def _contents() -> Iterator[type[Content]]:
    """The content of each key of `Step` that is a kind, in the order of the documentation."""
    for key, field in Step.model_fields.items():
        for part in (WRAPPED.get(key), *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Content) and part.KIND.name == key:
                yield part


KINDS = {content.KIND.name: content.KIND for content in _contents()} | {
    kind.name: kind for kind in IMPLICIT
}
"""Every kind by its name."""
WRITTEN = tuple(name for name, kind in KINDS.items() if not kind.implicit)
"""The kinds that a playbook can name."""
