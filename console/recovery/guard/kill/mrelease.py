"""Frees the memory of killed processes faster than they free it themselves.

    python -m console.recovery.guard.kill.mrelease FD

A killed process frees its pages when it next runs, which is late on a busy machine, and on one
processor at a time (some 80 ms a GiB on an idle machine, 400 with every core busy).
process_mrelease(2), Linux 5.15, frees them from another process. The call lasts as long as the
freeing, seconds for hundreds of GiB, so a child process makes it that was started beforehand and
gets descriptors through a socket. Some 50 µs after the kill it is too late to help a process, so
the child also sends the kill, and then frees the memory at once. The caller sends the kill again in
any case.
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

from console.common.files import read_bytes
from console.common.paths import module_argv

NUMBER = 448
"""The number of the system call, the same on x86_64 and aarch64."""
MACHINES = ("x86_64", "aarch64")
MAX_AT_ONCE = 16
"""How many processes are freed at a time, the largest first. The many small ones of a fork bomb
free themselves quickly."""
WORTH = 16 << 20
"""Bytes that a process must hold to be worth a call."""
LATEST_S = 2.5
"""How long the child waits for a process to die once it has the pidfd, as an engine may be slow."""
FREE, KILL, KILL_GROUP = b"f", b"k", b"g"
ACK_S = 0.002
"""Seconds by which asking the child may delay a kill. A process switch takes a tenth of that."""
EAGER_S = 0.02
EAGER_PAUSE_S, PAUSE_S = 0.0002, 0.002
"""Seconds between two tries: EAGER_PAUSE_S until EAGER_S, then PAUSE_S. It is never zero, which
would take the processor from the killer."""
PAGE = os.sysconf("SC_PAGE_SIZE")
END_S = 2.0
STARTS = 3
"""How often a dead child is restarted."""

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def mrelease(pidfd: int) -> int:
    """Free the memory of a dying process. Returns 0 or the errno.

    ENOSYS: this kernel has no such call. EINVAL: the process is not dying, or shares its memory
    with one that is not. ESRCH: it has freed everything already. EAGAIN: freed in part, call again.
    A process that lives is never harmed.
    """
    if platform.machine() not in MACHINES:
        return errno.ENOSYS
    done = _syscall(ctypes.c_long(NUMBER), ctypes.c_int(pidfd), ctypes.c_uint(0))
    return 0 if done == 0 else ctypes.get_errno()


@contextlib.contextmanager
def at_once(on: bool = True) -> Iterator[None]:
    """Run before every ordinary process while this lasts, if that is permitted. Otherwise the
    kernel lets the current process (also the dying one) run until the next tick, some 4 to 10
    ms."""
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
    """Return in words why the call does not work here; empty if it does."""
    # This process is not dying, so EINVAL says that the call exists; it changed nothing.
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
    """Return the bytes that a process holds in memory; 0 if it is gone."""
    try:
        return int(read_bytes(f"/proc/{pid}/statm").split()[1]) * PAGE
    except (ValueError, IndexError):
        return 0


class Reaper:
    """The client of the child that waits for pidfds. Without the child (it did not start, or it
    died) `free` does nothing, and the memory comes back later by itself. `why` says what is
    wrong."""

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
        """Restart a dead child, STARTS times at most. Returns words about that, "" if it lives."""
        if self._child is None or self._child.poll() is None:
            return ""
        words = f"the child for process_mrelease has ended (status {self._child.returncode})"
        self.close()
        if not self._starts:
            self.why = words
            return f"{words}: the memory of killed processes is freed later from now on"
        self._starts -= 1
        self._start()
        return f"{words}: restarted"

    @property
    def pid(self) -> int:
        """The child's pid, 0 without a child."""
        return self._child.pid if self._child is not None else 0

    def free(self, pidfds: Sequence[int]) -> bool:
        """Free the memory of these processes if something else kills them within LATEST_S.

        Nothing happens to a process that lives on. The descriptors may be closed after the call.
        """
        return self._send(FREE, pidfds)

    def kill(self, pidfds: Sequence[int], group: int = -1, wait_s: float = ACK_S) -> bool:
        """Write to `group`, an open cgroup.kill, or send SIGKILL to the processes, and free their
        memory.

        Returns True if the child confirmed within `wait_s`. It may not do so: the caller has to
        kill as well.
        """
        which = [group, *pidfds[: MAX_AT_ONCE - 1]] if group >= 0 else pidfds
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
            while self._socket.recv(16):  # a late confirmation of an earlier kill
                continue
        except OSError:
            pass
        try:
            # Descriptors travel with the message, because a pid could have become another
            # process's.
            socket.send_fds(self._socket, [word], list(descriptors[:MAX_AT_ONCE]))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the child. It finishes freeing what it is freeing now."""
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
    """Free the memory of each process sent as soon as it dies, until the other end is closed."""
    waiting: dict[int, float] = {}
    try:
        while True:
            ready, _, _ = select.select([link], [], [], _pause(waiting, clock()))
            if ready:
                word, pidfds, _, _ = socket.recv_fds(link, 16, MAX_AT_ONCE)
                if not word:
                    return
                if word != FREE:
                    pidfds = _kill(link, word, pidfds)
                waiting |= dict.fromkeys(pidfds, clock())
            for pidfd, since in list(waiting.items()):
                with at_once(False):  # it may take seconds, during which others need the processor
                    alive = mrelease(pidfd) in (errno.EINVAL, errno.EAGAIN, errno.EINTR)
                if not alive or clock() - since > LATEST_S:
                    del waiting[pidfd]
                    os.close(pidfd)
    except ConnectionResetError:
        return  # the other end closed with an answer unread
    finally:
        for pidfd in waiting:
            os.close(pidfd)


def _kill(link: socket.socket, word: bytes, descriptors: list[int]) -> list[int]:
    """Confirm the kill, and kill. Returns the pidfds whose memory is left to free."""
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
    if len(arguments) != 1 or not arguments[0].isdigit():
        sys.stderr.write("usage: python -m console.recovery.guard.kill.mrelease FD\n")
        return 2
    with socket.socket(fileno=int(arguments[0])) as link:
        mrelease(-1)  # called once, so that its pages are in memory
        # Under a limit on locked memory, locking future pages would stop allocations; locking the
        # current pages of such a small child is cheap.
        _libc.mlockall(1)
        with at_once():
            serve(link)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
