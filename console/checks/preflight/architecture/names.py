"""Which names a llama.cpp build knows: a scan of its library in bounded memory, without ldd, and
the loader's answer to a probe.

The compiler leaves each name of a table as a string that ends with NUL. It may not begin after one:
linkers store `qwen2` in the tail of a longer string with the same end. So the build does not know a
name that is absent, while one that is present may mean something else (a chat template, a
tokenizer, an architecture that is listed but not built): only the loader knows.

The probe for the loader is a GGUF of 80 bytes that names an architecture. llama.cpp looks the name
up before it needs anything else, so it either refuses the name or complains of the next key.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import posixpath
import re
import shlex
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from console.common.options.start import start
from console.common.text import one_line
from console.models.gguf.header import ARCHITECTURE, ValueType, pad, row_bytes, type_of

CHUNK = 1 << 20
OVERLAP = 512
"""No string that is searched for is longer, in bytes."""
MAX_FILES = 12
MAX_TRIES = 120
NEAR = 6
SPAN = 200
NO_BUILD = "no llama.cpp build is known here: name one with --binary"
MARK = b"%s.context_length\0"
"""A string of llama.cpp's own: the file that has it holds the table of architectures."""
TYPE_MARK = b"q8_K\0"
"""A name that every table of tensor types has: it is in libggml-base, or in the program itself."""
PROBED, ROWS = 256, 8
"""Elements of a row of a probe's tensor, a multiple of every type's block, and its rows, a multiple
of what repacked types take together."""
ALIGNMENT = 32
STANDARD = (
    "/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/lib64",
    "/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/app", "/app/lib",
)  # fmt: skip
USUAL = ("libllama.so", "libllama.so.0")
_LIBRARY = re.compile(rb"\0(lib[\w.+-]{0,40}(?:llama|ggml)[\w.+-]{0,40}\.so[.\d]{0,20})(?=\0)")
_BESIDE = re.compile(r"lib[\w.+-]*(?:llama|ggml|mtmd)[\w.+-]*\.so(?:\.|$)")
_RUNPATH = re.compile(rb"\0((?:\$ORIGIN|/)[\w./+:$-]{0,300})(?=\0)")


class Presence(StrEnum):
    WHOLE = "whole"
    TAIL = "tail"
    ABSENT = "absent"


class Place(Protocol):
    """Where files are read from: this machine, or an image."""

    def has(self, path: str) -> bool:
        """Whether there is a readable file."""

    def read(self, path: str) -> Iterator[bytes]:
        """A file in pieces of any size, links followed; nothing if there is none."""


@dataclass(frozen=True, slots=True)
class Library:
    """The file that holds the table, and all files that were read to find it."""

    path: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    path: str
    presence: Presence


def overlapping(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces as blocks that overlap, so that no string is cut in two; the first has a NUL before
    it, for a string at the start of the file."""
    rest, waiting = b"\0", bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= CHUNK:
            block = rest + waiting
            rest, waiting = block[-OVERLAP:], bytearray()
            yield block
    yield rest + waiting


def find(pieces: Iterable[bytes], name: str) -> Presence:
    tail = name.encode() + b"\0"
    whole, presence = b"\0" + tail, Presence.ABSENT
    for block in overlapping(pieces):
        if whole in block:
            return Presence.WHOLE
        if tail in block:
            presence = Presence.TAIL
    return presence


def near(pieces: Iterable[bytes], name: str) -> tuple[str, ...]:
    """Strings of a file that begin like a name, the most similar first."""
    stem = re.match(r"[A-Za-z]{1,5}", name)
    if stem is None or len(stem[0]) < 2:
        return ()
    # A literal beginning keeps the search at full speed.
    pattern = re.compile(rb"\0(" + stem[0].encode() + rb"[A-Za-z0-9_.-]{0,40})(?=\0)")
    seen: set[str] = set()
    for block in overlapping(pieces):
        seen.update(string.decode("ascii") for string in pattern.findall(block)[:SPAN])
        if len(seen) > SPAN:
            break
    seen.discard(name)
    return tuple(difflib.get_close_matches(name, sorted(seen), NEAR, 0.5))


def survey(
    place: Place, program: str, env: Mapping[str, str], mark: bytes = MARK
) -> Library | None:
    """The library with the table that `mark` is a string of, found from a program by following the
    file names in each file; None if none was found. Reads at most MAX_FILES files."""
    folders = [posixpath.dirname(program)]
    folders += [
        folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")
    ]
    wanted: list[str] = []
    read: list[str] = []
    tries = 0
    waiting = [program]
    while waiting and len(read) < MAX_FILES:
        path = waiting.pop(0)
        read.append(path)
        there, libraries, paths = _look(place, path, mark)
        if there:
            return Library(path, tuple(read))
        folders += [folder for folder in paths if folder not in folders]
        wanted += [library for library in libraries if library not in wanted]
        # libllama itself first: it is what the others lead to.
        names = sorted([*wanted, *USUAL], key=lambda name: not name.startswith("libllama.so"))
        for target in _targets(names, folders):
            if target in read or target in waiting or tries >= MAX_TRIES:
                continue
            tries += 1
            if place.has(target):
                waiting.append(target)
    return None


def _targets(names: Iterable[str], folders: list[str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        for folder in dict.fromkeys([*folders, *STANDARD]):
            yield posixpath.join(folder, name)


def _look(place: Place, path: str, mark: bytes) -> tuple[bool, list[str], list[str]]:
    """Whether a file holds the table; if not, the libraries and folders that it names."""
    # Two passes: the first is a plain search at full speed, and most often enough.
    if any(mark in block for block in overlapping(place.read(path))):
        return True, [], []
    libraries: dict[str, None] = {}
    folders: dict[str, None] = {}
    origin = posixpath.dirname(path)
    for block in overlapping(place.read(path)):
        libraries |= {library.decode(): None for library in _LIBRARY.findall(block)[:SPAN]}
        for run_path in _RUNPATH.findall(block)[:SPAN] if libraries else ():
            text = run_path.decode().replace("$ORIGIN", origin)
            folders |= {posixpath.normpath(folder): None for folder in text.split(":") if folder}
        if len(libraries) + len(folders) > SPAN:
            break
    return (
        False,
        list(libraries),
        [folder for folder in folders if "lib" in folder or origin in folder],
    )


class HostPlace:
    """The files of this machine."""

    def has(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.R_OK)

    def read(self, path: str) -> Iterator[bytes]:
        if self.has(path):
            with Path(path).open("rb", buffering=0) as file:
                while piece := file.read(CHUNK):
                    yield piece


def digest(paths: Iterable[str]) -> str:
    """sha256 (hex) over files of this machine, in order. Raises OSError."""
    total = hashlib.sha256()
    for path in paths:
        with Path(path).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def state_beside(paths: Iterable[str]) -> str:
    """A digest of which libraries of ggml and llama.cpp lie beside these files, and of their sizes
    and times; they are not read."""
    file_states = []
    for folder in sorted({posixpath.dirname(path) for path in paths}):
        with os.scandir(folder) as entries:
            for entry in entries:
                if _BESIDE.match(entry.name) and entry.is_file():
                    stat = entry.stat()
                    file_states.append(
                        (folder, entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns)
                    )
    return hashlib.sha256(repr(sorted(file_states)).encode()).hexdigest()


LINE = 300
PLAIN = "llama"
"""An architecture that every build has."""
FAILED = "error loading model"
"""How llama.cpp's loader begins the line that says why it gave up."""
_REFUSED = re.compile(r"(?:unknown|unsupported) model architecture: '")
_PROJECTOR = re.compile(r"cannot be used as main model")
_MISSED = re.compile(r"key not found in model: (\S+)")
_PAST = re.compile(r"error loading model (?:hyperparameters|vocabulary):")
_VERSION = re.compile(r"^version: (?:.*\(build (\d+)[,)]|(\d+) \()")
_NAME = re.compile(r"[!-~]{1,63}")
_PROGRAM = re.compile(r"llama-(?:server|cli|completion|bench|perplexity|run)")
_FIRST = ("server", "main")
"""Names in older builds; too common a word to search for in arguments."""
_MODEL = ("-m", "--model")
_PORT = "--port"


@dataclass(frozen=True, slots=True)
class LoaderAnswer:
    """The loader's answer on a name; None if its words say neither. `line` is its own."""

    accepted: bool | None
    line: str = ""


def is_name(architecture: str) -> bool:
    """Whether a build could know this name at all: printable ASCII, at most 63 characters."""
    return _NAME.fullmatch(architecture) is not None


def tensor_name(number: int) -> str:
    """The name of a probe's tensor of a type."""
    return f"probe.{number}"


def probe(architecture: str, types: Sequence[int] = ()) -> bytes:
    """A GGUF that makes a loader say whether it knows the architecture, with a tensor of 256 by
    ROWS zeros of each type. A type of unknown size may only be alone."""
    key, name = ARCHITECTURE.encode(), architecture.encode("utf-8", "surrogateescape")
    head = struct.pack(f"<4sIQQQ{len(key)}s", b"GGUF", 3, len(types), 1, len(key), key)
    head += struct.pack(f"<IQ{len(name)}s", ValueType.STRING, len(name), name)
    offset = 0
    for number in types:
        tensor, kind = tensor_name(number).encode(), type_of(number)
        head += struct.pack(f"<Q{len(tensor)}sIQQ", len(tensor), tensor, 2, PROBED, ROWS)
        head += struct.pack("<IQ", number, offset)
        size = row_bytes(kind, PROBED) if kind else 8 * PROBED
        offset += pad(size * ROWS, ALIGNMENT)
    return head.ljust(pad(len(head), ALIGNMENT), b"\0") + bytes(offset) if types else head


def read(lines: Iterable[str], architecture: str) -> LoaderAnswer:
    """Find the loader's answer in a program's output; lines are clean already."""
    last = ""
    for line in lines:
        words = one_line(line, LINE)
        missed = _MISSED.search(words)
        if _REFUSED.search(words) or _PROJECTOR.search(words):
            return LoaderAnswer(False, _from_loader(words))
        if _PAST.search(words) or (missed and missed[1].startswith(f"{architecture}.")):
            return LoaderAnswer(True, _from_loader(words))
        if FAILED in words and FAILED not in last:
            last = _from_loader(words)
        elif words and FAILED not in last:
            last = words
    return LoaderAnswer(None, last)


def _from_loader(words: str) -> str:
    """The line without leading time stamps and function names."""
    at = words.find(FAILED)
    return words[at:] if at > 0 else words


@dataclass(frozen=True, slots=True)
class Call:
    """How to run a service's program with another model. `program` is asked for its version; it is
    empty if the service runs an unknown program."""

    argv: tuple[str, ...]
    program: tuple[str, ...] = ()


def not_known(build: str, what: str, line: str) -> str:
    """That a build's answer about something is not known, and why: it was not asked, or it said
    something else. A program that is none of llama.cpp's is no build."""
    whose = "a build" if NO_BUILD in line else build
    words = f"whether {whose} knows {what} is not known"
    return f"{words}: {line}" if line else words


def call(words: Sequence[str], model: str, port: int) -> Call | None:
    """A service's own argv (entrypoint and command) with the probe as its model.

    A llama.cpp program gets only the model and a port, because the service's options for cards
    would fail without them. Any other command keeps its words, if one of them is a model that ends
    in `.gguf`. None in all other cases. `env` is left out: it would set variables that name cards.
    """
    words = start(words).argv
    at = next((i for i, word in enumerate(words) if _is_program(word, first=i == 0)), None)
    if at is not None:
        return _plain(tuple(words[: at + 1]), model, port)
    for word in words:
        inner = _shell_words(word) if " " in word or "\n" in word else []
        name = next((inner_word for inner_word in inner if _is_program(inner_word)), None)
        if name is not None:
            return _plain((name,), model, port)
    return _replaced(list(words), model, port)


def _plain(program: tuple[str, ...], model: str, port: int) -> Call:
    more: tuple[str, ...] = ()
    if program[-1].endswith("server"):
        more = ("--host", "127.0.0.1", _PORT, str(port))
    return Call((*program, _MODEL[0], model, *more), program)


def _is_program(word: str, first: bool = False) -> bool:
    name = os.path.basename(word)
    return " " not in word and (bool(_PROGRAM.fullmatch(name)) or (first and name in _FIRST))


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []


def _replaced(words: list[str], model: str, port: int) -> Call | None:
    given = False
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        after = words[at + 1] if at + 1 < len(words) else ""
        if name in _MODEL and (value if equals else after).endswith(".gguf"):
            words[at : at + (1 if equals else 2)] = [f"{name}={model}"] if equals else [word, model]
            given = True
        elif name == _PORT and (equals or after.isdigit()):
            words[at : at + (1 if equals else 2)] = [_PORT, str(port)]
    return Call(tuple(words)) if given else None


def version(lines: Iterable[str]) -> str:
    """The build as `--version` names it: `build 11669`, `b6512`; empty if it gives none."""
    for line in lines:
        match = _VERSION.search(line)
        if match:
            return one_line(f"build {match[1] or match[2]}", 60)
    return ""


SINCE = {
    "MXFP4": "#15091 (August 2025)", "gpt-4o": "#12108 (February 2025)",
    "deepseek-v3": "#11049 (January 2025)", "qwen35": "#19468 (February 2026)",
}  # fmt: skip
"""Types of tensors and pre-tokenizers, and llama.cpp's pull requests that brought them."""


def since(names: Iterable[str]) -> str:
    """Which build of llama.cpp these names need, in words; "" for names that are not listed."""
    known = [f"{name} since {SINCE[name]}" for name in dict.fromkeys(names) if name in SINCE]
    return f"; llama.cpp has {', '.join(known)}" if known else ""
