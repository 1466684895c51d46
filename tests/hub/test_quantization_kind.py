"""The short names under which engines speak of what a config.json says at length."""

from __future__ import annotations

import pytest

from console.hub.quantization import describe, kind


@pytest.mark.parametrize(
    ("config", "short"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "torch.float16"}, "fp16"),
        ({"dtype": "float32"}, "float32"),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}, "fp8"),
        ({"quantization_config": {"quant_method": "fbgemm_fp8"}}, "fp8"),
        (
            {"quantization_config": {"quant_method": "blockwise_int8",
                                     "weight_block_size": [128, 128]}},
            "block_int8",
        ),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "awq"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors",
                                     "format": "int-quantized"}},
            "int8",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors",
                                     "format": "float-quantized"}},
            "fp8",
        ),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({}, ""),
    ],
)  # fmt: skip
def test_the_short_name(config: dict[str, object], short: str) -> None:
    assert kind(describe(config)) == short
