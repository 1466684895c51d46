"""`recorder`: the flight recorder's last minutes, during a run and after a crash or a reboot."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from console.common.errors import Exit, UsageError
from console.common.units import format_bytes, number
from console.journal.breach import each
from console.journal.guard_status import Recorded, ending, find
from console.recovery.guard.record.read import FastSample
from console.render.breach import cause_of
from console.render.guard import deeds

DENSE_S = 5.0
DENSE_EVERY_S = 0.2
HEAD = f"{'UTC':<13} {'level':<6} {'RAM left':>10} {'swap used':>10} {'some':>7} {'full':>7}"


def recorder(args: Namespace) -> int:
    """The recording of a run, or of the newest that has one, as a table or an object."""
    if not 0 < args.seconds < 86_400:
        raise UsageError("--seconds wants seconds", "between 0 and a day", "--seconds 120")
    found = find(args.run, args.seconds)
    print(json.dumps(as_json(found)) if args.json else "\n".join(lines(found)))
    return int(Exit.OK)


def lines(found: Recorded) -> list[str]:
    """What is left of the recording, what happened, why, and where it ends."""
    out = [f"{found.run.id}  {found.recording.path}", *ending(found), ""]
    shown = thinned(found.fast)
    if shown:
        out += [HEAD, *(_line(sample) for sample in shown)]
    else:
        out.append("no sample is whole")
    for name in ("spared", "trouble"):
        out += [f"{name}: {text}" for text in each(found.status.get(name))]
    seconds = [text for one in found.slow if (text := second_words(one))]
    if seconds:
        out += ["", "cards, loads and rates, once a second", *seconds]
    out += ["", "events" if found.events else "no events"]
    out += [f"{clock_of(one)}  {one.get('what', '')}  {one.get('text', '')}".rstrip()
            for one in found.events]  # fmt: skip
    cause = cause_of(found.breach, found.events)
    out += ["", f"cause: {cause}" if cause else "no breach"]
    return out + deeds(found.breach)


def thinned(samples: Sequence[FastSample]) -> list[FastSample]:
    """One sample a second, the worst of each; five a second in the last DENSE_S."""
    if not samples:
        return []
    last, out = samples[-1].mono, []
    key: tuple[bool, int] | None = None
    for sample in samples:
        dense = sample.mono > last - DENSE_S
        slot = (dense, int(sample.mono / (DENSE_EVERY_S if dense else 1.0)))
        if slot != key:
            out.append(sample)
        elif sample.available < out[-1].available:
            out[-1] = sample
        key = slot
    return out if out[-1] is samples[-1] else [*out, samples[-1]]


def second_words(record: dict[str, Any]) -> str:
    """One slow record in a line: swap traffic, cards, loads, disks; what is not known says so."""
    parts = []
    for name in ("swap_in", "swap_out"):
        if name in record:
            said = number(record[name])
            words = "not known" if said is None else f"{format_bytes(said)}/s"
            parts.append(f"{name.replace('_', '-')} {words}")
    for one in _each(record, "cards"):
        parts.append(f"{str(one.get('uuid') or 'a card')[:12]} {_of(one, 'used', 'total')}")
    if record.get("gpu_trouble"):
        parts.append(str(record["gpu_trouble"]))
    for one in _each(record, "loads"):
        parts.append(f"{one.get('name', '?')} {_of(one, 'ram', 'limit')}")
    for one in _each(record, "disks"):
        parts.append(f"{one.get('path', '?')} {_of(one, 'free', '')} free")
    return f"{clock_of(record)}  {', '.join(parts)}"[:400] if parts else ""


def _each(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in each(record.get(name)) if isinstance(one, dict)]


def _of(one: dict[str, Any], part: str, whole: str) -> str:
    """`90.0 GiB of 96.0 GiB`, or why not."""
    size, most = number(one.get(part)), number(one.get(whole))
    if size is None:
        return str(one.get("why") or "not known")
    return f"{format_bytes(size)} of {format_bytes(most)}" if most else format_bytes(size)


def clock_of(record: dict[str, Any]) -> str:
    """`14:03:12.412`, UTC."""
    at = record.get("wall")
    return _clock(float(at)) if isinstance(at, int | float) else "?" * 12


def as_json(found: Recorded) -> dict[str, Any]:
    """Plain objects; times as Unix seconds (`wall`) and monotonic ones of that boot (`mono`)."""
    return {
        "run": found.run.id, "path": str(found.recording.path), "alive": found.recording.alive,
        "pid": found.recording.pid, "boot": found.recording.boot, "restarted": found.restarted,
        "ends": found.ends, "synced": found.synced, "level": found.level,
        "status": found.status, "events": list(found.events), "breach": found.breach or None,
        "seconds": list(found.slow),
        "samples": [asdict(one) for one in found.fast],
    }  # fmt: skip


def _line(one: FastSample) -> str:
    return (
        f"{_clock(one.wall):<13} {one.level:<6} {format_bytes(one.available):>10} "
        f"{format_bytes(one.swap_used):>10} {_percent(one.some):>7} {_percent(one.full):>7}"
    )


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f} %"


def _clock(at: float) -> str:
    try:
        return f"{time.strftime('%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03d}"
    except (OverflowError, ValueError, OSError):
        return "?" * 12
