"""The features that a plan for llama.cpp or ik_llama.cpp has in use once it is placed.

ik_llama.cpp takes `--split-mode graph` for the architectures of `is_model_split_supported`
(src/llama.cpp of 8337e4cd), and loads others, and Gemma 4 with embeddings of each layer, by layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from console.models.sizing.combinations.table import Feature, judged
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import Kind, ModelFacts

TENSORS, ROWS, GRAPH = (
    Feature("tensors split over cards"), Feature("tensors split by rows"),
    Feature("--split-mode graph"),
)  # fmt: skip
CARDS, LAYERS_IN_RAM = Feature("layers on several cards"), Feature("layers in RAM")
EXPERTS_IN_RAM, QUANTIZED = Feature("experts in RAM"), Feature("a quantized cache")
UNCOMMON = Feature("a cache in q4_1, q5_0, q5_1 or iq4_nl")
CACHE_IN_RAM = Feature("the cache in RAM")
OWN, DRAFT = Feature("own layers that guess ahead"), Feature("a draft model")
SPARE = Feature("layers for guesses in the file", True)
WINDOW, STATES = Feature("layers with a window", True), Feature("layers with a state", True)
LATENT, SINK = Feature("latent attention", True), Feature("heads with a sink", True)
SHARED = Feature("shared experts", True)
SHARED_IN_RAM = Feature("shared experts with layers in RAM")
PER_LAYER = Feature("per-layer embeddings of more than 30 layers", True)
MAX_INPUTS = 30
"""Inputs that a part of a graph may have (GGML_SCHED_MAX_SPLIT_INPUTS of ggml-backend.cpp)."""
PER_LAYER_TABLE = "per_layer_token_embd."
SHARED_TENSORS, SINK_TENSORS = "_shexp", "attn_sinks"
WHOLE_CACHE = ("f32", "f16", "bf16")
UNCOMMON_CACHE = frozenset({"q4_1", "q5_0", "q5_1", "iq4_nl"})
BY_GRAPH = frozenset({
    "llama", "qwen3moe", "glm4moe", "mistral3", "command-r", "cohere2", "cohere2moe", "mimo2",
    "qwen3", "qwen3vl", "hunyuan-moe", "gpt-oss", "ernie4_5-moe", "minimax-m2", "minimax-m3",
    "seed_oss", "step35", "laguna", "qwen35", "qwen35moe", "gemma4", "deepseek2", "glm-dsa",
    "mistral4", "mellum",
})  # fmt: skip
"""Architectures that ik_llama.cpp divides with --split-mode graph."""


def by_graph(facts: ModelFacts, plan: LlamaPlan) -> bool:
    """Whether --split-mode graph is what the loader does."""
    return plan.graph and facts.architecture in BY_GRAPH and not _has(facts, PER_LAYER_TABLE)


def by_pairs(
    facts: ModelFacts, plan: LlamaPlan, where: Sequence[int], host: int
) -> tuple[list[str], list[str]]:
    """What the engine refuses and what is not known of it, in words. `where`: the place of each
    layer, and last of the output; `host` is the number of RAM among them."""
    layers = where[: facts.layers]
    cards = {number for number in where if number != host}
    in_ram = bool(cards) and host in layers
    features = [*_in_use(facts, plan, len(cards), in_ram=in_ram), *_of_model(facts, plan)]
    number = plan.build.number
    engine = "ik_llama.cpp" if plan.ik else "llama.cpp"
    if plan.build.serves:
        return [], []
    return judged(engine, features, None if number is None or plan.ik else (number,))


def _in_use(facts: ModelFacts, plan: LlamaPlan, cards: int, *, in_ram: bool) -> Iterator[Feature]:
    moved = plan.cpu_experts > 0 or any("CPU" in buffer for _, buffer in plan.overrides)
    graph = by_graph(facts, plan)
    shared = graph and in_ram and _has(facts, SHARED_TENSORS)
    types = {plan.type_k, plan.type_v}
    in_use = {
        TENSORS: plan.split_mode == "tensor" and cards > 1,
        ROWS: plan.split_mode == "row" and cards > 1, GRAPH: graph,
        CARDS: cards > 1, LAYERS_IN_RAM: in_ram, EXPERTS_IN_RAM: moved and cards > 0,
        SHARED_IN_RAM: shared, QUANTIZED: not types <= set(WHOLE_CACHE),
        UNCOMMON: bool(types & UNCOMMON_CACHE), CACHE_IN_RAM: cards > 0 and not plan.kv_offload,
        OWN: plan.mtp and facts.spare_layers > 0, DRAFT: plan.draft is not None,
    }  # fmt: skip
    return (feature for feature, used_now in in_use.items() if used_now)


def _of_model(facts: ModelFacts, plan: LlamaPlan) -> Iterator[Feature]:
    many = (facts.layers or 0) > MAX_INPUTS
    has = {
        SPARE: facts.spare_layers > 0 and not plan.mtp, WINDOW: facts.attention.has_window,
        STATES: facts.recurrent is not None, LATENT: facts.attention.latent,
        SINK: _has(facts, SINK_TENSORS), SHARED: _has(facts, SHARED_TENSORS),
        PER_LAYER: many and _has(facts, PER_LAYER_TABLE),
    }  # fmt: skip
    return (feature for feature, is_there in has.items() if is_there)


def _has(facts: ModelFacts, part: str) -> bool:
    return part in _parts(facts)


@lru_cache(maxsize=64)
def _parts(facts: ModelFacts) -> frozenset[str]:
    """The parts of names that tell something, and that some weight has. A search asks again and
    again about the same model."""
    names = [weight.name for weight in facts.weights if weight.kind is not Kind.EXPERTS]
    telling = (PER_LAYER_TABLE, SHARED_TENSORS, SINK_TENSORS)
    return frozenset(part for part in telling if any(part in name for name in names))
