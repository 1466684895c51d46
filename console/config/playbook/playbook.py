"""A playbook: typed inputs, services, phases of steps, what always runs at the end; its schema.

What has to be true around a cutover depends on the order of the steps (`cutover_problems`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from console.common.errors import Problem
from console.common.redact import NONE, Known
from console.config.playbook.inputs import InputModel, InputValue, Secret
from console.config.playbook.steps import Step
from console.config.site.guard import LEASE, GuardModel
from console.config.site.service import ServiceModel, ServiceName, one_of_services
from console.config.validation import Duration, Name, Strict
from console.config.yaml import Document, Loc
from console.recovery.guard.config import Limit
from console.runtime.spec import ServiceSpec


class Phase(Strict):
    title: str
    steps: list[Step] = Field(min_length=1)


class PlaybookModel(Strict):
    schema_: Literal["omni.playbook/v1"] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")
    title: str
    objective: str = ""
    lessons: list[str] = []
    inputs: dict[Name, InputModel] = {}
    services: dict[ServiceName, ServiceModel] = {}
    lease: Annotated[Duration | None, LEASE] = None
    guards: list[GuardModel] = []
    phases: list[Phase] = Field(min_length=1)
    finally_: list[Step] = Field([], alias="finally")


@dataclass(frozen=True)
class Playbook:
    """A loaded playbook with its inputs filled in."""

    model: PlaybookModel
    path: Path
    base: Path
    text: str
    inputs: dict[str, InputValue]
    secrets: dict[str, Secret]
    missing: tuple[str, ...] = ()
    """Required inputs that a plan was made without; a stand-in takes their place."""
    guards: tuple[Limit, ...] = ()
    """What it adds to the site's guards and the console's own, each with its line."""
    notes: tuple[str, ...] = ()
    """Old names that the site's aliases replaced, in words."""
    known: Known = NONE
    """Secrets that it has in its text or its inputs, to be hidden."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def digest(self) -> str:
        """sha256 of the text: a run is pinned to it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def services(self) -> dict[str, ServiceSpec]:
        return {n: m.spec(n, self.base) for n, m in self.model.services.items()}

    def steps(self) -> Iterator[tuple[str, Step]]:
        """(phase title, step) in order, without `finally`."""
        for phase in self.model.phases:
            for step in phase.steps:
                yield phase.title, step


def cutover_problems(
    document: Document, model: PlaybookModel, services: frozenset[str]
) -> Iterator[Problem]:
    """Clients are given only what was started before; the way back stops it; a cutover that
    stays is the last one, and what it gave clients is not stopped by a later step."""
    up: set[str] = set()
    ended: dict[str, str] = {}
    stays = ""
    for p, phase in enumerate(model.phases):
        for s, step in enumerate(phase.steps):
            loc: Loc = ("phases", p, "steps", s)
            if not step.when:
                continue
            used = _used(step)
            if used in ended and used not in up:
                what = f"'{used}' was stopped by the way back of cutover '{ended[used]}'"
                yield document.problem(loc, what, f"service: {{start: {used}}} before it")
            if step.service is not None and step.service.verb == "start":
                up.add(step.service.target)
            elif step.service is not None and step.service.verb == "stop":
                up.discard(step.service.target)
                if step.service.target == stays:
                    what = f"'{stays}' is what clients reach by then, and the baseline is down"
                    yield document.problem((*loc, "service"), what, "cutover with then: back")
            if step.cutover is None:
                continue
            yield from _target(document, loc, step, up, services, stays)
            if step.cutover.stays:
                stays = step.cutover.to
            else:
                ended |= dict.fromkeys(up, step.id)
                up.clear()


def _target(
    document: Document, loc: Loc, step: Step, up: set[str], services: frozenset[str], stays: str
) -> Iterator[Problem]:
    assert step.cutover is not None
    to, where = step.cutover.to, (*loc, "cutover", "to")
    if to not in services:
        yield document.problem(where, f"unknown service '{to}'", one_of_services(services))
    elif to not in up:
        what = f"'{to}' is not running when clients are to reach it"
        yield document.problem(where, what, f"service: {{start: {to}}} before it")
    if stays:
        yield document.problem(where, f"clients stay at '{stays}' already", "one that stays, last")


def _used(step: Step) -> str:
    """The service that a step needs alive; "" for none."""
    if step.service is not None:
        return step.service.target if step.service.verb == "wait" else ""
    named = step.benchmark or step.soak or step.where
    return (named.service or "") if named is not None else ""


def playbook_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `omni.playbook/v1`, for editors (`# yaml-language-server: $schema=…`);
    a `${{ }}` hole is text anywhere."""
    schema = PlaybookModel.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "omni-console playbook"
    return schema
