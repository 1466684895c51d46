"""Sets of shards: whole, lacking, contradicting themselves; and their headers over the net."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.header import Header
from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import parse
from console.models.gguf.read import check_shards, merged, read_shards
from tests.gguf.raw import Pieces
from tests.gguf.server import Exchange, serving
from tests.testbed.gguf_write import Item, Planned, Typed, encode


def shard(number: int, count: int = 3, tensors: int = 6) -> bytes:
    """A shard as a splitter writes it: the first holds the metadata, each two tensors."""
    kv: dict[str, Item] = {"general.architecture": "llama", "llama.block_count": 4}
    kv = (kv if number == 1 else {}) | {
        "split.no": Typed(T.UINT16, number - 1),
        "split.count": Typed(T.UINT16, count),
        "split.tensors.count": Typed(T.INT32, tensors),
    }
    planned = [Planned(f"blk.{number}.{name}", (64,)) for name in "ab"]
    return encode(kv, planned) + bytes(512)


def name(number: int, count: int = 3) -> str:
    return f"Q4/m-{number:05}-of-{count:05}.gguf"


LISTING = [(name(number), len(shard(number))) for number in (1, 2, 3)]
HEADERS = [parse(Pieces(shard(number))) for number in (1, 2, 3)]
FOURTH = parse(Pieces(shard(4)))


def test_a_whole_set_and_a_single_file() -> None:
    assert check_shards(LISTING, HEADERS) == ()
    single = parse(Pieces(encode({"general.architecture": "x"})))
    assert check_shards([("m-Q8.gguf", 10**6)], [single]) == ()


def without(header: Header, **kv: int) -> Header:
    named = {key.replace("_", "."): value for key, value in kv.items()}
    return replace(header, kv={**header.kv, **named})


FIRST, SECOND, THIRD = HEADERS
BAD = [
    (LISTING, [FIRST, without(SECOND, split_count=4), THIRD]),
    (LISTING, [FIRST, without(SECOND, split_no=2), THIRD]),
    (LISTING, [FIRST, replace(SECOND, tensors=FIRST.tensors), THIRD]),
    (LISTING, [FIRST, SECOND, replace(THIRD, tensor_count=1)]),
    (LISTING, [FIRST, SECOND, replace(THIRD, header_bytes=9000)]),
    ([LISTING[0], (name(2), 0), LISTING[2]], HEADERS),
    ([*LISTING, (name(4), None)], [*HEADERS, FOURTH]),
    ([("x.gguf", 100)], [parse(Pieces(encode(
        {"general.architecture": "llama", "split.count": Typed(T.UINT16, 65535)})))]),
]  # fmt: skip
"""Sets with something wrong: their files, and the headers of these."""


def test_one_header_of_all() -> None:
    found = merged(HEADERS)
    assert found.architecture == "llama"
    assert found.tensors is not None
    assert found.tensor_count == len(found.tensors) == 6


def test_shards_are_read_four_at_a_time_with_one_range_each() -> None:
    data = {f"/{number}.gguf": shard(number, 9) + bytes(2**20) for number in range(1, 10)}
    at_once: list[int] = []
    inside = threading.Semaphore(0)
    lock = threading.Lock()
    four = threading.Barrier(4)

    def answer(exchange: Exchange) -> None:
        with lock:
            at_once.append(1)
            first = len(exchange.server.requests) <= 4 and len(at_once) <= 4
        if first:
            four.wait(30)  # four of them are here together, or this breaks
            inside.release()
        exchange.part(data[exchange.path])

    with serving(answer) as server:
        found = read_shards([f"{server.url}{path}" for path in data], token="", deadline_s=60.0)
    assert inside.acquire(timeout=0)
    assert [one.header.integer("split.no") for one in found] == list(range(9))
    assert len(server.requests) == 9
    assert all(one.range == (0, FIRST_READ - 1) for one in server.requests)
    assert sum(one.exchanges for one in found) == 9


def test_a_shard_that_is_gone_stops_the_reading() -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.path == "/2":
            exchange.send(404)
        else:
            exchange.part(shard(1))

    with serving(answer) as server, pytest.raises(GgufError) as caught:
        read_shards([f"{server.url}/{n}" for n in (1, 2, 3)], token="", deadline_s=60.0)
    assert caught.value.kind is Kind.MISSING
    assert "/2 " in caught.value.title
