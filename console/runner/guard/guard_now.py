"""The guards of a plan held against this machine as it is now, before anything starts.

A limit that is passed already would act the moment something of the run is alive: an outage for
nothing. Figures are read and judged by the sentinel's own code. What is about a load (its log, its
memory) cannot be known before there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.errors import EngineTimeout
from console.common.text import one_line
from console.host import process
from console.host.gpu.inventory import ASK_S, Cards, ask
from console.host.machine import disk_free
from console.recovery.guard.config import NOTHING_PREDICTED
from console.recovery.guard.decide.forecast import Forecast
from console.recovery.guard.decide.limit_state import Track
from console.recovery.guard.decide.metrics import Sight
from console.recovery.guard.defaults import defaults
from console.recovery.guard.limits import OF_CARD, Limit
from console.recovery.guard.observe import snapshot as seen
from console.recovery.guard.observe.memory import FastReader, field
from console.recovery.guard.observe.service_memory import SlowReader
from console.runner.guard.limits import disks, limits_of, made_later
from console.runner.prepare.plan import Plan

LOOK_S, PAUSE_S = 1.2, 0.05
MOVING = ("host.pressure", "host.swap_in", "host.swap_out", "host.time_to_full")
"""Judged over LOOK_S, and passed only where they stay so for half a second."""
MOVING_FOR_S = 0.5
ABOUT = ("host.", "gpu.", "disk.")
LATER = frozenset({"host.swap_growth"})
BESIDE = "while the baseline serves"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong now with a limit, with the figure and where the limit is written. `stops`: it
    would act at once, or watch over nothing: no run starts."""

    words: str
    stops: bool


def findings(
    plan: Plan, *, given_back: int | None = None, clock: Clock | None = None,
    root: Path = Path("/"), nvml_s: float = ASK_S,
) -> list[Finding]:  # fmt: skip
    """What is wrong now with a plan's guards; takes a moment. `given_back`: bytes of RAM that the
    baseline returns when it stops, None: not known; it counts where the plan stops it."""
    limits = [
        one for one in limits_of(plan)
        if one.metric.startswith(ABOUT) and one.metric not in LATER
    ]  # fmt: skip
    if not limits:
        return []
    cards = ask(nvml_s) if any(one.metric.startswith("gpu.") for one in limits) else Cards()
    back = given_back or 0 if plan.takes_down else 0
    looks = list(_looks(plan, limits, cards, back, clock or SystemClock(), root))
    uuids = tuple(gpu.uuid for gpu in plan.site.model.gpus)
    sure = not plan.takes_down or given_back is not None
    told = [
        _nowhere(limit, plan, cards) or _finding(limit, *_judged(limit, looks, uuids), plan, sure)
        for limit in limits
    ]
    return [one for one in told if one is not None]


def _nowhere(limit: Limit, plan: Plan, cards: Cards) -> Finding | None:
    """A card or a directory that is not there: the guard would watch over nothing."""
    kind, of, where = limit.metric.partition(".")[0], limit.of, _where(limit)
    if kind == "disk" and of and not os.path.lexists(of) and not made_later(plan, Path(of)):
        words = f"{limit.metric} of {one_line(of, 200)}: there is no such directory{where}"
        return Finding(words, limit.act == "kill")
    known = [card.uuid for card in cards.cards]
    lost = known and not any(uuid.startswith(of) for uuid in known)
    if kind == "gpu" and of not in OF_CARD and lost:
        words = f"{limit.metric} of {one_line(of, 80)}: no such card; there is {', '.join(known)}"
        return Finding(words + where, limit.act == "kill")
    return None


def _finding(limit: Limit, track: Track, sight: Sight, plan: Plan, sure: bool) -> Finding | None:
    kills = limit.act == "kill"
    if track.value is None:
        unknown = track.unknown or _without(limit, track, sight)
        if not unknown:
            return None
        counts = limit.missing == "breach"
        what = ", which `missing: breach` counts as breached" if counts else ": it guards nothing"
        return Finding(f"{unknown}{what}{_where(limit)}", kills and counts)
    if not track.fired:
        return None
    held = plan.takes_down and limit.metric.startswith("gpu.")
    beside = held or (not sure and limit.metric.startswith("host."))
    words = f"{track.words(sight)}: {'breached now' if kills else 'it warns now'}"
    return Finding(f"{words}, {BESIDE}" if beside else words, kills and not beside)


def _without(limit: Limit, track: Track, sight: Sight) -> str:
    """What this machine has not at all (swap), which no grace brings; "" for what takes time."""
    found = track.read(sight)
    waits = found is None or found.value is not None or limit.metric.startswith(MOVING)
    return "" if waits or found is None else f"{track.name}: {found.why}"


def _where(limit: Limit) -> str:
    return f" ({limit.source})" if limit.source else ""


def _judged(limit: Limit, looks: list[seen.Look], uuids: tuple[str, ...]) -> tuple[Track, Sight]:
    """The limit after these looks."""
    memory = next((look.memory for look in looks if look.memory is not None), None)
    found = defaults(memory.total if memory else 0, memory.swap_total if memory else 0)
    sight = Sight(Forecast(found, NOTHING_PREDICTED), uuids)
    held = min(limit.for_s, MOVING_FOR_S) if limit.metric.startswith(MOVING) else 0.0
    track = Track(replace(limit, for_s=held, scarce=0), 0)
    for look in looks:
        sight.take(look)
        track.look(sight)
    return track, sight


def _looks(
    plan: Plan, limits: list[Limit], cards: Cards, back: int, clock: Clock, root: Path
) -> Iterator[seen.Look]:
    """One look, or many over LOOK_S where a figure only shows in time."""
    fast, slow = FastReader(root), SlowReader(root)
    begun = clock.monotonic()
    until = begun + LOOK_S if any(one.metric.startswith(MOVING) for one in limits) else begun
    asked = any(one.metric == "disk.free" for one in limits)
    free = _disks(plan, begun) if asked else ()
    swap = slow.swap(begun)
    try:
        while True:
            now = clock.monotonic()
            memory = fast.read(now)
            if memory is not None:
                memory = memory._replace(available=min(memory.total, memory.available + back))
            if now >= until and until > begun:
                swap = slow.swap(now)
            yield seen.Look(
                now, memory, swap, _cards(cards, now), cards.words,
                tuple(replace(one, at=now) for one in free), why=fast.why,
            )  # fmt: skip
            if now >= until:
                return
            clock.sleep(PAUSE_S)
    finally:
        fast.close()
        slow.close()


def _cards(cards: Cards, at: float) -> tuple[seen.Card, ...]:
    found = []
    for one in cards.cards:
        known = one.total is not None and one.free is not None
        used = (one.total or 0) - (one.free or 0) if known else None
        found.append(seen.Card(one.uuid, at, used, one.total, "" if known else "not told"))
    return tuple(found)


def held_by(pid: int) -> int | None:
    """Bytes of RAM that come back when a server and its children end: pages of files that are not
    locked are available anyway. None where it cannot be seen."""
    total = 0
    group = [one.pid for one in process.members(pid, process.start_time(pid) or 0)]
    for one in group or [pid]:
        try:
            text = Path(f"/proc/{one}/status").read_bytes()
        except OSError:
            return None
        total += sum(field(text, name) or 0 for name in (b"RssAnon:", b"RssShmem:", b"VmLck:"))
    return total * 1024 or None


def _disks(plan: Plan, at: float) -> tuple[seen.Disk, ...]:
    found = []
    for path in dict.fromkeys(disks(plan)):
        try:
            found.append(seen.Disk(str(path), at, disk_free(path)))
        except (OSError, EngineTimeout) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            found.append(seen.Disk(str(path), at, None, one_line(words or "no figure")))
    return tuple(found)
