"""Guards as an operator writes them, in a site or a playbook, and as the sentinel's limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from console.common.units import (
    BYTES_FORM,
    DURATION_FORM,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from console.config.site.service import one_of_services
from console.config.validation import Duration, Pattern, Strict, Text
from console.config.yaml import Document, Loc
from console.host.matching import TooSlow, quick
from console.host.sample import Machine
from console.recovery.guard.config import Limit
from console.recovery.guard.metrics import METRICS, OF_CARD, PUBLIC

FORMS = {
    "B": BYTES_FORM, "B/s": "bytes a second with a unit, like 400MiB/s",
    "%": "a percentage, like 30%", "s": DURATION_FORM, "°C": "degrees Celsius, like 87C",
    "": "a whole number",
}  # fmt: skip
SIGNS = {"%": ("%",), "°C": ("C", "°C")}
"""How a unit may be written behind its number."""
LONGEST_FOR_S = 3600.0
LEASE = Field(description="how long the baseline may be down with nobody attached; 0s: no lease")
MIN_RAM = 64 << 20
MIN_SERVICE_RAM = 1 << 20
"""Less than any service holds as soon as it runs."""
MIN_SILENT_S, MAX_FORECAST_S = 3.0, 600.0


def _metric(value: str) -> str:
    if value not in PUBLIC:
        raise ValueError(f"one of {', '.join(PUBLIC)}")
    return value


def _for(value: float) -> float:
    if value > LONGEST_FOR_S:
        raise ValueError("at most 1h")
    return value


Metric = Annotated[str, AfterValidator(_metric), WithJsonSchema({"enum": list(PUBLIC)})]
_VALUE = WithJsonSchema(
    {"type": ["string", "number"], "examples": ["24GiB", "400MiB/s", "30%", "5s", 3]}
)


class GuardModel(Strict):
    """One limit: on a figure (`metric`, and `below` or `above`, for as long as `for`) or on a
    service's log (`log`, `matches`, `count`). `act: kill` stops the load and rolls back, `warn`
    only reports. `missing: breach`: an unreadable figure counts as breached after a grace period.
    `of`: a card (`sum`, `max`, `min`, a UUID), a disk's path, a service."""

    metric: Metric | None = None
    below: Annotated[float | None, _VALUE] = None
    above: Annotated[float | None, _VALUE] = None
    for_: Annotated[Duration, AfterValidator(_for)] = Field(0.0, alias="for")
    of: Text = ""
    log: Text = ""
    matches: Pattern = ""
    count: int = Field(1, ge=1, le=1_000_000)
    act: Literal["kill", "warn"] = "kill"
    missing: Literal["say", "breach"] = "say"

    @field_validator("below", "above", mode="before")
    @classmethod
    def _figure(cls, value: Any, info: ValidationInfo) -> float | None:
        metric = info.data.get("metric")
        if value is None or metric is None:
            return None
        return figure(value, METRICS[metric].unit)

    @model_validator(mode="after")
    def _whole(self) -> GuardModel:
        trouble = _log_trouble(self) if self.log or self.matches else _metric_trouble(self)
        if trouble:
            raise ValueError(f"!{trouble}")
        return self

    def limit(self, source: str = "") -> Limit:
        """The limit in the form that the sentinel takes."""
        return Limit(
            metric=self.metric or "", below=self.below, above=self.above, for_s=self.for_,
            of=self.of, log=self.log, matches=self.matches, count=self.count, act=self.act,
            missing=self.missing, source=source,
        )  # fmt: skip


def figure(value: object, unit: str) -> float:
    """Parse a value in a metric's unit. Raises ValueError with the expected form."""
    form = FORMS[unit]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(form)
    if unit == "":
        if not isinstance(value, int) or value < 0:
            raise ValueError(form)
        return float(value)
    if not isinstance(value, str):
        raise ValueError(form)
    if unit in SIGNS:
        number = value.strip().rstrip("%°C")
        if value.strip()[len(number) :] not in SIGNS[unit]:
            raise ValueError(form)
        if not number.strip().replace(".", "", 1).isdecimal():
            raise ValueError(form)
        return float(number)
    if unit == "s":
        return parse_duration(value)
    amount = value.strip()
    if unit == "B/s":
        if not amount.endswith("/s"):
            raise ValueError(form)
        amount = amount.removesuffix("/s")
    try:
        return float(parse_bytes(amount))
    except ValueError:
        raise ValueError(form) from None


def _log_trouble(model: GuardModel) -> str:
    if not model.log or not model.matches:
        return "a guard on a log names the service (log) and what its lines match (matches)"
    if model.metric is not None or model.below is not None or model.above is not None:
        return "a guard is on a metric or on a log, not both"
    try:
        any_line = quick(model.matches, [""]) != [None]
    except TooSlow as error:
        return str(error)
    if any_line:
        return f"matches {model.matches[:60]} is met by any line: the guard would act on the first"
    if model.of or model.for_:
        return "a guard on a log takes matches and count; of and for belong to metrics"
    return ""


def _metric_trouble(model: GuardModel) -> str:
    metric = model.metric
    if metric is None:
        return "a guard names a metric, or a log"
    value = model.below if model.below is not None else model.above
    if value is None or (model.below is not None and model.above is not None):
        return "a guard on a metric has below or above, and only one of them"
    if model.count != 1:
        return "count belongs to a guard on a log"
    side, right = ("low", "below") if METRICS[metric].low else ("high", "above")
    if (model.below is None) == (right == "below"):
        return f"{metric} is bad when it is {side}: write {right}"
    return _never(metric, value) or _of_trouble(metric, model.of)


def _never(metric: str, value: float) -> str:
    """Why nothing could breach a limit, or ""."""
    if not math.isfinite(value):
        return f"{metric}: no such figure exists"
    if METRICS[metric].low and value <= 0:
        return f"{metric} is never below zero: the guard would never act"
    if value >= METRICS[metric].most:
        most = f"{METRICS[metric].most:g} {METRICS[metric].unit}"
        return f"{metric} is never above {most}: the guard would never act"
    if metric == "host.ram_available" and value < MIN_RAM:
        return f"{metric} below {format_bytes(value)} is too late: the kernel acts before that"
    return _any_day(metric, value)


def _any_day(metric: str, value: float) -> str:
    """Why a limit would be breached on any machine, or ""."""
    if metric == "service.ram_used" and value < MIN_SERVICE_RAM:
        return (
            f"{metric} above {format_bytes(value)} is breached by any service that runs; "
            f"use {format_bytes(MIN_SERVICE_RAM)} or more"
        )
    if METRICS[metric].unit == "%" and value <= 0:
        return (
            f"{metric} above 0 % would be breached every day: every task waits for memory at times"
        )
    if metric == "runner.silent" and value < MIN_SILENT_S:
        return (
            f"{metric} above {value:g} s would be breached every day: the runner reports once "
            f"a second; use {MIN_SILENT_S:g} s or more"
        )
    if metric == "host.time_to_full" and value > MAX_FORECAST_S:
        return (
            f"{metric} below {format_duration(value)} would be breached every day: it is "
            f"predicted from the last seconds; {format_duration(MAX_FORECAST_S)} is the most"
        )
    return ""


def _of_trouble(metric: str, of: str) -> str:
    if cards := METRICS[metric].of:
        if not of:
            words = ", ".join(f"of: {word}" for word in cards)
            return f"{metric} is of every card: {words} or a card's UUID"
        if of not in cards and not of.startswith(("GPU-", "MIG-")):
            return f"of: {', '.join(cards)} or a card's UUID (GPU-…), not {of[:40]}"
    elif of and metric.partition(".")[0] not in ("disk", "service"):
        return f"'of' is no part of {metric}"
    return ""


def limits(
    document: Document, guards: Sequence[GuardModel], what: str, services: frozenset[str]
) -> tuple[Limit, ...]:
    """The guards of a file as limits with their places; unknown services are refused."""
    made = []
    for index, guard in enumerate(guards):
        loc: Loc = ("guards", index)
        made.append(guard.limit(f"{what}, line {document.place(loc)[0]}"))
        named = {"log": guard.log}
        if (guard.metric or "").startswith("service."):
            named["of"] = guard.of
        for key, name in named.items():
            if name and name not in services:
                expected = one_of_services(services)
                document.refuse((*loc, key), f"unknown service '{name}'", expected)
    return tuple(made)


def trouble(limit: Limit, machine: Machine) -> str:
    """Why a limit does not fit a machine (never or always breached on it), or ""; unknown facts of
    the machine decide nothing."""
    value = limit.below if limit.below is not None else limit.above
    if value is None:
        return ""
    most, name = _most(limit, machine)
    if most is None or value < most:
        return ""
    side, fault = ("above", "is never breached") if limit.below is None else (
        "below", "would be breached every day")  # fmt: skip
    has = f"{name} has {format_bytes(most)}"
    return f"{limit.metric} {side} {format_bytes(value)} {fault}: {has}"


def _most(limit: Limit, machine: Machine) -> tuple[int | None, str]:
    """The maximum of a limit's metric, None if unknown, and what sets it."""
    match METRICS[limit.metric].within:
        case "ram":
            return machine.ram_total, "the machine"
        case "swap":
            # a machine without swap cannot breach a limit on swap; that is no mistake of its author
            return machine.swap_total or None, "its swap"
        case "cards":
            return _capacity_of_cards(limit.of, machine)
    return None, ""


def _capacity_of_cards(of: str, machine: Machine) -> tuple[int | None, str]:
    sizes = [card.total for card in machine.cards]
    known = [size for size in sizes if size is not None]
    if not known or len(known) != len(sizes):
        return None, ""
    if of == "sum":
        return sum(known) or None, "the VRAM of all cards"
    if of in OF_CARD:
        return max(known) or None, "the card"
    named = (c.total for c in machine.cards if c.uuid and c.uuid.startswith(of))
    return next(named, None) or None, "the card"
