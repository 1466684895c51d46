"""A playbook: typed inputs, services, phases of steps, and what always runs at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from console.common.redact import NONE, Known
from console.config.playbook.inputs import InputModel, InputValue, Secret
from console.config.playbook.steps import Step
from console.config.site.guard import LEASE, GuardModel
from console.config.site.service import ServiceModel, ServiceName
from console.config.validation import Duration, Name, Strict
from console.recovery.guard.limits import Limit
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
