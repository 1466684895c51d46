"""Pointers every user of the host can read: which run is on, whose, and where its plan is.

One file a user, in a sticky directory. A pointer counts only when the user in its name owns the
file: anybody can put a file with another one's number there, and it must mean nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from console.common import paths
from console.recovery.rollback.sealed_plan import write_atomically

SIZE_LIMIT = 65536
BEFORE = "pointer-before.json"
MAX_NUMBER = 1 << 62
"""Larger than any pid, start time or date; what is above it was made up."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """One active run; `started_at` in Unix seconds, `pid` and `start` name its runner."""

    run_id: str
    run_dir: str
    owner: str
    uid: int
    pid: int
    start: int
    playbook: str = ""
    site: str = ""
    started_at: float = 0.0
    over: bool = False
    """The run has ended and left the baseline down: a rollback that failed, or clients that stay
    at a candidate. It points until a rollback brings the baseline back."""


def write(pointer: Pointer) -> Path:
    """Write one's own pointer atomically, mode 0644; its path. Raises OSError.

    Another user may have put something in its place, in a directory where everybody may write.
    Then it stands where only its user (and root, as that user) finds it.
    """
    text = json.dumps(asdict(pointer)) + "\n"
    for path in _places(pointer.uid)[:-1]:
        with contextlib.suppress(OSError):
            write_atomically(path, text)
            return path
    path = _places(pointer.uid)[-1]
    paths.make(path.parent)
    write_atomically(path, text)
    return path


def _places(uid: int) -> list[Path]:
    """Where a user's pointer may be, the usual place first."""
    own = [paths.own_host_dir() / "pointer.json"] if uid == os.getuid() else []
    return [paths.pointer(uid), *own]


def set_aside(uid: int, directory: Path) -> None:
    """Keep a user's pointer in the rollback directory of the run that takes its place."""
    before = read(uid)
    if before is not None and Path(before.run_dir) != directory.parent:
        write_atomically(directory / BEFORE, json.dumps(asdict(before)) + "\n", 0o600)


def put_back(uid: int, directory: Path) -> Pointer | None:
    """The pointer that a run which never was had set aside counts again. Never raises."""
    try:
        before = _parsed(json.loads((directory / BEFORE).read_bytes()), uid)
        write(before)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return before


def clear(run_id: str, uid: int | None = None) -> None:
    """Take one's own pointer away if it still names this run. Never raises."""
    mine = read(os.getuid() if uid is None else uid)
    if mine is not None and mine.run_id == run_id:
        for path in _places(mine.uid):
            with contextlib.suppress(OSError):
                path.unlink()


def keep(run_id: str) -> None:
    """One's own pointer stays though this run is over. Never raises."""
    mine = read(os.getuid())
    if mine is not None and mine.run_id == run_id and not mine.over:
        with contextlib.suppress(OSError):
            write(replace(mine, over=True))


def read(uid: int) -> Pointer | None:
    """The pointer of one user; None when there is none, or it is forged or garbage."""
    found = (_read(path, uid) for path in _places(uid))
    return next((one for one in found if one is not None), None)


def _read(path: Path, uid: int) -> Pointer | None:
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != uid or info.st_size > SIZE_LIMIT:
            return None
        return _parsed(json.loads(os.read(descriptor, SIZE_LIMIT)), uid)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _parsed(value: Any, uid: int) -> Pointer:
    """Raises ValueError and what else a text of another user's can cause."""
    found = Pointer(
        run_id=_text(value["run_id"]),
        run_dir=_text(value["run_dir"]),
        owner=_text(value["owner"]),
        uid=int(_number(value.get("uid", uid))),
        pid=int(_number(value["pid"])),
        start=int(_number(value["start"])),
        playbook=_text(value.get("playbook", "")),
        site=_text(value.get("site", "")),
        started_at=float(_number(value.get("started_at", 0))),
        over=value.get("over") is True,
    )
    if found.uid != uid or not found.run_dir.startswith("/"):
        raise ValueError("another user's, or no run directory")
    return found


def find_all() -> list[Pointer]:
    """Every valid pointer on this host, the newest run first."""
    form = re.compile(rf"{re.escape(paths.APP)}\.(\d{{1,10}})\.json")
    try:
        names = os.listdir(paths.host_dir())
    except OSError:
        return []
    uids = {os.getuid(), *(int(match[1]) for name in names if (match := form.fullmatch(name)))}
    found = [pointer for uid in uids if (pointer := read(uid)) is not None]
    return sorted(found, key=lambda p: p.started_at, reverse=True)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < MAX_NUMBER:
        raise ValueError("a number")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a text")
    return value
