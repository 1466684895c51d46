"""SGLang's options that change the memory, with those of its kt-kernel backend, as a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.common.options.command_line import given
from console.common.options.table import table
from console.common.text import one_line
from console.models.sizing.flags.reading import (
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
    text,
    told_more,
    written,
)
from console.models.sizing.kv_cache import NOT_COUNTED
from console.models.sizing.loader_plan import SglangPlan
from console.models.sizing.serving.refused import SPANNING
from console.models.sizing.serving.releases import release_of
from console.models.sizing.serving.states import WIDTHS

UNITS = {
    "k": 1000, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
"""What SGLang's numbers may end with (`human_readable_int` in srt/utils/common.py)."""
OWN_LAYERS = ("NEXTN", "EAGLE")
"""Ways to guess ahead that take the checkpoint's own layers where no draft model is given."""
COLON_SINCE = (0, 5, 6)
"""The first release that refuses a name with a colon (sglang#12912); 0.5.5 has no such check."""
KT_WEIGHTS = "--kt-weight-path"
KV_TYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2")


def sglang_plan(
    argv: Sequence[str], image: str = "", env: Mapping[str, str] | None = None
) -> SglangPlan:
    """SGLang's arguments, with those of its kt-kernel backend, and its variables. `image`: its tag
    may name an older release than the one that is calculated."""
    got = plan_of("sglang", _SGLANG, argv, env)
    cache_type = got.get("type_kv", "auto")
    got["type_kv"] = fp8_of(cache_type) or ("auto" if cache_type == "auto" else "bf16")
    if cache_type == "auto" and of_cache_type(got["problems"]):
        got["type_kv"] = NOT_COUNTED
    got.pop("", None)
    got = _of_kt(got)
    if got.get("kt"):
        got["problems"] += tuple(_not_in_fork(argv))
    if got.get("all_to_all") in SPANNING:
        got["expert_ranks"] = got.get("ranks", 1)
    release, at_least = release_of("sglang", image), "nightly" in image
    if release is not None and release < COLON_SINCE and not at_least:
        got["refused"] = tuple(words for words in got["refused"] if not _of_colon(words))
    return SglangPlan(**{**got, **_copies(got)}, release=release, at_least=at_least)


def _of_colon(words: str) -> bool:
    """Whether a refusal is about the colon in a name that the server is called by."""
    own = words.startswith("--served-model-name ") and words.endswith("without a colon")
    return own or (words.startswith("--model-path ") and "without --served-model-name" in words)


def _not_in_fork(argv: Sequence[str]) -> Iterator[str]:
    """Options that SGLang has and kvcache-ai's fork of it, which comes with kt-kernel, does not."""
    for argument in given(argv, table("sglang")):
        if argument.option is not None and argument.option.lacks:
            shown = one_line(written(argument), 60)
            fork = argument.option.lacks
            yield f"{shown}: {fork}, which comes with kt-kernel, has no such option"


def _of_kt(got: dict[str, Any]) -> dict[str, Any]:
    """Without the weights of its experts kt-kernel takes no layer, and its other options do nothing
    (create_kt_config_from_server_args in kt_ep_wrapper.py of SGLang and of the fork). A path that
    was not understood may be one."""
    odd = any(problem.startswith(KT_WEIGHTS) for problem in got["problems"])
    if got.get("kt_weights") or (odd and "kt_weights" not in got):
        return {**got, "kt": True}
    rest = {name: value for name, value in got.items() if not name.startswith("kt")}
    return {**rest, "kt_idle": len(rest) < len(got)}


def _copies(got: Mapping[str, Any]) -> dict[str, Any]:
    """The copies of the whole or of the attention: `--dp-size N --enable-dp-attention` is an old
    way to write `--attn-dp-size N`."""
    whole, attention = got.get("replicas", 1), got.get("attention_replicas", 1)
    if got.get("attention_apart") and attention == 1:
        whole, attention = 1, whole
    if whole > 1 and attention > 1:
        return {"attention_apart": False}
    apart = bool(got.get("attention_apart")) or attention > 1
    return {"replicas": max(whole, attention), "attention_replicas": 1, "attention_apart": apart}


def _human(name: str) -> Apply:
    return human(name, UNITS, "32Ki, or 25.6k with a fraction")


def _attention_ranks(reading: Reading, flag: str, value: str) -> None:
    number("attention_replicas", 1, 1024)(reading, flag, value)


def _graph_batches(reading: Reading, flag: str, value: str) -> None:
    """The largest batch that graphs are captured for decides what they take."""
    number("graph_batch", 1)(
        reading, flag, max(value.split(), key=lambda v: (len(v), v), default="")
    )


def _speculation(reading: Reading, flag: str, value: str) -> None:
    """What guesses ahead loads the file's own spare layers, a model of its own, or nothing."""
    reading.got["speculates"] = value.upper() != "NONE"
    reading.got["looks_up"] = value.upper() == "NGRAM"
    reading.got["trees"] = reading.got.get("trees", False) or value.upper() == "NGRAM"
    if value.upper() in OWN_LAYERS:
        reading.got["drafts"] = True
    elif value.upper() not in ("NGRAM", "NONE"):
        reading.uncounted.append(f"{flag} {one_line(value, 40)}")


def _all_to_all(reading: Reading, flag: str, value: str) -> None:
    """Only what DeepEP takes is counted."""
    reading.got["all_to_all"] = value
    if value not in ("none", "deepep"):
        reading.uncounted.append(f"{flag} {value}")


def _phase(reading: Reading, flag: str, value: str) -> None:
    """The backend of one phase: prompts, or answers."""
    reading.got["phases"] = (*reading.got.get("phases", ()), value)


def _branches(reading: Reading, flag: str, value: str) -> None:
    if value.isdecimal() and int(value) > 1:
        reading.got["trees"] = True


def _kt_weights(reading: Reading, flag: str, value: str) -> None:
    reading.got["kt_weights"] = value
    if not value:
        reading.problem(flag, value, "the directory of the experts' weights")


def _kt_method(reading: Reading, flag: str, value: str) -> None:
    reading.got["kt_method"] = one_line(value, 40).upper()


_SGLANG: Mapping[str, Apply] = {
    "--attn-cp-size": beyond_one, "--dcp-size": beyond_one, "--nnodes": beyond_one,
    "--tensor-parallel-size": number("ranks", 1, 1024),
    "--pp-size": number("stages", 1, 1024), "--pipeline-parallel-size": number("stages", 1, 1024),
    "--data-parallel-size": number("replicas", 1, 1024),
    "--enable-dp-attention": fixed("attention_apart", True),
    "--expert-parallel-size": number("expert_ranks", 1, 1024),
    "--mem-fraction-static": fraction("mem_fraction", 1.0),
    "--context-length": _human("ctx"), "--max-total-tokens": _human("cache_tokens"),
    "--kv-cache-dtype": choice("type_kv", KV_TYPES),
    "--cpu-offload-gb": gibibytes("cpu_offload"),
    "--chunked-prefill-size": number("chunk", -1), "--max-prefill-tokens": _human("prefill"),
    "--max-running-requests": number("running", 1), "--cuda-graph-max-bs": number("graph_batch", 1),
    "--cuda-graph-max-bs-decode": number("graph_batch", 1),
    "--cuda-graph-bs": _graph_batches, "--cuda-graph-bs-decode": _graph_batches,
    "--disable-cuda-graph": fixed("graphs", False),
    "--disable-decode-cuda-graph": fixed("graphs", False),
    "--attention-data-parallel-size": _attention_ranks,
    "--dtype": text("dtype"), "--quantization": text("quantization"),
    "--load-format": text("load_format"), "--model-loader-extra-config": told_more,
    "--speculative-algorithm": _speculation, "--speculative-num-steps": fixed("", None),
    "--speculative-eagle-topk": _branches, "--revision": text("model"),
    "--speculative-num-draft-tokens": fixed("", None),
    "--kt-cpuinfer": number("kt_threads", 1), "--kt-threadpool-count": number("kt_pools", 1),
    KT_WEIGHTS: _kt_weights, "--kt-method": _kt_method,
    "--kt-gpu-prefill-token-threshold": number("kt_prefill"),
    "--kt-num-gpu-experts": number("kt_gpu_experts", 0, 1 << 16),
    "--kt-mmap-experts-dir": fixed("kt_mmap", True),
    "--kt-skip-gpu-expert-cpu-copy": fixed("kt_skips", True),
    "--model-path": text("model"), "--language-model-only": fixed("text_only", True),
    "--enable-multimodal": fixed("multimodal", True), "--moe-a2a-backend": _all_to_all,
    "--page-size": number("page", 1), "--attention-backend": text("attention"),
    "--prefill-attention-backend": _phase, "--decode-attention-backend": _phase,
    "--max-mamba-cache-size": number("states", 1), "--disable-radix-cache": fixed("radix", False),
    "--mamba-full-memory-ratio": fraction("state_share", 100.0),
    "--mamba-ssm-dtype": choice("state_type", tuple(WIDTHS)),
    "--moe-runner-backend": text("moe_backend"), "--fp8-gemm-backend": text("fp8_backend"),
}  # fmt: skip
