"""The table of types against the gguf package's, and the sizes it gives."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from console.models.gguf.header import BY_NUMBER, ValueType, from_name, row_bytes, type_name


def test_the_table_is_that_of_the_gguf_package() -> None:
    theirs = {int(one): (one.name, *GGML_QUANT_SIZES[one]) for one in GGMLQuantizationType}
    ours = {number: (one.name, one.block, one.bytes) for number, one in BY_NUMBER.items()}
    assert theirs.items() <= ours.items()


def test_metadata_types_are_those_of_the_gguf_package() -> None:
    assert {one.name: int(one) for one in ValueType} == {
        one.name: int(one) for one in GGUFValueType
    }


def test_names_as_a_command_line_has_them() -> None:
    assert from_name("q8_0").number == 8
    assert from_name("F16").bytes == 2
    with pytest.raises(KeyError):
        from_name("q9")
    assert type_name(12) == "Q4_K"
    assert "999" in type_name(999)


def test_bytes_of_a_row() -> None:
    assert row_bytes(from_name("f16"), 576) == 1152
    assert row_bytes(from_name("q8_0"), 576) == 612
    assert row_bytes(from_name("q4_0"), 576) == 324
    with pytest.raises(ValueError, match="Q4_K's 256"):
        row_bytes(from_name("q4_k"), 128)
