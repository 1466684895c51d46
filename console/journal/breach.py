"""What a sentinel leaves to be read, and the pipe into it: plain reads that never block."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass, field
from typing import Any

from console.common.text import clean
from console.journal.guard_curve import number
from console.journal.run_dir import RunDir
from console.journal.state import Cause
from console.recovery.guard import config as sheets
from console.recovery.guard.record.read import open_newest

MOST_REASONS = 8
MOST_BYTES = 4 << 20
MOST_POINTS = 400
FAST_FIELDS = 4
FIGURES = ("value", "tte_s", "rate", "crossed", "gap_s", "mono")
HELD = ("ram", "swap", "age_s")


@dataclass(frozen=True, slots=True)
class Seen:
    """The sentinel's newest page: `at` is the monotonic time it was written."""

    at: float
    level: str = "ok"
    reasons: tuple[str, ...] = ()
    tte_s: float | None = None
    lease_s: float | None = None
    acted: bool = False
    """It has struck, and the ladder is called."""


@dataclass(frozen=True, slots=True)
class Breach:
    """What a sentinel did: `words` say why, `data` is what the journal keeps."""

    at: float
    words: str
    cause: Cause
    data: dict[str, Any] = field(default_factory=dict, compare=False)


def ready(run: RunDir) -> tuple[int, int] | None:
    """(pid, start) of the sentinel that said it watches; None when none did."""
    page = _table(run.guard / sheets.READY)
    try:
        pid, start = int(page["pid"]), int(page["start"])
    except (KeyError, TypeError, ValueError):
        return None
    return (pid, start) if pid > 1 and start > 0 else None


def look(run: RunDir, sentinel: tuple[int, int]) -> Seen | None:
    """What that very sentinel says now; None when it has not said anything yet."""
    found = open_newest(run.path)
    if found is None or (found.pid, found.start) != sentinel:
        return None
    page = found.status()
    at = number(page.get("mono")) if page is not None else None
    if page is None or at is None:
        return None
    reasons = page.get("reasons") or page.get("unknown")
    return Seen(
        at, clean(str(page.get("level") or "ok"), 20),
        tuple(clean(str(one), 300) for one in (reasons if isinstance(reasons, list) else []))[
            :MOST_REASONS
        ],
        number(page.get("tte_s")), number(page.get("lease_s")), page.get("acted") is True,
    )  # fmt: skip


def breach_of(run: RunDir) -> Breach | None:
    """What stands in breach.json; None when there was none."""
    page = _table(run.guard / sheets.BREACH)
    at = number(page.get("at"))
    if at is None:
        return None
    words = clean(str(page.get("reason") or ""), 400)
    reasons = page.get("reasons")
    lease = page.get("cause") == "lease"
    data: dict[str, Any] = {
        "at": at,
        "cause": "lease" if lease else "guard",
        "reasons": [clean(str(one), 300) for one in reasons][:MOST_REASONS]
        if isinstance(reasons, list) else [],
        "limit": page.get("limit") if isinstance(page.get("limit"), dict) else {},
        "killed": [killed_row(one) for one in _list(page.get("killed"))][:50],
        "window": _window(page.get("window")),
        "curve": _curve(page.get("curve")),
        "of": clean(str(page.get("of") or ""), 80),
        **{key: number(page.get(key)) for key in FIGURES},
    }  # fmt: skip
    words = words or "; ".join(data["reasons"]) or "a limit was passed"
    return Breach(at, words, Cause.EXPIRED if lease else Cause.GUARD, data)


def tell(run: RunDir, message: dict[str, Any]) -> bool:
    """One message into the sentinel's inbox; False when nobody reads, or it is full."""
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(run.guard / sheets.INBOX, flags)
    except OSError:
        return False
    try:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode) and os.write(descriptor, line) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def killed_row(one: object) -> dict[str, Any]:
    """What became of a victim: name, kind, `rung` (all of them), why; seconds `write_s` and
    `empty_s` since the sample that showed it; `held` {ram, swap: bytes, age_s} or None."""
    row = one if isinstance(one, dict) else {}
    rungs = ", ".join(map(str, _list(row.get("rungs")))) or row.get("rung")
    told = {"name": row.get("name"), "kind": row.get("kind"), "rung": rungs, "why": _why(row)}
    words = {key: clean(str(value), 120) for key, value in told.items() if value}
    held = row.get("held")
    kept = {key: number(held.get(key)) for key in HELD} if isinstance(held, dict) else None
    wrote = row.get("write_s", row.get("written_s"))
    return {
        **words, "write_s": number(wrote), "empty_s": number(row.get("empty_s")),
        "held": kept if kept and kept["ram"] is not None else None,
    }  # fmt: skip


def _why(row: dict[str, Any]) -> str:
    why, stuck = row.get("why"), str(row.get("stuck") or "")
    text = "; ".join(map(str, why)) if isinstance(why, list) else str(why or "")
    return text if stuck in text else "; ".join(filter(None, (text, f"does not die: {stuck}")))


def _curve(found: object) -> dict[str, Any]:
    """The curve that crossed; see console.recovery.guard.decide.curve."""
    if not isinstance(found, dict):
        return {}
    kept: dict[str, Any] = {
        key: clean(str(found[key]), 80) for key in ("metric", "log", "of") if found.get(key)
    }
    if isinstance(found.get("column"), int):
        return {**kept, "column": found["column"]}
    rows = [[number(one) for one in _list(row)[:2]] for row in _list(found.get("points"))]
    rows = [row for row in rows if len(row) == 2 and row[0] is not None]
    return {**kept, "points": _thinned(rows)}


def _window(found: object) -> dict[str, Any]:
    """Samples before the breach, thinned: the journal is no recorder."""
    rows: list[list[float | None]] = []
    for row in _list(found.get("fast") if isinstance(found, dict) else None):
        values = [number(one) for one in _list(row)][:FAST_FIELDS]
        if len(values) >= FAST_FIELDS - 1 and None not in values[:2]:
            rows.append(values)
    return {"fast": _thinned(rows)}


def _thinned(rows: list[list[float | None]]) -> list[list[float | None]]:
    every = -(-len(rows) // MOST_POINTS) or 1
    kept = rows[::every]
    if rows and kept[-1] is not rows[-1]:
        kept.append(rows[-1])
    return kept


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(path: os.PathLike[str]) -> dict[str, Any]:
    """A small JSON object; an empty one where there is none."""
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        value = json.loads(os.read(descriptor, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    return value if isinstance(value, dict) else {}
