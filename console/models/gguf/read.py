"""Headers of GGUF files, here or behind a web address: what the rest of the console calls."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.clock import Clock
from console.common.units import format_bytes
from console.models.gguf.address import is_address
from console.models.gguf.errors import GgufError, Kind
from console.models.gguf.header import Header
from console.models.gguf.local import LocalFile
from console.models.gguf.parser import Want, parse

if TYPE_CHECKING:
    from console.models.gguf.cache import HeaderCache
    from console.models.gguf.remote import RemoteFile

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A header and what it took to get it.

    `file_bytes` is the size of the file, None where the server did not say. `exchanges` counts
    requests (reads of a local file), redirects too; `body_bytes` what they brought. `etag` and
    `commit` pin what was read, "" where unknown. `notes` are for the operator, clean.
    """

    header: Header
    name: str
    file_bytes: int | None
    exchanges: int = 0
    body_bytes: int = 0
    etag: str = ""
    commit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def missing_bytes(self) -> int | None:
        """Bytes that the header promises and the file does not have; None where not known."""
        if self.header.file_bytes is None or self.file_bytes is None:
            return None
        return max(0, self.header.file_bytes - self.file_bytes)


def read_architecture(
    where: str | Path,
    *,
    token: str = "",
    clock: Clock | None = None,
    deadline_s: float = DEADLINE_S,
) -> Reading:
    """The architecture of a file, from one range of 60 KiB in all usual cases.

    `header.architecture` is never None, `header.tensors` always. Raises GgufError.
    """
    reading = _read(where, Want.ARCHITECTURE, token, clock, deadline_s)
    if reading.header.architecture is None:
        raise _without_architecture(reading)
    return reading


def read_header(
    where: str | Path,
    *,
    token: str = "",
    clock: Clock | None = None,
    deadline_s: float = DEADLINE_S,
    content: str = "",
    cache: HeaderCache | None = None,
) -> Reading:
    """The whole header and the table of tensors; `deadline_s` bounds a remote reading in all.

    `content` is the hash of the file (lfs sha256, ETag) as its caller knows it: with a cache, a
    header that was read before costs nothing. Raises GgufError.
    """
    if cache is not None and content and (kept := cache.get(content)) is not None:
        return kept
    reading = _read(where, Want.HEADER, token, clock, deadline_s)
    if cache is not None and content:
        cache.put(content, reading)
    return reading


def _read(
    where: str | Path, want: Want, token: str, clock: Clock | None, deadline_s: float
) -> Reading:
    if not is_address(str(where)):
        with LocalFile(Path(where).expanduser()) as file:
            return _reading(file, want)
    from console.models.gguf.remote import RemoteFile

    try:
        with RemoteFile(str(where), token=token, clock=clock, deadline_s=deadline_s) as remote:
            return _reading(remote, want)
    except GgufError as error:  # a server may quote what it was sent
        if token:
            for name in ("title", "detail", "hint"):
                setattr(error, name, getattr(error, name).replace(token, "<token>"))
            error.args = (error.title,)
        raise


def _reading(source: LocalFile | RemoteFile, want: Want) -> Reading:
    header = parse(source, want)
    if header.byte_order != sys.byteorder:
        title = f"the GGUF header of {source.name} cannot be used"
        words = f"{Kind.UNSUPPORTED}: it is {header.byte_order}-endian, this machine is not"
        raise GgufError(Kind.UNSUPPORTED, title, words, "llama.cpp here refuses it")
    return Reading(
        header,
        source.name,
        source.total,
        source.exchanges,
        source.body_bytes,
        getattr(source, "etag", ""),
        getattr(source, "commit", ""),
        (*getattr(source, "notes", ()), *_notes(header, source.total)),
    )


def _notes(header: Header, file_bytes: int | None) -> list[str]:
    found = []
    unknown = Counter(one.type_name for one in header.tensors or () if one.bytes is None)
    for name, count in sorted(unknown.items()):
        found.append(f"{count} tensors of {name}: their size cannot be told")
    needed = header.file_bytes
    if needed is not None and file_bytes is not None and needed > file_bytes:
        found.append(
            f"the file is incomplete: {format_bytes(file_bytes)} of {format_bytes(needed)}, "
            f"{needed - file_bytes} bytes are missing"
        )
    return found


def _without_architecture(reading: Reading) -> GgufError:
    header = reading.header
    number, of = header.integer("split.no"), header.integer("split.count")
    if number:
        words = f"it is shard {number + 1} of {of}"
        hint = "the architecture stands in the first shard: read that one"
    else:
        words = f"general.type is {header.text('general.type') or 'missing'}"
        hint = "is it a model? adapters and importance matrices are GGUF files too"
    title = f"{reading.name} names no architecture"
    return GgufError(Kind.NO_ARCHITECTURE, title, words, hint)
