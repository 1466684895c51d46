"""Placement and compute reserve against figures that a real llama.cpp gave for true shapes.

They are llama.cpp b11669's own log lines ("CARD0 model buffer size", "KV buffer size", "compute
buffer size") for headers of these shapes, on two devices that only count what they are asked for,
97887 and 32607 MiB large with 600 MiB taken.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from console.host.sample import Card
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_flags import llama_plan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import place
from tests.fit import shapes
from tests.fit.headers import FakeHeader

MIB = 1 << 20
CARDS = (
    Card("CARD0", total=97887 * MIB, free=97287 * MIB),
    Card("CARD1", total=32607 * MIB, free=32007 * MIB),
)
MODELS: dict[str, Callable[[], FakeHeader]] = {
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
    return {name: from_gguf(make()) for name, make in MODELS.items()}


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
    placed = place(models[model], llama_plan(arguments.split()), CARDS)
    for share, (weights, cache, compute) in zip(placed.cards, (first, second), strict=True):
        assert share.weights / MIB == pytest.approx(weights, rel=0.005)
        assert share.cache / MIB == pytest.approx(cache, rel=0.001)
        # a reserve: never less than what was taken, and not far above it
        assert compute * 0.999 <= share.compute / MIB <= max(compute * 1.35, compute + 640)


def test_published_files_have_these_sizes(models: dict[str, ModelFacts]) -> None:
    assert models["r1q4old"].weight_bytes / 2**30 == pytest.approx(376.65, abs=0.1)
    assert models["r1q3old"].weight_bytes / 2**30 == pytest.approx(297.3, abs=0.3)
