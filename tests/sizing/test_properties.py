"""What must hold for any model, plan and machine."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from console.common.text import clean
from console.host.sample import Card, Machine
from console.models.gguf.header import Array
from console.models.sizing.assess import assess
from console.models.sizing.assessment import ORDER, WIDTH, Verdict, lines
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.kv_cache import CACHE_TYPES, cache_of
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan, SglangPlan
from console.models.sizing.model_facts import Attention, BadFacts, Experts, Kind, ModelFacts, Weight
from console.models.sizing.placement import HOST, place, places
from tests.sizing.tiny import FakeHeader, FakeTensor
from tests.waiting import some

GIB = 1 << 30
sizes = st.integers(0, 64 * GIB)


@st.composite
def models(draw: st.DrawFn) -> ModelFacts:
    """Small models of every kind of attention, with experts or without."""
    layers = draw(st.integers(1, 6))
    latent = draw(st.booleans())
    experts = draw(st.integers(0, 8))
    weights = [Weight("token_embd.weight", Kind.TOKENS, draw(sizes), 10)]
    if draw(st.booleans()):
        weights.append(Weight("output.weight", Kind.OUTPUT, draw(sizes), 10))
    for layer in range(layers):
        weights.append(Weight(f"blk.{layer}.attn.weight", Kind.DENSE, draw(sizes), 10, layer))
        if experts:
            name = f"blk.{layer}.ffn_up_exps.weight"
            weights.append(Weight(name, Kind.EXPERTS, draw(sizes), 10, layer))
    window = draw(st.sampled_from([0, 512, 4096]))
    attention = Attention(
        heads=8, kv_heads=tuple(draw(st.integers(0, 8)) for _ in range(layers)), key=128,
        value=128, latent=latent, latent_rank=64 if latent else 0, window=window,
        windowed=tuple(draw(st.booleans()) for _ in range(layers)) if window else (),
        indexer=draw(st.sampled_from([0, 128])), indexed=(True,) * layers,
    )  # fmt: skip
    return ModelFacts(
        "any", "test", layers=layers, embedding=512, feed_forward=1024, vocabulary=1000,
        context_length=1 << 20, attention=attention, weights=tuple(weights),
        experts=Experts(experts, min(2, experts), 0, 256, 0),
    )  # fmt: skip


asks = st.builds(
    LlamaPlan, ctx=st.integers(1, 1 << 20), parallel=st.integers(1, 8), kv_unified=st.booleans(),
    type_k=st.sampled_from(list(CACHE_TYPES)), type_v=st.sampled_from(list(CACHE_TYPES)),
    ubatch=st.integers(1, 4096), swa_full=st.booleans(), flash=st.booleans(),
)  # fmt: skip
plans = st.builds(
    LlamaPlan, gpu_layers=st.integers(0, 8), ctx=st.integers(256, 1 << 17),
    tensor_split=st.sampled_from([(1.0, 1.0), (75.0, 25.0), (0.0, 1.0), (1.0,)]),
    split_mode=st.sampled_from(["layer", "none", "row", "tensor"]), parallel=st.integers(1, 4),
    kv_offload=st.booleans(), flash=st.booleans(), cpu_experts=st.integers(0, 6),
    load_mode=st.sampled_from(["auto", "none", "mlock"]), op_offload=st.booleans(),
    overrides=st.sampled_from([(), (("exps", "CPU"),), (("attn", "CUDA1"),), (("out", "X9"),)]),
)  # fmt: skip
sglangs = st.builds(
    SglangPlan, ranks=st.integers(1, 3), ctx=st.integers(1, 1 << 17), kt=st.booleans(),
    kt_gpu_experts=st.integers(0, 9), cpu_offload=sizes, kt_mmap=st.booleans(),
)  # fmt: skip
free = st.integers(0, 400 * GIB)
machines = st.builds(
    lambda first, second, ram, swap: Machine(
        cards=(Card("a", total=512 * GIB, free=first), Card("b", total=512 * GIB, free=second)),
        ram_available=ram, swap_free=swap, disk_read_bps=1e9, disk_free=10**15,
    ),
    free, free, free, free,
)  # fmt: skip


def harmless(words: Iterable[str]) -> None:
    """No character in them that a terminal could act on."""
    assert [one for one in words if clean(one) != one] == []


@given(models(), asks, st.integers(0, 1 << 20))
@settings(max_examples=80, deadline=None)
def test_more_context_never_needs_less(model: ModelFacts, ask: LlamaPlan, more: int) -> None:
    first, second = cache_of(model, ask), cache_of(model, replace(ask, ctx=(ask.ctx or 0) + more))
    assert first is not None
    assert all(low <= high for low, high in zip(first.layers, some(second).layers, strict=True))
    assert first.bytes == sum(part.bytes for part in first.parts)


@given(models(), plans, machines)
@settings(max_examples=80, deadline=None)
def test_every_byte_is_placed_once(model: ModelFacts, plan: LlamaPlan, machine: Machine) -> None:
    placed = place(model, plan, machine.cards)
    everything = [*placed.cards, placed.host]
    copied = model.tied and places(model, plan, machine.cards)[-1] != HOST
    expected = model.weight_bytes + (model.bytes_of(Kind.TOKENS) if copied else 0)
    counted = [
        (sum(share.weights for share in everything), expected),
        (sum(share.cache for share in everything), some(placed.cache).bytes),
    ]
    # `-sm tensor` divides rows and heads; what it cannot divide is whole on every card
    whole = plan.split_mode == "tensor"
    assert all(got >= wanted if whole else got == wanted for got, wanted in counted), counted
    assert min(share.bytes for share in everything) >= 0


@given(
    models(), st.one_of(plans, sglangs), machines, free, st.sampled_from(["ram", "swap", "a", "b"])
)
@settings(max_examples=40, deadline=None)
def test_more_free_memory_is_never_worse(
    model: ModelFacts, plan: LoaderPlan, machine: Machine, more: int, where: str
) -> None:
    gains = {where: more}
    richer = replace(
        machine, ram_available=(machine.ram_available or 0) + gains.get("ram", 0),
        swap_free=(machine.swap_free or 0) + gains.get("swap", 0),
        cards=tuple(replace(one, free=(one.free or 0) + gains.get(one.name, 0))
                    for one in machine.cards),
    )  # fmt: skip
    before, after = assess(model, plan, machine), assess(model, plan, richer)
    assert ORDER.index(after.verdict) <= ORDER.index(before.verdict)


@given(models(), st.one_of(plans, sglangs), machines)
@settings(max_examples=40, deadline=None)
def test_sums_lines_and_predictions_hold(
    model: ModelFacts, plan: LoaderPlan, machine: Machine
) -> None:
    found = assess(model, plan, machine)
    for limit in found.limits:
        assert limit.need == sum(t.bytes or 0 for t in found.terms if t.where == limit.where)
    short = [limit for limit in found.limits if limit.hard and limit.short_by]
    assert (found.verdict is Verdict.NO_GO) >= bool(short)
    text = lines(found)
    assert max(len(line) for line in text) <= WIDTH
    harmless(text)
    peak = found.envelope.peak
    assert peak.ram <= (machine.ram_available or 0)
    assert peak.swap <= (machine.swap_free or 0)
    assert found.ceiling_tok_s is None or found.ceiling_tok_s > 0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
config_keys = st.sampled_from([
    "num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "head_dim",
    "num_key_value_heads", "intermediate_size", "n_routed_experts", "num_experts_per_tok",
    "kv_lora_rank", "sliding_window", "layer_types", "model_type", "text_config",
    "first_k_dense_replace", "num_nextn_predict_layers", "mlp_only_layers", "architectures",
    "moe_intermediate_size", "tie_word_embeddings", "decoder_sparse_step",
    "max_position_embeddings",
])  # fmt: skip


@given(st.dictionaries(config_keys, anything), st.integers(0, 1 << 40))
@settings(max_examples=60, deadline=None)
def test_any_config_gives_facts_or_a_refusal(config: dict[str, object], size: int) -> None:
    """`num_hidden_layers` may be large: it is bounded, and nothing else takes long."""
    try:
        facts = from_config({"num_hidden_layers": 3, **config}, size)
    except BadFacts as error:
        harmless(error.lines())
        return
    assert 0 <= facts.weight_bytes <= size
    assess(facts, SglangPlan(), Machine())


gguf_values = st.one_of(
    st.integers(-(2**63), 2**64), st.floats(), st.booleans(), st.text(max_size=10),
    st.builds(Array, st.just("INT32"), st.just(3), st.none() | st.tuples(*[st.integers()] * 3)),
)  # fmt: skip
gguf_keys = st.sampled_from([
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.key_length_mla", "attention.value_length_mla",
    "attention.sliding_window", "attention.sliding_window_pattern", "context_length",
    "feed_forward_length", "expert_count", "expert_used_count", "ssm.conv_kernel",
    "ssm.inner_size", "ssm.state_size", "nextn_predict_layers", "attention.indexer.key_length",
    "attention.shared_kv_layers", "shortconv.l_cache", "wkv.head_size",
])  # fmt: skip


@given(st.dictionaries(gguf_keys, gguf_values), st.sampled_from(["llama", "gemma3", "mamba", "x"]))
@settings(max_examples=60, deadline=None)
def test_any_header_gives_facts_or_a_refusal(keys: dict[str, object], arch: str) -> None:
    kv: dict[str, object] = {"general.architecture": arch, f"{arch}.block_count": 3}
    kv |= {f"{arch}.{key}": value for key, value in keys.items()}
    tensors = [FakeTensor("blk.0.attn_q.weight", (8, 8), "F16", 128)]
    try:
        facts = from_gguf(FakeHeader(kv, tensors))
    except BadFacts as error:
        harmless(error.lines())
        return
    assess(facts, LlamaPlan(), Machine(cards=(Card("a", total=GIB, free=GIB),)))


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["-ngl", "-c", "-ts", "-fa", "-ot", "--tp"]))
)
@settings(max_examples=60, deadline=None)
def test_any_command_line_is_read(argv: list[str]) -> None:
    for plan in (llama_plan(argv), sglang_plan(argv)):
        harmless((*plan.problems, *plan.uncounted, *plan.notes))
