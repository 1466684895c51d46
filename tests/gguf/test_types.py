"""The table of types against the gguf package's, and the sizes it gives."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from console.models.gguf.header import BY_NUMBER, ValueType, row_bytes, type_name


def test_the_table_is_that_of_the_gguf_package() -> None:
    theirs = {int(one): (one.name, *GGML_QUANT_SIZES[one]) for one in GGMLQuantizationType}
    ours = {number: (one.name, one.block, one.bytes) for number, one in BY_NUMBER.items()}
    assert theirs.items() <= ours.items()


def test_metadata_types_are_those_of_the_gguf_package() -> None:
    assert {one.name: int(one) for one in ValueType} == {
        one.name: int(one) for one in GGUFValueType
    }


def test_a_type_that_came_later_is_said_by_its_number() -> None:
    assert type_name(12) == "Q4_K"
    assert "999" in type_name(999)


def test_bytes_of_a_row() -> None:
    assert row_bytes(BY_NUMBER[1], 576) == 1152
    assert row_bytes(BY_NUMBER[8], 576) == 612
    assert row_bytes(BY_NUMBER[2], 576) == 324
    with pytest.raises(ValueError, match="Q4_K's 256"):
        row_bytes(BY_NUMBER[12], 128)
