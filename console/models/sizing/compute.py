"""What llama.cpp reserves on a card or the host to work on a batch, beside weights and cache.

No source states it. The sums were held against what the scheduler of b11434 and b11669 reserves on
devices that only count: they take the operations that ggml's CUDA backend takes, and its sizes. No
card was measured. Builds before late 2025 reserve scores for every token of a batch, newer servers
do not; the sums do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from console.models.sizing.kv_cache import FLOAT, Cache, cached_lengths, window_cells
from console.models.sizing.latent import heads_at_once, spread_bytes
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts

CONTEXT = 512 << 20
"""A CUDA context with its kernels; 0.4 to 0.7 GiB by card and driver."""
COPIES = 4
"""Batches in progress at once if the layers of several cards form a pipeline."""
SMALL = 32 << 20
"""Factor for the small weights of a layer that are copied beside its largest."""
SCORES = 4
"""Matrices of batch x context that an indexer's selection takes."""
SPARE = 4
"""Embeddings of a batch that stay alive beside the widest part of a layer."""
ROWS = 1 << 20
"""Positions, numbers of tokens and outputs, and what is rounded up."""
HALF = 2


@dataclass(frozen=True, slots=True)
class Work:
    """The shape of the batches: their tokens, the cells a token may attend to, pipelined or not.

    `halves` are bytes of the F16 copies that flash attention makes of a layer's other cache, or of
    a layer's V, turned, where it was decided against after the cache was laid out for it. `heads`:
    how many are worked on at once, `own`: with keys and values of their own, not the latent ones.
    """

    ubatch: int
    cells: int
    masks: int
    flash: bool
    pipelined: bool
    halves: int = 0
    heads: int = 0
    own: bool = False

    @property
    def copies(self) -> int:
        return COPIES if self.pipelined else 1


def work_of(plan: LlamaPlan, cache: Cache, facts: ModelFacts, pipelined: bool) -> Work:
    """The batches of a plan; cells are those of one sequence's part, or of the shared cache."""
    streams = 1 if plan.unified else plan.slots
    cells = cache.tokens // streams
    spec = facts.attention
    near = window_cells(spec.window, plan, cells) if spec.has_window else 0
    which, halves = cached_lengths(facts), 0
    for key, value in which if plan.flash or plan.flash_auto else ():
        rows = key * (plan.type_k != "f16") + value * (plan.type_v != "f16")
        halves = max(halves, (rows if plan.flash else value) * cache.tokens * HALF)
    masks = cells + near if which else 0
    ubatch = min(plan.ubatch, cache.tokens)
    heads = heads_at_once(facts, plan, cells, ubatch)
    spread = spread_bytes(facts, plan, cells, heads)
    halves = halves if spread is None else spread
    own = spread is not None
    return Work(ubatch, cells, masks, plan.flash, pipelined, halves, heads, own)


def floats(facts: ModelFacts) -> int:
    """Numbers alive at once for one token: the widest of the parts of a layer.

    Dense: 4 embeddings and 3 x feed-forward. Experts: 3 embeddings and, for each one used, 2
    embeddings and its width (or 1 and 3). Latent attention: queries, absorbed queries and values of
    every head, 4 embeddings. States: 7 x what goes through them, 2 embeddings.
    """
    width = facts.embedding or 0
    spec, experts = facts.attention, facts.experts
    heads, key, value = spec.heads or 0, spec.key or 0, spec.value or 0
    if spec.latent:
        # a query before and after it is taken into the latent space, and what comes out of it
        attention = heads * (spec.head + key + spec.latent_rank) + 2 * spec.latent_rank
    else:
        attention = 2 * heads * (key + value)
    parts = [4 * width + attention]
    if facts.feed_forward:
        parts.append(4 * width + 3 * facts.feed_forward)
    if experts.used:
        each = max(2 * width + experts.width, width + 3 * experts.width)
        parts.append(3 * width + experts.used * each)
    if facts.recurrent is not None:
        parts.append(2 * width + 7 * facts.recurrent.wide)
    return max(parts)


def compute_bytes(
    facts: ModelFacts, work: Work, *, output: bool, lent: tuple[int, ...] = (), table: int = 0,
    borrowed: int = 0, helped: int = 0, states: int | None = None, attends: bool = True,
) -> int:  # fmt: skip
    """Bytes to reserve on one card. `output`: it scores the tokens, with an output matrix of
    `table` bytes that it has to copy from the host. `lent`: host weights that are copied over while
    a batch is processed; `borrowed`: the same of one layer's cache, if all of it lies there,
    `helped`: if only that of the layers does that this card works for. `states`: on a
    card, its layers whose normed values go to the host and back; `attends`: it has attention."""
    width, row = facts.embedding or 0, work.ubatch * FLOAT
    spec = facts.attention
    attention = work.halves + _scores(facts, work) if attends else 0
    chosen = SCORES * work.cells * row if spec.indexer else 0
    logits = row * ((facts.vocabulary or 0) + 2 * width) + table if output else 0
    masks = work.ubatch * work.masks * (HALF if work.flash else FLOAT) * work.copies
    inputs = COPIES * (2 if output else COPIES) * row * width if work.pipelined else 0
    small = SMALL if lent else 0
    most = max(_worked(facts, work, attention, helped, sum(lent)), logits)
    spare = SPARE + (spec.own_layers == 0)  # without a cache, keys and values stay alive as well
    beside = spare * row * width + _bounced(facts, work, states) + borrowed
    return most + masks + inputs + chosen + small + beside


def _worked(facts: ModelFacts, work: Work, attention: int, helped: int, lent: int) -> int:
    """The most that is alive at once of a layer. With keys and values of their own, which are
    larger than all else, the heads are done before the rest begins."""
    row, spec = work.ubatch * FLOAT, facts.attention
    if not work.own:
        return row * floats(facts) + max(attention + helped, lent)
    each = 4 * (facts.embedding or 0) + (spec.heads or 0) * (2 * spec.head + spec.head_value)
    return max(row * each + attention, row * floats(facts)) + max(helped, lent)


def _scores(facts: ModelFacts, work: Work) -> int:
    """What every head makes of every cell, which flash attention never writes down."""
    spec = facts.attention
    each = work.heads * work.ubatch + (spec.latent_rank if spec.latent else 0)
    return 0 if work.flash else each * work.cells * FLOAT


def draft_bytes(facts: ModelFacts, plan: LlamaPlan, cache: Cache) -> int:
    """The same for the context in which the file's own layers guess ahead (MTP): one layer, as wide
    as the widest, a cache in F16 and scores for one token of each slot.

    Held against what `llama-server` b11669 reserves for heads of Qwen3.5 in many sizes, which is
    also what logs of cards show. Once the mask of a long context is done with, the feed-forward
    part finds room in its place. No pipeline: a build does without it where it lacks memory.
    """
    work = work_of(replace(plan, type_k="f16", type_v="f16"), cache, facts, False)
    if facts.attention.latent:  # nobody has measured such a head
        return compute_bytes(facts, work, output=True)
    width, row = facts.embedding or 0, work.ubatch * FLOAT
    spec, experts = facts.attention, facts.experts
    kept = 2 * (spec.heads or 0) + max(spec.kv_heads or (0,))  # a query with its gate, K and V
    masks = work.ubatch * work.masks * (HALF if work.flash else FLOAT)
    dense = facts.feed_forward or 0
    pieces = [(dense, 3 * dense)]
    if experts.used:
        each = max(2 * width + experts.width, width + 3 * experts.width)
        pieces.append((experts.used * width, experts.used * each))
    forward = max(
        3 * width + whole - (piece if masks >= row * (piece + width) else 0)
        for piece, whole in pieces
    )
    attention = row * (2 * width + kept * ((spec.key or 0) + (spec.value or 0)))
    attention += work.halves + _scores(facts, work)
    scored = min(plan.slots, work.ubatch) * FLOAT * (facts.vocabulary or 0) + 2 * row * width
    return masks + max(attention, row * forward, scored) + ROWS


def _bounced(facts: ModelFacts, work: Work, layers: int | None) -> int:
    """Mamba 2 norms its values on the host; a pipeline keeps them for every layer."""
    if facts.recurrent is None or layers is None:
        return 0
    times = (layers + 1) * COPIES if work.pipelined else 2 * COPIES
    return times * facts.recurrent.bounced * work.ubatch * FLOAT


def host_compute_bytes(facts: ModelFacts, work: Work, *, computes: bool, states: int = 0) -> int:
    """The same for the host: inputs and masks always, everything if it `computes` batches, and for
    `states` layers of its own what goes through them."""
    width, row = facts.embedding or 0, work.ubatch * FLOAT
    if computes:
        spare = 0 if work.flash else width
        return compute_bytes(facts, work, output=True) + spare * row
    own = 0
    if states and facts.recurrent is not None:
        own = 7 * facts.recurrent.wide * row + _scores(facts, work)
    mask = work.masks * (HALF if work.flash else FLOAT) * work.ubatch
    every = sum(facts.recurrent.layers) if facts.recurrent is not None else 0
    inputs = 2 * width * row + mask
    return inputs * work.copies + 2 * SPARE * row * width + own + _bounced(facts, work, every)
