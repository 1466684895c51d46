"""Kernels for kinds of attention and of experts: the table's cells, and what has no cell."""

from typing import Any

import pytest

from console.checks.preflight import Level
from console.checks.preflight.checkpoint import not_known
from console.checks.preflight.compatibility import Question, check
from console.host.sample import Card, Machine
from console.models.sizing.facts_from_config import from_config

LATENT = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 1024,
    "intermediate_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip
DENSE = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 4,
    "hidden_size": 512, "num_attention_heads": 8, "head_dim": 128, "vocab_size": 1024,
    "intermediate_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip
MIXED = {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
SPARSE = {**LATENT, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
WINDOWS = ["sliding_attention", "full_attention"] * 2


def attends(config: dict[str, Any]) -> str:
    return from_config(config, 1 << 30).attends


def level(engine: str, compute: tuple[int, int] | None, **told: str) -> Level:
    """What the table says of attention or experts on a card of a compute capability."""
    here = Machine(cards=(Card("?", compute=compute),))
    (about,) = set(told) & {"attention", "experts"}
    found = check(Question(engine, "safetensors", "deepseek_v3", machine=here, **told))
    return next(one.level for one in found if one.title.startswith(f"{engine}, {about} "))


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (DENSE, "plain"), (LATENT, "MLA"), (SPARSE, "sparse MLA"),
        ({**DENSE, "sliding_window": 128, "layer_types": WINDOWS}, "window"),
        ({**DENSE, "head_dim": 256}, "wide heads"),
        ({**DENSE, "architectures": ["GptOssForCausalLM"]}, "sinks"),
        ({**DENSE, "add_swa_attention_sink_bias": True}, "sinks"),
        ({**DENSE, "sparse_attention_config": {"use_sparse_attention": True}}, "sparse"),
        ({**DENSE, "dual_chunk_attention_config": {"chunk_size": 1}}, "dual chunk"),
        ({**DENSE, "layer_types": ["linear_attention", "full_attention"] * 2}, "states"),
        ({**SPARSE, "compress_ratios": [4, 4, 4, 4]}, "compressed"),
        ({**LATENT, "attention_sink_bias": True}, "MLA with sinks"),
        ({**MIXED, "decoder_sparse_step": 1}, "plain"),
    ],
)  # fmt: skip
def test_the_kind_of_attention_is_read_from_the_configuration(
    config: dict[str, Any], kind: str
) -> None:
    assert attends(config) == kind


@pytest.mark.parametrize(
    ("engine", "compute", "kind", "wanted"),
    [
        ("vllm", (8, 0), "sparse MLA", Level.FAIL),  # vllm#35021, #40851, #41525
        ("vllm", (8, 6), "sparse MLA", Level.FAIL), ("vllm", (8, 9), "sparse MLA", Level.FAIL),
        ("vllm", (11, 0), "sparse MLA", Level.FAIL), ("vllm", (7, 5), "sparse MLA", Level.FAIL),
        ("vllm", (12, 0), "sparse MLA", Level.UNKNOWN),  # vllm#31936
        ("vllm", (12, 1), "sparse MLA", Level.UNKNOWN),  # vllm#45317
        ("vllm", (9, 0), "sparse MLA", Level.OK), ("vllm", (10, 3), "sparse MLA", Level.OK),
        ("sglang", (12, 0), "sparse MLA", Level.UNKNOWN),  # sglang#26087
        ("sglang", (8, 0), "sparse MLA", Level.UNKNOWN),  # sglang#33194
        ("sglang", (9, 0), "sparse MLA", Level.OK),
        ("vllm", (7, 5), "MLA", Level.FAIL),  # vllm#14016
        ("vllm", (8, 9), "MLA", Level.OK), ("sglang", (7, 5), "MLA", Level.UNKNOWN),
        ("sglang", (12, 0), "MLA", Level.OK), ("kt-kernel", (8, 9), "sparse MLA", Level.OK),
        ("kt-kernel", (8, 6), "sparse MLA", Level.UNKNOWN),
        ("vllm", (7, 5), "plain", Level.OK), ("vllm", (7, 5), "sinks", Level.UNKNOWN),
        ("vllm", (9, 0), "dual chunk", Level.UNKNOWN), ("sglang", (9, 0), "sparse", Level.UNKNOWN),
        ("vllm", (9, 0), "MLA with sinks", Level.UNKNOWN), ("vllm", None, "plain", Level.UNKNOWN),
    ],
)  # fmt: skip
def test_a_kind_of_attention_without_evidence_is_unknown(
    engine: str, compute: tuple[int, int] | None, kind: str, wanted: Level
) -> None:
    assert level(engine, compute, attention=kind) is wanted


FLOAT = {"quant_method": "compressed-tensors", "format": "float-quantized"}
MODELOPT = {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16},
                        "targets": ["Linear"]}}  # fmt: skip
"""As NVIDIA writes it: the algorithm stands beside, and no strategy."""


@pytest.mark.parametrize(
    ("how", "scales"),
    [
        ({}, "none"), ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "block"),
        ({"quant_method": "fp8"}, "tensor"), ({"quant_method": "fbgemm_fp8"}, "channel"),
        ({**FLOAT, "config_groups": {"a": {"weights": {"strategy": "channel"}}}}, "channel"),
        ({**FLOAT, "config_groups": {"a": {"weights": {"strategy": "tensor"}}}}, "tensor"),
        ({**FLOAT, "config_groups": {"a": {"weights": {"strategy": "block"}}}}, "block"),
        ({**FLOAT, "config_groups": {"a": {"weights": {"strategy": "channel"}},
                                     "b": {"weights": {"strategy": "group"}}}}, "other"),
        ({"quant_method": "awq"}, "group"), ({"quant_algo": "FP8"}, "tensor"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "group"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": MODELOPT}, "group"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "config_groups": MODELOPT}, "tensor"),
        ({"quant_method": "modelopt", "quant_algo": "new", "config_groups": MODELOPT}, "other"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4",
          "config_groups": {"a": {"weights": {"strategy": "block"}}}}, "block"),
        ({"quant_method": "something new"}, "other"),
    ],
)  # fmt: skip
def test_the_scales_are_read_from_the_quantization(how: dict[str, Any], scales: str) -> None:
    config = {**MIXED, "quantization_config": how} if how else MIXED
    assert from_config(config, 1 << 30).scaled_by == scales


@pytest.mark.parametrize(
    ("engine", "compute", "quantization", "scales", "wanted"),
    [
        ("sglang", (8, 9), "fp8", "channel", Level.UNKNOWN),  # sglang#5995, sglang#8513
        ("sglang", (12, 0), "fp8", "tensor", Level.UNKNOWN),
        ("sglang", (12, 1), "fp8", "channel", Level.UNKNOWN),  # sglang#28019
        ("kt-kernel", (8, 9), "fp8", "channel", Level.UNKNOWN),  # ktransformers#1793
        ("sglang", (9, 0), "fp8", "channel", Level.OK),
        ("sglang", (8, 9), "fp8", "block", Level.OK), ("vllm", (8, 9), "fp8", "channel", Level.OK),
        ("sglang", (8, 6), "int8", "channel", Level.OK),
        ("vllm", (7, 5), "awq", "group", Level.UNKNOWN), ("vllm", (7, 5), "fp16", "none", Level.OK),
        ("sglang", (9, 0), "fp8", "other", Level.UNKNOWN),
    ],
)  # fmt: skip
def test_experts_without_evidence_are_unknown(
    engine: str, compute: tuple[int, int], quantization: str, scales: str, wanted: Level
) -> None:
    assert level(engine, compute, quantization=quantization, experts=scales) is wanted


def test_an_unknown_cell_makes_the_verdict_unknown() -> None:
    here = Machine(cards=(Card("?", compute=(12, 0)),))
    asked = Question("vllm", "safetensors", "deepseek_v32", "awq", "", "", here,
                     attention="sparse MLA", experts="other")  # fmt: skip
    assert ", attention sparse MLA" in not_known(check(asked))
    assert ", experts with scales of an unknown kind" in not_known(check(asked))


def test_a_finding_says_in_words_which_attention_it_is_about() -> None:
    titles = [finding.title for finding in check(Question("vllm", attention="plain"))]
    assert "vllm, attention over the whole context" in titles
    assert not any("plain" in title for title in titles)
