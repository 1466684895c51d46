"""Which engine a command line starts, and what its words say: port, model files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from console.runtime.spec import WEIGHTS


@dataclass(frozen=True, slots=True)
class Engine:
    """A kind of model server: the port it takes without being told one, the path that says whether
    it serves, and whether a request has to name the model."""

    name: str
    port: int
    ready: str = "/health"
    names_model: bool = True


LLAMA = Engine("llama.cpp", 8080, names_model=False)
VLLM = Engine("vLLM", 8000)
SGLANG = Engine("SGLang", 30000)
OLLAMA = Engine("ollama", 11434, "/api/version")
OTHER = Engine("a model server", 8080)
"""A program that is none of these, and whose command line names a file with weights."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_IMAGES = {"llama.cpp": LLAMA, "llama-cpp": LLAMA, "ik-llama": LLAMA, "ik_llama": LLAMA,
           "vllm": VLLM, "sglang": SGLANG, "ollama": OLLAMA}  # fmt: skip


def engine_of(argv: Sequence[str]) -> Engine | None:
    """The engine that a command line starts; None for a program that serves no model."""
    program, rest = program_of(argv)
    if program.startswith("llama-server") or (program == "llama" and rest[:1] == ["serve"]):
        return LLAMA
    if program == "vllm" or program.startswith("vllm.entrypoints"):
        return VLLM
    if program in ("sglang", "sglang.launch_server"):
        return SGLANG
    if program == "ollama":
        return OLLAMA if "serve" in rest else None  # what it starts for each model ends with it
    return OTHER if any(word.endswith(WEIGHTS[:2]) for word in rest) else None


def engine_of_image(image: str) -> Engine | None:
    """The engine that an image's name speaks of."""
    lower = image.lower()
    return next((engine for word, engine in _IMAGES.items() if word in lower), None)


def program_of(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The name of the program or Python module that a command line starts, and its own words."""
    words = list(argv)
    name = os.path.basename(words[0]) if words else ""
    if not _PYTHON.fullmatch(name):
        return name, words[1:]
    for at, word in enumerate(words[1:], 1):
        if word == "-m":
            return (words[at + 1] if len(words) > at + 1 else ""), words[at + 2 :]
        if not word.startswith("-"):
            return os.path.basename(word), words[at + 1 :]
    return name, []


def value_of(argv: Sequence[str], *flags: str) -> str:
    """The value that a flag has in a command line, written behind it or behind `=`; the last one
    counts."""
    found = ""
    for at, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found = value if equals else next(iter(argv[at + 1 :]), "")
    return found


def port_of(engine: Engine, argv: Sequence[str]) -> int:
    """The port that a command line asks for, else the engine's usual one."""
    port = value_of(argv, "--port")
    return int(port) if port.isascii() and port.isdigit() and 0 < int(port) < 65536 else engine.port


def weights(argv: Sequence[str], cwd: str) -> list[str]:
    """The files and directories with a model's weights that a command line names and that are
    there, by their whole paths."""
    found = []
    for flag, word in zip(["", *argv], argv, strict=False):
        path = os.path.join(cwd, word.rpartition("=")[2] if word.startswith("-") else word)
        named = path.endswith(WEIGHTS[:2]) and os.path.isfile(path)
        if named or (flag in _MODELS and "/" in word and os.path.isdir(path)):
            found.append(os.path.normpath(path))
    return list(dict.fromkeys(found))


_MODELS = ("-m", "--model", "--model-path", "serve")
