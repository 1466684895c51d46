"""Which layers have a window, and what the cache takes, against what a real llama.cpp prints.

It prints the former before it looks at a tensor, so a file without any does.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from console.models.sizing.facts_from_gguf import PERIODS, from_gguf
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.loader_plan import LlamaPlan
from console.rehearsal.demo.model import Value, write_gguf
from tests.sizing.loading import logged
from tests.sizing.tiny import MODELS, Model, _metadata, header_of
from tests.waiting import some

LAYERS = 12
KEYS: dict[str, Value] = {
    "attention.layer_norm_epsilon": 1e-6, "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 32, "expert_count": 4, "expert_used_count": 2,
    "expert_feed_forward_length": 64, "expert_shared_count": 1, "leading_dense_block_count": 1,
    "expert_gating_func": 2, "expert_weights_scale": 1.0, "interleave_moe_layer_step": 1,
    "rope.freq_base_swa": 1e4, "attention.key_length_swa": 16, "attention.value_length_swa": 16,
    "embedding_length_per_layer_input": 16, "attention.shared_kv_layers": 0, "logit_scale": 1.0,
    "final_logit_softcapping": 30.0, "attn_logit_softcapping": 30.0, "attention.scale": 1.0,
}  # fmt: skip
# without any rule of their own, a window is not used, whatever the file says
PLAIN = ("llama", "qwen2", "qwen3", "qwen3moe", "phi3", "deepseek2")
LINE = re.compile(r"layer +\d+ assigned to device \w+, is_swa = ([01])")


def model(arch: str, layers: int = LAYERS, **more: Value) -> Model:
    metadata = _metadata(arch, layers, **more)
    metadata |= {f"{arch}.{key}": value for key, value in KEYS.items()}
    return Model(metadata, [])


WINDOWED: dict[str, Model] = {
    **{arch: model(arch, attention__sliding_window=512) for arch in (*PERIODS, *PLAIN)},
    "no window": model("gemma3"),
    "its own window": model("gemma2"),
    "another period": model(
        "gemma3", attention__sliding_window=512, attention__sliding_window_pattern=3
    ),
    "64 layers": model("exaone4", 64, attention__sliding_window=512),
    "32 layers": model("exaone4", 32, attention__sliding_window=512),
    "listed": model(
        "gemma4", attention__sliding_window=512,
        attention__sliding_window_pattern=[1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1],
    ),
}  # fmt: skip


def windows(name: str) -> list[bool]:
    """What the rules of this program say of a case's layers."""
    facts = from_gguf(header_of(WINDOWED[name]))
    return list(facts.attention.windowed or (False,) * some(facts.layers))


@pytest.mark.alone
@pytest.mark.full
def test_the_same_layers_have_a_window(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    files = []
    for name, one in WINDOWED.items():
        files.append((tmp_path / f"{name}.gguf", {}))
        write_gguf(files[-1][0], one.metadata, [], seed=1)
    read = 0
    for name, log in zip(WINDOWED, logged(tmp_path, files), strict=True):
        ours = windows(name)
        real = [flag == "1" for flag in LINE.findall(log)][: len(ours)]
        read += bool(real)
        assert real in ([], ours), name  # some builds read no further in some
    assert read > len(WINDOWED) // 2


TOLERANCE = 0.02
ALONE: dict[str, Any] = {"n_ctx": 16384}
MORE: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"n_ctx": 5000, "n_parallel": 3}),
    ("llama", {"n_ctx": 5000, "n_parallel": 3, "kv_unified": True}),
    ("llama", {"n_ctx": 16384, "cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
    ("llama", {"n_ctx": 0}),
    ("gemma3", {"n_ctx": 16384, "n_parallel": 4}),
    ("gemma3", {"n_ctx": 16384, "n_parallel": 4, "kv_unified": True}),
    ("gemma3", {"n_ctx": 16384, "swa_full": True}),
    ("gemma3", {"n_ctx": 8192, "n_parallel": 2, "n_ubatch": 128}),
    ("lfm2", {"n_ctx": 8192, "n_parallel": 4}),
    ("qwen3next", {"n_ctx": 16384, "n_parallel": 64}),
    ("mamba", {"n_ctx": 512, "n_parallel": 4}),
]
CASES = [(name, ALONE) for name in MODELS] + MORE
# "llama_kv_cache:        CPU KV buffer size =    12.00 MiB", and RS for states.
SIZE = re.compile(r"(?:KV|RS) buffer size = +([\d.]+) MiB")


def ask(parameters: dict[str, Any]) -> LlamaPlan:
    names = {
        "n_ctx": "ctx", "n_parallel": "parallel", "kv_unified": "kv_unified", "n_ubatch": "ubatch",
        "cache_type_k": "type_k", "cache_type_v": "type_v", "swa_full": "swa_full",
    }  # fmt: skip
    return LlamaPlan(**{"parallel": 1} | {names[key]: one for key, one in parameters.items()})


@pytest.mark.alone
def test_the_cache_is_what_llama_cpp_makes(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    paths = {name: make().write(tmp_path / f"{name}.gguf") for name, make in MODELS.items()}
    logs = logged(tmp_path, [(paths[name], how) for name, how in CASES])
    for (name, how), log in zip(CASES, logs, strict=True):
        cache = some(cache_of(from_gguf(header_of(MODELS[name]())), ask(how)))
        sizes = [float(size) for size in SIZE.findall(log)]
        assert sizes, (name, how, log[-2000:])
        assert "exiting due to" not in log, (name, how, log[-2000:])
        real = pytest.approx(sum(sizes), rel=TOLERANCE)
        assert cache.bytes / 2**20 == real, (name, how)
