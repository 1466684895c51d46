"""The build that is to load a model, where it is not on this machine and nobody can be asked.

What every build of the last years takes needs no question. An architecture, a type of tensors, a
cache's type or a tokenizer that came later may be refused by just that build, so that no sum is a
GO until somebody has asked it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.tensor_types import SHARED_CACHES, SHARED_TYPES
from console.checks.preflight.architecture.vocabulary import named_shared
from console.checks.preflight.compatibility import ENGINES, Loader
from console.checks.preflight.header import TITLE as HEADER
from console.common.options.command_line import value_of
from console.common.options.table import table
from console.common.text import one_line
from console.models.gguf.header import Header, type_name
from console.models.loader.complaints import PRE, TOKENIZER

SHARED_ARCHITECTURES = frozenset({
    "llama", "baichuan", "bloom", "command-r", "falcon", "gemma", "gpt2", "gptneox", "internlm2",
    "minicpm", "orion", "phi2", "phi3", "qwen", "qwen2", "qwen2moe", "refact", "stablelm",
    "starcoder", "starcoder2", "xverse",
})  # fmt: skip
"""Architectures that llama.cpp had in June 2024, when ik_llama.cpp was forked, and whose files are
the same since (LLM_ARCH_NAMES in llama.cpp of b3000)."""
TITLE = "the build"
HINT = "ask on the machine that has it, or name one that is here: --binary PATH, or --image NAME"
SHOWN = 4
"""Most names that are shown of a kind."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A build that is not to be had here; `why` says what is missing, clean."""

    why: str


def findings(
    build: Absent, loader: Loader, header: Header, *, sure: bool = True
) -> list[Finding]:  # fmt: skip
    """What an absent build might refuse of a model, as UNKNOWN; a warning where every build takes
    all of it. `sure`: it is the one that would serve; if not, no build is named at all, and the
    baseline's, which is the only one to ask, is absent."""
    which = "it is" if sure else "no build is named, and the baseline's is"
    explanation = f"{which} not here and was not asked ({build.why})"
    doubts = [
        Finding(Level.UNKNOWN, f"{TITLE}, {about}", f"whether it has {what}: {explanation}", HINT)
        for about, what in _doubts(loader, header)
    ]
    return doubts if doubts or not sure else [Finding(Level.WARN, TITLE, explanation, HINT)]


def _doubts(loader: Loader, header: Header) -> Iterator[tuple[str, str]]:
    """(what it is about, the names) of what not every build has."""
    architecture = header.architecture or ""
    if architecture and architecture not in SHARED_ARCHITECTURES:
        yield f"architecture {one_line(architecture, 60)}", "this architecture"
    types = sorted({tensor.type for tensor in header.tensors or ()} - SHARED_TYPES)
    if types:
        yield "tensor types", _listed([type_name(number) for number in types])
    options = table(ENGINES[loader.engine or "llama.cpp"].options)
    cache_types = (value_of(loader.args, name, options, loader.env) for name in ("-ctk", "-ctv"))
    caches = [kind for kind in cache_types if kind and kind.lower() not in SHARED_CACHES]
    if caches:
        yield "cache, tensor types", _listed([one_line(kind, 20) for kind in caches])
    if header.text(TOKENIZER) and not named_shared(header):
        name = header.text(PRE) or header.text(TOKENIZER) or ""
        yield HEADER, f"the tokenizer {_listed([one_line(name, 60)])}"


def _listed(words: list[str]) -> str:
    unique = list(dict.fromkeys(words))
    more = len(unique) - SHOWN
    shown = ", ".join(unique[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return shown + names.since(unique)
