"""Verdicts on the operator's machine and on changes of it, and a prediction that is kept."""

import json
from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Reference, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.converter import conversion_plan
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import LlamaPlan, SglangPlan, Strategy
from console.models.sizing.model_facts import Kind
from tests.sizing import shapes
from tests.sizing.site import (
    BASELINE,
    DISTILL,
    DISTILL_BF16,
    GB,
    GIB,
    INT8,
    KT,
    LARGE,
    MEASURED,
    Q3,
    Q3_OLD,
    Q4,
    Q4_OLD,
    ROOMY,
    SITE,
    SMALL,
    SMALLER,
    TWELVE,
    served,
    sglang,
)
from tests.sizing.tiny import header_of, llama


def limit(found: Assessment, where: str) -> tuple[int, int]:
    one = next(one for one in found.limits if one.where == where)
    return one.need, one.have


@pytest.mark.parametrize("facts", [Q3, Q3_OLD, Q4, Q4_OLD], ids=["q3", "q3 old", "q4", "q4 old"])
def test_what_serves_today_is_never_refused(facts: object) -> None:
    found = assess(facts, BASELINE, SITE, reference=MEASURED)  # type: ignore[arg-type]
    assert found.verdict is not Verdict.NO_GO
    assert found.strategy is Strategy.MMAP


def test_the_sum_for_the_baseline_is_close_to_what_was_measured() -> None:
    """The Q3_K_M that the operator's figures are of is an old conversion: 117 to 118 GB."""
    found = assess(Q3_OLD, BASELINE, SITE)
    cards = sum(limit(found, card.name)[0] for card in (LARGE, SMALL))
    assert cards == pytest.approx(117.5 * GB, rel=0.03)


CONVERSION = conversion_plan(["--input-type", "bf16", "--quant-method", "int8"])
SPLIT = "-ngl 99 -ts 50,50 -c 8192 -np 1 -sm"
LLAMA_70B = from_gguf(shapes.llama_70b()).scaled(75 * GB)
CARD_32 = Machine(cards=(Card("card", total=32 * GIB, free=32 * GIB),), ram_available=64 * GIB)
FEWER = replace(KT, kt_gpu_experts=50)  # as said where 128 are asked for
VERDICTS = [
    (DISTILL, served("-c 8192"), SITE, Verdict.GO),
    (DISTILL_BF16, SglangPlan(ctx=8192, mem_fraction=0.9), SITE, Verdict.GO),
    (LLAMA_70B, served(f"{SPLIT} layer"), SITE, Verdict.NO_GO),
    (LLAMA_70B, served(f"{SPLIT} tensor"), SITE, Verdict.NO_GO),
    (Q4, served(TWELVE), replace(SMALLER, swap_free=900 * GIB), Verdict.STREAMING),
    (Q4, served(TWELVE), replace(SMALLER, swap_free=0), Verdict.STREAMING),
    (INT8, CONVERSION, ROOMY, Verdict.GO),
    (INT8.scaled(200 * GIB), FEWER, ROOMY, Verdict.TIGHT),
    (DISTILL, served("-ngl 99 -np 1 -c 12288"), CARD_32, Verdict.GO),
    (DISTILL, served("-ngl 99 -c 4096"), replace(SITE, ram_available=None), Verdict.UNKNOWN),
    # what is refused by what is known stays refused
    (replace(Q4, missing=("x",)), BASELINE, SITE, Verdict.NO_GO),
    # an override that would take years
    (Q3, replace(BASELINE, overrides=((r"(\w+[.]?)+!", "CPU"), ("exps", "CPU"))), SITE,
     Verdict.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "plan", "machine", "verdict"), VERDICTS)
def test_a_verdict(facts: object, plan: object, machine: Machine, verdict: Verdict) -> None:
    assert assess(facts, plan, machine).verdict is verdict  # type: ignore[arg-type]


def test_a_reference_changes_a_verdict_only_where_it_serves() -> None:
    for reference in (None, replace(MEASURED, serves=False)):
        assert assess(Q4, BASELINE, SITE, reference=reference).verdict is Verdict.NO_GO
    facts = from_gguf(header_of(llama()))
    told = assess(facts, LlamaPlan(), SITE, reference=Reference("another"))
    assert told.verdict is assess(facts, LlamaPlan(), SITE).verdict is Verdict.GO


def test_streaming_has_a_ceiling_by_what_is_read_for_a_token() -> None:
    found = assess(Q4, served(TWELVE), SMALLER)
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


def test_resident_needs_ram_and_swap_makes_it_tight_at_best() -> None:
    plan = served(f"{TWELVE} --load-mode none --cache-ram 0")
    need, _ = limit(assess(Q4, plan, SITE), "host RAM")
    for mode, more, swap, verdict in (
        ("none", 4, 0, Verdict.TIGHT), ("none", -20, 60, Verdict.TIGHT),
        ("none", -20, 30, Verdict.NO_GO), ("mlock", -20, 60, Verdict.NO_GO),
    ):  # fmt: skip
        machine = replace(SITE, ram_available=need + more * GIB, swap_free=swap * GIB)
        assert assess(Q4, replace(plan, load_mode=mode), machine).verdict is verdict


def test_llamafile_holds_the_experts_of_its_gguf_and_none_of_the_checkpoint() -> None:
    words = "--kt-method LLAMAFILE --kt-weight-path /q3 --kt-num-gpu-experts 16"
    plan = sglang(words)
    blind = assess(INT8, plan, SITE)
    assert blind.verdict is Verdict.UNKNOWN
    assert any("--kt-weight-path" in why for why in blind.unknown)
    assert all(point.ram >= 0 for point in blind.envelope.points)
    experts = Q3.bytes_of(Kind.EXPERTS)
    found = assess(INT8, replace(plan, kt_experts=experts), SITE)
    (term,) = [one for one in found.terms if one.name == "CPU experts"]
    assert term.bytes == experts < INT8.bytes_of(Kind.EXPERTS) / 2
    assert found.verdict in (Verdict.GO, Verdict.TIGHT), found.because
    assert assess(INT8, sglang(words.replace("LLAMAFILE", "FP8")), SITE).verdict is Verdict.NO_GO


@pytest.mark.parametrize("method", ["LLAMAFILE", "FP8", "BF16", "RAWINT4"])
def test_what_is_read_as_it_is_needs_nothing_for_a_conversion(method: str) -> None:
    assert assess(INT8, conversion_plan(["--kt-method", method]), SMALLER).verdict is Verdict.GO


def test_a_conversion_to_int4_writes_half_of_one_to_int8() -> None:
    eight, four = (assess(INT8, conversion_plan(["--kt-method", one]), ROOMY)
                   for one in ("AMXINT8", "AMXINT4"))  # fmt: skip
    sizes = [next(t.bytes for t in one.terms if t.name == "result") for one in (eight, four)]
    assert sizes[1] / sizes[0] == pytest.approx(0.5625 / 1.03125, rel=0.01)


def test_a_context_beyond_the_models_own_is_said_and_taken() -> None:
    roomy = Machine(cards=(Card("card", total=300 * GIB, free=300 * GIB),), ram_available=300 * GIB)
    for more, told in (("", True), (" --rope-scaling yarn", False)):
        found = assess(DISTILL, served(f"-ngl 99 -c 262144 -np 1{more}"), roomy)
        assert found.verdict is Verdict.GO
        assert any("131,072" in note for note in found.notes) is told


def test_a_server_left_to_itself_fits() -> None:
    """`auto` takes a smaller context, puts experts on the host, or fewer layers on the cards."""
    for facts in (Q4, Q3_OLD, from_gguf(shapes.qwen3_235b()), from_gguf(shapes.llama_70b())):
        assert assess(facts, LlamaPlan(), SITE).verdict is not Verdict.NO_GO


ENVELOPE = assess(Q3, BASELINE, SITE).envelope


def test_it_survives_json() -> None:
    for envelope in (ENVELOPE, Envelope()):
        assert Envelope.from_json(json.loads(json.dumps(envelope.to_json()))) == envelope


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"schema": 2, "points": []}, {"schema": 1}, {"schema": 1, "points": [1]},
        {"schema": 1, "points": [{}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "ram": -1}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "ram": True}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "at_s": float("nan")}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {"a": "much"}, "ram": 1}]},
    ],
)  # fmt: skip
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="envelope"):
        Envelope.from_json(data)


def test_text_from_a_file_is_clean() -> None:
    point = {"phase": "a\x1b[31m", "vram": {"b\x07": 1}, "ram": 0, "page_cache": 0, "swap": 0}
    read = Envelope.from_json({"schema": 1, "points": [point]}).points[0]
    assert read.phase.isprintable()
    assert read.vram[0][0].isprintable()


def test_slack_is_a_tenth_or_two_gib() -> None:
    flat = Envelope((Point("x", ram=100 * GIB),))
    assert flat.outside(ram=110 * GIB) is None
    assert flat.outside(ram=110 * GIB + 1) is not None
    small = Envelope((Point("x", ram=1 * GIB),))
    assert small.outside(ram=3 * GIB) is None
    assert small.outside(ram=3 * GIB + 1) is not None
