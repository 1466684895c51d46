"""The guard config, its limits with their defaults, and the inbox of the sentinel.

The runner writes RUN/guard/guard.json before the first effect and again when something changes; an
inbox message then tells the sentinel to read the file again. The file names everything by id, pid
or path, so that the sentinel never has to look anything up in a playbook or site.

The default limits scale with the machine and are calibrated by replaying recorded loads
(docs/measurements/replay.md). Two aims conflict: a load that outgrows the machine has to be stopped
well before RAM is full, but a load that preflight calls GO may leave no more RAM than preflight's
margin. Only the prediction tells the two apart, so the forecast takes it into account.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from console.common import record
from console.common.files import open_untrusted
from console.models.sizing.load_curve import Envelope
from console.recovery.guard.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, as the guard config carries it from site and playbook to the sentinel.

    The limit is breached when `metric` is below `below` (or above `above`) for `for_s` seconds
    without a break. A limit that has `log` instead of a metric is breached when `count` lines in
    the log of that service match the pattern `matches`.

    `act` is "kill" or "warn". `missing` says what an unknown reading means: "say" shows it,
    "breach" counts it as a breach after a grace period. `source` says who set the limit: default,
    site or playbook, and the place in the file. `scarce` restricts the limit to times when less
    than this many bytes of RAM are available; 0 means always.
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
        return METRICS[self.metric].unit if self.metric in METRICS else ""

    def passed(self, value: float) -> bool:
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}

    @staticmethod
    def from_json(data: object) -> Limit:
        """Read a limit that `to_json` has written. Raises ValueError with what is wrong."""
        if not isinstance(data, dict):
            raise ValueError("a limit is a table")
        try:
            limit = Limit(**data)
        except TypeError as error:
            raise ValueError(f"not a limit of this version: {error}") from None
        if bool(limit.log) == bool(limit.metric):
            raise ValueError("a limit is on a metric or on a log")
        if limit.metric and limit.metric not in METRICS:
            raise ValueError(f"unknown metric {limit.metric}")
        if limit.metric and (limit.below is None) == (limit.above is None):
            raise ValueError(f"{limit.metric}: either below or above must be set")
        value = limit.below if limit.below is not None else limit.above
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{limit.metric}: the level is not a finite number")
        return limit


DIRECTORY = "guard"
CONFIG_FILE = "guard.json"
INBOX = "inbox"
"""A FIFO that takes one JSON line per message, at most PIPE_BUF bytes; see below."""
READY = "sentinel.json"
"""The sentinel writes this file once it watches: its pid and start time, and in words which
protections it got and which it was refused."""
BREACH = "breach.json"
"""The sentinel writes this file after a kill: what was breached and killed, and the samples from
before the kill."""
RING = "recorder.ring"
"""The flight recorder's copy on disk. The live recorder file is in /dev/shm, under the name that
the guard config gives."""
LEASE, ALLOCATION = "lease", "allocation"
EXPIRIES = (LEASE, ALLOCATION)
"""Causes of a breach that is no limit's: the guard kills nothing, the rollback stops what runs."""
SCHEMA = "omni.guard/v1"
MAX_CONFIG = 8 << 20
"""Bytes of guard.json."""
NOTHING_PREDICTED = Envelope()

# Messages: {"do": "beat"} comes every second. {"do": "arm"} follows a line that was appended to
# live.jsonl, from which the sentinel reads what is alive. {"do": "sheet"}: the guard config was
# rewritten. {"do": "advisory", "on": bool}: a rollback is running, so warn and never kill.
# {"do": "outage", "on": bool}: the baseline is down, or back. {"do": "attended"}: an operator is
# attached, which renews the lease. {"do": "quit"}: the run is over.


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """What guard.json holds. `spare` are the ids of containers that the guard never touches,
    `spare_pids` is (pid, start time) of the baseline's process, and `logs` maps each service to its
    log file. `lease_s` is how long the baseline may be down with nobody attached, in seconds; 0
    means without limit. `holder` is (pid, start time) of the process in Slurm's job that holds the
    run's cards while it lives; (0, 0) for a run without one."""

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
    holder: tuple[int, int] = (0, 0)

    @property
    def directory(self) -> Path:
        return Path(self.run_dir) / DIRECTORY

    @property
    def rollback_dir(self) -> Path:
        return Path(self.run_dir) / "rollback"

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **record.plain(self)}


def read(path: Path) -> GuardConfig:
    """Read a guard config from a file. Raises OSError, and ValueError with what is wrong."""
    data = record.load(path, MAX_CONFIG)
    return record.of(GuardConfig, data, schema=SCHEMA)


GIB = 1 << 30
MARGIN = 8 * GIB
"""RAM that preflight leaves to the rest of the machine, in bytes; equal to `HOST_MARGIN` in
models.sizing.assessment."""
MIN_FLOOR, MAX_FLOOR = 2 * GIB, 6 * GIB
"""The smallest and the largest floor, in bytes. MemAvailable was measured to lag 300 to 530 MiB
behind a process that allocates fast, so a floor below 2 GiB would mean nothing; 6 GiB stays clear
of preflight's margin."""
FLOOR_SHARE, SMALL_SHARE = 64, 8
"""The floor is a 64th of the machine's RAM, but never more than an eighth of it."""
RESERVE_SHARE = 6
ACT_S, ACT_FOR_S, WARN_S = 6.0, 0.5, 30.0
FLOOR_WITHIN_S = 60.0
"""Below the reserve, only growth that reaches the floor within this many seconds counts."""
LOW, SCARCE, WARN_LOW, WARN_SCARCE = 0.35, 0.15, 0.50, 0.20
"""Shares of RAM. Below LOW the forecast may lead to a kill, and below SCARCE stalls and a silent
runner may. Below WARN_LOW the forecast may warn, and less than WARN_SCARCE is a warning itself."""
SWAP_SHARE, MIN_SWAP = 32, 2 * GIB
FULL_LOW, FULL_SCARCE, FULL_SCARCE_S, FULL_HARD, FULL_HARD_S = 30.0, 10.0, 2.0, 60.0, 2.0
SOME_WARN, SOME_WARN_S = 10.0, 2.0
SILENT_S = 10.0
SOURCE = "default"


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults for one machine, in bytes. `floor`: if less RAM than this is available, the
    limit is breached at once. `reserve`: the forecast counts the seconds until this much RAM is
    left. `kept`: a predicted load has to leave this much, so that the forecast lets it end as
    predicted. `limits`: the default limits, in the form of the guard config."""

    floor: int
    reserve: int
    kept: int
    limits: tuple[Limit, ...]


def floor_of(total: int) -> int:
    return min(max(MIN_FLOOR, total // FLOOR_SHARE), MAX_FLOOR, total // SMALL_SHARE)


def defaults(total: int, swap_total: int, bound: int = 0) -> Defaults:
    """Return the defaults for a machine with this much RAM and swap, in bytes. `bound` is the
    memory limit of the control group around the console, 0 for none: the group gets a floor of its
    own, and every other limit is about the machine."""
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
        growth = min(max(MIN_SWAP, total // SWAP_SHARE), swap_total // 2)
        limits.insert(2, Limit("host.swap_growth", above=growth, scarce=low))
    return Defaults(
        floor=floor,
        reserve=min(floor * 8 // 3, total // RESERVE_SHARE),
        kept=min(MARGIN, floor * 4 // 3),
        limits=tuple(limits),
    )


MESSAGES = frozenset({"beat", "arm", "sheet", "advisory", "outage", "attended", "quit"})
_MAX_MESSAGE = 65536
_MAX_LINE = 4096


class Inbox:
    """The reading end of the FIFO, which is created if it is missing. `read` never waits."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, also if something other than a FIFO lies at `path`."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # The FIFO is opened for reading and writing, so that no end of file is seen when the last
        # writer goes away.
        self.descriptor = open_untrusted(path, os.O_RDWR)
        if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
            self.close()
            raise OSError(f"{path} is not a FIFO")
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """Return the messages since the last call, in order. A line that is not a known message is
        left out."""
        try:
            data = os.read(self.descriptor, _MAX_MESSAGE)
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            self._rest = b""
        return [message for line in lines if (message := _message(line)) is not None]

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _message(line: bytes) -> dict[str, Any] | None:
    if len(line) > _MAX_LINE:
        return None
    message = record.table(line) or {}
    word = message.get("do")
    return message if isinstance(word, str) and word in MESSAGES else None
