"""Backends of attention that lack something by SGLang's own matrix."""

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan

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
