"""What the guard watches for when nobody said anything, scaled with the machine.

Calibrated by the replay (docs/replay.md). Two wishes pull apart: a load that goes past the machine
has to be stopped well before the end, and one that preflight calls GO may end with no more left
than preflight's margin. Only the prediction tells them apart, so the forecast asks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.common.units import format_bytes, format_number
from console.recovery.guard.limits import Limit

GIB = 1 << 30
MARGIN = 8 * GIB
"""What preflight leaves to the rest of the machine (`console.models.sizing.memory.HOST_MARGIN`)."""
LEAST_FLOOR, MOST_FLOOR = 2 * GIB, 6 * GIB
"""MemAvailable was seen to lag 300 to 530 MiB behind a hog: 2 GiB is the least that means
something, and 6 GiB stays clear of preflight's margin."""
FLOOR_SHARE, SMALL_SHARE = 64, 8
"""The floor is a 64th of the machine, and never more than an eighth of it."""
RESERVE_SHARE = 6
ACT_S, ACT_FOR_S, WARN_S = 6.0, 0.5, 30.0
FLOOR_WITHIN_S = 60.0
"""Below the reserve only growth that reaches the floor within this time counts."""
LOW, SCARCE, WARN_LOW, WARN_SCARCE = 0.35, 0.15, 0.50, 0.20
"""Shares of RAM: below LOW the forecast may act, below SCARCE stalls and silence count."""
SWAP_SHARE, LEAST_SWAP = 32, 2 * GIB
FULL_LOW, FULL_SCARCE, FULL_SCARCE_S, FULL_HARD, FULL_HARD_S = 30.0, 10.0, 2.0, 60.0, 2.0
SOME_WARN, SOME_WARN_S = 10.0, 2.0
SILENT_S = 10.0
SOURCE = "default"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Bytes and seconds. `floor`: less RAM available than this is a breach at once. `reserve`:
    what the forecast counts down to. `kept`: what a load that was predicted has to leave, for
    the forecast to let it end as predicted. `limits`: everything judged, in the form of the sheet.
    """

    total: int
    swap_total: int
    floor: int
    reserve: int
    kept: int
    limits: tuple[Limit, ...]

    def lines(self) -> list[str]:
        """One line a limit, and what the forecast keeps."""
        kept = f"RAM counts as full with {format_bytes(self.reserve)} left"
        return [kept, *(words(limit) for limit in self.limits)]


def floor_of(total: int) -> int:
    """How little may be left of so many bytes of RAM."""
    return min(max(LEAST_FLOOR, total // FLOOR_SHARE), MOST_FLOOR, total // SMALL_SHARE)


def defaults(total: int, swap_total: int, bound: int = 0) -> Defaults:
    """For a machine with this much RAM and swap, bytes. `bound`: the limit on the control group
    around the console, 0 for none: it has a floor of its own, all else is of the machine."""
    floor = floor_of(total)
    low, scarce = int(total * LOW), int(total * SCARCE)
    limits = [
        Limit("host.ram_available", below=floor),
        Limit("host.time_to_full", below=ACT_S, for_s=ACT_FOR_S, scarce=low),
        Limit("host.pressure", above=FULL_LOW, scarce=low),
        Limit("host.pressure", above=FULL_SCARCE, for_s=FULL_SCARCE_S, scarce=scarce),
        Limit("host.pressure", above=FULL_HARD, for_s=FULL_HARD_S),
        Limit("service.oom_kills", above=0),
        Limit("runner.silent", above=SILENT_S, scarce=scarce),
        Limit("host.ram_available", below=int(total * WARN_SCARCE), act="warn"),
        Limit("host.time_to_full", below=WARN_S, act="warn", scarce=int(total * WARN_LOW)),
        Limit("host.pressure_some", above=SOME_WARN, for_s=SOME_WARN_S, act="warn"),
        Limit("runner.silent", above=SILENT_S, act="warn"),
    ]
    if bound:
        limits.append(Limit("host.bound_left", below=floor_of(bound)))
        limits.append(Limit("host.bound_left", below=int(bound * WARN_SCARCE), act="warn"))
    if swap_total:
        growth = min(max(LEAST_SWAP, total // SWAP_SHARE), swap_total // 2)
        limits.insert(2, Limit("host.swap_growth", above=growth, scarce=low))
    return Defaults(
        total=total,
        swap_total=swap_total,
        floor=floor,
        reserve=min(floor * 8 // 3, total // RESERVE_SHARE),
        kept=min(MARGIN, floor * 4 // 3),
        limits=tuple(limits),
    )


NAMES = {
    "host.ram_available": "RAM available", "host.swap_used": "swap used",
    "host.bound_left": "RAM left to the console's own control group",
    "host.swap_free": "swap free", "host.swap_growth": "swap grown",
    "host.swap_in_rate": "swapped in", "host.swap_out_rate": "swapped out",
    "host.pressure": "all tasks waiting for memory",
    "host.pressure_some": "some tasks waiting for memory",
    "host.time_to_full": "RAM full", "gpu.memory_used": "VRAM used",
    "gpu.memory_free": "VRAM free", "disk.free": "disk free",
    "service.ram_used": "RAM", "service.restarts": "restarts",
    "service.oom_kills": "OOM kills", "runner.silent": "the runner silent",
}  # fmt: skip
"""A metric in words that a figure can follow."""


def words(limit: Limit) -> str:
    """One limit as a line: what is judged, how long, and what then happens."""
    if limit.log:
        what = f"{limit.count} fatal line{'s' if limit.count > 1 else ''} in the log of {limit.log}"
    else:
        level = limit.below if limit.below is not None else limit.above
        side = "below" if limit.below is not None else "above"
        name = NAMES[limit.metric]
        name = f"{name} ({limit.of})" if limit.of else name
        what = f"{name} {side} {figure(limit.metric, level or 0.0)}"
        if limit.metric == "host.time_to_full":
            what = f"{name} in less than {figure(limit.metric, level or 0.0)}"
    if limit.for_s:
        what += f" for {format_number(limit.for_s, 's')}"
    if limit.scarce:
        what += f", while RAM available is below {format_bytes(limit.scarce)}"
    if limit.missing == "breach":
        what += "; no figure counts as well"
    return f"{what}: {limit.act}"


def figure(metric: str, value: float) -> str:
    """A figure of a metric with its unit."""
    if metric.endswith("_rate"):
        return rate(value)
    if metric.startswith("host.pressure"):
        return f"{value:.0f} % of the time"
    if metric.startswith(("service.restarts", "service.oom")):
        return f"{value:.0f}"
    if metric in ("host.time_to_full", "runner.silent"):
        return f"{value:.1f} s"
    return format_bytes(value)


def rate(value: float) -> str:
    """`4.93 GB/s`, the way disks and loaders speak."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e3:.3g} kB/s"
