"""What is said of a fit, word for word: `make golden` writes it anew."""

from dataclasses import fields, replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.common.units import both_units
from console.host.sample import Card, Machine
from console.models.gguf.header import Array
from console.models.sizing.assess import assess
from console.models.sizing.assessment import WIDTH, Verdict, lines
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.converter import conversion_plan
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.load_curve import Envelope
from console.models.sizing.loader_plan import ConversionPlan, LlamaPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import BadFacts
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
from tests.sizing.test_backends import CONFIG
from tests.sizing.test_real import WINDOWED, windows
from tests.sizing.tiny import MODELS, FakeHeader, FakeTensor, header_of, llama

BAD_WORDS = [
    "-ngl many", "-ngl -5", "-c 8k", "-c 99999999999999", "-np 0", "-ts a,b", "-ts -1,2",
    "-ts 0,0", "-ctk q3_0", "-ub 0", "-sm rings", "-ot exps", "-ot [=CPU", "-lm fast", "-c",
]  # fmt: skip
BAD_SGLANG = [
    "--tp two", "--mem-fraction-static 2", "--cpu-offload-gb nan", "--kv-cache-dtype q4",
]  # fmt: skip
HOSTILE: list[tuple[str, object]] = [
    *(("block_count", bad) for bad in (-1, 0, 2**63, 10**5000, "three", 1.5)),
    ("block_count", Array("INT32", 2, (1, 2))), ("attention.head_count", 2**40),
    ("attention.head_count", -4), ("attention.head_count_kv", Array("INT32", 1, (2,))),
    ("attention.head_count_kv", Array("FLOAT32", 3, (1.0, 2.0, 3.0))),
    ("attention.head_count_kv", Array("STRING", 3)), ("attention.key_length", -1),
    ("attention.sliding_window", 2**62),
    ("attention.sliding_window_pattern", Array("INT32", 2, (1, 0))), ("context_length", "long"),
    ("expert_used_count", 9), ("nextn_predict_layers", 3), ("embedding_length", [1]),
    ("ssm.state_size", 2**50),
]  # fmt: skip
CASES: dict[str, tuple[Any, Any, Machine, dict[str, Any]]] = {
    "the baseline": (Q3, BASELINE, SITE, {"reference": MEASURED}),
    "an old conversion": (Q4_OLD, BASELINE, SITE, {}),
    "a card too full": (Q4, BASELINE, SITE, {}),
    "a card too full that serves": (Q4, BASELINE, SITE, {"reference": MEASURED}),
    "auto": (Q4, LlamaPlan(), SITE, {}),
    "auto, dense": (from_gguf(shapes.llama_70b()), LlamaPlan(), SITE, {}),
    "no card": (DISTILL, LlamaPlan(), replace(SITE, cards=()), {}),
    "twelve layers": (Q4, served(TWELVE), SITE, {}),
    "a known speed": (Q4, served(TWELVE), SITE, {"ram_read_bps": 200e9}),
    "streaming": (Q4, served(TWELVE), SMALLER, {}),
    "streaming, no speed": (Q4, served(TWELVE), replace(SMALLER, disk_read_bps=None), {}),
    "resident": (Q4, served(f"{TWELVE} --load-mode none"), SITE, {}),
    "swapped": (Q4, served(f"{TWELVE} --load-mode none"), replace(SITE, ram_available=320 * GIB),
                {}),
    "locked": (Q4, served(f"{TWELVE} --mlock"), SMALLER, {}),
    "INT8 resident": (INT8, sglang("--tp 2"), SITE, {}),
    "INT8 offloaded": (INT8, sglang("--tp 2 --cpu-offload-gb 300"), SITE, {}),
    "INT8 by the kernel": (INT8, KT, replace(SITE, given={"ram_available": "declared"}),
                           {}),
    "GPU experts": (INT8.scaled(200 * GIB), replace(KT, kt_gpu_experts=128), ROOMY, {}),
    "mapped experts": (INT8, sglang("--tp 2 --kt-weight-path x --kt-mmap-experts-dir y"), ROOMY,
                       {}),
    "GGUF for the kernel": (Q4, KT, replace(SITE, ram_available=2000 * GIB), {}),
    "a conversion": (INT8, conversion_plan(["--input-type", "bf16", "--quant-method", "int8"]),
                     SITE, {}),
    "a conversion, no disk": (INT8, ConversionPlan(), replace(ROOMY, disk_free=900 * GIB), {}),
    "a conversion of GGUF": (Q4, ConversionPlan(), ROOMY, {}),
    "halves": (DISTILL_BF16, sglang("--tp 2 --context-length 32768"), SITE, {}),
    "halves, turned": (DISTILL_BF16, sglang("--tp 2 --context-length 32768"),
                       replace(SITE, cards=(SMALL, LARGE)), {}),
    "halves of rows": (from_gguf(shapes.llama_70b()).scaled(75 * GB),
                       served("-ngl 99 -sm row -ts 50,50 -c 8192 -np 1"), SITE, {}),
    "four ranks": (DISTILL_BF16, sglang("--tp 4"), SITE, {}),
    "twins": (DISTILL, served("-ngl 99 -c 8192"), replace(SITE, cards=(SMALL, SMALL)), {}),
    "the prompt cache": (DISTILL, served("-c 8192"), replace(SITE, ram_available=8 * GIB), {}),
    "repacked": (DISTILL, served("-c 4096 --cache-ram 0"), Machine(ram_available=16 * GIB), {}),
    "a blind card": (DISTILL, served("-ngl 99 -c 4096"), Machine(cards=(Card("RTX"),)), {}),
    "free is not known": (DISTILL, served("-c 8192"),
                          replace(SITE, cards=(replace(LARGE, free=None), SMALL)), {}),
    "a typo": (DISTILL, served("-c 8k"), SITE, {}),
    "a gap": (replace(DISTILL, missing=("llama.x (a fact)",)), served("-c 8192"), SITE, {}),
    "a long context": (DISTILL, served("-c 262144 -np 1"), SITE, {}),
    "tight": (DISTILL, served("-ngl 99 -np 1 -c 12288"),
              Machine(cards=(Card("card", total=24 * GIB, free=24 * GIB),),
                      ram_available=64 * GIB), {}),
    "uncounted": (DISTILL, served("-c 8192 -md d.gguf --mmproj p.gguf -ot exps=Vulkan"), SITE, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_verdict(name: str, snapshot: SnapshotAssertion) -> None:
    facts, plan, machine, more = CASES[name]
    text = lines(assess(facts, plan, machine, **more))
    assert max(len(line) for line in text) <= WIDTH == 78
    assert "\n".join(text) == snapshot


def test_what_leaves_a_prediction(snapshot: SnapshotAssertion) -> None:
    envelope = assess(Q3, BASELINE, SITE).envelope
    assert [
        envelope.outside(ram=60 * GIB),
        envelope.outside(vram=((LARGE.name, 94 * GIB), (SMALL.name, 5 * GIB))),
        envelope.outside(swap=4 * GIB), envelope.outside(vram=(("another", 9 * GIB),)),
        envelope.outside(ram=GIB),
    ] == snapshot  # fmt: skip
    refused = []
    for data in (None, {"schema": 2}, {"schema": 1}, {"schema": 1, "points": [{"phase": "x"}]}):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            Envelope.from_json(data)
        refused.append(str(caught.value))
    assert refused == snapshot


def test_how_a_cache_is_worked_out(snapshot: SnapshotAssertion) -> None:
    facts = {"latent": Q4, "old": Q4_OLD, "dense": DISTILL}
    facts |= {name: from_gguf(header_of(make())) for name, make in MODELS.items()}
    asked = LlamaPlan(ctx=8192, parallel=2, type_k="q8_0")
    said = {}
    for name, one in facts.items():
        caches = [cache_of(one, LlamaPlan(ctx=8192, parallel=1)), cache_of(one, asked)]
        said[name] = [cache and (cache.how, both_units(cache.bytes)) for cache in caches]
    assert said == snapshot


def test_what_is_missing_or_cannot_be(snapshot: SnapshotAssertion) -> None:
    kv, tensors = header_of(llama()).kv, header_of(llama()).tensors
    gap = FakeTensor("blk.0.ffn_up.weight", (64, 64), "type 999", None)
    without = {key: value for key, value in kv.items() if "head_count" not in key}
    compressed = kv | {"llama.attention.compress_ratios": Array("INT32", 3, (1, 2, 3))}
    facts = [
        from_gguf(FakeHeader(kv, [gap])), from_gguf(FakeHeader(kv, None)),
        from_gguf(FakeHeader(without, tensors)), from_gguf(FakeHeader(compressed, tensors)), Q4_OLD,
        from_config(shapes.QWEN3_NEXT, GIB), from_config({"model_type": "x"}, GIB),
    ]  # fmt: skip
    assert [(one.missing, one.notes) for one in facts] == snapshot
    refused = []
    kv |= {
        "llama.attention.sliding_window": 512, "llama.ssm.conv_kernel": 4,
        "llama.ssm.inner_size": 8,
    }  # fmt: skip
    for key, value in HOSTILE:
        with pytest.raises(BadFacts) as caught:
            from_gguf(FakeHeader(kv | {f"llama.{key}": value}, tensors))
        refused.append(caught.value.lines())
    assert refused == snapshot


def test_what_a_command_line_gets_wrong(snapshot: SnapshotAssertion) -> None:
    plans: list[Any] = [served(words) for words in BAD_WORDS]
    kept = {"ubatch", "tensor_split", "gpu_layers", "problems", "refused", "newer"}
    for plan in plans:
        changed = {one.name for one in fields(plan) if getattr(plan, one.name) != one.default}
        assert changed <= kept, plan
    plans += [sglang(words) for words in BAD_SGLANG]
    plans += [
        BASELINE, served("-md draft.gguf --mmproj p.gguf --lora a.gguf"), served("-sm graph"),
        conversion_plan(["--input-type", "q4_k_m"]),
    ]  # fmt: skip
    assert [
        (one.problems, one.uncounted, getattr(one, "notes", ()), getattr(one, "refused", ()))
        for one in plans
    ] == snapshot  # fmt: skip


def test_which_layers_have_a_window(snapshot: SnapshotAssertion) -> None:
    """As the real llama.cpp said when this was written; `make test-all` asks it again."""
    seen = {name: "".join("-w"[flag] for flag in windows(name)) for name in WINDOWED}
    assert seen == snapshot


def test_what_is_not_known_is_named_beside_what_does_not_fit() -> None:
    """A NO-GO of memory would hide an option that decides once there is room."""
    plan = replace(llama_plan(["-c", "4096", "--lora", "a.gguf"]), mlock=True)
    small = Machine(ram_available=8 << 30, swap_free=0)
    found = assess(from_gguf(shapes.llama_70b()), plan, small, advised=False)
    assert found.verdict is Verdict.NO_GO
    assert "short" in found.because
    assert "besides not known: not counted: --lora" in found.because


@pytest.mark.parametrize(
    ("plan", "words"),
    [(VllmPlan(ranks=4, ctx=4096), "--tensor-parallel-size 2: GO"),
     (SglangPlan(ranks=4, ctx=4096), "--tp 2: GO")],
)  # fmt: skip
def test_fewer_ranks_are_advised_where_the_machine_has_fewer_cards(
    plan: VllmPlan | SglangPlan, words: str
) -> None:
    cards = tuple(Card(f"card {number}", 96 * GIB, 96 * GIB, compute=(9, 0)) for number in (0, 1))
    here = Machine(cards=cards, ram_available=256 * GIB, ram_total=256 * GIB)
    facts = from_config(CONFIG, 16 * GIB)
    found = assess(facts, plan, here)
    assert found.verdict is Verdict.NO_GO, found.because
    assert words in found.would_make_it_go
