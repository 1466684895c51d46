"""Finds the files for lint, tells their kind by name and content, and reads them.

Reading is bounded and never blocks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from console.checks.lint.unit import Kind

MAX_BYTES = 1024 * 1024

_DOCKERFILE = re.compile(r"(?:.+\.)?(?:dockerfile|containerfile)(?:[.-].+)?", re.IGNORECASE)
_NOT_DOCKERFILE = (".md", ".txt", ".yaml", ".yml", ".json", ".dockerignore", ".py", ".sh", ".j2")
_SHEBANG = re.compile(r"#!\s*\S*/(?:env\s+(?:-S\s+)?)?(?:ba|da|z|k)?sh\b")
SHELL_ENDS = (".sh", ".bash", ".zsh", ".ksh")
YAML_ENDS = (".yaml", ".yml")

MAX_FILES = 20_000
_PASSED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache",
     ".pytest_cache", ".ruff_cache", "site-packages"}
)  # fmt: skip


class Unreadable(Exception):
    """A file that cannot be examined, with a short reason."""


def read(path: Path) -> str:
    """UTF-8 text of a regular file of at most MAX_BYTES. Raises Unreadable."""
    try:
        # O_NONBLOCK: opening a FIFO nobody writes to must not hang
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"cannot be read: {words}") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Unreadable("not a regular file")
        if info.st_size > MAX_BYTES:
            raise Unreadable(f"{info.st_size} bytes; at most {MAX_BYTES} are read")
        data = os.read(fd, MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if b"\0" in data:
        raise Unreadable("not text: it has NUL bytes")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from error


def kind_by_name(path: Path) -> Kind | None:
    """Recognise a Dockerfile or script by its name; YAML has to be read."""
    name = path.name.lower()
    if name.endswith(SHELL_ENDS):
        return Kind.SHELL
    if _DOCKERFILE.fullmatch(name) and not name.endswith(_NOT_DOCKERFILE):
        return Kind.DOCKERFILE
    return None


def is_yaml(path: Path) -> bool:
    return path.name.lower().endswith(YAML_ENDS)


def kind_by_text(text: str) -> Kind | None:
    """Recognise a script by its first line, a Dockerfile by its first instruction."""
    if _SHEBANG.match(text):
        return Kind.SHELL
    for line in text.splitlines()[:200]:
        line = line.strip()
        if line and not line.startswith("#"):
            first = line.split(None, 1)
            return Kind.DOCKERFILE if first[0] in ("FROM", "ARG") and len(first) == 2 else None
    return None


class TooMany(Exception):
    """There are more files than lint accepts at once."""


def walk(given: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, problem of a directory on the way or ""); a directory gives the files that may
    be of a known kind. In order, links not followed. Raises TooMany."""
    failed: list[tuple[Path, str]] = []

    def note(error: OSError) -> None:
        failed.append((Path(error.filename or given), f"cannot be read: {error.strerror}"))

    count = 0
    for folder, folders, names in os.walk(given, onerror=note):
        folders[:] = sorted(subfolder for subfolder in folders if subfolder not in _PASSED)
        for name in sorted(names):
            path = Path(folder, name)
            if not _may_be(path):
                continue
            count += 1
            if count > MAX_FILES:
                raise TooMany(f"more than {MAX_FILES} files")
            yield path, ""
    yield from failed


def _may_be(path: Path) -> bool:
    """Whether the name alone allows a known kind: other files are not opened."""
    if path.is_symlink():
        return False
    return is_yaml(path) or kind_by_name(path) is not None
