"""Which layers have a window, against what a real llama.cpp prints for every layer it assigns.

It prints that before it looks at a tensor, so a file without any does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.models.sizing.facts_from_gguf import PERIODS, from_gguf
from console.rehearsal.demo.model import Value, write_gguf
from tests.fit.headers import header_of
from tests.fit.logs import logged
from tests.fit.tiny import Model, _metadata

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


CASES: dict[str, Model] = {
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
    facts = from_gguf(header_of(CASES[name]))
    assert facts.layers is not None
    return list(facts.attention.windowed or (False,) * facts.layers)


@pytest.mark.alone
@pytest.mark.full
def test_the_same_layers_have_a_window(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    files = []
    for name, one in CASES.items():
        files.append((tmp_path / f"{name}.gguf", {}))
        write_gguf(files[-1][0], one.metadata, [], seed=1)
    read = 0
    for name, log in zip(CASES, logged(tmp_path, files), strict=True):
        ours = windows(name)
        real = [flag == "1" for flag in LINE.findall(log)][: len(ours)]
        read += bool(real)
        assert real in ([], ours), name  # some builds read no further in some
    assert read > len(CASES) // 2
