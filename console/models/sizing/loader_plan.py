"""How a loader places a model: plain values, from a command line or set by hand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from console.common.options.since import Arrival, Newcomer
from console.models.sizing.model_facts import ModelFacts

ALL = 1 << 20
"""More layers than any model has: `all`."""
AUTO_SLOTS = 4
"""Slots of a llama-server without a number (`-np -1`); their cache is then shared."""
CACHE_RAM_MIB = 8192
CHECKPOINTS = 32
"""Copies of states and window caches that a llama-server keeps of every slot's prompt."""
PAIRS_LACKING, PAIRS_SINCE = 10864, 10900
"""The last build that surely lacks ggml-org/llama.cpp#28079, by its day, and one that surely has
it: ollama/ollama#18317 took b10864 the day before, and 17 builds a day were made then."""
ONE_TYPE = frozenset({"f32", "f16", "bf16", "q8_0", "q4_0"})
"""Types of a cache of which K and V may both be with every build's flash attention."""
ROWS_GONE = 9890
"""The first build without split buffers: b9888 loads with `-sm row`, b9890 refuses it
(ggml-org/llama.cpp#25884)."""
COPIES_RESERVED = 9489
"""The build that reserves the F16 copies of a quantized cache at its start (llama.cpp#23907)."""
CACHE_BY_LAYER = 4500
"""A build of January 2025: since about then the cache of a layer lies with it under `-sm row`."""
EXPERTS_OF_LAYER = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE_OF_LAYER = r"\.ffn_(up|down|gate)\."


class Strategy(StrEnum):
    """How the weights are kept in memory, which decides the use of swap and page cache."""

    MMAP = "llama.cpp mmap"
    RESIDENT = "llama.cpp resident"
    SGLANG = "SGLang resident"
    VLLM = "vLLM resident"
    KT = "kt-kernel resident"
    KT_MMAP = "kt-kernel mmap"
    CONVERSION = "conversion"


@dataclass(frozen=True, slots=True)
class Build:
    """What is known of the llama.cpp build that loads a model, where builds differ.

    `number`: its number, by `--version` or by the name of a release; None: not known. `pairs`:
    whether it was built with GGML_CUDA_FA_ALL_QUANTS, as its start tells of it. `serves`: it was
    seen to serve with the plan at hand.
    """

    number: int | None = None
    pairs: bool | None = None
    serves: bool = False

    @property
    def takes_pairs(self) -> bool | None:
        """Whether its flash attention for CUDA takes K and V of different types: with that option,
        or since ggml-org/llama.cpp#28079 (9 September 2026, after b10864)."""
        if self.serves or (self.number is not None and self.number >= PAIRS_SINCE):
            return True
        if self.pairs is False and (self.number is None or self.number > PAIRS_LACKING):
            return None  # newer ones do not tell of the option any more
        return self.pairs

    @property
    def splits_rows(self) -> bool | None:
        """Whether it has buffers for `--split-mode row` (ggml-org/llama.cpp#24216)."""
        if self.serves:
            return True
        return None if self.number is None else self.number < ROWS_GONE

    def reserves_copies(self, ik: bool) -> bool:
        """Whether it surely reserves the copies that flash attention makes of a cache: the fork of
        August 2026 does not."""
        return not ik and self.number is not None and self.number >= COPIES_RESERVED

    @property
    def keeps_cache_on_main(self) -> bool:
        """Whether `--split-mode row` puts the whole cache on the main card, if it is that old; the
        log of ggml-org/llama.cpp#13661 (b5261) has a part of it on every card."""
        return self.number is not None and self.number < CACHE_BY_LAYER


@dataclass(frozen=True, slots=True)
class LlamaPlan:
    """llama-server's memory-related options; the defaults are those of build b11669.

    `gpu_layers` and `ctx` None: llama.cpp decides (`auto`, the model's own); `whole_ctx`: all of it
    was asked for (`-c 0`); `per_slot`: tokens of a slot, where no context is given.
    `parallel` None: it chooses the slots, with one shared cache. Without `flash` attention V is
    padded to its largest layer; `flash_auto`: it does without where a card has no kernel.
    `cpu_experts` and `cpu_dense`: of the first so many layers, asked behind the first `moved_after`
    overrides (None: behind all). `overrides` are (pattern, buffer type). `mtp`: the file's spare
    layers guess ahead, `drafts` tokens at once (None: 3). Sizes in MiB, as in the options.
    `draft`: the model of `draft_file` that guesses ahead, None where it was not read;
    `draft_words`: what of the command line is counted with it.
    `fit_target`: MiB that --fit leaves on each card (none: its default).
    `min_devices`: how many the split mode takes at least; `graph`: ik_llama.cpp is asked to
    divide each layer; `ik`: ik_llama.cpp's server, which leaves out devices that are not there;
    `goes_back`: something guesses ahead in it, `merges`: it makes one tensor of Q, K and V.
    `refused`: what the server's start refuses, `unsettled`: what some builds refuse, `older`: the
    build takes what those of the table's day do not, `build`: what is known of it besides. `newer`:
    options that not every build has, `commits`: the number of the one at hand,
    `rotates_k`: its cache of keys is rotated before it is quantized.
    """

    gpu_layers: int | None = None
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    devices: tuple[int, ...] | None = None
    ctx: int | None = None
    whole_ctx: bool = False
    per_slot: int = 0
    parallel: int | None = None
    kv_unified: bool | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    ubatch: int = 512
    swa_full: bool = False
    kv_offload: bool = True
    flash: bool = True
    flash_auto: bool = True
    load_mode: str = "auto"
    mmap: bool = True
    mlock: bool = False
    no_host: bool = False
    repack: bool = True
    op_offload: bool = True
    fit: bool = True
    fit_target: tuple[float, ...] = ()
    cpu_experts: int = 0
    cpu_dense: int = 0
    overrides: tuple[tuple[str, str], ...] = ()
    moe_cache_mib: int = 0
    cache_ram_mib: int = CACHE_RAM_MIB
    checkpoints: int = CHECKPOINTS
    mtp: bool = False
    rope_scaled: bool = False
    drafts: int | None = None
    draft_file: str = ""
    draft: ModelFacts | None = None
    draft_words: tuple[str, ...] = ()
    moved_after: int | None = None
    min_devices: int = 0
    graph: bool = False
    ik: bool = False
    goes_back: bool = False
    merges: bool = False
    mla: int = 3
    amb: int | None = None
    file: str = ""
    refused: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    older: bool = False
    newer: tuple[Arrival, ...] = ()
    commits: int | None = None
    rotates_k: bool = False
    build: Build = Build()
    uncounted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def depends_on_build(self) -> bool:
        """Whether what builds of llama.cpp differ in matters to it; see `Build`."""
        copied = (self.type_k, self.type_v) != ("f16", "f16")
        if self.ik:
            return bool(self.newer) or (self.parallel or 1) > 1
        return self.split_mode == "row" or copied or bool(self.newer)

    @property
    def fits_all(self) -> bool:
        """Whether ik_llama.cpp chooses the layers itself: its --fit passes --n-gpu-layers over
        (src/llama.cpp of 8337e4cd)."""
        return self.ik and self.fit

    @property
    def slots(self) -> int:
        return AUTO_SLOTS if self.parallel is None else max(1, self.parallel)

    @property
    def unified(self) -> bool:
        return self.parallel is None if self.kv_unified is None else self.kv_unified

    def tokens(self, trained: int | None) -> int | None:
        """The context of all slots together; `trained` is what the model was made for. Without a
        number, `fit` makes it as large for every slot that has a cache of its own."""
        if self.ctx:
            return self.ctx
        if self.per_slot and not self.whole_ctx:
            return self.per_slot * self.slots
        if trained is None or self.unified or not self.fit:
            return trained
        return trained * self.slots

    @property
    def maps(self) -> bool | None:
        """Whether the file is mapped, whatever becomes of its weights then; None: builds differ."""
        if self.load_mode == "auto" and self.mlock:
            return None
        return self.load_mode.startswith("mmap") or (self.load_mode == "auto" and self.mmap)

    def strategy(self, has_cards: bool = True) -> Strategy:
        """Mapped or resident. Without a card the CPU build repacks weights into memory of its
        own, and the mapping is lost (llama.cpp#20490)."""
        if self.load_mode in ("none", "mlock", "dio", "mmap+mlock") or self.mlock:
            return Strategy.RESIDENT
        if self.load_mode == "auto" and not self.mmap:
            return Strategy.RESIDENT
        repacks = self.repack and (self.no_host or not has_cards)
        return Strategy.RESIDENT if repacks else Strategy.MMAP


@dataclass(frozen=True, slots=True)
class SglangPlan:
    """SGLang's options, and kt-kernel's if its experts run on the CPU; `cpu_offload` in bytes a
    rank.

    `replicas`: copies of the whole, or with `attention_apart` of the attention within the ranks.
    `attention_replicas` is --attn-dp-size alone. Whole experts are shared out among `expert_ranks`.
    `chunk`, `prefill` and `graph_batch` size what SGLang keeps free for a step (None: its default).
    `drafts`: the checkpoint's spare layers guess ahead. `speculates`: whatever guesses, `trees`: in
    several branches, `looks_up`: in the text before. `all_to_all`: how experts exchange
    tokens. `page`: tokens of a page of the cache (0: the backend's own), `attention` its backend,
    `phases` those for prompts or answers alone. `text_only` and `multimodal`: an encoder for
    images is left out, or asked for. `kt`: experts run on the processor; `kt_idle`: options of
    kt-kernel do nothing, since the path of the weights is missing. `kt_pools` of its `kt_threads`
    share each expert. `kt_weights` is where
    kt-kernel's weights are, with experts of `kt_experts` bytes (None: not known).
    `kt_prefill`: prompts of so many tokens take every layer's experts to the cards, 0: none.
    `kt_skips`: experts of the cards are not kept in RAM, too (--kt-skip-gpu-expert-cpu-copy, which
    few builds have). `states` of layers without a cache are kept, else so many that they take
    `state_share` of the cache, or one for each request where no prefixes are kept (`radix`); in
    `state_type`. `refused`: what its start refuses. `load_format` as given, with `loader_extra`
    where its loader is told more. `moe_backend` of experts and `fp8_backend` of other matrices, as
    named. `release`: the one that the tag of its publisher's image names, `at_least`: or a later
    one. `newer`: what not all known releases have.
    """

    ranks: int = 1
    stages: int = 1
    replicas: int = 1
    attention_apart: bool = False
    attention_replicas: int = 1
    expert_ranks: int = 1
    model: str = ""
    mem_fraction: float | None = None
    ctx: int | None = None
    cache_tokens: int | None = None
    type_kv: str = "auto"
    cpu_offload: int = 0
    chunk: int | None = None
    prefill: int | None = None
    running: int | None = None
    graph_batch: int | None = None
    graphs: bool = True
    drafts: bool = False
    speculates: bool = False
    trees: bool = False
    looks_up: bool = False
    all_to_all: str = ""
    page: int = 0
    attention: str = ""
    phases: tuple[str, ...] = ()
    text_only: bool = False
    multimodal: bool = False
    states: int | None = None
    state_share: float = 0.9
    state_type: str = ""
    radix: bool = True
    dtype: str = "auto"
    quantization: str = ""
    load_format: str = ""
    loader_extra: bool = False
    kt: bool = False
    kt_idle: bool = False
    kt_method: str = ""
    kt_gpu_experts: int = 0
    kt_threads: int = 0
    kt_pools: int = 2
    kt_prefill: int = 0
    kt_skips: bool = False
    kt_mmap: bool = False
    kt_weights: str = ""
    kt_experts: int | None = None
    moe_backend: str = ""
    fp8_backend: str = ""
    release: tuple[int, ...] | None = None
    at_least: bool = False
    newer: tuple[Newcomer, ...] = ()
    refused: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def strategy(self, has_cards: bool = True) -> Strategy:
        if self.kt:
            return Strategy.KT_MMAP if self.kt_mmap else Strategy.KT
        return Strategy.SGLANG


@dataclass(frozen=True, slots=True)
class VllmPlan:
    """vLLM's options. None: its own default, which `console.models.sizing.vllm` names.

    `ranks`, `stages` and `replicas` are its tensor, pipeline and data parallel sizes; with
    `whole_experts` experts are shared out whole. `ctx` None: the model's own length, which it
    insists on; -1: as long as there is room for; `longer`: a variable lets it be longer.
    `batch`: tokens of a step, `seqs`: requests of a step.
    `graph_batches`: of how many batches graphs are made (0: the usual ones, up to the
    `largest_graph`). `type_kv`: the size of the cache's numbers, `asked_type`: the option's word
    for it. `cache_bytes` replaces the fraction, `cpu_offload` is in bytes a card.
    `chunked`: a prompt may take several steps; `active`: --max-num-active-seqs, `long_prefill`:
    --long-prefill-token-threshold. `text_only`: no input but text is taken; `limited`: the kinds of
    input that are limited to none. `page`: tokens of a block of the cache (0: the backend's own).
    `graphs_beyond`: graphs are made when the share is full, and not measured before. `prefixes` are
    kept for other requests, `state_type`: of layers with a state and no cache. `guesses`: how many
    tokens the checkpoint's own layers guess ahead, `looks_up`: they are guessed from the text
    before. `ahead`: steps are scheduled before the last one ends. `ray`: its ranks may be on other
    hosts, too; `config_format`: which configuration it reads.
    `calls_tools` and `logs_answers` each need a second option: `tool_parser`, `logs_requests`.
    `attention` and `moe_backend`: the backends that are named; `refused`: what its start refuses.
    `load_format` as given, with `loader_extra` where its loader is told more. `release`: the one
    that the tag of its publisher's image names. `newer`: what not all known releases have.
    """

    ranks: int = 1
    stages: int = 1
    replicas: int = 1
    whole_experts: bool = False
    fraction: float | None = None
    ctx: int | None = None
    seqs: int | None = None
    batch: int | None = None
    type_kv: str = "auto"
    asked_type: str = ""
    dtype: str = "auto"
    quantization: str = ""
    load_format: str = ""
    loader_extra: bool = False
    graphs: bool = True
    graph_batches: int = 0
    largest_graph: int | None = None
    graphs_beyond: bool = False
    cpu_offload: int = 0
    cache_bytes: int | None = None
    longer: bool = False
    chunked: bool = True
    active: int | None = None
    long_prefill: int = 0
    text_only: bool = False
    limited: frozenset[str] = frozenset()
    page: int = 0
    prefixes: bool = True
    guesses: int = 0
    looks_up: bool = False
    ahead: bool = False
    state_type: str = ""
    attention: str = ""
    moe_backend: str = ""
    calls_tools: bool = False
    tool_parser: str = ""
    logs_answers: bool = False
    logs_requests: bool = False
    model: str = ""
    ray: bool = False
    config_format: str = ""
    release: tuple[int, ...] | None = None
    newer: tuple[Newcomer, ...] = ()
    refused: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def strategy(self, has_cards: bool = True) -> Strategy:
        return Strategy.VLLM


LLAMAFILE = "LLAMAFILE"
AS_STORED = ("FP8", "FP8_PERCHANNEL", "BF16", "RAWINT4", LLAMAFILE)
"""kt-kernel's methods that convert nothing."""


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A run of a converter: `method` is the format it writes, `input_type` what it reads. One of
    AS_STORED writes nothing."""

    method: str = "int8"
    input_type: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()

    def strategy(self, has_cards: bool = True) -> Strategy:
        return Strategy.CONVERSION


LoaderPlan = LlamaPlan | SglangPlan | VllmPlan | ConversionPlan
