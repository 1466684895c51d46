"""The step that searches for an engine's fastest flags, as written, and the metrics it gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.bench.metrics import MAX_PROMPT, MIN_PROMPT, TUNE_METRICS
from console.bench.tune.space import Value
from console.config.playbook.kinds import (
    AtMost,
    Content,
    Figure,
    KeptText,
    Moved,
    Named,
    StepKind,
    measured,
)
from console.config.validation import Arg, ByteCount, Strict, unusable_text

MAX_VALUES = 64
BASELINE = "baseline"
TUNED = "baseline-tuned"
"""The service that stands for the baseline while its flags are varied."""
_RANGE = re.compile(r"(-?[0-9]{1,7})\.\.(-?[0-9]{1,7})(?: by ([0-9]{1,6}))?")
_LIKE_RANGE = re.compile(r"-?[0-9]+ *\.\.")
RANGE_LIKE = 'like "0..60 by 4"'
RANGE_FORM = f"a list of values, or a range of whole numbers {RANGE_LIKE}"


def _values(given: Any) -> list[Value]:
    """A list, or a range, as the words of a command line."""
    if isinstance(given, str) and (match := _RANGE.fullmatch(given)):
        low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
        values = [*range(low, high + 1, step)] if step else []
        if not 1 < len(values) <= MAX_VALUES:
            raise ValueError(f"a range of 2 to {MAX_VALUES} values; {given} has {len(values)}")
        return [str(value) for value in values]
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_VALUES:
        raise ValueError(f"{RANGE_FORM}, at most {MAX_VALUES} values")
    return [_value(value) for value in given]


def _value(given: Any) -> Value:
    """A flag's value: true gives the flag without one, false and null leave it out."""
    if given is None or given is False:
        return None
    if given is True:
        return ""
    if isinstance(given, int | float) or (isinstance(given, str) and given):
        words = str(given)
        if _LIKE_RANGE.match(words):
            raise ValueError(f"{words}: a range stands alone, in no list, {RANGE_LIKE}")
        if refused := unusable_text(words):
            raise ValueError(refused)
        return words
    raise ValueError("a value is a text, a number, true (the flag alone) or false (without it)")


Values = Annotated[
    list[Value], BeforeValidator(_values),
    WithJsonSchema({"type": ["array", "string"], "examples": ["0..60 by 4"]}),
]  # fmt: skip
FlagNames = Annotated[str, Field(pattern=r"^--?[A-Za-z][\w.-]*(?: --?[A-Za-z][\w.-]*)*$")]


class TuneStep(Strict, Content):
    """Finds the flags with which `service`, or llama-bench in `bench`, is fastest. `flags`: the
    values of a flag by its name; several names, parted by blanks, get the same value. `prefer`: the
    rate that counts, of a whole `request` with `prompt` and `max_tokens` if not that of one part.
    Answers are measured after `depth` tokens of context. `points`: measured at most. `gain`: how
    much faster a change has to be. `most_ram`, `most_vram`: a point that takes more does not win.
    `beside`: the baseline goes on serving while llama-bench runs. `fresh`: measure again what is
    known."""

    KIND: ClassVar = StepKind(
        "tune", "tune:execute", 43200.0, "Find the fastest flags", ("service",)
    )

    service: Named = ""
    bench: Annotated[list[Arg], Moved.KEPT] = []
    flags: Annotated[dict[FlagNames, Values], Moved.KEPT] = Field(min_length=1, max_length=12)
    prefer: Literal["decode", "prompt", "request"] = "decode"
    prompt: Annotated[int, AtMost(1024)] = Field(512, ge=MIN_PROMPT, le=MAX_PROMPT)
    depth: Annotated[int, AtMost(1024)] = Field(0, ge=0, le=MAX_PROMPT)
    max_tokens: Annotated[int, AtMost(32)] = Field(128, ge=2, le=4096)
    runs: int = Field(5, ge=1, le=50)
    points: Annotated[int, AtMost(6)] = Field(60, ge=2, le=2000)
    gain: float = Field(0.02, ge=0, le=1)
    most_ram: ByteCount | None = None
    most_vram: ByteCount | None = None
    model: KeptText = ""
    beside: bool = False
    fresh: bool = False

    @model_validator(mode="after")
    def _exactly_one_target(self) -> TuneStep:
        if bool(self.service) == bool(self.bench):
            raise ValueError("!a tuning step has exactly one of service or bench")
        if self.bench and self.model:
            raise ValueError("!model belongs to a service: llama-bench is given its model by -m")
        if self.bench and (self.most_ram or self.most_vram):
            raise ValueError(
                "!most_ram and most_vram belong to a service: of bench neither is known"
            )
        if self.beside and self.service:
            raise ValueError("!beside belongs to bench: a service says it by its own `exclusive`")
        return self

    @property
    def subject(self) -> str:
        return TUNED if self.service == BASELINE else self.service

    @property
    def loaded(self) -> str:
        """The service; "" for llama-bench."""
        return self.subject

    @property
    def exclusive(self) -> bool:
        return not self.beside

    @property
    def runs_command(self) -> bool:
        return bool(self.bench)

    def figures(self, *, guessed: bool) -> dict[str, Figure]:
        return measured(TUNE_METRICS)

    def effects(self) -> Iterator[str]:
        """Which points is a question of the services: console.runner.prepare.tuning."""
        return iter(())
