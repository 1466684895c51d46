"""Headers of safetensors files: whole ones, and hostile ones that no loader takes."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.models.gguf.byte_source import GgufError, Kind
from console.models.safetensors import header
from console.models.safetensors.header import read_header
from tests.gguf.raw import Pieces
from tests.safetensors.checkpoints import framed


def pieces(data: bytes, total: int | None = None) -> Pieces:
    return Pieces(data, (1 << 16,))


def entry(begin: int, end: int, dtype: str = "BF16", shape: Any = None) -> dict[str, Any]:
    found = [(end - begin) // 2] if shape is None else shape
    return {"dtype": dtype, "shape": found, "data_offsets": [begin, end]}


def whole(tensors: dict[str, Any], spare: int = 0) -> bytes:
    ends = [
        one["data_offsets"][1] for one in tensors.values()
        if isinstance(one, dict) and isinstance(one.get("data_offsets"), list)
    ]  # fmt: skip
    size = max((end for end in ends if isinstance(end, int) and end < 1 << 20), default=0)
    return framed(json.dumps(tensors).encode()) + bytes(size + spare)


def test_a_header_tells_bytes_and_elements() -> None:
    tensors = {
        "__metadata__": {"format": "pt"}, "a": entry(0, 8), "b": entry(8, 12, "F4", [8]),
        "empty": entry(12, 12, "BF16", [0, 4]), "c": entry(12, 20, "F8_NEW", [5]),
    }  # fmt: skip
    found = read_header(pieces(whole(tensors)))
    assert (found.data_bytes, found.tensors["b"].elements) == (20, 8)
    assert found.unknown == ("F8_NEW",)


HOSTILE: dict[str, bytes] = {
    "overlap": whole({"a": entry(0, 8), "b": entry(4, 12)}),
    "a hole": whole({"a": entry(0, 8), "b": entry(10, 12)}),
    "backwards": whole({"a": entry(8, 0, shape=[4])}),
    "another size than the shape's": whole({"a": entry(0, 8, "F32", [4])}),
    "a negative shape": whole({"a": entry(0, 8, shape=[-2, -2])}),
    "a shape that overflows": whole({"a": entry(0, 8, shape=[1 << 61] * 20)}),
    "offsets that are text": whole({"a": {"dtype": "U8", "shape": [1], "data_offsets": ["0", 1]}}),
    "offsets that are huge": whole({"a": entry(0, 1 << 200, "U8", [1])}),
    "no object": framed(b'{"a": 1}'), "a list": framed(b"[1]"), "no JSON": framed(b"{nope}"),
    "a name twice": framed(b'{"a": {}, "a": {}}'),
    "not UTF-8": framed(b'{"\xff\xfe": 1}'), "deep": framed(b'{"a":' + b"[" * 100_000),
    "metadata that is none": whole({"__metadata__": 7, "a": entry(0, 8)}),
    "a header of 2**63 bytes": (1 << 63).to_bytes(8, "little") + b"{" + bytes(99),
    "a header over the limit": (100_000_001).to_bytes(8, "little") + b"{" + bytes(99),
    "too short": framed(b'{"a": {}}')[:12], "empty": b"", "seven bytes": b"\0" * 7,
    "zeros": bytes(4096), "a pointer": b"version https://git-lfs.github.com/spec/v1\nsize 9",
    "bytes behind": whole({"a": entry(0, 8)}, spare=8), "cut off": whole({"a": entry(0, 8)})[:-1],
    "a long name": whole({"x" * 5000: entry(0, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_no_loader_takes_is_refused_typed(kind: str) -> None:
    with pytest.raises(GgufError) as caught:
        read_header(pieces(HOSTILE[kind]))
    assert caught.value.kind in (Kind.MALFORMED, Kind.TRUNCATED), str(caught.value)
    assert "\x00" not in str(caught.value) + caught.value.detail


def test_more_tensors_than_are_held_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(header, "MAX_TENSORS", 3)
    tensors = {f"t{n}": entry(8 * n, 8 * n + 8) for n in range(6)}
    with pytest.raises(GgufError) as caught:
        read_header(pieces(whole(tensors)))
    assert caught.value.kind is Kind.TOO_BIG


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: framed(text.encode())))
def test_no_bytes_crash_it(data: bytes) -> None:
    with suppress(GgufError):
        assert read_header(pieces(data)).header_bytes <= len(data)
