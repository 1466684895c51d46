"""Giving back the memory of killed processes faster than they do it themselves.

    python -m console.recovery.guard.kill.mrelease FD

A killed process frees its pages when it next runs, on a busy machine late and one processor at a
time (some 80 ms a GiB idle, 400 with every core burning). process_mrelease(2), Linux 5.15, frees
them from here. The call lasts as long as the freeing does, seconds for hundreds of GiB, so it is
made in a child of its own that was started beforehand and gets descriptors through a socket. Once
a process has begun to end nobody can help it any more, which takes some 50 µs: so the child also
writes the kill, and frees in the same breath. Whoever asked writes it again, come what may.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from console.common.paths import module_argv

NUMBER = 448
"""The same on x86_64 and aarch64 (new calls have one number everywhere)."""
MACHINES = ("x86_64", "aarch64")
MOST = 16
"""Processes a time: the largest; a fork bomb's many small ones are gone by themselves."""
WORTH = 16 << 20
"""Bytes a process must hold to be worth a call."""
LATEST_S = 2.5
"""How long after its pidfd came a process may begin to die: an engine was asked to kill it."""
FREE, KILL, KILL_GROUP = b"f", b"k", b"g"
ACK_S = 0.002
"""How long a kill may be held up by asking the child; a switch of processes takes a tenth."""
EAGER_S = 0.02
EAGER_PAUSE_S, PAUSE_S = 0.0002, 0.002
"""Between two tries, at first and later. Never none: it would take the killer's processor."""
PAGE = os.sysconf("SC_PAGE_SIZE")
END_S = 2.0
STARTS = 3
"""How often a child that ended is started anew."""

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def mrelease(pidfd: int) -> int:
    """Free the memory of a process that is dying; 0 or the errno.

    ENOSYS: not on this kernel. EINVAL: it is not dying, or shares its memory with one that is not.
    ESRCH: it has given everything back. EAGAIN: in part, ask again. Harms nobody who lives.
    """
    if platform.machine() not in MACHINES:
        return errno.ENOSYS
    done = _syscall(ctypes.c_long(NUMBER), ctypes.c_int(pidfd), ctypes.c_uint(0))
    return 0 if done == 0 else ctypes.get_errno()


@contextlib.contextmanager
def at_once(on: bool = True) -> Iterator[None]:
    """Before every ordinary process while it lasts, where that is permitted: else the kernel lets
    whoever runs (the dying one, too) go on to the next tick, some 4 to 10 ms."""
    before, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    wanted = (os.SCHED_FIFO, os.sched_param(1)) if on else (os.SCHED_OTHER, os.sched_param(0))
    try:
        os.sched_setscheduler(0, *wanted)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, priority)


def supported() -> str:
    """What stands against it here, in words; empty for nothing."""
    # This process is not dying: EINVAL says that the call is there and touched nothing.
    try:
        own = os.pidfd_open(os.getpid())
    except (OSError, AttributeError) as error:
        return f"no pidfd_open: {getattr(error, 'strerror', None) or error}"
    try:
        code = mrelease(own)
    finally:
        os.close(own)
    if code in (errno.EINVAL, 0):
        return ""
    if code == errno.ENOSYS:
        return "process_mrelease needs Linux 5.15"
    return f"process_mrelease: {os.strerror(code)}"


def resident(pid: int) -> int:
    """Bytes a process holds in memory; 0 when it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(descriptor, 128).split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0
    finally:
        os.close(descriptor)


class Reaper:
    """The child that waits for pidfds. Without it (it could not start, it died) `free` does
    nothing: the memory comes back all the same, later. `why` says what keeps it from working."""

    def __init__(self) -> None:
        self.why = supported()
        self._socket: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = STARTS
        if not self.why:
            self._start()

    def _start(self) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._child = subprocess.Popen(
                    [*module_argv("console.recovery.guard.kill.mrelease"), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), close_fds=True,
                )  # fmt: skip
        except OSError as error:
            mine.close()
            self.why = f"the child for process_mrelease did not start: {error.strerror}"
            return
        mine.setblocking(False)
        self._socket = mine

    def tend(self) -> str:
        """Start a child that ended anew, STARTS times; that in words, "" while it lives."""
        if self._child is None or self._child.poll() is None:
            return ""
        words = f"the child for process_mrelease has ended (status {self._child.returncode})"
        self.close()
        if not self._starts:
            self.why = words
            return f"{words}: memory of what is killed comes back later from now on"
        self._starts -= 1
        self._start()
        return f"{words}: started anew"

    @property
    def pid(self) -> int:
        """The child's pid, 0 without one."""
        return self._child.pid if self._child is not None else 0

    def free(self, pidfds: Sequence[int]) -> bool:
        """Free the memory of those processes when they die within LATEST_S, by another's hand.

        Nothing happens to one that goes on living. The descriptors may be closed afterwards.
        """
        return self._send(FREE, pidfds)

    def kill(self, pidfds: Sequence[int], group: int = -1, wait_s: float = ACK_S) -> bool:
        """Write `group`, an open cgroup.kill, or SIGKILL those processes, and free their memory.

        True when the child says it is at it, which is waited for `wait_s` at most. It may not
        be: the caller has to kill as well.
        """
        which = [group, *pidfds[: MOST - 1]] if group >= 0 else pidfds
        if not self._send(KILL_GROUP if group >= 0 else KILL, which) or self._socket is None:
            return False
        try:
            select.select([self._socket], [], [], wait_s)
            return self._socket.recv(16) == KILL
        except OSError:
            return False

    def _send(self, word: bytes, descriptors: Sequence[int]) -> bool:
        if self._socket is None:
            return False
        try:
            while self._socket.recv(16):  # what came too late for an earlier one
                continue
        except OSError:
            pass
        try:
            # Descriptors travel with the message, so that no number can name somebody else.
            socket.send_fds(self._socket, [word], list(descriptors[:MOST]))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the child; what it frees at the moment is freed anyway."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(END_S)
            if self._child.returncode is None:
                self._child.kill()
                self._child.wait()
            self._child = None


def serve(link: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
    """Free what comes as soon as it dies, until the other end is closed."""
    waiting: dict[int, float] = {}
    try:
        while True:
            ready, _, _ = select.select([link], [], [], _pause(waiting, clock()))
            if ready:
                word, pidfds, _, _ = socket.recv_fds(link, 16, MOST)
                if not word:
                    return
                if word != FREE:
                    pidfds = _kill(link, word, pidfds)
                waiting |= dict.fromkeys(pidfds, clock())
            for pidfd, since in list(waiting.items()):
                with at_once(False):  # it may last seconds, and others have to live meanwhile
                    alive = mrelease(pidfd) in (errno.EINVAL, errno.EAGAIN, errno.EINTR)
                if not alive or clock() - since > LATEST_S:
                    del waiting[pidfd]
                    os.close(pidfd)
    except ConnectionResetError:
        return  # the other end went away with an answer unread
    finally:
        for pidfd in waiting:
            os.close(pidfd)


def _kill(link: socket.socket, word: bytes, descriptors: list[int]) -> list[int]:
    """Say so, and kill; the pidfds that are left to free."""
    with contextlib.suppress(OSError):
        link.send(KILL)
    group = descriptors.pop(0) if word == KILL_GROUP and descriptors else -1
    if group >= 0:
        with contextlib.suppress(OSError):
            os.write(group, b"1")
        os.close(group)
    else:
        for pidfd in descriptors:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    return descriptors


def _pause(waiting: dict[int, float], now: float) -> float | None:
    if not waiting:
        return None
    return EAGER_PAUSE_S if now - max(waiting.values()) < EAGER_S else PAUSE_S


def main(arguments: list[str]) -> int:
    """Entry of the child."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        sys.stderr.write("usage: python -m console.recovery.guard.kill.mrelease FD\n")
        return 2
    with socket.socket(fileno=int(arguments[0])) as link:
        mrelease(-1)  # walked once, so that its pages are here
        # Under a limit locked future pages would stop allocations; a child this small is cheap.
        _libc.mlockall(1)
        with at_once():
            serve(link)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
