"""What is opened as a document: a regular, small UTF-8 file, and nothing that could block."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from console.common.errors import Exit, InvalidFile
from console.config.yaml import MAX_BYTES, parse, read_text

PLACE = re.compile(r"^.+:\d+:\d+: .+", re.DOTALL)


def refused(path: Path) -> str:
    with pytest.raises(InvalidFile) as caught:
        read_text(path, "the file cannot be used")
    assert caught.value.exit_code is Exit.USAGE
    (problem,) = caught.value.problems
    assert PLACE.match(str(problem))
    assert problem.file == str(path)
    return str(problem)


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    return path


def test_text_is_read_as_it_stands(tmp_path: Path) -> None:
    assert read_text(write(tmp_path, "a: ünï\r\n".encode()), "t") == "a: ünï\r\n"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    text = read_text(write(tmp_path, b"\xef\xbb\xbfa: 1\n"), "t")
    document = parse(text, "f", "t")
    assert document.data == {"a": 1}
    assert document.keys[("a",)] == (1, 1)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """Nor waited for: a FIFO nobody writes to, and a link to a device, which is a device."""
    fifo, link, loop = tmp_path / "fifo", tmp_path / "site.yaml", tmp_path / "loop"
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    loop.symlink_to(loop)
    assert "a directory" in refused(tmp_path)
    for path in (fifo, link, *map(Path, ("/dev/zero", "/dev/null", "/dev/urandom"))):
        assert "regular file" in refused(path)
    for path in (tmp_path / "none", Path(f"{tmp_path}/a\0b"), tmp_path / ("x" * 5000), loop):
        assert "cannot be read" in refused(path)


def test_a_sparse_file_of_100_mb_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.yaml"
    with path.open("wb") as out:
        out.truncate(100 * 2**20)
    assert "104857600" in refused(path)


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    assert len(read_text(write(tmp_path, b"#" * MAX_BYTES), "t")) == MAX_BYTES
    assert f"{MAX_BYTES + 1} bytes" in refused(write(tmp_path, b"#" * (MAX_BYTES + 1)))


def test_not_utf_8_names_the_line(tmp_path: Path) -> None:
    for data, line in {
        b"a: \xff\n": 1, b"a: 1\nb: 2\nc: \xe9t\xe9\n": 3, b"a: 1\n" * 40 + b"\xc3": 41,
        b"\xff\xfea\x00:\x00": 1, b"ok: 1\n\xed\xa0\x80: half a surrogate pair\n": 2,
    }.items():  # fmt: skip
        path = write(tmp_path, data)
        assert refused(path).startswith(f"{path}:{line}:1: not UTF-8")


def test_no_file_is_left_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in (tmp_path, write(tmp_path, b"\xff"), Path("/dev/zero")):
        refused(path)
    assert set(os.listdir("/proc/self/fd")) - before == set()
