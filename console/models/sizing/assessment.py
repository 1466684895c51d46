"""A verdict with its arithmetic: every term, every limit, what would change it; and its text.

The margins kept free, and the judgement of host memory that cannot be dropped (`resident`), hold
for every loader.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from console.common.units import both_units, format_bytes
from console.host.sample import Machine
from console.models.sizing.load_curve import Envelope
from console.models.sizing.loader_plan import Strategy

GIB = 1 << 30
MIB = 1 << 20
CARD_MARGIN = 1 * GIB
"""Kept free on each card for what no sum has: the driver's pools, fragments, a larger batch.
llama.cpp's own --fit leaves as much."""
HOST_MARGIN = 8 * GIB
"""Kept free for the rest of the machine, so that it still responds."""
FOOTPRINT = 512 * MIB
"""The process itself: vocabulary, graph, pinned buffers, libraries."""
HEADROOM = 0.10
"""Share of a card that stays free if a plan is not tight (lesson F-005)."""
SWAP_CREDIT = 0.5
"""Share of free swap that a resident load may use, which makes it TIGHT at best."""
HOST, PAGES = "host RAM", "page cache"

WIDTH = 78
_SIZE = 11
_NAME = 14


class Verdict(StrEnum):
    """GO-STREAMING fits, but part of each token comes from the disk. TIGHT needs an override."""

    GO = "GO"
    STREAMING = "GO-STREAMING"
    TIGHT = "TIGHT"
    NO_GO = "NO-GO"
    UNKNOWN = "UNKNOWN"


ORDER = (Verdict.GO, Verdict.STREAMING, Verdict.TIGHT, Verdict.UNKNOWN, Verdict.NO_GO)
"""From best to worst."""


ESTIMATES = "by estimates of what the driver, libraries and graphs take"
ROUNDED = "each tensor pinned in a block of a power of two: up to twice (vllm#56410)"
"""Rule of torch's CachingHostAllocator, by which vLLM and SGLang pin what they offload one
parameter at a time (model_executor/offloader/uva.py of vLLM 0.33, srt/utils/offloader.py of SGLang
0.5.23): 1.86 of the weights of QwQ-32B-AWQ, 1.18 of Llama 3.3 70B AWQ, 1.78 of the experts of
GLM-5.3-Flash (vllm-backport#67). Which tensors go there and how the engine joins them is not
counted."""
PINNED = "by how far each pinned tensor is rounded up to a power of two"


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: bytes (None: unknown) at a place, and how they were computed. `spread`: by how
    many bytes an estimate may be too large."""

    name: str
    bytes: int | None
    where: str
    how: str = ""
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """What one place must hold against what it has, in bytes. `need` is the sum of the terms there.
    Only a `hard` limit that is exceeded makes a NO-GO."""

    where: str
    need: int
    have: int
    hard: bool = True

    @property
    def short_by(self) -> int:
        return max(0, self.need - self.have)

    @property
    def left(self) -> int:
        return self.have - self.need


@dataclass(frozen=True, slots=True)
class Reference:
    """What was measured of a working configuration: tokens a second and VRAM in bytes, each as
    (least, most). `serves`: it is exactly the one in question, file and flags."""

    what: str
    tok_s: tuple[float, float] | None = None
    vram: tuple[int, int] | None = None
    serves: bool = False


@dataclass(slots=True)
class Assessment:
    """The sum for one plan, term by term: limits, reasons by severity, and the verdict.

    `ceiling_tok_s` is what the disk (or the memory, if its speed is known) allows, None if nothing
    limits or the speed is unknown. `served_by` names a measured configuration that is exactly this
    one: a measurement outranks a sum, so the verdict is never a NO-GO, nor unknown. `shortened`: it
    starts, with less room than the context that was asked for. `holds`: from which release on, in
    words, where that is not known of the engine at hand.
    """

    strategy: Strategy
    terms: list[Term] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    tight: list[str] = field(default_factory=list)
    streaming: str = ""
    notes: list[str] = field(default_factory=list)
    envelope: Envelope = field(default_factory=Envelope)
    ceiling_tok_s: float | None = None
    would_make_it_go: tuple[str, ...] = ()
    served_by: str = ""
    shortened: bool = False
    holds: str = ""

    @property
    def biggest(self) -> list[Term]:
        known = [term for term in self.terms if term.bytes]
        return sorted(known, key=lambda term: -(term.bytes or 0))[:3]

    @property
    def worst(self) -> Limit | None:
        """The limit that is exceeded most, else the one with least left."""
        short = [limit for limit in self.limits if limit.short_by]
        if short:
            return max(short, key=lambda limit: (limit.hard, limit.short_by))
        return min(self.limits, key=lambda limit: limit.left, default=None)

    def add(self, name: str, size: int | None, where: str, how: str = "", spread: int = 0) -> None:
        """Add a term, unless it is zero."""
        if size != 0:
            self.terms.append(Term(name, size, where, how, spread))

    def spread(self, where: str) -> int:
        """By how much the sum at a place may be too large."""
        return sum(term.spread for term in self.terms if term.where == where)

    def need(self, where: str) -> int:
        return sum(term.bytes or 0 for term in self.terms if term.where == where)

    def limit(self, where: str, have: int, hard: bool = True) -> Limit:
        place_limit = Limit(where, self.need(where), max(0, have), hard)
        self.limits.append(place_limit)
        return place_limit

    def pool(self, name: str, need: int, have: int) -> Limit:
        """Add a limit of what several places share."""
        limit = Limit(name, need, max(0, have))
        self.limits.append(limit)
        return limit

    @property
    def short(self) -> list[Limit]:
        """The places that cannot hold what they must, whichever of two sums is true: the one with
        all estimates, and the one with as little of them as is likely."""
        return [
            limit for limit in self.limits
            if limit.hard and limit.short_by > self.spread(limit.where)
        ]  # fmt: skip

    @property
    def undecided(self) -> list[Limit]:
        """The places that hold the smaller of these sums, and not the larger."""
        short = [limit.where for limit in self.short]
        return [
            limit for limit in self.limits
            if limit.hard and limit.short_by and limit.where not in short
        ]  # fmt: skip

    def _not_known(self) -> list[str]:
        return self.unknown + [
            f"whether {limit.where} has room: it has {format_bytes(limit.have)}, and needs "
            f"{format_bytes(limit.need - self.spread(limit.where))} to {format_bytes(limit.need)}, "
            f"{PINNED if limit.where == HOST else ESTIMATES}"
            for limit in self.undecided
        ]

    @property
    def summed(self) -> Verdict:
        """The verdict of the sum alone, whatever serves."""
        if self.stops or self.short:
            return Verdict.NO_GO
        if self.unknown or self.undecided:
            return Verdict.UNKNOWN
        if self.tight:
            return Verdict.TIGHT
        return Verdict.STREAMING if self.streaming else Verdict.GO

    @property
    def verdict(self) -> Verdict:
        outranked = self.served_by and self.summed in (Verdict.NO_GO, Verdict.UNKNOWN)
        return Verdict.TIGHT if outranked else self.summed

    @property
    def because(self) -> str:
        """One sentence for the verdict."""
        words = self._reasons()
        if self.verdict is self.summed:
            is_fit = self.summed in (Verdict.GO, Verdict.STREAMING, Verdict.TIGHT)
            return f"{words}; {self.holds}" if self.holds and is_fit else words
        serves = f"{self.served_by} serves this very configuration, whatever the sum says"
        return f"{serves}; the sum: {words}"

    def _needs(self, limit: Limit) -> str:
        """How much a place needs, and how much of it is missing."""
        spread = self.spread(limit.where) if limit.where == HOST else 0
        least = "at least " if spread else ""
        need, short = format_bytes(limit.need - spread), format_bytes(limit.short_by - spread)
        return f"{least}{need}: {short}"

    def _short(self) -> Iterator[str]:
        """What is short, the largest first; equal cards that lack the same are said once."""
        alike: dict[tuple[str, str], list[str]] = {}
        for limit in sorted(self.short, key=lambda limit: -limit.short_by):
            name, mark, number = limit.where.rpartition(" #")
            words = f"{format_bytes(limit.have)} and {{}} {self._needs(limit)} short"
            alike.setdefault((name if mark else limit.where, words), []).append(mark and number)
        for (name, words), numbers in alike.items():
            has, needs = ("has", "needs") if len(numbers) == 1 else ("each have", "need")
            yield f"{name}{_numbered(numbers)} {has} {words.format(needs)}"

    def _reasons(self) -> str:
        verdict = self.summed
        if verdict is Verdict.NO_GO:
            words = list(self._short())
            besides = f"besides not known: {'; '.join(self.unknown)}" if self.unknown else ""
            return "; ".join([*self.stops, *words, *([besides] if besides else [])])
        if verdict is Verdict.UNKNOWN:
            return "not known: " + "; ".join(self._not_known())
        if verdict is Verdict.TIGHT:
            return "; ".join([*self.tight, *([self.streaming] if self.streaming else [])])
        return self.streaming or "everything fits"


def _numbered(numbers: Sequence[str]) -> str:
    """` #0`, ` #0 and #2` or ` #0 to #7`; nothing of a card without a number."""
    if not numbers[0]:
        return ""
    first, *others = [f"#{number}" for number in sorted(numbers, key=int)]
    if not others:
        return f" {first}"
    in_a_row = len(others) > 1 and int(others[-1][1:]) - int(first[1:]) == len(others)
    between = " to " if in_a_row else f"{''.join(f', {place}' for place in others[:-1])} and "
    return f" {first}{between}{others[-1]}"


def resident(ledger: Assessment, machine: Machine, *, locked: bool = False) -> None:
    """Judge memory of the process: RAM has to hold all of it, and swap makes it TIGHT at best."""
    available = machine.ram_available or 0
    need = ledger.need(HOST)
    credit = 0 if locked else int((machine.swap_free or 0) * SWAP_CREDIT)
    if need <= available:
        ledger.limit(HOST, available)
        if available - need < HOST_MARGIN:
            ledger.tight.append(
                f"{format_bytes(available - need)} of RAM would be left, "
                f"less than {format_bytes(HOST_MARGIN)}"
            )
        return
    if need <= available + credit:
        ledger.limit(HOST, available + credit)
        ledger.tight.append(
            f"{format_bytes(need - available)} more than the RAM that is free: it would be swapped"
        )
        return
    ledger.limit(HOST, available)
    if credit:
        ledger.notes.append(
            f"swap does not help: half of what is free counts, {format_bytes(credit)}"
        )


def mapped(ledger: Assessment, available: int) -> Limit:
    """Judge mapped pages, which may be dropped and read again: only the rest has to fit, and swap
    does not help. Returns the limit of the pages."""
    limit = ledger.limit(HOST, available)
    return ledger.limit(PAGES, max(0, limit.left - HOST_MARGIN), hard=False)


def disk_margin(written: int) -> int:
    """Bytes that stay free on a disk: 20 GB or 5 % of what is written there, the larger."""
    return max(20 * 10**9, int(written * 0.05))


def held(need: int, machine: Machine) -> tuple[int, int]:
    """How much of a process's memory can be in RAM, and how much in swap."""
    ram = need if machine.ram_available is None else min(need, machine.ram_available)
    return ram, min(need - ram, machine.swap_free or 0)


def lines(assessment: Assessment, width: int = WIDTH) -> list[str]:
    """Everything an operator needs to follow the sum, without markup. Its first line has not the
    form of a verdict: that is said once, by whoever knows the other findings as well."""
    out = wrapped(f"memory ({assessment.strategy}): {_fit(assessment)}", "  ", width)
    for where in dict.fromkeys(term.where for term in assessment.terms):
        out += ["", *_place(assessment, where, width)]
    if assessment.biggest:
        out += ["", "The three biggest:"]
        out += [
            f"  {term.name} on {term.where}: {both_units(term.bytes or 0)}"
            for term in assessment.biggest
        ]
    out += list(_limiting(assessment, width))
    if assessment.verdict is Verdict.NO_GO and not assessment.would_make_it_go:
        out += ["", "What would make it go: none of the changes that the console tries"]
    elif assessment.would_make_it_go:
        out += ["", "What would make it go:"]
        for text in assessment.would_make_it_go:
            out += wrapped(f"  - {text}", "    ", width)
    if assessment.envelope.points:
        no_go = assessment.verdict is Verdict.NO_GO
        tried = "Predicted while it loads, until the memory is exhausted:"
        out += ["", tried if no_go else "Predicted while it loads:"]
        for text in assessment.envelope.lines():
            out += wrapped(f"  {text}", "    ", width)
    if assessment.notes:
        out.append("")
        for text in assessment.notes:
            out += wrapped(f"note: {text}", "      ", width)
    return out


def _fit(assessment: Assessment) -> str:
    """What the sum says, in words."""
    near = assessment.verdict is Verdict.TIGHT
    return f"little room: {assessment.because}" if near else assessment.because


def wrapped(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """One paragraph; a word longer than a line is broken."""
    return textwrap.wrap(text, width, subsequent_indent=indent) or [""]


def _place(assessment: Assessment, where: str, width: int) -> Iterator[str]:
    """The sum at one place, under a rule, against what is available."""
    terms = [term for term in assessment.terms if term.where == where]
    yield where
    for term in terms:
        yield from _term(term, width)
    limit = next((limit for limit in assessment.limits if limit.where == where), None)
    total = sum(term.bytes or 0 for term in terms)
    if limit is None:
        yield f"  {'sum':<{_NAME}} {format_bytes(total):>{_SIZE}}   what is available is unknown"
        return
    yield f"  {'sum':<{_NAME}} {format_bytes(total):>{_SIZE}}   of {_have(limit)}"


def _term(term: Term, width: int) -> Iterator[str]:
    size = "not known" if term.bytes is None else format_bytes(term.bytes)
    start = f"  {term.name:<{_NAME}} {size:>{_SIZE}}   "
    yield from (
        textwrap.wrap(
            start + term.how, width, subsequent_indent=" " * len(start), drop_whitespace=True
        )
        if term.how
        else [start.rstrip()]
    )


def _have(limit: Limit) -> str:
    if limit.short_by:
        what = "short" if limit.hard else "not held"
        return f"{format_bytes(limit.have)}: {format_bytes(limit.short_by)} {what}"
    return f"{format_bytes(limit.have)}: {format_bytes(limit.left)} left"


def _limiting(assessment: Assessment, width: int) -> Iterator[str]:
    worst = assessment.worst
    if worst is None:
        return
    yield ""
    if worst.short_by:
        margin = f"{both_units(worst.short_by)} short"
    else:
        margin = f"{both_units(worst.left)} left"
    yield from wrapped(f"Limiting: {worst.where}, {margin}", "  ", width)
    if assessment.ceiling_tok_s is not None:
        yield f"Projected ceiling: {assessment.ceiling_tok_s:.3g} tok/s"
    elif assessment.verdict is Verdict.STREAMING:
        yield "Projected ceiling: not known"
    elif any(limit.where == PAGES and limit.need for limit in assessment.limits):
        yield "Projected ceiling: the disk sets none, all pages can stay in memory"
