"""Whether what is on the disk is what the listing said."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from console.common.units import both_units
from console.models.hub.listing import RemoteFile
from console.models.hub.local_files import size_of

_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True)
class Wrong:
    """A file that is not as listed, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def check(
    files: Iterable[RemoteFile],
    directory: Path,
    hash_up_to: int = 0,
    cancelled: threading.Event | None = None,
) -> tuple[Wrong, ...]:
    """Files of another size than listed, or missing; with `hash_up_to`, files up to that many bytes
    whose SHA-256 is known are read and compared too."""
    wrong = []
    for file in files:
        if cancelled is not None and cancelled.is_set():
            break
        why = _why(file, directory / file.path, hash_up_to, cancelled)
        if why:
            wrong.append(Wrong(file.path, why))
    return tuple(wrong)


def _why(file: RemoteFile, path: Path, hash_up_to: int, cancelled: threading.Event | None) -> str:
    size = size_of(path)
    if size is None:
        return "missing"
    if file.size is not None and size != file.size:
        return f"{both_units(size)} instead of {both_units(file.size)} ({size - file.size:+d} B)"
    if not file.sha256 or size > hash_up_to:
        return ""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                if cancelled is not None and cancelled.is_set():
                    return ""
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest.hexdigest() == file.sha256 else "its SHA-256 is not the listed one"
