"""What is asked of a checkpoint besides its memory: access, files, format, disk, the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from console.checks.preflight import compatibility
from console.checks.preflight import host as host_checks
from console.checks.preflight.loader import (
    LIKE_SGLANG,
    Loader,
    engine_of,
    method_of,
    plan_of,
    speaks_gguf,
)
from console.common.finding import Finding, Level
from console.common.text import one_line
from console.host.sample import Machine
from console.models.gguf.read import Reading, check_shards
from console.models.hub.checkpoint import Format, WeightSet
from console.models.hub.listing import Listing
from console.models.hub.local_files import Here
from console.models.hub.model_config import kind
from console.models.sizing.model_facts import ModelFacts

SHOWN = 5
"""Problems of a set that are told."""
BESIDE = "GPU memory beside the baseline"
NEEDED = (BESIDE, ", architecture ", ", quantization ", ", method ")
"""What the table has to know: without it nothing is a GO."""


def access(listing: Listing) -> list[Finding]:
    if listing.refused is None:
        return []
    error = listing.refused
    return [Finding(Level.FAIL, "access", str(error), error.hint)]


def whole(chosen: WeightSet) -> list[Finding]:
    if chosen.whole:
        return []
    return [Finding(Level.FAIL, "files", chosen.gap, "no loader takes a part of a set")]


def shards(chosen: WeightSet, readings: Sequence[Reading]) -> list[Finding]:
    """Whether the files hold what their headers promise, and fit together as a loader asks."""
    words = [
        f"{one_line(file.path)} lacks {one.missing_bytes} bytes"
        for file, one in zip(chosen.files, readings, strict=True) if one.missing_bytes
    ]  # fmt: skip
    listed = [(file.path, file.size) for file in chosen.files]
    words += check_shards(listed, [one.header for one in readings])
    if not words:
        return []
    told = list(dict.fromkeys(words))[:SHOWN]
    hint = "no loader takes it: fetch what is cut again, or another copy"
    return [Finding(Level.FAIL, "files", "; ".join(told), hint)]


def format_(loader: Loader, chosen: WeightSet) -> list[Finding]:
    """GGUF for those who read it, safetensors for the others (F-019, seed 001)."""
    if loader.kind == "convert" or loader.engine == "exllamav3":
        return []  # the compatibility table says it
    wants_gguf = speaks_gguf(loader, chosen.format)
    if wants_gguf == (chosen.format is Format.GGUF):
        return []
    engine = loader.engine or ("llama.cpp" if wants_gguf else "this engine")
    words = f"{chosen.label}: {engine} reads {'GGUF' if wants_gguf else 'safetensors'}"
    return [Finding(Level.FAIL, "format", words, "take the other format of the same model")]


def disk(to: Path | None, found: Here, machine: Machine) -> list[Finding]:
    """Against the disk as the machine has it: declared, or measured now where it goes to."""
    declared = machine.disk_free is not None and not machine.given.get("disk_free", "").startswith(
        "measured"
    )
    if to is not None and to.exists() and not to.is_dir():
        words = "it is a file"
        return [Finding(Level.FAIL, f"disk {to}", words, "name a directory to download to")]
    if not declared:
        return [] if to is None else [host_checks.disk(to, found.to_write)]
    if found.to_write == 0:
        return []
    title = f"disk {to or ''}".rstrip()
    return [host_checks.room(title, machine.disk_free or 0, found.to_write)]


def beside(machine: Machine) -> list[Finding]:
    """What is free beside a baseline that goes on serving has to be measured, not declared."""
    if machine.cards and all(card.free is not None for card in machine.cards):
        return []
    words = "how much of each card is free beside the baseline is not known here"
    hint = "ask on the machine itself, without declared cards, while the baseline serves"
    return [Finding(Level.UNKNOWN, BESIDE, words, hint)]


def table(
    ask: Loader, chosen: WeightSet, facts: ModelFacts, machine: Machine
) -> tuple[Finding, ...]:
    """What the compatibility table says on engine, format, architecture and quantization."""
    plan = plan_of(ask, chosen.format)
    engine = engine_of(ask, plan, chosen.format)
    gguf, quantization = chosen.format is Format.GGUF, chosen.quantization
    question = compatibility.Question(
        engine, "gguf" if gguf else "safetensors", facts.architecture,
        quantization.lower() if gguf else kind(quantization), method_of(plan, ask.args),
        getattr(plan, "split_mode", ""), machine,
    )  # fmt: skip
    found = compatibility.check(question)
    if engine in LIKE_SGLANG:
        words = "its memory is worked out as SGLang's: a first look, no more"
        found = (*found, Finding(Level.WARN, engine, words))
    return found


def not_known(findings: Iterable[Finding]) -> str:
    """What the table does not know and has to, in words; empty where it does."""
    missing = [
        one for one in findings
        if one.level is Level.UNKNOWN and any(word in one.title for word in NEEDED)
    ]  # fmt: skip
    return "; ".join(f"{one.title}: {one.words}" for one in missing)
