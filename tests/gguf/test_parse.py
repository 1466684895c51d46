"""What is read of a good header and how far; a hostile one gets a typed answer from few bytes."""

import contextlib
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from console.common.errors import Exit
from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.header import BY_NUMBER, Array, Header
from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import KEPT_IN_ALL, MAX_PAIRS, MAX_TENSORS, Want, parse
from console.models.gguf.read import read_architecture, read_header
from console.models.sizing.facts_from_gguf import from_gguf
from tests.gguf.hostile import CASES, ESCAPES, TENSORS
from tests.gguf.raw import (
    LLAMA,
    Pieces,
    array,
    big_endian,
    header,
    pair,
    string,
    tensor,
    text,
    u32,
    u64,
)
from tests.testbed.gguf_write import Planned, Typed, encode
from tests.testbed.models import tiny_deepseek2
from tests.waiting import some

LISTS = array(b"tokenizer.ggml.tokens", T.STRING, 50_000, string(b"token") * 50_000)
NO_FILES = ["gone.gguf", ".", "pipe.gguf", "nul\0.gguf", "/dev/zero"]
TEMPLATE = pair(b"tokenizer.chat_template", T.STRING, u64(100 * 10**6))


def test_everything_of_a_header(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    size = tiny_deepseek2(file)
    reading = read_header(file)
    found = reading.header
    assert (found.version, found.byte_order, found.alignment) == (3, "little", 32)
    assert found.architecture == "deepseek2"
    assert found.integer("deepseek2.attention.kv_lora_rank") == 32
    assert found.kv["deepseek2.rope.freq_base"] == 10_000.0
    assert found.kv["deepseek2.expert_weights_norm"] is True
    assert found.kv["tokenizer.ggml.tokens"] == Array("STRING", 511)
    assert found.tensors is not None
    assert found.tensor_count == len(found.tensors)
    assert (found.tensors[0].name, found.tensors[0].type_name) == ("token_embd.weight", "F16")
    assert size - 32 < some(found.file_bytes) <= size
    assert (reading.file_bytes, reading.missing_bytes, reading.notes) == (size, 0, ())
    assert reading.exchanges == 1


def test_getters_take_no_wrong_type() -> None:
    numbers = array(b"heads", T.INT32, 3, u32(8) + u32(0) + u32(16))
    floats = array(b"scales", T.FLOAT32, 1, u32(0))
    flags = array(b"swa", T.BOOL, 2, b"\1\0")
    pairs = (LLAMA, numbers, floats, flags, pair(b"one", T.UINT16, b"\5\0"), LISTS)
    found = parse(Pieces(header(*pairs, pair(b"yes", T.BOOL, b"\1"))))
    assert found.kv["heads"] == Array("INT32", 3, (8, 0, 16))
    assert found.kv["swa"] == Array("BOOL", 2, (True, False))
    assert found.integer("one") == 5
    assert found.integer("heads") is found.integer("yes") is found.integer("nothing") is None
    assert found.text("one") is None
    assert found.kv["tokenizer.ggml.tokens"] == Array("STRING", 50_000)


def test_numbers_are_kept_where_they_are_few() -> None:
    few = array(b"few", T.UINT8, 4096, bytes(4096))
    many = array(b"many", T.UINT8, 4097, bytes(4097))
    found = parse(Pieces(header(LLAMA, few, many)))
    assert found.kv["few"] == Array("UINT8", 4096, (0,) * 4096)
    assert found.kv["many"] == Array("UINT8", 4097)


def test_the_architecture_ends_the_reading() -> None:
    source = Pieces(header(LLAMA, LISTS), (FIRST_READ,))
    found = parse(source, Want.ARCHITECTURE)
    assert (found.architecture, found.tensors) == ("llama", None)
    assert (source.pulled, source.reads) == (FIRST_READ, 1)
    assert found.header_bytes <= FIRST_READ


def test_the_first_range_is_looked_through_all_the_same() -> None:
    twice = text(b"a", b"x" * 1000), text(b"a", b"y")
    with pytest.raises(GgufError):
        parse(Pieces(header(LLAMA, *twice)), Want.ARCHITECTURE)
    behind = parse(Pieces(header(LLAMA, LISTS, *twice)), Want.ARCHITECTURE)
    assert behind.architecture == "llama"
    with pytest.raises(GgufError):
        parse(Pieces(header(LLAMA, LISTS, *twice)))


@pytest.mark.parametrize("sized", [True, False])
def test_the_architecture_last(sized: bool) -> None:
    data = header(LISTS, LLAMA)
    source = Pieces(data, sized=sized)
    assert parse(source, Want.ARCHITECTURE).architecture == "llama"
    assert source.pulled <= len(data)


@pytest.mark.parametrize("sized", [True, False])
def test_a_long_string_is_not_fetched(sized: bool) -> None:
    """A template of 100 MB before the architecture: what comes behind it is asked for alone."""
    start, end = header(TEMPLATE, count=2), LLAMA

    class Sparse(Pieces):
        def read(self, offset: int) -> bytes:
            far = len(start) + 100 * 10**6
            self.pulled += 1
            if offset < far - 1:
                return (start + bytes(FIRST_READ))[offset : offset + FIRST_READ]
            return (b"\0" + end)[offset - far + 1 :]

    source = Sparse(b"", sized=False)
    source.total = len(start) + 100 * 10**6 + len(end) if sized else None
    found = parse(source, Want.ARCHITECTURE)
    assert found.architecture == "llama"
    assert source.pulled == 2


def test_an_array_that_ends_the_header_has_to_be_there() -> None:
    data = header(LLAMA, array(b"scores", T.FLOAT32, 20_000, bytes(80_000)))
    whole = parse(Pieces(data, sized=False))
    assert whole.header_bytes == len(data)
    for sized in (True, False):
        with pytest.raises(GgufError) as caught:
            parse(Pieces(data[:-1], sized=sized))
        assert caught.value.kind is Kind.TRUNCATED


def test_big_endian_is_read() -> None:
    found = parse(Pieces(big_endian(b"qwen3")))
    assert (found.byte_order, found.architecture) == ("big", "qwen3")


def test_version_2_is_like_version_3() -> None:
    assert parse(Pieces(header(LLAMA, version=2))).version == 2


def test_offsets_follow_the_alignment() -> None:
    planned = [Planned("a", (3,)), Planned("b", (32, 2), 8)]
    kv = {"general.architecture": "llama", "general.alignment": Typed(T.UINT32, 256)}
    data = encode(kv, planned)
    found = parse(Pieces(data))
    assert found.alignment == 256
    assert found.file_bytes == len(data) + 256 + 68
    assert found.header_bytes <= len(data)


def test_no_more_than_needed_is_read_of_a_local_file(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(header(LLAMA, LISTS))
    assert read_architecture(file).body_bytes == FIRST_READ


def test_the_table_is_that_of_the_gguf_package() -> None:
    theirs = {int(one): (one.name, *GGML_QUANT_SIZES[one]) for one in GGMLQuantizationType}
    ours = {number: (one.name, one.block, one.bytes) for number, one in BY_NUMBER.items()}
    assert theirs.items() <= ours.items()


MAX_MEMORY = 4 * 2**20
MAX_CALLS = 2500
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

    assert peak(work) < MAX_MEMORY
    assert calls(work) < MAX_CALLS


def test_the_measures_measure() -> None:
    assert peak(lambda: bytes(2 * MAX_MEMORY)) > MAX_MEMORY
    assert calls(lambda: [abs(n) for n in range(MAX_CALLS)]) > MAX_CALLS


def test_an_unknown_tensor_type_is_named_and_ends_where_the_next_begins(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(header(LLAMA, tensors=[tensor(b"a", [64], 999), tensor(b"b", [32], 0, 4096)]))
    reading = read_header(file)
    first, second = some(reading.header.tensors)
    assert ("type 999" in first.type_name, first.bytes) == (True, 4096)
    assert (second.type_name, second.bytes) == ("F32", 128)
    assert reading.header.file_bytes == reading.file_bytes + some(reading.missing_bytes)
    kv = {"general.architecture": "llama", "llama.block_count": 1}
    facts = from_gguf(replace(reading.header, kv=kv))
    assert "what loads a: its type 999 is newer than this reader" in facts.missing


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
    many = [text(b"llama.k%d" % n, b"x" * 1024) for n in range(300)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *many)))).kind is Kind.TOO_BIG
    numbers = [array(b"llama.k%d" % n, T.UINT8, 4096, bytes(4096)) for n in range(100)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *numbers)))).kind is Kind.TOO_BIG
    keys = [pair(b"llama.%01000d" % n, T.BOOL, b"\1") for n in range(300)]
    assert refused(lambda: parse(Pieces(header(LLAMA, *keys)))).kind is Kind.TOO_BIG
    early = [text(b"k%d" % n, b"x" * 1024) for n in range(300)]
    assert refused(lambda: parse(Pieces(header(*early, LLAMA)))).kind is Kind.TOO_BIG


def test_keys_that_change_nothing_are_passed_over_and_not_refused() -> None:
    """Thousands of remarks on a model are no reason for not knowing what it takes."""
    remarks = [text(b"general.remark.%d" % n, b"x" * 900) for n in range(3000)]
    count = pair(b"llama.block_count", T.UINT32, u32(7))
    found = parse(Pieces(header(LLAMA, *remarks, count), (2**20,)))
    assert found.integer("llama.block_count") == 7
    assert sum(len(one) for one in found.kv.values() if isinstance(one, str)) <= KEPT_IN_ALL
    twice = header(LLAMA, *remarks, remarks[-1])
    assert refused(lambda: parse(Pieces(twice, (2**20,)))).kind is Kind.MALFORMED


@pytest.mark.full
def test_the_largest_header_that_passes_is_bounded() -> None:
    pairs = [pair(b"k%d" % n, T.UINT64, u64(2**63)) for n in range(MAX_PAIRS - 1)]
    table = [tensor(b"%063d" % n, [1, 1, 1, 1], 24, n * 32) for n in range(MAX_TENSORS)]
    data = header(LLAMA, *pairs, tensors=table)
    found: list[Header] = []
    assert peak(lambda: found.append(parse(Pieces(data, (2**20,))))) < 64 * 2**20
    assert found[0].tensor_count == MAX_TENSORS


def test_a_list_of_empty_strings_is_passed_over_in_bounded_memory() -> None:
    count = 300_000
    data = header(array(b"tokens", T.STRING, count, bytes(8 * count)), LLAMA)
    found: list[Header] = []
    assert peak(lambda: found.append(parse(Pieces(data, (2**20,))))) < MAX_MEMORY
    assert found[0].kv["tokens"] == Array("STRING", count)
