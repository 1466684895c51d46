"""Models of which most layers are gated delta nets, served by vLLM and SGLang: the figures that
public logs give for their cache and their states."""

from typing import Any

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Loader, Question, check, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.states import pools
from console.models.sizing.vllm import blocks_of_cache
from tests.sizing.shapes import QWEN3_NEXT
from tests.sizing.test_checkpoints import KNOWN, cards

GIB, MIB = 1 << 30, 1 << 20


def text(layers: int, width: int, heads: int, kv: int, values: int, **more: object) -> Any:
    """Qwen3.5's own numbers; sizes differ."""
    return {
        "model_type": "qwen3_5_text", "dtype": "bfloat16", "num_hidden_layers": layers,
        "hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
        "full_attention_interval": 4, "mamba_ssm_dtype": "float32", "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": values, "mtp_num_hidden_layers": 1,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4), **more,
    }  # fmt: skip


MIXED: dict[str, object] = {
    "model_type": "qwen3_5_moe_text", "num_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
}  # fmt: skip
TEXTS = {
    "0.8B": (text(24, 1024, 8, 2, 16, intermediate_size=3584), 1_750_000_000),
    "4B": (text(32, 2560, 16, 4, 32, intermediate_size=9216), 9_300_000_000),
    "9B": (text(32, 4096, 16, 4, 32, intermediate_size=12288), 19_300_000_000),
    "27B": (text(64, 5120, 24, 4, 48, intermediate_size=17408), 55_600_000_000),
    "35B-A3B": (text(40, 2048, 16, 2, 32, **MIXED), 71_900_000_000),
}
"""Of Qwen3.5, 3.6 and 3.8, which are alike, with their bytes in BF16."""
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}


THREE = '--speculative-config {"method":"mtp","num_speculative_tokens":3}'


def facts(name: str, size: int = 0, **more: object) -> ModelFacts:
    words, whole = TEXTS[name]
    mixed = words["model_type"] == "qwen3_5_moe_text"
    config = {
        "architectures": [f"Qwen3_5{'Moe' if mixed else ''}ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if mixed else "qwen3_5", "text_config": words,
        "vision_config": {"depth": 27, "hidden_size": 1152}, **more,
    }  # fmt: skip
    return from_config(config, size or whole)


def test_what_a_config_tells_of_layers_and_states() -> None:
    known = facts("27B")
    states = known.recurrent
    assert states is not None
    assert (sum(states.layers), states.conv, states.state) == (48, 3 * 10240, 48 * 128 * 128)
    assert (known.attention.kv_heads or ())[:4] == (0, 0, 0, 4)
    assert (known.spare_layers, known.missing) == (1, ())


@pytest.mark.parametrize(
    "key", ["linear_num_value_heads", "linear_conv_kernel_dim", "linear_key_head_dim"]
)
def test_states_of_which_a_size_is_missing_are_named(key: str) -> None:
    words = {name: value for name, value in TEXTS["27B"][0].items() if name != key}
    found = from_config({"architectures": ["Qwen3_5ForCausalLM"], **words}, 55_600_000_000)
    assert any("recurrent layers" in one for one in found.missing)


@pytest.mark.parametrize("family", ["qwen4_exp_text", "kimi_linear", "mine"])
def test_states_of_a_family_that_is_not_known_are_named(family: str) -> None:
    words = {**TEXTS["27B"][0], "model_type": family}
    found = from_config({"architectures": ["Qwen3_5ForCausalLM"], **words}, 55_600_000_000)
    assert found.recurrent is None
    assert any("recurrent layers" in one for one in found.missing)


@pytest.mark.parametrize(
    ("name", "words", "block"),
    [
        ("27B", "", 784), ("27B", "-tp 2 --kv-cache-dtype fp8", 1568), ("0.8B", "", 544),
        ("35B-A3B", "", 1056), ("27B", "--block-size 816", 816),
    ],
)  # fmt: skip
def test_the_tokens_of_a_block(name: str, words: str, block: int) -> None:
    """ "Setting attention block size to N tokens": vllm-project/vllm#40691 and others."""
    found = blocks_of_cache(facts(name), vllm_plan(words.split()))
    assert found is not None
    assert found.tokens == block


@pytest.mark.parametrize(
    ("name", "words", "available", "length", "tokens"),
    [
        # noonghunna/club-3090#612 and #652: vLLM 0.24.0, NVFP4 on a 5090
        ("35B-A3B", "--kv-cache-dtype fp8 --enable-prefix-caching", 5.98, 131072, 567978),
        ("35B-A3B", "--kv-cache-dtype fp8 --enable-prefix-caching", 6.01, 131072, 569878),
        # mitchross/talos-argocd-proxmox#1995: FP8 on two 3090
        ("27B", "-tp 2 --kv-cache-dtype fp8 --enable-prefix-caching", 4.99, 131072, 302921),
        # Qwen-Image-2.1-PE-T2I, of the shape of 9B, 0.27.1: 108 blocks
        ("9B", "--no-enable-prefix-caching", 1.74, 24576, 53084),
        ("0.8B", "--enable-prefix-caching", 67.08, 262144, 5788118),
        # noonghunna/club-3090#594 and #642: two 3090, three tokens guessed
        ("27B", f"-tp 2 --kv-cache-dtype fp8 {THREE}", 5.33, 262144, 300220),
        ("27B", f"-tp 2 --kv-cache-dtype fp8_e5m2 {THREE}", 11.05, 262144, 623873),
    ],
)
def test_the_cache_that_vllm_logs(
    name: str, words: str, available: float, length: int, tokens: int
) -> None:
    """ "GPU KV cache size" (its requests times their length) for "Available KV cache memory"."""
    plan = vllm_plan(words.split())
    blocks = blocks_of_cache(facts(name), plan)
    assert blocks is not None
    requests = (available * GIB // blocks.size) / blocks.of_request(length, prefixes=plan.prefixes)
    assert requests * length == pytest.approx(tokens, rel=0.01)


def test_the_blocks_of_a_request_without_prefixes() -> None:
    """vllm-project/vllm#40691, 0.19.0: "290,864 tokens", which is a quarter of 1,487 blocks of 784,
    and "Maximum concurrency for 32,768 tokens per request: 33.04x"."""
    blocks = blocks_of_cache(facts("27B"), vllm_plan(["--no-enable-prefix-caching"]))
    assert blocks is not None
    assert 1487 // 4 * blocks.tokens == 290864
    assert 1487 / blocks.of_request(32768, prefixes=False) == pytest.approx(33.04, abs=0.01)


def test_the_blocks_of_qwen3_next() -> None:
    """vllm-project/vllm#25760: "61,600 tokens" of 1.53 GiB on each of four ranks: a quarter
    of the blocks. Its states are in 16 bits: its configuration does not say float32."""
    sizes = {"num_key_heads": 16, "key_head_dim": 128, "value_head_dim": 128, "conv_kernel_dim": 4}
    config = {**QWEN3_NEXT, **{f"linear_{name}": size for name, size in sizes.items()}}
    guess = '{"method":"qwen3_next_mtp","num_speculative_tokens":2}'
    plan = vllm_plan(["-tp", "4", "--kv-cache-dtype", "fp8", "--speculative-config", guess])
    known = from_config({**config, "num_nextn_predict_layers": 1}, 80_000_000_000)
    blocks = blocks_of_cache(known, plan)
    assert blocks is not None
    assert int(1.53 * GIB) // blocks.size // 4 * blocks.tokens == 61600


def judged(
    known: ModelFacts, engine: str, words: str, here: tuple[Card, ...]
) -> tuple[Assessment, VllmPlan | SglangPlan]:
    plan: Any = plan_of(Loader(engine=engine, args=tuple(words.split())), Format.SAFETENSORS)
    return assess(known, plan, Machine(cards=here, ram_available=256 * GIB)), plan


@pytest.mark.parametrize(
    ("name", "size", "more", "words", "card", "verdict"),
    [
        # vllm-project/recipes#551: 1,024 requests and 856 blocks on an H100; 512 serve
        ("27B", 30_900_000_000, {"quantization_config": FP8}, "--gpu-memory-utilization 0.95",
         79.2, Verdict.NO_GO),
        ("27B", 30_900_000_000, {"quantization_config": FP8},
         "--gpu-memory-utilization 0.95 --max-num-seqs 512", 79.2, Verdict.GO),
        # vllm-project/recipes#831: 939 blocks on an RTX PRO 6000, and 556 in BF16
        ("27B", 30_900_000_000, {"quantization_config": FP8}, "", 95.6, Verdict.TIGHT),
        ("27B", 30_900_000_000, {"quantization_config": FP8}, "--max-num-seqs 512", 95.6,
         Verdict.GO),
        ("27B", 0, {}, "--gpu-memory-utilization 0.95", 95.6, Verdict.NO_GO),
        # 256 requests and 73 blocks at half of 24 GiB
        ("4B", 0, {}, "--gpu-memory-utilization 0.5 --max-model-len 8192", 24, Verdict.NO_GO),
        ("4B", 0, {}, "--gpu-memory-utilization 0.9 --max-model-len 8192 --max-num-seqs 32", 24,
         Verdict.GO),
        ("4B", 0, {}, "--gpu-memory-utilization 0.9 --max-model-len 8192 --enforce-eager", 24,
         Verdict.GO),
        ("4B", 0, {}, "--gpu-memory-utilization 0.5 --max-model-len 8192 --compilation-config "
         '{"cudagraph_mode":"PIECEWISE"}', 24, Verdict.UNKNOWN),
        ("27B", 0, {}, "--max-model-len 32768 --max-num-seqs 16", 80, Verdict.GO),
        ("27B", 0, {}, "--max-model-len 32768 --max-num-seqs 16", 48, Verdict.NO_GO),
    ],
)  # fmt: skip
def test_a_state_for_each_request_of_a_graph(
    name: str, size: int, more: dict[str, object], words: str, card: float, verdict: Verdict
) -> None:
    known = facts(name, size, **more)
    found, _ = judged(known, "vllm", f"--language-model-only {words}", cards(1, card))
    assert found.verdict is verdict, found.because
    if verdict is Verdict.NO_GO and found.stops:
        assert any("--max-num-seqs 64" in one for one in found.would_make_it_go)


def test_the_pools_that_sglang_logs() -> None:
    """Qwen3.8-27B-FP8 on an H100, --mem-fraction-static 0.85: "max_mamba_cache_size: 124,
    conv_state size: 0.34GB, ssm_state size: 17.58GB", "#tokens: 330323", K and V 10.08 GB each."""
    states = facts("27B").recurrent
    assert states is not None
    cache = 330323 * 16 * 4 * 256 * 2 * 2
    _, kept = pools(states, SglangPlan(states=124), 1, cache)
    assert kept / GIB == pytest.approx(0.34 + 17.58, rel=0.01)
    _, kept = pools(states, SglangPlan(), 1, cache)
    assert kept / GIB == pytest.approx(0.34 + 17.58, rel=0.05)
    rest = 50.01 - (50.01 + 28.47) * 0.15
    assert rest * GIB / 1.9 / (16 * 4 * 256 * 2 * 2) == pytest.approx(330323, rel=0.05)


@pytest.mark.parametrize("spare", [1, 0])
def test_layers_that_guess_ahead_are_counted_where_the_checkpoint_has_them(spare: int) -> None:
    words, whole = TEXTS["27B"]
    config = {"architectures": ["Qwen3_5ForCausalLM"], **words, "mtp_num_hidden_layers": spare}
    found, _ = judged(
        from_config(config, whole), "vllm", f"--max-model-len 8192 --max-num-seqs 4 {THREE}",
        cards(1, 80),
    )  # fmt: skip
    assert found.verdict is (Verdict.GO if spare else Verdict.UNKNOWN), found.because
    assert any(term.name == "draft layers" for term in found.terms) is bool(spare)


def test_layers_that_guess_ahead_of_another_family_are_named() -> None:
    known = from_config(KNOWN["L31-8B"]["config"], KNOWN["L31-8B"]["bytes"])
    found, _ = judged(known, "vllm", f"--max-model-len 8192 {THREE}", cards(1, 80))
    assert found.verdict is Verdict.UNKNOWN
    assert "guess ahead" in found.because


@pytest.mark.parametrize(
    ("words", "card", "verdict"),
    [
        ("--context-length 32768", 80, Verdict.GO),
        ("--context-length 262144", 80, Verdict.TIGHT),
        ("--context-length 32768 --max-mamba-cache-size 900", 80, Verdict.NO_GO),
        ("--context-length 32768 --max-running-requests 8 --disable-radix-cache", 80, Verdict.GO),
        ("--context-length 32768 --speculative-algorithm NEXTN", 80, Verdict.UNKNOWN),
    ],
)
def test_sglang_keeps_states_beside_its_cache(words: str, card: float, verdict: Verdict) -> None:
    found, _ = judged(facts("27B"), "sglang", f"--language-model-only {words}", cards(1, card))
    assert found.verdict is verdict, found.because


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", TEXTS)
def test_the_family_is_on_the_lists(engine: str, name: str) -> None:
    here = Machine(cards=cards(1, 80))
    asked = Question(engine, "safetensors", facts(name).architecture, "bf16", machine=here)
    assert all(one.level is Level.OK for one in check(asked))


STEP: dict[str, Any] = {
    "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "torch_dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45, "vocab_size": 128896,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "moe_num_experts": 288,
    "moe_top_k": 8, "moe_intermediate_size": 1280, "max_position_embeddings": 262144,
    "moe_layers_enum": ",".join(map(str, range(3, 45))), "num_nextn_predict_layers": 3,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12, "sliding_window": 512,
    "rope_theta": [5000000.0, 10000.0, 10000.0, 10000.0] * 12,
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 96,
                                "num_attention_groups": 8, "head_dim": 128},
}  # fmt: skip
"""stepfun-ai/Step-3.5-Flash, as published."""


def test_step_3_5_names_its_heads_otherwise() -> None:
    known = from_config(STEP, 394_000_000_000)
    spec = known.attention
    assert (spec.kv_heads or ())[:2] == (8, 8)
    assert (spec.window, spec.windowed.count(True), known.missing) == (512, 33, ())
    sparse = {weight.layer for weight in known.weights if "_exps" in weight.name}
    assert sparse == set(range(3, 45))
    found, _ = judged(known, "sglang", "--context-length 131072 --tp 4", cards(4, 140))
    assert found.verdict is Verdict.GO, found.because


@pytest.mark.parametrize(("other", "named"), [({"num_attention_groups": 4}, False),
                                              ({"head_dim": 64}, True)])  # fmt: skip
def test_layers_with_other_heads(other: dict[str, object], named: bool) -> None:
    changed = {**STEP["attention_other_setting"], **other}
    known = from_config({**STEP, "attention_other_setting": changed}, 394_000_000_000)
    heads = known.attention.kv_heads or ()
    assert (heads[0], heads[1]) == (8, other.get("num_attention_groups", 8))
    assert any("attention_other_setting" in one for one in known.missing) is named


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_compressed_attention_is_no_reason_to_refuse(engine: str) -> None:
    """vllm-project/vllm#51041: from 4 to 93 KiB a token."""
    config = {
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
        "hidden_size": 4096, "vocab_size": 129280, "num_hidden_layers": 43, "head_dim": 512,
        "num_attention_heads": 64, "num_key_value_heads": 1, "qk_rope_head_dim": 64,
        "q_lora_rank": 1024, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "num_experts_per_tok": 6, "sliding_window": 128, "max_position_embeddings": 1048576,
        "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0], "torch_dtype": "bfloat16",
    }  # fmt: skip
    words = "--max-model-len 1048576 -tp 8" if engine == "vllm" else "--tp 8"
    found, _ = judged(from_config(config, 160_000_000_000), engine, words, cards(8, 48))
    assert found.verdict is Verdict.UNKNOWN
    assert found.because.count("the cache") == 1 + found.because.count("in the cache")
    assert "compress_ratios" in found.because
