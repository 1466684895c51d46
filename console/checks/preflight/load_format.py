"""Whether what `--load-format` of vLLM or SGLang and `--kt-weight-path` read is there, and is what
was judged.

Sources: DefaultModelLoader, ShardedStateLoader and GGUFModelLoader of vLLM 0.33
(model_executor/model_loader) and SGLang 0.5.23 (srt/model_loader/loader.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from console.checks.preflight import Finding, Level
from console.checks.preflight.compatibility import Question, check
from console.common.text import one_line
from console.models.hub.checkpoint import Format, WeightSet
from console.models.hub.listing import Listing
from console.models.safetensors import experts
from console.models.safetensors.experts import CONVERTED, ExpertFiles
from console.models.sizing.facts_from_gguf import experts_at
from console.models.sizing.loader_plan import LLAMAFILE, LoaderPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import Kind, ModelFacts

TITLE = "load format"
KT_TITLE = "kt-kernel's weights"
USUAL = ("", "auto", "hf")
SAFETENSORS = ("*.safetensors",)
READS: Mapping[str, tuple[str, ...]] = {
    "safetensors": SAFETENSORS, "fastsafetensors": SAFETENSORS, "instanttensor": SAFETENSORS,
    "runai_streamer": SAFETENSORS, "mistral": ("consolidated*.safetensors",), "pt": ("*.pt",),
    "npcache": ("*.bin", "*.pt"), "sharded_state": ("model-*rank-*-part-*.safetensors",),
    "runai_streamer_sharded": ("model-*rank-*-part-*.safetensors",),
}  # fmt: skip
"""Files that a format reads: those of the first pattern that there are any of."""
OF_PATTERN = ("sharded_state", "runai_streamer_sharded")
"""Formats whose pattern --model-loader-extra-config may replace."""
PLAIN = ("safetensors", "mistral", "pt", "npcache")
"""Formats that take nothing besides the weights."""
STREAMS = {
    "fastsafetensors": "whole files pass through the card while it loads, and need room there",
    "runai_streamer": "files are read ahead into RAM, up to 40 GB of them",
}
"""Formats that read the same files another way; what they take meanwhile is free again when the
cache is made."""
PARAMS = "params.json"
NOISE = "dummy"
PACKAGES = {
    SglangPlan: {
        "fastsafetensors": "fastsafetensors", "runai_streamer": "sglang[runai]",
    },
    VllmPlan: {"runai_streamer": "vllm[runai]"},
}  # fmt: skip
"""Formats whose loader the engine's own package does not bring, with what brings it (the wheels of
vLLM 0.28 and 0.33 and SGLang 0.5.23); the images of vLLM's publisher have it."""


def findings(plan: LoaderPlan, chosen: WeightSet, listing: Listing) -> Iterator[Finding]:
    """What is refused, what is not known, and what is only said of a plan's load format."""
    if not isinstance(plan, VllmPlan | SglangPlan):
        return
    if getattr(plan, "config_format", "") == "mistral":
        yield from _params(chosen, listing)
    if plan.load_format in USUAL:
        return
    name = one_line(plan.load_format, 40)
    if name == NOISE:
        words = f"--load-format {name}: the weights are random, and so is every answer"
        yield Finding(Level.WARN, TITLE, words, "leave it out to serve this model")
    elif name == "gguf":
        yield from _gguf(plan, chosen)
    else:
        patterns = () if name in OF_PATTERN and plan.loader_extra else READS.get(name, ())
        yield from _files(name, patterns, chosen, listing)
        yield from _package(plan, name)


def _package(plan: VllmPlan | SglangPlan, name: str) -> Iterator[Finding]:
    package = PACKAGES[type(plan)].get(name)
    if package and not (isinstance(plan, VllmPlan) and plan.release):
        words = f"whether the loader of --load-format {name} is installed: {package} brings it"
        yield Finding(Level.UNKNOWN, TITLE, words, "leave --load-format out")


def _params(chosen: WeightSet, listing: Listing) -> Iterator[Finding]:
    """Mistral's own configuration: the same model's, in a file beside."""
    folder = chosen.stem.rpartition("/")[0]
    path = f"{folder}/{PARAMS}" if folder else PARAMS
    if listing.find(path) is None:
        words = f"--config-format mistral reads {PARAMS}, and there is no such file"
        yield Finding(Level.FAIL, TITLE, words, "leave --config-format out")


def _gguf(plan: LoaderPlan, chosen: WeightSet) -> Iterator[Finding]:
    if chosen.format is Format.GGUF:
        return  # what the engine makes of it is judged with its memory
    words = f"--load-format gguf takes one GGUF file, and {chosen.label} is none"
    yield Finding(Level.FAIL, TITLE, words, "leave --load-format out")


def _files(
    name: str, patterns: tuple[str, ...], chosen: WeightSet, listing: Listing
) -> Iterator[Finding]:
    judged = {file.path for file in chosen.files}
    read = next(
        (hits for pattern in patterns if (hits := _matching(pattern, chosen, listing))), set()
    )
    if patterns and not read:
        words = f"--load-format {name} reads {' or '.join(patterns)}, and there is no such file"
        yield Finding(Level.FAIL, TITLE, words, "leave --load-format out")
    elif read and not read & judged:
        words = f"--load-format {name} loads {min(read)}, which is not what is judged here"
        yield Finding(Level.UNKNOWN, TITLE, one_line(words, 200), "ask with --include about those")
    elif name in STREAMS:
        words = f"--load-format {name}: {STREAMS[name]}"
        yield Finding(Level.WARN, TITLE, words, "without it files are read one by one")
    elif name not in PLAIN:
        words = f"not counted: what --load-format {name} takes, and whether the engine has it"
        yield Finding(Level.UNKNOWN, TITLE, words, "")


def _matching(pattern: str, chosen: WeightSet, listing: Listing) -> set[str]:
    """The files beside the set that a pattern takes: the engines look into one directory."""
    folder = chosen.stem.rpartition("/")[0]
    paths = set()
    for file in listing.files:
        parent, _, name = file.path.rpartition("/")
        if parent == folder and fnmatchcase(name, pattern):
            paths.add(file.path)
    return paths


def kt_weights(
    plan: SglangPlan, facts: ModelFacts, checkpoint: Path, *, here: bool, inside: bool
) -> tuple[int | None, list[Finding]]:
    """The bytes of the experts that --kt-weight-path names, if they can be read, and what is to be
    said of them. `here`: this machine is the one that is asked about. `inside`: the path is a
    container's."""
    path, shown = Path(plan.kt_weights), one_line(plan.kt_weights, 120)
    there = path.is_absolute() and path.exists() and not inside
    if not there and _is_checkpoint(plan, checkpoint):
        if plan.kt_method in CONVERTED:
            return None, [_kt(plan, _PUBLISHED)]
        words = f"{shown} is not here, and taken to be the checkpoint itself"
        return None, [Finding(Level.WARN, KT_TITLE, words)]
    if not there:
        if here and path.is_absolute() and not inside:
            return None, [_kt(plan, ExpertFiles(wrong="there is no such directory here"))]
        words = f"what is in {shown} is not known here"
        hint = "ask on the machine that has it; its bytes are taken to be what the method makes"
        return None, [Finding(Level.UNKNOWN, KT_TITLE, words, hint)]
    if plan.kt_method == LLAMAFILE:
        expert_files = _of_gguf(path)
    elif not path.is_dir():
        expert_files = ExpertFiles(wrong="it is no directory")
    else:
        kept = [weight for weight in facts.weights if weight.kind is Kind.EXPERTS]
        layers = frozenset(weight.layer for weight in kept if weight.layer is not None)
        expert_files = experts.look(
            path, plan.kt_method, layers, sum(weight.elements for weight in kept)
        )
    return expert_files.bytes, [] if expert_files.bytes is not None else [_kt(plan, expert_files)]


def if_converted(question: Question, plan: SglangPlan) -> list[Finding]:
    """What the table says of a conversion, where the experts that --kt-weight-path names are not
    here yet: somebody may be about to make them of this checkpoint."""
    if plan.kt_method not in CONVERTED or not plan.kt_weights or Path(plan.kt_weights).exists():
        return []
    ready = set(check(question))
    return [
        replace(finding, level=Level.WARN, words=f"if made of this checkpoint: {finding.words}")
        for finding in check(replace(question, converts=True))
        if finding not in ready and finding.level in (Level.FAIL, Level.UNKNOWN)
    ]


_PUBLISHED = ExpertFiles(wrong="it is the checkpoint, not what the converter makes of it")


def _is_checkpoint(plan: SglangPlan, checkpoint: Path) -> bool:
    """Whether the path of the experts is that of the model, which may not be here yet: methods that
    convert nothing read the model itself."""
    path = Path(plan.kt_weights)
    if plan.model:
        return path == Path(plan.model)
    return path == checkpoint or (plan.kt_method in experts.NATIVE and not checkpoint.exists())


def _of_gguf(path: Path) -> ExpertFiles:
    size = experts_at(path)
    if size is None and path.is_dir() and not any(path.rglob("*.gguf")):
        return ExpertFiles(wrong=f"it holds no GGUF, which {LLAMAFILE} reads")
    return ExpertFiles(size, unknown="" if size else "it is not one whole set of GGUF files")


def _kt(plan: SglangPlan, expert_files: ExpertFiles) -> Finding:
    level = Level.FAIL if expert_files.wrong else Level.UNKNOWN
    method = plan.kt_method or "no --kt-method"
    trouble = expert_files.wrong or expert_files.unknown
    words = f"{one_line(plan.kt_weights, 120)} for {method}: {trouble}"
    hint = "convert_cpu_weights.py of kt-kernel makes them" if plan.kt_method in CONVERTED else ""
    return Finding(level, KT_TITLE, one_line(words, 300), hint)
