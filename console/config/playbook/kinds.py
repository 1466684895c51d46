"""What the rest of the program asks of every kind of step, with the answer of a kind that says
nothing of it.

A kind's model (in `steps`, `measuring_steps`, `preflight_steps` or `tuning_step`) inherits
`Content`, has the record of its kind in `KIND`, and overrides what is different. The rules of a
playbook, the plan, its words and the rehearsal ask `Step.content`; none of them knows the kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.bench.metrics import Metric
from console.common.text import one_line
from console.config.playbook.decidable import Bounds
from console.config.validation import Text

if TYPE_CHECKING:
    from console.config.playbook.steps import Step

TITLE_COLUMNS = 70


class Moved(Enum):
    """What a rehearsal does with the value of a field, declared with the field's type:
    `image: Annotated[Text, Moved.IMAGE]`. `console.rehearsal.rewrite` does it."""

    KEPT = auto()
    """It stays, but for the addresses of this machine in it, whose ports are moved."""
    PROSE = auto()
    """A person reads it: nothing connects to what it names."""
    TEXT = auto()
    """Addresses are moved, and names of images replaced."""
    ARGV = auto()
    """The same word by word, and a word that is a port is moved, too."""
    PORT = auto()
    IMAGE = auto()
    MOUNT = auto()
    OWN = auto()
    """The rehearsal has a function for it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A rehearsal leaves the field out; `why` stands behind its key in the notes."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A rehearsal takes no larger number, and no longer duration in seconds."""

    value: float


KeptText = Annotated[Text, Moved.KEPT]
Named = Annotated[str, Moved.KEPT]
"""The name of a service, a step or a file's part: the same in a rehearsal."""
Image = Annotated[Text, Moved.IMAGE]
Prose = Annotated[Text, Moved.PROSE]
_Mark = TypeVar("_Mark", bound=Moved | Dropped | AtMost)


def mark_of(field: FieldInfo, kind: type[_Mark]) -> _Mark | None:
    """What is declared with a field, or with a part of its type; None for nothing."""
    return next((mark for mark in declared(field) if isinstance(mark, kind)), None)


def model_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model that the field holds, alone or in a list."""
    parts = (part for part in declared(field) if isinstance(part, type))
    return next((part for part in parts if issubclass(part, BaseModel)), None)


def declared(field: FieldInfo) -> Iterator[Any]:
    """The type of a field, its parts, and what is declared with each."""
    yield from field.metadata
    yield from _walked(field.annotation)


def _walked(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _walked(part)


def marked(model: type[BaseModel], holder: Any, mark: Moved) -> Iterator[Any]:
    """The values of `holder`, a model or the table it is made from, that have this mark."""
    for key, field in model.model_fields.items():
        value = holder.get(key) if isinstance(holder, dict) else getattr(holder, key)
        values = value if isinstance(value, list) else [value]
        inner = model_of(field)
        if mark_of(field, Moved) is mark:
            yield from (value for value in values if value is not None)
        elif inner is not None:
            for part in values:
                if isinstance(part, dict | BaseModel):
                    yield from marked(inner, part, mark)


@dataclass(frozen=True, slots=True)
class StepKind:
    """What is true of one kind of step.

    `executor` is MODULE:FUNCTION below console.runner.executors. `timeout_s` are the seconds of a
    step without a timeout, `title` is its name if neither title nor content gives one. `services`
    are its keys that name a service. One that `judges` ends in GO, NO-GO or HOLD; one that `asks`
    waits for a person; one that `acts` changes something, so lessons apply to it; one that `loads`
    may fill memory and needs the sentinel. A `repeatable` one checks first: run twice it changes
    nothing more. Those `at_end` may stand in `finally`. An `implicit` one is added by the plan, not
    written.
    """

    name: str
    executor: str
    timeout_s: float = 600.0
    title: str = ""
    services: tuple[str, ...] = ()
    judges: bool = False
    asks: bool = False
    acts: bool = False
    loads: bool = True
    repeatable: bool = True
    at_end: bool = False
    implicit: bool = False


@dataclass
class Figure:
    """A metric that a gate can name; `source`: what measures it, as in MIN_SAMPLES."""

    unit: str
    bounds: Bounds | None = None
    source: str = ""
    why: str = ""
    """Where its bounds come from, if from the step as written."""
    most: int | None = None
    """The most samples it can have, if known."""
    usual: tuple[int, str, str] | None = None
    """How many samples the step gives as written, why, and how to get enough."""

    def bound(self, high: float, why: str) -> None:
        if self.bounds is not None and high < self.bounds[1]:
            self.bounds, self.why = (self.bounds[0], high), why


def measured(
    metrics: Mapping[str, Metric], source: str = "", most: int | None = None
) -> dict[str, Figure]:
    """The figures of these metrics, by their names."""
    return {
        name: Figure(metric.unit, (metric.low, metric.high), source, most=most)
        for name, metric in metrics.items()
    }


class Content:
    """What a step of one kind holds."""

    __slots__ = ()

    KIND: ClassVar[StepKind]
    BASELINE_TOO: ClassVar[bool] = True
    """Whether a key that names a service may name the baseline."""
    LASTING: ClassVar[str] = "step before its time"
    """What a timeout shorter than `lasts_s` ends, and when."""
    MEMORY: ClassVar[str] = "needs its GPU memory"
    """Why the baseline goes down for what this loads."""

    # -- the plan ----------------------------------------------------------------------------------

    def default_title(self) -> str:
        """What the plan calls a step without a title."""
        return self.KIND.title or self.KIND.name

    def effects(self) -> Iterator[str]:
        """What the step does, a line each: by default its keys."""
        fields: dict[str, Any] = getattr(type(self), "model_fields", {})
        values = {key: getattr(self, key) for key in fields}
        words = [f"{key} {value}" for key, value in values.items() if value not in (None, "", [])]
        yield f"{self.KIND.name}: {one_line(', '.join(words), 300)}"

    @property
    def lasts_s(self) -> float | None:
        """How long it takes, where its content says so."""
        return None

    @property
    def limit_s(self) -> float:
        """The time limit of a step without a timeout."""
        return self.KIND.timeout_s if self.lasts_s is None else self.lasts_s * 1.25 + 1200.0

    @property
    def subject(self) -> str:
        """The service whose row it is in the plan; "" for none."""
        return ""

    @property
    def starts(self) -> str:
        """The service that is up when the step has ended; "" for none."""
        return ""

    @property
    def stops(self) -> str:
        """The service that is down when the step has ended; "" for none."""
        return ""

    @property
    def loaded(self) -> str | None:
        """What takes the cards' memory during the step, by the name of a service or a program;
        None for nothing."""
        return None

    @property
    def exclusive(self) -> bool:
        """Whether what it loads needs the baseline's memory, where no service says so itself."""
        return False

    @property
    def compares(self) -> bool:
        """Whether it needs the same benchmark of the baseline."""
        return False

    @property
    def of_baseline(self) -> bool:
        """Whether it needs what the baseline answers to the contract's cases."""
        return False

    # -- rules -------------------------------------------------------------------------------------

    def unfit(self, step: Step) -> str:
        """Why it cannot go with other keys of its step; "" if it can."""
        return ""

    def named_services(self) -> Iterator[tuple[str, str]]:
        """(key, service) where it names one that has to be declared."""
        fields: dict[str, Any] = getattr(type(self), "model_fields", {})
        for key in self.KIND.services:
            name = getattr(self, key)
            if name != fields[key].default:
                yield key, name

    @property
    def uses(self) -> str:
        """The service that has to be up; "" for none."""
        return ""

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        """The metrics that it measures, by the name behind its id. `guessed`: an input has no value
        yet, so its durations and counts say nothing."""
        return {}

    @property
    def runs_command(self) -> bool:
        """Whether it runs an argv of the playbook, to which where, env and cwd belong."""
        return False

    @property
    def uses_environment(self) -> bool:
        """Whether it runs an argv on this machine, or looks for what one would need."""
        return self.runs_command

    @property
    def prints(self) -> bool:
        """Whether it has an output of which figures can be captured."""
        return False

    # -- before a run ------------------------------------------------------------------------------

    @property
    def makes(self) -> str | None:
        """The directory in which it makes files, "" for anywhere, None for nowhere."""
        return None

    @property
    def runs_program(self) -> bool:
        """Whether it starts a program that finds every input in its environment."""
        return self.runs_command


IMPLICIT = (
    StepKind("baseline:stop", "service:stop_baseline", implicit=True),
    StepKind("baseline:measure", "benchmark:measure_baseline", loads=False, implicit=True),
    StepKind("baseline:contract", "contract:seal_baseline", loads=False, implicit=True),
    StepKind("restore", "service:restore", loads=False, implicit=True),
)
"""Kinds that no playbook names: the plan adds them."""
