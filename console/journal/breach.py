"""Reads what a sentinel leaves, writes to its inbox, and draws the curve of a breach with its
limit.

Reads are plain file reads and never block.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.common import record
from console.common.files import open_untrusted
from console.common.text import clean, cleaned
from console.common.units import number
from console.journal.events import Breach, Guard
from console.journal.run_dir import RunDir
from console.journal.state import Cause
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import EXPIRIES, Limit
from console.recovery.guard.metrics import FULL, METRICS, RAM, SWAP
from console.recovery.guard.record.read import open_newest
from console.recovery.rollback.trigger import say

MAX_REASONS = 8
MAX_BYTES = 4 << 20
MAX_POINTS = 400
FAST_FIELDS = 4
HELD = ("ram", "swap", "age_s")

COLUMNS = {RAM: "host.ram_available", SWAP: "host.swap_used", FULL: "host.pressure"}
"""What the columns of the window's rows show; column 0 is the Unix second."""
Points = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The sentinel's newest status page; `at` is the monotonic time when it was written."""

    at: float
    level: str = "ok"
    reasons: tuple[str, ...] = ()
    tte_s: float | None = None
    lease_s: float | None = None
    acted: bool = False
    """The sentinel has killed, and has called the rollback."""


def ready(run: RunDir) -> tuple[int, int] | None:
    """Return (pid, start) of the sentinel that said it watches; None if none did."""
    page = read_table(run.guard / guard_config.READY)
    try:
        pid, start = int(page["pid"]), int(page["start"])
    except (KeyError, TypeError, ValueError):
        return None
    return (pid, start) if pid > 1 and start > 0 else None


def look(run: RunDir, sentinel: tuple[int, int]) -> Seen | None:
    """Return the newest status of this very sentinel; None if it has not written any."""
    recording = open_newest(run.path)
    if recording is None or (recording.pid, recording.start) != sentinel:
        return None
    page = recording.status()
    at = number(page.get("mono")) if page is not None else None
    if page is None or at is None:
        return None
    return Seen(
        at, clean(str(page.get("level") or "ok"), 20),
        tuple(_reasons(page.get("reasons") or page.get("unknown"))),
        number(page.get("tte_s")), number(page.get("lease_s")), page.get("acted") is True,
    )  # fmt: skip


def _reasons(reasons: object) -> list[str]:
    return [clean(str(reason), 300) for reason in each(reasons)][:MAX_REASONS]


def read_breach(run: RunDir) -> Breach:
    """Return what breach.json says, clean; what is wrong in it counts as absent."""
    return record.lenient(Breach, cleaned(read_table(run.breach)))


def breach_of(run: RunDir) -> Guard | None:
    """Return the event that the journal keeps of the breach in breach.json; None if there is
    none."""
    breach = read_breach(run)
    if breach.at is None:
        return None
    reasons = _reasons(breach.reasons)
    words = clean(breach.reason, 400) or "; ".join(reasons) or "a limit was passed"
    return Guard(
        sign="breach", words=words, at=float(breach.at),
        cause=breach.cause if breach.cause in EXPIRIES else str(Cause.GUARD),
        reasons=reasons, limit=breach.limit,
        killed=[killed_row(target) for target in breach.killed][:50],
        window={"fast": _thinned(window_rows(breach))}, curve=_curve(breach.curve),
        of=clean(breach.of, 80), value=number(breach.value), tte_s=number(breach.tte_s),
        rate=number(breach.rate), crossed=number(breach.crossed), gap_s=number(breach.gap_s),
        mono=number(breach.mono),
    )  # fmt: skip


def step_cause(breach: Breach) -> Cause:
    """Why a step fails that this breach has ended."""
    return Cause.EXPIRED if breach.cause in EXPIRIES else Cause.GUARD


def tell(run: RunDir, message: dict[str, Any]) -> bool:
    """Write one message to the sentinel's inbox. Returns False if it is full or nobody reads it."""
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    return say(run.guard / guard_config.INBOX, line)


def killed_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return what became of a killed target: name, kind, `rung` (all stages), why; `write_s` and
    `empty_s` in seconds since the sample that showed the breach; `held` {ram, swap: bytes, age_s}
    or None."""
    stages = ", ".join(map(str, each(row.get("rungs")))) or row.get("rung")
    texts = {"name": row.get("name"), "kind": row.get("kind"), "rung": stages, "why": _why(row)}
    words = {key: clean(str(value), 120) for key, value in texts.items() if value}
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


def _curve(curve: dict[str, Any]) -> dict[str, Any]:
    """Return the curve of the breached metric; see console.recovery.guard.decide.policy."""
    if not curve:
        return {}
    kept: dict[str, Any] = {
        key: clean(str(curve[key]), 80) for key in ("metric", "log", "of") if curve.get(key)
    }
    if isinstance(curve.get("column"), int):
        return {**kept, "column": curve["column"]}
    rows = [[number(figure) for figure in each(row)[:2]] for row in each(curve.get("points"))]
    rows = [row for row in rows if len(row) == 2 and row[0] is not None]
    return {**kept, "points": _thinned(rows)}


def window_rows(breach: Breach) -> list[list[float | None]]:
    """Return the samples around the kill: Unix second, RAM available, swap used, full %."""
    rows: list[list[float | None]] = []
    for row in each(breach.window.get("fast")):
        values = [number(figure) for figure in each(row)][:FAST_FIELDS]
        if len(values) >= FAST_FIELDS - 1 and None not in values[:2]:
            rows.append(values)
    return rows


def _thinned(rows: list[list[float | None]]) -> list[list[float | None]]:
    every = -(-len(rows) // MAX_POINTS) or 1
    kept = rows[::every]
    if rows and kept[-1] is not rows[-1]:
        kept.append(rows[-1])
    return kept


def each(value: object) -> list[Any]:
    """A list as it is; an empty one for whatever else stands there."""
    return value if isinstance(value, list) else []


def read_table(path: os.PathLike[str]) -> dict[str, Any]:
    """Read a small JSON object; empty if there is none."""
    descriptor = -1
    try:
        descriptor = open_untrusted(path, os.O_RDONLY)
        return record.table(os.read(descriptor, MAX_BYTES)) or {}
    except OSError:
        return {}
    finally:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Crossed:
    """The curve of a breach. `points` are (Unix second, value in `unit` or None), oldest first.
    `level` is the limit on the same scale, None if the limit is on another metric. `below` means
    that the limit is passed below it. `column` is the column of the window's rows, 0 if it is none
    of them."""

    name: str
    unit: str
    points: Points
    level: float | None = None
    below: bool = False
    column: int = 0


def crossed(breach: Breach) -> Crossed | None:
    """Return the curve of a breach; None if it has none."""
    if "curve" not in breach.given:
        return None
    curve, limit = breach.curve, limit_in(breach)
    column = curve.get("column")
    if isinstance(column, int) and column in COLUMNS:
        return _of_column(breach, column, limit)
    points = _points(curve.get("points"))
    at, value = number(breach.at), number(breach.value)
    if at is not None and value is not None and (not points or points[-1][0] < at):
        points = (*points, (at, value))
    if not any(figure is not None for _, figure in points):
        return None
    metric = str(curve.get("metric") or "")
    level = limit.count if limit and limit.log else _value(limit)
    below = limit is not None and limit.below is not None
    return Crossed(_name(curve, metric), Limit(metric).unit, points, level, below)


def limit_in(breach: Breach) -> Limit | None:
    """Return the limit that was passed; None if it is not on record."""
    try:
        return Limit.from_json(breach.limit)
    except (ValueError, TypeError):
        return None


def _of_column(breach: Breach, column: int, limit: Limit | None) -> Crossed | None:
    points = _points(breach.window.get("fast"), column)
    known = [(at, figure) for at, figure in points if figure is not None]
    if not known:
        return None
    kill = breach.at
    then = [figure for at, figure in known if kill is None or at <= kill] or [known[-1][1]]
    level = _level(limit, then[-1], number(breach.value))
    below = limit is not None and column == RAM
    shown = METRICS[COLUMNS[column]]
    return Crossed(shown.words, shown.unit, points, level, below, column)


def _level(limit: Limit | None, then: float, value: float | None) -> float | None:
    """Return a limit on the scale of its column. `then` is the column's value when the limit's own
    metric was `value`."""
    metric, level = limit.metric if limit is not None else "", _value(limit)
    if level is None or metric == "host.time_to_full":
        return None
    if metric == "host.swap_growth":
        return None if value is None else then - value + level
    if metric == "host.swap_free":
        return None if value is None else then + value - level
    return level


def _value(limit: Limit | None) -> float | None:
    if limit is None:
        return None
    return limit.below if limit.below is not None else limit.above


def _name(curve: Mapping[str, Any], metric: str) -> str:
    of = clean(str(curve.get("of") or ""), 80)
    if curve.get("log"):
        return f"lines in the log of {of}"
    name = METRICS[metric].words if metric in METRICS else clean(metric, 40)
    name += ", a second" if Limit(metric).unit == "B/s" else ""
    return f"{name} of {of}" if of else name


def _points(rows: object, column: int = 1) -> Points:
    points = [
        (at, number(row[column]))
        for row in each(rows)
        if isinstance(row, list) and len(row) > column and (at := number(row[0])) is not None
    ]
    return tuple(sorted(points, key=lambda point: point[0]))
