"""llama-perplexity: how many tokens it judges, the file of log-probabilities that it seals, and the
figures that it prints.

It ends with 0 whatever happens, so only its words say whether it has compared anything. It prints
from a thread that its end does not wait for: of 60 runs of build 11669, 5 lost their last lines,
and on a busy machine far more do. Each figure is printed with its standard error.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.bench.metrics import QUALITY_METRICS
from console.bench.statistics import NORMAL, wilson
from console.common.text import one_line
from console.models.gguf.header import Array, Header

TOOL = "llama-perplexity"
MIN_SCORED = 100
"""Tokens below which the tool prints no statistics."""
BATCH = 2048
"""Its own default: a smaller context has to be a part of it."""
CORE_FLOPS, DISK_RATE = 1e10, 1e9
"""Assumed of one core and of a disk, per second, for an estimate of the time."""
_MAGIC = b"_logits_"
_HEAD = struct.Struct("<8sIii")
_NUMBER = r"(-?\d+(?:\.\d+)?|-?nan|-?inf)"
_PRINTED = {
    name: re.compile(rf"{words}\s*:\s*{_NUMBER}\s*±\s*{_NUMBER}(?![\d.])")
    for name, words in (
        ("mean_kld", r"Mean\s+KLD"), ("top1_agreement", "Same top p"), ("ppl", r"Mean PPL\(Q\)"),
        ("ppl_ratio", r"Mean PPL\(Q\)/PPL\(base\)"),
    )
}  # fmt: skip
_BAD = ("inconsistent vocabulary", "has been computed with", "failed reading")
"""Words after which it goes on, with figures of something else."""
_WHY = re.compile(r"you need at least|tokenizes to only|fail|error|unable|assert", re.IGNORECASE)


def scored(chunks: int, ctx: int) -> int:
    """Tokens that are judged: the second half of each chunk, less the last."""
    return chunks * (ctx - 1 - ctx // 2)


def logits_bytes(vocabulary: int, chunks: int, ctx: int) -> int:
    """Size of the file of log-probabilities: the tokens, then two bytes for each word of the
    vocabulary and eight more, for each token that is judged."""
    row = 2 * ((vocabulary + 1) // 2) + 4
    return _HEAD.size + 4 * chunks * ctx + 2 * row * scored(chunks, ctx)


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a file of log-probabilities holds; `chunks` may be fewer than asked: a short text."""

    vocabulary: int
    chunks: int
    ctx: int


def read_sealed(path: Path) -> Sealed | None:
    """The head of a file of log-probabilities; None if there is none, or one that is not whole."""
    try:
        with path.open("rb") as file:
            magic, ctx, vocabulary, chunks = _HEAD.unpack(file.read(_HEAD.size))
        size = path.stat().st_size
    except (OSError, struct.error):
        return None
    whole = magic == _MAGIC and chunks > 0 and size == logits_bytes(vocabulary, chunks, ctx)
    return Sealed(vocabulary, chunks, ctx) if whole else None


def vocabulary_of(header: Header) -> int | None:
    """How many words a model's vocabulary has; None if its header does not say."""
    tokens = header.kv.get("tokenizer.ggml.tokens")
    return tokens.count if isinstance(tokens, Array) else None


def seconds(header: Header, chunks: int, ctx: int, cores: int) -> float:
    """About how long it takes to load a model and to read so many tokens on processors alone: two
    operations for each weight that a token uses."""
    tensors = header.tensors or ()
    experts, used = (
        header.integer(f"{header.architecture}.expert_{name}") for name in ("count", "used_count")
    )
    share = used / experts if experts and used else 1.0
    weights = sum(
        math.prod(tensor.dims) * (share if "_exps" in tensor.name else 1.0)
        for tensor in tensors if "token_embd" not in tensor.name
    )  # fmt: skip
    load = (header.file_bytes or 0) / DISK_RATE
    return load + 2 * weights * chunks * ctx / (CORE_FLOPS * max(1, cores))


def arguments(chunks: int, ctx: int) -> list[str]:
    """Context and batch: the tool aborts if one is no part of the other."""
    fits = BATCH % ctx == 0 or ctx > BATCH
    return ["-c", str(ctx), *([] if fits else ["-b", str(ctx)]), "--chunks", str(chunks)]


def read_figures(lines: Sequence[str], tokens: int) -> dict[str, dict[str, Any]]:
    """The figures of a comparison over so many judged tokens, as a gate reads them, with their 95 %
    intervals. Raises ValueError, in the tool's own words, where it has compared nothing.

    `error` is the printed standard error. The interval of the agreement is that of a share, since
    its standard error is 0 where all agree. Log-probabilities are kept with 16 bits, so that the
    divergence of a model from itself is a little off zero, on either side.
    """
    text = "\n".join(lines)
    if why := next((line for line in lines if any(words in line for words in _BAD)), ""):
        raise ValueError(one_line(why, 300))
    figures: dict[str, dict[str, Any]] = {}
    for name, pattern in _PRINTED.items():
        printed = pattern.findall(text)
        numbers = [float(number) for number in printed[-1]] if printed else []
        if not numbers or not all(map(math.isfinite, numbers)):
            raise ValueError(_complaint(lines, name))
        value, error = numbers
        ends = value - NORMAL * error, value + NORMAL * error
        if name == "top1_agreement":
            value, error = value / 100, error / 100
            ends = wilson(value * tokens, tokens)
        value, low, high = (max(0.0, number) for number in (value, *ends))
        figures[name] = {
            "value": value, "unit": QUALITY_METRICS[name].unit, "n": tokens, "error": error,
            "low": low, "high": high,
        }  # fmt: skip
    return figures


def is_whole(lines: Sequence[str]) -> bool:
    """Whether a comparison printed all its figures."""
    text = "\n".join(lines)
    return all(pattern.search(text) for pattern in _PRINTED.values())


def complaint(lines: Sequence[str]) -> str:
    """The line that says why it did not do its work; "" if none does."""
    complaints = [line for line in lines if _WHY.search(line)]
    return one_line(complaints[0], 300) if complaints else ""


def _complaint(lines: Sequence[str], name: str) -> str:
    return complaint(lines) or f"{TOOL} printed no {name}"
