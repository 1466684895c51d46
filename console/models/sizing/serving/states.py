"""What vLLM and SGLang keep of a model of which most layers have a state and no cache: the gated
delta nets of Qwen3-Next, Qwen3.5 and their successors.

vLLM puts states and cache into blocks of one size: so many tokens that a layer's cache of them is
no smaller than a layer's state (`MambaModelConfig` in model_executor/models/config.py), and layers
in groups of the smaller kind (`_get_kv_cache_groups_uniform_page_size`, kv_cache_utils.py). SGLang
has two pools, whose ratio is an option (`handle_max_mamba_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import Keys, ModelFacts, Recurrent

GATED = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
"""Families whose states are known here."""
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
HALF, WHOLE = 2, 4
BLOCK = 16
"""Tokens of which a block is a multiple."""
WIDER = 1.25
"""The larger kind of layers makes the groups where it has fewer than so many times the layers."""
SLOTS = 5
"""States that SGLang keeps for one request, with those that its prefix cache holds."""
CHUNK = 64
"""Tokens after which a prompt's step keeps a state of each layer while it computes."""


def gated(keys: Keys, arch: str, cached: Sequence[bool]) -> Recurrent | None:
    """The states of a family that is known, of the layers without a cache; None for another, or
    where a size is missing."""
    names = (
        "key_head_dim",
        "value_head_dim",
        "num_key_heads",
        "num_value_heads",
        "conv_kernel_dim",
    )
    key, value, keys_, values, kernel = (keys.count(f"linear_{name}") for name in names)
    if arch not in GATED or not (key and value and keys_ and values and kernel):
        return None
    wide = 2 * keys_ * key + values * value
    how = f"{kernel - 1} x {wide} and {values} heads x {key} x {value}"
    dtype_width = WIDTHS.get(str(keys.raw("mamba_ssm_dtype")), 0)
    layers = tuple(not has_cache for has_cache in cached)
    state = values * key * value
    return Recurrent(layers, (kernel - 1) * wide, state, how, wide=wide, width=dtype_width)


def state_bytes(states: Recurrent, ranks: int, width: int, guesses: int = 0) -> int:
    """A layer's state of one request on a rank; `width`: bytes of a number of it, where the
    configuration does not say it. A guess of tokens makes the convolution's part longer."""
    conv = states.conv + guesses * states.wide
    return conv // ranks * HALF + states.state // ranks * (states.width or width)


def step_states(facts: ModelFacts, tokens: int, ranks: int) -> int:
    """What a step of so many tokens keeps of states while it computes."""
    states = facts.recurrent
    return 0 if states is None else -(-tokens // CHUNK) * states.state // ranks * HALF


@dataclass(frozen=True, slots=True)
class Blocks:
    """vLLM's blocks on a rank: `size` in bytes, `tokens` of cache in one. A request takes one for
    so many tokens in each of the `cached` groups, and one for its state in each of `states`."""

    size: int
    tokens: int
    cached: int
    states: int
    guesses: int = 0

    def of_request(self, tokens: int, *, prefixes: bool) -> int:
        """With prefixes that are kept, a state takes a second one."""
        each = (2 if prefixes else 1) + self.guesses
        return self.cached * -(-tokens // self.tokens) + self.states * each


def blocks_of(facts: ModelFacts, plan: VllmPlan, row: int) -> Blocks | None:
    """`row`: bytes of a token in a layer with a cache, on a rank."""
    states = facts.recurrent
    if states is None or not row:
        return None
    with_state = sum(states.layers)
    cached = len(states.layers) - with_state + (facts.spare_layers if plan.guesses else 0)
    if not (cached and with_state):
        return None
    multiple = plan.page or BLOCK
    state = state_bytes(states, plan.ranks, WIDTHS.get(plan.state_type, HALF), plan.guesses)
    tokens = -(-state // (row * multiple)) * multiple
    few, many = sorted((cached, with_state))
    group = many if many < few * WIDER else few
    size = group * tokens * row // plan.stages
    return Blocks(size, tokens, -(-cached // group), -(-with_state // group), plan.guesses)


def one_state(states: Recurrent, plan: SglangPlan, ranks: int) -> int:
    """Bytes of all layers' states of one request, in SGLang."""
    return sum(states.layers) * state_bytes(states, ranks, WIDTHS.get(plan.state_type, WHOLE))


def pools(states: Recurrent, plan: SglangPlan, ranks: int, cache: int) -> tuple[int, int]:
    """SGLang's pools on a rank for a cache of so many bytes: (cache, states)."""
    state_size = one_state(states, plan, ranks)
    apart = plan.replicas if plan.attention_apart else 1
    count = plan.states or (plan.running if not plan.radix else None)
    if count is not None:
        return cache, (max(1, count // apart) + 1) * state_size
    pool = max(int(cache * plan.state_share), SLOTS * state_size)
    return max(cache, int(pool / plan.state_share) if plan.state_share else cache), pool
