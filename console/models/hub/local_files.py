"""Files of a repository on this machine: as listed, wrong, unfinished, or fetched by the console.

Files already here are not downloaded; only files that the console fetched may be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.files import open_untrusted, write_atomically
from console.common.text import one_line
from console.common.units import both_units
from console.models.hub import reference, settings
from console.models.hub.errors import FileMissing, HubError
from console.models.hub.listing import MAX_FILES, Listing, RemoteFile, some

_CHUNK = 8 << 20

_NAME = re.compile(
    r"(?P<hash>[A-Za-z0-9_=-]{20,40})\.(?P<etag>[^/]{1,200}?)(?P<nonce>\.[0-9a-f]{8})?\.incomplete"
)

SIZE_LIMIT = 64 << 20


def verify(
    files: Iterable[RemoteFile],
    directory: Path,
    hash_up_to: int = 0,
    cancelled: threading.Event | None = None,
) -> dict[str, str]:
    """Files of another size than listed, or missing, and why; with `hash_up_to`, files up to that
    many bytes whose SHA-256 is known are read and compared too."""
    wrong = {}
    for file in files:
        if cancelled is not None and cancelled.is_set():
            break
        why = _why(file, directory / file.path, hash_up_to, cancelled)
        if why:
            wrong[file.path] = why
    return wrong


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


def place(directory: Path) -> Path:
    """Where `hf` keeps its notes, locks and unfinished files for a directory."""
    return directory / ".cache" / "huggingface" / "download"


def unfinished_sizes(directory: Path) -> dict[str, int]:
    """Bytes on disk of files that a download left unfinished, by the ETag (for large files the
    SHA-256) they will have. Space that was only reserved is not counted.

    `hf` writes to `.cache/huggingface/download/…/HASH.ETAG.NONCE.incomplete`, holding a lock beside
    it.
    """
    sizes: dict[str, int] = {}
    for path in _walk_unfinished(place(directory), ".incomplete"):
        match = _NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            info = path.stat()
            etag = match["etag"] if match else ""
            sizes[etag] = sizes.get(etag, 0) + min(info.st_size, info.st_blocks * 512)
    return sizes


def busy(directory: Path) -> Path | None:
    """The lock that another process holds because it downloads there now; None for none.

    On a file system without locks it never counts as busy.
    """
    for path in _walk_unfinished(place(directory), ".lock"):
        with contextlib.suppress(OSError):
            handle = open_untrusted(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return path
            finally:
                os.close(handle)
    return None


def sweep_unfinished(directory: Path) -> None:
    """Remove what no run will continue. Never while it is `busy`.

    Each run has a new nonce in its file names, so what a killed run left is never continued or
    removed: it only takes space. Versions before 1.18 wrote `HASH.ETAG.incomplete` and continue it;
    those stay.
    """
    for path in _walk_unfinished(place(directory), ".incomplete"):
        match = _NAME.fullmatch(path.name)
        if match and match["nonce"]:
            with contextlib.suppress(OSError):
                path.unlink()


def forget_unfinished(directory: Path, path: str) -> None:
    """Drop `hf`'s note that `path` is complete: else it would not check the file again."""
    with contextlib.suppress(OSError):
        (place(directory) / f"{path}.metadata").unlink()


def _walk_unfinished(top: Path, suffix: str) -> Iterator[Path]:
    for folder, _, inside in os.walk(top):
        for name in inside:
            if name.endswith(suffix):
                yield Path(folder, name)


@dataclass(frozen=True, slots=True)
class Taken:
    """Files that this console's downloads brought to one directory: the only ones that `clean` may
    remove. Files from before the first download are not included. `files`: path inside `target` →
    bytes; `runs`: the runs that downloaded into it."""

    target: str
    source: str
    files: dict[str, int]
    runs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256(os.fsencode(self.target)).hexdigest()[:12]

    def mine(self) -> dict[str, int]:
        """Files that exist, are regular, inside the directory and of the downloaded size."""
        return {name: size for name, size in self.files.items() if self._is_mine(name, size)}

    def _is_mine(self, name: str, size: int) -> bool:
        file = Path(self.target) / name
        inside = os.path.realpath(file) == os.path.join(self.target, os.path.normpath(name))
        return inside and not file.is_symlink() and size_of(file) == size


def directory() -> Path:
    return paths.state_dir() / "downloads"


def note_taken(target: Path, source: str, files: Iterable[RemoteFile], run: str) -> None:
    """Record files before they are fetched. Raises OSError.

    An existing file without an earlier record belongs to somebody else.
    """
    real = os.path.realpath(target)
    before = next((record for record in every_taken() if record.target == real), None)
    known = dict(before.files) if before is not None else {}
    for file in files:
        foreign = os.path.lexists(os.path.join(real, file.path)) and file.path not in known
        if file.size is not None and not foreign:
            known[file.path] = file.size
    runs = dict.fromkeys((*(before.runs if before is not None else ()), run))
    taken = Taken(real, source, known, tuple(runs))
    paths.make(directory())
    write_atomically(directory() / f"{taken.key}.json", json.dumps(asdict(taken)) + "\n")


def forget_taken(taken: Taken) -> None:
    """Drop a record whose files are gone. Raises OSError."""
    (directory() / f"{taken.key}.json").unlink(missing_ok=True)


def every_taken() -> list[Taken]:
    records = (_read(path) for path in sorted(directory().glob("*.json")))
    return [record for record in records if record is not None]


def _read(path: Path) -> Taken | None:
    try:
        with open(path, "rb") as stream:
            value: Any = json.loads(stream.read(SIZE_LIMIT))
        files = {str(name): int(size) for name, size in value["files"].items()}
        runs = tuple(one_line(str(run), 100) for run in value["runs"])
        return Taken(str(value["target"]), one_line(str(value["source"]), 200), files, runs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Here:
    """Files by where they are, as paths in the repository; sizes in bytes.

    A file counts as here by its size alone. `cached` are in the hub's own cache: copied, not
    fetched. `wrong` have another size and are fetched again. `partial` bytes are of no use to a new
    run. `to_fetch` comes over the network, `to_write` goes to the disk; None with a size unknown.
    """

    whole: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    partial: int = 0
    have: int = 0
    to_fetch: int | None = 0
    to_write: int | None = 0

    @property
    def words(self) -> str:
        """`31 files here by size, 128.4 GiB (137.9 GB); 513.2 GiB (551.1 GB) to fetch`"""
        parts = []
        if self.whole or self.cached:
            count = len(self.whole) + len(self.cached)
            parts.append(f"{count} file{'s'[: count != 1]} here by size, {both_units(self.have)}")
        if self.wrong:
            parts.append(f"another size, fetched again: {some(self.wrong)}")
        if self.partial:
            parts.append(f"{both_units(self.partial)} unfinished, fetched again")
        fetch = "an unknown amount" if self.to_fetch is None else both_units(self.to_fetch)
        return "; ".join(
            [*parts, f"{fetch} to fetch" if self.to_fetch != 0 else "nothing to fetch"]
        )


def look(listing: Listing, files: Sequence[RemoteFile], directory: Path | None = None) -> Here:
    """What of `files` is in `directory`, and in the hub's cache at the pinned commit."""
    stored = snapshot(listing)
    whole, cached, wrong = [], [], []
    have = fetch = write = 0
    for file in files:
        size, listed = None if directory is None else size_of(directory / file.path), file.size
        if size is not None and size == listed:
            whole.append(file.path)
            have += size
            continue
        if size is not None and listed is not None:
            wrong.append(file.path)
        if listed is not None and size_of(stored / file.path) == listed:
            cached.append(file.path)
            have += listed
            write += 0 if directory is None else listed
        else:
            fetch += listed or 0
            write += listed or 0
    partial = 0 if directory is None else sum(unfinished_sizes(directory).values())
    known = all(file.size is not None for file in files)
    return Here(
        tuple(whole), tuple(cached), tuple(wrong), partial, have,
        fetch if known else None, write if known else None,
    )  # fmt: skip


def snapshot(listing: Listing) -> Path:
    """Where the hub's cache has the files of a listing's commit."""
    name = "models--" + listing.repo.replace("/", "--")
    return settings.cache() / name / "snapshots" / listing.commit


def size_of(path: Path) -> int | None:
    """Bytes of a regular file, links followed; None if there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def local(path: Path) -> Listing:
    """A checkpoint on this machine as a Listing without a commit; of a split set, all its shards.

    Raises FileMissing, or HubError if it is unreadable.
    """
    where = one_line(str(path))
    try:
        if path.is_dir():
            names = list(_walk(path))
            return _listing(path, names)
        if not path.exists():
            raise FileMissing(f"{where} is not there", "", "is the disk mounted? `findmnt` shows")
        part = reference.shard(path.name)
        same = [entry.name for entry in os.scandir(path.parent)] if part else [path.name]
        names = [name for name in same if part is None or _of_set(name, part)]
    except OSError as error:
        raise HubError(f"{where} cannot be read", error.strerror or "", f"ls -l {where}") from None
    return _listing(path.parent, names)


def _of_set(name: str, part: tuple[str, int, int]) -> bool:
    other = reference.shard(name)
    return other is not None and (other[0], other[2]) == (part[0], part[2])


def _walk(top: Path) -> Iterable[str]:
    count = 0
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            count += 1
            if count > MAX_FILES:
                raise HubError(f"{one_line(str(top))} holds more than {MAX_FILES} files", "", "")
            yield os.path.relpath(os.path.join(folder, name), top)


def _listing(top: Path, names: Sequence[str]) -> Listing:
    files = (RemoteFile(name, size_of(top / name)) for name in sorted(names))
    return Listing(
        one_line(str(top)), "", "", tuple(file for file in files if file.size is not None)
    )
