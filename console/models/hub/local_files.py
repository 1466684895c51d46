"""What of a repository is on this machine already, so that it need not be downloaded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.common.text import one_line
from console.common.units import both_units
from console.models.hub import names, settings, unfinished
from console.models.hub.errors import FileMissing, HubError
from console.models.hub.listing import MOST_FILES, Listing, RemoteFile, some


@dataclass(frozen=True, slots=True)
class Here:
    """Files by where they are, as paths in the repository; sizes in bytes.

    A file counts as here by its size alone. `cached` are in the hub's own cache: copied, not
    fetched. `wrong` have another size and are fetched again. `partial` bytes are of no use to a
    new run. `to_fetch` comes over the line, `to_write` onto the disk; None with a size unknown.
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


def look(
    listing: Listing,
    files: Sequence[RemoteFile],
    directory: Path | None = None,
    cache: Path | None = None,
) -> Here:
    """What of `files` is in `directory`, and in the hub's cache at the pinned commit."""
    stored = snapshot(listing, cache)
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
    partial = 0 if directory is None else sum(unfinished.sizes(directory).values())
    known = all(file.size is not None for file in files)
    return Here(
        tuple(whole), tuple(cached), tuple(wrong), partial, have,
        fetch if known else None, write if known else None,
    )  # fmt: skip


def snapshot(listing: Listing, cache: Path | None = None) -> Path:
    """Where the hub's cache has the files of a listing's commit."""
    name = "models--" + listing.repo.replace("/", "--")
    return (cache or settings.cache()) / name / "snapshots" / listing.commit


def size_of(path: Path) -> int | None:
    """Bytes of a regular file, links followed; None where there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def local(path: Path) -> Listing:
    """A checkpoint on this machine as a Listing without a commit; of a split set, all its shards.

    Raises FileMissing, or HubError where it cannot be read.
    """
    where = one_line(str(path))
    try:
        if path.is_dir():
            found = list(_walk(path))
            return _listing(path, found)
        if not path.exists():
            raise FileMissing(f"{where} is not there", "", "is the disk mounted? `findmnt` shows")
        part = names.shard(path.name)
        same = [entry.name for entry in os.scandir(path.parent)] if part else [path.name]
        found = [name for name in same if part is None or _of_set(name, part)]
    except OSError as error:
        raise HubError(f"{where} cannot be read", error.strerror or "", f"ls -l {where}") from None
    return _listing(path.parent, found)


def _of_set(name: str, part: tuple[str, int, int]) -> bool:
    other = names.shard(name)
    return other is not None and (other[0], other[2]) == (part[0], part[2])


def _walk(top: Path) -> Iterable[str]:
    count = 0
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            count += 1
            if count > MOST_FILES:
                raise HubError(f"{one_line(str(top))} holds more than {MOST_FILES} files", "", "")
            yield os.path.relpath(os.path.join(folder, name), top)


def _listing(top: Path, found: Sequence[str]) -> Listing:
    files = (RemoteFile(name, size_of(top / name)) for name in sorted(found))
    return Listing(
        one_line(str(top)), "", "", tuple(file for file in files if file.size is not None)
    )
