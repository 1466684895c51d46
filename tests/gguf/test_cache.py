"""Kept headers: the same again or nothing; and sets of shards, whole, lacking, contradictory."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.models.gguf import read as module
from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.header import Header
from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import parse
from console.models.gguf.read import (
    HeaderCache,
    Reading,
    check_shards,
    merged,
    read_architecture,
    read_header,
    read_shards,
)
from tests.gguf.raw import LLAMA, Pieces, array, header, tensor
from tests.gguf.server import Exchange, serving
from tests.testbed.gguf_write import Item, Planned, Typed, encode
from tests.testbed.models import tiny_deepseek2
from tests.waiting import some

KEY = "sha256:" + "a" * 64


@pytest.fixture
def kept(tmp_path: Path) -> tuple[HeaderCache, Reading, Path]:
    """A cache with one entry, what was kept, and its file."""
    tiny_deepseek2(tmp_path / "m.gguf")
    cache = HeaderCache(tmp_path / "cache")
    reading = read_header(tmp_path / "m.gguf")
    cache.put(KEY, reading)
    (entry,) = (tmp_path / "cache").iterdir()
    return cache, reading, entry


def test_the_same_again(kept: tuple[HeaderCache, Reading, Path]) -> None:
    cache, reading, entry = kept
    again = some(cache.get(KEY))
    assert again.header == reading.header
    assert (again.name, again.file_bytes) == (reading.name, reading.file_bytes)
    assert (again.exchanges, again.body_bytes) == (0, 0)
    assert cache.get("sha256:" + "b" * 64) is None
    assert entry.stat().st_mode & 0o777 == 0o600
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def test_values_of_every_kind(tmp_path: Path) -> None:
    kv = {"general.architecture": "x", "f": Typed(T.FLOAT64, float("inf")), "n": -1, "b": True,
          "heads": Typed(T.INT32, [1, 2]), "swa": Typed(T.BOOL, [True, False]),
          "empty": Typed(T.UINT8, []), "words": Typed(T.STRING, ["a"])}  # fmt: skip
    cache = HeaderCache(tmp_path / "cache")
    for data in (encode(kv), header(LLAMA, tensors=[tensor(b"a", [64], 999)])):
        (tmp_path / "m.gguf").write_bytes(data)
        reading = read_header(tmp_path / "m.gguf")
        cache.put("k", reading)
        again = some(cache.get("k"))
        assert (repr(again.header), again.notes) == (repr(reading.header), reading.notes)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(entry: Path) -> None:
        value = json.loads(entry.read_text())
        change(value)
        entry.write_text(json.dumps(value))

    return edit


SPOILED: dict[str, Callable[[Path], object]] = {
    "empty": lambda entry: entry.write_bytes(b""),
    "cut": lambda entry: entry.write_bytes(entry.read_bytes()[:-7]),
    "noise": lambda entry: entry.write_bytes(b"\xff\x00" * 99),
    "nested": lambda entry: entry.write_bytes(b"[" * 100_000),
    "another list": lambda entry: entry.write_bytes(b"[]"),
    "too long": lambda entry: entry.write_bytes(entry.read_bytes() + b" " * module.MAX_BYTES),
    "a directory": lambda entry: (entry.unlink(), entry.mkdir()),
    "a link": lambda entry: (entry.rename(f"{entry}.x"), entry.symlink_to(f"{entry}.x")),
    "a pipe": lambda entry: (entry.unlink(), os.mkfifo(entry)),
    "another schema": edited(lambda value: value.update(schema="omni.gguf/v0")),
    "another file's": edited(lambda value: value.update(content="sha256:other")),
    "no alignment": edited(lambda value: value.update(alignment=0)),
    "a size below zero": edited(lambda value: value.update(file_bytes=-1)),
    "a tensor short": edited(lambda value: value["tensors"][0].pop()),
    "a tensor of text": edited(lambda value: value["tensors"][0].__setitem__(3, "1")),
    "a list for a number": edited(lambda value: value["kv"].update(x=["INT32", 1])),
    "a value of None": edited(lambda value: value["kv"].update(x=None)),
    "no metadata": edited(lambda value: value.pop("kv")),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_entry_is_none(kept: tuple[HeaderCache, Reading, Path], name: str) -> None:
    cache, reading, entry = kept
    SPOILED[name](entry)
    assert cache.get(KEY) is None
    cache.put(KEY, reading)  # no error, whatever stands in its place


def test_an_entry_of_somebody_else(
    kept: tuple[HeaderCache, Reading, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert kept[0].get(KEY) is None


def test_escapes_in_an_entry_do_not_come_through(kept: tuple[HeaderCache, Reading, Path]) -> None:
    cache, _, entry = kept
    edited(lambda value: value.update(name="\x1b[31mred"))(entry)
    again = some(cache.get(KEY))
    assert again.name == "red"


def test_only_so_many_are_kept(
    kept: tuple[HeaderCache, Reading, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, reading, entry = kept
    monkeypatch.setattr(module, "MAX_FILES", 3)
    os.utime(entry, (1, 1))
    for number in range(5):
        cache.put(f"other {number}", reading)
    names = list(entry.parent.iterdir())
    assert len(names) == 3
    assert cache.get(KEY) is None, "the longest unused went"
    assert cache.get("other 4") is not None


def test_what_is_too_long_or_half_read_is_not_kept(
    kept: tuple[HeaderCache, Reading, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, reading, _ = kept
    cache.put("half", read_architecture(tmp_path / "m.gguf"))
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    cache.put("long", reading)
    monkeypatch.undo()
    assert cache.get("half") is cache.get("long") is None


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    data = tmp_path / "m.gguf"
    data.write_bytes(header(LLAMA, array(b"a", T.UINT8, 1, b"\0")))
    cache = HeaderCache(tmp_path / "file" / "cache")
    cache.put("k", read_header(data))
    assert cache.get("k") is None


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
    assert found.tensor_count == len(some(found.tensors)) == 6


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
            four.wait(120)  # four of them are here together, or this breaks
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
