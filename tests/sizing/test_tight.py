"""What a server may take in time, and what no sum has, is tight and no NO-GO."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from tests.sizing import shapes
from tests.sizing.site import served

GIB = 1 << 30
FACTS = from_gguf(shapes.llama_70b())
WHOLE = served("-ngl 99 -c 8192 -np 1 --cache-ram 0")
ROOMY = Machine(cards=(Card("x", total=200 * GIB),), ram_available=64 * GIB)


@pytest.mark.parametrize(
    ("left", "verdict"),
    [(-0.1, Verdict.NO_GO), (0.2, Verdict.TIGHT), (0.9, Verdict.TIGHT), (9.0, Verdict.GO)],
)
def test_a_card_that_holds_the_sum_without_its_margin_is_tight(
    left: float, verdict: Verdict
) -> None:
    """llama.cpp#15077: its author served so, and the margin alone made it a NO-GO."""
    need = next(one.need for one in assess(FACTS, WHOLE, ROOMY).limits if one.where == "x")
    card = Card("x", total=int(need + left * GIB))
    assert assess(FACTS, WHOLE, replace(ROOMY, cards=(card,))).verdict is verdict


@pytest.mark.parametrize(
    ("mib", "verdict"),
    [(8192, Verdict.GO), (65536, Verdict.TIGHT), (1 << 20, Verdict.TIGHT), (-1, Verdict.GO)],
)
def test_a_limit_of_the_prompt_cache_beyond_the_ram_is_tight(mib: int, verdict: Verdict) -> None:
    """--cache-ram is filled in time, and allocates nothing at the start."""
    found = assess(FACTS, replace(WHOLE, cache_ram_mib=mib), ROOMY)
    assert found.verdict is verdict
    assert any("--cache-ram lets prompts" in one for one in found.tight) is (mib > 8192)


def test_a_host_that_cannot_hold_the_rest_is_no_go_all_the_same() -> None:
    poor = replace(ROOMY, ram_available=GIB // 4)
    assert assess(FACTS, WHOLE, poor).verdict is Verdict.NO_GO
