"""Watches the server under a soak every few seconds, from its own thread.

It reads the server's memory, cards, start time and matching log lines. What cannot be read is None;
no look raises.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from console.bench.client import endpoint
from console.bench.soak import Look
from console.common.clock import Clock
from console.common.errors import ConsoleError
from console.common.logs.buffer import MATCHED, MAX_LINES
from console.common.logs.level import names_level, why_harmless
from console.common.logs.line import LogLine, Splitter
from console.common.logs.tail import BEHIND_LIMIT, Source, read_last
from console.common.text import one_line
from console.host import process
from console.host.gpu.figures import GpuReport
from console.host.matching import TooSlow, find
from console.runtime.docker.client import ask, inspect
from console.runtime.docker.log_stream import UNREADABLE
from console.runtime.probe import ProbeError, fetch
from console.runtime.spec import Driver, Handle

if TYPE_CHECKING:
    import docker


SLOWEST_S, FASTEST_S = 5.0, 1.0
METRICS_EVERY = 6
"""Looks per query of /metrics: each query resets averages that other readers see."""
METRICS_S = 2.0
START_HEADER = "Process-Start-Time-Unix"
STATS_S = 5.0
CLOSE_S = 10.0
LAST_WORDS_S = 0.5
"""Seconds to wait after a server died until its last lines are in the log."""
BLOCKS = 64
"""Most blocks of a log read in one look (16 MiB)."""
_STATES = {
    "T": "stopped by a signal", "t": "stopped by a debugger", "D": "waits inside the kernel",
    "R": "running", "Z": "ended", "S": "waits",
}  # fmt: skip


class CriticalLog:
    """The lines added to a log file that match a pattern. A line that states a level below error,
    or is a hint, counts only where the pattern itself names a level."""

    def __init__(self, path: Path, pattern: str) -> None:
        """Start at the end of the file; earlier lines do not count."""
        self._pattern = pattern
        self._too_slow = False
        self._blind = UNREADABLE in "".join(read_last(path, 1))
        self._splitter = Splitter()
        self._source = Source(path, 0)
        self._source.open_end()
        self._source.lines = MAX_LINES  # a file that comes later is read from its start

    def read(self) -> tuple[str, ...] | None:
        """Matching lines since the last call, clean; None without a readable log, which may be
        because the engine does not give it."""
        lines: list[LogLine] = []
        try:
            if not self._source.opened:
                self._source.open_end()
            if not self._source.opened:
                return None
            if self._source.measure() > BEHIND_LIMIT:
                lines += self._splitter.cut()
                self._source.skip()
            lines += self._added()
        except OSError:
            return None
        for line in lines:
            self._blind = line.kind == "marker" and UNREADABLE in line.text
        matching = self._matching(lines)
        return matching or (None if self._blind or self._too_slow else ())

    def close(self) -> tuple[str, ...]:
        """Close and return the remaining matches, including a last line without an end."""
        last = self.read() or ()
        self._source.close()
        return last + self._matching(self._splitter.cut())

    def _added(self) -> list[LogLine]:
        lines: list[LogLine] = []
        for _ in range(BLOCKS):
            self._source.measure()
            data = self._source.read()
            if data:
                lines += self._splitter.feed(data, time.monotonic())
            elif not self._source.look():
                break
        return lines

    def _matching(self, lines: list[LogLine]) -> tuple[str, ...]:
        texts = [line.text[:MATCHED] for line in lines]
        try:
            matches = [] if self._too_slow else find(self._pattern, texts)
        except TooSlow:  # whether a line was critical is not known from here on
            self._too_slow, matches = True, []
        any_level = names_level(self._pattern)
        return tuple(
            line.text for line, spans in zip(lines, matches, strict=False)
            if spans is not None and (any_level or not why_harmless(line.text, spans[0]))
        )  # fmt: skip


class ProcessEyes:
    """A host process and all it started."""

    def __init__(self, handle: Handle, server: str = "", cookie: str = "") -> None:
        """`server`: the server among them, as an earlier runner found. `cookie`: the run's, which
        identifies processes whose start script has ended."""
        self._group = process.Group(handle.pid, handle.start, cookie)
        self._server = server

    def look(self) -> tuple[dict[str, int | None], dict[str, str]]:
        """Memory (rss and anon, bytes), and which process the server is.

        RSS is summed over the session as in `ps`: it includes mapped model files and counts shared
        pages once per process. `anon` is memory that no file backs. The server is the largest
        process for as long as it lives, because a start script may restart the server.
        """
        sums: dict[str, int | None] = {"rss": None, "anon": None}
        sizes: dict[str, int] = {}
        for member in self._group.members():
            memory = _status_memory(member.pid)
            sizes[f"{member.pid} {member.start}"] = memory.get("rss", 0)
            for name, size in memory.items():
                sums[name] = (sums[name] or 0) + size
        if self._server not in sizes:
            self._server = max(sizes, key=lambda name: sizes[name], default="")
        return sums, {"process": self._server} if self._server else {}

    def state(self) -> str:
        members = self._group.members()
        return _state_words([member.state for member in members])


class ContainerEyes:
    """A container, through its engine."""

    def __init__(self, client: docker.DockerClient, handle: Handle) -> None:
        self._client = client
        self._id = handle.container

    def look(self) -> tuple[dict[str, int | None], dict[str, str]]:
        """The same from the container's control group, where shared pages count once."""
        start: dict[str, str] = {}
        try:
            container = inspect(self._client, self._id) or {}
            state = container.get("State") or {}
            # between two lives it counts as running, under the old start and the new count
            if state.get("Running") and not state.get("Restarting"):
                start["container"] = f"{state.get('StartedAt')} {container.get('RestartCount')}"
            stats = ask(
                "Reading the container's memory",
                lambda: self._client.api.stats(self._id, stream=False, one_shot=True), STATS_S,
            )  # fmt: skip
        except ConsoleError:
            return {"rss": None, "anon": None}, start
        return group_memory(stats), start

    def state(self) -> str:
        try:
            state = (inspect(self._client, self._id) or {}).get("State") or {}
        except ConsoleError as error:
            return one_line(str(error), 100)
        if state.get("Paused"):
            return "its container is paused"
        return one_line(str(state.get("Status") or ""), 40)


def group_memory(stats: Any) -> dict[str, int | None]:
    """RSS of a control group from the engine's statistics, version 1 or 2: mapped pages, but not
    the rest of the page cache."""
    memory = stats.get("memory_stats") if isinstance(stats, dict) else None
    table = memory.get("stats") if isinstance(memory, dict) else None
    table = table if isinstance(table, dict) else {}
    for anon_key, file_key in (("anon", "file_mapped"), ("total_rss", "total_mapped_file")):
        anon, mapped = table.get(anon_key), table.get(file_key)
        if isinstance(anon, int) and isinstance(mapped, int):
            return {"rss": anon + mapped, "anon": anon}
    return {"rss": None, "anon": None}


def _status_memory(pid: int) -> dict[str, int]:
    """`rss` and `anon` of one process in bytes, from the kernel; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return {}
    sizes = dict(re.findall(r"^(VmRSS|RssAnon):\s+(\d+) kB", text, re.MULTILINE))
    names = (("rss", "VmRSS"), ("anon", "RssAnon"))
    return {name: int(sizes[key]) * 1024 for name, key in names if key in sizes}


def _state_words(letters: list[str]) -> str:
    """The process state that best explains why a server is silent."""
    worst = next((letter for letter in _STATES if letter in letters), "")
    return _STATES.get(worst, "")


class SoakWatch:
    """Implements `Watch` of `console.bench.soak` for one service of a run."""

    def __init__(
        self, url: str, driver: Driver, handle: Handle, log: CriticalLog, *,
        eyes: ProcessEyes | ContainerEyes, gpus: Callable[[], GpuReport | None], clock: Clock,
        every_s: float = SLOWEST_S,
    ) -> None:  # fmt: skip
        self._url = url
        self._driver = driver
        self._handle = handle
        self._log = log
        self._eyes = eyes
        self._clock = clock
        self._every = every_s
        self._gpus = gpus
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._looks: list[Look] = []
        self._thread = threading.Thread(target=self._run, name="soak watch", daemon=True)

    def __enter__(self) -> SoakWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """Stop after one more look, which the final `drain` returns."""
        self._closing.set()
        self._thread.join(CLOSE_S)

    def drain(self) -> list[Look]:
        with self._lock:
            looks, self._looks = self._looks, []
        return looks

    def gone(self) -> str:
        try:
            status = self._driver.status(self._handle)
        except ConsoleError:
            return ""  # an engine that does not answer is no server that has died
        return "" if status.alive else status.detail or "gone"

    def state(self) -> str:
        return self._eyes.state()

    def _run(self) -> None:
        for number in itertools.count():
            self._try(metrics=number % METRICS_EVERY == 0)
            if self._closing.wait(self._every):
                break
        self._clock.sleep(LAST_WORDS_S)
        self._try(metrics=True)
        self._keep(Look(critical=self._log.close()))

    def _try(self, *, metrics: bool) -> None:
        """Look once; a look that the system refuses (no descriptor left) gives nothing."""
        with contextlib.suppress(OSError, RuntimeError):
            self._keep(self._look(metrics=metrics))

    def _keep(self, look: Look) -> None:
        with self._lock:
            self._looks.append(look)

    def _look(self, *, metrics: bool) -> Look:
        memory, start = self._eyes.look()
        if metrics and (header := start_header(self._url)):
            start |= {"metrics": header}
        critical = self._log.read()
        return Look(
            memory["rss"], memory["anon"], self._vram(), start, self.gone(),
            critical is not None, critical or (),
        )  # fmt: skip

    def _vram(self) -> int | None:
        """Used bytes of all cards, by any process; None if one card cannot be read."""
        report = self._gpus()
        if report is None or not report.gpus:
            return None
        if self._clock.monotonic() - report.at > 3 * self._every:
            return None
        used = [gpu.used_bytes for gpu in report.gpus]
        return sum(size for size in used if size is not None) if None not in used else None


def start_header(url: str) -> str:
    """The header of llama-server's /metrics that marks when its process started, or "".

    Despite the header's name it counts microseconds of a private clock: use it only to compare.
    """
    try:
        reply = fetch(endpoint(url, "/metrics"), timeout_s=METRICS_S)
    except ProbeError:
        return ""
    return one_line(reply.headers.get(START_HEADER, ""), 40) if reply.status == 200 else ""
