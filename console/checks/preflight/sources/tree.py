"""A source tree, listed once and read within limits: nothing here hangs, and links that lead out of
it are not followed."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from console.checks.lint import files
from console.checks.preflight import Finding, Level
from console.common.text import one_line
from console.common.units import format_bytes

MAX_ENTRIES = 60_000
MAX_READ = 4_000
MAX_BYTES = 48 << 20
LIMIT_S = 30.0
_PASSED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})


@dataclass(frozen=True, slots=True)
class Submodule:
    """A path that .gitmodules declares, the line that says so, and whether nothing is there."""

    path: str
    line: int
    empty: bool


@dataclass
class SourceTree:
    """Relative POSIX paths of the files below `root`, and their text when it is asked for. `cut`
    says why something was not read, "" if all was."""

    root: Path
    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    size: int = 0
    cut: str = ""
    _until: float = 0.0
    _read: int = 0
    _bytes: int = 0
    _texts: dict[str, str | None] = field(default_factory=dict)
    _full: set[str] = field(default_factory=set)

    @classmethod
    def at(cls, root: Path) -> SourceTree:
        """List a tree; raises nothing: what cannot be read is missing, and `cut` says so."""
        tree = cls(Path(os.path.realpath(root)), _until=time.monotonic() + LIMIT_S)
        tree._list()
        return tree

    def _list(self) -> None:
        paths, folders, todo, count = set[str](), {""}, [""], 0
        while todo:
            below = todo.pop()
            try:
                entries = os.scandir(self.root / below)
            except OSError as error:
                self.cut = self.cut or f"{below or '.'} cannot be read: {error.strerror}"
                continue
            with entries:
                for entry in entries:
                    count += 1
                    if count > MAX_ENTRIES or time.monotonic() > self._until:
                        self.cut = f"it has more than {MAX_ENTRIES} entries, or answers too slowly"
                        todo.clear()
                        break
                    path = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _PASSED:
                            folders.add(path)
                            todo.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        paths.add(path)
                        self.size += _size(entry)
                    elif entry.is_symlink() and self._stays(path):
                        (folders if entry.is_dir() else paths).add(path)
        self.files, self.folders = frozenset(paths), frozenset(folders)

    def _stays(self, path: str) -> bool:
        """Whether a link leads to something inside the tree."""
        try:
            real = os.path.realpath(self.root / path)
        except OSError:
            return False
        return real.startswith(f"{self.root}{os.sep}") and os.path.exists(real)

    def text(self, path: str) -> str | None:
        """A file's text; None if it is not there, not text, too large, or the limits are spent."""
        if path not in self.files:
            return None
        if path not in self._texts:
            self._texts[path] = self._text(path)
        return self._texts[path]

    def _text(self, path: str) -> str | None:
        spent = self._read >= MAX_READ or self._bytes >= MAX_BYTES
        if spent or time.monotonic() > self._until:
            most = f"{MAX_READ} files or {format_bytes(MAX_BYTES)}"
            self.cut = self.cut or f"more than {most} to read, or they came too slowly"
            return None
        self._read += 1
        try:
            text = files.read(self.root / path)
        except files.Unreadable as error:
            self.cut = self.cut or f"{one_line(path, 100)}: {error}"
            return None
        self._bytes += len(text)
        return text

    def below(self, folder: str) -> Iterator[str]:
        """The files below a folder, in order; "" is the tree itself."""
        return iter(sorted(p for p in self.files if not folder or p.startswith(f"{folder}/")))

    def has(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def place(self, path: str, line: int = 0) -> str:
        """`archive/setup.py:12`, relative to the tree's own directory."""
        return f"{self.root.name}/{path}:{line}" if line else f"{self.root.name}/{path}"

    def submodules(self) -> list[Submodule]:
        """What .gitmodules declares."""
        declarations = []
        for number, line in enumerate((self.text(".gitmodules") or "").split("\n")[:5000], 1):
            key, sign, value = line.partition("=")
            if sign and key.strip() == "path":
                path = posixpath.normpath(value.strip().strip('"'))
                if not path.startswith(("..", "/")):
                    declarations.append(Submodule(path, number, self._empty(path)))
        return declarations

    def _empty(self, path: str) -> bool:
        """Whether nothing but git's own `.git` lies there; a link is not followed out of it."""
        if not self._full:
            inside = (*self.files, *self.folders - {""})
            self._full = {
                posixpath.dirname(inner_path)
                for inner_path in inside
                if not inner_path.endswith("/.git")
            }
        return path not in self._full and path not in self.files

    def findings(self) -> Iterator[Finding]:
        """What was not read: that is never good news."""
        if self.cut:
            words = f"not all of it was read: {self.cut}"
            hint = "name the directory of the sources alone, without models and build outputs"
            yield Finding(Level.UNKNOWN, "source tree", words, hint, place=self.root.name)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def inside(path: str) -> str | None:
    """A relative path in its shortest form; None if it leads out of the tree."""
    short = posixpath.normpath(path)
    if short.startswith(("..", "/")):
        return None
    return "" if short == "." else short
