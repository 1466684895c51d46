"""Headers that are written: small probes, and what cannot be written."""

from __future__ import annotations

import struct

import pytest

from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import parse
from console.models.gguf.write import Planned, Typed, data_bytes, encode, probe
from tests.gguf.raw import LLAMA, Pieces, header


def test_a_probe_is_a_few_dozen_bytes() -> None:
    data = probe("llama")
    assert data == header(LLAMA)
    assert len(data) < 80
    assert parse(Pieces(data)).architecture == "llama"


def test_bare_values_get_the_types_engines_ask_for() -> None:
    found = parse(Pieces(probe("x", {"n": 7, "m": -7, "f": 0.5, "t": True, "s": "ü"})))
    assert (found.kv["n"], found.kv["m"], found.kv["f"]) == (7, -7, 0.5)
    assert found.flag("t") is True
    assert found.text("s") == "ü"
    assert struct.pack("<I", T.BOOL) + b"\1" in probe("x", {"t": True})
    assert struct.pack("<IQB", T.ARRAY, 0, 0)[:4] in encode({"a": Typed(T.UINT8, [])})


def test_bytes_of_a_planned_tensor() -> None:
    assert data_bytes(Planned("w", (256, 3, 2), 12)) == 6 * 144
    assert data_bytes(Planned("scalar", ())) == 4


def test_what_cannot_be_written() -> None:
    with pytest.raises(struct.error):
        encode({"n": Typed(T.UINT8, 256)})
    with pytest.raises(KeyError):
        encode({}, [Planned("w", (32,), 999)])
    with pytest.raises(ValueError, match="no multiple"):
        encode({}, [Planned("w", (33,), 8)])
    with pytest.raises(TypeError, match="no string"):
        encode({"s": Typed(T.STRING, 1)})
    with pytest.raises(TypeError, match="no integer"):
        encode({"general.alignment": "32"}, [Planned("w", (32,))])
