"""Which backends for experts, and for matrices in FP8, an engine takes for the kind of the weights
and the cards: the rows of kernels.txt, judged.

What is named is refused, taken, or not known; without the option an engine chooses one that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from console.common.options.since import Release, release_in
from console.host.sample import Card
from console.models.sizing.combinations.table import ANY, REFUSED, WORKS
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.kernels import BLOCK
from console.models.sizing.serving.loaded import ALIKE, HALF, is_online

ROWS = Path(__file__).with_name("kernels.txt")
AUTO = "auto"
INT4 = ("awq", "gptq", "w4a16", "auto-round")
_FIRST, _LAST = (0, 0), (99, 9)
Span = tuple[tuple[int, int], tuple[int, int]]


class Row(NamedTuple):
    """`spans`: the compute capabilities from and to; `until`, `since`: the last and the first
    release of which it holds."""

    kinds: tuple[str, ...]
    backends: tuple[str, ...]
    spans: tuple[Span, ...]
    state: str
    until: Release | None
    since: Release | None
    words: str


@cache
def rows(of: str) -> tuple[Row, ...]:
    """The rows of an engine, or of one of its other options."""
    lines = [re.split(r"\s*\|\s*", line.strip()) for line in ROWS.read_text("utf-8").splitlines()
             if line.strip() and not line.startswith("#")]  # fmt: skip
    return tuple(_row(columns[1:]) for columns in lines if columns[0] == of)


def _row(columns: Sequence[str]) -> Row:
    kinds, backends, cards, condition, words, source = columns
    state, _, limit = condition.partition(" ")
    bound = release_in(limit) if limit else None
    return Row(
        tuple(kinds.split(", ")), tuple(backends.split(", ")),
        tuple(_span(part) for part in cards.split(", ")), state,
        bound if limit.startswith("until") else None,
        bound if limit.startswith("since") else None,
        f"{words} ({source})" if words else f"see {source}",
    )  # fmt: skip


def _span(text: str) -> Span:
    if text == ANY:
        return _FIRST, _LAST
    first, dash, last = text.partition("-")
    low = _capability(first, _FIRST)
    return low, (_capability(last, _LAST) if dash else low)


def _capability(text: str, default: tuple[int, int]) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if text else default


def experts_of_vllm(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]
) -> tuple[list[str], list[str]]:
    """(refused, not known) of --moe-backend."""
    if not facts.experts.count:
        return [], []
    kind = _kind(facts, plan.quantization)
    return _judged("vllm", "--moe-backend", plan.moe_backend, kind, cards, plan.release)


def kernels_of_sglang(
    facts: ModelFacts, plan: SglangPlan, cards: Sequence[Card]
) -> tuple[list[str], list[str]]:
    """The same of --moe-runner-backend and --fp8-gemm-backend."""
    kind, refused, unknown = _kind(facts, plan.quantization), list[str](), list[str]()
    options = (
        ("sglang", "--moe-runner-backend", plan.moe_backend, bool(facts.experts.count)),
        ("sglang gemm", "--fp8-gemm-backend", plan.fp8_backend, kind not in ("half", "int4")),
    )
    for of, option, backend, matters in options:
        if matters:
            ended, doubts = _judged(of, option, backend, kind, cards, plan.release)
            refused, unknown = [*refused, *ended], [*unknown, *doubts]
    return refused, unknown


def _kind(facts: ModelFacts, quantization: str) -> str:
    """The kind of the weights as the rows name it; "" where the option, or nothing, tells it."""
    if is_online(facts, quantization):
        return "online"
    if quantization and quantization not in (facts.stored, *ALIKE.get(facts.stored, ())):
        return ""
    if facts.stored in HALF[:2]:
        return "half"
    if facts.stored == "fp8":
        return "fp8 blocks" if facts.scaled_by == BLOCK else "fp8"
    return "int4" if facts.stored in INT4 else facts.stored


def _judged(
    of: str, option: str, backend: str, kind: str, cards: Sequence[Card], release: Release | None
) -> tuple[list[str], list[str]]:
    """(refused, not known) of a backend that is named, by the first row that fits and those of the
    same kind behind it, which are other releases'."""
    backend = backend or AUTO
    words = f"{option} {backend}"
    computes = [card.compute for card in cards if card.compute]
    fitting = [row for row in rows(of) if _fits(row, kind, backend, computes)]
    same = [row for row in fitting if row[:3] == fitting[0][:3]]
    if backend == AUTO and not same:
        return [], []  # the engine chooses one that it has
    if not same or len(computes) < len(cards):
        return [], [f"whether {words} serves this model on these cards"]
    doubt = ""
    for row in same:
        shown = f"{words}: {row.words.replace('{}', backend)}"
        if row.state == REFUSED and (row.until is None or _is_until(release, row.until)):
            return [shown], []
        if row.state == WORKS and (row.since is None or (release or (0,)) >= row.since):
            return [], []
        since = f"; known to work since {'.'.join(map(str, row.since))}" if row.since else ""
        doubt = f"{doubt or shown}{since}"
    return [], [doubt]


def _is_until(release: Release | None, last: Release) -> bool:
    return release is not None and release[: len(last)] <= last


def _fits(row: Row, kind: str, backend: str, computes: Iterable[tuple[int, int]]) -> bool:
    """Whether a row is about this: `works` for all of the cards, others for one of them."""
    every = ANY in row.backends and backend != AUTO
    if kind not in row.kinds or (backend not in row.backends and not every):
        return False
    inside = [any(low <= compute <= high for low, high in row.spans) for compute in computes]
    return all(inside) if row.state == WORKS else any(inside) or not inside
