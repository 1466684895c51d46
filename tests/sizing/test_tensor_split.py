"""How `--split-mode tensor` divides a model, against what public logs have of it.

A log of llama.cpp bb4caa754 (September 2026): KAT-Coder-V2.5-Dev on two cards with `-ts 0.6828` has
31.88 of 42.50 MiB of cache and 172.73 of 251.25 MiB of states on the first one.
"""

from dataclasses import replace
from itertools import accumulate

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.cards.tensor_split import cuts, tensor_split
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.model_facts import (
    Attention,
    Experts,
    Kind,
    ModelFacts,
    Recurrent,
    Weight,
)
from console.models.sizing.placement import Placement, place
from tests.sizing.known import KNOWN

MIB, GIB = 1 << 20, 1 << 30
BLOCK = 256
LAYERS, WIDTH, HEAD, STATE, INNER = 40, 2048, 256, 128, 4096
RECURRENT = tuple((layer + 1) % 4 != 0 for layer in range(LAYERS))


def of_layer(layer: int) -> list[Weight]:
    """A layer's tensors that the division looks at, and a shared expert."""
    sizes = {"ffn_down_exps": 256 * 512 * WIDTH, "ffn_up_exps": 256 * 512 * WIDTH,
             "ffn_up_shexp": 512 * WIDTH, "attn_norm": WIDTH}  # fmt: skip
    mixing = {"ssm_out": INNER * WIDTH, "attn_qkv": 8192 * WIDTH}
    attention = {"attn_output": 16 * HEAD * WIDTH, "attn_k": 2 * HEAD * WIDTH}
    sizes |= mixing if RECURRENT[layer] else attention
    return [
        Weight(f"blk.{layer}.{name}.weight", Kind.EXPERTS if "exps" in name else Kind.DENSE,
               size // 2, size, layer, BLOCK)
        for name, size in sizes.items()
    ]  # fmt: skip


KAT_CODER = ModelFacts(
    "qwen35moe", "GGUF header", layers=LAYERS, embedding=WIDTH, vocabulary=1000,
    context_length=262144,
    attention=Attention(heads=16, kv_heads=(2,) * LAYERS, key=HEAD, value=HEAD),
    recurrent=Recurrent(RECURRENT, 3 * 8192, STATE * INNER, "", wide=8192),
    experts=Experts(256, 8, width=512),
    weights=tuple(one for layer in range(LAYERS) for one in of_layer(layer)),
)  # fmt: skip


def test_a_cut_is_rounded_down_and_the_card_served_last_gets_the_rest() -> None:
    assert cuts(4, 1, (0.49, 0.51), 0) == (1, 3)  # llama.cpp#28506
    assert cuts(4, 1, (0.49, 0.51), 1) == (2, 2)
    assert cuts(4, 1, (0.5, 0.5), 0) == cuts(4, 1, (0.5, 0.5), 1) == (2, 2)
    assert cuts(8, 1, (0.0, 0.0, 0.0), 0) == (2, 3, 3)
    for rotation in range(3):
        assert sum(cuts(17408, 256, (3.0, 1.0, 2.0), rotation)) == 17408


def test_heads_states_and_experts_of_a_log() -> None:
    divided = tensor_split(KAT_CODER, (0.6828, 0.3172))
    caches = [divided.of_cache(layer)[0] for layer in range(LAYERS)]
    attention = [part for part, state in zip(caches, RECURRENT, strict=True) if not state]
    states = [part for part, state in zip(caches, RECURRENT, strict=True) if state]
    assert sum(attention) / 10 * 42.50 == pytest.approx(31.88, abs=0.01)
    assert sum(states) / 30 * 251.25 == pytest.approx(172.73, abs=0.01)
    experts = [w for w in KAT_CODER.weights if w.kind is Kind.EXPERTS]
    shares = [divided.of_weight(weight)[0] for weight in experts]
    assert set(shares) == {0.5, 1.0}  # 512 are two blocks of 256
    for name in ("ffn_up_shexp", "attn_norm"):  # no rule has them: whole on both
        (weight,) = [w for w in KAT_CODER.weights if w.name == f"blk.3.{name}.weight"]
        assert divided.of_weight(weight) == (1.0, 1.0)


def placed(model: str, words: str, *sizes: int) -> Placement:
    cards = tuple(Card(f"card{at}", total=size * GIB) for at, size in enumerate(sizes))
    line = ["-ngl", "99", "-c", "32768", "-np", "1", "-sm", "tensor", *words.split()]
    return place(from_gguf(KNOWN[model]()), llama_plan(line), cards)


@pytest.mark.parametrize(
    ("model", "words", "share"),
    [
        ("Qwen3-235B-A22B", "-ts 0.49,0.51", (1 + 2) / 8),  # 4 heads
        ("Qwen3-235B-A22B", "-ts 1,1", 0.5), ("Llama-3.1-8B", "-ts 75,25", 0.75),
        ("Llama-3.1-8B", "-ts 0.49,0.51", (3 + 4) / 16), ("Qwen3-30B-A3B", "-ts 7,3", 5 / 8),
    ],
)  # fmt: skip
def test_a_cache_lies_by_whole_heads(model: str, words: str, share: float) -> None:
    first, second = placed(model, words, 96, 96).cards
    assert first.cache / (first.cache + second.cache) == pytest.approx(share, abs=0.001)


def test_without_proportions_every_card_has_the_same() -> None:
    """Whatever is free on it: one device stands for all of them, and its parts are equal."""
    first, second = placed("Llama-3.1-70B", "", 96, 24).cards
    assert first.weights == pytest.approx(second.weights, rel=0.01)
    assert first.cache == second.cache
    by_layer = replace(llama_plan(["-ngl", "99", "-c", "32768"]), parallel=1)
    cards = (Card("a", total=96 * GIB), Card("b", total=24 * GIB))
    large, small = place(from_gguf(KNOWN["Llama-3.1-70B"]()), by_layer, cards).cards
    assert large.weights > 3 * small.weights


def test_a_tied_table_is_whole_on_every_card() -> None:
    facts = from_gguf(KNOWN["Gemma-2-27B"]())
    table = facts.bytes_of(Kind.TOKENS)
    whole = facts.weight_bytes - table
    shares = [share.weights for share in placed("Gemma-2-27B", "", 48, 48).cards]
    assert sum(shares) >= whole + 2 * table


def test_a_card_with_no_room_for_the_exchange_is_no_go_ahead() -> None:
    """llama.cpp#28506: out of memory with 415 MiB beyond the sum; 245 more were seen in use."""
    facts = from_gguf(KNOWN["Llama-3.1-8B"]())
    line = ["-ngl", "99", "-c", "32768", "-np", "1", "-sm", "tensor"]
    need = place(facts, llama_plan(line), (Card("a"), Card("b"))).cards[0].bytes
    for left, verdict in ((600, Verdict.TIGHT), (300, Verdict.UNKNOWN), (-1, Verdict.NO_GO)):
        cards = tuple(Card(name, total=need + left * MIB) for name in "ab")
        machine = Machine(cards=cards, ram_available=64 * GIB)
        found = assess(facts, llama_plan(line), machine, advised=False)
        assert found.verdict is verdict, found.because


def test_every_element_is_on_a_card() -> None:
    for rotation in range(4):
        for step in (1, 3, 128, 256):
            got = cuts(1024, step, (1.0, 2.0, 3.0, 1.0), rotation)
            assert list(accumulate(got))[-1] == 1024
            assert min(got) >= 0
