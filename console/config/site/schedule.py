"""Runs that a site starts by the clock: the `schedule:` list. Nothing here starts anything."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from console.config.playbook.inputs import InputValue
from console.config.validation import Duration, Strict, Text

TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
AT_FORM = "a time of day like 02:00, or a calendar event of systemd like Mon..Fri 02:00"
MIN_LEASE_S, USUAL_LEASE_S = 60.0, 8 * 3600.0
"""A run without a person has a lease: the least, and the one where neither entry nor site says."""
NAME = r"^[a-z0-9][a-z0-9-]{0,40}$"


def _lease(value: float) -> float:
    if value < MIN_LEASE_S:
        raise ValueError(f"at least {MIN_LEASE_S:.0f} s")
    return value


Lease = Annotated[
    Duration, AfterValidator(_lease),
    WithJsonSchema({
        "type": "string", "examples": ["15m"], "description": f"at least {MIN_LEASE_S:.0f} s",
        "pattern": r"^\s*(?!0*[0-5]?[0-9](\.[0-9]+)?\s*s\s*$)"
        r"([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*)+$",
    }),
]  # fmt: skip
"""How long the baseline of such a run may be down. An editor finds what is too short in seconds."""


def _at(value: str) -> str:
    """Raises ValueError for what no timer file can hold; systemd judges the rest when the timer is
    installed."""
    if not value.isprintable() or "%" in value:
        raise ValueError(AT_FORM)
    return value


class ScheduleModel(Strict):
    """A playbook that starts `at` a time, every day or as a calendar event of systemd says.
    `lease`: how long the baseline may be down with nobody attached."""

    name: str = Field(pattern=NAME)
    playbook: Text
    at: Annotated[Text, AfterValidator(_at)]
    inputs: dict[str, InputValue] = {}
    lease: Lease | None = None
