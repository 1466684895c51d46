"""The metrics that a limit can be on: one record for each, with all that the program knows of it.

The schema, messages, gauges, the check before a run and the sentinel all use these records. A
reader takes the reading that a limit is about from a snapshot: its value, when it was read, or why
it is not known. The code is pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from console.common.units import format_bytes
from console.host.gpu.figures import MAX_DEGREES, GpuSample
from console.recovery.guard.observe.snapshot import GpuReading, Load, Memory, Snapshot, Swap

if TYPE_CHECKING:
    from console.recovery.guard.config import Limit
    from console.recovery.guard.decide.limit_state import Metrics

FAST_GRACE_S, SLOW_GRACE_S, FAR_GRACE_S = 1.0, 5.0, 10.0
"""How many seconds old a reading may be: FAST for memory and pressure, SLOW for swap rates,
services and the runner, FAR for GPUs and disks."""
OF_CARD = {"sum": "of all cards together", "max": "of the fullest card", "min": "of any card"}
"""Values of `of` for a gpu limit that cover all GPUs, in words; a metric has those that make sense
for it. Otherwise `of` of a gpu limit is a UUID or the beginning of one, that of a disk limit is a
path, and that of a service limit is the name of a service, or "" for any service."""
NO_WORDS: Mapping[str, str] = {}
RAM, SWAP, FULL = 1, 2, 3
"""Columns of the window's rows in breach.json: RAM available, swap used, and the per cent of the
time in which all tasks waited; column 0 is the Unix second."""


class Reading(NamedTuple):
    """`value` as of the monotonic second `at`. None means "not known", and `why` then says why.
    `of` is the GPU or service that the value belongs to, if the limit does not name one."""

    value: float | None
    at: float = 0.0
    why: str = ""
    of: str = ""


Reader = Callable[["Metrics"], Reading | None]
"""Takes a reading from the metrics; None if nothing exists that the limit could be about."""


class Metric(NamedTuple):
    """One metric. `words` name it so that a value can follow, and `low` means that it is bad when
    it is low.

    `reads` makes the reader of a limit, and `grace_s` is how old its reading may be. A metric that
    is read at every tick has `now`: its value as of this memory, None if not known.

    `own` metrics are for default limits only. Metrics `of_containers` are not counted for
    processes, which have no control group of their own to count in. `before_run` says how the
    metric is checked before a run: by one reading, by several, or not at all, because it needs a
    load. `within` is what of the machine it can never exceed, and `most` a value that it never
    exceeds anywhere. `of` has what may stand for all GPUs in a limit on it. `short` is its name in
    the line of the guard, and `column` is where the window of a breach has its curve: each empty
    for what is not shown there.
    """

    unit: Literal["B", "B/s", "%", "s", "°C", ""]
    words: str
    reads: Callable[[Limit], Reader]
    grace_s: float
    low: bool = False
    now: Callable[[Metrics, Memory], float | None] | None = None
    own: bool = False
    of_containers: bool = False
    before_run: Literal["once", "sampled", ""] = ""
    within: Literal["ram", "swap", "cards", ""] = ""
    most: float = math.inf
    of: Mapping[str, str] = NO_WORDS
    short: str = ""
    column: int = 0


def reader(limit: Limit, index: int) -> tuple[Reader, float]:
    """Return how to read what a limit is about, and its grace in seconds. `index` is the limit's
    place in the guard config. Raises ValueError for an unknown metric."""
    if limit.log:
        return _hits(index, limit.count), SLOW_GRACE_S
    metric = METRICS.get(limit.metric)
    if metric is None:
        raise ValueError(f"unknown metric {limit.metric}")
    return metric.reads(limit), metric.grace_s


def figure(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    match METRICS[metric].unit:
        case "B/s":
            return rate(value)
        case "%":
            return f"{value:.0f} % of the time"
        case "s":
            return f"{value:.1f} s"
        case "°C":
            return f"{value:.0f} °C"
        case "":
            return f"{value:.0f}"
    return format_bytes(value)


def rate(value: float) -> str:
    """Return a rate as `4.93 GB/s`: decimal units, as disks and loaders report it."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e3:.3g} kB/s"


def _every_tick(limit: Limit, lacks: Callable[[Memory], str] = lambda memory: "") -> Reader:
    """Return a reader for memory, swap and pressure, as of the last time that they were known.
    `lacks` says what this machine does not have at all."""
    now = METRICS[limit.metric].now

    def read(metrics: Metrics) -> Reading:
        memory, snapshot = metrics.memory, metrics.snapshot
        if memory is None or snapshot.memory is None or now is None:
            return Reading(None, why=snapshot.why or "memory was not read")
        old = snapshot.at - memory.at > FAST_GRACE_S
        why = lacks(memory) or ("" if old else "there are too few readings yet")
        return Reading(None if old else now(metrics, snapshot.memory), memory.at, why)

    return read


_swap_free = partial(_every_tick, lacks=lambda memory: "this machine has no swap")
_pressure = partial(
    _every_tick,
    lacks=lambda memory: "this kernel does not report it (PSI)" if memory.full_us is None else "",
)


def _growth(limit: Limit) -> Reader:
    read = _every_tick(limit)
    return lambda metrics: None if metrics.grown_from is None else read(metrics)


def _bound(limit: Limit) -> Reader:
    def read(metrics: Metrics) -> Reading | None:
        memory = metrics.snapshot.memory
        return None if memory is None or memory.bound is None else Reading(memory.bound, memory.at)

    return read


def _silent(limit: Limit) -> Reader:
    def read(metrics: Metrics) -> Reading:
        snapshot = metrics.snapshot
        if snapshot.beat_at is None:
            return Reading(None, why="the runner has sent no message yet")
        return Reading(snapshot.at - snapshot.beat_at, snapshot.at)

    return read


def _swap(value: Callable[[Swap], float | None], limit: Limit) -> Reader:
    def read(metrics: Metrics) -> Reading:
        swap = metrics.snapshot.swap
        if swap is None:
            return Reading(None, why="swap traffic was not read")
        return Reading(value(swap), swap.at, "this kernel does not count it")

    return read


def _hits(index: int, enough: int) -> Reader:
    def read(metrics: Metrics) -> Reading | None:
        hit = next((hit for hit in metrics.snapshot.hits if hit.limit == index), None)
        if hit is None:
            return None
        if hit.why and hit.count < enough:
            return Reading(None, why=hit.why)
        return Reading(hit.count, metrics.snapshot.at if hit.at is None else hit.at, of=hit.line)

    return read


def _disk(limit: Limit) -> Reader:
    path = limit.of

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


def _service(value: Callable[[Load], int | None], limit: Limit) -> Reader:
    of_processes = not METRICS[limit.metric].of_containers
    # an operator's own limit counts these kills, too
    spares = limit.metric == "service.oom_kills" and limit.source == "default"

    def read(metrics: Metrics) -> Reading | None:
        loads = [
            load
            for load in metrics.snapshot.loads
            if (not limit.of or load.name == limit.of)
            and (of_processes or load.kind == "container")
            and not (spares and load.expendable)
        ]
        if not loads:
            return None
        worst: Reading | None = None
        unknown: Reading | None = None
        for load in loads:
            amount = value(load)
            if amount is None:
                unknown = Reading(None, why=f"{load.name}: {load.why or 'not reported'}")
            elif worst is None or _worse(limit, amount, worst.value or 0):
                worst = Reading(amount, load.at, of="" if limit.of else load.name)
        return _decisive(limit, worst, unknown)

    return read


def _worse(limit: Limit, amount: float, other: float) -> bool:
    return amount < other if limit.below is not None else amount > other


def _decisive(limit: Limit, worst: Reading | None, unknown: Reading | None) -> Reading | None:
    """Return the reading that decides: a known one that breaches the limit; otherwise an unknown
    one, which leaves the result open."""
    if worst is not None and worst.value is not None and limit.passed(worst.value):
        return worst
    return unknown or worst


def _free(gpu: GpuSample) -> int | None:
    used, total = gpu.used_bytes, gpu.total_bytes
    return None if used is None or total is None else total - used


def _gpu(value: Callable[[GpuSample], float | None], limit: Limit) -> Reader:
    def read(metrics: Metrics) -> Reading:
        snapshot, readings, lost = metrics.snapshot, [], ""
        for card in _cards(metrics, limit.of):
            figure = value(card.gpu)
            if figure is None or snapshot.at - card.at > FAR_GRACE_S:
                lost = lost or _why_unknown(card, snapshot)
            else:
                readings.append((figure, card.at, card.gpu.uuid))
        if not readings:
            return Reading(None, why=lost or snapshot.gpu_trouble or "no GPU was read")
        if limit.of in ("max", "min"):
            figure, at, uuid = (max if limit.of == "max" else min)(readings)
            worst = Reading(figure, at, of=uuid)
            return _decisive(limit, worst, Reading(None, why=lost) if lost else None) or worst
        part = sum(figure for figure, _, _ in readings)
        if lost and (limit.above is None or part <= limit.above):
            return Reading(None, why=lost)  # the unknown part could only add to the sum
        return Reading(part, min(at for _, at, _ in readings))

    return read


def _cards(metrics: Metrics, of: str) -> list[GpuReading]:
    """Return the GPUs that a limit is about: those of the guard config, or those seen if it names
    none. A GPU that was not seen is included with unknown figures. The sum over the others is then
    only a lower bound, which counts only if it breaches the limit already."""
    seen = {card.gpu.uuid: card for card in metrics.snapshot.cards}
    wanted = metrics.gpus or tuple(seen)
    if of and of not in OF_CARD:
        wanted = tuple(uuid for uuid in (*wanted, *seen) if uuid.startswith(of))[:1] or (of,)
    at = metrics.snapshot.at
    return [seen.get(uuid) or GpuReading(GpuSample(uuid, -1, ""), at) for uuid in wanted]


def _why_unknown(card: GpuReading, snapshot: Snapshot) -> str:
    age = snapshot.at - card.at
    words = card.gpu.why or (f"no figure for {age:.0f} s" if age > FAR_GRACE_S else "")
    return f"{card.gpu.uuid}: {words or snapshot.gpu_trouble or 'no figure'}"


METRICS: dict[str, Metric] = {
    "host.ram_available": Metric(
        "B", "RAM available", _every_tick, FAST_GRACE_S, low=True,
        now=lambda metrics, memory: memory.available,
        before_run="once", within="ram", short="RAM left", column=RAM,
    ),
    "host.swap_used": Metric(
        "B", "swap used", _every_tick, FAST_GRACE_S,
        now=lambda metrics, memory: memory.swap_used,
        before_run="once", within="swap", short="swap", column=SWAP,
    ),
    "host.swap_free": Metric(
        "B", "swap free", _swap_free, FAST_GRACE_S, low=True,
        now=lambda metrics, memory: memory.swap_total - memory.swap_used
        if memory.swap_total else None,
        before_run="once", within="swap", short="swap free", column=SWAP,
    ),
    "host.swap_growth": Metric(  # since something of the run came alive
        "B", "swap grown", _growth, FAST_GRACE_S,
        now=lambda metrics, memory: None if metrics.grown_from is None
        else memory.swap_used - metrics.grown_from,
        within="swap", short="swap growth", column=SWAP,
    ),
    "host.swap_in_rate": Metric(
        "B/s", "swapped in", partial(_swap, lambda swap: swap.in_rate), SLOW_GRACE_S,
        before_run="sampled",
    ),
    "host.swap_out_rate": Metric(
        "B/s", "swapped out", partial(_swap, lambda swap: swap.out_rate), SLOW_GRACE_S,
        before_run="sampled",
    ),
    "host.pressure": Metric(  # the share of the last second in which all tasks waited for memory
        "%", "all tasks waiting for memory", _pressure, FAST_GRACE_S,
        now=lambda metrics, memory: metrics.full.share, before_run="sampled", most=100.0,
        column=FULL,
    ),
    "host.pressure_some": Metric(
        "%", "some tasks waiting for memory", _pressure, FAST_GRACE_S,
        now=lambda metrics, memory: metrics.some.share, before_run="sampled", most=100.0,
    ),
    "host.time_to_full": Metric(
        "s", "RAM full", _every_tick, FAST_GRACE_S, low=True,
        now=lambda metrics, memory: metrics.forecast.tte_s, before_run="sampled", column=RAM,
    ),
    "gpu.memory_used": Metric(
        "B", "VRAM used", partial(_gpu, lambda gpu: gpu.used_bytes), FAR_GRACE_S,
        before_run="once", within="cards", of=OF_CARD, short="VRAM",
    ),
    "gpu.memory_free": Metric(
        "B", "VRAM free", partial(_gpu, _free), FAR_GRACE_S, low=True,
        before_run="once", within="cards", of=OF_CARD, short="VRAM free",
    ),
    "gpu.temperature": Metric(
        "°C", "GPU temperature", partial(_gpu, lambda gpu: gpu.temperature_c), FAR_GRACE_S,
        before_run="once", most=MAX_DEGREES, of={"max": "of any card"}, short="GPU",
    ),
    "disk.free": Metric(
        "B", "disk free", _disk, FAR_GRACE_S, low=True, before_run="once", short="disk left"
    ),
    "service.ram_used": Metric(
        "B", "RAM", partial(_service, lambda load: load.ram), SLOW_GRACE_S,
        within="ram",
    ),
    "service.restarts": Metric(
        "", "restarts", partial(_service, lambda load: load.restarts), SLOW_GRACE_S,
        of_containers=True,
    ),
    "service.oom_kills": Metric(
        "", "OOM kills", partial(_service, lambda load: load.oom), SLOW_GRACE_S,
        of_containers=True,
    ),
    "runner.silent": Metric("s", "the runner silent", _silent, SLOW_GRACE_S),
    "host.bound_left": Metric(  # known only while a host process of the run is in that group
        "B", "RAM left to the console's own control group", _bound, FAST_GRACE_S, low=True,
        now=lambda metrics, memory: memory.bound, own=True,
    ),
}  # fmt: skip
PUBLIC = tuple(name for name, metric in METRICS.items() if not metric.own)
"""The metrics that a site or a playbook can name."""
