"""Checkpoints of well-known models: the shapes of their config.json, and plans that engines refuse.

`data/configs.json` has their configurations, as published, with the bytes of their safetensors.
"""

import json
from pathlib import Path

import pytest

from console.checks.preflight.compatibility import Level, Loader, Question, check, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.hub.model_config import describe, kind, with_quantization
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts

GIB, MIB = 1 << 30, 1 << 20
KNOWN = json.loads((Path(__file__).parent / "data" / "configs.json").read_text())
LOGS = json.loads((Path(__file__).parent / "data" / "public_logs.json").read_text())


def facts(model: str) -> ModelFacts:
    return from_config(KNOWN[model]["config"], KNOWN[model]["bytes"])


def cards(count: int, gib: float, compute: tuple[int, int] = (9, 0)) -> tuple[Card, ...]:
    size = int(gib * GIB)
    return tuple(
        Card("card", total=size, free=size - 400 * MIB, compute=compute) for _ in range(count)
    )


def judged(
    model: str, engine: str, words: str, here: tuple[Card, ...], ram: int = 512
) -> Assessment:
    plan = plan_of(Loader(engine=engine, args=tuple(words.split())), Format.SAFETENSORS)
    return assess(facts(model), plan, Machine(cards=here, ram_available=ram * GIB))


@pytest.mark.parametrize(
    ("model", "mib"),
    [
        ("L31-8B", 1024),
        ("Nemotron-Super-49B", 1568),
        ("falcon-40b", 960),
        ("gemma3-27b", 3968),
        ("InternVL3-38B", 2048),
        ("K25", 549),
        ("Q3-235B-FP8", 1504),
    ],
)
def test_the_cache_of_8192_tokens(model: str, mib: int) -> None:
    known = facts(model)
    cache = cache_of(known, LlamaPlan(ctx=8192, parallel=1, swa_full=True))
    assert cache is not None
    assert (round(cache.bytes / MIB), known.missing) == (mib, ())


def test_a_key_that_tells_of_fewer_heads_and_is_not_known_is_named() -> None:
    config = {**KNOWN["L31-8B"]["config"], "num_key_value_heads": None, "kv_head_groups": 4}
    assert "kv_head_groups" in from_config(config, 16 * 10**9).missing[0]


def test_linear_attention_has_no_cache_and_a_state_that_is_not_known() -> None:
    layers = [0, 0, 0, 1] * 8
    found = from_config({**KNOWN["L31-8B"]["config"], "attn_type_list": layers}, 16 * 10**9)
    assert found.attention.kv_heads == tuple(8 * kind for kind in layers)
    assert "states" in found.missing[0]


def test_quantization_is_found_wherever_it_stands() -> None:
    assert kind(describe(KNOWN["K25"]["config"])) == "w4a16"
    beside = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    config = with_quantization(KNOWN["L31-8B"]["config"], beside)
    assert describe(config) == "NVFP4, groups of 16"
    inner = {"thinker_config": {"text_config": {"quantization_config": {"quant_method": "awq"}}}}
    assert describe({"dtype": "bfloat16", **inner}) == "awq"


def test_kt_kernel_keeps_every_expert_in_ram() -> None:
    words = "--tp 2 --kt-method FP8 --kt-weight-path /w --kt-num-gpu-experts"
    for count in (0, 56):
        found = judged("Q3-235B-FP8", "kt-kernel", f"{words} {count}", cards(2, 95, (12, 0)), 182)
        [experts] = [term for term in found.terms if term.name == "CPU experts"]
        assert (experts.bytes or 0) / GIB == pytest.approx(211.5, rel=0.01)
        assert found.verdict is Verdict.NO_GO
        assert not any("RAM as well" in one for one in found.would_make_it_go)


@pytest.mark.parametrize("engine", ["kt-kernel", "sglang"])
def test_without_a_path_of_weights_all_experts_are_on_the_cards(engine: str) -> None:
    """kvcache-ai/ktransformers#2099: out of memory on the card, as --kt-weight-path was missing."""
    words, here = "--tp 2 --kt-method FP8 --kt-num-gpu-experts 8", cards(2, 95, (12, 0))
    plain = judged("Q3-235B-FP8", engine, "--tp 2", here, 768)
    found = judged("Q3-235B-FP8", engine, words, here, 768)
    assert found.verdict is Verdict.NO_GO
    assert found.limits == plain.limits
    whole = judged("Q3-235B-FP8", engine, f"{words} --kt-weight-path /w", here, 768)
    assert whole.verdict is Verdict.GO


THINKING = "--kt-weight-path /w --kt-method RAWINT4 --tp {} --mem-fraction-static 0.94"


def test_long_prompts_take_a_whole_layer_of_experts_to_the_cards() -> None:
    """doc/en/kt-kernel/Kimi-K2-Thinking-Native.md of KTransformers: "requires 9GB+ extra VRAM"
    above --kt-gpu-prefill-token-threshold, which --max-total-tokens leaves room for; it was not
    counted, and named as such."""

    def asked(words: str, count: int = 1) -> Assessment:
        line = f"{THINKING.format(count)} --kt-enable-dynamic-expert-update {words}"
        return judged("K25", "kt-kernel", line, cards(count, 47.9, (9, 0)), 2048)

    short = "--max-total-tokens 30000 --chunked-prefill-size 8192"
    assert asked(f"{short} --kt-gpu-prefill-token-threshold 400").verdict is not Verdict.NO_GO
    tight = asked("--kt-gpu-prefill-token-threshold 400")
    assert tight.verdict is Verdict.NO_GO
    assert "a step with the 9.1 GiB" in tight.because
    assert asked("").verdict is not Verdict.NO_GO
    assert asked("--kt-gpu-prefill-token-threshold 99999").verdict is not Verdict.NO_GO
    other = judged(
        "K25", "kt-kernel", f"{THINKING.format(1)} {short} --kt-gpu-prefill-token-threshold 400"
        .replace("RAWINT4", "AMXINT4"), cards(1, 47.9, (9, 0)), 2048,
    )  # fmt: skip
    assert any("with AMXINT4" in one for one in other.unknown)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--ep-size 8", True), ("--ep 2", True), ("--expert-parallel-size=4", True),
        ("--moe-a2a-backend deepep", True), ("--ep-size 1", False), ("", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["Q3-235B-FP8", "K25"])
def test_kt_kernel_does_not_share_whole_experts_out(model: str, words: str, refused: bool) -> None:
    """ktransformers#2036: "The size of tensor a (32) must match the size of tensor b (256)";
    ktransformers#2002: 192 and 384."""
    line = f"--tp 8 --kt-weight-path /w --kt-method FP8 --kt-num-gpu-experts 8 {words}"
    found = judged(model, "kt-kernel", line, cards(8, 95, (9, 0)), 2048)
    assert any("whole experts shared out" in stop for stop in found.stops) is refused


@pytest.mark.parametrize(
    ("how", "name", "values"),
    [
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True,
          "data_type": "int", "packing_format": "auto_round:auto_gptq"}, "auto-round",
         ("auto_round", "auto-round", "inc")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4",
         ("modelopt", "modelopt_fp4")),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", ("modelopt",)),
    ],
)  # fmt: skip
def test_vllm_takes_the_name_that_it_overrides(
    how: dict[str, object], name: str, values: tuple[str, ...]
) -> None:
    """Intel/Qwen3.6-27B-int4-AutoRound and nvidia/Qwen3-32B-NVFP4: override_quantization_method of
    vLLM 0.33 names what the checkpoint is, and that has to be what was asked for."""
    config = {**KNOWN["L31-8B"]["config"], "quantization_config": how}
    facts = from_config(config, 6 * 10**9)
    assert facts.stored == name
    here = Machine(cards(1, 80, (9, 0)), ram_available=64 * GIB)
    for value in values:
        loader = Loader("", "vllm", ("--quantization", value, "--max-model-len", "4096"))
        plan = plan_of(loader, Format.SAFETENSORS)
        assert assess(facts, plan, here).verdict is Verdict.GO, value
    asked = Question("vllm", "safetensors", facts.architecture, name, machine=here)
    assert [one.level for one in check(asked) if "quantization" in one.title] == [Level.OK]


@pytest.mark.parametrize(
    "more",
    [{"bits": 3}, {"sym": False}, {"data_type": "mx_fp"}, {"packing_format": "auto_round:fp8"}],
)
def test_other_formats_of_auto_round_are_not_known(more: dict[str, object]) -> None:
    how = {"quant_method": "auto-round", "bits": 4, "sym": True, **more}
    stored = kind(describe({"quantization_config": how}))
    found = check(Question("vllm", "safetensors", "llama", stored))
    assert [one.level for one in found if "quantization" in one.title] == [Level.UNKNOWN]


def test_gemma_4_names_its_experts_of_a_token_in_its_own_way() -> None:
    """google/gemma-4-26B-A4B-it: `top_k_experts`, and no other key for it."""
    shape = {"num_experts": 128, "moe_intermediate_size": 704, "top_k_experts": 8}
    found = from_config({**KNOWN["L31-8B"]["config"], **shape}, 16 * 10**9)
    assert (found.experts.count, found.experts.used) == (128, 8)
    assert not any("per_tok" in one for one in found.missing)


def test_vllm_needs_room_for_the_models_own_length() -> None:
    found = judged("L31-8B", "vllm", "", cards(1, 24, (8, 9)))
    assert found.verdict is Verdict.NO_GO
    assert "131,072 tokens" in " ".join(term.how for term in found.terms)
    assert "mem-fraction" not in " ".join(found.notes)
    assert (
        judged("L31-8B", "vllm", "--max-model-len 8192", cards(1, 24, (8, 9))).verdict is Verdict.GO
    )
    assert any("--max-model-len" in one for one in found.would_make_it_go)


def test_vllms_options_change_its_sum() -> None:
    here = cards(4, 80)

    def need(words: str) -> int:
        found = judged("L31-8B", "vllm", words, here)
        return next(limit.need for limit in found.limits if limit.where != "host RAM")

    alone = need("")
    assert need("-tp 4") < need("--tensor_parallel_size 2") < alone
    assert need("-pp 2") < alone
    assert need("--kv-cache-dtype fp8") == pytest.approx(alone - 8 * GIB, rel=0.01)
    assert need("--enforce-eager") < alone
    half = judged("L31-8B", "vllm", "--gpu-memory-utilization 0.5", here)
    assert half.limits[0].have == int(80 * GIB * 0.5)
    assert judged("L31-8B", "vllm", "--quantization fp8", here).verdict is Verdict.GO
    assert judged("L31-8B", "vllm", "--quantization hqq", here).verdict is Verdict.UNKNOWN
    assert judged("L31-8B", "vllm", "-dp 8", here).verdict is Verdict.NO_GO


@pytest.mark.parametrize(
    ("engine", "words", "why"),
    [
        ("sglang", "--tp 6", "64 attention heads"),
        ("vllm", "-tp 6", "64 attention heads"),
        ("vllm", "-tp 8", "no multiple of the quantization"),
        ("sglang", "--tp 8", "no multiple of the quantization"),
    ],
)
def test_what_ranks_have_to_divide(engine: str, words: str, why: str) -> None:
    found = judged("Q3-235B-FP8", engine, words, cards(8, 80))
    assert (found.verdict, why in found.because) == (Verdict.NO_GO, True), found.because


@pytest.mark.parametrize("words", ["-tp 8 -ep", "-tp 4"])
def test_whole_experts_need_no_division(words: str) -> None:
    here = cards(8, 80)
    found = judged("Q3-235B-FP8", "vllm", f"{words} --max-model-len 8192", here)
    assert found.verdict is Verdict.GO, found.because


@pytest.mark.parametrize(
    ("engine", "compute", "level"),
    [
        ("sglang", (8, 0), Level.FAIL),
        ("sglang", (8, 6), Level.FAIL),
        ("sglang", (8, 9), Level.OK),
        ("vllm", (8, 0), Level.WARN),
        ("vllm", (9, 0), Level.OK),
        ("kt-kernel", (8, 6), Level.FAIL),
    ],
)
def test_kernels_for_fp8(engine: str, compute: tuple[int, int], level: Level) -> None:
    here = Machine(cards=cards(8, 80, compute), ram_available=512 * GIB)
    asked = Question(engine, "safetensors", "qwen3_moe", "fp8", "FP8", "", here)
    levels = {one.level for one in check(asked) if ", quantization" in one.title}
    assert level in levels
    assert (Level.FAIL in levels) is (level is Level.FAIL)


def test_speculation_by_the_checkpoints_own_layers_is_counted() -> None:
    config = {**KNOWN["Q3-235B-FP8"]["config"], "num_nextn_predict_layers": 1}
    known = from_config(config, KNOWN["Q3-235B-FP8"]["bytes"])
    here = Machine(cards=cards(8, 140), ram_available=512 * GIB)
    plans = [plan_of(Loader(engine="sglang", args=("--tp", "4", *more)), Format.SAFETENSORS)
             for more in ((), ("--speculative-algorithm", "NEXTN"))]  # fmt: skip
    needs = [assess(known, plan, here).limits[0].need for plan in plans]
    assert needs[1] > needs[0]
    found = judged("L31-8B", "sglang", "--speculative-algorithm NEXTN", cards(1, 80))
    assert found.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("engine", "words", "named"),
    [
        ("vllm", "--max-model-len 262144", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
        ("sglang", "--context-length 262144", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
        ("vllm", "--max-model-len 8192 --scheduling-policy lifo", "--scheduling-policy"),
        ("sglang", "--schedule-policy nope", "--schedule-policy"),
        ("sglang", "--tool-call-parser llama4", "--tool-call-parser"),
        ("sglang", "--attention-backend flash_attn", "--attention-backend"),
        ("sglang", "--cuda-graph-bs-prefill 64 4096", "--cuda-graph-bs-prefill"),
    ],
)
def test_what_an_engine_may_not_take_is_no_go(engine: str, words: str, named: str) -> None:
    found = judged("L31-8B", engine, words, cards(1, 80))
    assert found.verdict is Verdict.UNKNOWN
    assert named in found.because


@pytest.mark.parametrize("words", ["--random-seed 7 --port 8000", "--log-level info"])
def test_a_value_that_it_takes_is_no_reason(words: str) -> None:
    assert judged("L31-8B", "sglang", words, cards(1, 80)).verdict is Verdict.GO


def test_the_largest_batch_of_a_list_decides_what_graphs_take() -> None:
    listed, largest = (
        judged("L31-8B", "sglang", words, cards(1, 32))
        for words in ("--cuda-graph-bs-decode 1 2 4 8 8192", "--cuda-graph-max-bs-decode 8192")
    )
    assert (listed.verdict, listed.because) == (largest.verdict, largest.because)
    assert listed.verdict is Verdict.NO_GO


def test_a_quantization_that_is_a_word_is_known_by_it() -> None:
    config = {**KNOWN["L31-8B"]["config"], "quantization_config": "int4"}
    assert describe(config).startswith("int4")


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.GO), ({"sym": True, "desc_act": False, "bits": 4}, Verdict.GO),
        ({"desc_act": True}, Verdict.NO_GO), ({"sym": False}, Verdict.NO_GO),
        ({"bits": 8}, Verdict.NO_GO),
    ],
)  # fmt: skip
def test_gptq_that_kt_kernel_reads(more: dict[str, object], verdict: Verdict) -> None:
    """`_verify_gptq_config` of its loader.py; experts as it keeps them: half a byte a weight, and a
    scale of 4 bytes for each 128."""
    how = {"quant_method": "gptq", "bits": 4, "group_size": 128, **more}
    config = {**KNOWN["Q3-235B-FP8"]["config"], "quantization_config": how}
    words = (
        "--kt-weight-path /w --kt-method GPTQ_INT4 --kt-num-gpu-experts 2 --max-total-tokens 999 "
        "--dtype half"
    )
    plan = plan_of(Loader(engine="kt-kernel", args=tuple(words.split())), Format.SAFETENSORS)
    found = assess(
        from_config(config, 125_000_000_000),
        plan,
        Machine(cards=cards(2, 48), ram_available=256 * GIB),
    )
    kept = next(term for term in found.terms if term.name == "CPU experts")
    weights = 94 * 128 * 3 * 4096 * 1536
    assert kept.bytes == pytest.approx(weights * (0.5 + 4 / 128), rel=0.001)
    assert not any("experts" in one for one in found.unknown)
    assert (found.verdict is Verdict.NO_GO) is (verdict is Verdict.NO_GO), found.because


def request(model: str, words: str) -> float:
    """GiB of one request's cache on each rank."""
    found = judged(model, "vllm", f"{words} --language-model-only", cards(8, 80))
    return sum(t.bytes or 0 for t in found.terms if (t.name, t.where) == ("cache", "card #0")) / GIB


@pytest.mark.parametrize(
    ("model", "words", "gib"),
    [
        ("gemma4-26b", "--max-model-len 32768 --kv-cache-dtype fp8", 15.18 / 12.73),
        ("gemma4-31b", "--max-model-len 262144 --max-num-batched-tokens 4096", 24),
    ],
)
def test_gemma_4s_layers_without_a_window_have_heads_of_their_own(
    model: str, words: str, gib: float
) -> None:
    """vllm#40388: 15.18 GiB hold 12.73 requests. vllm#43308: 23 to 25 GiB for one of 262,144."""
    assert request(model, words) == pytest.approx(gib, rel=0.02)
    assert not facts(model).missing


def test_heads_that_are_fewer_than_ranks_are_doubled_layer_by_layer() -> None:
    """10 layers with 4 heads of 512 and 50 with 16 of 256: on 8 ranks one of each 4 is there twice,
    and the others are divided."""
    long, short = (
        request("gemma4-31b", f"--max-model-len {n} --max-num-batched-tokens 2048 -tp 8")
        for n in (1 << 18, 1 << 17)
    )
    assert (long - short) * GIB / (1 << 17) == pytest.approx(10 * 2 * 512 * 2)


def test_a_rank_of_sglang_keeps_what_it_has_of_every_layer() -> None:
    """Gemma 4 31B on eight ranks: two of sixteen heads in 50 layers, and one of four in ten, which
    are doubled. The ten were taken as half a head, by the share of the others."""
    words = "--context-length 8192 --mem-fraction-static 0.8 --language-model-only --tp 8"
    found = judged("gemma4-31b", "sglang", words, cards(8, 80))
    size = next(term.bytes for term in found.terms if term.name == "cache")
    assert size == 8192 * 2 * 2 * (50 * 2 * 256 + 10 * 1 * 512)


def gemma(**more: object) -> ModelFacts:
    config = KNOWN["gemma4-31b"]["config"]
    return from_config({**config, "text_config": {**config["text_config"], **more}}, 32 * GIB)


def test_gemma_4s_keys_are_read_as_its_class_reads_them() -> None:
    """Gemma4TextConfig: the number of global heads counts where K and V are one projection, the
    last layer has no window, and layers that share a cache keep none."""
    assert set(gemma(attention_k_eq_v=False).attention.kv_heads or ()) == {16}
    assert gemma(global_head_dim=None).attention.key == 512
    plain = gemma(layer_types=None).attention
    assert (plain.windowed, plain.kv_heads) == (
        gemma().attention.windowed,
        gemma().attention.kv_heads,
    )
    assert not gemma(layer_types=["sliding_attention"] * 60).attention.windowed[-1]
    shared = gemma(num_kv_shared_layers=20)
    assert (shared.attention.own_layers, shared.missing) == (40, ())


@pytest.mark.parametrize(
    "key",
    ["num_global_key_value_heads", "swa_num_key_value_heads", "global_head_dim", "v_head_dim",
     "num_kv_shared_layers", "cla_share_factor", "per_layer_config", "hybrid_layer_pattern"],
)  # fmt: skip
def test_a_key_that_changes_the_cache_and_is_not_read_is_named(key: str) -> None:
    """MiMo-V2-Flash, Hunyuan-Large and transformers' own per_layer_config have such keys."""
    config = KNOWN["L31-8B"]["config"]
    found = from_config({**config, key: 3}, 16 * GIB)
    assert [one for one in found.missing if one.startswith(key)]
    same = {"swa_num_key_value_heads": 8, "v_head_dim": 128}.get(key, 0)
    assert not from_config({**config, key: same}, 16 * GIB).missing


@pytest.mark.parametrize(
    ("kind", "gib"),
    [("turboquant_3bit_nc", 3.2), ("int4_per_token_head", 4.25), ("nvfp4", 4.5), ("fp8", 8.0),
     ("int8_per_token_head", 8.25), ("nvfp4_4over6", 0.0), ("somebodys_plugin", 0.0)],
)  # fmt: skip
def test_a_cache_type_that_is_not_counted_makes_no_no_go(kind: str, gib: float) -> None:
    """club-3090#32 served with turboquant_3bit_nc what 16 bits have no room for. What is certain of
    a type counts: packed numbers and scales of those whose source tells them, else nothing."""
    words = f"--kv-cache-dtype {kind}"
    assert request("L31-8B", words) == pytest.approx(gib, rel=0.02)
    found = judged("L31-8B", "vllm", words, cards(1, 24, (8, 9)))
    fits = gib < 5
    assert found.verdict is (Verdict.UNKNOWN if fits else Verdict.NO_GO)
    assert judged("L31-8B", "vllm", words, cards(1, 12, (8, 9))).verdict is Verdict.NO_GO


NEAR = ("--gpu-memory-utilization", "0.9", "--max-model-len", "215000", "--enforce-eager")


def test_experts_see_the_tokens_of_all_replicas() -> None:
    """vllm-project/recipes#12: 77.2 GiB beside the cache on each of 8 cards of 141 GB, and 205,728
    tokens at most."""
    row = next(one for one in LOGS if one["source"].startswith("vllm-project/recipes#12"))
    found = assess(
        from_config(row["config"], int(row["weight_bytes"])),
        plan_of(Loader(engine="vllm", args=(*row["argv"], *NEAR)), Format.SAFETENSORS),
        Machine(cards=cards(8, 139.8), ram_available=1000 * GIB),
    )
    beside = sum(t.bytes or 0 for t in found.terms if t.where == "card #0" and t.name != "cache")
    assert found.verdict is Verdict.NO_GO
    assert beside / GIB == pytest.approx(77.2, rel=0.03)


@pytest.mark.parametrize(
    ("engine", "words"),
    [("sglang", "--kv-cache-dtype fp4_e2m1"), ("sglang", "--kv-cache-dtype mxfp8"),
     ("vllm", "--kv-cache-dtype nvfp4_4over6")],
)  # fmt: skip
def test_nothing_of_an_unknown_type_says_no_go(engine: str, words: str) -> None:
    here = cards(1, 24, (8, 9))
    length = "--max-total-tokens 131072" if engine == "sglang" else ""
    # SGLang starts with a cache that lacks room for the whole context
    known = Verdict.TIGHT if engine == "sglang" else Verdict.NO_GO
    assert judged("L31-8B", engine, length, here).verdict is known
    assert judged("L31-8B", engine, f"{length} {words}", here).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("count", "gib", "usual", "words"),
    [
        (1, 16, "", "--quantization bitsandbytes"),
        (1, 16, "", "--quantization-config {\"linear\":\"int4\"}"),
        (1, 16, "", "--offload-group-size 8 --offload-num-in-group 4"),
        (1, 16, "", "--hf-overrides {\"num_hidden_layers\":4}"),
        (1, 16, "", "--config /serve.yaml"),
        (2, 24, "-tp 2 --max-model-len 131072 --gpu-memory-utilization 0.6", "-dcp 2"),
        (1, 18.9, "", "-cc {\"cudagraph_mode\":\"NONE\"}"),
        (8, 80, "-dp 16", "--nnodes 2"),
        (8, 80, "-dp 16", "-dpl 8"),
    ],
)  # fmt: skip
def test_what_an_option_may_make_smaller_says_no_no_go(
    count: int, gib: float, usual: str, words: str
) -> None:
    """vLLM's options for weights, cache, graphs or cards that no sum has: UNKNOWN, not NO-GO."""
    here, usual = cards(count, gib, (8, 9)), usual or "--max-model-len 4096"
    assert judged("L31-8B", "vllm", usual, here).verdict is Verdict.NO_GO
    found = judged("L31-8B", "vllm", f"{usual} {words}", here)
    assert found.verdict is Verdict.UNKNOWN, found.because
    tiny = judged("L31-8B", "vllm", f"{usual} {words}", cards(count, 1, (8, 9)))
    assert tiny.verdict is Verdict.NO_GO
