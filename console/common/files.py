"""Writes files so that nobody reads them half written, and reads files whatever is in them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from console.common.text import after_cut, decode

T = TypeVar("T")
MAX_LINE = 1 << 20
"""Most bytes of a line of JSON."""
MAX_END = 4 << 20
"""Most bytes read from the end of a file of lines: no run writes as many."""


def open_untrusted(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """A descriptor of a file in whose place another user may have put something else: links are not
    followed, and a FIFO there does not block. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read, without blocking on a FIFO in its place. Raises OSError, also for
    anything that is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(descriptor, "rb")


def in_memory() -> BinaryIO:
    """A file without a name for what a child writes: it is there on a full disk, too. Raises
    OSError."""
    return open(os.memfd_create("omni-console"), "w+b")


def open_log(path: str | os.PathLike[str]) -> int:
    """A descriptor that appends to a log file or a device such as /dev/null. Raises OSError, also
    for a FIFO in its place: without a reader its writer would wait for ever."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    os.set_blocking(descriptor, True)
    return descriptor


def read_end(path: Path, offset: int = 0) -> tuple[bytes, int]:
    """The bytes of a file from an offset on, at most the last MAX_END, and the offset where they
    begin. Raises OSError."""
    with open_regular(path) as file:
        begin = max(offset, os.fstat(file.fileno()).st_size - MAX_END)
        file.seek(begin)
        return file.read(MAX_END), begin


def write_atomically(path: Path, text: str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Temporary file, fsync, rename, fsync of the directory. Raises OSError.

    The temporary file is created anew under an unpredictable name, so that in a directory others
    can write to, nobody can have put something in its place. Without `durable` a crash may lose the
    file, and no fsync waits for a slow disk.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.new")
    descriptor = -1
    try:
        descriptor = open_untrusted(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)
        write_all(descriptor, text.encode("utf-8", "surrogateescape"))
        if durable:
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    if not durable:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes: an almost full disk takes a part, and only the next write fails. Raises
    OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


def append_line(path: Path, line: str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Append one line and, if `durable`, fsync it. Raises OSError. If a full disk has cut the line
    off, the next one still begins on a line of its own."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        write_all(descriptor, (("\n" if torn else "") + line + "\n").encode())
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


SHORTAGES = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR}
"""Errors of the kernel that mean a temporary shortage and say nothing of the file."""
TRIES, PAUSE_S = 6, 0.01
LASTS_S = 1.0
"""Seconds after a lasting shortage during which each call is tried only once."""
_lasting = [-LASTS_S]


def insist(ask: Callable[[], T]) -> T:
    """Call into the kernel, and repeat after one of SHORTAGES. Raises the last OSError."""
    tries = TRIES if time.monotonic() - _lasting[0] >= LASTS_S else 1
    for _ in range(tries - 1):
        try:
            return ask()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
        time.sleep(PAUSE_S)
    try:
        return ask()
    except OSError as error:
        if error.errno in SHORTAGES:
            _lasting[0] = time.monotonic()
        raise


def read_kernel(path: Path | str) -> bytes:
    """The bytes of a small file, such as the kernel's. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
    finally:
        os.close(descriptor)


def read_bytes(path: Path | str) -> bytes:
    """The same; empty if it is unreadable."""
    try:
        return insist(lambda: read_kernel(path))
    except OSError:
        return b""


def read_text(path: Path | str) -> str:
    """The same as text, whatever its bytes."""
    return read_bytes(path).decode("utf-8", "replace")


def end_of(file: IO[bytes], most: int) -> str:
    """The text at the end of an open file, at most so many bytes, from its first whole line or word
    on. It is not clean."""
    at = file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    text = decode(file.read(most))
    return after_cut(text) if at else text


def write_at_once(path: str, text: str) -> None:
    """Write to an existing kernel file without a buffer, which would hide a refusal. Raises
    OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def json_lines(path: Path, last: int = 0) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line, only of its `last` bytes if that is not 0; torn or
    overlong lines, as a dying writer leaves them, are skipped. Raises OSError."""
    with path.open("rb") as file:
        if last:
            file.seek(max(0, file.seek(0, os.SEEK_END) - last))
        while raw := file.readline(MAX_LINE):
            with contextlib.suppress(ValueError, RecursionError):
                line = json.loads(raw)
                if isinstance(line, dict):
                    yield line


def private_mode(directory: Path) -> int:
    """The mode of a file that only its user and root should read: 0600; 0644 in a directory of
    another user, who reads what root has written there."""
    with contextlib.suppress(OSError):
        if directory.stat().st_uid != os.getuid():
            return 0o644
    return 0o600


def hold(directory: Path) -> int:
    """A descriptor by which a directory is still known once it has lost its name; -1 if there is
    none."""
    try:
        return os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def was_deleted(descriptor: int) -> bool:
    """Whether a directory that is held was deleted: one that was made again under its name is
    another one, and one that was moved lives on."""
    try:
        return descriptor >= 0 and os.fstat(descriptor).st_nlink == 0
    except OSError:
        return False
