"""The scan of a library: whole names, tails, strings across pieces, the way from program to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.names import (
    MARK,
    HostPlace,
    Presence,
    digest,
    find,
    near,
    survey,
)

TEXT = b"\0llama\0nomic-bert\0deepseek2\0deepseek32\0deepseek-v3\0mamba"


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize(
    ("name", "presence"),
    [
        ("llama", Presence.WHOLE),
        ("deepseek32", Presence.WHOLE),
        ("bert", Presence.TAIL),
        ("deepseek3_2", Presence.ABSENT),
        ("deepseek", Presence.ABSENT),
        ("mamba", Presence.ABSENT),  # no end: the file stops in the middle of it
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_how_a_name_stands(name: str, presence: Presence, size: int) -> None:
    assert find(cut(TEXT, size), name) is presence


def test_a_name_across_two_blocks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "CHUNK", 2048)
    noise = random.Random(1)
    for at in range(2000, 2100, 3):
        data = bytearray(noise.randbytes(6000).replace(b"\0", b"\1"))
        data[at : at + 12] = b"\0deepseek32\0"
        assert find(cut(bytes(data), 100), "deepseek32") is Presence.WHOLE
        assert "deepseek32" in near(cut(bytes(data), 100), "deepseek3_2")


def test_a_name_that_opens_the_file_is_whole() -> None:
    assert find([b"llama\0"], "llama") is Presence.WHOLE
    assert find([], "llama") is Presence.ABSENT


def test_names_like_it_come_the_most_alike_first() -> None:
    assert near([TEXT + b"\0"], "deepseek3_2") == ("deepseek32", "deepseek2", "deepseek-v3")
    assert near([TEXT], "3x") == ()


def test_the_way_from_a_program_to_its_library(tmp_path: Path) -> None:
    """As Debian has it: the program names one library, that one the next, with a run path."""
    folder = tmp_path / "opt/lib/own"
    folder.mkdir(parents=True)
    program = tmp_path / "opt/bin/llama-server"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF\0libllama-server-impl.so\0$ORIGIN/../lib/own\0")
    (folder / "libllama-server-impl.so").write_bytes(b"\x7fELF\0libllama-core.so.1\0libm.so.6\0")
    (folder / "libllama-core.so.1").write_bytes(b"\x7fELF\0" + MARK + TEXT + b"\0")
    found = survey(HostPlace(), str(program), {})
    assert found is not None
    assert Path(found.path) == (folder / "libllama-core.so.1")
    assert [Path(path).name for path in found.files] == [
        "llama-server", "libllama-server-impl.so", "libllama-core.so.1",
    ]  # fmt: skip
    before = digest(found.files)
    (folder / "libllama-core.so.1").write_bytes(b"\x7fELF\0" + MARK + b"\0other\0")
    assert digest(found.files) != before


def test_a_program_that_leads_nowhere(tmp_path: Path) -> None:
    script = tmp_path / "llama-server"
    script.write_text("#!/bin/sh\nexec something\n")
    assert survey(HostPlace(), str(script), {"LD_LIBRARY_PATH": f"{tmp_path}:relative"}) is None
    (tmp_path / "libllama.so").write_bytes(b"\0" + MARK + TEXT)
    found = survey(HostPlace(), str(script), {})
    assert found is not None, "a library beside the program is found without being named"
    assert survey(HostPlace(), str(tmp_path), {}) is None


def test_the_search_ends(tmp_path: Path) -> None:
    """Libraries that name each other for ever."""
    for number in range(60):
        following = f"libllama{number + 1}.so".encode()
        (tmp_path / f"libllama{number}.so").write_bytes(b"\0" + following + b"\0")
    reads: list[str] = []

    class Counting(HostPlace):
        def has(self, path: str) -> bool:
            reads.append(path)
            return super().has(path)

    assert survey(Counting(), str(tmp_path / "libllama0.so"), {}) is None
    assert len(reads) < names.MOST_TRIES + 3 * names.MOST_FILES
