"""What vLLM and SGLang refuse at the start, what they keep beside the weights, and what of it is
not known. Formulas and refusals are those of vLLM 0.33 and SGLang 0.5.23."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Loader, Question, check, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.serving.fraction import fraction_of
from console.models.sizing.serving.refused import not_known_of_blocks
from tests.sizing.test_checkpoints import GIB, KNOWN, cards
from tests.sizing.test_public_logs import LOGS

IMAGES = {"num_hidden_layers": 27, "hidden_size": 1152, "model_type": "siglip_vision_model"}
TOWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("Gemma3ForConditionalGeneration", {"vision_config": IMAGES}),
    "mistral3": ("Mistral3ForConditionalGeneration", {"vision_config": IMAGES}),
    "qwen2.5-vl": (
        "Qwen2_5_VLForConditionalGeneration",
        {"vision_config": {"depth": 32, "hidden_size": 1280}, "video_token_id": 151656},
    ),
    "qwen2-audio": ("Qwen2AudioForConditionalGeneration", {"audio_config": {"d_model": 1280}}),
    "phi3-v": ("Phi3VForCausalLM", {"img_processor": {"name": "clip_vision_model"}}),
    "llava": ("LlavaOnevisionForConditionalGeneration", {"mm_vision_tower": "google/siglip"}),
    "omni": ("Qwen2_5OmniModel", {"thinker_config": {"audio_config": {}, "vision_config": {}}}),
    "nothing but its class": ("InternVLChatModel", {}),
}


def judged(
    engine: str,
    words: str,
    here: tuple[Card, ...],
    model: str = "L31-8B",
    more: Mapping[str, object] | None = None,
    image: str = "",
) -> Assessment:
    known = from_config({**KNOWN[model]["config"], **(more or {})}, KNOWN[model]["bytes"])
    loader = Loader(engine=engine, args=tuple(words.split()), image=image)
    plan = plan_of(loader, Format.SAFETENSORS)
    return assess(known, plan, Machine(cards=here, ram_available=512 * GIB))


def with_tower(name: str, engine: str, words: str, here: tuple[Card, ...]) -> Assessment:
    family, keys = TOWERS[name]
    return judged(engine, words, here, more={"architectures": [family], **keys})


SHORT = "--max-model-len 8192"
LAST = "vllm/vllm-openai:v0.33.0"
INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}
W4A16 = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}},
}  # fmt: skip


@pytest.mark.parametrize("name", TOWERS)
def test_an_encoder_that_vllm_measures_is_named(name: str) -> None:
    found = with_tower(name, "vllm", SHORT, cards(1, 80))
    assert (found.verdict, "its encoder" in found.because) == (Verdict.UNKNOWN, True)
    assert with_tower(name, "vllm", f"{SHORT} --language-model-only", cards(1, 80)).verdict is (
        Verdict.GO
    )
    assert with_tower(name, "vllm", SHORT, cards(1, 12)).verdict is Verdict.NO_GO


@pytest.mark.parametrize(
    ("name", "limits", "verdict"),
    [
        ("gemma3", '{"image":0}', Verdict.GO),
        ("qwen2.5-vl", '{"image":0}', Verdict.UNKNOWN),
        ("qwen2.5-vl", '{"image":0,"video":{"count":0}}', Verdict.GO),
        ("qwen2.5-vl", '{"image":4,"video":0}', Verdict.UNKNOWN),
        ("qwen2-audio", '{"image":0}', Verdict.UNKNOWN),
        ("qwen2-audio", '{"audio":0}', Verdict.GO),
        ("omni", '{"image":0,"video":0}', Verdict.UNKNOWN),
        ("gemma3", "image=0", Verdict.UNKNOWN),
    ],
)
def test_inputs_that_are_limited_to_none(name: str, limits: str, verdict: Verdict) -> None:
    words = f"{SHORT} --limit-mm-per-prompt {limits}"
    found = with_tower(name, "vllm", words, cards(1, 80))
    assert found.verdict is verdict
    off = [note for note in found.notes if "its encoder is switched off" in note]
    assert len(off) == (verdict is Verdict.GO), "its weights are counted, and that is said"


def test_models_of_text_have_no_encoder() -> None:
    for name in ("L31-8B", "Q3-235B-FP8", "falcon-40b", "Nemotron-Super-49B"):
        assert from_config(KNOWN[name]["config"], KNOWN[name]["bytes"]).encoders == ()
    words = {"image_token_id": 5, "vision_start_token_id": 6, "vision_config": None}
    assert from_config({**KNOWN["L31-8B"]["config"], **words}, 16 * 10**9).encoders == ()


@pytest.mark.parametrize(
    ("name", "words", "factor"),
    [
        ("mistral3", "", 0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1))),
        ("qwen2.5-vl", "", 0.95 * (1 - 0.1 * (1280**2 / 1024**2 - 1))),
        ("phi3-v", "", 0.95 * 0.8),
        ("gemma3", "", 1.0),
        ("gemma3", "--enable-multimodal", 0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1))),
        ("mistral3", "--language-model-only", 1.0),
    ],
)
def test_what_sglang_takes_away_for_an_encoder(name: str, words: str, factor: float) -> None:
    family, keys = TOWERS[name]
    config = {**KNOWN["L31-8B"]["config"], "architectures": [family], **keys}
    known, [card] = from_config(config, 16 * 10**9), cards(1, 80)
    text = fraction_of(sglang_plan([]), from_config(KNOWN["L31-8B"]["config"], 16 * 10**9), card)
    assert fraction_of(sglang_plan(words.split()), known, card) == pytest.approx(text * factor)


@pytest.mark.parametrize("name", ["qwen2-audio", "nothing but its class"])
def test_an_encoder_for_which_sglang_keeps_nothing_is_named(name: str) -> None:
    words = "--context-length 8192"
    found = with_tower(name, "sglang", words, cards(1, 80))
    assert (found.verdict, "its encoder" in found.because) == (Verdict.UNKNOWN, True)
    text = with_tower(name, "sglang", f"{words} --language-model-only", cards(1, 80))
    assert text.verdict is Verdict.GO


def test_a_given_fraction_leaves_an_encoder_what_it_leaves() -> None:
    given = "--context-length 8192 --mem-fraction-static"
    assert with_tower("mistral3", "sglang", f"{given} 0.7", cards(1, 80)).verdict is Verdict.GO
    found = with_tower("mistral3", "sglang", f"{given} 0.9", cards(1, 80))
    assert (found.verdict, "its encoder" in found.because) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize(
    ("words", "mib"),
    [
        ("", 512 + 8192 * 1.5 + 128 + 256 * 2 + 58 * 8),
        ("--tp 8", 512 + 8192 * 1.5 + 1024 + 512 * 2 + 58 * 8),
        ("--chunked-prefill-size 2048", 10240),
        ("--tp 8 --moe-a2a-backend deepep", 512 + 12288 + 1024 + 1024 + 464 + 1024 + 2048),
        ("--tp 8 --attn-dp-size 8", 512 + 12288 + 1024 + 1024 + 464 + 512 * 8 * 4.5),
        ("--tp 8 --dp 8 --enable-dp-attention --cuda-graph-max-bs-decode 128",
         512 + 12288 + 1024 + 256 + 464 + 128 * 8 * 3),
    ],
)  # fmt: skip
def test_sglangs_own_fraction(words: str, mib: float) -> None:
    known, [card] = from_config(KNOWN["L31-8B"]["config"], 16 * 10**9), cards(1, 80)
    kept = (1 - fraction_of(sglang_plan(words.split()), known, card)) * 80 * 1024
    assert kept == pytest.approx(mib, abs=42)


@pytest.mark.parametrize(
    ("engine", "words", "verdict"),
    [
        ("sglang", "--context-length 8192 --mem-fraction-static 1.0", Verdict.NO_GO),
        ("sglang", "--context-length 8192 --mem-fraction-static 0.995", Verdict.NO_GO),
        ("sglang", "--context-length 8192 --mem-fraction-static 0.975", Verdict.TIGHT),
        ("sglang", "--context-length 8192 --mem-fraction-static 0.9", Verdict.GO),
        ("vllm", f"{SHORT} --gpu-memory-utilization 1.0", Verdict.NO_GO),
        ("vllm", f"{SHORT} --gpu-memory-utilization 0.99", Verdict.TIGHT),
        ("vllm", f"{SHORT} --gpu-memory-utilization 0.95", Verdict.GO),
        ("vllm", f"{SHORT} --gpu-memory-utilization 0", Verdict.NO_GO),
    ],
)
def test_a_fraction_leaves_room_for_the_rest(engine: str, words: str, verdict: Verdict) -> None:
    found = judged(engine, words, cards(1, 80))
    assert found.verdict is verdict, found.because


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--max-num-batched-tokens 128 --max-num-seqs 256", "smaller than its 256 requests"),
        ("--max-num-seqs 16384", "smaller than its 16,384 requests"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 4096", "without chunked prefill"),
        ("--max-num-active-seqs 64 --max-num-seqs 32", "--max-num-active-seqs"),
        ("--long-prefill-token-threshold 9000", "--long-prefill-token-threshold"),
        ("--enable-expert-parallel", "no experts"),
        ("--block-size 1", "--block-size 1"),
        ("--block-size=8", "multiples of 16"),
        ("--block-size 24", "multiples of 16"),
        ("--enable-auto-tool-choice", "--tool-call-parser"),
        ("--enable-log-outputs", "--enable-log-requests"),
    ],
)
def test_what_vllm_refuses(words: str, why: str) -> None:
    found = judged("vllm", f"{SHORT} {words}", cards(1, 80))
    assert (found.verdict, why in found.because) == (Verdict.NO_GO, True), found.because


@pytest.mark.parametrize(
    "words",
    [
        "--max-num-batched-tokens 128",
        "--max-num-seqs 2048",
        "--no-enable-chunked-prefill",
        "--no-enable-chunked-prefill --max-num-batched-tokens 8192",
        "--enable-chunked-prefill --max-num-batched-tokens 512 --max-num-seqs 512",
        "--max-num-active-seqs 32 --long-prefill-token-threshold 8192",
        "--block-size 16",
        "--block-size 128",
        "--enable-auto-tool-choice --tool-call-parser hermes",
        "--enable-auto-tool-choice --no-enable-auto-tool-choice",
        "--enable-log-outputs --enable-log-requests",
        "--cudagraph-capture-sizes 1 2 4 8 --max-cudagraph-capture-size 512",
    ],
)
def test_what_vllm_takes(words: str) -> None:
    found = judged("vllm", f"{SHORT} {words}", cards(1, 80))
    assert found.verdict is Verdict.GO, found.because


@pytest.mark.parametrize(
    "words", ["--max-cudagraph-capture-size 2048", "--cudagraph-capture-sizes 1 8 2048"]
)
def test_graphs_of_unusual_batches_are_named(words: str) -> None:
    found = judged("vllm", f"{SHORT} {words}", cards(1, 80))
    assert (found.verdict, words.split()[0] in found.because) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize(
    ("model", "size", "named"),
    [("V3.2", 64, False), ("V3.2", 16, True), ("Qwen3.5-122B", 8, True), ("L31-8B", 8, False)],
)
def test_blocks_that_the_backend_or_a_state_decides(model: str, size: int, named: bool) -> None:
    known = {row["model"]: row["config"] for row in LOGS} | {"L31-8B": KNOWN["L31-8B"]["config"]}
    [config] = {str(one): one for name, one in known.items() if model in name}.values()
    found = not_known_of_blocks(from_config(config, 10**11), vllm_plan(["--block-size", str(size)]))
    assert bool(found) is named


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--tp 8 --attn-dp-size 3", Verdict.NO_GO),
        ("--tp 8 --dp 4 --attn-dp-size 2", Verdict.NO_GO),
        ("--tp 8 --ep-size 3", Verdict.NO_GO),
        ("--chunked-prefill-size 1000 --page-size 64 --attention-backend triton", Verdict.NO_GO),
        ("--chunked-prefill-size 1000 --page-size 64", Verdict.UNKNOWN),
        ("--chunked-prefill-size 1000", Verdict.GO),
        ("--chunked-prefill-size -1 --page-size 48", Verdict.GO),
        ("--page-size 64", Verdict.GO),
        ("--pp-size 2 --speculative-algorithm NGRAM", Verdict.NO_GO),
        ("--tp 8 --attn-dp-size 4", Verdict.GO),
        ("--dtype float32", Verdict.UNKNOWN),
    ],
)
def test_what_sglang_refuses(words: str, verdict: Verdict) -> None:
    found = judged("sglang", f"--context-length 8192 {words}", cards(8, 80))
    assert found.verdict is verdict, found.because


def test_experts_that_exchange_tokens_are_whole() -> None:
    """An FP8 expert of 1,536 cannot be divided by 8, and need not be."""
    words, known = "--context-length 8192 --tp 8", "Q3-235B-FP8"
    assert judged("sglang", words, cards(8, 80), known).verdict is Verdict.NO_GO
    found = judged("sglang", f"{words} --moe-a2a-backend deepep", cards(8, 80), known)
    assert found.verdict is Verdict.GO, found.because


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("words", "stored", "why"),
    [
        ("--quantization fp8", None, ""),
        ("--quantization awq", {"quant_method": "fp8"}, "whether weights that are stored as fp8"),
        ("--quantization awq_marlin", {"quant_method": "awq", "bits": 4}, ""),
        ("--dtype float32", None, "loaded in 32"),
        ("--dtype float32", {"quant_method": "fp8"}, "compute in 32 bits"),
    ],
)
def test_weights_that_are_loaded_otherwise(
    engine: str, words: str, stored: object, why: str
) -> None:
    length = SHORT if engine == "vllm" else "--context-length 8192"
    more = {"quantization_config": stored} if stored else {}
    found = judged(engine, f"{length} {words}", cards(1, 80), more=more)
    assert found.verdict is (Verdict.UNKNOWN if why else Verdict.GO)
    assert why in found.because


def test_awq_computes_in_16_bits() -> None:
    stored = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    found = judged("vllm", f"{SHORT} --dtype float32", cards(1, 80), more=stored)
    assert (found.verdict, "computes in float16" in found.because) == (Verdict.NO_GO, True)


@pytest.mark.parametrize(
    ("engine", "words", "stored", "dtype", "refused"),
    [
        ("sglang", "--quantization awq", "awq", "bfloat16", True),
        ("sglang", "--quantization gptq", "gptq", "bfloat16", True),
        ("sglang", "--quantization gptq --dtype bfloat16", "gptq", "float16", True),
        ("sglang", "--quantization awq --dtype half", "awq", "bfloat16", False),
        ("sglang", "--quantization awq", "awq", "float16", False),
        ("sglang", "--quantization awq", "awq", "float32", False),
        ("sglang", "--quantization awq_marlin", "awq", "bfloat16", False),
        ("sglang", "--quantization moe_wna16", "gptq", "bfloat16", False),
        ("sglang", "", "awq", "bfloat16", False),
        ("sglang", "--dtype float32", "gptq", "bfloat16", True),
        ("vllm", "--quantization awq", "awq", "bfloat16", False),
        ("vllm", "--quantization gptq", "gptq", "bfloat16", False),
        ("vllm", "--dtype half", "mxfp4", "bfloat16", True),
        ("vllm", "", "mxfp4", "float16", True),
        ("vllm", "", "mxfp4", "bfloat16", False),
        ("vllm", "", "gptq", "", False),
    ],
)
def test_a_dtype_that_a_quantization_does_not_compute_in(
    engine: str, words: str, stored: str, dtype: str, refused: bool
) -> None:
    """vllm#1823 and vllm#1592 ("torch.bfloat16 is not supported for quantization method awq"), of
    which SGLang still has the code."""
    more = {"quantization_config": {"quant_method": stored, "bits": 4}, "torch_dtype": dtype}
    length = SHORT if engine == "vllm" else "--context-length 8192"
    found = judged(engine, f"{length} {words}", cards(1, 80), more=more)
    assert (found.verdict is Verdict.NO_GO) is refused, found.because
    assert ("computes in" in found.because) is refused


def test_sglang_takes_float16_on_older_cards_whatever_is_asked() -> None:
    more = {"quantization_config": {"quant_method": "awq", "bits": 4}, "torch_dtype": "bfloat16"}
    words, old = "--context-length 8192 --quantization awq", cards(1, 80, (7, 5))
    assert judged("sglang", words, old, more=more).verdict is Verdict.GO


def test_sglangs_own_kernels_of_gptq_take_no_experts() -> None:
    more = {"quantization_config": {"quant_method": "gptq", "bits": 4}, "torch_dtype": "float16"}
    methods = {
        "gptq": Verdict.NO_GO, "gptq_marlin": Verdict.UNKNOWN, "moe_wna16": Verdict.GO,
    }  # fmt: skip
    for method, verdict in methods.items():
        words = f"--context-length 8192 --tp 4 --quantization {method}"
        assert judged("sglang", words, cards(4, 160), "Q3-235B-FP8", more).verdict is verdict


def test_a_mixture_whose_count_stands_elsewhere_is_not_refused() -> None:
    more = {"architectures": ["SomeMoeForCausalLM"]}
    found = judged("vllm", f"{SHORT} --enable-expert-parallel", cards(1, 80), more=more)
    assert "no experts" not in found.because


def test_families_that_vllm_does_not_serve_in_float16() -> None:
    gemma = {"architectures": ["Gemma2ForCausalLM"]}
    found = judged("vllm", f"{SHORT} --dtype half", cards(1, 80), more=gemma)
    assert (found.verdict, "float16" in found.because) == (Verdict.NO_GO, True)
    old, new = cards(1, 80, (7, 5)), cards(1, 80, (8, 0))
    needs = [judged("vllm", SHORT, here, more=gemma).limits[0].need for here in (old, new)]
    assert needs[0] - needs[1] == pytest.approx(KNOWN["L31-8B"]["bytes"], rel=0.01)


@pytest.mark.parametrize(
    ("words", "compute", "level"),
    [
        ("", (7, 5), Level.WARN),
        ("--dtype auto", (7, 5), Level.WARN),
        ("--dtype half", (7, 5), Level.OK),
        ("--dtype bfloat16", (7, 5), Level.FAIL),
        ("--dtype bfloat16", (8, 0), Level.OK),
        ("", (8, 0), Level.OK),
    ],
)
def test_bfloat16_on_cards_without_it(words: str, compute: tuple[int, int], level: Level) -> None:
    here = Machine(cards=cards(1, 16, compute))
    asked = Question("vllm", "safetensors", "llama", "bf16", machine=here,
                     dtype=vllm_plan(words.split()).dtype)  # fmt: skip
    assert [one.level for one in check(asked) if "quantization" in one.title] == [level]


@pytest.mark.parametrize(
    ("engine", "family", "quantization", "compute", "level"),
    [
        ("sglang", "qwen3_moe", "fp8", (8, 6), Level.FAIL),
        ("sglang", "llama", "fp8", (8, 6), Level.UNKNOWN),
        ("sglang", "llama", "fp8", (7, 5), Level.FAIL),
        ("sglang", "llama", "bf16", (7, 5), Level.WARN),
        ("sglang", "llama", "nvfp4", (9, 0), Level.WARN),
        ("sglang", "llama", "nvfp4", (7, 5), Level.FAIL),
        ("sglang", "llama", "nvfp4", (10, 0), Level.OK),
        ("vllm", "llama", "nvfp4", (7, 5), Level.WARN),
        ("vllm", "llama", "nvfp4", (7, 0), Level.FAIL),
        ("vllm", "llama", "mxfp4", (7, 5), Level.FAIL),
        ("vllm", "llama", "awq", (7, 5), Level.OK),
        ("vllm", "llama", "awq", (7, 0), Level.FAIL),
    ],
)
def test_kernels_are_those_of_the_sources(
    engine: str, family: str, quantization: str, compute: tuple[int, int], level: Level
) -> None:
    here = Machine(cards=cards(1, 16, compute))
    asked = Question(engine, "safetensors", family, quantization, machine=here)
    found = [one.level for one in check(asked) if "quantization" in one.title]
    assert found[0] == level


@pytest.mark.parametrize(
    ("engine", "words", "compute", "verdict", "noted"),
    [
        ("vllm", "fp8", (8, 6), Verdict.UNKNOWN, False),
        ("vllm", "fp8_e4m3", (8, 0), Verdict.UNKNOWN, False),
        ("vllm", "fp8_e5m2", (8, 6), Verdict.UNKNOWN, True),  # by its release: vllm#42587
        ("vllm", "fp8_e5m2", (7, 5), Verdict.UNKNOWN, False),
        ("vllm", "fp8", (8, 9), Verdict.GO, False),
        ("vllm", "auto", (7, 5), Verdict.GO, False),
        ("sglang", "fp8_e4m3", (8, 6), Verdict.UNKNOWN, False),
        ("sglang", "fp8_e4m3 --attention-backend flashinfer", (8, 6), Verdict.GO, True),
        ("sglang", "fp8_e4m3 --attention-backend flashinfer", (7, 5), Verdict.UNKNOWN, False),
        ("sglang", "fp8_e5m2", (9, 0), Verdict.GO, False),
    ],
)
def test_a_cache_in_fp8_on_older_cards(
    engine: str, words: str, compute: tuple[int, int], verdict: Verdict, noted: bool
) -> None:
    """vllm#26431 (8.6), vllm#35720 (7.0): "type fp8e4nv not supported in this architecture"."""
    length = SHORT if engine == "vllm" else "--context-length 8192"
    here = cards(2, 48, compute)
    tp = "--tensor-parallel-size 2" if engine == "vllm" else "--tp 2"
    found = judged(engine, f"{length} {tp} --kv-cache-dtype {words}", here)
    assert found.verdict is verdict, found.because
    assert any("Triton's kernels" in one for one in found.notes) is noted


@pytest.mark.parametrize(("compute", "offered"), [((8, 6), False), ((7, 5), False), ((8, 9), True)])
def test_a_cache_in_fp8_is_offered_where_cards_have_it(
    compute: tuple[int, int], offered: bool
) -> None:
    found = judged("vllm", "--max-model-len 45000", cards(1, 24, compute))
    assert found.verdict is Verdict.NO_GO
    assert any("kv-cache-dtype" in one for one in found.would_make_it_go) is offered


def test_latent_attention_has_backends_of_its_own() -> None:
    words = f"{SHORT} --tensor-parallel-size 8 --kv-cache-dtype fp8_e5m2"
    found = judged("vllm", words, cards(8, 80, (8, 0)), "K25")
    assert any("attention backend takes" in one for one in found.unknown)


@pytest.mark.parametrize(
    ("how", "words", "fp8"),
    [
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "", True),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "fp8"}, "--kv-cache-dtype auto", True),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "", True),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"type": "float", "num_bits": 8}}, "",
         True),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "--kv-cache-dtype bf16", False),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": None}, "", False),
        ({"quant_method": "awq", "kv_cache_quant_algo": "FP8"}, "", False),
    ],
)  # fmt: skip
def test_the_cache_that_a_quantization_wants(how: object, words: str, fp8: bool) -> None:
    """sgl-project/sglang#35777: honored via --kv-cache-dtype auto."""
    more = {"quantization_config": how}
    found = judged("sglang", f"--context-length 8192 {words}", cards(1, 80, (10, 0)), more=more)
    [cache] = [term for term in found.terms if term.name == "cache"]
    assert (cache.bytes or 0) >> 20 == (512 if fp8 else 1024)
    assert ("tokens fp8" in cache.how) is fp8


@pytest.mark.parametrize(
    ("how", "words", "fp8"),
    [
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "", True),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "", True),
        ({"quant_method": "modelopt", "kv_cache_scheme":
            {"type": "float", "num_bits": 8, "dynamic": False}}, "--kv-cache-dtype auto", True),
        ({"quant_method": "modelopt", "kv_cache_scheme":
            {"type": "float", "num_bits": 8, "dynamic": True}}, "", False),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "", False),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "--kv-cache-dtype bfloat16", False),
        ({"quant_method": "compressed-tensors", "format": "float-quantized", "kv_cache_scheme":
            {"type": "float", "num_bits": 8, "dynamic": False}}, "", True),
        ({"quant_method": "compressed-tensors", "format": "float-quantized",
          "kv_cache_scheme": None}, "", False),
    ],
)  # fmt: skip
def test_the_cache_that_a_quantization_wants_of_vllm(how: object, words: str, fp8: bool) -> None:
    """vllm-project/vllm#29980: the ModelOpt checkpoint says it, and nobody has to."""
    more = {"quantization_config": how}
    found = judged("vllm", f"{SHORT} {words}", cards(1, 80, (10, 0)), more=more)
    [cache] = [term for term in found.terms if term.name == "cache"]
    assert (cache.bytes or 0) >> 20 == (512 if fp8 else 1024)
    assert any("wants its cache in FP8" in note for note in found.notes) is fp8


def test_the_oldest_card_decides_on_a_cache_in_fp8() -> None:
    mixed = (*cards(1, 48, (9, 0)), *cards(1, 48, (8, 6)))
    words = f"{SHORT} --tensor-parallel-size 2 --kv-cache-dtype fp8"
    assert judged("vllm", words, mixed).verdict is Verdict.UNKNOWN
    assert judged("vllm", f"{SHORT} --kv-cache-dtype fp8", mixed).verdict is Verdict.GO


def test_sglang_refuses_cards_before_turing() -> None:
    asked = Question("sglang", "safetensors", "llama", "fp16", machine=Machine(
        cards=cards(1, 32, (7, 0))))  # fmt: skip
    assert check(asked)[0].level is Level.FAIL


def test_a_parser_of_tools_that_is_not_known_here_is_unknown() -> None:
    words = f"{SHORT} --enable-auto-tool-choice"
    found = judged("vllm", f"{words} --tool-call-parser mine", cards(1, 80))
    assert (found.verdict, "mine" in found.because) == (Verdict.UNKNOWN, True)
    assert judged("vllm", f"{words} --tool-call-parser hermes", cards(1, 80)).verdict is Verdict.GO
    assert judged("vllm", words, cards(1, 80)).verdict is Verdict.NO_GO


def of_release(release: tuple[int, int] | None, here: tuple[Card, ...], words: str) -> Assessment:
    known = from_config(KNOWN["L31-8B"]["config"], KNOWN["L31-8B"]["bytes"])
    plan = replace(vllm_plan(words.split()), release=release)
    return assess(known, plan, Machine(cards=here, ram_available=512 * GIB))


@pytest.mark.parametrize(
    ("release", "words", "verdict"),
    [
        (None, "", Verdict.UNKNOWN), ((0, 27), "", Verdict.TIGHT), ((0, 18), "", Verdict.NO_GO),
        (None, "--gpu-memory-utilization 0.92", Verdict.TIGHT),
        (None, "--gpu-memory-utilization 0.9", Verdict.NO_GO),
    ],
)  # fmt: skip
def test_the_usual_part_of_a_card_is_that_of_the_release(
    release: tuple[int, int] | None, words: str, verdict: Verdict
) -> None:
    """0.27.1 starts with 0.92 where 0.9 is too little (club-3090#1011)."""
    words = f"--max-model-len 4096 --max-num-seqs 8 {words}"
    need = of_release(None, cards(1, 24), words).need("card")
    size = need / 0.91 / GIB
    found = of_release(release, cards(1, size), words)
    assert found.verdict is verdict, found.because
    small = of_release(release, cards(1, need / 0.93 / GIB), words)
    assert small.verdict is Verdict.NO_GO
    if verdict is Verdict.UNKNOWN:
        assert "0.92 since vLLM 0.19 and 0.9 before" in found.because


@pytest.mark.parametrize(
    ("release", "verdict"),
    [(None, Verdict.UNKNOWN), ((0, 18), Verdict.GO), ((0, 19), Verdict.NO_GO)],
)
def test_what_is_free_is_less_than_a_newer_release_asks(
    release: tuple[int, int] | None, verdict: Verdict
) -> None:
    card = Card("card", total=80 * GIB, free=int(73.2 * GIB), compute=(9, 0))
    found = of_release(release, (card,), SHORT)
    assert found.verdict is verdict, found.because
    full = replace(card, free=70 * GIB)
    assert of_release(release, (full,), SHORT).verdict is Verdict.NO_GO


@pytest.mark.parametrize(
    ("method", "words", "verdict"),
    [
        ({"quant_method": "fp8"}, "", Verdict.UNKNOWN),  # vllm#8409
        (W4A16, "", Verdict.UNKNOWN),  # vllm#39137
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "", Verdict.UNKNOWN),
        ({"quant_method": "quark"}, "", Verdict.UNKNOWN),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "", Verdict.GO),
        (None, "", Verdict.GO), (None, "--quantization fp8", Verdict.NO_GO),
    ],
)  # fmt: skip
def test_scales_of_a_cache_are_not_those_of_e5m2(
    method: Mapping[str, object] | None, words: str, verdict: Verdict
) -> None:
    """ "fp8_e5m2 kv-cache is not supported with fp8 checkpoints", and of others."""
    more = {} if method is None else {"quantization_config": method}
    asked = f"{SHORT} {words} --kv-cache-dtype"
    found = judged("vllm", f"{asked} fp8_e5m2", cards(1, 80), more=more, image=LAST)
    assert found.verdict is verdict, found.because
    assert ("fp8_e5m2" in found.because) == (verdict is not Verdict.GO)
    assert "fp8_e5m2" not in judged("vllm", f"{asked} fp8", cards(1, 80), more=more).because
