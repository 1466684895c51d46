"""Hosts as lines of a table, for a shell and for the screens, and as objects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from console.common.text import UNLIMITED, clean
from console.common.units import format_duration, number, plural
from console.fleet.known import Known, clock
from console.fleet.protocol import part
from console.host.gpu.nvml import NO_LIBRARY
from console.recovery.rollback.baseline_state import Word
from console.render.facts.words import state_words

HEAD = ("HOST", "BASELINE", "RUN", "LEASE", "RAM FREE", "VRAM FREE", "KNOWN")
WHY = " --reason WHY"
NONE, GAP, GIB = "–", "  ", 1024**3


def lines(records: Sequence[Known], now: float, width: int = UNLIMITED) -> list[str]:
    """A line for each host, and below it what it needs, or why it did not answer: whole, because a
    command that is pasted must not be cut, nor broken where its first half acts."""
    rows = [cells(host_record, now) for host_record in records]
    wide = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    out = [clean(_line(HEAD, wide), width)]
    for record, row in zip(records, rows, strict=True):
        out.append(clean(_line(row, wide), width))
        out += [
            f"{GAP}{clean(words)}"
            for words in (*notes(record), clean(record.trouble, 300))
            if words
        ]
    return out


def notes(record: Known) -> list[str]:
    """What a host needs a person for, its jobs of Slurm's, and why it cannot tell of its cards;
    nothing of one that is silent."""
    blind = _blind(record)
    remarks = [*needs(record), *jobs(record.state), *([f"cards: {blind}"] if blind else [])]
    return [] if record.trouble else remarks


def is_down(record: Known) -> bool:
    """Whether a host that answers says that its baseline does not serve, and no run of it is on,
    which may be in its outage."""
    word, run = record.part("baseline").get("word"), record.part("run")
    return not record.trouble and word in (Word.DOWN, Word.GARBLED) and not run.get("alive")


def _blind(record: Known) -> str:
    """Why a host cannot tell of its cards; "" where it can, and where it has none."""
    why = clean(str(record.state.get("cards_why") or ""), 200)
    return "" if why == NO_LIBRARY else why


def needs(record: Known) -> list[str]:
    """What the run of a host that answers waits for, and what its guard warns of."""
    if record.trouble:
        return []
    waits = clean(str(record.part("run").get("waits_for") or ""), 200)
    step = clean(str(part(record.part("run"), "status").get("step") or ""), 60)
    verbs = record.part("run").get("verbs")
    verb_names = [clean(str(verb), 20) for verb in verbs] if isinstance(verbs, list) else []
    notices = [f"{waits}: {tell_words(record.host, verb_names, step)}"] if waits else []
    guard = record.part("guard")
    if guard.get("alarming") is True:
        notices.append(clean(str(guard.get("words", "")), 200))
    return notices


def tell_words(host: str, verbs: Sequence[str], step: str = "") -> str:
    """The command that answers what a run waits for, ready to be pasted, and the other verbs that
    it takes; a rollback is a command of its own. No word of a host's is more than a word to a
    shell."""
    offered = [shlex.quote(verb) for verb in verbs if verb not in ("pause", "rollback")]
    # what cannot be rejected is no approval: a gate is overridden
    reasoned = {"skip"} if "reject" in verbs else {"skip", "approve"}
    verb, *others = [verb + WHY * (verb in reasoned) for verb in offered] or ["VERB"]
    at = f" --step {shlex.quote(step)}" if step else ""
    more = f" (or {', '.join(others)})" if others else ""
    return f"omni-console fleet tell {host} {verb}{at}{more}"


def _line(row: Sequence[str], wide: Sequence[int]) -> str:
    return GAP.join(f"{text:<{width}}" for text, width in zip(row, wide, strict=True)).rstrip()


def cells(record: Known, now: float) -> tuple[str, ...]:
    """A host as the columns of HEAD. What is known of one that does not answer is shown with a
    question mark."""
    doubt = " ?" if record.trouble else ""
    base = clean(str(record.part("baseline").get("word") or "unknown"), 20)
    known = record.since(now) or f"{max(0, int(now - record.at))} s ago"
    if not record.at:
        return (record.host, "unknown", NONE, NONE, NONE, NONE, known)
    return (
        record.host,
        base + doubt,
        _run(record) + doubt,
        _lease(record, now),
        *_memory(record),
        known,
    )


def _run(record: Known) -> str:
    run = record.part("run")
    if waiting := waits_for_slurm(record):
        return f"{waiting} waits for Slurm"
    if not run:
        return "none"
    state, name = (clean(str(run.get(key, "")), 30) for key in ("state", "playbook"))
    decision = clean(str(run.get("decision") or ""), 10) if run.get("over") else ""
    mark = clean(str(run.get("mark") or ""), 12) if decision else ""
    at = clean(str(run.get("step") or ""), 30) if run.get("alive") else ""
    step = f" {at} ({run.get('step_number')}/{run.get('steps')})" if at else ""
    return " ".join(filter(None, (name, state_words(state), decision, mark))) + step


def waits_for_slurm(record: Known) -> str:
    """The playbook of a run that has not begun, where no other run is active; else ""."""
    waiting = [] if record.part("run").get("alive") else rows(record.state)
    return next((clean(str(x.get("playbook")), 30) for x in waiting if not x.get("run")), "")


def jobs(state: Mapping[str, Any]) -> list[str]:
    """Jobs of Slurm's that runs wait for, and that they hold their cards with, in words."""
    return [
        clean(f"Slurm job {row.get('job')}: {row.get('words')}, {row.get('playbook')}", 200)
        for row in rows(state)
    ]


def rows(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a host says of its jobs of Slurm's, as foreign as it came."""
    slurm_jobs = state.get("slurm")
    return (
        [row for row in slurm_jobs if isinstance(row, dict)] if isinstance(slurm_jobs, list) else []
    )


def _lease(record: Known, now: float) -> str:
    guard = record.part("guard")
    left = number(guard.get("lease_s"))
    if left is None:
        return NONE
    if record.trouble and record.back_at is not None:
        return f"until {clock(record.back_at, now)}"
    return format_duration(max(0.0, left)) + (", renewed" if guard.get("attended") else "")


def _memory(record: Known) -> tuple[str, str]:
    """Free of all, of RAM and of all cards together."""
    memory = record.part("memory")
    ram = _share(number(memory.get("available")), number(memory.get("total")))
    cards = record.state.get("cards")
    tables = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    free = [number(card.get("free")) for card in tables]
    total = [number(card.get("total")) for card in tables]
    if not tables:
        return ram, "unknown" if _blind(record) else NONE
    known = [x for x in free if x is not None], [x for x in total if x is not None]
    if any(len(x) < len(tables) for x in known):
        return ram, f"{plural(len(tables), 'card')}, unknown"
    return ram, _share(sum(known[0]), sum(known[1]))


def _share(free: float | None, total: float | None) -> str:
    if free is None or total is None:
        return "unknown"
    return f"{free / GIB:.0f}/{total / GIB:.0f} GiB"


def as_json(record: Known) -> dict[str, Any]:
    """`known_at`: Unix seconds by this machine's clock, null for never; `state`: as it was then."""
    return {
        "host": record.host, "answered": not record.trouble, "known_at": record.at or None,
        "why": record.trouble or None, "back_at": record.back_at, "state": record.state or None,
    }  # fmt: skip
