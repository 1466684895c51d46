"""One ladder climbs at a time: a flock on rollback/lock, and who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from console.recovery.rollback.trigger import is_stopped

LOCK = "lock"


class Lock:
    """The lock of one rollback directory. Never raises: without one the ladder climbs as well."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = _opened(directory, os.O_RDWR | os.O_CREAT)
        self.given_up = False
        """Whoever holds it is stuck; going on beside it."""

    def taken(self) -> bool:
        """Try to take it; True without any lock file."""
        if self._descriptor < 0:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def let_go(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def holder_stopped(self) -> bool:
        """Whether a process that holds it, as far as the kernel says which, was stopped."""
        return any(is_stopped(pid) for pid in holders(self._descriptor))


def holders(file: int | Path) -> set[int]:
    """The pids that hold a file's flock, as far as the kernel says which."""
    try:
        inode = os.stat(file).st_ino
        table = Path("/proc/locks").read_text()
    except OSError:
        return set()
    form = rf"^\d+: FLOCK +\w+ +WRITE +(\d+) +[0-9a-f]+:[0-9a-f]+:{inode} "
    return {int(pid) for pid in re.findall(form, table, re.MULTILINE)}


def is_held(directory: Path) -> bool:
    """Whether some ladder climbs (or follows up) in this directory at this moment."""
    descriptor = _opened(directory, os.O_RDONLY)
    if descriptor < 0:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _opened(directory: Path, flags: int) -> int:
    """The lock file; where it cannot be made, the directory itself; -1 when even that is not."""
    for path, how in (
        (directory / LOCK, flags),
        (directory / LOCK, os.O_RDONLY),
        (directory, os.O_RDONLY | os.O_DIRECTORY),
    ):
        with contextlib.suppress(OSError):
            found = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            with contextlib.suppress(OSError):  # one that others may open, they may hold as well
                os.fchmod(found, 0o700 if path == directory else 0o600)
            return found
    return -1
