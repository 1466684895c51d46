"""Which files a download of this console brought where: the only ones that `clean` may remove.

One record a directory. What lay there before the first download is not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.text import one_line
from console.models.hub.listing import RemoteFile
from console.models.hub.local_files import size_of

SIZE_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """`files`: path inside `target` → bytes; `runs`: the runs that downloaded into it."""

    target: str
    source: str
    files: dict[str, int]
    runs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256(os.fsencode(self.target)).hexdigest()[:12]

    def mine(self) -> dict[str, int]:
        """Files that are there, regular, inside the directory and of the size that came."""
        return {name: size for name, size in self.files.items() if self._is_mine(name, size)}

    def _is_mine(self, name: str, size: int) -> bool:
        file = Path(self.target) / name
        inside = os.path.realpath(file) == os.path.join(self.target, os.path.normpath(name))
        return inside and not file.is_symlink() and size_of(file) == size


def directory() -> Path:
    return paths.state_dir() / "downloads"


def note(target: Path, source: str, files: Iterable[RemoteFile], run: str) -> None:
    """Record what is about to come, before it does. Raises OSError.

    A file that is there already and in no earlier record is somebody else's.
    """
    real = os.path.realpath(target)
    before = next((one for one in every() if one.target == real), None)
    known = dict(before.files) if before is not None else {}
    for file in files:
        foreign = os.path.lexists(os.path.join(real, file.path)) and file.path not in known
        if file.size is not None and not foreign:
            known[file.path] = file.size
    runs = dict.fromkeys((*(before.runs if before is not None else ()), run))
    _write(Taken(real, source, known, tuple(runs)))


def _write(taken: Taken) -> None:
    folder = directory()
    paths.make(folder)
    beside = folder / f".{taken.key}.{os.getpid()}"
    beside.write_text(json.dumps(asdict(taken)) + "\n")
    os.replace(beside, folder / f"{taken.key}.json")


def forget(taken: Taken) -> None:
    """Drop a record whose files are gone. Raises OSError."""
    (directory() / f"{taken.key}.json").unlink(missing_ok=True)


def every() -> list[Taken]:
    """All records that can be read."""
    found = (_read(path) for path in sorted(directory().glob("*.json")))
    return [one for one in found if one is not None]


def _read(path: Path) -> Taken | None:
    try:
        with open(path, "rb") as stream:
            value: Any = json.loads(stream.read(SIZE_LIMIT))
        files = {str(name): int(size) for name, size in value["files"].items()}
        runs = tuple(one_line(str(run), 100) for run in value["runs"])
        return Taken(str(value["target"]), one_line(str(value["source"]), 200), files, runs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
