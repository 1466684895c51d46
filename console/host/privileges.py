"""What a process may do: what lets it run when everything else stalls, and whose rights it has.

Each function that asks the kernel returns what was granted, read back: a refusal shows nowhere
else. Standard library only.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd

from console.common.errors import ConsoleError
from console.common.files import write_at_once
from console.common.text import one_line

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_OOM = "/proc/{}/oom_score_adj"


def lock_memory() -> str:
    """Best-effort mlockall; return in words what was locked.

    Future pages are locked only without a limit: under one, the next thread would not start.
    """
    import ctypes
    import resource

    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY
    libc = ctypes.CDLL(None, use_errno=True)
    wishes = [(_MCL_CURRENT, "current pages locked")]
    if unlimited or os.geteuid() == 0:
        wishes.insert(0, (_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT, "all pages locked on fault"))
    for flags, words in wishes:
        if libc.mlockall(flags) == 0:
            return words
    return f"not locked: {os.strerror(ctypes.get_errno())}"


def take_orphans(on: bool = True) -> bool:
    """Make descendants of this process its children when their own parents end: what has left its
    session and environment (a double fork) is still known by that. False if the kernel refuses."""
    import ctypes

    return int(ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, int(on), 0, 0, 0)) == 0


_CHILD_SUBREAPER = 36


def oom_score(pid: int | str = "self") -> int | None:
    """A process's oom_score_adj as it is now; None when it cannot be read."""
    try:
        with open(_OOM.format(pid), "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def set_oom_score(value: int, pid: int | str = "self") -> int | None:
    """Ask for a score, and read back which one it is."""
    with contextlib.suppress(OSError):
        write_at_once(_OOM.format(pid), str(value))
    return oom_score(pid)


def set_nice(value: int, pid: int = 0) -> int:
    """Ask for a priority (0: this process), and read back which one it is."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, value)
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return value


def become(uid: int) -> None:
    """Drop root for good: change groups, gid, uid, and the variables that name directories.

    Raises ConsoleError where that is not possible.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise ConsoleError("the run's owner is not a known user", f"uid {uid}") from None
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(uid)
    if os.getuid() != uid or os.geteuid() != uid:
        raise ConsoleError("root could not be dropped", f"still uid {os.geteuid()}")
    # `sudo -E` passes that user's own directories on; root's would be closed to this user.
    for key in [key for key in os.environ if key.startswith("XDG_")]:
        if owner_of(os.environ[key]) != uid:
            del os.environ[key]
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)


def owner_of(path: str | os.PathLike[str]) -> int | None:
    """The uid of a file's or a directory's owner; None if there is none."""
    try:
        return os.stat(path).st_uid
    except (OSError, ValueError):
        return None


def name_of(uid: int) -> str:
    """A user's name, or `uid N` where the user has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def operator() -> str:
    """The login name of the user who starts or tells a run something, for the records."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return name_of(os.getuid())


def requester() -> str:
    """The user who asks for a rollback here and, under sudo, the one behind it, in words for the
    journal. Call it before root is dropped."""
    sudo = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    name = name_of(os.getuid())
    return one_line(f"{sudo} (as {name})" if sudo else name, 60)
