"""Features that work each by itself, and not together: what people reported of them."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Assessment, Verdict
from console.models.sizing.combinations import llama, serving
from console.models.sizing.combinations.table import ANY, NAMES, Feature, judged, rows
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import Build
from console.models.sizing.model_facts import Experts, Kind, ModelFacts, Weight
from tests.sizing import shapes
from tests.sizing.test_backends import CONFIG
from tests.sizing.test_states import facts as qwen

MTP = '--speculative-config {"method":"mtp","num_speculative_tokens":2}'
PLAIN = from_config(CONFIG, 1 << 30)
QWEN3 = from_gguf(shapes.qwen3_235b())
LLAMA = from_gguf(shapes.llama_70b())
KNOWN = {
    feature.words
    for module in (llama, serving)
    for feature in vars(module).values()
    if isinstance(feature, Feature)
}


def cards(count: int = 4, compute: tuple[int, int] = (9, 0)) -> Machine:
    some = (Card("A", total=140 * GIB, free=140 * GIB, compute=compute),) * count
    return Machine(cards=some, ram_available=768 * GIB)


def vllm(
    facts: ModelFacts, words: str, release: tuple[int, int] | None = None, *,
    machine: Machine | None = None,
) -> Assessment:  # fmt: skip
    usual = "--max-model-len 4096 --language-model-only --gpu-memory-utilization 0.9"
    plan = replace(vllm_plan(f"{usual} {words}".split()), release=release)
    return assess(facts, plan, machine or cards())


def sglang(facts: ModelFacts, words: str) -> Assessment:
    return assess(facts, sglang_plan(f"--context-length 4096 {words}".split()), cards())


@pytest.mark.parametrize("engine", NAMES)
def test_every_row_has_a_source_a_state_and_features_that_plans_have(engine: str) -> None:
    table = rows(engine)
    for pair, lines in table.items():
        assert pair - {ANY} <= KNOWN, pair - KNOWN
        for row in lines:
            assert row.state in ("works", "refused", "unknown")
            assert row.source
            assert row.words or row.state == "works"
    assert len(table) > 10


def test_a_pair_that_the_table_lacks_is_named_and_two_of_the_model_are_none() -> None:
    first, second = Feature("one thing"), Feature("another")
    assert judged("vllm", [first, second], None) == (
        [], ["one thing beside another: not known that vLLM does both"],
    )  # fmt: skip
    of_model = [Feature("a window", of_model=True), Feature("a state", of_model=True)]
    assert judged("vllm", of_model, None) == ([], [])
    assert judged("vllm", [first], None) == ([], [])


@pytest.mark.parametrize(
    ("release", "verdict", "why"),
    [
        (None, Verdict.UNKNOWN, "which release it is"), ((0, 28), Verdict.NO_GO, "up to 0.28"),
        ((0, 30), Verdict.UNKNOWN, "since 0.33"), ((0, 33), Verdict.GO, "everything fits"),
    ],
)  # fmt: skip
def test_pipeline_stages_beside_layers_that_guess_ahead(
    release: tuple[int, int] | None, verdict: Verdict, why: str
) -> None:
    """vllm#36643, vllm#52069, recipes#875: "Pipeline parallelism is not supported for this model"
    for the class of the layers that guess, up to 0.28."""
    judged_plan = vllm(qwen("35B-A3B"), f"-pp 4 --max-num-seqs 32 {MTP}", release)
    assert (judged_plan.verdict, why in judged_plan.because) == (verdict, True)
    alone = vllm(qwen("35B-A3B"), f"-tp 2 --max-num-seqs 32 {MTP}", release)
    assert alone.verdict is Verdict.GO, alone.because
    assert vllm(qwen("35B-A3B"), "-pp 4 --max-num-seqs 32", release).verdict is Verdict.GO


def test_layers_that_guess_ahead_without_stages_of_their_own_stay_unknown() -> None:
    """vllm#54635: families whose MTP class has no SupportsPP in 0.33."""
    facts = replace(qwen("35B-A3B"), classes=("Qwen3NextForCausalLM",))
    assert "no SupportsPP" in vllm(facts, f"-pp 2 --max-num-seqs 32 {MTP}", (0, 33)).because


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("DeepseekV4ForCausalLM", False),  # vllm#52761
        ("MiniMaxM3SparseForCausalLM", False),  # vllm#45455
        ("Gemma3nForCausalLM", False),
        ("Qwen3ForCausalLM", True), ("DeepseekV3ForCausalLM", True), ("GptOssForCausalLM", True),
    ],
)  # fmt: skip
def test_a_class_that_is_not_divided_among_stages(name: str, known: bool) -> None:
    """ "Pipeline parallelism is not supported for this model"."""
    judged_plan = vllm(replace(PLAIN, classes=(name,)), "-pp 2")
    assert ("not known to be divided" not in judged_plan.because) is known
    assert judged_plan.verdict is (Verdict.GO if known else Verdict.UNKNOWN)


def test_stages_of_sglang_by_the_class_and_never_with_a_guess() -> None:
    assert sglang(PLAIN, "--pp-size 2").verdict is Verdict.GO
    old = replace(PLAIN, classes=("GemmaForCausalLM",))
    assert "not known to be divided" in sglang(old, "--pp-size 2").because
    guess = sglang(PLAIN, "--pp-size 2 --speculative-algorithm NGRAM")
    assert (guess.verdict, "prefill nodes alone" in guess.because) == (Verdict.NO_GO, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--tp 4 --dp 2 --enable-dp-attention --speculative-algorithm NGRAM", "sglang#28616"),
        ("--tp 2 --cpu-offload-gb 1 --pp-size 2", "weights in RAM"),
    ],
)
def test_combinations_of_sglang_that_nobody_has_shown(words: str, why: str) -> None:
    judged_plan = sglang(PLAIN, words)
    assert (judged_plan.verdict, why in judged_plan.because) == (Verdict.UNKNOWN, True)


def test_sparse_attention_of_sglang_beside_own_layers_that_guess() -> None:
    """sglang#30296: GLM-5.2 with EAGLE ends where an attention has several ranks."""
    plan = sglang_plan(["--tp", "4", "--speculative-algorithm", "EAGLE"])
    refused, unknown = serving.by_sglang_pairs(replace(PLAIN, attends="sparse MLA"), plan)
    assert (refused, "sglang#30296" in "".join(unknown)) == ([], True)


def test_weights_in_ram_of_models_whose_layers_are_of_two_kinds() -> None:
    """vllm#26206: Qwen3-Next and Qwen3.5 with --cpu-offload-gb end in "Cannot re-initialize the
    input batch when CPU weight offloading is enabled"."""
    judged_plan = vllm(qwen("35B-A3B"), "-tp 2 --max-num-seqs 1 --cpu-offload-gb 30")
    assert (judged_plan.verdict, "vllm#26206" in judged_plan.because) == (Verdict.UNKNOWN, True)
    assert vllm(PLAIN, "--cpu-offload-gb 1", (0, 33)).verdict is Verdict.GO


V2_MOE = replace(PLAIN, experts=Experts(8, 2, 64, 0), classes=("Qwen2MoeForCausalLM",))


@pytest.mark.parametrize(
    ("facts", "release", "known"),
    [
        (PLAIN, None, False), (PLAIN, (0, 19), True), (PLAIN, (0, 21), False),
        (PLAIN, (0, 27), False), (PLAIN, (0, 28), False), (PLAIN, (0, 29), True),
        (PLAIN, (0, 33), True), (V2_MOE, None, False), (V2_MOE, (0, 26), False),
        (V2_MOE, (0, 33), True), (replace(V2_MOE, classes=("Qwen3MoeForCausalLM",)), None, True),
    ],
)  # fmt: skip
def test_weights_in_ram_that_a_runner_passes_over(
    facts: ModelFacts, release: tuple[int, int] | None, known: bool
) -> None:
    """vllm#51396, vllm#56283: --cpu-offload-gb does nothing on the V2 runner of 0.27.1, which has
    all dense models since vllm#44443, and some that have experts."""
    plan = replace(vllm_plan(["--cpu-offload-gb", "1"]), release=release)
    unknown = serving.by_vllm_pairs(facts, plan)[1]
    assert ("vllm#56283" not in " ".join(unknown)) is known
    assert serving.by_vllm_pairs(facts, replace(plan, cpu_offload=0)) == ([], [])


@pytest.mark.parametrize(
    "words",
    ["-tp 2 -pp 2", "-tp 2 --kv-cache-dtype fp8", "-dp 4", "-tp 2 -pp 2 --kv-cache-dtype fp8",
     "-tp 4 --attention-backend FLASHINFER", "--kv-cache-dtype fp8 --attention-backend FLASHINFER"],
)  # fmt: skip
def test_usual_combinations_stay_known(words: str) -> None:
    assert vllm(PLAIN, words).verdict is Verdict.GO
    assert vllm(qwen("27B"), f"{words} --max-num-seqs 16").verdict is Verdict.GO


def test_ray_may_not_be_there() -> None:
    assert vllm(PLAIN, "-tp 4 --distributed-executor-backend mp").verdict is Verdict.GO
    unknown = vllm(PLAIN, "-tp 4 --distributed-executor-backend ray")
    assert "whether Ray is installed" in unknown.because


def gguf(
    words: str, facts: ModelFacts, *, ik: bool = False, build: int | None = None
) -> Assessment:
    read = ik_plan if ik else llama_plan
    plan = replace(read(f"-c 8192 -np 1 {words}".split()), build=Build(build))
    return assess(facts, plan, cards())


def with_weights(facts: ModelFacts, *names: str) -> ModelFacts:
    more = tuple(Weight(name, Kind.DENSE, 1 << 20, 1 << 20, 1, 32) for name in names)
    return replace(facts, weights=facts.weights + more)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [("-ngl 30 -sm graph", Verdict.UNKNOWN), ("-ngl 99 -sm graph", Verdict.GO),
     ("-ngl 30", Verdict.GO), ("-ngl 99 -sm graph --n-cpu-moe 9", Verdict.GO)],
)  # fmt: skip
def test_graphs_of_ik_llama_beside_shared_experts_on_the_host(words: str, verdict: Verdict) -> None:
    """ik_llama.cpp#1835, its author: `-sm graph -ngl N` with N below the layers does not work for
    experts with shared ones, and does for Qwen3-MoE."""
    glm = replace(QWEN3, architecture="glm4moe")
    shared = with_weights(glm, "blk.1.ffn_up_shexp.weight")
    judged_plan = gguf(words, shared, ik=True)
    assert judged_plan.verdict is verdict, judged_plan.because
    assert gguf(words, QWEN3, ik=True).verdict is Verdict.GO


def test_split_tensors_beside_layers_for_guesses() -> None:
    """llama.cpp#24309: GLM-4.5-Air on four 3090, b9553; llama.cpp#23500: with --spec-type."""
    spare = replace(LLAMA, spare_layers=1)
    assert "llama.cpp#24309" in gguf("-ngl 99 -sm tensor", spare).because
    assert "llama.cpp#23500" in gguf("-ngl 99 -sm tensor --spec-type draft-mtp", spare).because
    assert gguf("-ngl 99 -sm tensor", LLAMA).verdict is Verdict.GO
    assert "layers in RAM" in gguf("-ngl 9 -sm tensor", LLAMA).because


@pytest.mark.parametrize(
    ("words", "build", "verdict", "why"),
    [
        ("-ctk q8_0 -ctv q8_0", 9208, Verdict.NO_GO, "KV cache quantization not implemented"),
        ("-ctk q8_0 -ctv q8_0", None, Verdict.UNKNOWN, "which release it is"),
        ("-ctk q8_0 -ctv q8_0", 11549, Verdict.GO, ""),
        ("-ctk iq4_nl -ctv iq4_nl", 11549, Verdict.UNKNOWN, "llama.cpp#27116"),
        ("-nkvo", 11549, Verdict.UNKNOWN, "the cache in RAM"), ("", None, Verdict.GO, ""),
    ],
)  # fmt: skip
def test_split_tensors_beside_other_caches(
    words: str, build: int | None, verdict: Verdict, why: str
) -> None:
    """llama.cpp#23567 and #23792, llama.cpp#27116, GenerelSchwerz/llama.cpp#66."""
    found = gguf(f"-ngl 99 -sm tensor {words}", LLAMA, build=build)
    assert (found.verdict, why in found.because) == (verdict, True), found.because
    whole = gguf(f"-ngl 99 {words}", LLAMA, build=build)
    assert (why or "no word") not in whole.because


def test_combinations_that_a_document_was_said_to_have() -> None:
    """vllm#39273, sglang#37187, sglang#19924: rows that named a page without the pair in it."""
    sinks = replace(PLAIN, classes=("GptOssForCausalLM",), attends="sinks")
    apart = sglang_plan(["--tp", "4", "--dp", "4", "--enable-dp-attention"])
    assert "sglang#37187" in "".join(serving.by_sglang_pairs(sinks, apart)[1])
    latent = replace(PLAIN, attention=replace(PLAIN.attention, latent=True))
    moved = sglang_plan(["--cpu-offload-gb", "4"])
    assert "sglang#19924" in "".join(serving.by_sglang_pairs(latent, moved)[1])
    looks_up = '--speculative-config {"method":"ngram","num_speculative_tokens":3}'
    assert "vllm#39273" in vllm(qwen("27B"), f"-tp 2 --max-num-seqs 16 {looks_up}").because


@pytest.mark.parametrize(
    ("words", "build", "verdict"),
    [
        ("-ngl 99", None, Verdict.UNKNOWN), ("-ngl 99", 10063, Verdict.NO_GO),
        ("-ngl 99", 10200, Verdict.UNKNOWN), ("-ngl 99", 11549, Verdict.GO),
        ("-ngl 18 -sm none", None, Verdict.UNKNOWN), ("-ngl 99 -sm none", None, Verdict.GO),
    ],
)  # fmt: skip
def test_embeddings_of_each_layer_on_two_backends(
    words: str, build: int | None, verdict: Verdict
) -> None:
    """llama.cpp#21730, llama.cpp#24132: gemma-4-E4B on two cards, or with -ngl 18, ends with
    n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS up to b10063."""
    facts = with_weights(LLAMA, "per_layer_token_embd.weight")
    judged_plan = gguf(words, facts, build=build)
    assert judged_plan.verdict is verdict, judged_plan.because


@pytest.mark.parametrize(
    ("ranks", "release", "compute", "verdict"),
    [
        (8, None, (8, 6), Verdict.UNKNOWN),  # zai-org/GLM-4.5#94, #23
        (8, (0, 11), (8, 6), Verdict.NO_GO), (8, (0, 33), (8, 6), Verdict.GO),
        (8, None, (8, 9), Verdict.GO), (2, None, (8, 6), Verdict.GO),
    ],
)  # fmt: skip
def test_parts_of_fp8_that_are_no_whole_tiles(
    ranks: int, release: tuple[int, int] | None, compute: tuple[int, int], verdict: Verdict
) -> None:
    """GLM-4.5#94: "size_n = 2736 is not divisible by tile_n_size = 64" on eight 3090."""
    config = {**CONFIG, "intermediate_size": 10944, "num_key_value_heads": 8}
    facts = replace(from_config(config, 1 << 30), stored="fp8")
    machine = cards(8, compute)
    judged_plan = vllm(facts, f"-tp {ranks}", release, machine=machine)
    assert judged_plan.verdict is verdict, judged_plan.because


def test_what_estimates_alone_decide_is_no_no_go() -> None:
    """vllm#55509: two 5060 Ti serve what a sum made 139 MiB too large, of which 2.2 GiB are
    estimates."""
    words = "--max-num-seqs 8 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.5"
    need = vllm(PLAIN, words, machine=cards(1)).need("A")
    for short_by, verdict in ((40 << 20, Verdict.UNKNOWN), (400 << 20, Verdict.NO_GO)):
        total = int((need - short_by) / 0.5)
        card = Card("A", total=total, free=total, compute=(9, 0))
        judged_plan = vllm(PLAIN, words, machine=Machine(cards=(card,), ram_available=512 * GIB))
        assert judged_plan.verdict is verdict, judged_plan.because
        assert ("by estimates" in judged_plan.because) is (verdict is Verdict.UNKNOWN)


GPTQ = replace(
    QWEN3, stored="gptq", dtype="bfloat16", architecture="qwen3_moe", missing=(),
    classes=("Qwen3MoeForCausalLM",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "experts in GPTQ beside bfloat16"),  # sglang#36822
        ("--quantization gptq_marlin --dtype bfloat16", "experts in GPTQ beside bfloat16"),
        ("--tp 2 --dtype half", "tensor parallel ranks beside experts in GPTQ"),  # sglang#13252
        ("--dtype half", ""),
        ("--quantization moe_wna16", ""),
        ("--quantization moe_wna16 --tp 2", ""),
    ],
)
def test_experts_in_gptq_of_sglang(words: str, why: str) -> None:
    refused, unknown = serving.by_sglang_pairs(GPTQ, sglang_plan(words.split()), cards().cards)
    assert not refused
    named = [line for line in unknown if "GPTQ" in line]
    assert [line.partition(":")[0] for line in named] == ([why] if why else []), unknown
    dense = replace(GPTQ, experts=replace(GPTQ.experts, count=0))
    _, unknown = serving.by_sglang_pairs(dense, sglang_plan(words.split()), cards().cards)
    assert "GPTQ" not in str(unknown)
    old = cards(compute=(7, 5)).cards
    _, unknown = serving.by_sglang_pairs(GPTQ, sglang_plan(words.split()), old)
    assert "bfloat16" not in str(unknown), "such a card computes in float16, whatever is asked"


@pytest.mark.parametrize(
    ("stored", "words", "known"),
    [
        ("", "--tp 8 --ep-size 8", False),  # sglang#22784
        ("", "--tp 8", True),
        ("mxfp4", "--tp 8 --ep-size 8", True),
    ],
)
def test_experts_of_one_tensor_on_ranks_of_sglang(stored: str, words: str, known: bool) -> None:
    facts = replace(QWEN3, stored=stored, classes=("GptOssForCausalLM",))
    _, unknown = serving.by_sglang_pairs(facts, sglang_plan(words.split()), cards(8).cards)
    assert ("experts stored as one tensor" in str(unknown)) is not known, unknown


@pytest.mark.parametrize(
    ("words", "release", "told"),
    [
        ("--async-scheduling --speculative-config.method ngram "
         "--speculative-config.num_speculative_tokens 3", (0, 14), "vllm#31998"),
        ("--async-scheduling --speculative-config.method ngram "
         "--speculative-config.num_speculative_tokens 3", None, "vllm#31998"),
        ("--async-scheduling --speculative-config.method ngram "
         "--speculative-config.num_speculative_tokens 3", (0, 33), ""),
        ("--async-scheduling", None, ""), ("--async-scheduling -tp 2", (0, 14), ""),
        ("--async-scheduling -pp 2", (0, 33), "decides itself"),
        ("--async-scheduling --no-async-scheduling -pp 2", (0, 33), ""),
        ("--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
         (0, 14), ""),
    ],
)  # fmt: skip
def test_steps_scheduled_ahead(words: str, release: tuple[int, int] | None, told: str) -> None:
    plan = replace(vllm_plan(words.split()), release=release)
    refused, unknown = serving.by_vllm_pairs(PLAIN, plan)
    assert refused == []
    assert (told in " ".join(unknown)) if told else not unknown
