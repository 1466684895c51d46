"""Models in several files: whether the shards of a set fit together, and one header for them all.

`<prefix>-00001-of-00003.gguf`, counted from 1; inside, `split.no` counts from 0. The first shard
alone holds the metadata, and a loader is given that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from console.common.text import one_line
from console.models.gguf.header import Header
from console.models.gguf.read import Reading, read_header
from console.models.hub.names import shard

THREADS = 4
MOST_PROBLEMS = 20


def check(files: Sequence[tuple[str, int | None]], headers: Sequence[Header]) -> tuple[str, ...]:
    """What names and sizes of one set, and the headers in the same order, say against each other.

    A loader refuses the same: another `split.no` or `split.count` than the name's, a tensor
    twice, another number of tensors than `split.tensors.count`. Sizes are in bytes, None where
    unknown; a single file is a set too.
    """
    found: list[str] = []
    seen: dict[str, int] = {}
    count = 1
    for (name, size), header in zip(files, headers, strict=True):
        _, number, count = shard(name) or (name, 1, 1)
        shown = one_line(name)
        if size == 0:
            found.append(f"{shown} is empty")
        if not 1 <= number <= count:
            found.append(f"{shown} has a number outside its set")
        found += _numbers(shown, number, count, header)
        needed = header.file_bytes
        if needed is not None and size is not None and needed > size:
            found.append(f"{shown} lacks {needed - size} bytes")
        for tensor in header.tensors or ():
            if seen.setdefault(tensor.name, number) != number:
                found.append(f"{tensor.name} stands in shards {seen[tensor.name]}, {number}")
    due = headers[0].integer("split.tensors.count")
    have = sum(header.tensor_count for header in headers)
    if due is not None and len(headers) == count and due != have:
        found.append(f"{due} tensors are due, the shards have {have}")
    return tuple(found[:MOST_PROBLEMS])


def _numbers(name: str, number: int, count: int, header: Header) -> Iterator[str]:
    said, index = header.integer("split.count") or 1, header.integer("split.no")
    if said != count:
        yield f"{name} says it is one of {said} shards, its name says {count}"
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
    if all(one.tensors is not None for one in headers):
        tensors = tuple(tensor for one in headers for tensor in one.tensors or ())
    return replace(
        headers[0],
        tensors=tensors,
        tensor_count=sum(one.tensor_count for one in headers),
        header_bytes=sum(one.header_bytes for one in headers),
    )
