"""The sheet a sentinel works from: RUN/guard/guard.json, written by the runner before the first
effect and again when something changes (the inbox says so).

It names everything by identity, so that nothing has to be looked up in a playbook or site.

One limit of a guard, as the sheet carries it from site and playbook to the sentinel.

What the guard watches for when nobody said anything, scaled with the machine.

Calibrated by the replay (docs/measurements/replay.md). Two wishes pull apart: a load that goes past
the machine has to be stopped well before the end, and one that preflight calls GO may end with no
more left than preflight's margin. Only the prediction tells them apart, so the forecast asks it.

The sentinel's ear: a FIFO with one JSON line a message, at most PIPE_BUF bytes each.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from console.common.units import format_bytes, format_number
from console.models.sizing.load_curve import Envelope

METRICS = {
    "host.ram_available": "B", "host.swap_used": "B", "host.swap_free": "B",
    "host.swap_growth": "B", "host.swap_in_rate": "B/s", "host.swap_out_rate": "B/s",
    "host.pressure": "%", "host.pressure_some": "%", "host.time_to_full": "s",
    "gpu.memory_used": "B", "gpu.memory_free": "B", "disk.free": "B",
    "service.ram_used": "B", "service.restarts": "", "service.oom_kills": "",
    "runner.silent": "s",
}  # fmt: skip
"""What a limit can be on, and its unit. Pressure is the share of the last second in which all
(`host.pressure`) or some (`host.pressure_some`) tasks waited for memory; `host.swap_growth` is
what swap grew by since something of the run came alive."""
OWN_METRICS = {"host.bound_left": "B"}
"""What only a default is on: RAM left to the control group around the console, while a host process
of the run lives in it."""
OF_CARD = ("sum", "max", "min")
"""`of` of a gpu limit: these, or a UUID (its beginning); of a disk limit a path; of a service limit
a service's name, "" for any."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Breached when `metric` is below (or above) `value` for `for_s` seconds without a break.

    `log` instead of a metric: `count` lines of that service match `matches`. `act`: "kill" or
    "warn". `missing`: what no figure means, "say" (shown) or "breach" (after a grace it counts as
    breached). `source`: default, site or playbook, and where. `scarce`: only while RAM available is
    below this many bytes; 0 for always.
    """

    metric: str = ""
    below: float | None = None
    above: float | None = None
    for_s: float = 0.0
    of: str = ""
    log: str = ""
    matches: str = ""
    count: int = 1
    act: str = "kill"
    missing: str = "say"
    source: str = "default"
    scarce: int = 0

    @property
    def unit(self) -> str:
        return (METRICS | OWN_METRICS).get(self.metric, "")

    def passed(self, value: float) -> bool:
        """Whether a figure is on the wrong side."""
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}

    @staticmethod
    def from_json(data: object) -> Limit:
        """What `to_json` gave. Raises ValueError with what is wrong."""
        if not isinstance(data, dict):
            raise ValueError("a limit is a table")
        limit = Limit(**data)
        if bool(limit.log) == bool(limit.metric):
            raise ValueError("a limit is on a metric or on a log")
        if limit.metric and limit.metric not in METRICS | OWN_METRICS:
            raise ValueError(f"unknown metric {limit.metric}")
        if limit.metric and (limit.below is None) == (limit.above is None):
            raise ValueError(f"{limit.metric}: below or above")
        value = limit.below if limit.below is not None else limit.above
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{limit.metric}: no number")
        return limit


DIRECTORY = "guard"
"""Inside the run's directory."""
CONFIG_FILE = "guard.json"
INBOX = "inbox"
"""FIFO, one JSON line a message (at most PIPE_BUF bytes), see `Message` below."""
READY = "sentinel.json"
"""pid, start time and the protections it got or not, in words; written when it watches."""
BREACH = "breach.json"
"""What was breached, what was killed, and the samples before: written after the kill."""
RING = "recorder.ring"
"""The flight recorder's copy on disk; the live one is in /dev/shm, named in the sheet."""
SCHEMA = "omni.guard/v1"
NOTHING_PREDICTED = Envelope()

# Messages: {"do": "beat"} every second; {"do": "arm"} after a line was appended to live.jsonl
# (the sentinel reads what is alive from there); {"do": "sheet"} the sheet was written anew;
# {"do": "advisory", "on": bool} a rollback climbs: warn, never kill; {"do": "outage", "on": bool}
# the baseline is down or back; {"do": "attended"} an operator is attached (renews the lease);
# {"do": "quit"} the run is over.


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """See the module. `spare`: ids of containers that are never touched; `spare_pids`:
    (pid, start) of the baseline's process; `logs`: service → file; `lease_s`: how
    long nobody may be attached while the baseline is down, 0 for as long as it takes."""

    run_id: str
    run_dir: str
    ring: str
    limits: tuple[Limit, ...] = ()
    envelope: Envelope = NOTHING_PREDICTED
    spare: tuple[str, ...] = ()
    spare_pids: tuple[tuple[int, int], ...] = ()
    engine: str = ""
    gpus: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)
    runner: tuple[int, int] = (0, 0)
    lease_s: float = 0.0

    @property
    def directory(self) -> Path:
        return Path(self.run_dir) / DIRECTORY

    @property
    def rollback_dir(self) -> Path:
        return Path(self.run_dir) / "rollback"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "run_id": self.run_id, "run_dir": self.run_dir, "ring": self.ring,
            "limits": [limit.to_json() for limit in self.limits],
            "envelope": self.envelope.to_json(), "spare": list(self.spare),
            "spare_pids": [list(pair) for pair in self.spare_pids], "engine": self.engine,
            "gpus": list(self.gpus), "disks": list(self.disks), "logs": self.logs,
            "runner": list(self.runner), "lease_s": self.lease_s,
        }  # fmt: skip


def read(path: Path) -> GuardConfig:
    """The sheet in a file. Raises OSError, and ValueError with what is wrong."""
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ValueError("not a guard configuration of this version")
    try:
        data["limits"] = tuple(Limit.from_json(one) for one in data["limits"])
        data["envelope"] = Envelope.from_json(data["envelope"])
        for key in ("spare", "gpus", "disks"):
            data[key] = tuple(str(one) for one in data[key])
        data["spare_pids"] = tuple((int(pid), int(start)) for pid, start in data["spare_pids"])
        pid, start = data["runner"]
        return GuardConfig(**{**data, "runner": (int(pid), int(start))})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a guard configuration: {error}") from None


GIB = 1 << 30
MARGIN = 8 * GIB
"""What preflight leaves to the rest of the machine: `HOST_MARGIN` of models.sizing.assessment."""
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


MESSAGES = frozenset({"beat", "arm", "sheet", "advisory", "outage", "attended", "quit"})
_MOST = 65536
_MOST_LINE = 4096


class Inbox:
    """Made where it is missing; `read` never waits. What is no message is counted in `garbage`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and when something else lies there."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Read and write: the last writer going away must not look like the end of the file.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        self.descriptor = os.open(path, flags)
        if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
            self.close()
            raise OSError(f"{path} is no FIFO")
        self.garbage = 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """The messages since the last call, in order."""
        try:
            data = os.read(self.descriptor, _MOST)
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            self._rest, self.garbage = b"", self.garbage + 1
        found = []
        for line in lines:
            message = _message(line)
            if message is not None:
                found.append(message)
            elif line.strip():
                self.garbage += 1
        return found

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _message(line: bytes) -> dict[str, Any] | None:
    if len(line) > _MOST_LINE:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    word = value.get("do")
    return value if isinstance(word, str) and word in MESSAGES else None
