"""Latent attention (DeepSeek, GLM-4.7-Flash, Kimi) as ik_llama.cpp keeps and computes it."""

from __future__ import annotations

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.latent import heads_at_once
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Placement, place
from tests.sizing.known import deepseek_r1, latent
from tests.sizing.log_models import MIB, model

GIB = 1 << 30
LARGE = (Card("card", total=2**40, free=2**40, compute=(8, 6)),)


def r1(packed: bool = True) -> ModelFacts:
    if packed:
        return from_gguf(deepseek_r1())
    return from_gguf(
        latent(61, 7168, 128, 2048, 256, 8, 1, 18432, 129280, 163840, lead=3, query=1536,
               packed=False)
    )  # fmt: skip


def flash() -> ModelFacts:
    return from_gguf(model("GLM-4.7-Flash", {"rest": "Q8_0"}, None))


def placed(words: str, facts: ModelFacts, count: int = 1) -> Placement:
    return place(facts, ik_plan(f"-ngl 99 -fa on {words}".split()), LARGE * count)


def test_a_batch_works_on_every_heads_own_keys_and_values() -> None:
    """11 GiB on each of four cards for 202k tokens (ik_llama.cpp#1211); 3.3 on each for 16k with
    --ubatch-size 1024 (ik_llama.cpp#409)."""
    found = placed("-c 202752 -ub 2048 -amb 0", flash(), 4)
    assert [share.compute / GIB for share in found.cards] == pytest.approx([11] * 4, rel=0.05)
    found = placed("-c 16384 -ub 1024 -amb 0 -ot ffn.*=CPU", r1(), 4)
    assert found.cards[1].compute / GIB == pytest.approx(3.3, rel=0.08)


@pytest.mark.parametrize("words", ["", "-amb 256", "-amb 1"])
def test_the_limit_keeps_it_small(words: str) -> None:
    [share] = placed(f"-c 202752 -ub 2048 {words}", flash()).cards
    assert share.compute < 3 * GIB


@pytest.mark.parametrize(
    ("words", "cells", "heads"),
    [
        ("-amb 0", 65536, 128),
        ("-amb 8192", 65536, 128),
        ("-amb 4096", 65536, 64),
        ("-amb 512", 65536, 8),
        ("-amb 512", 163840, 2),
        ("-amb 128", 163840, 1),
        ("-mla 1", 163840, 128),
        ("-no-fa -amb 1024", 163840, 2),
        ("-no-fa -amb 0", 163840, 128),
    ],
)
def test_how_many_heads_at_once(words: str, cells: int, heads: int) -> None:
    plan = ik_plan(words.split())
    assert heads_at_once(r1(), plan, cells, 1024) == heads


def test_the_scores_of_other_attention_are_limited_head_by_head() -> None:
    plain = from_gguf(model("Command-R 35B", {"rest": "Q8_0"}, None))
    grouped = from_gguf(model("Llama-2-70B", {"rest": "Q8_0"}, None))
    for facts, heads in ((plain, 1), (grouped, 64)):
        assert heads_at_once(facts, ik_plan(["-no-fa"]), 32768, 512) == heads
        assert heads_at_once(facts, llama_plan(["-fa", "off"]), 32768, 512) == 64


@pytest.mark.parametrize("packed", [True, False])
def test_the_file_does_not_decide_the_cache_and_what_lacks_is_computed(packed: bool) -> None:
    facts = r1(packed)
    found = placed("-c 32768 -ctk q8_0", facts)
    assert found.host.cache + found.cards[0].cache == pytest.approx(1166.65 * MIB, rel=0.01)
    stored = sum(weight.bytes for weight in facts.weights)
    more = found.cards[0].weights + found.host.weights - stored
    assert more == pytest.approx(61 * 512 * 128 * 256 * 34 / 32, rel=0.01)
    every = placed("-c 32768 -mla 0", facts)
    assert every.cards[0].cache == 61 * 32768 * 128 * (192 + 128) * 2


def test_without_flash_attention_the_type_of_v_is_that_of_the_cache() -> None:
    [plain] = placed("-c 32768 -mla 2 -no-fa -ctk q8_0", r1()).cards
    assert plain.cache == pytest.approx(2196 * MIB, rel=0.01)
    [turned] = placed("-c 32768 -mla 1 -no-fa", r1()).cards
    assert turned.cache == pytest.approx(2196 * MIB * (576 + 512) / 576, rel=0.01)


def test_other_engines_keep_the_file_as_it_is() -> None:
    facts = r1()
    mine = place(facts, llama_plan(["-ngl", "99", "-c", "32768", "-fa", "on"]), LARGE)
    assert mine.cards[0].weights + mine.host.weights == sum(one.bytes for one in facts.weights)


@pytest.mark.parametrize(
    ("words", "verdict", "why"),
    [
        ("-c 202752", Verdict.UNKNOWN, "--attention-max-batch 256"),
        ("-c 202752 -amb 256", Verdict.GO, ""),
        ("-c 202752 -amb 0", Verdict.NO_GO, ""),
        ("-c 16384", Verdict.GO, ""),
    ],
)
def test_builds_before_have_no_limit_of_their_own(words: str, verdict: Verdict, why: str) -> None:
    plan = ik_plan(f"-ngl 99 -fa on -ub 2048 --no-mmap {words}".split())
    card = Card("RTX 3090", total=24 * GIB, free=24 * GIB - 500 * MIB, compute=(8, 6))
    found = assess(flash(), plan, Machine(cards=(card,) * 3, ram_available=64 * GIB))
    assert found.verdict is verdict, found.because
    assert why in found.because


def test_slots_share_one_cache_and_its_mask() -> None:
    facts = from_gguf(model("Qwen3.5-35B-A3B", {"rest": "Q8_0"}, None))
    one, four = (place(facts, ik_plan(f"-ngl 99 -fa on -c 65536 -ub 2048 -np {n}".split()), LARGE)
                 for n in (1, 4))  # fmt: skip
    assert four.cards[0].compute == one.cards[0].compute
