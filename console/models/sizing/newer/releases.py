"""From which release of vLLM or SGLang a verdict holds: what of plan and model came with one."""

from __future__ import annotations

from collections.abc import Iterator

from console.common.options.since import Newcomer, Release
from console.models.sizing.assessment import Assessment
from console.models.sizing.combinations.table import NAMES
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.classes import came

MAX_SHOWN = 3
"""Most newcomers of one release that are named."""


def judge_newcomers(
    facts: ModelFacts, engine: str, plan: VllmPlan | SglangPlan, ledger: Assessment
) -> None:
    """Refuse what the release lacks. Where it is not known, the verdict says from which on it
    holds. A class that a release does not list may still be loaded by transformers' own code."""
    at_least = isinstance(plan, SglangPlan) and plan.at_least
    doubted = list[Newcomer]()
    for newcomer in (*plan.newer, *came(facts, engine)):
        has = None if plan.release is None else newcomer.is_in(plan.release)
        is_class = newcomer not in plan.newer
        if has is False and not at_least and not is_class:
            ledger.stops.append(
                f"{NAMES[engine]} {shown(plan.release or ())} has no {newcomer.words}, which came "
                f"with {shown(newcomer.since)}"
            )
        elif has is not True and plan.release is not None:
            ledger.unknown.append(
                f"whether {NAMES[engine]} {shown(plan.release)}{' or later' if at_least else ''} "
                f"has {newcomer.words}: {shown(newcomer.since)} has it, {shown(newcomer.lacks)} "
                "has not"
            )
        elif has is None:
            doubted.append(newcomer)
    ledger.holds = "; ".join(_since(NAMES[engine], doubted))


def _since(name: str, newcomers: list[Newcomer]) -> Iterator[str]:
    """From when on what is newest is there, in words; nothing where all releases have it all."""
    if not newcomers:
        return
    since = max(newcomer.since for newcomer in newcomers)
    newest = [newcomer.words for newcomer in newcomers if newcomer.since == since]
    more = f" and {len(newest) - MAX_SHOWN} more" if len(newest) > MAX_SHOWN else ""
    named = f"{', '.join(newest[:MAX_SHOWN])}{more}"
    yield f"holds from {name} {shown(since)} on ({named}), and the release is not known here"


def shown(release: Release) -> str:
    """A release as its people write it: 0.20 for the first of them."""
    numbers = release[:2] if release[2:] == (0,) and release[0] == 0 else release
    return ".".join(map(str, numbers))
