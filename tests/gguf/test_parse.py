"""What is read of a good header, how far, in which pieces, and with whose table of types."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.header import BY_NUMBER, Array, ValueType, row_bytes
from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import Want, parse
from console.models.gguf.read import read_architecture, read_header
from tests.gguf.raw import LLAMA, Pieces, array, big_endian, header, pair, string, text, u32, u64
from tests.testbed.gguf_write import Planned, Typed, encode
from tests.testbed.models import tiny_deepseek2

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
    assert found.kv["tokenizer.ggml.tokens"] == Array("STRING", 260)
    assert found.tensors is not None
    assert found.tensor_count == len(found.tensors)
    assert (found.tensors[0].name, found.tensors[0].type_name) == ("token_embd.weight", "F16")
    assert found.file_bytes is not None
    assert size - 32 < found.file_bytes <= size
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


def test_metadata_types_are_those_of_the_gguf_package() -> None:
    assert {one.name: int(one) for one in ValueType} == {
        one.name: int(one) for one in GGUFValueType
    }


def test_bytes_of_a_row() -> None:
    assert row_bytes(BY_NUMBER[1], 576) == 1152
    assert row_bytes(BY_NUMBER[8], 576) == 612
    assert row_bytes(BY_NUMBER[2], 576) == 324
    with pytest.raises(ValueError, match="Q4_K's 256"):
        row_bytes(BY_NUMBER[12], 128)
