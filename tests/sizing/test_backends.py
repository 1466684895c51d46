"""Backends of attention that lack something by SGLang's own matrix."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.model_facts import ModelFacts, Recurrent

HERE = Machine(
    cards=(Card("A", total=80 * GIB, free=80 * GIB, compute=(9, 0)),), ram_available=256 * GIB
)
CONFIG = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 4,
    "hidden_size": 512, "num_attention_heads": 8, "head_dim": 128, "vocab_size": 1024,
    "intermediate_size": 1024, "max_position_embeddings": 4096, "dtype": "bfloat16",
}  # fmt: skip
PLAIN = from_config(CONFIG, 1 << 30)
WINDOW = from_config(
    {**CONFIG, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2},
    1 << 30,
)
GPT_OSS = replace(PLAIN, attends="sinks")
HYBRID = replace(PLAIN, recurrent=Recurrent((True, False, True, False), 1, 1, "one"))
LATENT = from_config(
    {**CONFIG, "architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512,
     "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
    1 << 30,
)  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "words", "verdict", "why"),
    [
        (PLAIN, "--speculative-algorithm NGRAM --attention-backend torch_native",
         Verdict.NO_GO, "to guess ahead with --attention-backend torch_native"),  # sglang#36352
        (PLAIN, "--speculative-algorithm EAGLE --attention-backend flex_attention",
         Verdict.NO_GO, "flex_attention"),
        (PLAIN, "--speculative-algorithm NGRAM --attention-backend torch_native "
         "--decode-attention-backend triton --prefill-attention-backend triton", Verdict.GO, ""),
        (PLAIN, "--speculative-algorithm NGRAM --attention-backend triton "
         "--decode-attention-backend torch_native", Verdict.UNKNOWN, "guessing ahead"),
        (PLAIN, "--speculative-algorithm NGRAM --attention-backend trtllm_mha",
         Verdict.UNKNOWN, "several guesses at once"),
        (PLAIN, "--speculative-algorithm NGRAM --attention-backend flashinfer", Verdict.GO, ""),
        (PLAIN, "--attention-backend torch_native", Verdict.GO, ""),
        (WINDOW, "--attention-backend torch_native", Verdict.UNKNOWN, "layers with a window"),
        (PLAIN, "--attention-backend fa4 --kv-cache-dtype fp8_e4m3", Verdict.UNKNOWN, "in FP8"),
        (LATENT, "--speculative-algorithm NGRAM --attention-backend flashmla",
         Verdict.UNKNOWN, "several guesses at once"),
        (LATENT, "--attention-backend torch_native", Verdict.UNKNOWN, "serves this model"),
        (PLAIN, "--attention-backend flashmla", Verdict.UNKNOWN, "serves this model"),
    ],
)  # fmt: skip
def test_what_a_backend_lacks_is_no_go_or_unknown(
    facts: object, words: str, verdict: Verdict, why: str
) -> None:
    found = assess(facts, sglang_plan(words.split()), HERE)  # type: ignore[arg-type]
    assert found.verdict is verdict, found.because
    assert why in found.because


def on(compute: tuple[int, int]) -> Machine:
    return replace(HERE, cards=tuple(replace(card, compute=compute) for card in HERE.cards))


SGLANG_CASES = [
    (PLAIN, "--attention-backend trtllm_mha", (12, 0), True),  # sglang#31959
    (PLAIN, "--attention-backend trtllm_mha", (10, 0), False),
    (LATENT, "--attention-backend trtllm_mla", (12, 0), True),  # sglang#24633
    (PLAIN, "--attention-backend fa4", (12, 0), True),  # sglang#23985
    (PLAIN, "--attention-backend fa4", (8, 6), True),
    (PLAIN, "--attention-backend fa3", (12, 0), True),
    (PLAIN, "--attention-backend fa3", (8, 6), False),
    (PLAIN, "--attention-backend triton", (12, 0), False),
    (PLAIN, "--attention-backend flashinfer", (8, 9), False),
    (HYBRID, "--attention-backend flashinfer", (10, 0), True),  # sglang#35080
    (HYBRID, "--attention-backend flashinfer", (12, 0), False),  # sglang#35596, club-3090#1261
    (HYBRID, "--attention-backend flashinfer", (12, 1), True),
    (HYBRID, "--attention-backend triton", (10, 0), False),
]
VLLM_CASES = [
    (GPT_OSS, "--attention-backend FLASHINFER", (12, 0), True),  # vllm#40153
    (GPT_OSS, "--attention-backend FLASHINFER", (10, 0), False),
    (GPT_OSS, "--attention-backend TRITON_ATTN", (12, 0), False),
    (PLAIN, "--attention-backend FLASHINFER", (12, 0), False),
    (PLAIN, "--attention-backend flash_attn --kv-cache-dtype fp8", (8, 9), True),
    (PLAIN, "--attention-backend FLASH_ATTN --kv-cache-dtype fp8", (9, 0), False),
    (PLAIN, "--attention-backend FLASH_ATTN", (8, 9), False),
    (LATENT, "--attention-backend FLASHMLA", (8, 9), True),
    (LATENT, "--attention-backend CUTLASS_MLA", (12, 0), True),
    (LATENT, "--attention-backend TRITON_MLA", (8, 9), False),
    (PLAIN, "--attention-backend CUTLASS_MLA", (10, 0), True),
]


@pytest.mark.parametrize(("facts", "words", "compute", "doubted"), [*SGLANG_CASES, *VLLM_CASES])
def test_a_backend_that_is_named_needs_kernels_for_the_card(
    facts: ModelFacts, words: str, compute: tuple[int, int], doubted: bool
) -> None:
    of_vllm = words.split()[1].isupper() or "flash_attn" in words
    plan = (vllm_plan if of_vllm else sglang_plan)(words.split())
    because = "; ".join(assess(facts, plan, on(compute)).unknown)
    assert ("whether --attention-backend" in because) is doubted, because
