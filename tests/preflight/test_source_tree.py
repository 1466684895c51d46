"""Hostile trees: what is read of them is bounded, and what was not read is said."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.sources import tree as trees
from console.checks.preflight.sources.assistant import BuildAsk, findings
from console.checks.preflight.sources.tree import SourceTree
from tests.preflight.build_tree import BLACKWELL, DOCKERFILE, FILES, tree


def fifo(root: Path) -> None:
    (root / "kt-kernel/CMakeLists.txt").unlink()
    os.mkfifo(root / "kt-kernel/CMakeLists.txt")


def out(root: Path) -> None:
    (root.parent / "secret").write_text("find_package(Boost REQUIRED)\n")
    (root / "kt-kernel/CMakeLists.txt").unlink()
    (root / "kt-kernel/CMakeLists.txt").symlink_to(root.parent / "secret")


def circle(root: Path) -> None:
    (root / "archive/again").symlink_to(root)
    (root / "archive/dead").symlink_to(root / "nowhere")


def huge(root: Path) -> None:
    with (root / "kt-kernel/CMakeLists.txt").open("ab") as file:
        file.truncate(1 << 34)


def binary(root: Path) -> None:
    for name in ("kt-kernel/CMakeLists.txt", "archive/setup.py", ".gitmodules"):
        (root / name).write_bytes(b"\xff\0junk" * 1000)


def quotes(root: Path) -> None:
    (root / "kt-kernel/CMakeLists.txt").write_text('set(x "' + '\\"' * 400_000)
    (root / "archive/csrc/balance_serve/CMakeLists.txt").write_text("if(" * 200_000)


def deep(root: Path) -> None:
    (root / "archive/ktransformers/local_chat.py").write_text("(" * 300_000)
    (root / "kt-kernel/CMakeLists.txt").write_text("if(" + "NOT " * 100_000 + "X)\nendif()\n")


def no_python(root: Path) -> None:
    (root / "archive/ktransformers/local_chat.py").write_text("print 'hello'\n")


def loop(root: Path) -> None:
    (root / "kt-kernel/CMakeLists.txt").write_text("add_subdirectory(a)\n")
    for at in range(200):
        folder = root / "kt-kernel" / "/".join("a" * (at + 1))
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("add_subdirectory(a)\ninclude(CMakeLists.txt)\n")


HOSTILE = [(fifo, False), (out, False), (circle, False), (huge, True), (binary, True),
           (quotes, False), (deep, True), (no_python, True), (loop, False)]  # fmt: skip


@pytest.mark.parametrize(("make", "told"), HOSTILE)
def test_a_hostile_tree_is_read_within_limits(
    tmp_path: Path, make: Callable[[Path], None], told: bool
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    root = tree(tmp_path)
    make(root)
    found = findings(BuildAsk(dockerfile=tmp_path / "Dockerfile", source=root), BLACKWELL)
    unread = [one for one in found if one.title == "source tree" or "be read" in one.words]
    assert bool(unread) is told
    assert not any("Boost" in one.words for one in found)


def test_more_entries_than_the_limit_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MAX_ENTRIES", 10)
    (found,) = SourceTree.at(tree(tmp_path)).findings()
    assert found.level is Level.UNKNOWN
    assert "more than 10 entries" in found.words
    monkeypatch.setattr(trees, "MAX_ENTRIES", 1000)
    monkeypatch.setattr(trees, "MAX_READ", 2)
    whole = SourceTree.at(tree(tmp_path))
    assert [whole.text(name) is None for name in sorted(FILES)[:3]] == [False, False, True]
    assert [one.level for one in whole.findings()] == [Level.UNKNOWN]
