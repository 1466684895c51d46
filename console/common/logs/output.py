"""Where a process writes what it says, from /proc: a log belongs to a process, not to a name.

A server that somebody else has started writes to a file of its own, a terminal, a pipe or the
journal. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from console.common.text import one_line

STDOUT, STDERR = "1", "2"
DELETED = " (deleted)"
MAX_WRITERS = 3
"""Other writers of a file that are named."""


@dataclass(frozen=True, slots=True)
class Output:
    """`path`: the file; None if there is none that can be read. `words`: why not, or what a reader
    of the file has to know; clean."""

    path: Path | None = None
    words: str = ""


def of_process(pid: int, proc: Path = Path("/proc")) -> Output:
    """Where a process that runs writes to: its stdout, or its stderr if that leads to a file and
    the other does not."""
    outputs = [_of(pid, descriptor, proc) for descriptor in (STDOUT, STDERR)]
    return next((output for output in outputs if output.path is not None), outputs[0])


def _of(pid: int, descriptor: str, proc: Path) -> Output:
    link = proc / str(pid) / "fd" / descriptor
    try:
        target, file_stat = os.readlink(link), os.stat(link)
    except PermissionError:
        return Output(None, f"pid {pid} is another user's: where it writes cannot be seen")
    except OSError:
        return Output(None, f"pid {pid} has no output, or has ended")
    if stat.S_ISREG(file_stat.st_mode):
        return _file(pid, target, file_stat, link, proc)
    if stat.S_ISFIFO(file_stat.st_mode):
        return Output(None, f"pid {pid} writes into a pipe{_reader(pid, target, proc)}")
    if stat.S_ISSOCK(file_stat.st_mode):
        return Output(None, _socket_words(pid, file_stat, proc))
    if target == os.devnull:
        return Output(None, f"pid {pid} writes to {os.devnull}: nothing is kept")
    where = one_line(target, 60)
    return Output(None, f"pid {pid} writes to the terminal {where}, which keeps no log")


def _file(pid: int, target: str, file_stat: os.stat_result, link: Path, proc: Path) -> Output:
    """A file, by its name while that leads to it, so that it can be read after the process."""
    words = []
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(target), file_stat):
            link = Path(target)
    if str(link) != target:
        gone = target.endswith(DELETED)
        words.append("its file was deleted" if gone else f"{one_line(target, 80)} is another file")
    if others := _writers(pid, file_stat, proc):
        named = ", ".join(f"pid {other}" for other in others[:MAX_WRITERS])
        words.append(f"{named} {'writes' if len(others) == 1 else 'write'} to the same file")
    return Output(link, "; ".join(words))


def _writers(pid: int, file_stat: os.stat_result, proc: Path) -> list[int]:
    """Processes of another session whose output is the same file, as far as this user may look."""
    own, others = _session(pid, proc), []
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == pid:
            continue
        for descriptor in (STDOUT, STDERR):
            with contextlib.suppress(OSError):
                same = os.path.samestat(os.stat(entry / "fd" / descriptor), file_stat)
                if same and _session(int(entry.name), proc) != own:
                    others.append(int(entry.name))
                    break
    return sorted(others)


def _session(pid: int, proc: Path) -> str:
    """The session of a process, as the kernel writes it; "" if that is not known."""
    with contextlib.suppress(OSError, IndexError):
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[3]
    return ""


def _reader(pid: int, target: str, proc: Path) -> str:
    """Who reads a pipe: `, which pid 12 (tee) reads`; "" if nobody is seen to."""
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            with contextlib.suppress(OSError):
                if os.readlink(entry / "fd" / "0") == target:
                    name = one_line((entry / "comm").read_text(errors="replace"), 40)
                    return f", which pid {entry.name} ({name}) reads: its log is there"
    return ": what is in it cannot be read here"


def _socket_words(pid: int, file_stat: os.stat_result, proc: Path) -> str:
    with contextlib.suppress(OSError):
        environ = (proc / str(pid) / "environ").read_bytes()
        stream = re.search(rb"(?:^|\0)JOURNAL_STREAM=(\d+):(\d+)", environ)
        if stream is not None and int(stream[2]) == file_stat.st_ino:
            return f"pid {pid} writes to the journal: `journalctl _PID={pid}` shows it"
    return f"pid {pid} writes to a socket: what went there cannot be read here"
