"""Any bytes give a header or a typed error; any cut of the same bytes gives the same."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.common.text import clean
from console.models.gguf.byte_source import GgufError, Kind
from console.models.gguf.header import BY_NUMBER, CODES, Array, Header, ValueType
from console.models.gguf.parser import KEPT_TEXT, Want, parse
from tests.gguf.hostile import CASES, TENSORS
from tests.gguf.raw import Pieces
from tests.testbed.gguf_write import Item, Planned, Typed, data_bytes, encode

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=5).map(tuple)
SLOWLY = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def harmless(text: str) -> bool:
    return clean(text, len(text) + 1) == text and not any(one < " " for one in text)


def outcome(
    data: bytes, lengths: tuple[int, ...], want: Want, sized: bool = True
) -> tuple[str, object]:
    """A header, or the error's kind; anything else is a failure. Never more is kept than came."""
    source = Pieces(data, lengths, sized=sized)
    try:
        found = parse(source, want)
    except GgufError as error:
        said = "".join(error.lines())
        assert harmless(said)
        return "error", (error.kind, error.detail if sized else "")
    finally:
        assert source.pulled <= len(data)
    assert all(harmless(one) for one in [*found.kv, *found.kv.values()] if isinstance(one, str))
    return "header", repr(found)  # NaN is not equal to itself, but its word is


def integers(kind: ValueType) -> st.SearchStrategy[int]:
    bits = 8 * struct.calcsize(f"<{CODES[kind]}")
    signed = kind.name.startswith("INT")
    least = -(2 ** (bits - 1)) if signed else 0
    return st.integers(least, least + 2**bits - 1)


def numbers(kind: ValueType) -> st.SearchStrategy[Any]:
    if kind is ValueType.BOOL:
        return st.booleans()
    if kind in (ValueType.FLOAT32, ValueType.FLOAT64):
        return st.floats(width=32)
    return integers(kind)


TEXTS = st.text(max_size=60) | st.just("x" * (KEPT_TEXT + 1))


@st.composite
def items(draw: st.DrawFn) -> Item:
    kind = draw(st.sampled_from([one for one in ValueType if one is not ValueType.ARRAY]))
    values = TEXTS if kind is ValueType.STRING else numbers(kind)
    if draw(st.booleans()):
        return Typed(kind, draw(values))
    return Typed(kind, draw(st.lists(values, max_size=20)))


KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,9}(\.[a-z0-9_]{1,9}){0,2}", fullmatch=True)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)


@st.composite
def plans(draw: st.DrawFn) -> tuple[dict[str, Item], list[Planned]]:
    kv: dict[str, Item] = draw(st.dictionaries(KEYS, items(), max_size=8))
    kv = {"general.architecture": draw(NAMES), **kv}
    if draw(st.booleans()):
        kv["general.alignment"] = Typed(ValueType.UINT32, 2 ** draw(st.integers(3, 9)))
    planned = []
    for name in draw(st.lists(st.from_regex(r"[a-z0-9._]{1,63}", fullmatch=True), unique=True,
                              max_size=5)):  # fmt: skip
        kind = draw(st.sampled_from(sorted(BY_NUMBER)))
        first = BY_NUMBER[kind].block * draw(st.integers(1, 3))
        rest = draw(st.lists(st.integers(1, 4), max_size=3))
        planned.append(Planned(name, (first, *rest), kind))
    return kv, planned


@SLOWLY
@given(st.binary(max_size=400), LENGTHS, st.sampled_from(Want))
def test_any_bytes(data: bytes, lengths: tuple[int, ...], want: Want) -> None:
    outcome(data, lengths, want)
    outcome(b"GGUF\3\0\0\0" + data, lengths, want)


@SLOWLY
@given(plans(), st.data(), LENGTHS, st.sampled_from(Want))
def test_a_good_header_with_some_bytes_changed(
    plan: tuple[dict[str, Item], list[Planned]],
    data: st.DataObject,
    lengths: tuple[int, ...],
    want: Want,
) -> None:
    raw = bytearray(encode(*plan))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
        raw = raw or bytearray(b"G")
    assert outcome(bytes(raw), lengths, want) == outcome(bytes(raw), (2**20,), want)


@SLOWLY
@given(plans(), LENGTHS, st.sampled_from(Want), st.booleans())
def test_the_same_however_it_is_cut(
    plan: tuple[dict[str, Item], list[Planned]],
    lengths: tuple[int, ...],
    want: Want,
    sized: bool,
) -> None:
    data = encode(*plan)
    assert outcome(data, lengths, want, sized) == outcome(data, (len(data),), want, sized)


@pytest.mark.parametrize("want", Want)
@pytest.mark.parametrize("sized", [True, False])
def test_hostile_headers_however_they_are_cut(want: Want, sized: bool) -> None:
    for name, (data, _) in {**CASES, **TENSORS}.items():
        whole = outcome(data, (2**20,), want, sized)
        for lengths in ((1,), (7,), (64, 1)):
            assert outcome(data, lengths, want, sized) == whole, name


@SLOWLY
@given(plans(), st.data())
def test_every_truncation_is_told(
    plan: tuple[dict[str, Item], list[Planned]], data: st.DataObject
) -> None:
    raw = encode(*plan)
    length = parse(Pieces(raw)).header_bytes
    kept = data.draw(st.integers(0, length - 1))
    kind, found = outcome(raw[:kept], (2**20,), Want.HEADER)
    assert kind == "error"
    assert kept < 4 or str(Kind.TRUNCATED) in str(found)


def expected(item: Item) -> object:
    value = item.value if isinstance(item, Typed) else item
    kind = item.kind if isinstance(item, Typed) else ValueType.STRING
    if isinstance(value, list | tuple):
        kept = None if kind is ValueType.STRING else tuple(value)
        return Array(kind.name, len(value), kept)
    if isinstance(value, str):
        raw = value.encode()
        cut = clean(raw[:KEPT_TEXT].decode("utf-8", "replace"))
        return cut if len(raw) <= KEPT_TEXT else f"{cut}…"
    return value


@SLOWLY
@given(plans())
def test_what_is_written_is_what_is_read(plan: tuple[dict[str, Item], list[Planned]]) -> None:
    kv, planned = plan
    found = parse(Pieces(encode(kv, planned)))
    assert repr(dict(found.kv)) == repr({key: expected(item) for key, item in kv.items()})
    assert found.tensors is not None
    shapes = [(one.name, one.dims, one.type, one.bytes) for one in found.tensors]
    assert shapes == [(one.name, one.dims, one.type, data_bytes(one)) for one in planned]


@SLOWLY
@given(plan=plans())
def test_the_gguf_package_reads_the_same(
    tmp_path: Path, plan: tuple[dict[str, Item], list[Planned]]
) -> None:
    kv, planned = plan
    data = encode(kv, planned)
    found = parse(Pieces(data))
    assert found.tensors is not None
    assert found.file_bytes is not None
    file = tmp_path / "x.gguf"
    file.write_bytes(data.ljust(found.file_bytes, b"\0"))
    theirs = GGUFReader(file)
    if planned:
        assert theirs.data_offset == len(data)
    assert [
        (one.name, tuple(int(n) for n in one.shape), int(one.tensor_type), int(one.n_bytes))
        for one in theirs.tensors
    ] == [(one.name, one.dims, one.type, one.bytes) for one in found.tensors]
    fields = {key: one for key, one in theirs.fields.items() if not key.startswith("GGUF.")}
    assert set(fields) == set(found.kv)
    for key, field in fields.items():
        compare(field, found, key)


def compare(field: Any, found: Header, key: str) -> None:
    ours = found.kv[key]
    if isinstance(ours, Array):
        assert len(field.data) == ours.count
        assert field.types[-1].name == ours.element or not ours.count
        if ours.values is not None:
            assert repr(tuple(field.contents() or ())) == repr(ours.values)
    elif isinstance(ours, str):
        assert expected(field.contents()) == ours
    elif isinstance(ours, float) and math.isnan(ours):
        assert math.isnan(field.contents())
    else:
        assert field.contents() == ours
