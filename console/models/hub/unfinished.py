"""Files that a download left unfinished, under a directory that `hf download` writes to.

`hf` writes to `.cache/huggingface/download/…/HASH.ETAG.NONCE.incomplete`, holding a lock beside it.
The nonce is new in each run, so what a killed run left is never continued and never removed: it
only takes space. Versions before 1.18 wrote `HASH.ETAG.incomplete` and continue it; those stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(
    r"(?P<hash>[A-Za-z0-9_=-]{20,40})\.(?P<etag>[^/]{1,200}?)(?P<nonce>\.[0-9a-f]{8})?\.incomplete"
)


def place(directory: Path) -> Path:
    """Where `hf` keeps its notes, locks and unfinished files for a directory."""
    return directory / ".cache" / "huggingface" / "download"


def sizes(directory: Path) -> dict[str, int]:
    """Bytes on disk of unfinished files, by the ETag (for large files the SHA-256) they will have.

    Space that was only reserved is not counted.
    """
    found: dict[str, int] = {}
    for path in _walk(place(directory), ".incomplete"):
        match = _NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            info = path.stat()
            etag = match["etag"] if match else ""
            found[etag] = found.get(etag, 0) + min(info.st_size, info.st_blocks * 512)
    return found


def busy(directory: Path) -> Path | None:
    """The lock that another process holds because it downloads there now; None for none.

    A file system without locks says nothing, and counts as not busy.
    """
    for path in _walk(place(directory), ".lock"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return path
            finally:
                os.close(handle)
    return None


def sweep(directory: Path) -> int:
    """Remove what no run will continue; the bytes that frees. Never while it is `busy`."""
    freed = 0
    for path in _walk(place(directory), ".incomplete"):
        match = _NAME.fullmatch(path.name)
        if match and match["nonce"]:
            with contextlib.suppress(OSError):
                freed += path.stat().st_blocks * 512
                path.unlink()
    return freed


def forget(directory: Path, path: str) -> None:
    """Drop `hf`'s note that `path` is complete: else it would not look at the file again."""
    with contextlib.suppress(OSError):
        (place(directory) / f"{path}.metadata").unlink()


def _walk(top: Path, suffix: str) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith(suffix):
                yield Path(folder, name)
