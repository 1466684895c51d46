"""Starts that people have reported, held against the verdict: none that failed is a GO, none that
served is a NO-GO. Configurations are rebuilt from their publishers' descriptions, command lines are
those of the reports without what changes nothing."""

from typing import Any

import pytest

from console.checks.preflight.compatibility import Loader, plan_of
from console.host.sample import Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_config import from_config
from tests.sizing.test_checkpoints import GIB, KNOWN, cards


def dense(
    family: str, layers: int, width: int, heads: int, kept: int, forward: int, vocabulary: int,
    length: int, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    return {
        "architectures": [family], "model_type": "x", "torch_dtype": "bfloat16",
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": kept, "intermediate_size": forward, "vocab_size": vocabulary,
        "max_position_embeddings": length, **more,
    }  # fmt: skip


QWEN_EYE = {"vision_config": {"depth": 32, "hidden_size": 1280}, "video_token_id": 151656}
SIGLIP = {"vision_config": {"num_hidden_layers": 27, "hidden_size": 1152}}
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
QWEN_VL = "Qwen2_5_VLForConditionalGeneration"
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    "Qwen2.5-VL-72B-GPTQ": (
        dense(QWEN_VL, 80, 8192, 64, 8, 29696, 152064, 128000, **QWEN_EYE, **GPTQ), 43e9
    ),
    "Qwen2.5-VL-7B": (dense(QWEN_VL, 28, 3584, 28, 4, 18944, 152064, 128000, **QWEN_EYE), 16.6e9),
    "Gemma-3-27B": ({**KNOWN["gemma3-27b"]["config"], **SIGLIP}, KNOWN["gemma3-27b"]["bytes"]),
    "Gemma-3-4B": (
        dense("Gemma3ForConditionalGeneration", 34, 2560, 8, 4, 10240, 262208, 131072,
              head_dim=256, **SIGLIP), 8.6e9
    ),
    "InternVL2-8B": (
        {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
         "vision_config": {"num_hidden_layers": 24, "hidden_size": 1024},
         "llm_config": dense("InternLM2ForCausalLM", 32, 4096, 32, 8, 14336, 92553, 32768)}, 16.2e9
    ),
    "Yi-34B": (dense("LlamaForCausalLM", 60, 7168, 56, 8, 20480, 64000, 4096), 68.8e9),
    "Llama-3-8B": (dense("LlamaForCausalLM", 32, 4096, 32, 8, 14336, 128256, 8192), 16.1e9),
    "Qwen3-1.7B-GPTQ": (
        dense("Qwen3ForCausalLM", 28, 2048, 16, 8, 6144, 151936, 40960, head_dim=128, **GPTQ), 1.4e9
    ),
    "Q3-235B-FP8": (KNOWN["Q3-235B-FP8"]["config"], KNOWN["Q3-235B-FP8"]["bytes"]),
    "K25": (KNOWN["K25"]["config"], KNOWN["K25"]["bytes"]),
}  # fmt: skip
FAILED = (
    ("vllm-project/vllm#22173", "Qwen2.5-VL-72B-GPTQ", "vllm", 2, 40, (8, 0),
     '-tp 2 --max-model-len 32768 --limit-mm-per-prompt {"image":10,"video":1}'),
    ("QwenLM/Qwen3-VL#1204", "Qwen2.5-VL-7B", "vllm", 1, 24, (8, 9), "--dtype float16"),
    ("intel/llm-scaler#270", "Gemma-3-27B", "vllm", 4, 24, None,
     "--dtype float16 --enforce-eager --gpu-memory-util 0.9 --max-num-batched-tokens 8192 "
     "--max-model-len 8192 --block-size 64 -tp 4"),
    ("vllm-project/vllm#18733", "Gemma-3-4B", "vllm", 1, 24, (8, 9),
     "--dtype float16 --gpu-memory-utilization 0.9 --max-model-len 2500"),
    ("vllm-project/vllm#14696", "Gemma-3-4B", "vllm", 1, 24, (8, 6),
     "--dtype float16 --max-model-len 8192 --gpu-memory-utilization 0.9"),
    ("vllm-project/vllm#14817", "Gemma-3-4B", "vllm", 2, 15, (7, 5),
     "--tensor-parallel-size 2 --gpu-memory-utilization 0.9 --max-model-len=17370"),
    ("vllm-project/vllm#51305", "Llama-3-8B", "vllm", 1, 80, (10, 0), "--dtype float32"),
    ("vllm-project/vllm#19050", "Q3-235B-FP8", "vllm", 8, 80, (9, 0),
     "-tp 8 -ep --max-model-len 8192 --quantization gguf"),
    ("intel/auto-round#2242", "Qwen3-1.7B-GPTQ", "vllm", 1, 80, (8, 0),
     "--gpu-memory-utilization 0.8 --quantization inc"),
    ("sgl-project/sglang#6017", "Q3-235B-FP8", "sglang", 8, 80, (9, 0),
     "--tp 8 --attn-dp-size 8 --moe-a2a-backend deepep --chunked-prefill-size 4096 "
     "--mem-fraction-static 0.85 --page-size 1024"),
    ("kvcache-ai/ktransformers#1651, with the image encoder of K2.5", "K25", "kt-kernel", 1, 24,
     (8, 6), "--kt-weight-path /w --kt-cpuinfer 36 --kt-num-gpu-experts 16 --kt-method AMXINT4 "
     "--attention-backend flashinfer --mem-fraction-static 0.98 --chunked-prefill-size 4096 "
     "--max-total-tokens 3700"),
)  # fmt: skip
SERVED = (
    ("vllm-project/vllm#7768", "InternVL2-8B", "vllm", 2, 24, (8, 9),
     "--enable-chunked-prefill False --gpu-memory-utilization 0.9 --tensor-parallel-size 2"),
    ("vllm-project/vllm#7553", "Yi-34B", "vllm", 4, 24, (8, 9),
     "--gpu-memory-utilization 0.9 --swap-space 0 --tensor-parallel-size 4"),
    ("sgl-project/sglang#7873", "Llama-3-8B", "sglang", 2, 140, (9, 0),
     "--tp 2 --enable-memory-saver --mem-fraction-static 0.85"),
    ("sgl-project/sglang#8935", "Llama-3-8B", "sglang", 8, 180, (10, 0),
     "--tp 8 --attn-dp-size 8 --chunked-prefill-size -1 --attention-backend trtllm_mha"),
    ("kvcache-ai/ktransformers#1817 (32K and one expert: 31 GB)", "K25", "kt-kernel", 1, 48,
     (8, 9), "--kt-weight-path /w --kt-method RAWINT4 --kt-num-gpu-experts 1 "
     "--max-total-tokens 32768 --mem-fraction-static 0.9"),
)  # fmt: skip


def verdict(row: tuple[Any, ...]) -> tuple[Verdict, str]:
    _, model, engine, count, gib, compute, words = row
    config, size = MODELS[model]
    facts = from_config(config, int(size))
    plan = plan_of(Loader(engine=engine, args=tuple(words.split())), Format.SAFETENSORS)
    found = assess(facts, plan, Machine(cards=cards(count, gib, compute), ram_available=1000 * GIB))
    return found.verdict, found.because


@pytest.mark.parametrize("row", FAILED, ids=lambda row: row[0])
def test_a_start_that_failed_is_no_go(row: tuple[Any, ...]) -> None:
    found, why = verdict(row)
    assert found in (Verdict.NO_GO, Verdict.UNKNOWN), why


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row[0])
def test_a_start_that_served_is_not_refused(row: tuple[Any, ...]) -> None:
    found, why = verdict(row)
    assert found is not Verdict.NO_GO, why
