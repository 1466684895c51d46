"""Facts out of GGUF headers and config.json: what is read, what is missing, what is refused."""

from pathlib import Path

import pytest

from console.models.gguf.header import Array
from console.models.gguf.read import read_header
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import experts_at, from_gguf
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import BadFacts, Kind
from tests.sizing import shapes
from tests.sizing.tiny import MODELS, FakeHeader, FakeTensor, header_of, llama

GIB = 1 << 30


def test_weights_are_sorted_by_what_they_are_for() -> None:
    facts = from_gguf(shapes.deepseek_r1("Q4_K_M"))
    assert sum(facts.bytes_of(kind) for kind in Kind) == facts.weight_bytes
    sparse = [weight for weight in facts.weights if weight.kind is Kind.EXPERTS]
    experts = {n: sum(one.bytes for one in sparse if one.layer == n) for n in (2, 60)}
    assert experts[2] == 0
    # 256 x 3 x 7168 x 2048 weights, two of three in Q4_K (4.5 bit), one in Q6_K (6.5625 bit)
    assert experts[60] == 256 * 7168 * 2048 * (9 + 6.5625) / 8
    assert not facts.tied
    assert from_gguf(shapes.gemma3_27b()).tied


def test_a_layer_for_guessing_ahead_is_not_loaded() -> None:
    facts = from_gguf(header_of(MODELS["glm4moe"]()))
    assert (facts.layers, facts.spare_layers) == (2, 1)
    skipped = [weight for weight in facts.weights if weight.kind is Kind.SKIPPED]
    assert skipped
    assert {weight.layer for weight in skipped} == {2}


def test_the_experts_of_a_directory_are_those_of_its_one_whole_set(tmp_path: Path) -> None:
    assert experts_at(tmp_path) is None
    path = MODELS["qwen3moe"]().write(tmp_path / "model.gguf")
    due = from_gguf(header_of(MODELS["qwen3moe"]())).bytes_of(Kind.EXPERTS)
    assert experts_at(tmp_path) == due > 0
    other = MODELS["glm4moe"]().write(tmp_path / "other.gguf")
    assert experts_at(tmp_path) is None, "which of the two it would be is nobody's guess"
    other.unlink()
    path.write_bytes(path.read_bytes()[:-4096])
    assert experts_at(tmp_path) is None
    assert experts_at(path) is None


@pytest.mark.parametrize("name", MODELS)
def test_a_real_reader_gives_the_same_facts(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = model.write(tmp_path / "model.gguf")
    assert from_gguf(read_header(path).header) == from_gguf(header_of(model))


def test_other_sizes_of_the_same_model_are_scaled() -> None:
    facts = from_gguf(shapes.distill_32b())
    half = facts.scaled(facts.weight_bytes // 2)
    assert half.weight_bytes == pytest.approx(facts.weight_bytes / 2, rel=1e-6)
    assert half.attention == facts.attention
    assert facts.scaled(-1) is facts


def test_what_is_missing_is_named() -> None:
    for lacks in (
        "block_count", "attention.key_length attention.head_count",
        "attention.head_count attention.head_count_kv attention.key_length",
    ):  # fmt: skip
        gone = [f"llama.{key}" for key in lacks.split()]
        kv = {key: value for key, value in header_of(llama()).kv.items() if key not in gone}
        facts = from_gguf(FakeHeader(kv, header_of(llama()).tensors))
        assert any(gone[0] in words for words in facts.missing)


def test_tensors_that_cannot_be_are_refused() -> None:
    """No such block; too large; below zero."""
    for block, dims, size in ((9, (64, 64), 8192), (0, (2**40, 2**40), 2**60), (0, (1,), -5)):
        tensor = FakeTensor(f"blk.{block}.ffn_up.weight", dims, "F16", size)
        with pytest.raises(BadFacts):
            from_gguf(FakeHeader(header_of(llama()).kv, [tensor]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"feed_forward_length": 0}, "feed_forward_length is 0; expected the width of blk.0.ffn_"),
        ({"block_count": 9}, "block_count is 9; expected tensors of block 2, and there are none"),
        (
            {"block_count": 3, "nextn_predict_layers": 1},
            "nextn_predict_layers is 1; expected tensors of block 2, and there are none",
        ),
    ],
)
def test_keys_that_the_tensors_belie_are_refused(changed: dict[str, int], said: str) -> None:
    """A loader ends with "missing tensor" or "wrong shape"; no build has to be asked."""
    header = header_of(llama(layers=2))
    kv = {**header.kv, **{f"llama.{key}": value for key, value in changed.items()}}
    with pytest.raises(BadFacts) as caught:
        from_gguf(FakeHeader(kv, header.tensors))
    assert said in caught.value.detail


def test_layers_that_are_left_out_have_no_tensors() -> None:
    """Of a model thinned out by a search (deci), a block may have no part at all."""
    header = header_of(llama(layers=2))
    kv = {**header.kv, "llama.block_count": 3, "llama.feed_forward_length":
          Array("INT32", 3, (128, 128, 0))}  # fmt: skip
    assert from_gguf(FakeHeader(kv, header.tensors)).layers == 3


def test_names_are_clean() -> None:
    kv = {"general.architecture": "ll\x1b[31mama", "ll\x1b[31mama.block_count": 1}
    facts = from_gguf(FakeHeader(kv, [FakeTensor("a\x1b]0;b\x07", (1,), "F32", 4)]))
    assert facts.architecture.isprintable()
    assert all(weight.name.isprintable() for weight in facts.weights)
    assert all(words.isprintable() for words in facts.missing)


def test_a_config_gives_parameters_close_to_the_published_ones() -> None:
    published = {"DEEPSEEK_R1": 684.5e9, "DISTILL_32B": 32.8e9, "MIXTRAL": 46.7e9,
                 "GEMMA3_27B": 27.0e9, "QWEN3_235B": 235.1e9}  # fmt: skip
    for name, count in published.items():
        facts = from_config(getattr(shapes, name), GIB)
        assert facts.missing == ()
        assert sum(w.elements for w in facts.weights) == pytest.approx(count, rel=0.03), name


def test_windows_of_a_config() -> None:
    assert not from_config(shapes.DISTILL_32B, GIB).attention.has_window
    gemma = from_config(shapes.GEMMA3_27B, GIB)
    assert gemma.attention.window == 1024
    assert sum(gemma.attention.windowed) == 52
    listed = shapes.MIXTRAL | {
        "sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"] * 16,
    }  # fmt: skip
    assert sum(from_config(listed, GIB).attention.windowed) == 16


HYBRID: dict[str, dict[str, object]] = {
    "MiniMax-Text-01": {"layer_types": ["linear_attention"] * 7 + ["full_attention"]},
    "MiniMax-M1": {"attn_type_list": [0] * 7 + [1]},
    "Qwen3-Next": {"full_attention_interval": 8},
    "Jamba": {"attn_layer_period": 8, "attn_layer_offset": 7},
    "Nemotron-H": {"hybrid_override_pattern": "M-M-ME-*"},
    "LFM2": {"layer_types": ["conv"] * 7 + ["full_attention"]},
}


@pytest.mark.parametrize("name", HYBRID)
def test_a_layer_with_a_state_has_no_cache(name: str) -> None:
    config = {**shapes.DISTILL_32B, "num_hidden_layers": 8, **HYBRID[name]}
    facts = from_config(config, GIB)
    assert facts.attention.kv_heads == (0,) * 7 + (8,)
    assert any("states" in words for words in facts.missing)


def test_a_kind_of_layer_that_is_not_known_is_named() -> None:
    kinds = ["full_attention"] * 63 + ["heavily_compressed_attention"]
    [words] = from_config({**shapes.DISTILL_32B, "layer_types": kinds}, GIB).missing
    assert "heavily_compressed_attention" in words


def test_a_window_whose_layers_are_not_known_is_named() -> None:
    config = {**shapes.DISTILL_32B, "use_sliding_window": True, "sliding_window": 2048}
    assert from_config(config, GIB).missing == ()
    [words] = from_config({**config, "model_type": "brand_new"}, GIB).missing
    assert "which layers keep a window of 2,048 tokens" in words


def renamed(arch: str, **more: int) -> FakeHeader:
    """The tiny Llama as another architecture, with more keys."""
    header = header_of(llama(layers=8))
    kv = {key.replace("llama.", f"{arch}."): value for key, value in header.kv.items()}
    kv |= {"general.architecture": arch}
    return FakeHeader(
        kv | {f"{arch}.{key.replace('__', '.')}": value for key, value in more.items()},
        header.tensors,
    )


def cached(header: FakeHeader, ctx: int = 65536) -> int:
    found = cache_of(from_gguf(header), LlamaPlan(ctx=ctx, parallel=1))
    assert found is not None
    return found.bytes


@pytest.mark.parametrize("arch", ["dream", "llada", "llada-moe", "rnd1"])
def test_diffusion_models_keep_no_cache(arch: str) -> None:
    assert cached(renamed("llama")) > 0
    assert cached(renamed(arch)) == 0


def test_linear_attention_keeps_a_matrix_a_head() -> None:
    """minimax-01: every eighth layer has a cache, the others heads x length x length of F32."""
    whole = cached(renamed("llama")) // 8
    assert cached(renamed("minimax-01")) == whole + 7 * 4 * (4 * 32 * 32)
    [words] = from_gguf(renamed("minimax-01")).missing
    assert "linear attention" in words


def test_a_period_that_is_not_known_is_named() -> None:
    [words] = from_gguf(renamed("brand-new", attention__sliding_window=2048)).missing
    assert "which layers keep a window" in words
    known = from_gguf(renamed("muse-glimmer", attention__sliding_window=2048))
    assert known.missing == ()
    assert known.attention.windowed == (True, True, True, False) * 2


def test_a_config_that_lacks_a_key_says_which() -> None:
    for key in ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"):
        config = {name: value for name, value in shapes.DISTILL_32B.items() if name != key}
        assert any(key in words for words in from_config(config, GIB).missing)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", -61), ("num_hidden_layers", "61"), ("hidden_size", 10**30),
        ("num_key_value_heads", [1, 2]), ("num_attention_heads", 1.5), ("vocab_size", {}),
        ("kv_lora_rank", -1), ("num_experts_per_tok", 300), ("sliding_window", "wide"),
    ],
)  # fmt: skip
def test_a_config_of_nonsense_is_refused(key: str, value: object) -> None:
    config = {**shapes.DEEPSEEK_R1, key: value}
    if key in ("num_key_value_heads", "sliding_window"):
        config = {**shapes.DISTILL_32B, "use_sliding_window": True, key: value}
    with pytest.raises(BadFacts) as caught:
        from_config(config, GIB)
    assert key in caught.value.detail


def test_weight_bytes_are_bounded() -> None:
    for size in (-1, 1 << 60):
        with pytest.raises(BadFacts):
            from_config(shapes.MIXTRAL, size)


@pytest.mark.parametrize("lie", [{"attention.head_count_kv": 4}, {"attention.key_length": 64}])
def test_keys_that_lie_about_k_are_seen_at_its_matrix(lie: dict[str, int]) -> None:
    honest = header_of(llama())
    assert from_gguf(honest).missing == ()
    kv = {**honest.kv, **{f"llama.{key}": value for key, value in lie.items()}}
    [words] = from_gguf(FakeHeader(kv, honest.tensors)).missing
    assert words.startswith("blk.0.attn_k.weight: it is 64 wide, and llama's keys make K 128 wide")


def test_a_list_that_the_loader_does_not_read_changes_nothing() -> None:
    """deepseek32 keeps an indexer's keys in every layer, whatever a stray list says."""
    header = header_of(MODELS["deepseek32"]())
    stray = {**header.kv, "deepseek32.attention.indexer.types": Array("INT32", 2, (1, 0))}
    assert from_gguf(FakeHeader(stray, header.tensors)) == from_gguf(header)
    shared = header_of(MODELS["glm_dsa"]())
    assert from_gguf(shared).attention.indexed == (True, False)
