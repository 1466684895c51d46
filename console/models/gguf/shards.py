"""Models in several files: which shards belong together, and whether they are all there.

`<prefix>-00001-of-00003.gguf`, counted from 1; inside, `split.no` counts from 0. The first shard
alone holds the metadata, and a loader is given that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from console.common.clock import Clock
from console.common.text import one_line
from console.models.gguf.header import Header
from console.models.gguf.read import DEADLINE_S, Reading, read_header

THREADS = 4
SHOWN = 5
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.ASCII | re.DOTALL)
_SIDECARS = ("mmproj-", "mtp-")


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a listing; `number` counts from 1, `size` is in bytes, None where unknown."""

    name: str
    number: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Model:
    """The files of one model as a listing has them, in order; a single file is a model too.

    `count` is how many there should be. `name` is the first shard's, for a loader.
    """

    name: str
    count: int
    shards: tuple[Shard, ...]
    problems: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.problems

    @property
    def size(self) -> int | None:
        """Bytes of all shards; None where one is missing or unknown."""
        sizes = [one.size for one in self.shards if one.size is not None]
        return sum(sizes) if len(sizes) == self.count else None


def is_sidecar(name: str) -> bool:
    """A projector or a draft head: it lies beside a model and is no part of it."""
    return PurePosixPath(name).name.lower().startswith(_SIDECARS)


def models(files: Iterable[tuple[str, int | None]]) -> tuple[Model, ...]:
    """The models of a listing of names and sizes, by name; what is no GGUF file is passed over."""
    groups: dict[tuple[str, int], list[Shard]] = {}
    for name, size in files:
        if not name.endswith(".gguf") or is_sidecar(name):
            continue
        match = _SHARD.fullmatch(name)
        prefix, number, count = (match[1], int(match[2]), int(match[3])) if match else (name, 1, -1)
        groups.setdefault((prefix, count), []).append(Shard(name, number, size))
    counts: dict[str, list[int]] = {}
    for prefix, count in groups:
        counts.setdefault(prefix, []).append(count)
    found = [_model(key, shards, counts[key[0]]) for key, shards in groups.items()]
    return tuple(sorted(found, key=lambda one: one.name))


def _model(key: tuple[str, int], shards: list[Shard], counts: list[int]) -> Model:
    prefix, count = key
    shards.sort(key=lambda one: one.number)
    problems = [f"{one_line(one.name)} is empty" for one in shards if one.size == 0]
    if count < 0:
        return Model(prefix, 1, tuple(shards), tuple(problems))
    odd = [one for one in shards if not 1 <= one.number <= count]
    problems += [f"{one_line(one.name)} has a number outside its set" for one in odd[:SHOWN]]
    there = {one.number for one in shards}
    absent = count - sum(1 <= number <= count for number in there)
    if absent:
        names = list(_absent(prefix, count, there))
        more = f" and {absent - len(names)} more" if absent > len(names) else ""
        listed = ", ".join(one_line(one) for one in names)
        problems.append(f"{absent} of {count} shards are missing: {listed}{more}")
    if len(counts) > 1:
        others = ", ".join(str(one) for one in sorted(counts) if one != count)
        problems.append(f"the same name also stands for a set of {others}")
    return Model(_name(prefix, 1, count), count, tuple(shards), tuple(problems))


def _name(prefix: str, number: int, count: int) -> str:
    return f"{prefix}-{number:05}-of-{count:05}.gguf"


def _absent(prefix: str, count: int, there: set[int]) -> Iterator[str]:
    """The first few names that are missing; a hostile listing may lack a hundred thousand."""
    shown = 0
    for number in range(1, count + 1):
        if number not in there:
            yield _name(prefix, number, count)
            shown += 1
            if shown == SHOWN:
                return


def check(model: Model, headers: Mapping[int, Header]) -> tuple[str, ...]:
    """What the headers say against the listing and each other, by shard number from 1.

    A loader refuses the same: another `split.no` or `split.count` than the name's, a tensor
    twice, another number of tensors than `split.tensors.count`.
    """
    found: list[str] = []
    seen: dict[str, int] = {}
    for shard in model.shards:
        header = headers.get(shard.number)
        if header is None:
            continue
        found += _numbers(model, shard, header)
        needed = header.file_bytes
        if needed is not None and shard.size is not None and needed > shard.size:
            found.append(f"{one_line(shard.name)} lacks {needed - shard.size} bytes")
        for tensor in header.tensors or ():
            if seen.setdefault(tensor.name, shard.number) != shard.number:
                found.append(f"{tensor.name} stands in shards {seen[tensor.name]}, {shard.number}")
    first = headers.get(1)
    due = first.integer("split.tensors.count") if first else None
    have = sum(header.tensor_count for header in headers.values())
    if due is not None and len(headers) == model.count and due != have:
        found.append(f"{due} tensors are due, the shards have {have}")
    return tuple(found[: SHOWN * 4])


def _numbers(model: Model, shard: Shard, header: Header) -> Iterator[str]:
    count, number = header.integer("split.count"), header.integer("split.no")
    name = one_line(shard.name)
    if (count or 1) != model.count:
        yield f"{name} says it is one of {count or 1} shards, its name says {model.count}"
    if model.count > 1 and number is not None and number != shard.number - 1:
        yield f"{name} says it is shard {number + 1}, its name says {shard.number}"


def read_shards(
    where: Sequence[str | Path],
    *,
    token: str = "",
    clock: Clock | None = None,
    deadline_s: float = DEADLINE_S,
) -> tuple[Reading, ...]:
    """The headers of all shards of a set, in the order given, at most four at a time.

    A shard after the first is a few KiB of header: one range. Raises the first GgufError.
    """

    def read(one: str | Path) -> Reading:
        return read_header(one, token=token, clock=clock, deadline_s=deadline_s)

    with ThreadPoolExecutor(THREADS, "gguf") as pool:
        return tuple(pool.map(read, where))


def merged(headers: Sequence[Header]) -> Header:
    """One header for a set in order: the metadata of the first, the tensors of all of them.

    `header_bytes` is the sum over the files. Raises ValueError without headers.
    """
    if not headers:
        raise ValueError("no headers")
    tensors = None
    if all(one.tensors is not None for one in headers):
        tensors = tuple(tensor for one in headers for tensor in one.tensors or ())
    return replace(
        headers[0],
        tensors=tensors,
        tensor_count=sum(one.tensor_count for one in headers),
        header_bytes=sum(one.header_bytes for one in headers),
    )
