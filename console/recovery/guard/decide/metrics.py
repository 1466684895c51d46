"""The reading that a limit is about, taken from a snapshot: its value, when it was read, or why it
is not known. The code is pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from console.recovery.guard.config import OF_CARD, Limit
from console.recovery.guard.decide.forecast import Countdown, Forecast, Stall
from console.recovery.guard.observe.snapshot import GpuMemory, Load, Memory, Snapshot

FAST_GRACE_S, SLOW_GRACE_S, FAR_GRACE_S = 1.0, 5.0, 10.0
"""How many seconds old a reading may be: FAST for memory and pressure, SLOW for swap rates,
services and the runner, FAR for GPUs and disks."""


class Reading(NamedTuple):
    """`value` as of the monotonic second `at`. None means "not known", and `why` then says why.
    `of` is the GPU or service that the value belongs to, if the limit does not name one."""

    value: float | None
    at: float = 0.0
    why: str = ""
    of: str = ""


class Metrics:
    """The current snapshot, and what was computed from earlier ones. Readings are taken from
    here."""

    def __init__(self, forecast: Forecast, gpus: tuple[str, ...]) -> None:
        self.forecast = forecast
        self.gpus = gpus
        self.countdown = Countdown()
        self.some, self.full = Stall(), Stall()
        self.snapshot = Snapshot(0.0, None)
        self.fast: dict[str, float | None] = {}
        """The metrics that are read at every tick, as of this snapshot; empty without memory."""
        self.read_at = 0.0
        self.before_at: float | None = None
        """When memory was read last, and the time before that."""
        self.memory: Memory | None = None
        """The last known memory; its age tells whether it still holds."""
        self.grown_from: int | None = None
        """Swap in use when something of the run came alive, in bytes."""

    def take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        memory = snapshot.memory
        if memory is None:
            self.fast = {}
            return
        self.feed(memory)
        self.fast = {} if snapshot.at - memory.at > FAST_GRACE_S else self._values(memory)

    def feed(self, memory: Memory) -> None:
        """Feed a sample to the forecast and the pressure. The same sample again changes nothing."""
        if self.memory is None or memory.at != self.memory.at:
            self.before_at = None if self.memory is None else self.read_at
            self.memory, self.read_at = memory, memory.at
            self.forecast.update(memory)
            self.countdown.update(memory, self.forecast)
            self.some.update(memory.at, memory.some_us)
            self.full.update(memory.at, memory.full_us)

    def _values(self, memory: Memory) -> dict[str, float | None]:
        used, grown = memory.swap_used, self.grown_from
        return {
            "host.ram_available": memory.available,
            "host.time_to_full": self.forecast.tte_s,
            "host.pressure": self.full.share,
            "host.pressure_some": self.some.share,
            "host.swap_used": used,
            "host.swap_growth": None if grown is None else used - grown,
            "host.swap_free": memory.swap_total - used if memory.swap_total else None,
            "host.bound_left": memory.bound,
        }


Reader = Callable[[Metrics], Reading | None]
"""Takes a reading from the metrics; None if nothing exists that the limit could be about."""


def reader(limit: Limit, index: int) -> tuple[Reader, float, bool]:
    """Return how to read the metric of a limit, its grace in seconds, and whether it is read at
    every tick. `index` is the limit's place in the guard config. Raises ValueError for an unknown
    metric."""
    if limit.log:
        return _hits(index, limit.count), SLOW_GRACE_S, False
    kind, _, what = limit.metric.partition(".")
    if limit.metric == "host.bound_left":
        return _bound, FAST_GRACE_S, True
    if limit.metric in _FAST:
        return _every_tick(limit.metric), FAST_GRACE_S, True
    if limit.metric in ("host.swap_in_rate", "host.swap_out_rate"):
        return _swap(what), SLOW_GRACE_S, False
    if kind == "gpu":
        return _gpu(what == "memory_free", limit), FAR_GRACE_S, False
    if kind == "disk":
        return _disk(limit.of), FAR_GRACE_S, False
    if kind == "service":
        return _service(what, limit), SLOW_GRACE_S, False
    if limit.metric == "runner.silent":
        return _silent, SLOW_GRACE_S, False
    raise ValueError(f"unknown metric {limit.metric}")


def _every_tick(metric: str) -> Reader:
    """Return a reader for memory, swap and pressure, as of the last time that they were known."""

    def read(metrics: Metrics) -> Reading | None:
        memory = metrics.memory
        if metric == "host.swap_growth" and metrics.grown_from is None:
            return None
        if memory is None or metrics.snapshot.memory is None:
            return Reading(None, why=metrics.snapshot.why or "memory was not read")
        why = "" if metrics.snapshot.at - memory.at > FAST_GRACE_S else "too little was seen yet"
        if metric == "host.swap_free":
            why = "this machine has no swap"
        elif metric.startswith("host.pressure") and memory.full_us is None:
            why = "this kernel does not tell (PSI)"
        return Reading(metrics.fast.get(metric), memory.at, why)

    return read


def _bound(metrics: Metrics) -> Reading | None:
    memory = metrics.snapshot.memory
    return None if memory is None or memory.bound is None else Reading(memory.bound, memory.at)


def _silent(metrics: Metrics) -> Reading:
    snapshot = metrics.snapshot
    if snapshot.beat_at is None:
        return Reading(None, why="it has said nothing yet")
    return Reading(snapshot.at - snapshot.beat_at, snapshot.at)


_FAST = {
    "host.ram_available", "host.swap_used", "host.swap_free", "host.swap_growth",
    "host.time_to_full", "host.pressure", "host.pressure_some",
}  # fmt: skip


def _swap(what: str) -> Reader:
    into = what == "swap_in_rate"

    def read(metrics: Metrics) -> Reading:
        swap = metrics.snapshot.swap
        if swap is None:
            return Reading(None, why="swap traffic was not read")
        value = swap.in_rate if into else swap.out_rate
        return Reading(value, swap.at, "this kernel does not tell")

    return read


def _hits(index: int, enough: int) -> Reader:
    def read(metrics: Metrics) -> Reading | None:
        hit = next((one for one in metrics.snapshot.hits if one.limit == index), None)
        if hit is None:
            return None
        if hit.why and hit.count < enough:
            return Reading(None, why=hit.why)
        return Reading(hit.count, metrics.snapshot.at if hit.at is None else hit.at, of=hit.line)

    return read


def _disk(path: str) -> Reader:
    def read(metrics: Metrics) -> Reading:
        disks = [disk for disk in metrics.snapshot.disks if not path or disk.path == path]
        if not disks:
            return Reading(None, why=f"{path or 'no disk'} was not read")
        known = [disk for disk in disks if disk.free is not None]
        if len(known) < len(disks):
            lost = next(disk for disk in disks if disk.free is None)
            return Reading(None, why=f"{lost.path}: {lost.why or 'no figure'}")
        least = min(known, key=lambda disk: disk.free or 0)
        return Reading(least.free, least.at, of="" if path else least.path)

    return read


def _service(what: str, limit: Limit) -> Reader:
    counted = what == "ram_used"
    """OOM kills and restarts are counted for containers only, because a process has no control
    group of its own to count in."""

    def value(load: Load) -> int | None:
        if what == "ram_used":
            return load.ram
        return load.restarts if what == "restarts" else load.oom

    def read(metrics: Metrics) -> Reading | None:
        loads = [
            one for one in metrics.snapshot.loads
            if (not limit.of or one.name == limit.of) and (counted or one.kind == "container")
        ]  # fmt: skip
        if not loads:
            return None
        worst: Reading | None = None
        unknown: Reading | None = None
        for load in loads:
            found = value(load)
            if found is None:
                words = load.why or "not told"
                unknown = Reading(None, why=f"{load.name}: {words}")
            elif worst is None or _worse(limit, found, worst.value or 0):
                worst = Reading(found, load.at, of="" if limit.of else load.name)
        return _decisive(limit, worst, unknown)

    return read


def _worse(limit: Limit, one: float, other: float) -> bool:
    return one < other if limit.below is not None else one > other


def _decisive(limit: Limit, worst: Reading | None, unknown: Reading | None) -> Reading | None:
    """Return the reading that decides: a known one that breaches the limit; otherwise an unknown
    one, which leaves the result open."""
    if worst is not None and worst.value is not None and limit.passed(worst.value):
        return worst
    return unknown or worst


def _gpu(free: bool, limit: Limit) -> Reader:
    def value(card: GpuMemory) -> int | None:
        if card.used is None or (free and card.total is None):
            return None
        return (card.total or 0) - card.used if free else card.used

    def read(metrics: Metrics) -> Reading:
        snapshot, found, lost = metrics.snapshot, [], ""
        for card in _cards(metrics, limit.of):
            size = value(card)
            if size is None or snapshot.at - card.at > FAR_GRACE_S:
                lost = lost or _why_unknown(card, snapshot)
            else:
                found.append((size, card.at, card.uuid))
        if not found:
            return Reading(None, why=lost or snapshot.gpu_trouble or "no GPU was read")
        if limit.of in ("max", "min"):
            size, at, uuid = (max if limit.of == "max" else min)(found)
            worst = Reading(size, at, of=uuid)
            return _decisive(limit, worst, Reading(None, why=lost) if lost else None) or worst
        part = sum(size for size, _, _ in found)
        if lost and (limit.above is None or part <= limit.above):
            return Reading(None, why=lost)  # the unknown part could only add to the sum
        return Reading(part, min(at for _, at, _ in found))

    return read


def _cards(metrics: Metrics, of: str) -> list[GpuMemory]:
    """Return the GPUs that a limit is about: those of the guard config, or those seen if it names
    none. A GPU that was not seen is included with unknown memory. The sum over the others is then
    only a lower bound, which counts only if it breaches the limit already."""
    seen = {card.uuid: card for card in metrics.snapshot.cards}
    wanted = metrics.gpus or tuple(seen)
    if of and of not in OF_CARD:
        wanted = tuple(uuid for uuid in (*wanted, *seen) if uuid.startswith(of))[:1] or (of,)
    return [seen[uuid] if uuid in seen else GpuMemory(uuid, metrics.snapshot.at) for uuid in wanted]


def _why_unknown(card: GpuMemory, snapshot: Snapshot) -> str:
    age = snapshot.at - card.at
    words = card.why or (f"no figure for {age:.0f} s" if age > FAR_GRACE_S else "")
    return f"{card.uuid}: {words or snapshot.gpu_trouble or 'no figure'}"
