"""Every hostile header gets a typed answer, at once, from little memory, fit for a terminal."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common.errors import Exit
from console.models.gguf.byte_source import GgufError, Kind
from console.models.gguf.header import Array
from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import KEPT_IN_ALL, MAX_PAIRS, MAX_TENSORS, parse
from console.models.gguf.read import read_architecture, read_header
from tests.gguf.hostile import CASES, ESCAPES, TENSORS
from tests.gguf.raw import LLAMA, Pieces, array, header, pair, tensor, text, u64

MOST_MEMORY = 4 * 2**20
MOST_CALLS = 2500
"""Of functions, Python's and C's: some hundred nanoseconds each."""


def peak(work: Callable[[], object]) -> int:
    """Bytes that were allocated at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def calls(work: Callable[[], object]) -> int:
    seen: list[None] = []
    sys.setprofile(lambda *_: seen.append(None))
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(seen)


def refused(work: Callable[[], object]) -> GgufError:
    with pytest.raises(GgufError) as caught:
        work()
    return caught.value


@pytest.mark.parametrize("name", [*CASES, *TENSORS])
def test_a_typed_answer_from_little_memory_in_few_calls(tmp_path: Path, name: str) -> None:
    """Asking for the architecture alone is no way around."""
    data = {**CASES, **TENSORS}[name]
    file = tmp_path / "x.gguf"
    file.write_bytes(data)
    error = refused(lambda: read_header(file))
    assert error.exit_code in (Exit.NO_GO, Exit.HOLD)
    if name in CASES:
        assert refused(lambda: read_architecture(file)).kind is error.kind

    def work() -> None:
        with contextlib.suppress(GgufError):
            parse(Pieces(data))

    assert peak(work) < MOST_MEMORY
    assert calls(work) < MOST_CALLS


def test_the_measures_measure() -> None:
    assert peak(lambda: bytes(2 * MOST_MEMORY)) > MOST_MEMORY
    assert calls(lambda: [abs(n) for n in range(MOST_CALLS)]) > MOST_CALLS


def test_an_unknown_tensor_type_is_named_and_costs_only_the_sizes(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(header(LLAMA, tensors=[tensor(b"a", [64], 999), tensor(b"b", [32], 0, 4096)]))
    reading = read_header(file)
    assert reading.header.tensors is not None
    first, second = reading.header.tensors
    assert ("type 999" in first.type_name, first.bytes) == (True, None)
    assert (second.type_name, second.bytes) == ("F32", 128)
    assert reading.header.file_bytes is reading.missing_bytes is None
    assert "type 999" in reading.notes[0]


def test_a_header_that_names_no_architecture(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(header(text(b"general.type", b"imatrix\x1b[2J")))
    assert read_header(file).header.architecture is None
    error = refused(lambda: read_architecture(file))
    assert (error.kind, "imatrix" in error.detail) == (Kind.NO_ARCHITECTURE, True)
    shard = header(pair(b"split.no", T.UINT16, b"\2\0"), pair(b"split.count", T.UINT16, b"\5\0"))
    file.write_bytes(shard)
    assert "3 of 5" in refused(lambda: read_architecture(file)).detail


def test_escapes_in_values_do_not_come_through() -> None:
    found = parse(Pieces(header(LLAMA, text(b"general.name", ESCAPES))))
    assert found.text("general.name") == "deepseek2[red]"


def test_floods_stay_small() -> None:
    """Not broken, only too much: what is kept has a bound, in all and each."""
    long_text = [text(b"k%d" % n, b"\xf0\x9f\x98\x80" * 1000) for n in range(200)]
    found = parse(Pieces(header(LLAMA, *long_text)))
    assert sum(len(one) for one in found.kv.values() if isinstance(one, str)) < KEPT_IN_ALL
    assert str(found.kv["k0"]).endswith("…")
    many = [text(b"k%d" % n, b"x" * 1024) for n in range(300)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *many)))).kind is Kind.TOO_BIG
    numbers = [array(b"k%d" % n, T.UINT8, 4096, bytes(4096)) for n in range(100)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *numbers)))).kind is Kind.TOO_BIG
    keys = [pair(b"%01000d" % n, T.BOOL, b"\1") for n in range(300)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *keys)))).kind is Kind.TOO_BIG


@pytest.mark.full
def test_the_largest_header_that_passes_is_bounded() -> None:
    pairs = [pair(b"k%d" % n, T.UINT64, u64(2**63)) for n in range(MAX_PAIRS - 1)]
    table = [tensor(b"%063d" % n, [1, 1, 1, 1], 24, n * 32) for n in range(MAX_TENSORS)]
    data = header(LLAMA, *pairs, tensors=table)
    assert parse(Pieces(data, (2**20,))).tensor_count == MAX_TENSORS
    assert peak(lambda: parse(Pieces(data, (2**20,)))) < 64 * 2**20


def test_a_list_of_empty_strings_is_passed_over_in_bounded_memory() -> None:
    count = 300_000
    data = header(array(b"tokens", T.STRING, count, bytes(8 * count)), LLAMA)
    assert parse(Pieces(data, (2**20,))).kv["tokens"] == Array("STRING", count)
    assert peak(lambda: parse(Pieces(data, (2**20,)))) < MOST_MEMORY
