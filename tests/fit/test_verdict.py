"""Verdicts on the operator's machine, and on changes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Reference, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_flags import conversion_plan, llama_plan
from console.models.sizing.loader_plan import ConversionPlan, LlamaPlan, SglangPlan, Strategy
from tests.fit import shapes
from tests.fit.headers import header_of
from tests.fit.models import (
    DISTILL,
    DISTILL_BF16,
    FP8,
    INT8,
    KT,
    Q3,
    Q3_OLD,
    Q4,
    Q4_OLD,
    served,
    sglang,
)
from tests.fit.site import BASELINE, GB, GIB, LARGE, MEASURED, SETS, SITE, SMALL
from tests.fit.tiny import llama


def limit(found: Assessment, where: str) -> tuple[int, int]:
    one = next(one for one in found.limits if one.where == where)
    return one.need, one.have


def consistent(found: Assessment) -> None:
    """The sum of the terms at a place is what its limit needs."""
    for one in found.limits:
        terms = [term.bytes or 0 for term in found.terms if term.where == one.where]
        assert sum(terms) == one.need
    if found.verdict is Verdict.NO_GO:
        assert found.because


@pytest.mark.parametrize("facts", [Q3, Q3_OLD, Q4, Q4_OLD], ids=["q3", "q3 old", "q4", "q4 old"])
def test_what_serves_today_is_never_refused(facts: object) -> None:
    found = assess(facts, BASELINE, SITE, reference=MEASURED, alternatives=SETS)  # type: ignore[arg-type]
    assert found.verdict is not Verdict.NO_GO
    assert found.strategy is Strategy.MMAP
    consistent(found)


def test_the_sum_for_the_baseline_is_close_to_what_was_measured() -> None:
    """The Q3_K_M that the operator's figures are of is an old conversion: 117 to 118 GB."""
    found = assess(Q3_OLD, BASELINE, SITE)
    margins = 2 * GIB
    cards = sum(limit(found, card.name)[0] for card in (LARGE, SMALL)) - margins
    assert cards == pytest.approx(117.5 * GB, rel=0.03)


def test_a_file_that_overfills_a_card_is_refused_unless_it_serves() -> None:
    """15 of 19 layers of the true Q4_K_M are 97.9 GiB: more than the card has."""
    found = assess(Q4, BASELINE, SITE, alternatives=SETS)
    assert found.verdict is Verdict.NO_GO
    assert "RTX PRO 6000" in found.because
    need, have = limit(found, LARGE.name)
    assert need - have > 5 * GIB
    assert any(words.startswith("--n-gpu-layers ") for words in found.would_make_it_go)
    assert any(words.startswith("Q3_K_M") for words in found.would_make_it_go)
    serves = assess(Q4, BASELINE, SITE, reference=MEASURED)
    assert serves.verdict is Verdict.TIGHT
    other = replace(MEASURED, serves=False)
    assert assess(Q4, BASELINE, SITE, reference=other).verdict is Verdict.NO_GO


def test_a_prediction_never_exceeds_what_a_card_has() -> None:
    peak = assess(Q4_OLD, BASELINE, SITE, reference=MEASURED).envelope.peak
    assert dict(peak.vram)[LARGE.name] == LARGE.total


def test_block_int8_is_refused_by_every_resident_way() -> None:
    for plan in (KT, sglang("--tp 2"), sglang("--tp 2 --cpu-offload-gb 300")):
        found = assess(INT8, plan, SITE, alternatives=SETS)
        consistent(found)
        assert found.verdict is Verdict.NO_GO
    kernel = assess(INT8, KT, SITE, alternatives=SETS)
    assert kernel.strategy is Strategy.KT
    need, have = limit(kernel, "host RAM")
    assert have == 350 * GIB
    assert need > 600 * GIB
    assert any(one.startswith("Q4_K_M") and one.endswith("GO") for one in kernel.would_make_it_go)
    assert {term.name for term in kernel.biggest} >= {"CPU experts", "load peak"}


def test_a_block_int8_load_is_predicted_to_fill_ram_and_swap() -> None:
    peak = assess(INT8, sglang("--tp 2 --cpu-offload-gb 300"), SITE).envelope.peak
    assert peak.ram == SITE.ram_available
    assert peak.swap == SITE.swap_free


def test_fp8_fits_nowhere() -> None:
    plans = (
        KT, sglang("--tp 2"), sglang("--tp 2 --cpu-offload-gb 500"), ConversionPlan(),
        LlamaPlan(gpu_layers=19, tensor_split=(75, 25), mmap=False),
    )  # fmt: skip
    assert [assess(FP8, plan, SITE).verdict for plan in plans] == [Verdict.NO_GO] * len(plans)


def test_a_distill_goes() -> None:
    found = assess(DISTILL, served("-c 8192"), SITE)
    assert found.verdict is Verdict.GO
    assert found.would_make_it_go == ()
    assert assess(DISTILL_BF16, SglangPlan(ctx=8192, mem_fraction=0.9), SITE).verdict is Verdict.GO


def test_halves_on_unequal_cards_name_the_card_and_a_split_that_fits() -> None:
    found = assess(DISTILL_BF16, sglang("--tp 2 --context-length 32768"), SITE)
    assert found.verdict is Verdict.NO_GO
    assert SMALL.name in found.because
    assert LARGE.name not in found.because
    split = next(words for words in found.would_make_it_go if "--tensor-split" in words)
    assert "--ctx-size 32768" in split
    first, second = split.split("--tensor-split ")[1].split(" ")[0].split(",")
    assert 70 <= int(first) <= 80
    assert int(first) + int(second) == 100
    turned = replace(SITE, cards=(SMALL, LARGE))
    other = assess(DISTILL_BF16, sglang("--tp 2 --context-length 32768"), turned)
    split = next(words for words in other.would_make_it_go if "--tensor-split" in words)
    assert int(split.split("--tensor-split ")[1].split(",")[0]) < 30


def test_halves_in_llama_cpp_too() -> None:
    facts = from_gguf(shapes.llama_70b()).scaled(75 * GB)
    for mode in ("layer", "tensor", "row"):
        plan = llama_plan(f"-ngl 99 -sm {mode} -ts 50,50 -c 8192 -np 1".split())
        found = assess(facts, plan, SITE)
        consistent(found)
        assert found.verdict is Verdict.NO_GO
        assert SMALL.name in found.because
        split = next(words for words in found.would_make_it_go if "--tensor-split" in words)
        assert split.endswith(": GO")


def test_less_memory_turns_a_go_into_streaming_with_a_ceiling() -> None:
    plan = served("-ngl 12 -ts 75,25 -c 8192")
    assert assess(Q4, plan, SITE).verdict is Verdict.GO
    assert assess(Q4, plan, SITE).ceiling_tok_s is None
    small = replace(SITE, ram_available=100 * GIB)
    found = assess(Q4, plan, small)
    assert found.verdict is Verdict.STREAMING
    pages = next(one for one in found.limits if one.where == "page cache")
    # active bytes of the host: dense ones, and 8 of 256 experts
    active = sum(
        term.bytes * (8 / 256 if term.name == "experts" else 1)
        for term in found.terms
        if term.where == "page cache" and term.bytes
    )
    active -= next(w.bytes for w in Q4.weights if w.name == "token_embd.weight")
    miss = pages.short_by / pages.need
    assert found.ceiling_tok_s == pytest.approx(10e9 / (active * miss), rel=0.01)
    unknown = assess(Q4, plan, replace(small, disk_read_bps=None))
    assert unknown.verdict is Verdict.STREAMING
    assert unknown.ceiling_tok_s is None


def test_memory_speed_gives_a_ceiling_where_it_is_known() -> None:
    plan = served("-ngl 12 -ts 75,25 -c 8192")
    found = assess(Q4, plan, SITE, ram_read_bps=400e9)
    assert found.ceiling_tok_s == pytest.approx(22, abs=3)


def test_resident_needs_ram_and_swap_makes_it_tight_at_best() -> None:
    plan = served("-ngl 12 -ts 75,25 -c 8192 --load-mode none")
    found = assess(Q4, plan, SITE)
    assert (found.verdict, found.strategy) == (Verdict.GO, Strategy.RESIDENT)
    need, _ = limit(found, "host RAM")

    def with_ram(ram: int, swap: int) -> Assessment:
        return assess(Q4, plan, replace(SITE, ram_available=ram, swap_free=swap))

    assert with_ram(need + 4 * GIB, 0).verdict is Verdict.TIGHT
    swapped = with_ram(need - 20 * GIB, 60 * GIB)
    assert swapped.verdict is Verdict.TIGHT
    refused = with_ram(need - 20 * GIB, 30 * GIB)
    assert refused.verdict is Verdict.NO_GO
    assert any("--load-mode mmap" in words for words in refused.would_make_it_go)
    locked = replace(plan, load_mode="mlock")
    machine = replace(SITE, ram_available=need - 20 * GIB, swap_free=60 * GIB)
    assert assess(Q4, locked, machine).verdict is Verdict.NO_GO


def test_swap_is_nothing_to_a_mapped_file() -> None:
    plan = served("-ngl 12 -ts 75,25 -c 8192")
    small = replace(SITE, ram_available=100 * GIB)
    with_swap = assess(Q4, plan, replace(small, swap_free=900 * GIB))
    assert with_swap.verdict is assess(Q4, plan, replace(small, swap_free=0)).verdict
    assert with_swap.verdict is Verdict.STREAMING


def test_the_prompt_cache_counts() -> None:
    machine = replace(SITE, ram_available=8 * GIB)
    found = assess(DISTILL, served("-c 8192"), machine)
    assert found.verdict is Verdict.NO_GO
    assert any("--cache-ram 0" in words for words in found.would_make_it_go)
    without = assess(DISTILL, served("-c 8192 --cache-ram 0"), machine)
    assert without.verdict in (Verdict.GO, Verdict.STREAMING)


def test_a_conversion_tells_its_peak_its_hours_and_its_disk() -> None:
    plan = conversion_plan(["--input-type", "bf16", "--quant-method", "int8"])
    found = assess(INT8, plan, SITE)
    consistent(found)
    assert found.verdict is Verdict.NO_GO
    need, _ = limit(found, "host RAM")
    assert need > 660 * GIB
    disk, _ = limit(found, "disk")
    assert disk > 2 * 620 * GIB
    roomy = replace(SITE, ram_available=800 * GIB)
    assert assess(INT8, plan, roomy).verdict is Verdict.GO
    full = replace(roomy, disk_free=900 * GIB)
    assert assess(INT8, plan, full).verdict is Verdict.NO_GO


def test_what_is_not_known_is_never_a_go() -> None:
    plan = served("-ngl 99 -c 4096")
    blind = Machine(cards=(Card("RTX"),), ram_available=64 * GIB)
    found = assess(DISTILL, plan, blind)
    assert found.verdict is Verdict.UNKNOWN
    assert "RTX" in found.because
    assert assess(DISTILL, plan, replace(SITE, ram_available=None)).verdict is Verdict.UNKNOWN
    typo = assess(DISTILL, served("-c 8k"), SITE)
    assert typo.verdict is Verdict.UNKNOWN
    assert "--ctx-size 8k" in typo.because
    gap = replace(DISTILL, missing=("llama.attention.x (a fact)",))
    assert "llama.attention.x" in assess(gap, plan, SITE).because
    # what is refused by what is known stays refused
    assert assess(replace(Q4, missing=("x",)), BASELINE, SITE).verdict is Verdict.NO_GO


def test_a_context_beyond_the_models_own_is_said_and_taken() -> None:
    roomy = Machine(cards=(Card("card", total=300 * GIB, free=300 * GIB),), ram_available=300 * GIB)
    for more, told in (("", True), (" --rope-scaling yarn", False)):
        found = assess(DISTILL, served(f"-ngl 99 -c 262144 -np 1{more}"), roomy)
        assert found.verdict is Verdict.GO
        assert any("131,072" in note for note in found.notes) is told


def test_below_a_tenth_of_a_card_it_is_tight() -> None:
    one = Machine(cards=(Card("card", total=24 * GIB, free=24 * GIB),), ram_available=64 * GIB)
    plan = served("-ngl 99 -np 1 -c 12288")
    assert assess(DISTILL, plan, one).verdict is Verdict.TIGHT
    assert "(F-005)" in assess(DISTILL, plan, one).because
    assert any(": GO" in words for words in assess(DISTILL, plan, one).would_make_it_go)
    more = replace(one, cards=(Card("card", total=32 * GIB, free=32 * GIB),))
    assert assess(DISTILL, plan, more).verdict is Verdict.GO


def test_a_server_left_to_itself_fits() -> None:
    """`auto` takes a smaller context, puts experts on the host, or fewer layers on the cards."""
    for facts in (Q4, Q3_OLD, from_gguf(shapes.qwen3_235b()), from_gguf(shapes.llama_70b())):
        found = assess(facts, LlamaPlan(), SITE)
        assert found.verdict is not Verdict.NO_GO
        assert any("--n-gpu-layers" in note for note in found.notes)
    none = assess(DISTILL, LlamaPlan(), replace(SITE, cards=()))
    assert none.strategy is Strategy.RESIDENT


def test_too_many_gpu_experts_are_counted_down() -> None:
    facts = INT8.scaled(200 * GIB)
    roomy = replace(SITE, ram_available=900 * GIB)
    plan = replace(KT, kt_gpu_experts=128)
    found = assess(facts, plan, roomy)
    assert found.verdict is Verdict.NO_GO
    words = next(one for one in found.would_make_it_go if one.startswith("--kt-num-gpu-experts"))
    fewer = replace(plan, kt_gpu_experts=int(words.split()[1]))
    assert assess(facts, fewer, roomy).verdict is not Verdict.NO_GO


def test_alternatives_with_hostile_names_do_no_harm() -> None:
    names = {"\x1b[31mQ2_K\x07": 100 * GB, "": 1, "zero": 0, "less": -1}
    found = assess(Q4, BASELINE, SITE, alternatives=names)
    assert all(words.isprintable() for words in found.would_make_it_go)


def test_a_reference_alone_changes_no_verdict() -> None:
    facts = from_gguf(header_of(llama()))
    plain = assess(facts, LlamaPlan(), SITE)
    told = assess(facts, LlamaPlan(), SITE, reference=Reference("another"))
    assert plain.verdict is told.verdict is Verdict.GO


def test_an_override_that_would_take_years_is_a_problem() -> None:
    plan = replace(BASELINE, overrides=((r"(\w+[.]?)+!", "CPU"), ("exps", "CPU")))
    assert assess(Q3, plan, SITE).verdict is Verdict.UNKNOWN
