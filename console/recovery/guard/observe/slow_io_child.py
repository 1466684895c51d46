"""Reads what may hang, in a separate process: disks, logs and process groups. It also copies the
recorder to disk.

    python -P -m console.recovery.guard.observe.slow_io_child

The process reads one JSON line per change from stdin and ends when stdin does. It prints one JSON
line a second, and one at once when a fatal log line came.

Input: `ring` and `copy` (paths), `disks`, `logs` {service: file}, `patterns` [[limit, service,
regex]], `armed` {service: number}, `groups` [[pid, start, [control group]]].

Output: `disks` [{path, free, why, age}], `hits` [{limit, count, line, why}], `bad` {limit: why},
`logs` {service: why}, `groups` [{pid, ram, shared, pids, largest, age}], `copy` {age, why}. An age
of None means that nothing was read yet.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from console.common.files import open_untrusted, read_bytes
from console.common.text import one_line
from console.host import cgroup, process
from console.recovery.guard.observe.log_patterns import Logs
from console.recovery.guard.observe.memory import field

EVERY_S = 1.0
LOGS_S = 0.25
"""Seconds between two readings of the logs, if any are followed. Each one wakes the processor."""
SCAN_S, ALL_S = 2.0, 60.0
PAGE = 4096
LAST_COPY_S = 5.0
LARGEST = 16
"""How many members of a process group are named, so that the sentinel can read them more often."""


class Poller:
    """Calls a function repeatedly in a thread of its own; keeps the last result and its time."""

    def __init__(self, function: Callable[[], Any], every_s: float = EVERY_S) -> None:
        self._function = function
        self._every_s = every_s
        self.reading: Any = None
        self.why = ""
        self.at: float | None = None
        self.ended = threading.Event()
        self.wake = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def age(self) -> float | None:
        return None if self.at is None else round(time.monotonic() - self.at, 2)

    def end(self) -> None:
        """Call the function one last time."""
        self.ended.set()
        self.wake.set()

    def _run(self) -> None:
        last = False
        while not last:
            self.wake.clear()
            last = self.ended.is_set()
            try:
                self.reading, self.why = self._function(), ""
                self.at = time.monotonic()
            except OSError as error:
                self.why = one_line(error.strerror or str(error))
            if not last:
                self.wake.wait(self._every_s)
        self.over.set()


def free_of(path: str) -> int:
    """Return the bytes that an ordinary user may still write. Raises OSError."""
    file_system = os.statvfs(path)
    return file_system.f_bavail * file_system.f_frsize


class Copy:
    """Copies the recorder's ring buffer to disk: only changed pages are written, then fsynced."""

    def __init__(self, ring: str, copy: str) -> None:
        self._ring = ring
        self._copy = copy
        self._before = b""
        self._file = -1

    def __call__(self) -> None:
        """Raises OSError."""
        with open(self._ring, "rb") as file:
            data = file.read()
        if self._file >= 0 and not self._is_same_file():
            os.close(self._file)
            self._file, self._before = -1, b""
        if self._file < 0:
            self._file = self._open()
        for at in range(0, len(data), PAGE):
            page = data[at : at + PAGE]
            if page != self._before[at : at + PAGE]:
                os.pwrite(self._file, page, at)
        os.fsync(self._file)
        self._before = data

    def _is_same_file(self) -> bool:
        """Return whether the name still belongs to the open file; somebody may have removed it."""
        try:
            return os.path.samestat(os.fstat(self._file), os.lstat(self._copy))
        except OSError:
            return False

    def _open(self) -> int:
        # The recording of an earlier sentinel of this run is kept beside the new one.
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._copy, self._copy + ".before")
        descriptor = open_untrusted(self._copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        directory = os.open(os.path.dirname(self._copy) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return descriptor


Leader = tuple[int, int, tuple[str, ...]]
"""pid, start time, and the paths of the control groups that the process was started in."""


class Groups:
    """Memory of process groups without pages that are mapped from files. Shared memory (`shared`, a
    part of `ram`) is that of the member with the most: members usually share the same memory, so a
    sum could breach a limit that the real use does not."""

    def __init__(self, leaders: list[Leader]) -> None:
        self.leaders = self._leaders = leaders
        """Another thread may replace this list; what is known about leaders that stay is kept."""
        self._members: dict[int, list[int]] = {}
        self._unrelated: set[int] = set()
        self._scanned = self._all_at = -math.inf

    def __call__(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        if self.leaders is not self._leaders:
            self._leaders, self._scanned, self._all_at = self.leaders, -math.inf, -math.inf
        if self._leaders and now - self._scanned >= SCAN_S:
            self._scanned = now
            self._scan(now)
        groups = []
        for leader, pids in self._members.items():
            sizes = sorted(
                ((*size, pid) for pid in pids if (size := own_memory(pid)) is not None),
                reverse=True,
            )
            if sizes:
                shared = max(size for _, size, _ in sizes)
                groups.append({
                    "pid": leader, "ram": sum(size for size, _, _ in sizes) + shared,
                    "shared": shared, "pids": len(sizes),
                    "largest": [pid for _, _, pid in sizes[:LARGEST]],
                })  # fmt: skip
        return groups

    def _scan(self, now: float) -> None:
        """Find the members of each group. A process outside these sessions never joins one later,
        so it is not looked at again. Since the kernel reuses pids, all processes are looked at
        again every ALL_S."""
        if now - self._all_at >= ALL_S:
            self._all_at, self._unrelated = now, set()
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        inside: dict[int, set[int]] = {}
        for pid, _, paths in self._leaders:
            inside.setdefault(pid, set()).update(
                member_pid for path in paths for member_pid in cgroup.pids(path)
            )
        to_read = there - self._unrelated.difference(*inside.values())
        every = [stat for pid in to_read if (stat := process.stat(pid))]
        self._members = {
            pid: _members(every, pid, start, inside[pid]) for pid, start, _ in self._leaders
        }
        known = {pid for pids in self._members.values() for pid in pids}
        self._unrelated = there - known - inside.keys()


def _members(every: list[process.Stat], pid: int, start: int, inside: set[int]) -> list[int]:
    """Return the members as `process.members` does, from one listing of all processes, plus those
    that left the session but not the control group."""
    taken = any(stat.pid == pid and stat.start != start for stat in every)
    return [
        stat.pid for stat in every
        if stat.state not in "ZX" and (stat.pid in inside or (
            not taken and stat.start >= start and pid in (stat.pid, stat.session, stat.group)))
    ]  # fmt: skip


def own_memory(pid: int) -> tuple[int, int] | None:
    """Return a process's bytes of anonymous and of shared memory; None if it is gone."""
    data = read_bytes(f"/proc/{pid}/status")
    anon, shared = field(data, b"RssAnon:"), field(data, b"RssShmem:")
    return None if anon is None or shared is None else (anon * 1024, shared * 1024)


class SlowIoWorker:
    """The work of this process: it takes input lines, reads, and reports."""

    def __init__(self) -> None:
        self._logs = Logs()
        self._disks: dict[str, Poller] = {}
        self._copy: Poller | None = None
        self._groups = Groups([])
        self._group_poller: Poller | None = None
        self._message: dict[str, Any] = {}

    def take(self, message: dict[str, Any]) -> None:
        """Set what is to be watched."""
        disks = [str(disk) for disk in message.get("disks", [])]
        for path in disks:
            if path not in self._disks:
                self._disks[path] = Poller(lambda path=path: free_of(path))  # type: ignore[misc]
        for path in [disk for disk in self._disks if disk not in disks]:
            self._disks.pop(path).end()
        if self._copy is None and message.get("ring"):
            self._copy = Poller(Copy(str(message["ring"]), str(message["copy"])))
        if message.get("groups") != self._message.get("groups"):
            self._groups.leaders = [
                (int(pid), int(start), tuple(str(group_path) for group_path in paths))
                for pid, start, *rest in message.get("groups", []) for paths in (rest or [()])
            ]  # fmt: skip
            if self._group_poller is not None:
                self._group_poller.wake.set()
            elif self._groups.leaders:
                self._group_poller = Poller(self._groups)
        patterns = [(int(n), str(s), str(p)) for n, s, p in message.get("patterns", [])]
        self._logs.set({str(k): str(v) for k, v in message.get("logs", {}).items()}, patterns)
        self._logs.arm({str(k): int(v) for k, v in message.get("armed", {}).items()})
        self._message = message

    @property
    def follows(self) -> bool:
        """Whether there are logs to read before the next report."""
        return bool(self._logs.tails)

    def read_logs(self) -> bool:
        """Read the logs. Returns whether a fatal line came."""
        return self._logs.read()

    def report(self) -> bytes:
        disks = [
            {"path": path, "free": poller.reading, "why": poller.why, "age": poller.age()}
            for path, poller in self._disks.items()
        ]
        groups, copy = self._group_poller, self._copy
        line = {
            "disks": disks,
            "hits": self._logs.hits(),
            "bad": {str(limit): why for limit, why in self._logs.bad.items()},
            "logs": self._logs.troubles(),
            "uncounted": self._logs.uncounted(),
            "groups": [{**group, "age": groups.age()} for group in groups.reading or []]
            if groups else [],
            "copy": {"age": copy.age(), "why": copy.why} if copy else None,
        }  # fmt: skip
        return json.dumps(line).encode() + b"\n"

    def end(self) -> None:
        """Copy the ring buffer one last time, unless that hangs."""
        if self._copy is not None:
            self._copy.end()
            self._copy.over.wait(LAST_COPY_S)


def main() -> int:
    """Run until stdin ends or nobody reads the output."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    worker, rest, due = SlowIoWorker(), b"", 0.0
    os.set_blocking(0, False)
    while True:
        left = max(0.0, due - time.monotonic())
        readable, _, _ = select.select([0], [], [], min(LOGS_S, left) if worker.follows else left)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError, AttributeError):
                    worker.take(json.loads(line))
        if worker.read_logs() or time.monotonic() >= due:
            due = time.monotonic() + EVERY_S
            try:
                os.write(1, worker.report())
            except OSError:
                break
    worker.end()
    # sys.exit() would wait for a thread whose disk does not answer
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
