"""Hosts as lines of a table, and as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.common.text import UNLIMITED, clean
from console.common.units import format_duration, number, plural
from console.fleet.known import Known, clock
from console.journal.guard_status import ACTED, GONE, SILENT, UNREADABLE, WARN

HEAD = ("HOST", "BASELINE", "RUN", "LEASE", "RAM FREE", "VRAM FREE", "KNOWN")
ALARMING = frozenset({WARN, ACTED, SILENT, GONE, UNREADABLE})
"""States of a guard that get a line of their own."""
NONE, GAP, GIB = "–", "  ", 1024**3


def lines(found: Sequence[Known], now: float, width: int = UNLIMITED) -> list[str]:
    """A line for each host, and below it why one did not answer."""
    rows = [_cells(one, now) for one in found]
    wide = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    out = [_line(HEAD, wide)]
    for one, row in zip(found, rows, strict=True):
        out.append(_line(row, wide))
        waits = clean(str(one.part("run").get("waits_for") or ""), 200)
        if waits and not one.trouble:
            out.append(f"{GAP}{waits}: omni-console fleet tell {one.host} VERB")
        if one.part("guard").get("state") in ALARMING and not one.trouble:
            out.append(f"{GAP}{clean(str(one.part('guard').get('words', '')), 200)}")
        if one.trouble:
            out.append(f"{GAP}{clean(one.trouble, 300)}")
    return [clean(one, width) for one in out]


def _line(row: Sequence[str], wide: Sequence[int]) -> str:
    return GAP.join(f"{text:<{width}}" for text, width in zip(row, wide, strict=True)).rstrip()


def _cells(one: Known, now: float) -> tuple[str, ...]:
    """What is known of a host that does not answer is shown with a question mark."""
    doubt = " ?" if one.trouble else ""
    base = clean(str(one.part("baseline").get("word") or "unknown"), 20)
    known = one.since(now) or f"{max(0, int(now - one.at))} s ago"
    if not one.at:
        return (one.host, "unknown", NONE, NONE, NONE, NONE, known)
    return (one.host, base + doubt, _run(one) + doubt, _lease(one, now), *_memory(one), known)


def _run(one: Known) -> str:
    run = one.part("run")
    if not run:
        return "none"
    state, name = clean(str(run.get("state", "")), 30), clean(str(run.get("playbook", "")), 30)
    decision = clean(str(run.get("decision") or ""), 10) if run.get("over") else ""
    at = clean(str(run.get("step") or ""), 30) if run.get("alive") else ""
    step = f" {at} ({run.get('step_number')}/{run.get('steps')})" if at else ""
    return " ".join(filter(None, (name, state, decision))) + step


def _lease(one: Known, now: float) -> str:
    guard = one.part("guard")
    left = number(guard.get("lease_s"))
    if left is None:
        return NONE
    if one.trouble and one.back_at is not None:
        return f"until {clock(one.back_at, now)}"
    return format_duration(max(0.0, left)) + (", renewed" if guard.get("attended") else "")


def _memory(one: Known) -> tuple[str, str]:
    """Free of all, of RAM and of all cards together."""
    memory = one.part("memory")
    ram = _share(number(memory.get("available")), number(memory.get("total")))
    cards = one.state.get("cards")
    tables = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    free = [number(card.get("free")) for card in tables]
    total = [number(card.get("total")) for card in tables]
    if not tables:
        return ram, NONE
    known = [x for x in free if x is not None], [x for x in total if x is not None]
    if any(len(x) < len(tables) for x in known):
        return ram, f"{plural(len(tables), 'card')}, unknown"
    return ram, _share(sum(known[0]), sum(known[1]))


def _share(free: float | None, total: float | None) -> str:
    if free is None or total is None:
        return "unknown"
    return f"{free / GIB:.0f}/{total / GIB:.0f} GiB"


def as_json(one: Known) -> dict[str, Any]:
    """`known_at`: Unix seconds by this machine's clock, null for never; `state`: as it was then."""
    return {
        "host": one.host, "answered": not one.trouble, "known_at": one.at or None,
        "why": one.trouble or None, "back_at": one.back_at, "state": one.state or None,
    }  # fmt: skip
