"""Rules of placement one by one, on tiny models; each was seen in llama.cpp b11669's log."""

from __future__ import annotations

import pytest

from console.host.sample import Card
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_flags import llama_plan
from console.models.sizing.model_facts import Kind
from console.models.sizing.placement import HOST, labels, place, places
from tests.fit.headers import header_of
from tests.fit.tiny import MODELS

GIB = 1 << 30
CARDS = (Card("a", total=96 * GIB, free=95 * GIB), Card("b", total=32 * GIB, free=31 * GIB))
LLAMA = from_gguf(header_of(MODELS["llama"]()))
MOE = from_gguf(header_of(MODELS["qwen3moe"]()))
GUESSING = from_gguf(header_of(MODELS["glm4moe"]()))
TIED = from_gguf(header_of(MODELS["gemma2"]()))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-ngl 99", [0, 0, 0, 0]),  # by free memory: 3/4 of the layers is all of so few
        ("-ngl 99 -ts 1,1", [0, 0, 1, 1]),
        ("-ngl 99 -ts 0,1", [1, 1, 1, 1]),
        ("-ngl 99 -ts 1", [0, 0, 0, 0]),
        ("-ngl 2 -ts 1,1", [HOST, HOST, 0, 1]),
        ("-ngl 1 -ts 1,1", [HOST, HOST, HOST, 0]),
        ("-ngl 0", [HOST, HOST, HOST, HOST]),
        ("-ngl 99 -sm none -mg 1", [1, 1, 1, 1]),
        ("-ngl 99 -dev CUDA1", [1, 1, 1, 1]),
        ("-ngl 99 -dev none", [HOST, HOST, HOST, HOST]),
    ],
)
def test_layers_and_output(words: str, expected: list[int]) -> None:
    assert places(LLAMA, llama_plan(words.split()), CARDS) == expected


def test_a_layer_for_guessing_takes_a_place_and_no_memory() -> None:
    plan = llama_plan(["-ngl", "2", "-ts", "1,1"])
    assert places(GUESSING, plan, CARDS) == [HOST, HOST, 0, 1]
    placed = place(GUESSING, plan, CARDS)
    first, second = placed.cards
    assert first.weights == first.cache == 0
    assert second.weights == GUESSING.bytes_of(Kind.OUTPUT)
    assert placed.host.cache > 0


def test_a_card_that_scores_tokens_holds_a_copy_of_a_tied_table() -> None:
    placed = place(TIED, llama_plan(["-ngl", "99", "-ts", "1,1"]), CARDS)
    table = TIED.bytes_of(Kind.TOKENS)
    assert placed.host.weights == table
    on_cards = sum(share.weights for share in placed.cards)
    assert on_cards == TIED.weight_bytes


def test_experts_of_the_first_layers_may_stay_with_the_host() -> None:
    plan = llama_plan(["-ngl", "99", "-ncmoe", "2", "-ts", "1,0"])
    placed = place(MOE, plan, CARDS)
    assert placed.host.experts == MOE.bytes_of(Kind.EXPERTS) * 2 // 3
    every = place(MOE, llama_plan(["-ngl", "99", "-cmoe"]), CARDS)
    assert every.host.experts == MOE.bytes_of(Kind.EXPERTS)
    assert every.host.cache == 0
    # of the experts that stay there, half work on a token
    assert every.host.active == every.host.experts // 2


def test_overrides_send_tensors_where_they_say() -> None:
    ups = sum(weight.bytes for weight in MOE.weights if "ffn_up_exps" in weight.name)
    placed = place(MOE, llama_plan(["-ngl", "99", "-ts", "1,0", "-ot", "up_exps=CUDA1"]), CARDS)
    assert placed.cards[1].experts == ups
    placed = place(MOE, llama_plan(["-ngl", "99", "-ot", r"blk\.0\..*exps=CPU"]), CARDS)
    assert placed.host.experts == sum(
        one.bytes for one in MOE.weights if one.kind is Kind.EXPERTS and one.layer == 0
    )
    # what is given first wins
    both = ["-ngl", "99", "-ts", "1,0", "-ot", "up_exps=CUDA1", "-ot", "exps=CPU"]
    assert place(MOE, llama_plan(both), CARDS).cards[1].experts == ups
    odd = place(MOE, llama_plan(["-ngl", "99", "-ot", "exps=Vulkan"]), CARDS)
    assert odd.host.experts == MOE.bytes_of(Kind.EXPERTS)
    assert any("Vulkan" in note for note in odd.notes)


def test_the_cache_may_stay_with_the_host() -> None:
    placed = place(LLAMA, llama_plan(["-ngl", "99", "-nkvo"]), CARDS)
    assert placed.cache is not None
    assert placed.host.cache == placed.cache.bytes


def test_rows_are_shared_out() -> None:
    whole = LLAMA.weight_bytes - LLAMA.bytes_of(Kind.TOKENS)
    rows = place(LLAMA, llama_plan(["-ngl", "99", "-sm", "row", "-ts", "75,25"]), CARDS)
    assert rows.cards[0].weights == pytest.approx(whole * 0.75, rel=0.01)
    assert rows.cards[1].cache == 0  # with the main card
    parts = place(LLAMA, llama_plan(["-ngl", "99", "-sm", "tensor", "-ts", "75,25"]), CARDS)
    assert parts.cards[1].cache == pytest.approx(rows.cards[0].cache * 0.25, rel=0.01)


def test_labels_are_unique_and_clean() -> None:
    assert labels([Card("x"), Card("y")]) == ["x", "y"]
    assert labels([Card("x"), Card("x"), Card("")]) == ["x #0", "x #1", "card"]
    assert labels([Card("a\x1b[31m")])[0].isprintable()
