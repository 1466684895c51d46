"""Which engine a command line starts, and what its words say: port, model files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.common.options import command_line
from console.common.options.start import PYTHON, start
from console.common.options.table import table


@dataclass(frozen=True, slots=True)
class Engine:
    """A kind of model server: the port it takes without being told one, the path that says whether
    it serves, whether a request has to name the model, and the table of its options."""

    name: str
    port: int
    ready: str = "/health"
    names_model: bool = True
    options: str = ""


LLAMA = Engine("llama.cpp", 8080, names_model=False, options="llama_cpp")
VLLM = Engine("vLLM", 8000, options="vllm")
SGLANG = Engine("SGLang", 30000, options="sglang")
OLLAMA = Engine("ollama", 11434, "/api/version")
OTHER = Engine("a model server", 8080)
"""A program that is none of these, and whose command line names a file with weights."""
WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt")
"""How the names of files with a model's weights end."""
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
    """The name of the program or Python module that a command line starts, and its own words;
    `env` is not that program."""
    words = start(argv).argv
    name = os.path.basename(words[0]) if words else ""
    if not PYTHON.fullmatch(name):
        return name, words[1:]
    for at, word in enumerate(words[1:], 1):
        if word == "-m":
            return (words[at + 1] if len(words) > at + 1 else ""), words[at + 2 :]
        if not word.startswith("-"):
            return os.path.basename(word), words[at + 1 :]
    return name, []


def value_of(
    engine: Engine, argv: Sequence[str], flag: str, env: Mapping[str, str] | None = None
) -> str:
    """The value that an option has as the engine reads it: on the command line, or by a variable;
    "" without one. Where its own reader finds none, what stands behind it or `=`, since forks and
    engines whose options are not known read in ways of their own."""
    if engine.options:
        option_value = command_line.value_of(argv, flag, table(engine.options), env) or ""
        if option_value:
            return option_value
    option_value = ""
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == flag:
            option_value = value if equals else next(iter(argv[at + 1 :]), "")
    return option_value


def port_of(engine: Engine, argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """The port that a command line or a variable asks for, else the engine's usual one."""
    port = value_of(engine, argv, "--port", env)
    if engine.name == OLLAMA.name:
        port = (env or {}).get("OLLAMA_HOST", "").rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() and 0 < int(port) < 65536 else engine.port


_MODELS = ("-m", "--model", "--model-path")


def weights(argv: Sequence[str], cwd: str, env: Mapping[str, str] | None = None) -> list[str]:
    """The files and directories with a model's weights that a command line or a variable names and
    that are there, by their whole paths."""
    engine = engine_of(argv) or OTHER
    words = [word.rpartition("=")[2] if word.startswith("-") else word for word in argv]
    paths = [(os.path.join(cwd, word), False) for word in words]
    behind = next(iter(argv[argv.index("serve") + 1 :]), "") if "serve" in argv else ""
    models = [behind, *(value_of(engine, argv, flag, env) for flag in _MODELS)]
    paths += [(os.path.join(cwd, word), "/" in word) for word in models if word]
    weight_paths = [
        os.path.normpath(path) for path, folder in paths
        if (path.endswith(WEIGHTS[:2]) and os.path.isfile(path)) or (folder and os.path.isdir(path))
    ]  # fmt: skip
    return list(dict.fromkeys(weight_paths))
