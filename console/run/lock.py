"""One run a host: a flock tied to the runner's life, and a pointer everybody can read."""

from __future__ import annotations

import fcntl
import os

from console import paths
from console.errors import HostBusy
from console.rollback import pointer
from console.services import process


class HostLock:
    """Held as long as this object is; the kernel lets go when the process dies."""

    def __init__(self) -> None:
        """Raises HostBusy, naming the run that holds the host."""
        path = paths.host_lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError:  # another user's lock file in a sticky directory: reading it is enough
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                raise HostBusy(
                    "the host lock cannot be opened", f"{path}: {error.strerror}",
                    "OMNI_HOST_DIR names another directory for it",
                ) from error  # fmt: skip
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise HostBusy("another run holds this host", holder(), _hint()) from error

    def release(self) -> None:
        """Let go; again, it changes nothing."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


def is_free() -> bool:
    """Whether no run holds the host at this moment."""
    try:
        HostLock().release()
    except HostBusy:
        return False
    return True


def holder() -> str:
    """The run that holds the host, in words."""
    for found in pointer.find_all():
        if process.alive(found.pid, found.start):
            return f"run {found.run_id} of {found.owner} (pid {found.pid}), {found.playbook}"
    return "its runner is still starting or just ending"


def _hint() -> str:
    return "omni-console attach joins it; omni-console abort stops it; omni-console rollback too"
