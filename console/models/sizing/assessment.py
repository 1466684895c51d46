"""A verdict with its arithmetic: every term, every limit, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from console.common.units import format_bytes
from console.models.sizing.load_curve import Envelope
from console.models.sizing.loader_plan import Strategy


class Verdict(StrEnum):
    """GO-STREAMING fits, but part of each token comes from the disk. TIGHT needs an override."""

    GO = "GO"
    STREAMING = "GO-STREAMING"
    TIGHT = "TIGHT"
    NO_GO = "NO-GO"
    UNKNOWN = "UNKNOWN"


ORDER = (Verdict.GO, Verdict.STREAMING, Verdict.TIGHT, Verdict.UNKNOWN, Verdict.NO_GO)
"""From best to worst."""


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: bytes (None: not known) at a place, and how they come about."""

    name: str
    bytes: int | None
    where: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one place has to hold against what it has, in bytes. `need` is the sum of the terms
    there. Only a `hard` one that is short makes a NO-GO."""

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
    """What was measured of a configuration that runs: tokens a second and VRAM in bytes, each as
    (least, most). `serves`: it is the very one that is asked about, file and flags."""

    what: str
    tok_s: tuple[float, float] | None = None
    vram: tuple[int, int] | None = None
    serves: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """What comes out. `because` is one sentence; `ceiling_tok_s` what the disk (or the memory,
    where its speed is known) allows, None where nothing limits or the speed is not known."""

    verdict: Verdict
    strategy: Strategy
    because: str
    terms: tuple[Term, ...] = ()
    limits: tuple[Limit, ...] = ()
    would_make_it_go: tuple[str, ...] = ()
    envelope: Envelope = field(default_factory=Envelope)
    ceiling_tok_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def biggest(self) -> tuple[Term, ...]:
        """The three biggest terms."""
        known = [term for term in self.terms if term.bytes]
        return tuple(sorted(known, key=lambda term: -(term.bytes or 0))[:3])

    @property
    def worst(self) -> Limit | None:
        """The limit that is missed by most, else the one with least left."""
        short = [limit for limit in self.limits if limit.short_by]
        if short:
            return max(short, key=lambda limit: (limit.hard, limit.short_by))
        return min(self.limits, key=lambda limit: limit.left, default=None)


@dataclass
class Ledger:
    """The arithmetic while it is done: terms, limits, and reasons by how bad they are."""

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

    def add(self, name: str, size: int | None, where: str, how: str = "") -> None:
        """A term; one that takes nothing is left out."""
        if size != 0:
            self.terms.append(Term(name, size, where, how))

    def need(self, where: str) -> int:
        """The sum of the terms at a place."""
        return sum(term.bytes or 0 for term in self.terms if term.where == where)

    def limit(self, where: str, have: int, hard: bool = True) -> Limit:
        found = Limit(where, self.need(where), max(0, have), hard)
        self.limits.append(found)
        return found

    @property
    def verdict(self) -> Verdict:
        if self.stops or any(limit.hard and limit.short_by for limit in self.limits):
            return Verdict.NO_GO
        if self.unknown:
            return Verdict.UNKNOWN
        if self.tight:
            return Verdict.TIGHT
        return Verdict.STREAMING if self.streaming else Verdict.GO

    def because(self) -> str:
        """One sentence for the verdict."""
        verdict = self.verdict
        if verdict is Verdict.NO_GO:
            short = [limit for limit in self.limits if limit.hard and limit.short_by]
            words = [
                f"{limit.where} has {format_bytes(limit.have)} and needs "
                f"{format_bytes(limit.need)}: {format_bytes(limit.short_by)} short"
                for limit in sorted(short, key=lambda limit: -limit.short_by)
            ]
            return "; ".join([*self.stops, *words])
        if verdict is Verdict.UNKNOWN:
            return "not known: " + "; ".join(self.unknown)
        if verdict is Verdict.TIGHT:
            return "; ".join([*self.tight, *([self.streaming] if self.streaming else [])])
        return self.streaming or "everything fits"

    def assessment(self) -> Assessment:
        return Assessment(
            verdict=self.verdict,
            strategy=self.strategy,
            because=self.because(),
            terms=tuple(self.terms),
            limits=tuple(self.limits),
            envelope=self.envelope,
            ceiling_tok_s=self.ceiling_tok_s,
            notes=tuple(dict.fromkeys(self.notes)),
        )


def serving(found: Assessment, reference: Reference) -> Assessment:
    """What serves is never a NO-GO, nor unknown: a measurement outranks a sum."""
    words = f"{reference.what} serves this very configuration, whatever the sum says"
    if found.verdict not in (Verdict.NO_GO, Verdict.UNKNOWN):
        return found
    return replace(found, verdict=Verdict.TIGHT, because=f"{words}; the sum: {found.because}")
