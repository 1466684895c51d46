"""What SGLang allocates outside of --mem-fraction-static, by the length of a context.

The table of which request has which tokens, with a row of the whole
context for each request that may run (`ReqToTokenPool` in mem_cache/memory_pool.py of 0.5.23;
sglang#5755: 2,049 rows of 10,485,764 numbers of 4 bytes are 80.04 GiB), and what the graphs of an
attention backend keep for each request of the largest batch (`init_cuda_graph_state` in
layers/attention/).
"""

from __future__ import annotations

from dataclasses import dataclass

from console.common.units import format_bytes
from console.host.sample import Card
from console.models.sizing.loader_plan import SglangPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.states import SLOTS, one_state

WIDTH = 4
"""Bytes of a number in the table, and in those of most backends."""
SPARE = 4
"""Numbers of a row beyond the context (`get_req_to_token_extra_context_len`)."""
MIN_REQUESTS, MAX_REQUESTS, FULL = 2048, 4096, 512
"""Requests where none are asked for: so many for each full context that the cache holds
(`resolve_max_num_reqs` in mem_cache/kv_cache_configurator.py)."""
GUESSING = 48
"""Requests where tokens are guessed ahead and none are asked for (speculative_hook.py)."""
STEPS = 4
"""Times that a backend has its tables where tokens are guessed ahead: for the guess, its check and
what follows it."""
HOPPER, BLACKWELL = 9, 10
"""Generations of cards by which a backend is chosen (`get_default_attn_backend`)."""
BY_TOKEN = {
    "fa3": 4.0, "flashinfer": 5.0, "triton": 8.0, "trtllm_mha": 0.25, "flashmla": 1 / 16,
    "trtllm_mla": 1 / 8, "cutlass_mla": 1 / 32, "torch_native": 0.0,
}  # fmt: skip
"""Bytes of a token of the context that a backend's graphs keep for a request, by its own pages."""
PAGED = ("fa3",)
"""Those whose tables are shorter by --page-size."""
CHUNKED = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
"""Classes for whose chunks and windows FlashAttention has a table each (local_attention.py)."""
TWICE = ("fa3", "flashinfer", "trtllm_mha")
"""Those that have a second table where some layers have a window."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Bytes on a rank: of the table of `count` requests, and of what graphs keep for theirs."""

    count: int = 0
    context: int = 0
    requests: int = 0
    graphs: int = 0

    @property
    def bytes(self) -> int:
        return self.requests + self.graphs

    @property
    def words(self) -> str:
        own = f"a table of {self.count:,} requests x {self.context:,} tokens "
        own += f"({format_bytes(self.requests)})"
        return f"{own} and {format_bytes(self.graphs)} of the graphs'" if self.graphs else own


def tables_of(
    facts: ModelFacts, plan: SglangPlan, pools: tuple[int, int, int], card: Card, batch: int
) -> Tables:
    """`pools`: the tokens that a rank's cache holds, the bytes of its states, and by how many ranks
    a state is divided. `batch`: the requests of the largest graph. The context is the model's own
    where none is given, and nothing is known where neither is."""
    context = plan.ctx or facts.context_length or 0
    count = _requests(facts, plan, pools, context)
    graphs = _graphs(facts, plan, card, context) * min(batch, count)
    # the first row belongs to no request
    table = (count + 1) * (context + SPARE) * WIDTH if context else 0
    return Tables(count, context, table, int(graphs))


def _requests(
    facts: ModelFacts, plan: SglangPlan, pools: tuple[int, int, int], context: int
) -> int:
    """How many requests a rank takes at once."""
    tokens, states, ranks = pools
    most = max(MIN_REQUESTS, min(MAX_REQUESTS, int(tokens / max(1, context) * FULL)))
    running_limit = plan.running or (GUESSING if plan.speculates else None)
    if running_limit is not None:
        most = max(1, running_limit // (plan.replicas if plan.attention_apart else 1))
    most = min(most, tokens // 2)
    if facts.recurrent is not None:
        state_size = one_state(facts.recurrent, plan, ranks)
        most = min(most, states // max(1, state_size) // (SLOTS if plan.radix else 1))
    return max(1, most)


def _graphs(facts: ModelFacts, plan: SglangPlan, card: Card, context: int) -> float:
    """Bytes that graphs keep for the context of one request on a rank."""
    if not plan.graphs:
        return 0.0
    backend = plan.attention or _default(facts, card)
    size = context * BY_TOKEN.get(backend, 0.0) * (STEPS if plan.speculates else 1)
    if backend in PAGED and set(CHUNKED) & set(facts.classes):
        size *= 3
    elif facts.attention.has_window and backend in TWICE:
        size *= 2
    return size / (plan.page or 1) if backend in PAGED else size


def _default(facts: ModelFacts, card: Card) -> str:
    """The backend that SGLang chooses; "" where the card is not known."""
    generation = card.compute[0] if card.compute else 0
    latent = facts.attention.latent
    if generation == HOPPER:
        return "fa3"
    if generation == BLACKWELL:
        return "trtllm_mla" if latent else "trtllm_mha"
    if not generation:
        return ""
    return "triton" if latent else "flashinfer"
