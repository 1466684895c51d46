"""Any bytes, of a file or a server, give a header or a typed error, however they are cut."""

import math
import socketserver
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from console.common.text import clean
from console.models.gguf.byte_source import GgufError, Kind, follow, parse_address
from console.models.gguf.header import BY_NUMBER, CODES, Array, Header, ValueType
from console.models.gguf.parser import KEPT_TEXT, Want, parse
from console.models.gguf.read import read_header
from tests.gguf.hostile import CASES, TENSORS
from tests.gguf.raw import Pieces
from tests.runtime.serving import at_work
from tests.testbed.gguf_write import Item, Planned, Typed, encode

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


Plan = tuple[dict[str, Item], list[Planned]]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
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
@given(plans(), st.data(), LENGTHS, st.sampled_from(Want), st.booleans())
def test_a_header_with_some_bytes_changed_or_none_is_the_same_however_it_is_cut(
    plan: Plan, data: st.DataObject, lengths: tuple[int, ...], want: Want, sized: bool
) -> None:
    raw = bytearray(encode(*plan))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
        raw = raw or bytearray(b"G")
    whole = outcome(bytes(raw), (2**20,), want, sized)
    assert outcome(bytes(raw), lengths, want, sized) == whole


@pytest.mark.parametrize("want", Want)
@pytest.mark.parametrize("sized", [True, False])
def test_hostile_headers_however_they_are_cut(want: Want, sized: bool) -> None:
    for name, data in {**CASES, **TENSORS}.items():
        whole = outcome(data, (2**20,), want, sized)
        for lengths in ((1,), (7,), (64, 1)):
            assert outcome(data, lengths, want, sized) == whole, name


@SLOWLY
@given(plans(), st.data())
def test_every_truncation_is_told(plan: Plan, data: st.DataObject) -> None:
    raw = encode(*plan)
    length = parse(Pieces(raw)).header_bytes
    kept = data.draw(st.integers(0, length - 1))
    kind, found = outcome(raw[:kept], (2**20,), Want.HEADER)
    assert kind == "error"
    assert kept < 4 or str(Kind.TRUNCATED) in str(found)


@SLOWLY
@given(plan=plans())
def test_the_gguf_package_reads_the_same(tmp_path: Path, plan: Plan) -> None:
    data = encode(*plan)
    found = parse(Pieces(data))
    assert found.tensors is not None
    assert found.file_bytes is not None
    file = tmp_path / "x.gguf"
    file.write_bytes(data.ljust(found.file_bytes, b"\0"))
    theirs = GGUFReader(file)
    if plan[1]:
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
        raw = field.contents().encode()
        cut = clean(raw[:KEPT_TEXT].decode("utf-8", "replace"))
        assert ours == (cut if len(raw) <= KEPT_TEXT else f"{cut}…")
    elif isinstance(ours, float) and math.isnan(ours):
        assert math.isnan(field.contents())
    else:
        assert field.contents() == ours


LINES = st.sampled_from(
    [b"HTTP/1.1 206 x", b"HTTP/1.1 200 OK", b"HTTP/1.0 302 x", b"HTTP/1.1 429 x", b"HTTP/1.1 100 x",
     b"Content-Length: 5", b"Content-Length: " + b"9" * 5000, b"Content-Length: -1", b"", b"GGUF",
     b"Content-Range: bytes 0-4/5", b"Content-Range: bytes 0-4/" + b"9" * 5000, b"Location: /x",
     b"Location: http://[", b"Location: \xff\x1b[2J", b"Transfer-Encoding: chunked", b"5", b"0",
     b"ffffffffffffffffff", b"RateLimit: a;t=99999999999999999999", b"Retry-After: Mon, 99 Foo",
     b"X-Linked-Size: 99999999999999999999999", b"ETag: \x00", b"Connection: close"]
)  # fmt: skip
ANSWERS = st.lists(LINES | st.binary(max_size=30), max_size=12).map(b"\r\n".join)
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class Raw(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    said = b""

    def handle_error(self, request: object, address: object) -> None:
        pass  # the client hung up


class Says(socketserver.StreamRequestHandler):
    """Answers every request with the same bytes, and hangs up."""

    server: Raw

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(self.server.said)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with Raw(("127.0.0.1", 0), Says) as server, at_work(server):
        yield server


@FUZZ
@given(said=ANSWERS)
@example(said=b"HTTP/1.1 206 x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
@example(said=b"HTTP/1.1 302 x\r\nLocation: /%0d%0a\r\nContent-Length: 99999999\r\n\r\n")
@example(said=b"HTTP/1.1 429 x\r\nRetry-After: Mon, 01 Jan 0001 00:00:00 -2359\r\n\r\n")
def test_any_answer(raw: Raw, said: bytes) -> None:
    raw.said = said
    with pytest.raises(GgufError) as caught:
        read_header(f"http://127.0.0.1:{raw.server_address[1]}/x?5ecret", deadline_s=5.0)
    words = "".join(caught.value.lines())
    assert clean(words, len(words) + 1) == words
    assert "5ecret" not in words


@FUZZ
@given(st.text(max_size=60))
@example("[")
@example("//[::1]:x/")
@example("https://[::1%25eth0]/")
def test_any_address(text: str) -> None:
    start = parse_address("https://host/a/b?q")
    for work in (
        lambda: parse_address(text),
        lambda: parse_address(f"https://{text}"),
        lambda: follow(start, text, start),
    ):
        try:
            found = work()
        except GgufError:
            continue
        assert found.target.isascii()
        assert found.target.isprintable()
        assert found.authority.isascii()
        assert " " not in found.authority + found.target
