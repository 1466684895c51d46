"""The machine around a benchmark: what else worked, what was swapped in, what the cards did.

A figure is only as good as the quiet it was taken in. /proc is read before and after each run, and
the servers are asked who uses them (`console.bench.beside.users`). A run is void if its figure
would describe something other than the server:

- the server answered others at the same time, or another server of this machine that is known did.
- another inference engine computed at the same time. They share memory bandwidth and cards, so its
  share cannot be subtracted. The baseline and the run's other services are known by their pids, any
  other engine by its name. SGLang and vLLM use one core when idle, so they need more to count.
- more than SWAP_IN_RATE was swapped in: then a disk serves in place of memory. This includes a
  server that swaps itself: its rate is that of a disk that day, and HOLD asks a person.

Both make a figure worse, never better. The run is void all the same: a baseline that was held up
would lend the candidate a false GO.

This console's own processes do not count as others: the one that measures, and every console of the
same user, since a follower of this run cannot be told from another. Their use is reported
separately if it is more than a client should take.

Only reported: any other busy process (a build beside 192 idle cores does no harm, and the spread of
the runs shows when it does), and major faults (llama.cpp runs models larger than memory by mmap
from the disk). If the measured server's own processes are unknown, no process with an engine's name
makes a run void: it may be the server itself.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from console.bench.beside.users import LookAt, Seen, Users, WatchedServer, ask
from console.bench.sample import Sample
from console.common.argv import LEFT_OUT, started
from console.common.text import decode, one_line
from console.common.units import format_bytes
from console.host.gpu.clocks import Watch

BUSY_CORES = 0.2
SPIN_CORES = 1.5
SWAP_IN_RATE = 2**20
"""Bytes a second: 256 pages of 0.1 ms each hold a run up by 2.5 %, half of what runs may vary."""
SWAP_IN_LEAST = 16 * 2**20
UNSEEN_CORES = 0.5
SHORTEST_S = 0.1
"""Shorter runs give no shares: CPU time is counted in hundredths of a second."""
UNSEEN = "short-lived processes"
"""Name for short processes, as of a build: only the machine's counter has their CPU time."""
MAX_NAMED = 8
OWN_CORES = 0.05
"""What measuring may take of a core; it is counted over all runs, since one may be short."""
OWN = "omni-console"
ENGINES = re.compile(
    r"llama|ollama|kobold|exllama|tabbyapi|mistralrs|text-generation|whisper-server|sd-server", re.I
)
SPINNERS = re.compile(r"sglang|vllm|ktransformers|aphrodite|lmdeploy|trtllm|tritonserver", re.I)


@dataclass(frozen=True, slots=True)
class Engine:
    """A server on this machine; `pid` is the root of its processes, 0 if unknown. `facts` are for a
    report: argv, image, image_id. `url`: where it says how many requests it answers; "" if nobody
    is to ask. `behind`: who passes requests on to it, in words."""

    name: str
    pid: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: CPU seconds and major faults so far; `start` in ticks since boot."""

    pid: int
    parent: int
    session: int
    start: int
    name: str
    cpu_s: float
    faults: int


@dataclass(frozen=True, slots=True)
class Look:
    """The machine at one moment (monotonic seconds); CPU seconds, bytes and pages since boot, and
    what the servers say of their requests."""

    at: float
    processes: dict[int, Process]
    cpu_s: float | None
    swapped_in: int | None
    faults: int | None
    requests: Seen = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    cores: float = 0.0
    runs: int = 0
    engine: bool = False


class Surroundings:
    """Looks around each run of one benchmark; `close` gives what goes into its record.

    `server` is what is measured (None: unknown), `others` the engines that should be quiet
    meanwhile. Failures of /proc or NVML never raise.
    """

    def __init__(
        self,
        server: Engine | None = None,
        others: Sequence[Engine] = (),
        *,
        proc: Path = Path("/proc"),
        monotonic: Callable[[], float] = time.monotonic,
        watch: Watch | None = None,
        look_at: LookAt = ask,
    ) -> None:
        self._server = server or Engine("")
        self.users = Users(
            WatchedServer(self._server.name, self._server.url),
            [WatchedServer(o.name, o.url) for o in others], look_at, monotonic,
        )  # fmt: skip
        self._others = [other for other in others if other.pid]
        self._proc = proc
        self._monotonic = monotonic
        self._watch = watch or Watch()
        self._busy: dict[str, _Seen] = {}
        self._swapped_in = self._faults = self._own_faults = 0
        self._runs = 0
        self._took = self._own_cpu_s = self._client_cpu_s = 0.0
        self._blind = False

    def open(self) -> None:
        self._watch.start()

    def look(self) -> Look:
        pages, faults = _counters(self._proc / "vmstat")
        processes = {process.pid: process for process in _processes(self._proc)}
        page = os.sysconf("SC_PAGE_SIZE")
        swapped = None if pages is None else pages * page
        cpu_s = _busy_time(self._proc / "stat")
        return Look(self._monotonic(), processes, cpu_s, swapped, faults, self.users.look())

    def judge(self, sample: Sample, before: Look, after: Look) -> Sample:
        """The sample plus what was swapped in and read meanwhile; void if that spoilt it."""
        took = after.at - before.at
        self._runs += 1
        swapped = _since(before.swapped_in, after.swapped_in)
        faults = _since(before.faults, after.faults)
        self._blind = self._blind or swapped is None
        self._swapped_in += swapped or 0
        self._faults += faults or 0
        used = self.users.judge([sample], before.requests, after.requests)
        engines = self._beside(before, after, took)
        sample = replace(sample, swapped_in=swapped, major_faults=faults)
        if sample.void:
            return sample
        if used:
            return replace(sample, void=used)
        if engines:
            return replace(sample, void=f"another engine was busy: {', '.join(engines)}")
        if swapped is not None and swapped > max(SWAP_IN_LEAST, SWAP_IN_RATE * took):
            words = f"{format_bytes(swapped)} were swapped in meanwhile: memory is short"
            return replace(sample, void=words)
        return sample

    def close(self) -> dict[str, Any]:
        """The context of the benchmark as plain values. `cards`: see console.host.gpu.clocks."""
        cards, words = self._watch.stop()
        return {
            "server": dict(self._server.facts),
            "cards": cards,
            "cards_words": one_line(words),
            "swapped_in": None if self._blind else self._swapped_in,
            "major_faults": self._faults,
            "client_cores": round(self._client_cpu_s / self._took, 3) if self._took else None,
            "console_cores": round(self._own_cpu_s / self._took, 3) if self._took else None,
            "server_major_faults": self._own_faults if self._server.pid else None,
            "busy": [
                {"name": name, "cores": round(seen.cores, 2), "runs": seen.runs,
                 "engine": seen.engine}
                for name, seen in self._busiest()
            ],
            "runs": self._runs,
            "requests": self.users.close(),
        }  # fmt: skip

    def flags(self) -> list[str]:
        """What a reader of the figures should know, a line each."""
        remarks = self.users.flags()
        if self._server.behind and not self._server.pid:
            remarks.append(f"which server answered is not known: {self._server.behind}, is asked")
        for name, seen in self._busiest():
            if not seen.engine:
                share = f"up to {seen.cores:.1f} cores in {seen.runs} of {self._runs} requests"
                remarks.append(f"busy at the same time: {name}, {share}")
        took = max(self._took, SHORTEST_S)
        own, client = self._own_cpu_s / took, self._client_cpu_s / took
        if own > OWN_CORES:
            words = f"this console and others of yours took {own:.2f} cores meanwhile"
            remarks.append(f"{words}, the process that measured {client:.2f}")
        return remarks

    def _busiest(self) -> list[tuple[str, _Seen]]:
        return sorted(self._busy.items(), key=lambda item: -item[1].cores)[:MAX_NAMED]

    def _beside(self, before: Look, after: Look, took: float) -> list[str]:
        """Engines that were busy between the looks; every other busy process is remembered."""
        if took < SHORTEST_S:
            return []
        me = os.getpid()
        ours = _family(after.processes, me) | _line(after.processes, me)
        self._took += took
        root = self._server.pid
        served = _family(after.processes, root) if root else set()
        known = {pid: o.name for o in self._others for pid in _family(after.processes, o.pid)}
        shares: dict[str, float] = {}
        engines: dict[str, str] = {}
        for process, cpu_s, faults in _gains(before, after):
            cores = cpu_s / took
            if process.pid in served:
                self._own_faults += faults
            elif process.pid == me or (
                cores and process.pid not in known and self._is_own(process)
            ):
                self._own_cpu_s += cpu_s
                self._client_cpu_s += cpu_s if process.pid == me else 0.0
            elif cores > BUSY_CORES and (process.pid in known or process.pid not in ours):
                name = known.get(process.pid) or self._called(process)
                shares[name] = shares.get(name, 0.0) + cores
                if process.pid in known or (root and self._is_engine(process, cores)):
                    engines[name] = name if process.pid in known else f"{name} pid {process.pid}"
        unseen = _unseen(before, after, took)
        if unseen > UNSEEN_CORES:
            shares[UNSEEN] = unseen
        for name, cores in shares.items():
            seen = self._busy.setdefault(name, _Seen())
            seen.cores, seen.runs = max(seen.cores, cores), seen.runs + 1
            seen.engine = seen.engine or name in engines
        return [f"{engines[name]} ({shares[name]:.1f} cores)" for name in sorted(engines)]

    def _called(self, process: Process) -> str:
        """A readable name: `cc1plus`, or `python3 train.py` with an interpreter's script."""
        _, *words = started(_argv(self._proc / str(process.pid) / "cmdline")) or [""]
        script = [Path(word).name for word in words if word[:1] not in ("-", LEFT_OUT)]
        return one_line(" ".join([process.name, *script]), 60)

    def _is_own(self, process: Process) -> bool:
        """Whether it is `omni-console …`, or `python -m console.…`, of this user."""
        folder = self._proc / str(process.pid)
        try:
            mine = folder.stat().st_uid == os.getuid()
        except OSError:
            return False
        program, *words = _argv(folder / "cmdline")
        names = [Path(program).name]
        if names[0].startswith("python"):
            while words[:1] == ["-P"]:
                words = words[1:]
            if words[:1] == ["-m"]:
                module = [*(words[1] if words[1:] else "").split("."), ""]
                return mine and module[0] == "console" and "demo" not in module  # a stand-in engine
            names += [Path(words[0]).name] if words else []
        return mine and OWN in names

    def _is_engine(self, process: Process, cores: float) -> bool:
        words = " ".join([process.name, *_program(self._proc / str(process.pid) / "cmdline")])
        if SPINNERS.search(words):
            return cores > SPIN_CORES
        return bool(ENGINES.search(words))


def _since(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _gains(before: Look, after: Look) -> Iterator[tuple[Process, float, int]]:
    """Every process alive at the end, with its CPU seconds and major faults in between."""
    for process in after.processes.values():
        old = before.processes.get(process.pid)
        then, faults = (old.cpu_s, old.faults) if old and old.start == process.start else (0.0, 0)
        yield process, process.cpu_s - then, process.faults - faults


def _unseen(before: Look, after: Look, took: float) -> float:
    """Cores used by processes that are gone at the end."""
    if before.cpu_s is None or after.cpu_s is None:
        return 0.0
    seen = sum(cpu_s for _, cpu_s, _ in _gains(before, after))
    return (after.cpu_s - before.cpu_s - seen) / took


def _busy_time(path: Path) -> float | None:
    """CPU seconds of the whole machine since boot: user, nice, system, interrupts."""
    try:
        first = path.read_text("ascii", "replace").split("\n", 1)[0].split()
        ticks = [int(first[i]) for i in (1, 2, 3, 6, 7)]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _counters(path: Path) -> tuple[int | None, int | None]:
    """Pages swapped in and major faults since boot."""
    try:
        words = path.read_text("ascii", "replace").split()
    except OSError:
        return None, None
    counters = dict(zip(words[::2], words[1::2], strict=False))
    pages, faults = (counters.get(name, "") for name in ("pswpin", "pgmajfault"))
    return int(pages) if pages.isdigit() else None, int(faults) if faults.isdigit() else None


def _processes(proc: Path) -> Iterator[Process]:
    """Every process; one that ends while it is read is left out."""
    tick = os.sysconf("SC_CLK_TCK")
    try:
        names = os.listdir(proc)
    except OSError:
        return
    for name in names:
        if not name.isdigit():
            continue
        try:
            data = (proc / name / "stat").read_bytes()
            open_, close = data.index(b"("), data.rindex(b")")
            fields = data[close + 2 :].split()
            parent, session, faults, user, system, start = (
                int(fields[i]) for i in (1, 3, 9, 11, 12, 19)
            )
        except (OSError, ValueError, IndexError):
            continue
        title = one_line(decode(data[open_ + 1 : close]), 40)
        cpu_s = (user + system) / tick
        yield Process(int(name), parent, session, start, title, cpu_s, faults)


def _family(processes: dict[int, Process], root: int) -> set[int]:
    """A process, its descendants, and its session if it leads one."""
    if root not in processes:
        return set()
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    leads = processes[root].session == root
    family, left = (
        set(),
        [root, *(p.pid for p in processes.values() if leads and p.session == root)],
    )
    while left:
        pid = left.pop()
        if pid not in family:
            family.add(pid)
            left += children.get(pid, [])
    return family


def _line(processes: dict[int, Process], pid: int) -> set[int]:
    """The ancestors of a process."""
    ancestors: set[int] = set()
    while pid in processes and pid not in ancestors:
        ancestors.add(pid)
        pid = processes[pid].parent
    return ancestors


def _argv(path: Path) -> list[str]:
    """A command line; one empty word if the process is gone."""
    try:
        return decode(path.read_bytes()[:4096]).split("\0")
    except OSError:
        return [""]


def _program(path: Path) -> list[str]:
    """What a command line runs: its program, and the script or module of an interpreter."""
    argv = _argv(path)
    words = [Path(argv[0]).name]
    if words[0].startswith("python") or words[0] in ("sh", "bash"):
        rest = [word for word in argv[1:5] if word and not word.startswith("-")]
        words += [one_line(rest[0].rpartition("/")[2], 40)] if rest else []
    return words
