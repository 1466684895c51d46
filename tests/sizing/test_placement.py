"""Placement and compute reserve against figures that a real llama.cpp gave for true shapes.

They are llama.cpp b11669's own log lines ("CARD0 model buffer size", "KV buffer size", "compute
buffer size") for headers of these shapes, on two devices that only count what they are asked for,
97887 and 32607 MiB large with 600 MiB taken.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from console.host.sample import Card
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.kv_cache import CACHE_TYPES, cache_of, row_bytes
from console.models.sizing.loader_plan import Build, LlamaPlan
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.placement import HOST, NO_ROWS, NO_SPLIT_EXPERTS, labels, place, places
from tests.sizing import shapes
from tests.sizing.tiny import MODELS, FakeHeader, header_of
from tests.waiting import some

MIB = 1 << 20
COUNTING = (
    Card("CARD0", total=97887 * MIB, free=97287 * MIB),
    Card("CARD1", total=32607 * MIB, free=32007 * MIB),
)
SHAPES: dict[str, Callable[[], FakeHeader]] = {
    "r1q4": lambda: shapes.deepseek_r1("Q4_K_M"),
    "r1q4old": lambda: shapes.deepseek_r1("Q4_K_M", latent=False),
    "r1q3": lambda: shapes.deepseek_r1("Q3_K_M"),
    "r1q3old": lambda: shapes.deepseek_r1("Q3_K_M", latent=False),
    "v32": shapes.deepseek_v32,
    "q32": shapes.distill_32b,
    "l70": shapes.llama_70b,
    "g27": shapes.gemma3_27b,
    "q235": shapes.qwen3_235b,
}
R1 = "-c 8192 -ngl 19 -ts 75,25"
# model, arguments, then for each card MiB of weights, of cache, of compute buffer
SEEN: list[tuple[str, str, tuple[float, float, float], tuple[float, float, float]]] = [
    ("r1q4", f"{R1} -fa on -np 1", (100226.78, 135, 3193.03), (22068.99, 27, 386.01)),
    ("r1q4old", f"{R1} -fa on -np 1", (100106.77, 9600, 3193.03), (22044.99, 1920, 258.01)),
    ("r1q3", f"{R1} -fa on -np 1", (78369.64, 135, 2269.03), (16398.91, 27, 386.01)),
    ("r1q3old", f"{R1} -fa on -np 1", (78217.76, 9600, 2269.03), (16368.53, 1920, 258.01)),
    ("r1q3", f"{R1} -fa off -np 1", (78369.64, 135, 2455.50), (16398.91, 27, 2442.01)),
    ("r1q3", "-c 32768 -ngl 19 -ts 75,25 -fa on -np 1",
     (78369.64, 540, 2283.03), (16398.91, 108, 410.01)),
    ("r1q3", f"{R1} -fa on -np 1 -ub 2048 -b 2048",
     (78369.64, 135, 3000.03), (16398.91, 27, 1544.02)),
    ("r1q3", f"{R1} -fa on -np 1 --no-op-offload",
     (78369.64, 135, 378.00), (16398.91, 27, 386.01)),
    ("r1q3", "-c 8192 -ngl 99 -ts 75,25 -fa on -np 1 -cmoe",
     (6550.20, 423, 3599.50), (2525.97, 126, 386.01)),
    ("v32", f"{R1} -fa on -np 1", (78601.10, 165, 2497.03), (16445.20, 33, 406.07)),
    ("v32", "-c 32768 -ngl 19 -ts 75,25 -fa on -np 1",
     (78601.10, 660, 2497.03), (16445.20, 132, 454.07)),
    ("v32", "-c 8192 -ngl 99 -ts 75,25 -fa on -np 1 -cmoe",
     (7275.44, 517, 3772.00), (2742.00, 154, 450.07)),
    ("q32", "-c 8192 -ngl 99 -fa on -np 1", (13550.71, 1568, 202.00), (4916.39, 480, 264.04)),
    ("q32", "-c 32768 -ngl 99 -fa on -np 1", (13550.71, 6272, 202.00), (4916.39, 1920, 360.04)),
    ("q32", "-c 8192 -ngl 99 -fa off -np 1", (13550.71, 1568, 690.00), (4916.39, 480, 800.02)),
    ("q32", "-c 8192 -ngl 20 -fa on -np 1", (4499.30, 512, 238.02), (1498.40, 96, 190.01)),
    ("l70", "-c 8192 -ngl 99 -fa on -np 1", (29562.06, 1952, 232.00), (10294.92, 608, 312.04)),
    ("l70", "-c 32768 -ngl 99 -fa on -np 1", (29562.06, 7808, 232.00), (10294.92, 2432, 408.04)),
    ("l70", "-c 8192 -ngl 99 -fa off -np 1", (29562.06, 1952, 1104.00), (10294.92, 608, 1232.02)),
    ("l70", "-c 8192 -ngl 20 -fa on -np 1", (7922.50, 512, 334.03), (2372.42, 96, 208.01)),
    ("g27", "-c 8192 -ngl 99 -fa on -np 1", (11203.77, 992, 165.50), (4488.99, 272, 235.07)),
    ("g27", "-c 32768 -ngl 99 -fa on", (11203.77, 3488, 165.50), (4488.99, 944, 343.07)),
    ("g27", "-c 8192 -ngl 99 -fa off -np 1", (11203.77, 992, 559.50), (4488.99, 272, 731.04)),
    ("g27", "-c 8192 -ngl 20 -fa on -np 1", (3772.49, 296, 197.35), (1852.77, 88, 156.52)),
    ("q235", "-c 8192 -ngl 99 -fa on -np 1", (102350.32, 1152, 176.00), (32855.08, 352, 232.04)),
    ("q235", "-c 8192 -ngl 20 -fa on -np 1", (23558.52, 256, 760.02), (5089.72, 48, 160.51)),
    ("q235", "-c 8192 -ngl 99 -fa on -np 1 -cmoe",
     (2900.32, 1152, 1094.00), (1373.08, 352, 56.01)),
    ("q235", "-c 8192 -ngl 99 -fa on -np 1 -ncmoe 50",
     (32798.32, 1152, 1094.00), (32855.08, 352, 176.01)),
    ("q235", "-c 8192 -ngl 99 -fa on -np 1 -ub 2048 -b 2048",
     (102350.32, 1152, 704.00), (32855.08, 352, 928.16)),
]  # fmt: skip


@pytest.fixture(scope="module")
def models() -> dict[str, ModelFacts]:
    return {name: from_gguf(make()) for name, make in SHAPES.items()}


@pytest.mark.parametrize(
    ("model", "arguments", "first", "second"), SEEN, ids=[f"{one[0]} {one[1]}" for one in SEEN]
)
def test_cards_get_what_llama_cpp_gives_them(
    models: dict[str, ModelFacts],
    model: str,
    arguments: str,
    first: tuple[float, float, float],
    second: tuple[float, float, float],
) -> None:
    placed = place(models[model], llama_plan(arguments.split()), COUNTING)
    for share, (weights, cache, compute) in zip(placed.cards, (first, second), strict=True):
        assert share.weights / MIB == pytest.approx(weights, rel=0.005)
        assert share.cache / MIB == pytest.approx(cache, rel=0.001)
        # a reserve: never less than what was taken, and not far above it; b11434 takes more
        assert compute * 0.999 <= share.compute / MIB <= max(compute * 1.35, compute + 850)


def test_published_files_have_these_sizes(models: dict[str, ModelFacts]) -> None:
    assert models["r1q4old"].weight_bytes / 2**30 == pytest.approx(376.65, abs=0.1)
    assert models["r1q3old"].weight_bytes / 2**30 == pytest.approx(297.3, abs=0.3)


GIB = 1 << 30
CARDS = (Card("a", total=96 * GIB, free=95 * GIB), Card("b", total=32 * GIB, free=31 * GIB))
LLAMA = from_gguf(header_of(MODELS["llama"]()))
MOE = from_gguf(header_of(MODELS["qwen3moe"]()))
GUESSING = from_gguf(header_of(MODELS["glm4moe"]()))
TIED = from_gguf(header_of(MODELS["gemma2"]()))


LAYERS = {
    "-ngl 99": [0, 0, 0, 0],  # by free memory: 3/4 of the layers is all of so few
    "-ngl 99 -ts 1,1": [0, 0, 1, 1], "-ngl 99 -ts 0,1": [1, 1, 1, 1],
    "-ngl 99 -ts 1": [0, 0, 0, 0], "-ngl 2 -ts 1,1": [HOST, HOST, 0, 1],
    "-ngl 1 -ts 1,1": [HOST, HOST, HOST, 0], "-ngl 0": [HOST, HOST, HOST, HOST],
    "-ngl 99 -sm none -mg 1": [1, 1, 1, 1], "-ngl 99 -dev CUDA1": [1, 1, 1, 1],
    "-ngl 99 -dev none": [HOST, HOST, HOST, HOST],
}  # fmt: skip


def test_layers_and_output() -> None:
    found = {words: places(LLAMA, llama_plan(words.split()), CARDS) for words in LAYERS}
    assert found == LAYERS


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
    odd = llama_plan(["-ngl", "99", "-ot", "exps=Metal"])
    assert odd.uncounted == ("--override-tensor exps=Metal",)


def test_the_cache_may_stay_with_the_host() -> None:
    placed = place(LLAMA, llama_plan(["-ngl", "99", "-nkvo"]), CARDS)
    assert placed.host.cache == some(placed.cache).bytes


def test_rows_are_shared_out() -> None:
    whole = LLAMA.weight_bytes - LLAMA.bytes_of(Kind.TOKENS)
    words = ["-ngl", "99", "-c", "4096", "-ts", "75,25", "-sm"]
    rows = place(LLAMA, llama_plan([*words, "row"]), CARDS)
    assert rows.cards[0].weights == pytest.approx(whole * 0.75, rel=0.01)
    by_layer = place(LLAMA, llama_plan([*words, "layer"]), CARDS)
    caches = [share.cache for share in by_layer.cards]
    assert [share.cache for share in rows.cards] == caches  # ggml-org/llama.cpp#13661
    for older in (
        replace(llama_plan([*words, "row"]), build=Build(4200)),
        replace(ik_plan(words[:-1]), split_mode="row"),
    ):
        assert [one.cache for one in place(LLAMA, older, CARDS).cards] == [sum(caches), 0]


@pytest.mark.parametrize(
    ("number", "refused", "doubted"),
    [(None, False, True), (5261, False, False), (9888, False, False), (9890, True, False),
     (11669, True, False)],
)  # fmt: skip
def test_rows_are_for_builds_with_split_buffers(
    number: int | None, refused: bool, doubted: bool
) -> None:
    """ggml-org/llama.cpp#25884: b9888 loads with -sm row; b9890, #27465: "device CUDA0 does not
    support split buffers". #21404 served with it in April 2026."""
    plan = llama_plan(["-ngl", "99", "-c", "4096", "-sm", "row"])
    placed = place(LLAMA, replace(plan, build=Build(number)), CARDS)
    assert (NO_ROWS in placed.refused, NO_ROWS in placed.doubts) == (refused, doubted)
    served = place(LLAMA, replace(plan, build=Build(serves=True)), CARDS)
    assert (served.refused, served.doubts) == ((), ())


def test_rows_of_experts_stay_with_their_layer() -> None:
    """ggml-org/llama.cpp#22729: -sm row divides dense weights alone; ikawrakow/ik_llama.cpp#254:
    asserts in its code."""
    words = ["-ngl", "99", "-c", "4096", "-ts", "75,25", "-sm"]
    model = from_gguf(shapes.qwen3_235b())
    layer, row = (place(model, llama_plan([*words, mode]), CARDS) for mode in ("layer", "row"))
    assert [card.experts for card in row.cards] == [card.experts for card in layer.cards]
    dense = sum(card.dense for card in row.cards)
    assert row.cards[1].dense == pytest.approx(dense * 0.25, rel=0.01)
    plan = replace(llama_plan([*words, "row"]), ik=True)
    assert NO_SPLIT_EXPERTS in place(model, plan, CARDS).doubts
    assert NO_SPLIT_EXPERTS not in place(model, replace(plan, cpu_experts=999), CARDS).doubts
    assert NO_SPLIT_EXPERTS not in place(LLAMA, plan, CARDS).doubts


def test_labels_are_unique_and_clean() -> None:
    assert labels([Card("x"), Card("y")]) == ["x", "y"]
    assert labels([Card("x"), Card("x"), Card("")]) == ["x #0", "x #1", "card"]
    assert labels([Card("a\x1b[31m")])[0].isprintable()


R1 = from_gguf(shapes.deepseek_r1("Q4_K_M"))
R1_OLD = from_gguf(shapes.deepseek_r1("Q4_K_M", latent=False))


def gib(facts: object, **ask: object) -> float:
    cache = some(cache_of(facts, LlamaPlan(parallel=1, **ask)))  # type: ignore[arg-type]
    assert cache.bytes == sum(cache.layers) == sum(part.bytes for part in cache.parts)
    return cache.bytes / GIB


def test_deepseek_at_known_contexts() -> None:
    assert gib(R1, ctx=32768) == pytest.approx(2.145, abs=0.001)
    assert gib(R1, ctx=163840) == pytest.approx(10.72, abs=0.01)
    assert gib(R1_OLD, ctx=32768) == pytest.approx(152.5, abs=0.1)
    assert gib(from_config(shapes.DEEPSEEK_R1, GIB), ctx=32768) == gib(R1, ctx=32768)


def test_the_models_own_context_is_the_default() -> None:
    assert gib(R1) == gib(R1, ctx=163840)
    assert cache_of(replace(R1, context_length=None), LlamaPlan()) is None


def test_types_have_their_size() -> None:
    assert row_bytes("f16", 576) == 1152
    assert row_bytes("q8_0", 576) == 612
    assert row_bytes("q4_0", 576) == 324
    assert row_bytes("q8_0", 33) == 68  # a broken block is a whole one
    assert gib(R1, ctx=8192, type_k="q8_0") == pytest.approx(gib(R1, ctx=8192) * 34 / 64)
    assert set(CACHE_TYPES) > {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0"}


def test_without_flash_attention_v_is_padded_to_the_widest_layer() -> None:
    even = from_gguf(shapes.distill_32b())
    uneven = replace(even, attention=replace(even.attention, kv_heads=(8,) * 63 + (16,)))
    assert gib(uneven, ctx=8192, flash=False) > gib(uneven, ctx=8192)
    assert gib(even, ctx=8192, flash=False) == gib(even, ctx=8192)


def _calls(judge: Callable[[], object]) -> int:
    """How many functions it calls."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        judge()
    finally:
        sys.setprofile(None)
    return calls


def test_another_split_or_more_moved_experts_cost_no_look_at_every_weight() -> None:
    few = replace(from_gguf(SHAPES["q235"]()), architecture="of-no-other-test")
    norms = tuple(
        replace(w, name=f"{w.name}.{n}") for w in few.weights if "attn" in w.name for n in range(9)
    )
    many = replace(few, weights=few.weights + norms)
    costs = []
    for facts in (few, many):
        plan = LlamaPlan(gpu_layers=999, ctx=8192, cpu_experts=3, tensor_split=(1.0, 1.0))
        place(facts, plan, COUNTING)
        changed = replace(plan, cpu_experts=40, tensor_split=(2.0, 1.0))
        costs.append(_calls(partial(place, facts, changed, COUNTING)))
    # a destructor or two that happen to run are calls as well
    assert abs(costs[1] - costs[0]) < len(norms) / 10
