"""What a command of a Dockerfile builds: which folders of the image, and how."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from console.checks.lint import dockerfile, vocabulary
from console.checks.lint.unit import Command, Word

_CMAKE_OTHER = ("--build", "--install", "-E", "-P", "--version", "--help", "--find-package",
                "--open")  # fmt: skip
_CMAKE_VALUED = ("-B", "-G", "-D", "-S", "-C", "-A", "-T", "-U", "--preset", "--toolchain",
                 "--install-prefix", "--log-level")  # fmt: skip
"""Options of cmake that take a value."""


@dataclass(frozen=True, slots=True)
class Build:
    """A folder that a command builds; `isolated`: pip makes an environment of its own for it."""

    folder: str
    isolated: bool = False


def read(command: Command, values: Mapping[str, str]) -> Command:
    """The command with its variables filled in; one that is a whole word may become several."""
    return replace(command, words=tuple(
        made for word in command.words for made in _split(word, values)
    ))  # fmt: skip


def _split(word: Word, values: Mapping[str, str]) -> Iterator[Word]:
    if "$" not in word.text:
        yield word
        return
    text = dockerfile.expanded(word.text, dict(values))
    parts = [text]
    if word.text.startswith("$") and text != word.text:
        try:
            parts = shlex.split(text)
        except ValueError:
            parts = text.split()
    yield from (Word.made(one, word.place) for one in parts)


def builds(command: Command) -> list[Build]:
    """What it builds, its variables filled in; a folder whose name is not known is left out."""
    alone = bool(vocabulary.pip_words(command)) and not command.has("--no-build-isolation")
    found = [Build(folder, alone) for folder in vocabulary.built_folders(command)]
    if not found and command.name == "cmake":
        found = [Build(folder) for folder in _of_cmake(command)]
    return [one for one in found if "$" not in one.folder and "`" not in one.folder]


def _of_cmake(command: Command) -> Iterator[str]:
    texts = [word.text for word in command.args]
    if any(one in _CMAKE_OTHER for one in texts):
        return
    sources = [value for value, _ in command.options("-S")]
    sources += [one[2:] for one in texts if one.startswith("-S") and one[2:3] not in ("", "=")]
    rest = [word.text for word in vocabulary.plain(command.args, _CMAKE_VALUED)]
    rest = [one for one in rest if not any(sign in one for sign in "=$`")]
    yield posixpath.join(command.folder or "/", (sources or rest or ["."])[0])


def defined(command: Command) -> dict[str, str]:
    """What a command defines for CMake."""
    return {name: value for name, value, _ in vocabulary.defines(command.args)}
