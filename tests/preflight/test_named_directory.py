"""A directory of weights whose name says something else than its config.json: the name proves
nothing (`MiniMax-M2.7-BF16` with FP8 inside was a GO on cards without kernels for FP8)."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight.compatibility import computes
from console.checks.preflight.readings import contents_of, listing_of
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.vllm import vllm_plan
from tests.sizing.test_backends import CONFIG

FP8: dict[str, Any] = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}
PACKED: dict[str, Any] = {
    "quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "strategy": "group"}}},
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config", "stored"),
    [
        ("MiniMax-M2.7-BF16", FP8, "fp8"), ("MiniMax-M2.7-W4A16", FP8, "fp8"),
        ("GLM-4.5-Air-FP8", {}, "bf16"), ("Qwen3.8-27B-INT4", PACKED, "w4a16"),
        ("gemma4-31b-AWQ", PACKED, "w4a16"), ("Model-4bit", PACKED, "w4a16"),
    ],
)  # fmt: skip
def test_the_configuration_counts_and_not_the_name(
    tmp_path: Path, name: str, config: dict[str, Any], stored: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "model.safetensors").write_bytes(b"\0" * 64)
    chosen = contents_of(listing_of(str(folder)), (), ()).choose()
    assert chosen.origin == "by config.json"
    facts = from_config({**CONFIG, **config}, 1 << 30)
    for label in (chosen.quantization, name.rpartition("-")[2]):
        assert computes(facts, vllm_plan([]), label) == stored
