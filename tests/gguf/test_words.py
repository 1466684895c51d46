"""What is said of headers that cannot be had, word for word: `make golden` writes it anew."""

import os
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.models.gguf.byte_source import GgufError
from console.models.gguf.header import ValueType, type_name
from console.models.gguf.parser import Want, parse
from console.models.gguf.read import check_shards, read_architecture, read_header
from tests.clock import FakeClock
from tests.gguf.hostile import CASES, TENSORS
from tests.gguf.raw import LLAMA, Pieces, array, big_endian, header, tensor, text, u64
from tests.gguf.server import serving
from tests.gguf.test_cache import BAD
from tests.gguf.test_misbehaving import DATA, FIRST_READ, LATE, MISBEHAVING, error_of, refused, says
from tests.gguf.test_parse import NO_FILES

ADDRESSES = [
    "http://me:5ecret@host/x", "http://host/x y", "http://host/\x1b[2J", "http:///x.gguf",
    "http://host:99999/x", "http://a..b/x",
]  # fmt: skip


def said(error: GgufError, *hidden: tuple[str, str]) -> list[str]:
    lines = [re.sub(r"127\.0\.0\.1:\d+", "SERVER", line) for line in error.lines()]
    for path, shown in hidden:
        lines = [line.replace(path, shown) for line in lines]
    assert "".join(lines).isprintable()
    return [error.kind.value, *lines]


def test_hostile_headers(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    found = {}
    for case, data in {**CASES, **TENSORS}.items():
        file.write_bytes(data)
        with pytest.raises(GgufError) as caught:
            read_header(file)
        found[case] = said(caught.value, (str(tmp_path), "DIR"))
    assert found == snapshot


def test_files(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    contents = {
        "big.gguf": big_endian(), "type.gguf": header(text(b"general.type", b"imatrix")),
    }  # fmt: skip
    for file, data in contents.items():
        (tmp_path / file).write_bytes(data)
    found = {}
    for file in [*NO_FILES, *contents]:
        with pytest.raises(GgufError) as caught:
            read_architecture(tmp_path / file)
        found[file] = said(caught.value, (str(tmp_path), "DIR"))
    tokens = array(b"tokens", ValueType.STRING, 2**20, (u64(100) + b"x" * 100) * 40_000)
    with pytest.raises(GgufError) as caught:
        parse(Pieces(header(tokens, count=2), sized=False), Want.ARCHITECTURE, 2**20)
    found["no end"] = said(caught.value)
    (tmp_path / "odd.gguf").write_bytes(header(LLAMA, tensors=[tensor(b"a", [64], 999)]))
    (tmp_path / "cut.gguf").write_bytes(header(LLAMA, tensors=[tensor(b"a", [64])]))
    for file in ("odd.gguf", "cut.gguf"):
        found[file] = list(read_header(tmp_path / file).notes)
    assert found | {"types": [type_name(12), type_name(999)]} == snapshot


def test_servers(snapshot: SnapshotAssertion) -> None:
    found = {}
    for case, answer in MISBEHAVING.items():
        found[case] = said(refused(answer, clock=FakeClock()))
    for status in (401, 429):
        with serving(says(status)) as server:
            found[f"{status} without a token"] = said(error_of(server.url))
    with serving(says(200, LATE)) as server:
        found["no ranges"] = said(error_of(server.url, read_architecture))
    for answer in (says(200, DATA), says(206, DATA[:FIRST_READ])):
        with serving(answer) as server:
            found[f"notes {len(found)}"] = list(read_architecture(server.url).notes)
    for number, url in enumerate(ADDRESSES):
        found[f"address {number}"] = said(error_of(url))
    assert found == snapshot


def test_sets_of_shards(snapshot: SnapshotAssertion) -> None:
    assert [check_shards(files, headers) for files, headers in BAD] == snapshot
