"""What SGLang holds twice while experts are repacked for its kernels.

Releases as their wheels have it: Qwen3-MoE kept its experts as they were read up to 0.5.8, LLaDA2
up to 0.5.16, and Ling, Ring and Sarvam still do in 0.5.23.
"""

import pytest

from console.checks.preflight.compatibility import Loader, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.serving.releases import release_of

GIB = 1 << 30
QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "float16",
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "vocab_size": 151936,
    "max_position_embeddings": 40960,
}  # fmt: skip
LARGE = QWEN3 | {
    "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "num_hidden_layers": 94, "num_attention_heads": 64,
}  # fmt: skip
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
W4A16 = {"quant_method": "compressed-tensors", "format": "pack-quantized",
         "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int",
                                                   "group_size": 128}}}}  # fmt: skip
SMALL_BYTES, LARGE_BYTES = 16_933_153_370, 124_549_373_952
RTX_4090 = (Card("RTX 4090", total=24564 << 20, free=24140 << 20, compute=(8, 9)),)
A100 = Card("A100", total=80 * GIB, free=int(79.2 * GIB), compute=(8, 0))


def judged(
    config: dict[str, object], size: int, cards: tuple[Card, ...], words: str = ""
) -> Assessment:
    plan = plan_of(Loader(engine="sglang", args=tuple(words.split())), Format.SAFETENSORS)
    return assess(from_config(config, size), plan, Machine(cards=cards, ram_available=256 * GIB))


def quantized(config: dict[str, object], how: dict[str, object]) -> dict[str, object]:
    return config | {"quantization_config": how}


def whether_twice(found: Assessment) -> bool:
    return any(reason.startswith("which release it is") for reason in found.unknown)


@pytest.mark.parametrize("words", ["--quantization gptq_marlin --mem-fraction-static 0.9", ""])
def test_a_card_that_holds_the_experts_only_once_depends_on_the_release(words: str) -> None:
    """sgl-project/sglang#9872: out of memory in gptq_marlin_moe_repack, on an RTX 4090."""
    found = judged(quantized(QWEN3, GPTQ), SMALL_BYTES, RTX_4090, words)
    assert found.verdict is Verdict.UNKNOWN
    assert "before 0.5.9" in found.because


@pytest.mark.parametrize("words", [
    "--mem-fraction-static 0.9 --context-length 32768",
    "--mem-fraction-static 0.88 --context-length 32768 --disable-cuda-graph",
])  # fmt: skip
def test_ranks_hold_their_part_of_the_experts_twice(words: str) -> None:
    """sgl-project/sglang#8362: the same checkpoint serves in vLLM on the same two cards."""
    found = judged(quantized(LARGE, GPTQ), LARGE_BYTES, (A100, A100), f"--tp 2 {words}")
    assert whether_twice(found)
    assert found.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("how", [AWQ, W4A16], ids=("awq", "compressed-tensors"))
def test_whatever_is_repacked_is_held_twice(how: dict[str, object]) -> None:
    """sgl-project/sglang#6000 serves AWQ with a release before it began: no NO-GO."""
    found = judged(quantized(QWEN3, how), SMALL_BYTES, RTX_4090, "--tp 1")
    assert found.verdict is Verdict.UNKNOWN


def test_experts_that_are_quantized_while_they_are_loaded_stay_in_16_bits_too() -> None:
    """30.5 G weights take 57 GiB in 16 bits, and 84 with a copy of the experts in 8."""
    once = judged(QWEN3, 61_064_000_000, (A100,))
    twice = judged(QWEN3, 61_064_000_000, (A100,), "--quantization fp8")
    assert not whether_twice(once)
    assert whether_twice(twice)


@pytest.mark.parametrize(("config", "words"), [
    (quantized(QWEN3, GPTQ), "--quantization moe_wna16"),  # its kernels take them as stored
    (quantized(QWEN3 | {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe"}, GPTQ),
     ""),
    (quantized(QWEN3, {"quant_method": "fp8", "weight_block_size": [128, 128]}), ""),
])  # fmt: skip
def test_others_hold_them_once(config: dict[str, object], words: str) -> None:
    assert not whether_twice(judged(config, SMALL_BYTES, RTX_4090, words))


def test_a_card_with_room_for_both_is_no_question() -> None:
    found = judged(quantized(QWEN3, GPTQ), SMALL_BYTES, (A100,))
    assert (found.verdict, found.unknown) == (Verdict.GO, [])


def test_families_that_still_do_so_name_the_newest_release_that_was_read() -> None:
    ling = QWEN3 | {"architectures": ["BailingMoeV2ForCausalLM"]}
    found = judged(quantized(ling, GPTQ), SMALL_BYTES, RTX_4090)
    assert "up to 0.5.23" in found.because


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("lmsysorg/sglang:v0.4.9.post2-cu126", (0, 4, 9)),
        ("docker.io/lmsysorg/sglang:v0.5.0rc0-cu126", (0, 5, 0)),
        ("lmsysorg/sglang:v0.5.23-cu130@sha256:" + "a" * 64, (0, 5, 23)),
        ("lmsysorg/sglang:v0.3.6.post1-cu124", (0, 3, 6)),
        ("lmsysorg/sglang:nightly-dev-20251208-5e2cda61", (0, 5, 6)),
        ("lmsysorg/sglang:nightly-dev-cu13-20260624-b2c8f7a2", (0, 5, 12)),
        ("lmsysorg/sglang:nightly-dev-20250801-0123abcd", None),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang:dev-cu13", None),
        ("own/sglang:v0.5.23", None),
        ("slimerl/slime:nightly-dev-20260701a", None),
    ],
)
def test_an_image_of_sglang_names_its_release(image: str, release: tuple[int, ...] | None) -> None:
    assert release_of("sglang", image) == release


@pytest.mark.parametrize(
    ("image", "asks"),
    [("v0.5.8", True), ("v0.4.9.post2-cu126", True), ("latest", True), ("v0.5.9", False),
     ("v0.5.23-cu130", False), ("nightly-dev-20260107-dce8b060", True),
     ("nightly-dev-cu13-20260624-b2c8f7a2", False)],
)  # fmt: skip
def test_a_release_that_is_known_to_hold_them_once_is_no_question(image: str, asks: bool) -> None:
    plan = sglang_plan([], f"lmsysorg/sglang:{image}")
    facts = from_config(quantized(QWEN3, GPTQ), SMALL_BYTES)
    found = assess(facts, plan, Machine(cards=RTX_4090, ram_available=256 * GIB))
    assert whether_twice(found) is asks
