"""The ways to end one container or one group of processes, each a call that does not wait.

Signals go through pidfds. The descriptor is opened first, so that it pins one process, and then it
is checked whether that is the right process.

`UnixRequest` sends one short request to a unix socket, for the engine and the root helper. The
socket of a stopped daemon still accepts a connection and a request, but may never answer. So every
call returns at once, and `advance` gives up at a total deadline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from console.common.files import read_bytes
from console.common.text import clean, decode, one_line
from console.host import cgroup, process
from console.host.cgroup import Cgroup
from console.host.process import COOKIE
from console.recovery.guard.kill import mrelease

ANSWER = 4096
"""How many bytes of an answer are kept."""


class UnixRequest:
    """A request under way. `sent` is true once it is in the socket, `answer` is what came back so
    far, and `why` says what went wrong, in words."""

    def __init__(self, path: str, question: bytes, now: float, limit_s: float) -> None:
        self.path = path
        self.sent = False
        self.over = False
        self.why = ""
        self.answer = b""
        self._until = now + limit_s
        self._left = question
        self._socket: socket.socket | None = None
        self._connected = False
        self.advance(now)

    def advance(self, now: float) -> bool:
        """Advance as far as possible without waiting. Returns True when it is over."""
        if self.over:
            return True
        try:
            self._exchange()
        except BlockingIOError:
            pass  # a full backlog or nothing to read yet
        except OSError as error:
            self._end(os.strerror(error.errno) if error.errno else str(error))
        if not self.over and now >= self._until:
            self._end("no answer" if self.sent else "it accepts no request")
        return self.over

    def _exchange(self) -> None:
        if self._socket is None:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        if not self._connected:
            code = self._socket.connect_ex(self.path)
            if code in (errno.EAGAIN, errno.EINPROGRESS):
                return
            if code not in (0, errno.EISCONN):
                raise OSError(code, os.strerror(code))
            self._connected = True
        while self._left:
            self._left = self._left[self._socket.send(self._left) :]
        self.sent = True
        while len(self.answer) < ANSWER:
            part = self._socket.recv(ANSWER)
            if not part:
                break
            self.answer += part
        self._end("")

    def _end(self, why: str) -> None:
        self.over, self.why = True, why
        self.close()

    def close(self) -> None:
        """Close the socket; what was sent stays sent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def kill_request(container: str) -> bytes:
    """Return the request that makes the engine kill a container (a full id), as it goes over the
    socket.

    The engine also notes that it must not restart the container.
    """
    return (
        f"POST /containers/{container}/kill?signal=KILL HTTP/1.1\r\nHost: docker\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n"
    ).encode()


def status(answer: bytes) -> int:
    """Return the status of an HTTP answer, 0 while there is none."""
    words = answer[:64].split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def socket_of(engine: str) -> str:
    """Return the path of an engine's socket, given with or without unix://; "" for other
    addresses."""
    if engine.startswith("unix://"):
        return engine.removeprefix("unix://")
    return engine if engine.startswith("/") else ""


MAX_SIZED = 64
"""How many processes are measured before a kill, at some 15 µs each."""
SHOWN = 3
Clock = Callable[[], float]


@dataclass(slots=True)
class Signalled:
    """The result of one round of SIGKILLs: `reached` processes got the signal, `denied` ones this
    user may not signal. `first_at` is the monotonic time of the first signal."""

    first_at: float | None = None
    reached: int = 0
    denied: int = 0

    @property
    def not_permitted(self) -> bool:
        return self.denied > 0 and self.reached == 0


def write_kill(group: Cgroup, reaper: mrelease.Reaper | None = None) -> tuple[int, bool]:
    """Write cgroup.kill, which kills every process of the group and of the groups below it,
    including forks and frozen processes (Linux 5.14). Returns 0 or the errno, and whether the
    reaper frees the memory. ENOENT: the kernel or the hierarchy has no such file, or the group is
    gone; EACCES or EROFS: this user or this mount does not permit it."""
    if not group.stands:
        return errno.ENOENT, False
    try:
        descriptor = os.open(f"{group.path}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or errno.EIO, False
    freed = False
    try:
        with largest(cgroup.pids(group.path) if reaper is not None else []) as pidfds:
            freed = bool(pidfds) and reaper is not None and reaper.kill(pidfds, descriptor)
        os.write(descriptor, b"1")
    except OSError as error:
        return error.errno or errno.EIO, freed
    finally:
        os.close(descriptor)
    return 0, freed


def signal_group(group: Cgroup, container: str, clock: Clock = time.monotonic) -> Signalled:
    """Send SIGKILL to every process of a container's group. Repeat this until the group is
    empty."""
    pids = cgroup.pids(group.path) if group.stands else []
    wanted = container.encode()

    def is_it(pid: int) -> bool:
        return wanted in read_bytes(f"/proc/{pid}/cgroup")

    return signal_all([(pid, is_it) for pid in pids], clock)


def signal_processes(stats: Iterable[process.Stat], clock: Clock = time.monotonic) -> Signalled:
    """Send SIGKILL to exactly these processes."""
    return signal_all([(s.pid, _same(s)) for s in stats], clock)


def _same(process_stat: process.Stat) -> Callable[[int], bool]:
    return lambda pid: process.start_time(pid) == process_stat.start


def signal_all(pids: Sequence[tuple[int, Callable[[int], bool]]], clock: Clock) -> Signalled:
    """Send SIGKILL to each pid that its check confirms while the descriptor pins the process."""
    done = Signalled()
    for pid, is_it in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue  # the process is gone
        try:
            if is_it(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                done.first_at = done.first_at or clock()
                done.reached += 1
        except PermissionError:
            done.denied += 1
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)
    return done


def signal_leader(pid: int, start: int, reaper: mrelease.Reaper | None = None) -> tuple[int, bool]:
    """Send SIGKILL to a process and the group that it leads. Returns 0 or the errno, and whether
    the reaper frees the memory of the process and its children."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        return error.errno or errno.ESRCH, False
    freed = False
    try:
        # Even a zombie keeps its pid, so the group cannot become another's in between.
        if process.start_time(pid) != start:
            return errno.ESRCH, False
        if reaper is not None and mrelease.resident(pid) >= mrelease.WORTH:
            freed = reaper.kill([descriptor])
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # the process leads no group
            os.killpg(pid, signal.SIGKILL)
    except OSError as error:
        return error.errno or errno.ESRCH, freed
    finally:
        os.close(descriptor)
    return 0, freed


def signal_whole_group(group: int, members: Sequence[process.Stat]) -> bool:
    """Send SIGKILL to a process group in one call, if one of `members` is in it right now."""
    for member in members:
        if member.group == group and process.stat(member.pid) == member:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
                return True
    return False


def group_members(
    group: process.Group, stats: Sequence[process.Stat], spared: set[int]
) -> list[process.Stat]:
    """Return those of `stats` that are in the session or group, or that descend from such a
    process."""
    mine = {s.pid for s in group.members(stats)}
    grown = True
    while grown:
        more = {s.pid for s in stats if s.parent in mine and s.pid not in mine}
        mine |= more
        grown = bool(more)
    return [s for s in stats if s.pid in mine and s.pid not in spared and s.state not in "ZX"]


def strays(run_id: str, stats: Sequence[process.Stat], spared: set[int]) -> list[process.Stat]:
    """Return those of `stats` that have the run's cookie in their environment and are not
    spared."""
    if not run_id:
        return []
    wanted, own = f"{COOKIE}={run_id}".encode(), os.getpid()
    stray_stats = []
    for s in stats:
        if s.pid in spared or s.parent == own or s.state in "ZX":
            continue
        data = read_bytes(f"/proc/{s.pid}/environ")
        if wanted in data and wanted in data.split(b"\0"):
            stray_stats.append(s)
    return stray_stats


@contextlib.contextmanager
def largest(pids: Sequence[int]) -> Iterator[list[int]]:
    """Yield pidfds of the largest processes, as far as freeing their memory is worth a call."""
    sized = sorted(((mrelease.resident(pid), pid) for pid in pids[:MAX_SIZED]), reverse=True)
    pidfds: list[int] = []
    try:
        for size, pid in sized[: mrelease.MAX_AT_ONCE - 1]:
            if size < mrelease.WORTH:
                break
            with contextlib.suppress(OSError):
                pidfds.append(os.pidfd_open(pid))
        yield pidfds
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def free_later(reaper: mrelease.Reaper | None, pids: Sequence[int]) -> bool:
    """Have the memory of the largest processes freed when something else kills them."""
    if reaper is None:
        return False
    with largest(pids) as pidfds:
        return bool(pidfds) and reaper.free(pidfds)


def stuck(pids: Sequence[int]) -> str:
    """Return in words which processes do not die and why. State D is a wait inside the kernel,
    named by its function."""
    words = []
    for pid in pids[:SHOWN]:
        process_stat = process.stat(pid)
        if process_stat is None or process_stat.state in "ZX":
            continue
        name = one_line(decode(read_bytes(f"/proc/{pid}/comm")), 20)
        if process_stat.state == "D":
            where = clean(decode(read_bytes(f"/proc/{pid}/wchan")))[:40]
            place = f" in {where}" if where not in ("", "0") else ""
            words.append(f"D-state: pid {pid} ({name}) waits in the kernel{place}")
        else:
            words.append(f"pid {pid} ({name}) is still ending, state {process_stat.state}")
    if len(pids) > SHOWN:
        words.append(f"and {len(pids) - SHOWN} more")
    return "; ".join(words)
