"""A probe is a GGUF of 80 bytes that names an architecture: how a service's own program is given
it, and what its loader says.

llama.cpp looks the architecture up before it asks for anything else. So a file with nothing but
`general.architecture` ends in one of two ways: the name is refused, or the next key is missed.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from console.common.text import one_line
from console.models.gguf.header import ARCHITECTURE, ValueType

LINE = 300
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
"""What older builds call them; as an argument the words are too common."""
_MODEL = ("-m", "--model")
_PORT = "--port"


@dataclass(frozen=True, slots=True)
class Said:
    """What the loader made of a name; None where its words say neither. `line` is its own."""

    accepted: bool | None
    line: str = ""


def is_name(architecture: str) -> bool:
    """Whether a build could know this name at all: printable ASCII, at most 63 characters."""
    return _NAME.fullmatch(architecture) is not None


def probe(architecture: str) -> bytes:
    """A GGUF without tensors that makes a loader say whether it knows the architecture."""
    key, name = ARCHITECTURE.encode(), architecture.encode("utf-8", "surrogateescape")
    head = struct.pack(f"<4sIQQQ{len(key)}s", b"GGUF", 3, 0, 1, len(key), key)
    return head + struct.pack(f"<IQ{len(name)}s", ValueType.STRING, len(name), name)


def read(lines: Iterable[str], architecture: str) -> Said:
    """The loader's answer in what a program wrote; lines are clean already."""
    last = ""
    for line in lines:
        words = one_line(line, LINE)
        missed = _MISSED.search(words)
        if _REFUSED.search(words) or _PROJECTOR.search(words):
            return Said(False, _from_loader(words))
        if _PAST.search(words) or (missed and missed[1].startswith(f"{architecture}.")):
            return Said(True, _from_loader(words))
        if FAILED in words and FAILED not in last:
            last = _from_loader(words)
        elif words and FAILED not in last:
            last = words
    return Said(None, last)


def _from_loader(words: str) -> str:
    """The line without time stamps and function names before it."""
    at = words.find(FAILED)
    return words[at:] if at > 0 else words


@dataclass(frozen=True, slots=True)
class Call:
    """How a service's program is given another model. `program` is what is asked for its version,
    empty where the service is called by a program that is not known."""

    argv: tuple[str, ...]
    program: tuple[str, ...] = ()


def call(words: Sequence[str], model: str, port: int) -> Call | None:
    """A service's own argv (entrypoint and command) with the probe as its model.

    A llama.cpp program gets nothing but the model and a port: what the service asks of cards would
    fail without them. Any other command keeps its words, if one of them is a model that ends in
    `.gguf`. None where neither is there.
    """
    at = next((i for i, word in enumerate(words) if _is_program(word, first=i == 0)), None)
    if at is not None:
        return _plain(tuple(words[: at + 1]), model, port)
    for word in words:
        inner = _shell_words(word) if " " in word or "\n" in word else []
        name = next((one for one in inner if _is_program(one)), None)
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
    """The build as `--version` names it: `build 11669`, `b6512`; empty where it does not."""
    for line in lines:
        found = _VERSION.search(line)
        if found:
            return one_line(f"build {found[1] or found[2]}", 60)
    return ""
