"""What each card is asked for, for well-known models, beside what llama.cpp's scheduler asks for.

`counted.json` holds, in MiB, weights, cache and compute of two cards and the host, as build 11434
reserves them on devices that only count: they take the operations that the CUDA backend takes, and
its sizes for Turing and later. No card was measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import CARD_MARGIN, FOOTPRINT, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.placement import place
from tests.sizing.known import KNOWN

MIB, GIB = 1 << 20, 1 << 30
RECORD = json.loads(Path(__file__).with_name("counted.json").read_text("utf-8"))
COUNTING = tuple(
    Card(f"CUDA{at}", total=size * MIB, free=size * MIB) for at, size in enumerate(RECORD["cards"])
)
SHORT = CARD_MARGIN // 3
"""The most by which a reserve may be too small: a part of what stays free on a card anyway."""


@pytest.mark.parametrize("name", RECORD["figures"])
def test_no_card_is_asked_for_more_than_is_reserved(name: str) -> None:
    facts = from_gguf(KNOWN[name]())
    for arguments, theirs in RECORD["figures"][name].items():
        placed = place(facts, llama_plan(arguments.split()), COUNTING)
        for share in (*placed.cards, placed.host):
            weights, cache, compute = theirs[share.card]
            assert share.weights / MIB == pytest.approx(weights, abs=2, rel=0.002), arguments
            assert share.cache / MIB == pytest.approx(cache, abs=2, rel=0.002), arguments
            if placed.doubts:  # not known, and said so
                continue
            spare = FOOTPRINT if share is placed.host else SHORT
            assert share.compute + spare >= compute * MIB, (arguments, share.name)
            most = max(compute * 1.6, compute + 1100)
            lent = "-ngl 99" not in arguments or "-cmoe" in arguments
            assert lent or share.compute / MIB <= most, (arguments, share.name)


OLD_R1 = from_gguf(KNOWN["DeepSeek-R1, old conversion"]())


def test_heads_without_a_kernel_take_their_scores() -> None:
    """9,418 MiB of the second card are the scores of a batch and V, turned; not 330."""
    cards = (Card("A", total=179 * GIB, free=179 * GIB), Card("B", total=45 * GIB, free=45 * GIB))
    machine = Machine(cards=cards, ram_available=768 * GIB)
    plan = llama_plan(["-ngl", "99", "-cmoe", "-ts", "75,25", "-c", "32768", "-np", "1"])
    assert assess(OLD_R1, plan, machine).verdict is Verdict.NO_GO
    first, second = place(OLD_R1, plan, cards).cards
    for share, compute in ((first, 9432), (second, 9418)):
        assert compute * MIB <= share.compute <= 1.05 * compute * MIB
    forced = replace(plan, flash_auto=False)
    assert assess(OLD_R1, forced, machine).verdict is Verdict.UNKNOWN
    alone = llama_plan(["-ngl", "0", "-c", "32768", "-np", "1"])
    assert place(OLD_R1, alone, cards).plan.flash


@pytest.mark.parametrize(
    ("name", "arguments", "verdict", "words"),
    [
        ("Phi-4", "-np 4 -c 8192 -ctk q8_0 -ctv q8_0", Verdict.UNKNOWN,
         "so few tensors in a layer as phi3"),
        ("Phi-4", "-np 1 -c 8192 -ctk q8_0 -ctv q8_0", Verdict.GO, "everything fits"),
        ("Llama-3.1-8B", "-c 8192 -ctv q8_0 -fa off", Verdict.NO_GO, "needs flash attention"),
        ("DeepSeek-V2-Lite", "-c 8192 -ctk q8_0", Verdict.UNKNOWN, "different types"),
        ("DeepSeek-R1, old conversion", "-c 8192 -ctk q8_0 -ctv q8_0", Verdict.UNKNOWN,
         "no flash attention for these heads"),
    ],
)  # fmt: skip
def test_what_a_loader_refuses_is_never_a_go(
    name: str, arguments: str, verdict: Verdict, words: str
) -> None:
    roomy = Machine(cards=(Card("card", total=1 << 42, free=1 << 42),), ram_available=1 << 42)
    found = assess(from_gguf(KNOWN[name]()), llama_plan([*arguments.split(), "-ngl", "99"]), roomy)
    assert found.verdict is verdict, found.because
    assert words in found.because
