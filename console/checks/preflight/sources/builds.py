"""What a command of a Dockerfile builds: which folders of the image, and how."""

from __future__ import annotations

import posixpath
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from console.checks.lint import dockerfile, vocabulary
from console.checks.lint.unit import Command, Place, Word
from console.checks.preflight.sources.tree import SourceTree

_CMAKE_OTHER = ("--build", "--install", "-E", "-P", "--version", "--help", "--find-package",
                "--open")  # fmt: skip
_CMAKE_VALUED = ("-B", "-G", "-D", "-S", "-C", "-A", "-T", "-U", "--preset", "--toolchain",
                 "--install-prefix", "--log-level")  # fmt: skip
"""Options of cmake that take a value."""
_ELSEWHERE = ("CMAKE_TOOLCHAIN_FILE", "CMAKE_PREFIX_PATH", "CMAKE_PROJECT_TOP_LEVEL_INCLUDES")
"""Settings with which CMake finds packages that no package manager installed."""


@dataclass(frozen=True, slots=True)
class Build:
    """A folder that a command builds; `isolated`: pip makes an environment of its own for it;
    `packs`: it makes a wheel, which another command installs."""

    folder: str
    isolated: bool = False
    packs: bool = False


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
    several = word.text.startswith("$") and text != word.text
    parts = _shell_words(text) if several else [text]
    yield from (Word.made(part, word.place) for part in parts)


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def builds(command: Command) -> list[Build]:
    """What it builds, its variables filled in; a folder whose name is not known is left out."""
    alone = not command.has("--no-build-isolation", "--no-isolation")
    pip = bool(vocabulary.pip_words(command)) and alone
    packs = any(word.text in ("bdist_wheel", "sdist") for word in command.args)
    candidates = [Build(folder, pip, packs) for folder in vocabulary.built_folders(command)]
    if not candidates and command.name == "cmake":
        candidates = [Build(folder) for folder in _of_cmake(command)]
    packed = (vocabulary.joined(command, step) for step in _packed(command))
    candidates += [Build(folder, alone, packs=True) for folder in packed]
    verb = command.words[1].text if len(command.words) > 1 else ""
    if command.name in ("uv", "poetry", "pdm") and verb in ("sync", "install"):
        candidates.append(Build(command.folder, isolated=True))
    return [build for build in candidates if "$" not in build.folder and "`" not in build.folder]


def made_by(command: Command) -> set[str]:
    """The names of the directories in which a cmake command builds."""
    given = [value for value, _ in command.options("-B")]
    given += [w.text[2:] for w in command.args if w.text.startswith("-B") and len(w.text) > 2]
    return {posixpath.basename(folder.rstrip("/")) for folder in given}


def fetches(command: Command) -> bool:
    """Whether a command may bring sources in another way than `git clone`."""
    texts = {word.text for word in command.args}
    return (
        command.name in ("tar", "bsdtar", "unzip", "rsync", "svn", "hg", "gh")
        or (command.name == "git" and bool(texts & {"fetch", "pull", "archive", "worktree"}))
        or any(
            "://" in word.text and not word.text.partition("#")[0].endswith(".whl")
            for word in vocabulary.pip_words(command)
        )
    )


def _packed(command: Command) -> Iterator[str]:
    """The folders of which a command makes a wheel."""
    for word in vocabulary.pip_words(command, "wheel"):
        if step := vocabulary.local_folder(word.text):
            yield step
    verb = command.words[1].text if len(command.words) > 1 else ""
    words = command.args[1:]
    if vocabulary.module(command) == "build":
        at = [word.text for word in command.args].index("build")
        words = command.args[at + 1 :]
    elif not (command.name in ("uv", "poetry", "pdm", "hatch", "flit") and verb == "build"):
        return
    valued = ("-o", "--outdir", "-C", "--config-setting", "--installer", "--out-dir", "-t")
    yield next((word.text for word in vocabulary.plain(words, valued)), ".")


def installs_files(command: Command) -> bool:
    """Whether pip installs wheels that lie there: by their names, or found in a directory."""
    files = any(vocabulary.is_archive(word.text) for word in vocabulary.pip_words(command))
    folders = [value for value, _ in command.options("--find-links", "-f") if "://" not in value]
    return files or (bool(folders) and bool(vocabulary.pip_words(command)))


def _of_cmake(command: Command) -> Iterator[str]:
    texts = [word.text for word in command.args]
    if any(text in _CMAKE_OTHER for text in texts):
        return
    sources = [value for value, _ in command.options("-S")]
    sources += [text[2:] for text in texts if text.startswith("-S") and text[2:3] not in ("", "=")]
    rest = [word.text for word in vocabulary.plain(command.args, _CMAKE_VALUED)]
    rest = [text for text in rest if not any(sign in text for sign in "=$`")]
    yield posixpath.join(command.folder or "/", (sources or rest or ["."])[0])


def defined(command: Command, setting: Callable[[str], str | None]) -> tuple[dict[str, str], bool]:
    """(what a command defines for CMake, whether nothing else that is not read here defines more).
    `setting`: the value of an environment variable."""
    words = list(command.args)
    if command.name != "cmake":
        for name in ("CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CONFIGURE_OPTIONS"):
            words += _words(setting(name) or "", command.place)
        for key, value in _settings_of_pip(command):
            if key in ("cmake.args", "skbuild.cmake.args"):
                words += _words(value, command.place)
            elif ".define." in f".{key}":
                words.append(Word.made(f"-D{key.rpartition('.')[2]}={value}", command.place))
    definitions = {name: value for name, value, _ in vocabulary.defines(tuple(words))}
    elsewhere = any(definitions.get(name) or setting(name) for name in _ELSEWHERE)
    cached = command.name == "cmake" and any(
        word.text.startswith(("-C", "--preset", "--toolchain")) for word in command.args
    )
    return definitions, not elsewhere and not cached


def _settings_of_pip(command: Command) -> Iterator[tuple[str, str]]:
    """`-C KEY=VALUE` and `--config-settings=KEY=VALUE`."""
    given = [text for text, _ in command.options("-C", "--config-settings", "--config-setting")]
    given += [w.text[2:] for w in command.args if w.text.startswith("-C") and len(w.text) > 2]
    for setting in given:
        key, _, value = setting.partition("=")
        yield key, value


def _words(text: str, place: Place) -> list[Word]:
    """A list of arguments in a variable or a setting: between spaces, or semicolons."""
    parts = [part for shell_word in _shell_words(text) for part in shell_word.split(";")]
    return [Word.made(part, place) for part in parts if part]


def of_project(tree: SourceTree, part: str) -> dict[str, str]:
    """What setup.py and pyproject.toml define for CMake; a value that is not known is "?"."""
    definitions = dict.fromkeys(
        re.findall(r"-D\s*([A-Za-z]\w*)", tree.text(posixpath.join(part, "setup.py")) or ""), "?"
    )
    try:
        data = tomllib.loads(tree.text(posixpath.join(part, "pyproject.toml")) or "")
        settings = data["tool"]["scikit-build"]
    except (tomllib.TOMLDecodeError, RecursionError, KeyError, TypeError):
        return definitions
    definitions |= dict.fromkeys(re.findall(r"-D\s*([A-Za-z]\w*)", str(settings)), "?")
    for table in (settings, settings.get("cmake") if isinstance(settings, dict) else None):
        more = table.get("define") if isinstance(table, dict) else None
        for name, value in more.items() if isinstance(more, dict) else ():
            definitions[name] = str(value) if isinstance(value, str | bool) else "?"
    dotted = settings.get("overrides") if isinstance(settings, dict) else None
    return dict.fromkeys(definitions, "?") if dotted else definitions
