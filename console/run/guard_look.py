"""What a sentinel leaves to be read, and the pipe into it: plain reads that never block."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass, field
from typing import Any

from console.guard import sheet as sheets
from console.guard.recorder_read import open_newest
from console.run import guard_load
from console.run.directory import RunDir
from console.run.state import Cause
from console.text import clean

MOST_REASONS = 8
MOST_BYTES = 4 << 20
MOST_POINTS = 400
FAST_FIELDS = 4


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
    at = _number(page.get("mono")) if page is not None else None
    if page is None or at is None:
        return None
    reasons = page.get("reasons") or page.get("unknown")
    return Seen(
        at, clean(str(page.get("level") or "ok"), 20),
        tuple(clean(str(one), 300) for one in (reasons if isinstance(reasons, list) else []))[
            :MOST_REASONS
        ],
        _number(page.get("tte_s")), _number(page.get("lease_s")), page.get("acted") is True,
    )  # fmt: skip


def breach_of(run: RunDir) -> Breach | None:
    """What stands in breach.json; None when there was none."""
    page = _table(run.guard / sheets.BREACH)
    at = _number(page.get("at"))
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
        "killed": [_killed(one) for one in _list(page.get("killed"))][:50],
        "window": _window(page.get("window")),
        "of": clean(str(page.get("of") or ""), 80),
        **{key: _number(page.get(key)) for key in ("value", "tte_s", "rate")},
    }  # fmt: skip
    words = words or "; ".join(data["reasons"]) or "a limit was passed"
    return Breach(at, words, Cause.EXPIRED if lease else Cause.GUARD, data)


def with_loads(run: RunDir, data: dict[str, Any]) -> dict[str, Any]:
    """A breach's data with what each victim held, and the curve of the service that was the cause:
    `load` {name, rows: [[wall, bytes or None]]}. Reads the recorder."""
    recording = open_newest(run.path)
    records = recording.slow(guard_load.LAST_S) if recording is not None else []
    killed = [{**row, "ram": guard_load.held(row, records, data)} for row in data["killed"]]
    found = {**data, "killed": killed}
    if name := clean(guard_load.cause(data), 80):
        rows = [[at, size] for at, size in guard_load.curve(records, name)]
        rows += [[data["at"], data["value"]]] if data.get("value") is not None else []
        found["load"] = {"name": name, "rows": sorted(rows, key=lambda row: row[0])}
    return found


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


def _killed(one: object) -> dict[str, Any]:
    row = one if isinstance(one, dict) else {}
    words = {key: clean(str(row.get(key) or ""), 120) for key in ("name", "kind", "rung", "why")}
    figures = {key: _number(row.get(key)) for key in ("write_s", "empty_s", *guard_load.HELD)}
    kept = {k: v for k, v in figures.items() if v is not None or k not in guard_load.HELD}
    return {**{k: v for k, v in words.items() if v}, **kept}


def _window(found: object) -> dict[str, Any]:
    """Samples before the breach, thinned: the journal is no recorder."""
    rows = []
    for row in _list(found.get("fast") if isinstance(found, dict) else None):
        values = [_number(one) for one in _list(row)][:FAST_FIELDS]
        if len(values) >= FAST_FIELDS - 1 and None not in values[:2]:
            rows.append(values)
    every = -(-len(rows) // MOST_POINTS) or 1
    kept = rows[::every]
    if rows and kept[-1] is not rows[-1]:
        kept.append(rows[-1])
    return {"fast": kept}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


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
