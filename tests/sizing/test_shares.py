"""What one of several ranks holds of the dense weights.

Latent attention by ktransformers#1681, whose log has 10.63 GB on each of two ranks of DeepSeek-R1
in FP8; the layers by SGLang 0.5.23 (deepseek_v2.py, qwen3_moe.py) and vLLM.
"""

import pytest

from console.checks.preflight.compatibility import Loader, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.safetensors.names import Held, held
from console.models.safetensors.read import StoredBytes
from console.models.sizing.assess import assess
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.model_facts import Divided, ModelFacts
from tests.sizing.test_repacked import LARGE

GIB = 1 << 30
R1 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 129280, "max_position_embeddings": 163840, "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
R1_BYTES = 688_586_727_753
KV_B = 61 * 512 * 128 * (128 + 128) * 2
"""Both parts of `kv_b_proj` in 16 bits, of all layers and heads."""


def headers() -> StoredBytes:
    """Bytes by tensor as DeepSeek-R1 is stored: FP8, but tables and routers in 16 bits."""
    groups = {("model.embed_tokens.weight", -1): 129280 * 7168 * 2,
              ("lm_head.weight", -1): 129280 * 7168 * 2}  # fmt: skip
    each = {
        "self_attn.q_a_proj": 7168 * 1536, "self_attn.q_b_proj": 1536 * 128 * 192,
        "self_attn.kv_a_proj_with_mqa": 7168 * 576, "self_attn.kv_b_proj": 512 * 128 * 256,
        "self_attn.o_proj": 128 * 128 * 7168,
    }  # fmt: skip
    routed = {"mlp.gate": 2 * 7168 * 256, "mlp.shared_experts.up_proj": 3 * 7168 * 2048,
              "mlp.experts.#.up_proj": 256 * 3 * 7168 * 2048}  # fmt: skip
    for layer in range(61):
        of_layer = each | (routed if layer > 2 else {"mlp.up_proj": 3 * 7168 * 18432})
        for name, size in of_layer.items():
            groups[f"model.layers.#.{name}.weight", layer] = size
    return StoredBytes(groups, 163, 163)


def weights(facts: ModelFacts, engine: str, words: str, count: int, name: str = "weights") -> int:
    plan = plan_of(Loader(engine=engine, args=tuple(words.split())), Format.SAFETENSORS)
    cards = tuple(Card("card", total=80 * GIB, free=79 * GIB, compute=(9, 0)) for _ in range(count))
    found = assess(facts, plan, Machine(cards=cards, ram_available=1 << 40))
    return next(term.bytes or 0 for term in found.terms if term.name == name)


def test_latent_attention_on_two_ranks_is_what_the_log_says() -> None:
    """kvcache-ai/ktransformers#1681: mem usage=10.63 GB on both ranks, experts on the processor."""
    words = "--tp 2 --kt-weight-path /w --kt-method AMXINT4 --kt-num-gpu-experts 0 --kt-cpuinfer 60"
    size = weights(from_config(R1, R1_BYTES, headers()), "kt-kernel", words, 2)
    assert size / GIB == pytest.approx(10.63, rel=0.03)


def test_eight_ranks_of_vllm_hold_what_their_log_says() -> None:
    """HabanaAI/vllm-fork#809: "Pre-loading model weights took 79.41 GiB" on each of eight."""
    facts = from_config(R1, R1_BYTES, headers())
    words = "-tp 8 --max-model-len 8192"
    size = weights(facts, "vllm", words, 8) + weights(facts, "vllm", words, 8, "experts")
    assert size / GIB == pytest.approx(79.41, rel=0.01)


def test_more_ranks_save_nothing_of_what_each_holds_whole() -> None:
    facts = from_config(R1, R1_BYTES)
    two, eight = (weights(facts, "sglang", f"--tp {n}", n) for n in (2, 8))
    kept = facts.divided.whole
    assert 61 * 7168 * (1536 + 576) < kept < 2 * 61 * 7168 * (1536 + 576 + 256)
    assert (eight - kept) * 4 == pytest.approx(two - kept, rel=0.001)


def test_vllm_holds_both_parts_of_a_quantized_matrix_beside_it() -> None:
    facts = from_config(R1, R1_BYTES)
    quantized = weights(facts, "vllm", "-tp 8 --max-model-len 8192", 8)
    plain = {key: value for key, value in R1.items() if key != "quantization_config"}
    wide = weights(from_config(plain, R1_BYTES), "vllm", "-tp 8 --max-model-len 8192", 8)
    assert quantized - wide == pytest.approx(KV_B // 8, abs=16)


def test_every_rank_has_a_head_of_keys_and_values() -> None:
    """Qwen3-235B has four of them."""
    facts, size = from_config(LARGE, 470_186_000_000), dict[int, int]()
    for ranks in (4, 8):
        size[ranks] = weights(facts, "sglang", f"--tp {ranks}", ranks)
    more = 2 * size[8] - size[4] - facts.divided.whole
    assert more == pytest.approx(facts.divided.key_values / 4, rel=0.01)
    assert facts.divided.key_values == pytest.approx(94 * 2 * 4096 * 512 * 2, rel=0.01)


def test_attention_of_its_own_is_divided_among_fewer_ranks() -> None:
    """With --enable-dp-attention every replica has the attention and the token table whole."""
    facts = from_config(LARGE, 470_186_000_000)
    together = weights(facts, "sglang", "--tp 4", 4)
    apart = weights(facts, "sglang", "--tp 4 --dp-size 4 --enable-dp-attention", 4)
    attention = 94 * 4096 * 128 * (2 * 64 + 2 * 4) * 2
    assert apart - together > attention * 0.7


@pytest.mark.parametrize(("name", "how"), [
    ("model.layers.#.self_attn.q_a_proj.weight_scale_inv", Held.WHOLE),
    ("model.layers.#.self_attn.kv_a_proj_with_mqa.weight", Held.WHOLE),
    ("model.layers.#.self_attn.indexer.wq_b.weight", Held.WHOLE),
    ("layers.#.attn.wkv.weight", Held.WHOLE),  # DeepSeek-V4
    ("model.layers.#.mlp.gate.weight", Held.WHOLE),
    ("model.layers.#.block_sparse_moe.gate.weight", Held.WHOLE),
    ("model.layers.#.mlp.gate_proj.weight", Held.REST),
    ("model.layers.#.post_attention_layernorm.weight", Held.WHOLE),
    ("model.layers.#.self_attn.v_proj.qweight", Held.KEY_VALUES),
    ("model.layers.#.self_attn.kv_b_proj.weight", Held.ATTENTION),
    ("model.layers.#.self_attn.o_proj.weight", Held.ATTENTION),
    ("model.layers.#.mlp.shared_experts.up_proj.weight", Held.REST),
])  # fmt: skip
def test_names_tell_how_ranks_hold_a_tensor(name: str, how: Held) -> None:
    assert held(name) is how


def test_headers_tell_what_is_whole_of_a_layer_that_runs() -> None:
    """DeepSeek-V3.2's indexer is in no size of its config.json, and in the headers."""
    prefix = "model.layers.#."
    groups = {
        ("model.embed_tokens.weight", -1): 1000, ("model.norm.weight", -1): 10,
        (f"{prefix}self_attn.q_a_proj.weight", 3): 110, (f"{prefix}mlp.gate.weight", 3): 40,
        (f"{prefix}self_attn.indexer.wq_b.weight", 3): 70,
        (f"{prefix}self_attn.o_proj.weight", 3): 300, (f"{prefix}mlp.experts.#.up.weight", 3): 900,
        (f"{prefix}self_attn.q_a_proj.weight", 61): 110,
    }  # fmt: skip
    stored = StoredBytes(groups, 1, 1)
    facts = from_config(R1, sum(groups.values()), stored)
    assert facts.divided == Divided(220, 0, 300)
    assert facts.scaled(sum(groups.values()) // 2).divided == Divided(110, 0, 150)
