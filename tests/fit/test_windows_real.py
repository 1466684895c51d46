"""Which layers have a window, against what a real llama.cpp prints for every layer it assigns.

It prints that before it looks at a tensor, so a file without any does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from console.demo.model import Value, write_gguf
from console.fit.from_gguf import PERIODS, from_gguf
from tests.fit.headers import header_of
from tests.fit.tiny import Model, _metadata

pytest.importorskip("xllamacpp")

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


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("headers")
    cases = []
    for name, one in CASES.items():
        path = place / f"{name}.gguf"
        write_gguf(path, one.metadata, [], seed=1)
        cases.append({"model": str(path), "parameters": {}})
    wanted = place / "wanted.json"
    wanted.write_text(json.dumps(cases), "utf-8")
    child = Path(__file__).with_name("load_child.py")
    done = subprocess.run(
        [sys.executable, child, wanted], capture_output=True, check=True, timeout=120
    )
    parts = re.split(r"^@@ \d+$", (done.stdout + done.stderr).decode(errors="replace"), flags=re.M)
    return dict(zip(CASES, parts[1:], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_same_layers_have_a_window(logs: dict[str, str], name: str) -> None:
    facts = from_gguf(header_of(CASES[name]))
    assert facts.layers is not None
    real = [flag == "1" for flag in LINE.findall(logs[name])][: facts.layers]
    if not real:
        why = re.findall(r"error loading model: .*", logs[name])
        pytest.skip(f"this build reads no further in {name}: {why}")
    ours = facts.attention.windowed or (False,) * facts.layers
    assert list(ours) == real
