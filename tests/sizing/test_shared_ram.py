"""Cards that share the host's RAM (GB10, Jetson, Apple), and what CUDA graphs take of a card."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing import vllm
from console.models.sizing.assess import POOL, assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import VllmPlan
from tests.sizing import shapes
from tests.sizing.site import served, sglang

GIB, MIB = 1 << 30, 1 << 20
SPARK = Machine(
    cards=(Card("NVIDIA GB10", total=int(121.7 * GIB), compute=(12, 1)),),
    ram_total=int(121.7 * GIB), ram_available=int(116 * GIB),
)  # fmt: skip
"""A DGX Spark, as its driver and kernel tell of one pool."""
DENSE = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 64,
    "hidden_size": 5120, "intermediate_size": 27648, "vocab_size": 152064,
    "num_attention_heads": 40, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}  # fmt: skip
FACTS = from_config(DENSE, 65_527_000_000)


def asked(words: str) -> VllmPlan:
    return vllm_plan(["vllm", "serve", "x", *words.split()])


def apart(machine: Machine) -> Machine:
    """The same machine if its card had memory of its own."""
    return replace(machine, cards=(Card("RTX", total=machine.cards[0].total, compute=(12, 0)),))


@pytest.mark.parametrize(
    ("card", "shares"),
    [
        (Card("NVIDIA GB10"), True), (Card("x", compute=(12, 1)), True),
        (Card("Orin (nvgpu)"), True), (Card("NVIDIA Jetson AGX Thor"), True),
        (Card("Apple M3 Ultra"), True), (Card("x", unified=True), True),
        (Card("NVIDIA GB200", compute=(10, 0)), False),
        (Card("NVIDIA GH200 480GB", compute=(9, 0)), False),
        (Card("RTX PRO 6000", compute=(12, 0)), False),
    ],
)  # fmt: skip
def test_which_cards_share_ram(card: Card, shares: bool) -> None:
    assert card.shares_ram is shares


def test_vllm_takes_its_fraction_and_its_processes_of_one_pool() -> None:
    plan = asked("--max-model-len 8192 --gpu-memory-utilization 0.94")
    assert assess(FACTS, plan, apart(SPARK)).verdict is not Verdict.NO_GO
    found = assess(FACTS, plan, SPARK)
    assert found.verdict is Verdict.NO_GO
    assert any(limit.where == POOL and limit.short_by for limit in found.limits)
    assert any("--gpu-memory-utilization 0" in one for one in found.would_make_it_go)


def test_a_smaller_fraction_of_one_pool_goes() -> None:
    plan = asked("--max-model-len 8192 --gpu-memory-utilization 0.7")
    assert assess(FACTS, plan, SPARK).verdict is Verdict.GO
    less = replace(SPARK, ram_available=95 * GIB)
    assert assess(FACTS, plan, less).verdict is Verdict.TIGHT


def test_memory_that_the_driver_does_not_tell_is_the_hosts() -> None:
    silent = replace(SPARK, cards=(Card("NVIDIA GB10", unified=True),))
    plan = asked("--max-model-len 8192 --gpu-memory-utilization 0.7")
    assert assess(FACTS, plan, silent).verdict is Verdict.GO


def test_llama_cpp_and_sglang_take_card_and_host_of_one_pool() -> None:
    facts = from_gguf(shapes.llama_70b())
    whole = served("-ngl 99 -c 8192 -np 1 --cache-ram 8192 --load-mode none")
    small = replace(SPARK, ram_available=50 * GIB)
    found = assess(facts, whole, small)
    assert found.verdict is Verdict.NO_GO
    assert any(limit.where == POOL for limit in found.short)
    roomy = replace(apart(SPARK), ram_available=50 * GIB)
    assert assess(facts, whole, roomy).verdict is Verdict.GO
    words = "--model-path x --context-length 8192 --mem-fraction-static 0.95"
    assert assess(FACTS, sglang(words), SPARK).verdict is Verdict.NO_GO


def test_two_such_cards_are_two_machines() -> None:
    two = replace(SPARK, cards=SPARK.cards * 2)
    plan = asked("-tp 2 --max-model-len 8192 --gpu-memory-utilization 0.4")
    assert assess(FACTS, plan, two).verdict in (Verdict.UNKNOWN, Verdict.NO_GO)


@pytest.mark.parametrize(
    ("source", "layers", "batches", "experts", "took"),
    [
        ("vllm#11349", 16, 35, 0, 0.21), ("sglang#8538 (vLLM 0.9.2)", 48, 67, 128, 1.40),
        ("vllm#57475", 64, 2, 0, 0.46), ("vllm#7553", 60, 35, 0, 2.41),
        ("GLM-V#208", 46, 67, 128, 5.97),
    ],
)  # fmt: skip
def test_graphs_of_public_logs_are_within_what_is_kept(
    source: str, layers: int, batches: int, experts: int, took: float
) -> None:
    routed = {"n_routed_experts": experts, "num_experts_per_tok": min(8, experts)}
    facts = from_config({**DENSE, "num_hidden_layers": layers, **routed}, 65_527_000_000)
    plan = replace(asked(""), graph_batches=batches)
    usual, most = vllm.graphs_of(facts, plan, 256)
    assert took * GIB <= most, source
    assert usual <= most


@pytest.mark.parametrize(("left", "graphs", "tight"), [(2, True, True), (20, True, False),
                                                      (2, False, False)])  # fmt: skip
def test_room_that_graphs_may_need_is_tight(left: int, graphs: bool, tight: bool) -> None:
    words = "--max-model-len 4096 --gpu-memory-utilization 0.9"
    plan = asked(words if graphs else f"{words} --enforce-eager")
    card = Card("A100", total=159 * GIB, compute=(8, 0))
    roomy = Machine(cards=(card,), ram_available=200 * GIB)
    need = assess(FACTS, plan, roomy).limits[0].need
    own = replace(roomy, cards=(replace(card, total=int((need + left * GIB) / 0.9)),))
    found = assess(FACTS, plan, own)
    assert found.verdict is (Verdict.TIGHT if tight else Verdict.GO)


def test_fewer_batches_make_smaller_graphs() -> None:
    plan = asked("--max-num-seqs 4")
    small = vllm.graphs_of(FACTS, plan, 4)
    given = asked("--cudagraph-capture-sizes 1 2 4 8")
    assert vllm.graphs_of(FACTS, given, 1024) == small
    most = asked("--max-cudagraph-capture-size 8")
    assert vllm.graphs_of(FACTS, most, 1024) == small
    assert small < vllm.graphs_of(FACTS, asked(""), 1024)
