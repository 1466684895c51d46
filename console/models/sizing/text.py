"""The arithmetic as lines of text, at most 78 wide: verdict, sums, limits, what to change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from console.common.units import both_units, format_bytes
from console.models.sizing.assessment import Assessment, Limit, Term, Verdict
from console.models.sizing.memory import PAGES

WIDTH = 78
_SIZE = 11
_NAME = 14


def lines(found: Assessment) -> list[str]:
    """Everything an operator needs to follow the verdict, without markup."""
    out = wrapped(f"{found.verdict}  {found.strategy}: {found.because}", "  ")
    for where in dict.fromkeys(term.where for term in found.terms):
        out += ["", *_place(found, where)]
    if found.biggest:
        out += ["", "The three biggest:"]
        out += [
            f"  {term.name} on {term.where}: {both_units(term.bytes or 0)}"
            for term in found.biggest
        ]
    out += list(_limiting(found))
    if found.verdict is Verdict.NO_GO and not found.would_make_it_go:
        out += ["", "What would make it go: nothing of what was tried here"]
    elif found.would_make_it_go:
        out += ["", "What would make it go:"]
        for one in found.would_make_it_go:
            out += wrapped(f"  - {one}", "    ")
    if found.envelope.points:
        no_go = found.verdict is Verdict.NO_GO
        tried = "If it were tried, up to what there is (and it would end there):"
        out += ["", tried if no_go else "Predicted while it loads:"]
        for one in found.envelope.lines():
            out += wrapped(f"  {one}", "    ")
    if found.notes:
        out.append("")
        for one in found.notes:
            out += wrapped(f"note: {one}", "      ")
    return out


def wrapped(text: str, indent: str = "") -> list[str]:
    """One paragraph; a word that is longer than a line is broken."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent) or [""]


def _place(found: Assessment, where: str) -> Iterator[str]:
    """The sum at one place, under a rule, against what is there."""
    terms = [term for term in found.terms if term.where == where]
    yield where
    for term in terms:
        yield from _term(term)
    limit = next((one for one in found.limits if one.where == where), None)
    total = sum(term.bytes or 0 for term in terms)
    if limit is None:
        yield f"  {'sum':<{_NAME}} {format_bytes(total):>{_SIZE}}   what is there is not known"
        return
    yield f"  {'sum':<{_NAME}} {format_bytes(total):>{_SIZE}}   of {_have(limit)}"


def _term(term: Term) -> Iterator[str]:
    size = "not known" if term.bytes is None else format_bytes(term.bytes)
    start = f"  {term.name:<{_NAME}} {size:>{_SIZE}}   "
    yield from (
        textwrap.wrap(
            start + term.how, WIDTH, subsequent_indent=" " * len(start), drop_whitespace=True
        )
        if term.how
        else [start.rstrip()]
    )


def _have(limit: Limit) -> str:
    if limit.short_by:
        what = "short" if limit.hard else "not held"
        return f"{format_bytes(limit.have)}: {format_bytes(limit.short_by)} {what}"
    return f"{format_bytes(limit.have)}: {format_bytes(limit.left)} left"


def _limiting(found: Assessment) -> Iterator[str]:
    worst = found.worst
    if worst is None:
        return
    yield ""
    if worst.short_by:
        yield from wrapped(f"Limiting: {worst.where}, {both_units(worst.short_by)} short", "  ")
    else:
        yield from wrapped(f"Limiting: {worst.where}, {both_units(worst.left)} left", "  ")
    if found.ceiling_tok_s is not None:
        yield f"Projected ceiling: {found.ceiling_tok_s:.3g} tok/s"
    elif found.verdict is Verdict.STREAMING:
        yield "Projected ceiling: not known"
    elif any(limit.where == PAGES and limit.need for limit in found.limits):
        yield "Projected ceiling: the disk sets none, all pages can stay in memory"
