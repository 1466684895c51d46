"""The classes of models that vLLM and SGLang list, as data (`classes.txt`).

Both choose by `architectures` of a config.json what loads a model. A class that is not in the list
is one of a newer release or of a plugin, or what only transformers' own code can load, or a slip.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from console.common.options.since import Newcomer, release_in
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.model_facts import ModelFacts

LISTED = Path(__file__).with_name("classes.txt")
_NAMES = {"vllm": "vLLM 0.33", "sglang": "SGLang 0.5.23"}


@cache
def listed(engine: str) -> frozenset[str]:
    """The classes that an engine lists: vllm or sglang."""
    rows = (row.split() for row in LISTED.read_text("utf-8").splitlines() if row[:1] != "#")
    return frozenset(name for name, *engines in rows if engine in engines)


@cache
def _came(engine: str) -> Mapping[str, Newcomer]:
    """The classes that not all releases of an engine list: `ENGINE@SINCE>LACKS` of the table."""
    classes = {}
    for row in LISTED.read_text("utf-8").splitlines():
        for word in row.split() if row[:1] != "#" else ():
            if word.startswith(f"{engine}@"):
                name = row.split()[0]
                since, lacks = map(release_in, word.split(">"))
                classes[name] = Newcomer(name, since, lacks)
    return classes


def came(facts: ModelFacts, engine: str) -> list[Newcomer]:
    """The class of a model, if not all releases list it; none where an older one is listed too."""
    classes = [_came(engine).get(name) for name in facts.classes if name in listed(engine)]
    known = [newcomer for newcomer in classes if newcomer is not None]
    return (
        [min(known, key=lambda newcomer: newcomer.since)]
        if len(known) == len(classes) and known
        else []
    )


def divided(facts: ModelFacts, engine: str) -> bool:
    """Whether an engine's release here divides a model's layers among pipeline stages."""
    return bool(listed(f"{engine}:stages").intersection(facts.classes))


def _converted(name: str) -> str:
    """The class that vLLM loads to score texts with (`as_seq_cls_model`; `_normalize_arch` in its
    registry.py; vllm#19260)."""
    return name.replace("ForSequenceClassification", "ForCausalLM")


def not_known_of_class(facts: ModelFacts, engine: str) -> list[str]:
    """Where the configuration names no class, or none that the engine lists."""
    if facts.source == GGUF:
        return []
    if not facts.classes:
        return [
            "architectures (it names no class, by which the engine chooses what loads the model)"
        ]
    known = listed(engine)
    if known.intersection(facts.classes):
        return []
    if engine == "vllm" and any(_converted(name) in known for name in facts.classes):
        return []
    named = ", ".join(facts.classes)
    return [f"architectures ({named}: {_NAMES[engine]} lists no such class, a newer one may)"]
