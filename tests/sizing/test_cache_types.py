"""Every word that --kv-cache-dtype and --cache-type-k may have is known, refused or named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from console.common.options.table import table
from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.cache import rank_bytes
from tests.sizing.test_backends import LATENT, PLAIN, WINDOW

GO, NO_GO, UNKNOWN = Verdict.GO, Verdict.NO_GO, Verdict.UNKNOWN
SPARSE = from_config(
    {"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"],
     "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1024,
     "intermediate_size": 1024, "max_position_embeddings": 4096, "dtype": "bfloat16",
     "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
     "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 8},
    1 << 30,
)  # fmt: skip
LAST, OLD = "vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.14.1"


def machine(compute: tuple[int, int]) -> Machine:
    card = Card("A", total=80 * GIB, free=80 * GIB, compute=compute)
    return Machine(cards=(card,), ram_available=256 * GIB)


def choices(engine: str, option: str) -> tuple[str, ...]:
    known = table(engine).option(option)
    return known.choices if known is not None else ()


def by_vllm(
    facts: ModelFacts, words: str, image: str, compute: tuple[int, int] = (9, 0)
) -> Assessment:
    return assess(facts, vllm_plan(words.split(), image=image), machine(compute))


KNOWN_OF_VLLM = {
    "plain": {"auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head"},
    "latent": {"auto", "bfloat16", "float16", "fp8", "fp8_e4m3"},
    "sparse": {"auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_ds_mla"},
}
"""By `supported_kv_cache_dtypes` of vLLM 0.33 on Hopper, of those whose size is counted."""
NEVER_OF_VLLM = {
    "plain": {"fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla", "octave_k3v4", "ultraquant_4bit"},
    "latent": {"fp8_inc", "fp8_ds_mla", "fp8_e5m2", "nvfp4", "fp8_per_token_head",
               "turboquant_k8v4", "int4_per_token_head"},
    "sparse": {"fp8_inc", "fp8_e5m2", "nvfp4", "turboquant_4bit_nc"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "facts"), [("plain", PLAIN), ("plain", WINDOW), ("latent", LATENT), ("sparse", SPARSE)]
)
def test_every_type_of_vllm_is_known_refused_or_named(kind: str, facts: ModelFacts) -> None:
    """vllm#42587: fp8_ds_mla and fp8_inc are words of the option, and no backend has them."""
    assert len(choices("vllm", "--kv-cache-dtype")) > 20
    for value in choices("vllm", "--kv-cache-dtype"):
        assessment = by_vllm(facts, f"--kv-cache-dtype {value}", LAST)
        wanted = GO if value in KNOWN_OF_VLLM[kind] else UNKNOWN
        wanted = NO_GO if value in NEVER_OF_VLLM[kind] else wanted
        if wanted is UNKNOWN:
            assert assessment.verdict in (UNKNOWN, NO_GO), (value, assessment.because)
        else:
            assert assessment.verdict is wanted, (value, assessment.because)
        assert wanted is GO or "--kv-cache-dtype" in assessment.because, value


@pytest.mark.parametrize("image", ["", OLD])
@pytest.mark.parametrize("value", ["bfloat16", "fp8_e5m2", "fp8_per_token_head"])
def test_a_type_that_not_every_release_takes_is_unknown(value: str, image: str) -> None:
    assessment = by_vllm(PLAIN, f"--kv-cache-dtype {value}", image)
    is_refused = value == "fp8_per_token_head" and image == OLD
    assert assessment.verdict is (NO_GO if is_refused else UNKNOWN)
    assert "vllm#42587" in assessment.because


@pytest.mark.parametrize(
    ("facts", "words", "compute", "verdict"),
    [
        (PLAIN, "--kv-cache-dtype fp8 --attention-backend FLEX_ATTENTION", (9, 0), NO_GO),
        (PLAIN, "--kv-cache-dtype fp8_e5m2 --attention-backend FLASH_ATTN", (9, 0), NO_GO),
        (PLAIN, "--kv-cache-dtype fp8_e5m2 --attention-backend TRITON_ATTN", (9, 0), GO),
        (LATENT, "--kv-cache-dtype fp8 --attention-backend FLASH_ATTN_MLA", (9, 0), NO_GO),
        (SPARSE, "--kv-cache-dtype float16", (10, 0), GO),
        (SPARSE, "--kv-cache-dtype bfloat16", (12, 0), UNKNOWN),
        (replace(PLAIN, attends="sparse"), "--kv-cache-dtype fp8_e4m3", (9, 0), UNKNOWN),
        (PLAIN, "--kv-cache-dtype fp8", (9, 0), GO),
    ],
)
def test_the_named_backend_and_the_cards_decide(
    facts: ModelFacts, words: str, compute: tuple[int, int], verdict: Verdict
) -> None:
    assert by_vllm(facts, words, LAST, compute).verdict is verdict


def test_a_sparse_latent_cache_in_fp8_has_656_bytes_a_token() -> None:
    """flashmla_sparse.py: 512 of FP8, four scales of 4 bytes, and 64 of 16 bits; keys of the
    indexer stand beside, as in the other form."""
    flat, packed = (rank_bytes(SPARSE, 1024, kind, 1) for kind in ("fp8", "fp8_ds_mla"))
    assert flat
    assert packed
    assert packed - flat == (656 - 576) * 1024 * 4


@pytest.mark.parametrize(
    ("facts", "words", "compute", "verdict"),
    [
        (PLAIN, "", (9, 0), GO), (PLAIN, "", (8, 6), GO), (PLAIN, "", (10, 0), UNKNOWN),
        (PLAIN, "--attention-backend fa3", (9, 0), GO), (LATENT, "", (9, 0), GO),
        (PLAIN, "--decode-attention-backend fa3", (9, 0), UNKNOWN),
        (LATENT, "--attention-backend trtllm_mla", (10, 0), NO_GO),
        (LATENT, "--attention-backend flashmla", (9, 0), UNKNOWN), (SPARSE, "", (9, 0), UNKNOWN),
    ],
)  # fmt: skip
def test_where_sglang_takes_fp8_e5m2(
    facts: ModelFacts, words: str, compute: tuple[int, int], verdict: Verdict
) -> None:
    plan = sglang_plan(["--kv-cache-dtype", "fp8_e5m2", *words.split()])
    assessment = assess(facts, plan, machine(compute))
    assert assessment.verdict is verdict, assessment.because


def test_every_type_of_sglang_is_known_or_named() -> None:
    known = {"auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2"}
    for value in choices("sglang", "--kv-cache-dtype"):
        assessment = assess(PLAIN, sglang_plan(["--kv-cache-dtype", value]), machine((9, 0)))
        assert assessment.verdict is (GO if value in known else UNKNOWN), value


@pytest.mark.parametrize(
    ("engine", "plan_of", "layers", "unknown"),
    [
        ("llama_cpp", llama_plan, "99", {"q4_1", "iq4_nl", "q5_0", "q5_1"}),
        ("ik_llama", ik_plan, "99", {"q8_KV"}),  # ik_llama.cpp#875: every type from Volta on
        ("ik_llama", ik_plan, "0", {"q8_KV", "q5_0", "q5_1"}),  # ik_llama.cpp#1562
    ],
)
def test_every_type_of_llama_cpp_is_known_or_named(
    engine: str, plan_of: Callable[[list[str]], LlamaPlan], layers: str, unknown: set[str]
) -> None:
    """Without a build only pairs that each build's flash attention has are GO on a card."""
    facts = replace(PLAIN, architecture="llama")
    for value in choices(engine, "-ctk"):
        argv = ["-c", "4096", "-ngl", layers, "-fa", "on", "-ctk", value, "-ctv", value]
        assessment = assess(facts, plan_of(argv), machine((8, 6)))
        named = " ".join((*assessment.unknown, *assessment.stops))
        assert (value in named) is (value in unknown), (value, assessment.because)
