"""Headers of GGUF files, local or behind a web address, read or cached: the console's entry point.

In a model of several files (`<prefix>-00001-of-00003.gguf`, counted from 1; inside, `split.no`
counts from 0) only the first shard holds the metadata, and a loader is given that one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.clock import Clock
from console.common.files import open_untrusted, write_atomically
from console.common.text import clean, one_line
from console.common.units import format_bytes
from console.models.gguf.byte_source import GgufError, Kind, LocalFile, is_address
from console.models.gguf.header import (
    Array,
    Header,
    Tensor,
    Value,
    pad,
    shown_name,
    type_name,
)
from console.models.gguf.parser import Want, parse
from console.models.hub.reference import shard

if TYPE_CHECKING:
    from console.models.gguf.remote import RemoteFile


SCHEMA = "omni.gguf/v1"
MAX_FILES = 200
MAX_BYTES = 4 * 2**20
"""Of one entry: room for some 40,000 tensors."""

DEADLINE_S = 60.0
THREADS = 4
"""Shards that are read at once."""
MAX_PROBLEMS = 20


class HeaderCache:
    """Headers read before, by the hash of their file: entries in one directory, private to the
    user; the longest unused go first. Losing any is harmless: if anything about an entry is odd,
    the header is read again."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place or paths.cache_dir() / "gguf"

    def get(self, content: str) -> Reading | None:
        """The header of the file with this hash, without any request; None if it is not kept."""
        path = self._path(content)
        try:
            data = _own(path)
            value = json.loads(data)
            if value["schema"] != SCHEMA or value["content"] != content:
                return None
            reading = _cached(value)
            os.utime(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return reading

    def put(self, content: str, reading: Reading) -> None:
        """Keep a whole header; on a full or read-only disk do nothing, which is no error."""
        path = self._path(content)
        data = json.dumps({"schema": SCHEMA, "content": content, **_plain(reading)})
        if len(data) > MAX_BYTES or reading.header.tensors is None:
            return
        with contextlib.suppress(OSError):
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, data, 0o600)
            self._prune()

    def _path(self, content: str) -> Path:
        return self._place / f"{hashlib.sha256(content.encode()).hexdigest()[:40]}.json"

    def _prune(self) -> None:
        with os.scandir(self._place) as entries:
            kept = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.is_file()]
        for _, path in sorted(kept)[:-MAX_FILES]:
            os.unlink(path)


def _own(path: Path) -> bytes:
    """The bytes of a regular file of this user. Raises OSError, ValueError."""
    handle = open_untrusted(path, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            raise ValueError("not this user's file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("longer than any entry")
    return data


def _plain(reading: Reading) -> dict[str, Any]:
    header = reading.header
    return {
        "name": reading.name,
        "file_bytes": reading.file_bytes,
        "notes": reading.notes,
        "version": header.version,
        "byte_order": header.byte_order,
        "alignment": header.alignment,
        "header_bytes": header.header_bytes,
        "template_fault": header.template_fault,
        "kv": {
            key: [value.element, value.count, value.values] if isinstance(value, Array) else value
            for key, value in header.kv.items()
        },
        "tensors": [
            [tensor.name, tensor.dims, tensor.type, tensor.bytes] for tensor in header.tensors or ()
        ],
    }


def _cached(value: dict[str, Any]) -> Reading:
    """An entry, every part of it checked. Raises ValueError, KeyError, TypeError."""
    tensors = tuple(_tensor(*row) for row in value["tensors"])
    size = value["file_bytes"]
    header = Header(
        _integer(value["version"]),
        _text(value["byte_order"]),
        _integer(value["alignment"]),
        len(tensors),
        {_text(key): _value(raw_value) for key, raw_value in value["kv"].items()},
        tensors,
        _integer(value["header_bytes"]),
        _text(value["template_fault"]),
    )
    if not header.alignment:
        raise ValueError("an alignment of 0")
    notes = tuple(_text(note) for note in value["notes"])
    known = None if size is None else _integer(size)
    return Reading(header, _text(value["name"]), known, notes=notes)


def _tensor(name: object, dims: list[object], number: object, size: object) -> Tensor:
    number = _integer(number)
    shape = tuple(_integer(dimension) for dimension in dims)
    known = None if size is None else _integer(size)
    if not isinstance(name, str):
        raise TypeError("no name")
    return Tensor(shown_name(name), shape, number, type_name(number), known)


def _value(value: object) -> Value:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, list) or len(value) != 3:
        raise TypeError("no metadata value")
    element, count, numbers = value
    if numbers is not None:
        if not all(isinstance(number, bool | int | float) for number in numbers):
            raise TypeError("no numbers")
        numbers = tuple(numbers)
    return Array(_text(element), _integer(count), numbers)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError("no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return clean(value)


@dataclass(frozen=True, slots=True)
class Reading:
    """A header and the cost of reading it.

    `file_bytes` is the size of the file, None if the server did not say. `exchanges` counts
    requests (reads of a local file), redirects too; `body_bytes` what they brought. `notes` are for
    the operator, clean.
    """

    header: Header
    name: str
    file_bytes: int | None
    exchanges: int = 0
    body_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def missing_bytes(self) -> int | None:
        """Bytes that the header promises but the file lacks; None if unknown."""
        if self.header.file_bytes is None or self.file_bytes is None:
            return None
        return max(0, self.header.file_bytes - self.file_bytes)


def read_architecture(where: str | Path, *, token: str = "") -> Reading:
    """The architecture of a file, usually from a single range of 60 KiB.

    `header.architecture` is never None, `header.tensors` always. Raises GgufError.
    """
    reading = _read(where, Want.ARCHITECTURE, token, None, DEADLINE_S)
    if reading.header.architecture is None:
        raise _without_architecture(reading)
    return reading


def read_header(
    where: str | Path,
    *,
    token: str = "",
    clock: Clock | None = None,
    deadline_s: float = DEADLINE_S,
) -> Reading:
    """The whole header and the table of tensors; `deadline_s` bounds a remote reading in all.
    Raises GgufError."""
    return _read(where, Want.HEADER, token, clock, deadline_s)


def check_shards(
    files: Sequence[tuple[str, int | None]], headers: Sequence[Header]
) -> tuple[str, ...]:
    """Contradictions between the names, sizes and headers of one set, all in the same order.

    A loader refuses the same: another `split.no` or `split.count` than the name's, a tensor twice,
    another number of tensors than `split.tensors.count`. Sizes are in bytes, None if unknown; a
    single file is a set too.
    """
    problems: list[str] = []
    seen: dict[str, int] = {}
    count = 1
    for (name, size), header in zip(files, headers, strict=True):
        _, number, count = shard(name) or (name, 1, 1)
        shown = one_line(name)
        if size == 0:
            problems.append(f"{shown} is empty")
        if not 1 <= number <= count:
            problems.append(f"{shown} has a number outside its set")
        problems += _split_numbers(shown, number, count, header)
        needed = header.file_bytes
        if needed is not None and size is not None and needed > size:
            problems.append(f"{shown} lacks {needed - size} bytes")
        for tensor in header.tensors or ():
            if seen.setdefault(tensor.name, number) != number:
                problems.append(f"{tensor.name} is in shards {seen[tensor.name]}, {number}")
    due = headers[0].integer("split.tensors.count")
    have = sum(header.tensor_count for header in headers)
    if due is not None and len(headers) == count and due != have:
        problems.append(f"{due} tensors are due, the shards have {have}")
    return tuple(problems[:MAX_PROBLEMS])


def _split_numbers(name: str, number: int, count: int, header: Header) -> Iterator[str]:
    shard_count, index = header.integer("split.count") or 1, header.integer("split.no")
    if shard_count != count:
        yield f"{name} says it is one of {shard_count} shards, its name says {count}"
    if count > 1 and index is not None and index != number - 1:
        yield f"{name} says it is shard {index + 1}, its name says {number}"


def read_shards(where: Sequence[str], *, token: str, deadline_s: float) -> list[Reading]:
    """The headers of all shards of a set, in the order given, at most four at a time.

    A shard after the first is a few KiB of header: one range. Raises the first GgufError.
    """
    with ThreadPoolExecutor(THREADS, "gguf") as pool:
        return list(pool.map(partial(read_header, token=token, deadline_s=deadline_s), where))


def merged(headers: Sequence[Header]) -> Header:
    """One header for a set in order: the metadata of the first, the tensors of all of them.

    `header_bytes` is the sum over the files.
    """
    tensors = None
    if all(header.tensors is not None for header in headers):
        tensors = tuple(tensor for header in headers for tensor in header.tensors or ())
    return replace(
        headers[0],
        tensors=tensors,
        tensor_count=sum(header.tensor_count for header in headers),
        header_bytes=sum(header.header_bytes for header in headers),
    )


def _read(
    where: str | Path, want: Want, token: str, clock: Clock | None, deadline_s: float
) -> Reading:
    if not is_address(str(where)):
        with LocalFile(Path(where).expanduser()) as file:
            return _reading(file, want)
    from console.models.gguf.remote import RemoteFile

    try:
        with RemoteFile(str(where), token, clock, deadline_s) as remote:
            return _reading(remote, want)
    except GgufError as error:  # a server may quote what it was sent
        if token:
            for name in ("title", "detail", "hint"):
                setattr(error, name, getattr(error, name).replace(token, "<token>"))
            error.args = (error.title,)
        raise


def _with_last(header: Header, total: int | None) -> Header:
    """The header with the size of a last tensor of a type that this reader does not know: it ends
    with the file, padding included."""
    if total is None or not header.tensors or header.tensors[-1].bytes is not None:
        return header
    *before, last = header.tensors
    begin = pad(header.header_bytes, header.alignment)
    for tensor in before:
        if tensor.bytes is None:
            return header
        begin += pad(tensor.bytes, header.alignment)
    if begin >= total:
        return header
    return replace(header, tensors=(*before, replace(last, bytes=total - begin)))


def _reading(source: LocalFile | RemoteFile, want: Want) -> Reading:
    header = _with_last(parse(source, want), source.total)
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
        (*getattr(source, "notes", ()), *_notes(header, source.total)),
    )


def _notes(header: Header, file_bytes: int | None) -> list[str]:
    notes = []
    unknown = Counter(tensor.type_name for tensor in header.tensors or () if tensor.bytes is None)
    for name, count in sorted(unknown.items()):
        notes.append(f"{count} tensors of {name}: their size cannot be told")
    needed = header.file_bytes
    if needed is not None and file_bytes is not None and needed > file_bytes:
        notes.append(
            f"the file is incomplete: {format_bytes(file_bytes)} of {format_bytes(needed)}, "
            f"{needed - file_bytes} bytes are missing"
        )
    return notes


def _without_architecture(reading: Reading) -> GgufError:
    header = reading.header
    number, of = header.integer("split.no"), header.integer("split.count")
    if number:
        words = f"it is shard {number + 1} of {of}"
        hint = "the architecture is in the first shard: read that one"
    else:
        words = f"general.type is {header.text('general.type') or 'missing'}"
        hint = "is it a model? adapters and importance matrices are GGUF files too"
    title = f"{reading.name} names no architecture"
    return GgufError(Kind.NO_ARCHITECTURE, title, words, hint)
