"""The cache in figures that are known; what its formula says is held by the test of words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.kv_cache import CACHE_TYPES, cache_of, row_bytes
from console.models.sizing.loader_plan import LlamaPlan
from tests.fit import configs, shapes

GIB = 1 << 30
R1 = from_gguf(shapes.deepseek_r1("Q4_K_M"))
R1_OLD = from_gguf(shapes.deepseek_r1("Q4_K_M", latent=False))


def gib(facts: object, **ask: object) -> float:
    cache = cache_of(facts, LlamaPlan(parallel=1, **ask))  # type: ignore[arg-type]
    assert cache is not None
    assert cache.bytes == sum(cache.layers) == sum(part.bytes for part in cache.parts)
    return cache.bytes / GIB


def test_deepseek_at_known_contexts() -> None:
    assert gib(R1, ctx=32768) == pytest.approx(2.145, abs=0.001)
    assert gib(R1, ctx=163840) == pytest.approx(10.72, abs=0.01)
    assert gib(R1_OLD, ctx=32768) == pytest.approx(152.5, abs=0.1)
    assert gib(from_config(configs.DEEPSEEK_R1, GIB), ctx=32768) == gib(R1, ctx=32768)


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
