"""The site: this machine's baseline, GPUs, protected and named services, and declared figures.

Figures are declared if they cannot be measured, or to plan for another machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from console.common import units
from console.common.errors import InvalidFile, Problem
from console.common.redact import HIDDEN, NONE, Known
from console.common.text import one_line
from console.config.playbook.inputs import InputValue, Offers
from console.config.site.guard import LEASE, GuardModel, limits, trouble
from console.config.site.notify import NotifyModel
from console.config.site.schedule import ScheduleModel
from console.config.site.service import (
    ComposeModel,
    EnvironmentModel,
    ProcessModel,
    ReadyModel,
    ServiceModel,
    ServiceName,
    UnitModel,
    Url,
)
from console.config.site.watch import WatchModel
from console.config.validation import (
    Arg,
    ByteCount,
    Duration,
    OneOf,
    Pattern,
    Strict,
    Text,
    validated,
)
from console.config.yaml import Document, Loc, parse, read_text
from console.host.process import Owner
from console.host.sample import Card, Machine
from console.recovery.guard.config import Limit
from console.runtime.spec import GRACE_S, ComposeSpec, ExistingContainer, Runs, ServiceSpec

DECLARED = "declared by the site"
TITLE = "the site file cannot be used"


def _rate(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(units.RATE_FORM)
    return units.parse_rate(value)


def _compute(value: Any) -> tuple[int, int]:
    major, dot, minor = str(value).partition(".")
    if not (isinstance(value, str) and dot and major.isdigit() and minor.isdigit()):
        raise ValueError('a compute capability in quotes, like "12.0"')
    return int(major), int(minor)


Rate = Annotated[
    float, BeforeValidator(_rate), WithJsonSchema({"type": "string", "examples": ["500Mbit/s"]})
]
"""Bytes a second, written `500Mbit/s` or `6GB/s`."""
Compute = Annotated[tuple[int, int], BeforeValidator(_compute), WithJsonSchema({"type": "string"})]


InputName = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9-]*\.)?[a-z][a-z0-9_-]*$", max_length=122)
]
"""An input of every playbook that has one of this name, or `PLAYBOOK.INPUT`."""


class GpuModel(Strict):
    """A card by UUID; `memory` and `compute` if it is not in this machine."""

    uuid: Text
    name: Text = ""
    memory: ByteCount | None = None
    compute: Compute | None = None


class MachineModel(Strict):
    """Declared figures replace measured ones: the verdict is then about that machine. `ram_used` is
    what everything but the models takes; `memory_read` how fast the CPU reads RAM."""

    ram: ByteCount | None = None
    ram_used: ByteCount = 0
    swap: ByteCount | None = None
    disk_free: ByteCount | None = None
    disk_read: Rate | None = None
    memory_read: Rate | None = None
    line: Rate | None = None
    cpu: Text = ""
    cpu_flags: list[Text] = []
    cores: int | None = Field(None, gt=0)
    numa_nodes: int | None = Field(None, gt=0)

    def over(self, seen: Machine, gpus: list[GpuModel]) -> Machine:
        """The machine for a verdict: `seen`, with the site's declared figures over it."""
        cards = tuple(
            Card(gpu.name or gpu.uuid, gpu.uuid, gpu.memory, None, gpu.compute)
            for gpu in gpus
            if gpu.memory is not None
        )
        free = None if self.ram is None else max(0, self.ram - self.ram_used)
        figures: dict[str, Any] = {
            "cards": cards or None, "ram_total": self.ram, "ram_available": free,
            "swap_total": self.swap, "swap_free": self.swap, "disk_free": self.disk_free,
            "disk_read_bps": self.disk_read, "line_bps": self.line,
            "cpu_name": self.cpu or None, "cpu_flags": frozenset(self.cpu_flags) or None,
            "cores": self.cores, "numa_nodes": self.numa_nodes,
        }  # fmt: skip
        changes = {name: value for name, value in figures.items() if value is not None}
        return replace(seen, **changes, given={**seen.given, **dict.fromkeys(changes, DECLARED)})


class CompletionModel(Strict):
    """The request that proves the baseline serves. `expect`: a pattern that its answer has to match
    somewhere; without one it is only judged by its form."""

    model: Text = ""
    prompt: Text = "Reply with one short sentence: are you serving?"
    max_tokens: int = Field(8, gt=0, le=512)
    timeout: Annotated[Duration, Field(gt=0)] = 120.0
    expect: Annotated[Pattern, Field(max_length=500)] = ""


class ReferenceModel(Strict):
    """The baseline's known speed; below `tok_s` x (1 - tolerance) it is DEGRADED. `best` is what it
    reaches on a good day."""

    tok_s: float = Field(gt=0)
    best: float | None = Field(None, gt=0)
    tolerance: float = Field(0.10, gt=0, lt=1)


class BaselineModel(OneOf):
    """The service that must always come back: an existing container, a compose service whose
    container exists, a host process, or a systemd unit. `args`: the engine's arguments, for
    planning if container or unit cannot be asked."""

    ONE_OF = ("container", "compose", "process", "unit")
    REFUSED = "the baseline is exactly one of container, compose, process or unit"

    container: Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][\w.-]*$")] | None = None
    compose: ComposeModel | None = None
    process: ProcessModel | None = None
    unit: UnitModel | None = None
    url: Url
    ready: ReadyModel = ReadyModel()
    completion: CompletionModel = CompletionModel()
    reference: ReferenceModel | None = None
    models: list[Text] = []
    args: list[Arg] = []
    grace: Duration = GRACE_S

    @model_validator(mode="after")
    def _as_it_is(self) -> BaselineModel:
        if self.compose is not None and self.compose.args:
            raise ValueError("!the baseline's container exists already: write args beside compose")
        if self.process is not None and self.process.environment != EnvironmentModel():
            what = "a rollback starts the baseline by what was sealed, and reads no other file"
            raise ValueError(f"!{what}: name its program by its whole path, and write env")
        return self


class EngineModel(Strict):
    host: str = Field("", pattern=r"^(unix:///.+)?$")


class SiteModel(Strict):
    schema_: Literal["omni.site/v1"] = Field(alias="schema")
    name: Text = Field(pattern=r"^[A-Za-z0-9][\w.-]*$")
    baseline: BaselineModel
    engine: EngineModel = EngineModel()
    machine: MachineModel = MachineModel()
    gpus: list[GpuModel] = []
    protected: list[Text] = []
    services: dict[ServiceName, ServiceModel] = {}
    aliases: dict[Text, Text] = {}
    defaults: dict[InputName, InputValue] = {}
    lease: Annotated[Duration | None, LEASE] = None
    guards: list[GuardModel] = []
    notify: list[NotifyModel] = []
    watch: WatchModel = WatchModel()
    schedule: list[ScheduleModel] = []

    @model_validator(mode="after")
    def _names(self) -> SiteModel:
        names = [entry.name for entry in self.schedule]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"!two entries of schedule are called {twice[0]}")
        for old, new in self.aliases.items():
            if new in self.aliases:
                raise ValueError(f"!alias {old} leads to {new}, which is an old name itself")
            if old in self.services:
                raise ValueError(f"!alias {old} is a service of this site: one of the two is gone")
        return self

    @property
    def names(self) -> dict[str, str]:
        """Other names that a playbook may use: the aliases, and the baseline's container."""
        own = self.baseline.container
        mine = {} if own is None or own in {"baseline", *self.services} else {own: "baseline"}
        return {**mine, **self.aliases}


@dataclass
class Site:
    """A loaded site: the model plus where it came from."""

    model: SiteModel
    path: Path
    text: str
    guards: tuple[Limit, ...] = ()
    known: Known = NONE

    def __post_init__(self) -> None:
        self.base = self.path.resolve().parent

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def owner(self) -> Owner:
        """Which site it is, where two files may have its name."""
        return Owner(str(self.path), self.model.baseline.url)

    def baseline_spec(self) -> ServiceSpec:
        """The baseline as a service value; its name is `baseline`."""
        model = self.model.baseline
        made = model.compose or model.process or model.unit
        runs: Runs = (
            ExistingContainer(model.container or "") if made is None else made.spec(self.base)
        )
        spec = ServiceSpec("baseline", model.url, runs, model.ready.spec(), grace_s=model.grace)
        return self.equipped(spec)

    @property
    def offers(self) -> Offers:
        """What a playbook's inputs take from here where they are not given."""
        base, known = self.model.baseline, [gpu.compute for gpu in self.model.gpus if gpu.compute]
        facts = {
            "url": base.url, "port": str(urlsplit(base.url).port or ""),
            "container": base.container or "", "protected": " ".join(self.model.protected),
            "compute": ".".join(map(str, min(known))) if known else "",
            "cards": "true" if self.model.gpus else "",
        }  # fmt: skip
        if (reference := base.reference) is not None:
            least = reference.tok_s * (1 - reference.tolerance)
            facts |= {"tok_s": f"{reference.tok_s:g}", "least_tok_s": f"{least:.4g}"}
        return Offers(facts, self.model.defaults)

    @property
    def compose_env(self) -> dict[str, str]:
        """Variables of the site for every compose file: the cards, in the site's order."""
        cards = ",".join(gpu.uuid for gpu in self.model.gpus)
        return {"OMNI_GPUS": cards} if cards else {}

    def equipped(self, spec: ServiceSpec) -> ServiceSpec:
        """A compose service with `compose_env` added; any other unchanged."""
        if not isinstance(spec.runs, ComposeSpec):
            return spec
        env = tuple({**self.compose_env, **dict(spec.runs.env)}.items())
        return replace(spec, runs=replace(spec.runs, env=env))

    def service_specs(self) -> dict[str, ServiceSpec]:
        return {name: model.spec(name, self.base) for name, model in self.model.services.items()}


def load_site(path: Path, *, lacking: bool = False) -> Site:
    """A site file → Site; raises InvalidFile with every problem. `lacking`: it may still lack the
    secrets that `init` has left out, as nothing is started from it."""
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    model = validated(SiteModel, document, document.data)
    guards: tuple[Limit, ...] = ()
    if model is not None:
        guards = limits(document, model.guards, "site", frozenset(model.services))
        document.add(*taken(lambda: document, model.services, model))
        if not lacking:
            refuse_left_out(document, model, text)
        declared = model.machine.over(Machine(), model.gpus)
        for index, limit in enumerate(guards):
            if words := trouble(limit, declared):
                document.refuse(("guards", index), words)
    refuse_masks(document)
    known = Known.of(document.data)
    if model is None or document.problems:
        problems = [problem.map_words(known.text) for problem in sorted(document.problems)]
        raise InvalidFile(TITLE, problems, "docs/reference/site.md describes the file")
    return Site(model, path, text, guards, known)


_LEFT_OUT = re.compile(
    r"^\s*# left out(?: of (env))?, because it is secret: "
    r"(?:the value of )?(.+?)(?:; write here.*)?$",
    re.M,
)
"""How `console.config.site.draft` marks a word or a variable that the file lacks."""
_FETCHES = re.compile(r"-*(hft|(\w+_)?(hf|hugging_?face)[_-](\w+[_-])?token)", re.I)
"""Flags and variables with which an engine fetches models; they keep nobody out."""
_MASK = re.compile(rf"(?:^|[=:]|(?:^|\s)(?:bearer|basic|token) ){re.escape(HIDDEN)}(?:$|@)", re.I)


def refuse_masks(document: Document) -> None:
    """Refuse each value that is only the mask that a secret is shown as, also behind a flag's `=`,
    as the password of an address, or as the credentials of a header."""
    pending: list[tuple[Loc, Any]] = [((), document.data)]
    while pending:
        loc, value = pending.pop()
        if isinstance(value, dict):
            pending += [((*loc, str(key)), member) for key, member in value.items()]
        elif isinstance(value, list):
            pending += [((*loc, at), element) for at, element in enumerate(value)]
        elif isinstance(value, str) and _MASK.search(value):
            where = next((part for part in reversed(loc) if isinstance(part, str)), "")
            document.refuse(
                loc, f"{one_line(where, 60)}: {HIDDEN} is what is shown instead of a secret",
                "the value itself", "fill in the value that is hidden",
            )  # fmt: skip


def refuse_left_out(document: Document, model: SiteModel, text: str) -> None:
    """Refuse a process that still lacks a secret that `init` has left out and named in a comment:
    without its key a server would come back open to everybody, and prove itself. One that lacks
    only what fetches a model serves as before."""
    base = model.baseline.process
    if base is None:
        return
    flags = {word.partition("=")[0] for word in base.argv if word.startswith("-")}
    for env, name in dict.fromkeys(_LEFT_OUT.findall(text)):
        if name in (base.env if env else flags) or _FETCHES.fullmatch(name):
            continue
        place = "a line of process.env" if env else "process.argv, in the place of that line"
        document.refuse(
            ("baseline", "process", "argv"), f"the value of {one_line(name, 60)} is missing",
            "the secrets that the server was started with",
            f"write it into {place}; where the server needs no such secret delete the line `left "
            "out`",
        )  # fmt: skip


def taken(
    document: Callable[[], Document], services: Mapping[str, ServiceModel], site: SiteModel
) -> Iterator[Problem]:
    """Services of a file whose container would get the name of one that is never stopped."""
    for name, service in services.items():
        if service.container is None:
            continue
        made = service.container.name or f"omni-{name}"
        whose = "the baseline's" if made == site.baseline.container else "protected"
        if made != site.baseline.container and made not in site.protected:
            continue
        own = ("container", "name") if service.container.name else ()
        yield document().problem(
            ("services", name, *own),
            f"service '{name}': container {made} is {whose}: it would never be stopped",
            hint="another container.name for the service, or correct `protected:`", key=not own,
        )  # fmt: skip
