"""vLLM's options that change the memory, as a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from console.common.text import one_line
from console.models.sizing.flags.reading import (
    ON,
    Apply,
    Reading,
    beyond_one,
    choice,
    fixed,
    fp8_of,
    fraction,
    gibibytes,
    human,
    number,
    of_cache_type,
    plan_of,
    switch,
    text,
    told_more,
)
from console.models.sizing.kv_cache import NOT_COUNTED
from console.models.sizing.loader_plan import VllmPlan
from console.models.sizing.serving.releases import release_of
from console.models.sizing.serving.states import WIDTHS

UNITS = {
    "k": 1000, "m": 10**6, "g": 10**9, "t": 10**12,
    "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}  # fmt: skip
"""What vLLM's numbers may end with: small letters are powers of ten, large ones of two
(`human_readable_int` in utils/argparse_utils.py)."""
LOAD_NOTHING = ("ngram", "ngram_gpu", "suffix")
"""Ways to guess ahead without a model; only suffix decoding has a number of tokens of its own."""
MEASURES, MEASURED_SINCE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", (0, 21)
"""Whether CUDA graphs are measured before the cache is made, and since when they usually are."""
LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Lets a context be longer than the model's own (`_get_and_verify_max_len` of config/model.py)."""
OWN_LAYERS = ("mtp", "qwen3_next_mtp", "qwen3_5_mtp")
"""Ways to guess ahead with layers of the checkpoint itself; for others than gated delta nets what
they take is not known here."""
USUAL_GRAPH = 512
"""The largest batch of which vLLM makes a CUDA graph where nothing else is asked for."""
MAX_GUESSES = 64
"""More tokens guessed ahead than this are not counted."""


def vllm_plan(
    argv: Sequence[str], env: Mapping[str, str] | None = None, image: str = ""
) -> VllmPlan:
    """The arguments of `vllm serve`, or of its module, and its variables, as a plan. `image`: whose
    tag may name an older release than the one that is calculated."""
    named, release = release_of("vllm", image, own=False), release_of("vllm", image)
    old = named is not None and named < MEASURED_SINCE
    got = _with_adapters(plan_of("vllm", _VLLM, argv, env, release))
    if "type_kv" not in got and of_cache_type(got["problems"]):
        got["type_kv"] = NOT_COUNTED
    beyond = old or (env or {}).get(MEASURES) == "0"
    longer = (env or {}).get(LONG, "").strip().lower() in ON[2:4]
    return VllmPlan(**got, graphs_beyond=beyond, longer=longer, release=release)


def _human(name: str) -> Apply:
    return human(name, UNITS, "32K, or 25.6k with a fraction")


def _length(reading: Reading, flag: str, value: str) -> None:
    if value.lower() in ("auto", "-1"):
        reading.got["ctx"] = -1
    else:
        _human("ctx")(reading, flag, value)


def _kv_type(reading: Reading, flag: str, value: str) -> None:
    reading.got["asked_type"] = value[:40]
    if value in ("auto", "bfloat16", "float16") or value.startswith("fp8"):
        whole = "" if value.endswith("_per_token_head") else fp8_of(value)
        reading.got["type_kv"] = whole or (value if value.startswith(("auto", "fp8")) else "bf16")
    else:
        reading.got["type_kv"] = value[:40]  # its least size is counted, where it is known
        reading.uncounted.append(f"{flag} {value[:40]}")


def _load_format(reading: Reading, flag: str, value: str) -> None:
    reading.got["load_format"] = value.lower()  # as LoadConfig does it


def _executor(reading: Reading, flag: str, value: str) -> None:
    """What starts the ranks: processes of this host, or Ray's, which may be on others."""
    if value not in ("mp", "uni", "external_launcher", "ray"):
        reading.uncounted.append(f"{flag} {one_line(value, 40)}")
    reading.got["ray"] = value == "ray"


def _config_format(reading: Reading, flag: str, value: str) -> None:
    if value not in ("auto", "hf", "mistral"):
        reading.uncounted.append(f"{flag} {one_line(value, 40)}")
    reading.got["config_format"] = value


def _optimized(reading: Reading, flag: str, value: str) -> None:
    if value == "0":
        reading.got["graphs"] = False


def _speculation(reading: Reading, flag: str, value: str) -> None:
    """What looks into the text before loads nothing; every other way loads something."""
    try:
        config = json.loads(value)
    except ValueError:
        config = None
    method = config.get("method") if isinstance(config, dict) else None
    tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    alone = method in OWN_LAYERS and set(config or ()) == {"method", "num_speculative_tokens"}
    if alone and type(tokens) is int and 0 < tokens <= MAX_GUESSES:
        reading.got["guesses"] = tokens
        return
    if method not in LOAD_NOTHING:
        reading.uncounted.append(f"{flag} {one_line(value, 60)}")
        return
    reading.got["looks_up"] = True
    if method != "suffix" and (type(tokens) is not int or tokens < 1):
        reading.problem(flag, value, "num_speculative_tokens of 1 or more")


def _graph_sizes(reading: Reading, flag: str, value: str) -> None:
    """Batches of which CUDA graphs are made: what graphs take is known of the usual ones."""
    sizes = [int(word) for word in value.split() if word.isdecimal()]
    if len(sizes) < len(value.split()) or max(sizes, default=0) > USUAL_GRAPH:
        reading.uncounted.append(f"{flag} {one_line(value, 40)}")
    elif flag == "--max-cudagraph-capture-size":
        reading.got["largest_graph"] = max(sizes, default=0)
    else:
        reading.got["graph_batches"] = len(set(sizes))


def _moe_backend(reading: Reading, flag: str, value: str) -> None:
    """The last --moe-backend counts unless it is auto (`create_engine_config` of arg_utils.py)."""
    name = value.lower().replace("-", "_")
    if name != "auto":
        reading.got["moe_backend"] = name


def _kernels(reading: Reading, flag: str, value: str) -> None:
    """Of --kernel-config the backend of experts is judged, and nothing else is known."""
    try:
        config = json.loads(value)
    except ValueError:
        config = None
    backend = config.get("moe_backend") if isinstance(config, dict) else None
    if not isinstance(backend, str) or len(config) > 1:
        reading.uncounted.append(f"{flag} {one_line(value, 60)}")
    if isinstance(backend, str):
        reading.got.setdefault("moe_backend", backend.lower().replace("-", "_"))


def _experts(reading: Reading, flag: str, value: str) -> None:
    reading.got["whole_experts"] = flag == "--enable-expert-parallel"


def _limits(reading: Reading, flag: str, value: str) -> None:
    """Kinds of input of which a prompt may hold none: `{"image": 0, "video": {"count": 0}}`."""
    try:
        limits = json.loads(value)
    except ValueError:
        limits = None
    if not isinstance(limits, dict):
        reading.uncounted.append(f"{flag} {one_line(value, 60)}")
        return
    counts = {kind: limit.get("count") if isinstance(limit, dict) else limit
              for kind, limit in limits.items()}  # fmt: skip
    none = (kind for kind, count in counts.items() if count == 0 and count is not False)
    reading.got["limited"] = frozenset(none)


def _adapters(reading: Reading, flag: str, value: str) -> None:
    reading.got["adapters"] = flag == "--enable-lora"


def _of_adapters(reading: Reading, flag: str, value: str) -> None:
    """How adapters are kept: nothing without --enable-lora (`create_engine_config` of arg_utils.py
    makes no LoRAConfig then)."""
    reading.got.setdefault("of_adapters", []).append(f"{flag} {one_line(value, 40)}".rstrip())


def _with_adapters(got: dict[str, Any]) -> dict[str, Any]:
    """Slots for adapters have a formula (`create_lora_weights` in lora/layers of 0.33: of a matrix
    divided by columns a rank has all inputs and its own outputs, by rows the other way round, and
    experts have slots each). Which matrices are wrapped is their class's own, no public log has the
    figures, and a step with an adapter was seen to take more than is measured (vllm#15039)."""
    settings = got.pop("of_adapters", [])
    if not got.pop("adapters", False):
        return got
    words = (
        "--enable-lora: the slots for adapters (--max-loras x --max-lora-rank x the inputs and the "
        "outputs of each matrix that the model's class wraps: which those are is not known here), "
        "and what a step with an adapter takes (vllm#15039)"
    )
    return {**got, "uncounted": tuple(dict.fromkeys((*got["uncounted"], words, *settings)))}


_VLLM: Mapping[str, Apply] = {
    "--enable-lora": _adapters, "--no-enable-lora": _adapters, "--max-loras": _of_adapters,
    "--max-cpu-loras": _of_adapters, "--max-lora-rank": _of_adapters,
    "--lora-dtype": _of_adapters, "--lora-target-modules": _of_adapters,
    "--fully-sharded-loras": _of_adapters,
    "--decode-context-parallel-size": beyond_one, "--prefill-context-parallel-size": beyond_one,
    "--nnodes": beyond_one,
    "--tensor-parallel-size": number("ranks", 1, 1024, bounded=True),
    "--pipeline-parallel-size": number("stages", 1, 1024, bounded=True),
    "--data-parallel-size": number("replicas", 1, 1024, bounded=True),
    "--enable-expert-parallel": _experts, "--no-enable-expert-parallel": _experts,
    "--gpu-memory-utilization": fraction("fraction", 1.0, bounded=True), "--max-model-len": _length,
    "--max-num-seqs": number("seqs", 1, bounded=True), "--max-num-batched-tokens": _human("batch"),
    "--kv-cache-dtype": _kv_type, "--dtype": text("dtype"), "--quantization": text("quantization"),
    "--load-format": _load_format, "--model-loader-extra-config": told_more,
    "--enforce-eager": fixed("graphs", False), "--no-enforce-eager": fixed("graphs", True),
    "--cpu-offload-gb": gibibytes("cpu_offload"), "--speculative-config": _speculation,
    "--optimization-level": _optimized, "--async-scheduling": fixed("ahead", True),
    "--no-async-scheduling": fixed("ahead", False),
    "--kv-cache-memory-bytes": _human("cache_bytes"), "--model": text("model"),
    "--language-model-only": switch("text_only"),
    "--no-language-model-only": fixed("text_only", False), "--limit-mm-per-prompt": _limits,
    "--enable-chunked-prefill": fixed("chunked", True),
    "--no-enable-chunked-prefill": fixed("chunked", False),
    "--max-num-active-seqs": number("active", 1),
    "--long-prefill-token-threshold": number("long_prefill"),
    "--block-size": number("page", 1, bounded=True), "--distributed-executor-backend": _executor,
    "--config-format": _config_format,
    "--enable-prefix-caching": fixed("prefixes", True),
    "--no-enable-prefix-caching": fixed("prefixes", False),
    "--mamba-ssm-cache-dtype": choice("state_type", ("auto", *WIDTHS)),
    "--cudagraph-capture-sizes": _graph_sizes, "--max-cudagraph-capture-size": _graph_sizes,
    "--attention-backend": text("attention"), "--tool-call-parser": text("tool_parser"),
    "--enable-auto-tool-choice": fixed("calls_tools", True),
    "--no-enable-auto-tool-choice": fixed("calls_tools", False),
    "--enable-log-outputs": fixed("logs_answers", True),
    "--no-enable-log-outputs": fixed("logs_answers", False),
    "--enable-log-requests": fixed("logs_requests", True),
    "--no-enable-log-requests": fixed("logs_requests", False),
    "--moe-backend": _moe_backend, "--kernel-config": _kernels,
}  # fmt: skip
