"""The bytes of a safetensors checkpoint by tensor, from as few headers as tell them.

The index names which tensor lies in which file. Shards are read until every pattern of names was
seen; the others are taken to store the same patterns alike, which the size of every one of them has
to bear out, else their headers are read as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.units import plural
from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind, LocalFile, is_address
from console.models.safetensors.header import LENGTH, ShardHeader, read_header
from console.models.safetensors.names import Group, Shard, group

READ_S = 120.0
"""Seconds for all headers of a checkpoint."""
MAX_FIRST = 2 << 20
"""Bytes of a first range, whatever an index claims."""
AT_ONCE = 16
MAX_SHARDS = 2048
MAX_ALL_TENSORS = 1 << 20
ENTRY = (50, 130)
"""Bytes of one entry of a header beside the tensor's name: at least `"":{"dtype":"I8","shape":[],
"data_offsets":[0,0]},`, at most with long numbers and a shape of many dimensions."""
SPARE = 4096
"""Bytes of `__metadata__` and padding in a usual header."""


@dataclass(frozen=True, slots=True)
class File:
    """One shard: where it is (a path or an address), its name, and its size if that is known."""

    place: str
    name: str
    size: int | None


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes by group of tensors. `read` of `files` headers were read, `unknown` are dtypes that
    this reader does not know. `exchanges` and `body_bytes` are what it cost. `elements` are those
    of a tensor by pattern, with the bits of one, where all that were read have as many."""

    groups: Mapping[Group, int]
    read: int
    files: int
    unknown: tuple[str, ...] = ()
    exchanges: int = 0
    body_bytes: int = 0
    elements: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(self.groups.values())

    @property
    def words(self) -> str:
        """Where the figures come from."""
        if self.read == self.files:
            return f"read from {plural(self.files, 'header')} of its files"
        return (
            f"read from {self.read} of {self.files} headers; the other files hold the same kinds "
            "of tensors, and their sizes agree"
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    sizes: Mapping[Group, Counter[int]]
    tensors: int
    unknown: tuple[str, ...]
    exchanges: int
    body_bytes: int
    elements: Mapping[str, set[tuple[int, int]]]


def read(
    files: Sequence[File], index: Mapping[str, Shard] | None = None, *, token: str = ""
) -> StoredBytes:
    """The bytes of a set of files. With an `index` of them (by name) only some are read; without
    one, all. Raises GgufError for the first header that cannot be had or used."""
    if len(files) > MAX_SHARDS:
        words = f"it has {len(files)} files; headers of at most {MAX_SHARDS} are read"
        raise GgufError(Kind.TOO_BIG, "the safetensors headers are too many", words)
    known = {file.name: file for file in files}
    # a file on this machine costs nothing to read, and says itself what it holds
    remote = any(is_address(file.place) for file in files)
    ask = _Ask(token, SystemClock())
    if index is None or not remote or not known.keys() <= index.keys():
        return _merged(_read_all(files, {}, ask), {}, len(files))
    left = _cover({name: index[name] for name in known})
    readings: dict[str, _Reading] = {}
    while left:
        more = _read_all([known[name] for name in left], index, ask)
        readings |= zip(left, more, strict=True)
        left = _unlike(readings, known, index)
    rest = {name: index[name] for name in known if name not in readings}
    return _merged(list(readings.values()), rest, len(files))


def _cover(shards: Mapping[str, Shard]) -> list[str]:
    """Few shards that together have every pattern: each time the one with most new ones."""
    kinds = {name: {pattern for pattern, _ in shard.groups} for name, shard in shards.items()}
    due = set().union(*kinds.values())
    chosen: list[str] = []
    while due:
        best = max(kinds, key=lambda name: (len(kinds[name] & due), -shards[name].count))
        chosen.append(best)
        due -= kinds.pop(best)
    return chosen


def _unlike(
    readings: Mapping[str, _Reading], files: Mapping[str, File], index: Mapping[str, Shard]
) -> list[str]:
    """Shards that are not read yet, and whose size is not what their patterns make it."""
    seen = _by_pattern(readings.values())
    return [
        name for name, file in files.items()
        if name not in readings and not _is_alike(index[name], file, seen)
    ]  # fmt: skip


def _by_pattern(readings: Iterable[_Reading]) -> Mapping[str, Counter[int]]:
    """How often tensors of a pattern were seen with which bytes."""
    seen: dict[str, Counter[int]] = {}
    for reading in readings:
        for (pattern, _), sizes in reading.sizes.items():
            seen.setdefault(pattern, Counter()).update(sizes)
    return seen


def _is_alike(shard: Shard, file: File, seen: Mapping[str, Counter[int]]) -> bool:
    """Whether every tensor of this shard has one known size, and the file is as long as they and
    a header are."""
    if file.size is None:
        return False
    data = 0
    for (pattern, _), count in shard.groups.items():
        sizes = seen.get(pattern)  # the index may name what no header has
        if sizes is None or len(sizes) != 1:
            return False
        data += count * next(iter(sizes))
    least, most = ENTRY[0] * shard.count, shard.names + ENTRY[1] * shard.count + SPARE
    return least <= file.size - data - LENGTH <= most


def _merged(readings: Sequence[_Reading], rest: Mapping[str, Shard], files: int) -> StoredBytes:
    groups: Counter[Group] = Counter()
    for reading in readings:
        for key, sizes in reading.sizes.items():
            groups[key] += sum(size * count for size, count in sizes.items())
    if sum(reading.tensors for reading in readings) > MAX_ALL_TENSORS:
        words = f"they name more than {MAX_ALL_TENSORS} tensors"
        raise GgufError(Kind.TOO_BIG, "the safetensors headers are too much to keep", words)
    seen = _by_pattern(readings) if rest else {}
    for shard in rest.values():
        for (pattern, layer), count in shard.groups.items():
            groups[pattern, layer] += count * next(iter(seen[pattern]))
    return StoredBytes(
        groups, len(readings), files,
        tuple(dict.fromkeys(kind for reading in readings for kind in reading.unknown)),
        sum(reading.exchanges for reading in readings),
        sum(reading.body_bytes for reading in readings), _elements(readings),
    )  # fmt: skip


def _elements(readings: Sequence[_Reading]) -> Mapping[str, tuple[int, int]]:
    kinds: dict[str, set[tuple[int, int]]] = {}
    for reading in readings:
        for pattern, sizes in reading.elements.items():
            kinds.setdefault(pattern, set()).update(sizes)
    return {pattern: next(iter(sizes)) for pattern, sizes in kinds.items() if len(sizes) == 1}


class _Ask:
    """The token, and one deadline for all headers."""

    def __init__(self, token: str, clock: Clock) -> None:
        self.token, self._clock = token, clock
        self._end = clock.monotonic() + READ_S

    @property
    def left_s(self) -> float:
        return max(self._end - self._clock.monotonic(), 0.0)


def _read_all(files: Sequence[File], index: Mapping[str, Shard], ask: _Ask) -> list[_Reading]:
    with ThreadPoolExecutor(AT_ONCE, "safetensors") as pool:
        return list(pool.map(partial(_read, index=index, ask=ask), files))


def _read(file: File, index: Mapping[str, Shard], ask: _Ask) -> _Reading:
    if not is_address(file.place):
        with LocalFile(Path(file.place)) as source:
            return _reading(read_header(source), source.exchanges, source.body_bytes)
    from console.models.gguf.remote import RemoteFile

    shard, first = index.get(file.name), FIRST_READ
    if shard is not None:  # one range holds the header, whatever its numbers are
        most = LENGTH + shard.names + ENTRY[1] * shard.count + SPARE
        first = min(most, MAX_FIRST)
    with RemoteFile(file.place, ask.token, None, ask.left_s, first=first) as remote:
        return _reading(read_header(remote), remote.exchanges, remote.body_bytes)


def _reading(header: ShardHeader, exchanges: int, body_bytes: int) -> _Reading:
    sizes: dict[Group, Counter[int]] = {}
    elements: dict[str, set[tuple[int, int]]] = {}
    for name, tensor in header.tensors.items():
        place = group(name)
        sizes.setdefault(place, Counter())[tensor.bytes] += 1
        bits = tensor.bytes * 8 // (tensor.elements or 1)
        elements.setdefault(place[0], set()).add((tensor.elements, bits))
    return _Reading(sizes, len(header.tensors), header.unknown, exchanges, body_bytes, elements)
