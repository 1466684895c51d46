"""Why llama.cpp's loader refuses a header, in its own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.models.gguf.header import Array, Header, Value
from console.models.gguf.header_keys import WITHOUT_TOKENS


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a loader ends with. `sure`: every build that has the architecture refuses the file;
    else another build may take it. `hint`: what helps where it is not the choice of a build."""

    words: str
    sure: bool = True
    hint: str = ""


TOKENIZER, PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
SCORES, TOKEN_TYPES = "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
BYTE_PAIRS = ("gpt2", "hybriddna", "whitespace")
"""Tokenizers for which the loader looks at the pre-tokenizer; in others it is left alone."""
FIXED = "gemma4"
"""A tokenizer of byte pairs with a pre-tokenizer of its own, whatever the file says."""
TOKENIZERS = frozenset(
    {*WITHOUT_TOKENS, *BYTE_PAIRS, FIXED, "llama", "bert", "t5", "rwkv", "plamo2"}
)
MERGELESS = "kimi-k2"
"""The pre-tokenizer that needs no merges."""
PRE_TOKENIZERS = frozenset({
    "default", "minicpm5", "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral",
    "midm-2.0", "lfm2", "jina-v5-nano", "deepseek-llm", "deepseek-coder", "deepseek-v3",
    "spark2_5", "youtu", "falcon", "mpt", "starcoder", "gpt-2", "phi-2", "jina-es", "jina-de",
    "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "jais-2", "gemma4",
    "granite-embed-multi-311m", "sarvam-moe", "jina-v1-en", "jina-v2-code", "roberta-bpe",
    "whitespace", "refact", "command-r", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "qwen35",
    "stablelm2", "olmo", "dbrx", "smaug-bpe", "poro-chat", "glm4", "chatglm-bpe", "viking", "jais",
    "tekken", "smollm", "codeshell", "bloom", "gpt3-finnish", "exaone", "exaone4", "exaone-moe",
    "chameleon", "minerva-7b", "megrez", "gpt-4o", "llama4", "kanana2", "talkie",
    "granite-embed-multi-97m", "tiny_aya", "cohere2moe", "superbpe", "trillion", "granite-docling",
    "bailingmoe", "bailingmoe2", "llada-moe", "seed-coder", "hunyuan", "hunyuan-dense", "hy_v4",
    "joyai-llm", "kimi-k2", "ufakzeka", "grok-2", "afmoe", "laguna", "minimax-m2", "solar-open",
    "mellum2", "cohere2_moe", "openpangu",
})  # fmt: skip
"""Names that a release knows: llama.cpp 00ad355e and ik_llama.cpp 8337e4cd, src/llama-vocab.cpp;
the last two are only in the latter."""
SCALINGS = frozenset({"none", "linear", "yarn", "longrope"})
"""Values of `rope.scaling.type` (LLAMA_ROPE_SCALING_TYPES, src/llama-model.cpp)."""
GATINGS = range(5)
"""Values of `expert_gating_func`; 0 is the architecture's own (src/llama-hparams.h)."""


def of_names(header: Header) -> list[Complaint]:
    """A tokenizer or pre-tokenizer that no release known here has. It takes no more than the start
    of a header."""
    tokenizer, pre = header.text(TOKENIZER), header.text(PRE)
    if tokenizer is not None and tokenizer not in TOKENIZERS:
        return [Complaint(f"unknown tokenizer: '{tokenizer}'", sure=False)]
    if tokenizer in BYTE_PAIRS and pre and pre not in PRE_TOKENIZERS:
        return [Complaint(f"unknown pre-tokenizer type: '{pre}'", sure=False)]
    return []


def of_scaling(header: Header) -> list[Complaint]:
    """A rope scaling that the loader does not look up."""
    key = f"{header.architecture}.rope.scaling.type"
    scaling = header.text(key)
    if scaling is None or scaling in SCALINGS:
        return []
    return [Complaint(f"{key} is '{scaling}', which is none of its rope scalings", sure=False)]


def of_gating(header: Header) -> list[Complaint]:
    """A function of the experts' gate that no graph is built for: it is not looked at before."""
    key = f"{header.architecture}.expert_gating_func"
    gating = header.integer(key)
    if gating is None or gating in GATINGS:
        return []
    return [Complaint(f"{key} is {gating}, which is none of its functions", sure=False)]


def of_vocabulary(header: Header) -> list[Complaint]:
    """What a whole header lacks of a vocabulary. The lists themselves are not read, only their
    kinds and lengths."""
    kv = header.kv
    tokenizer, pre = kv.get(TOKENIZER), header.text(PRE)
    if tokenizer is None:
        return [Complaint(f"key not found in model: {TOKENIZER}")]
    if not isinstance(tokenizer, str):
        return [Complaint(f"key {TOKENIZER} has wrong type; a string is expected")]
    if tokenizer in WITHOUT_TOKENS or tokenizer not in TOKENIZERS:
        return []
    merged = tokenizer in BYTE_PAIRS and pre != MERGELESS
    if MERGES not in kv and (merged or tokenizer == FIXED):
        return [Complaint("cannot find tokenizer merges in model file")]
    if TOKENS not in kv:
        return [Complaint("cannot find tokenizer vocab in model file")]
    kinds: Iterable[tuple[str, tuple[str, ...]]] = (
        (TOKENS, ("STRING",)), (SCORES, ("FLOAT32", "INT32")), (TOKEN_TYPES, ("INT32",)),
        *(((MERGES, ("STRING",)),) if tokenizer in (*BYTE_PAIRS, FIXED) else ()),
    )  # fmt: skip
    wrong = [key for key, kind in kinds if key in kv and _element(kv[key]) not in kind]
    if wrong:
        return [Complaint(f"invalid gguf type for {wrong[0]}")]
    return _short(header)


def _short(header: Header) -> list[Complaint]:
    """Lists that end before that of the tokens does."""
    tokens = header.kv[TOKENS]
    for key, name in ((SCORES, "scores"), (TOKEN_TYPES, "toktypes")):
        beside = header.kv.get(key)
        if not isinstance(beside, Array) or not isinstance(tokens, Array):
            continue
        if beside.count < tokens.count:
            counts = f"({beside.count} < {tokens.count})"
            return [Complaint(f"Index out of array bounds for {name} {counts}")]
    return []


def _element(value: Value) -> str:
    return value.element if isinstance(value, Array) else ""
